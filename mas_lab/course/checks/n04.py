"""Exercises of notebook 04: when the clip acts, two losses by hand, and one that keeps every token's gradient."""

import numpy as np

from mas_lab.cells.losses import Loss, clipped, reinforce
from mas_lab.course.compare import asked, close, need, same_loss, same_names
from mas_lab.course.exercises import exercise

LOW, HIGH = 0.8, 1.2


@exercise(
    "04.1",
    "Of which weights are the `logprobs` in the table, and after which step does the policy have others?",
    "The second minibatch of the first epoch is met by weights that have already made one step.",
)
def first_steps(steps, ratio):
    close(ratio, 1.0, "max_ratio in the first step", tolerance=1e-3)
    close(steps, 1, "the number of steps", tolerance=1e-9)


@exercise(
    "04.2",
    "Two questions for each token: is its ratio outside 0.8 to 1.2, and does the advantage push it further out?",
    "Praise (A > 0) is clipped above 1.2 alone, blame (A < 0) below 0.8 alone.",
)
def no_gradient(tokens, answer):
    still = np.where(tokens["advantage"] > 0, tokens["ratio"] > HIGH, tokens["ratio"] < LOW).nonzero()[0]
    same_names(answer, range(len(tokens)), still, "look again at the token of this number".format)


@exercise(
    "04.3",
    "Cross-entropy is -log p. Where does the advantage stand, and what is its sign?",
    "A loss per token, no sum and no mean: three operations at most.",
)
def reinforce_by_hand(answer):
    same_loss(lambda now, old, advantages, row: asked(answer, now, advantages), reinforce())


@exercise(
    "04.4",
    "The ratio first: exp(logprobs - old). Then two products with the advantage, and the smaller of the two.",
    "`torch.minimum` of the products, not a clamp alone: for a negative advantage it picks the other side.",
)
def clipped_by_hand(answer):
    same_loss(lambda now, old, advantages, row: asked(answer, now, old, advantages), clipped(0.2))


@exercise(
    "04.5",
    "The weight is `(logprobs_N - old_N).exp()`, with a `clamp(max=...)` and a `detach()`.",
    "No lower bound, and no minimum of two products. The gradient comes from `logprobs_N` alone.",
)
def own_loss(answer):
    need(isinstance(answer, Loss), "a `lab.Loss` is asked for, such as `cispo()`")

    def ours(now, old, advantages, row):
        return -(now - old).exp().clamp(max=HIGH).detach() * advantages * now

    same_loss(lambda *given: asked(answer, *given), ours)
