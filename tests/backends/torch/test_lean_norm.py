"""The lean RMSNorm is the model's own, forward and backward, and takes over only where it is that function."""

import pytest
import torch
from torch.autograd import forward_ad
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from mas_lab.backends.torch.fast.forward_mode import forward_mode
from mas_lab.backends.torch.fast.lean_norm import lean_norms


def norm(shape, lean):
    layer = Qwen3RMSNorm(shape[-1], eps=1e-3)
    torch.manual_seed(0)
    torch.nn.init.normal_(layer.weight)
    x = torch.randn(shape, requires_grad=True)
    assert not lean or lean_norms(layer) == 1
    return layer, x


@pytest.mark.parametrize("shape", [(5, 16), (1, 7, 16), (1, 6, 4, 8)])
def test_it_is_the_models_own(shape):
    found = []
    for lean in (False, True):
        layer, x = norm(shape, lean)
        y = layer(x)
        y.backward(torch.linspace(-1, 1, y.numel()).view(shape))
        found.append((y.detach(), x.grad, layer.weight.grad))
    for plain, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain, atol=1e-5, rtol=1e-5)


def test_other_norms_and_forward_mode_keep_their_own():
    (layer, x), (plain, _) = norm((3, 8), lean=True), norm((3, 8), lean=False)
    with forward_mode():
        ours, own = (forward_ad.unpack_dual(one(forward_ad.make_dual(x.detach(), torch.ones_like(x)))).tangent
                     for one in (layer, plain))  # fmt: skip
        torch.testing.assert_close(ours, own)
    gemma = Gemma2RMSNorm(8)
    torch.nn.init.normal_(gemma.weight)
    assert lean_norms(gemma) == 0 and "forward" not in vars(gemma)
    assert lean_norms(Qwen3RMSNorm(8).bfloat16()) == 0
    assert lean_norms(torch.nn.LayerNorm(8)) == 0
