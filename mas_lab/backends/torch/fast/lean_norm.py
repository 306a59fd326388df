"""RMSNorm (arXiv 1910.07467) in half the passes over memory, for small models on a CPU.

In a model of a million parameters, norms in element-wise steps take a third of the time of the matrix products. Here
the backward pass is one formula, computed in place. Leaves out: GPUs, half precision, forward-mode derivatives, and
norms that compute another function. They keep their own code.
"""

from functools import partial

import torch
from torch.autograd.function import once_differentiable

from mas_lab.backends.torch.fast.forward_mode import in_forward_mode


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
        normed, inverse = _normed(x, eps)
        ctx.save_for_backward(normed, weight, inverse)
        return normed * weight

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        normed, weight, inverse = ctx.saved_tensors
        product = grad * normed
        rows = product.flatten(0, -2)
        weight_grad = rows.sum(0) if ctx.needs_input_grad[1] else None
        mean = torch.mv(rows, weight).view(inverse.shape).mul_(-1 / len(weight))
        x_grad = torch.mul(grad, weight, out=product).addcmul_(normed, mean).mul_(inverse)
        return x_grad, weight_grad, None


def lean_norms(net: torch.nn.Module) -> int:
    """Replace each RMSNorm layer of `net` that computes this function in a trial; return the number of them."""
    layers = [module for module in net.modules() if _is_rms_norm(module)]
    for layer in layers:
        layer.forward = partial(_lean, layer)
    return len(layers)


def _lean(layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    if in_forward_mode() or x.dtype != torch.float32:
        return type(layer).forward(layer, x)
    if not torch.is_grad_enabled():
        return _normed(x, _eps(layer))[0].mul_(layer.weight)
    return _RMSNorm.apply(x, layer.weight, _eps(layer))


def _eps(layer) -> float | None:
    return getattr(layer, "variance_epsilon", getattr(layer, "eps", None))


@torch.no_grad()
def _is_rms_norm(layer: torch.nn.Module) -> bool:
    weight, eps = getattr(layer, "weight", None), _eps(layer)
    named = type(layer).__name__.endswith("RMSNorm") and len(list(layer.parameters())) == 1
    if not named or eps is None or weight.ndim != 1 or weight.device.type != "cpu" or weight.dtype != torch.float32:
        return False
    x = torch.linspace(-2, 3, 3 * len(weight)).view(3, -1)
    return torch.allclose(layer(x), _RMSNorm.apply(x, weight, eps), atol=1e-5, rtol=1e-5)
