"""Run small models on a CPU in fewer operations: one RMSNorm for training, one forward pass for sampling.

In a model of a million parameters, norms in element-wise steps take a third of the time of the matrix products. So
`lean_norms` replaces RMSNorm (arXiv 1910.07467) by one that takes half the passes over memory; its backward pass is one
formula, computed in place. `lora_forward` adds an adapter's output in its second product. Half the time of a decoding
step goes to the calls of the many modules. So `FusedForward` runs a Llama-like model over flat tokens: one product
makes queries, keys and values, another one gate and up, and one rotation serves queries and keys; it has no gradients.
Leaves out: norms on GPUs or in forward-mode derivatives, and all but a few architectures. They run as they are.

Shapes: M flat tokens; h hidden size; r rank; H query heads; K key heads; D head size; U kept tokens; V vocabulary.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear, rms_norm, silu

from mas_lab.backends.torch.architectures import PROVED
from mas_lab.backends.torch.fast.tree_attention import Layout, in_forward_mode, tree_attention
from mas_lab.backends.torch.source import head_size


def _normed(x: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    inverse = norm.square_().mul_(1 / x.shape[-1]).add_(eps).rsqrt_()
    return x * inverse, inverse


class _RMSNorm(torch.autograd.Function):
    """RMSNorm y = w n with n = x / r and r = sqrt(mean(x^2) + eps).

    The gradients are dx = (w dy - n mean(w dy n)) / r and dw = sum(dy n).
    """

    @staticmethod
    def forward(ctx, x, weight, eps):
        normed, inverse = _normed(x.float(), eps)
        ctx.save_for_backward(normed, weight, inverse)
        return (normed * weight).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        normed, weight, inverse = ctx.saved_tensors
        product = grad * normed
        rows = product.flatten(0, -2)
        weight_grad = rows.sum(0) if ctx.needs_input_grad[1] else None
        mean = torch.mv(rows, weight.float()).view(inverse.shape).mul_(-1 / len(weight))
        x_grad = torch.mul(grad.float(), weight, out=product).addcmul_(normed, mean).mul_(inverse)
        return x_grad.to(grad.dtype), weight_grad, None


def lean_norms(net: torch.nn.Module) -> None:
    """Replace the RMSNorm layers of a model that may run fused (`architectures`) on a CPU."""
    layers = [module for module in net.modules() if type(module).__name__.endswith("RMSNorm")]
    if net.config.model_type in PROVED["fused"] and net.device.type == "cpu":
        for layer in layers:
            layer.forward = partial(_lean, layer)


def _lean(layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    if in_forward_mode():
        return type(layer).forward(layer, x)
    return _RMSNorm.apply(x, layer.weight, layer.variance_epsilon)


def lora_forward(layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Return y + (x A^T) (alpha B)^T of a LoRA layer of PEFT: its base's output y and its active adapter's."""
    y = layer.base_layer(x)
    if layer.disable_adapters:
        return y
    (name,) = layer.active_adapters
    up = layer.lora_B[name].weight.T * layer.scaling[name]
    return torch.addmm(y.flatten(0, -2), layer.lora_A[name](x).flatten(0, -2), up).view(y.shape)


class Product:
    """The product of linear layers that read the same input, in one matrix, with their adapters.

    The matrices A of an adapter stand side by side, and its matrices B on the diagonal of one matrix.
    """

    def __init__(self, dtype: torch.dtype, *layers: torch.nn.Module):
        bases = [getattr(layer, "base_layer", layer) for layer in layers]
        weights = [base.weight.to(dtype) for base in bases]
        self.layers, self.dtype = layers, dtype
        self.weight = weights[0] if len(weights) == 1 else torch.cat(weights)
        self.bias = None if bases[0].bias is None else torch.cat([base.bias for base in bases]).to(dtype)

    def __call__(self, x_Mh: torch.Tensor, slices: Any = None) -> torch.Tensor:
        """Return the outputs of `x_Mh`; an adapter's factors (h, r) and (r, outputs) are read at their first use."""
        x_Mh = x_Mh.to(self.dtype)
        y = linear(x_Mh, self.weight, self.bias)
        for adapter, rows in slices.parts if slices else ():
            if (self, adapter) not in slices.factors:
                ups = [layer.lora_B[adapter].weight * layer.scaling[adapter] for layer in self.layers]
                down = torch.cat([layer.lora_A[adapter].weight for layer in self.layers])
                slices.factors[self, adapter] = down.T.to(self.dtype), torch.block_diag(*ups).T.to(self.dtype)
            down, up = slices.factors[self, adapter]
            y[rows].addmm_(x_Mh[rows] @ down, up)
        return y


@dataclass
class Layer:
    """The products of one layer, and the module of its attention."""

    attention: torch.nn.Module
    norms: tuple[torch.Tensor, torch.Tensor]
    """Weights (h,) of the norms before attention and before the MLP."""
    heads: torch.Tensor | None
    """Weights (H + K, D) of the norms of queries and keys. `None`: they have no norms."""
    qkv: Product
    out: Product
    gate_up: Product
    down: Product


class FusedForward:
    """The forward pass of `net` with the weights that it has now. `dtype` is the type of the products."""

    @torch.inference_mode()
    def __init__(self, net, dtype: torch.dtype = torch.float32):
        config = self.config = net.config
        self.net, self.dtype, self.eps = net, dtype, config.rms_norm_eps
        self.head = Product(dtype, net.get_output_embeddings())
        self.size = head_size(config)
        self.queries, self.keys = config.num_attention_heads, config.num_key_value_heads
        self.layers = [self._layer(layer) for layer in net.model.layers]
        self.slices: Any = None
        """The engine's `Slices` of the next call, with the present factors of its adapters. `None`: no adapters."""

    def _layer(self, layer) -> Layer:
        attention, mlp, heads = layer.self_attn, layer.mlp, None
        if hasattr(attention, "q_norm"):
            counted = (attention.q_norm, self.queries), (attention.k_norm, self.keys)
            heads = torch.cat([norm.weight.expand(count, -1) for norm, count in counted])
        return Layer(
            attention,
            (layer.input_layernorm.weight, layer.post_attention_layernorm.weight),
            heads,
            Product(self.dtype, attention.q_proj, attention.k_proj, attention.v_proj),
            Product(self.dtype, attention.o_proj),
            Product(self.dtype, mlp.gate_proj, mlp.up_proj),
            Product(self.dtype, mlp.down_proj),
        )

    @torch.autocast("cpu", enabled=False)
    def __call__(self, ids_M: torch.Tensor, at_M: torch.Tensor, layout: Layout, keep_U: torch.Tensor) -> torch.Tensor:
        """Return the logits (U, V) of the flat tokens `keep_U`; `at_M` are the positions of all tokens."""
        x_Mh = self.net.model.embed_tokens(ids_M)
        turn_M1D = [part[0].unsqueeze(1).to(self.dtype) for part in self.net.model.rotary_emb(x_Mh, at_M[None])]
        for layer in self.layers:
            x_Mh = x_Mh + self._attended(layer, self._normed(x_Mh, layer.norms[0]), turn_M1D, layout)
            gate, up = layer.gate_up(self._normed(x_Mh, layer.norms[1]), self.slices).chunk(2, -1)
            x_Mh += layer.down(silu(gate).mul_(up), self.slices)
        return self.head(self._normed(x_Mh.index_select(0, keep_U), self.net.model.norm.weight))

    def _normed(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, weight.shape[-1:], weight, self.eps)

    def _attended(self, layer: Layer, x_Mh, turn_M1D, layout: Layout) -> torch.Tensor:
        H, K, D = self.queries, self.keys, self.size
        qkv = layer.qkv(x_Mh, self.slices).view(len(x_Mh), H + 2 * K, D)
        qk = qkv[:, : H + K]
        if layer.heads is not None:
            qk = rms_norm(qk, (D,), None, self.eps).mul_(layer.heads)
        cos_M1D, sin_M1D = turn_M1D
        first, second = qk.chunk(2, -1)
        qk = (qk * cos_M1D).addcmul_(torch.cat([-second, first], -1), sin_M1D)
        states = [part.transpose(0, 1)[None] for part in (*qk.split([H, K], 1), qkv[:, H + K :])]
        how = {"sliding_window": getattr(layer.attention, "sliding_window", None), "tree": layout}
        mixed, _ = tree_attention(layer.attention, *states, None, layer.attention.scaling, **how)
        return layer.out(mixed[0].flatten(1), self.slices)
