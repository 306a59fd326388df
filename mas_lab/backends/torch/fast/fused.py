"""Run a small Llama-like model over flat tokens in few operations, to sample on a CPU.

In a model of a million parameters, half the time of a decoding step goes to the calls of its many modules. Here one
product makes queries, keys and values, another one gate and up, and one rotation serves queries and keys. Leaves out:
gradients, adapters, GPUs, half precision, and models that compute another function in a trial. They run as they are.

Shapes: M flat tokens; h hidden size; H query heads; K key heads; D head size; U kept tokens; V vocabulary.
"""

from dataclasses import dataclass

import torch
from torch.nn.functional import linear, rms_norm, silu

from mas_lab.backends.torch.fast.tree_attention import Layout, tree_attention
from mas_lab.backends.torch.source import head_size


@dataclass
class Layer:
    """The joined matrices of one layer, and the module of its attention."""

    attention: torch.nn.Module
    norms: tuple[torch.Tensor, torch.Tensor]
    """Weights (h,) of the norms before attention and before the MLP."""
    qkv: tuple[torch.Tensor, torch.Tensor | None]
    """Weight ((H + 2 K) D, h) and bias."""
    heads: torch.Tensor | None
    """Weights (H + K, D) of the norms of queries and keys. `None`: they have no norms."""
    out: tuple[torch.Tensor, torch.Tensor | None]
    gate_up: tuple[torch.Tensor, torch.Tensor | None]
    down: tuple[torch.Tensor, torch.Tensor | None]


def joined(*layers: torch.nn.Linear) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return weight and bias of one linear layer whose output is that of all `layers` in a row."""
    bias = None if layers[0].bias is None else torch.cat([layer.bias for layer in layers])
    return torch.cat([layer.weight for layer in layers]), bias


class FusedForward:
    """The forward pass of `net` with the weights that it has now."""

    @torch.inference_mode()
    def __init__(self, net):
        config = self.config = net.config
        self.net, self.head, self.eps = net, net.get_output_embeddings(), config.rms_norm_eps
        self.size = head_size(config)
        self.queries, self.keys = config.num_attention_heads, config.num_key_value_heads
        self.layers = [self._layer(layer) for layer in net.model.layers]

    def _layer(self, layer) -> Layer:
        attention, mlp, heads = layer.self_attn, layer.mlp, None
        if hasattr(attention, "q_norm"):
            counted = (attention.q_norm, self.queries), (attention.k_norm, self.keys)
            heads = torch.cat([norm.weight.expand(count, -1) for norm, count in counted])
        return Layer(
            attention,
            (layer.input_layernorm.weight, layer.post_attention_layernorm.weight),
            joined(attention.q_proj, attention.k_proj, attention.v_proj),
            heads,
            joined(attention.o_proj),
            joined(mlp.gate_proj, mlp.up_proj),
            joined(mlp.down_proj),
        )

    def __call__(self, ids_M: torch.Tensor, at_M: torch.Tensor, layout: Layout, keep_U: torch.Tensor) -> torch.Tensor:
        """Return the logits (U, V) of the flat tokens `keep_U`; `at_M` are the positions of all tokens."""
        x_Mh = self.net.model.embed_tokens(ids_M)
        turn_M1D = [part[0].unsqueeze(1) for part in self.net.model.rotary_emb(x_Mh, at_M[None])]
        for layer in self.layers:
            x_Mh = x_Mh + self._attended(layer, self._normed(x_Mh, layer.norms[0]), turn_M1D, layout)
            gate, up = linear(self._normed(x_Mh, layer.norms[1]), *layer.gate_up).chunk(2, -1)
            x_Mh += linear(silu(gate).mul_(up), *layer.down)
        return self.head(self._normed(x_Mh.index_select(0, keep_U), self.net.model.norm.weight))

    def _normed(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, weight.shape[-1:], weight, self.eps)

    def _attended(self, layer: Layer, x_Mh, turn_M1D, layout: Layout) -> torch.Tensor:
        H, K, D = self.queries, self.keys, self.size
        qkv = linear(x_Mh, *layer.qkv).view(len(x_Mh), H + 2 * K, D)
        qk = qkv[:, : H + K]
        if layer.heads is not None:
            qk = rms_norm(qk, (D,), None, self.eps).mul_(layer.heads)
        cos_M1D, sin_M1D = turn_M1D
        first, second = qk.chunk(2, -1)
        qk = (qk * cos_M1D).addcmul_(torch.cat([-second, first], -1), sin_M1D)
        states = [part.transpose(0, 1)[None] for part in (*qk.split([H, K], 1), qkv[:, H + K :])]
        window = getattr(layer.attention, "sliding_window", None)
        mixed, _ = tree_attention(
            layer.attention, *states, None, layer.attention.scaling, sliding_window=window, tree=layout
        )
        return linear(mixed[0].flatten(1), *layer.out)
