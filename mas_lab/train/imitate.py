"""Train the policies of a team to answer as the env demonstrates: a warm start for reinforcement learning.

Leaves out: the play of an episode (`demonstrations`), pocket models from nothing (`pocket`), and schedules of the
learning rate.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from math import log
from typing import Any

import pandas as pd

from mas_lab.arguments import check_arguments
from mas_lab.cells.update import check_update, learners, no_gradients_left
from mas_lab.check import check_env
from mas_lab.display.documented_frame import documented
from mas_lab.display.progress import progress_bar
from mas_lab.env import Env, EnvError, Task
from mas_lab.locks import training
from mas_lab.losses import reinforce
from mas_lab.policy import Policy, PolicyError, Sample
from mas_lab.team import Team
from mas_lab.train.demonstrations import Demonstration, play, require_demonstrate, speaker
from mas_lab.train.drawing import step_seed

SILENT = 1000
"""Number of demonstrated episodes in a row without an answer of a policy's agents after which it is an error."""


def imitate(
    team: Team,
    env: Env,
    tasks: int | Sequence[Task],
    steps: int,
    batch: int = 32,
    lr: float | None = None,
    max_norm: float | None = 1.0,
    seed: int = 0,
) -> pd.DataFrame:
    """Train the policies of `team` on the answers of `env.demonstrate`, as a warm start for `train`.

    >>> lab.imitate(team, env, tasks=32, steps=30, lr=1e-3)

    `env.demonstrate(state, agent, rng)` plays every agent. A policy learns from the answers of the agents that it plays
    and that are not frozen. Prompts are written as in `rollout`, and each answer ends with the end-of-turn token.
    An agent with tools learns to write calls as the env demonstrates them, which is as Qwen3 does.

    Args:
        team: The team. It may lack agents of the env: `demonstrate` plays them as well.
        env: An env with a method `demonstrate`.
        tasks: The tasks of the demonstrated episodes, played again and again, or a number of tasks that are drawn at a
            time from the split "train".
        steps: Number of optimizer steps of each policy.
        batch: Number of demonstrated answers of each policy in a step.
        lr: Learning rate. `None`: the rate of each policy. The usual rate of a large model is for reinforcement
            learning; a warm start of a LoRA adapter often takes 1e-3.
        max_norm: Bound of each policy's gradient norm. `None`: no clipping.
        seed: Seed of the tasks and of the demonstrations. The same seed gives the same weights.

    Returns:
        A table with a row per step and policy: `step`, `policy`, `tokens`, `loss`, `above_half`, `policy_norm`
        (`lab.schema("imitate")`).

    Raises:
        EnvError: The env breaks its contract (`check_env`), has no `demonstrate`, demonstrates no answer of a policy,
            or demonstrates an answer without tokens or beyond the context; names task, agent and turn.
        PolicyError: The back end of a policy cannot do this, another thread trains its model, or its gradient is not
            finite.
        ValueError: An argument has no meaning.

    The loss of a step is the mean over the N tokens y_t of its answers, end-of-turn tokens included, given the prompt x
    (maximum likelihood; behaviour cloning, Pomerleau 1991, "Efficient Training of Artificial Neural Networks for
    Autonomous Navigation"):

        L = -1/N sum_t log p(y_t | x, y_<t)

    Afterwards a training starts anew, also after an interrupt: the optimizer is new, and an adapter's reference of the
    KL term is the adapter as it is now. A Tinker server keeps its optimizer. The policy is saved as any other. For full
    weights, `lab.load_policy("warm")` opens the folder, and its weights are then the reference.

    One adapter can learn every role, and the adapters of all agents can start from it. After
    `lab.imitate(lab.Team.shared(first, env.agents), ...)`:

    >>> first.save("warm")
    >>> for agent in team: team[agent].load_weights("warm")
    """
    check_arguments(imitate, locals(), tasks=1, steps=0, batch=1, lr=0, seed=0)
    require_demonstrate(env, "imitate")
    if isinstance(tasks, Sequence) and not tasks:
        raise ValueError("imitate: no tasks; pass env.tasks(n, split='train', seed=...), or a number of tasks")
    check_update(team, reinforce(), "token", max_norm, None, "imitate")
    check_env(env, tasks=1, seed=seed)
    streams = {name: _demonstrated(env, tasks, team.learners(name), seed) for name in team.policies}
    pupils = [_Pupil(name, team.policies[name], streams[name], batch, lr, max_norm)
              for name in streams if team.learners(name)]  # fmt: skip
    with training(learners(team)) as each, no_gradients_left(pupils):
        try:
            with progress_bar(steps, "imitate", "step", even=True) as bar:
                for _ in range(steps):
                    list(each(_Pupil.learn, pupils))
                    bar.set_postfix_str("loss " + ", ".join(f"{pupil.rows[-1]['loss']:.2f}" for pupil in pupils))
                    bar.update()
        finally:
            for pupil in pupils:
                pupil.policy.sync_weights()
                if hasattr(pupil.policy, "start_anew"):
                    pupil.policy.start_anew()
    rows = [row for rows in zip(*(pupil.rows for pupil in pupils), strict=True) for row in rows]
    return documented(pd.DataFrame(rows), "imitate")


@dataclass
class _Pupil:
    """A policy that learns, with the demonstrations that it learns from."""

    name: str
    policy: Policy
    stream: Iterator[Demonstration]
    batch: int
    lr: float | None
    max_norm: float | None
    rows: list[dict[str, Any]] = field(default_factory=list)
    """The rows of the table that `imitate` returns."""

    def learn(self) -> None:
        """Make one step on the next demonstrations."""
        pairs = [_encoded(self.policy, one) for one in islice(self.stream, self.batch)]
        total = sum(len(answer) for _, answer in pairs)
        samples = [Sample(prompt, answer, [0.0] * len(answer), 1.0, 1.0, 1 / total) for prompt, answer in pairs]
        logprobs_N = self.policy.forward_backward(samples, reinforce()).logprobs_N
        norm, _ = self.policy.optim_step(self.max_norm, 1.0 if self.lr is None else self.lr / self.policy.lr)
        likely = (logprobs_N > log(0.5)).float().mean().item()
        self.rows.append({"step": len(self.rows), "policy": self.name, "tokens": total,
                          "loss": -logprobs_N.mean().item(), "above_half": likely, "policy_norm": norm})  # fmt: skip


def _demonstrated(env: Env, tasks: int | Sequence[Task], agents: Sequence[str], seed: int) -> Iterator[Demonstration]:
    """Yield the demonstrated answers of `agents`, one episode after the other, without end."""
    rng, silent = random.Random(f"{seed} {' '.join(agents)}"), 0
    for part in count():
        for task in tasks if isinstance(tasks, Sequence) else env.tasks(tasks, "train", step_seed(seed, part)):
            answers = [one for one in play(env, task, speaker(env, rng)) if one.agent in agents]
            yield from answers
            silent = 0 if answers else silent + 1
            if silent == SILENT:
                raise EnvError(
                    f"imitate: no answer of {' or '.join(map(repr, agents))} in {SILENT} demonstrated episodes of "
                    f"{type(env).__name__}; freeze what is never called, or demonstrate play that calls it"
                )


def _encoded(policy: Policy, one: Demonstration) -> tuple[list[int], list[int]]:
    """Return the token ids of the prompt and of the answer."""
    try:
        prompt, answer = policy.encode(one.messages, one.tools), policy.encode_answer(one.text)
    except PolicyError as error:
        raise EnvError(f"{one.place}: {error}; `demonstrate` gives an answer that the policy can write") from error
    if len(prompt) + len(answer) > policy.context:
        raise EnvError(
            f"{one.place}: {len(prompt)} prompt tokens + {len(answer)} of the demonstrated answer exceed the context "
            f"of {policy.context} tokens of policy {policy.name!r}; shorten the observation or the answer"
        )
    return prompt, answer
