"""Train the policies of a team to answer as the env demonstrates: a warm start for reinforcement learning.

Leaves out: the play of an episode (`demonstrations`), pocket models from nothing (`pocket`), and schedules of the
learning rate.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice

import pandas as pd

from mas_lab.arguments import check_arguments
from mas_lab.cells.update import check_update
from mas_lab.display.progress import progress_bar
from mas_lab.env import Env, EnvError, Task
from mas_lab.locks import training
from mas_lab.losses import reinforce
from mas_lab.policy import Policy, PolicyError, Request, Sample, check_fit
from mas_lab.team import Team
from mas_lab.train.demonstrations import Demonstration, play, require_demonstrate, speaker
from mas_lab.train.progress import step_seed

SILENT = 100
"""Draws of tasks in a row, without an answer of a policy's agents, after which it is an error."""


def imitate(team: Team, env: Env, tasks: int | Sequence[Task], steps: int, batch: int = 32, lr: float | None = None,
            max_norm: float | None = 1.0, seed: int = 0) -> pd.DataFrame:  # fmt: skip
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
        A table with a row per step and policy, described by `lab.schema("imitate")`: `step`, `policy`, `tokens`, `loss`
        in nats per token, `above_half` and `policy_norm`.

    Raises:
        EnvError: The env has no `demonstrate`, its agents of a policy never act, or an answer has no tokens or exceeds
            the context; names task, agent and turn.
        PolicyError: The back end of a policy cannot do this, another thread trains its model, its learning rate is
            0 and `lr` is not, or its gradient is not finite.
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
    >>> base = lab.load_base(name, adapters=len(env.agents), start="warm")
    """
    check_arguments(imitate, locals(), tasks=1, steps=0, batch=1, lr=0, seed=0)
    require_demonstrate(env, "imitate")
    check_update(team, reinforce(), "token", max_norm, None, "imitate")
    policies, rows = {name: one for name, one in team.policies.items() if team.learners(name)}, []
    if still := [name for name, policy in policies.items() if lr and not policy.lr]:
        never = f"imitate: policy {still[0]!r} has the learning rate 0, which lr={lr:g} cannot scale"
        raise PolicyError(f"{never}; load it with lr={lr:g}")
    streams = {name: _demonstrated(env, tasks, team.learners(name), seed) for name in policies}
    with training([*policies.values()]), progress_bar(steps, "imitate", "step", even=True) as bar:
        try:
            for step in range(steps):
                for name, policy in policies.items():
                    row = _step(policy, islice(streams[name], batch), lr, max_norm)
                    rows.append({"step": step, "policy": name, **row})
                    bar.set_postfix_str(f"loss {row['loss']:.2f}")
                bar.update()
        finally:
            for policy in policies.values():
                policy.sync_weights()
                if hasattr(policy, "start_anew"):
                    policy.start_anew()
    return pd.DataFrame(rows)


def _step(policy: Policy, demonstrations: Iterable[Demonstration], lr: float | None, max_norm: float | None) -> dict:
    """Make one optimizer step, and return what the table says of it."""
    pairs = [_encoded(policy, one) for one in demonstrations]
    total = sum(len(answer) for _, answer in pairs)
    samples = [Sample(prompt, answer, [0.0] * len(answer), 1.0, 1.0, 1 / total) for prompt, answer in pairs]
    policy.set_gradients(None)
    logprobs_N = policy.forward_backward(samples, reinforce()).logprobs_N
    norm, _ = policy.optim_step(max_norm, 1.0 if lr is None else lr / policy.lr)
    loss, above_half = -logprobs_N.mean().item(), (logprobs_N.exp() > 0.5).float().mean().item()
    return {"tokens": total, "loss": loss, "above_half": above_half, "policy_norm": norm}


def _encoded(policy: Policy, one: Demonstration) -> tuple[list[int], list[int]]:
    """Return the token ids of the prompt and of the answer."""
    try:
        prompt, answer = policy.encode(one.messages, one.tools), policy.encode_answer(one.text)
        check_fit(policy, [Request(tuple(prompt), len(answer), 1.0, 0)])
    except PolicyError as error:
        raise EnvError(f"{one.place}: cannot learn {one.text!r:.80}: {error}") from error
    return prompt, answer


def _demonstrated(env: Env, tasks: int | Sequence[Task], agents: Sequence[str], seed: int) -> Iterator[Demonstration]:
    """Yield the demonstrated answers of `agents`, one episode after the other, without end."""
    rng, silent = random.Random(f"{seed} {' '.join(agents)}"), 0
    for part in count():
        drawn = tasks if isinstance(tasks, Sequence) else env.tasks(tasks, "train", step_seed(seed, part))
        if silent == SILENT:
            never = f"imitate: {' and '.join(agents)} did not act in {SILENT} draws of {len(drawn)} tasks"
            raise EnvError(f"{never}; give tasks and demonstrate play in which they act, or freeze them")
        silent += 1
        for one in (one for task in drawn for one in play(env, task, speaker(env, rng)) if one.agent in agents):
            silent = 0
            yield one
