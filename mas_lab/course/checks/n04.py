"""Exercises of notebook 04: when the clip acts, two losses by hand, and one that keeps every token's gradient."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from mas_lab.cells.losses import Loss, clipped, reinforce
from mas_lab.course.compare import asked, close
from mas_lab.course.exercises import NotYet, exercise

if TYPE_CHECKING:
    from torch import Tensor

LOW, HIGH = 0.8, 1.2


@exercise(
    "04.1",
    "Of which weights are the `logprobs` in the table, and after which step does the policy have others?",
    "The second minibatch of the first epoch is met by weights that have already made one step.",
)
def first_steps(steps, ratio):
    close(ratio, 1.0, "max_ratio in the first step", tolerance=1e-3)
    close(steps, 1, "the number of steps", tolerance=1e-9)
    return "from the second step on the weights are no longer those that spoke, within the first epoch too"


@exercise(
    "04.2",
    "Two questions for each token: is its ratio outside 0.8 to 1.2, and does the advantage push it further out?",
    "Praise (A > 0) is clipped above 1.2 alone, blame (A < 0) below 0.8 alone.",
)
def no_gradient(tokens, answer):
    if not isinstance(answer, list | tuple | set) or any(type(place) is not int for place in answer):
        raise NotYet("a list of places, such as [0, 3], is asked for")
    for place, (ratio, advantage) in enumerate(zip(tokens["ratio"], tokens["advantage"], strict=True)):
        still = ratio > HIGH if advantage > 0 else ratio < LOW
        if still != (place in answer):
            raise NotYet(f"token {place}, ratio {ratio:g}, advantage {advantage:g}: look again")
    if len(set(answer)) != len(answer) or not set(answer) <= set(range(len(tokens))):
        raise NotYet(f"each place once, from 0 to {len(tokens) - 1}")


@exercise(
    "04.3",
    "Cross-entropy is -log p. Where does the advantage stand, and what is its sign?",
    "A loss per token, no sum and no mean: three operations at most.",
)
def reinforce_by_hand(answer):
    for logprobs, old, advantages, row in _tensors():
        _same(
            lambda now, *, A=advantages: asked(answer, now, A),
            lambda now, *, o=old, A=advantages, r=row: reinforce()(now, o, A, r),
            logprobs, old, advantages,
        )  # fmt: skip


@exercise(
    "04.4",
    "The ratio first: exp(logprobs - old). Then two products with the advantage, and the smaller of the two.",
    "`torch.minimum` of the products, not a clamp alone: for a negative advantage it picks the other side.",
)
def clipped_by_hand(answer):
    for logprobs, old, advantages, row in _tensors():
        _same(
            lambda now, *, o=old, A=advantages: asked(answer, now, o, A),
            lambda now, *, o=old, A=advantages, r=row: clipped(0.2)(now, o, A, r),
            logprobs, old, advantages,
        )  # fmt: skip
    return "and where it is clipped, the gradient is 0"


@exercise(
    "04.5",
    "The weight is `(logprobs_N - old_N).exp()`, with a `clamp(max=...)` and a `detach()`.",
    "No lower bound, and no minimum of two products. The gradient comes from `logprobs_N` alone.",
)
def own_loss(answer):
    if not isinstance(answer, Loss):
        raise NotYet(f"a `lab.Loss` is asked for, such as `cispo()`, and this is {type(answer).__name__}")

    def ours(now, old, advantages):
        weight = (now - old).exp().clamp(max=HIGH).detach()
        return -weight * advantages * now

    for logprobs, old, advantages, row in _tensors():
        _same(
            lambda now, *, o=old, A=advantages, r=row: asked(answer.__call__, now, o, A, r),
            lambda now, *, o=old, A=advantages: ours(now, o, A),
            logprobs, old, advantages,
        )  # fmt: skip
    return "no token loses its gradient"


def _tensors(count: int = 6) -> Iterator[tuple["Tensor", ...]]:
    """Yield log-probabilities now and at sampling, advantages, and rows, of 12 tokens; some ratios are far from 1."""
    import torch

    for seed in range(count):
        draw = torch.Generator().manual_seed(seed)
        old = -torch.rand(12, generator=draw) * 3 - 0.8
        moved = torch.randn(12, generator=draw) * 0.4
        moved[seed] = 0.0  # a ratio of exactly 1
        yield old + moved, old, torch.randn(12, generator=draw), torch.arange(12) // 4


def _same(
    yours: Callable, ours: Callable, logprobs: "Tensor", old: "Tensor", advantages: "Tensor", tolerance: float = 1e-4
) -> None:
    """Raise `NotYet` with the first token whose loss or gradient is wrong."""
    import torch

    found = []
    for function in (yours, ours):
        now = logprobs.clone().requires_grad_()
        loss = function(now)
        if not isinstance(loss, torch.Tensor):
            raise NotYet(f"a tensor is asked for, and {type(loss).__name__} came back")
        if loss.shape != now.shape:
            raise NotYet(f"a loss per token is asked for: {tuple(now.shape)}, and not {tuple(loss.shape)}")
        gradient = torch.autograd.grad(loss.sum(), now)[0] if loss.requires_grad else torch.zeros_like(now)
        found.append((loss.detach(), gradient))
    for what, mine, right in zip(("loss", "gradient"), *found, strict=True):
        off = ~torch.isclose(mine, right, rtol=tolerance, atol=tolerance)
        if off.any():
            token = int(off.nonzero()[0])
            raise NotYet(
                f"token {token} (ratio {(logprobs[token] - old[token]).exp():.2f}, advantage {advantages[token]:.2f}): "
                f"your {what} is {mine[token]:.4f}, it should be {right[token]:.4f} "
                f"({int(off.sum())} of {len(off)} tokens differ)"
            )
