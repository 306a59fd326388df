"""Exercises of notebook 09: an env to repair, a plan with two candidates, a shared credit, a loss, a new env."""

import random
from collections import Counter
from typing import Any

from mas_lab.cells.credits import episode_return
from mas_lab.cells.episode import EpisodeState, Generate, Generation, StepEnv
from mas_lab.check.env import check_env
from mas_lab.course.compare import asked, close, same_rows, tables
from mas_lab.course.exercises import NotYet, exercise
from mas_lab.env import EnvError, Step, Task

LIMIT = 60
"""Requests after which a plan counts as endless."""
PULL = 0.5
"""Weight of the penalty in 09.4."""


def conforms(env: Any, tasks: int) -> None:
    """Raise `NotYet` with the message of `lab.check_env` if it refuses an env."""
    if isinstance(env, type):
        raise NotYet(f"an env is asked for, and this is its class: {env.__name__}()")
    try:
        check_env(env, tasks=tasks)
    except EnvError as error:
        raise NotYet(f"check_env says: {error}") from error
    except Exception as error:
        raise NotYet(f"check_env could not play it: {type(error).__name__}: {error}") from error


@exercise(
    "09.1",
    "Run `lab.check_env(Split())`, read what it says, repair that, and run it again: it names one fault at a time.",
    "A text that is no number has no error that could be subtracted: it earns 0.",
    "Build a new state; and ask whether a reward of exactly 1.0 is above 1.0.",
)
def repaired(env):
    conforms(env, 8)
    if tuple(env.agents) != ("left", "right"):
        raise NotYet("the agents are 'left' and 'right'; keep them")
    for task in env.tasks(8, "train", 0):
        total, state = task.data["sum"], env.start(task)
        for off in (0, 1, 3):
            half = total // 2
            step = env.step(state, {"left": str(half), "right": str(total - half + off)})
            what = f"{task.id}, split with an error of {off}"
            close(step.team_reward, max(0.0, 1 - off / total), f"{what}: the reward", 1e-6)
            if step.success != (off == 0):
                raise NotYet(f"{what}: success is {step.success}")
        step = env.step(state, {"left": str(total), "right": "x"})
        close(step.team_reward, 0.0, f"{task.id}, where right says 'x': the reward", 1e-9)
        if step.valid["right"] or not step.valid["left"]:
            raise NotYet(f"{task.id}, where right says 'x': valid is {dict(step.valid)}")


class Echo:
    """Env to test plans: two agents act in turn, twice each, and every answer is valid."""

    agents, max_turns, max_return, max_tokens, pocket = ("one", "other"), 2, 1.0, 4, ""

    def start(self, task):
        return ()

    def acting(self, state):
        return self.agents[len(state) % 2 :][:1]

    def observe(self, state, agent):
        return [{"role": "user", "content": " ".join(state)}]

    def step(self, state, actions):
        [(agent, text)] = actions.items()
        said, done = (*state, text), len(state) == 3
        return Step(said, float(done), {agent: 0.0}, {agent: True}, done, done)


ANSWERS = (("long answer", "short"), ("b", "a longer b"), ("same", "even"), ("the third", "3"))
"""Two candidates for each turn of `Echo`. Of two with equal lengths, the first is kept."""
KEPT = ("short", "b", "same", "3")


def played(plan) -> list[dict]:
    """Play one instance of `Echo` as the driver does, check what the plan requests, and return the rows."""
    episode = EpisodeState(Echo(), Task("echo", {}), "echo")
    try:
        running = plan(episode)
        answer, count = None, 0
        while True:
            wanted = running.send(answer)
            count += 1
            if count > LIMIT:
                raise NotYet("the plan never ends: `episode.next` returns the next node, and None at the end")
            if not isinstance(wanted, list):
                raise NotYet(
                    f"the plan yielded {type(wanted).__name__}; yield a list of `lab.Generate` or `lab.StepEnv`"
                )
            answer = [_answered(episode, one, wanted) for one in wanted]
    except StopIteration:
        return episode.rows
    except NotYet:
        raise
    except Exception as error:
        raise NotYet(f"the plan raised {type(error).__name__}: {error}") from error


def _answered(episode: EpisodeState, one: Any, wanted: list) -> Any:
    if isinstance(one, StepEnv):
        actions = {said.agent: said.text for said in one.said}
        return episode.env.step(one.at.state, actions)
    if not isinstance(one, Generate):
        raise NotYet(f"the plan asked for {type(one).__name__}; `Generate` and `StepEnv` are all it needs")
    asks = Counter(other.candidate for other in wanted if isinstance(other, Generate) and other.agent == one.agent)
    if sorted(asks.items()) != [(0, 1), (1, 1)]:
        raise NotYet(f"{one.agent}, turn {one.at.depth // 2}: asked for the candidates {sorted(asks.elements())}; ask "
                     "for 0 and 1, since one number twice is one draw twice")  # fmt: skip
    return Generation(one.agent, one.candidate, ANSWERS[one.at.depth][one.candidate], {})


@exercise(
    "09.2",
    "`episodes` asks for one `lab.Generate(at, agent)`; ask for two, which differ in the third argument, `candidate`.",
    "`said = yield [Generate(at, agent, i) for i in range(2)]`, and then `min(said, key=lambda one: len(one.text))`.",
    "Step, record and go on with `[kept]`, a list of one.",
)
def asks_twice(plan):
    if not callable(plan) or isinstance(plan, type):
        raise NotYet("a plan is asked for, an instance such as `shorter_of_two()`")
    rows = played(plan)
    found = [row["kept"] for row in rows]
    if not all(found) or len(rows) != len(KEPT):
        raise NotYet(f"{len(rows)} rows, {sum(found)} of them kept; record the kept answer of each of 4 turns, alone")
    for row in rows:
        depth = row["depth"]
        said = ANSWERS[depth][row["candidate"]]
        if said != KEPT[depth]:
            raise NotYet(f"{row['agent']}, turn {row['turn']}: of {ANSWERS[depth]} {said!r} was kept")
    if rows[-1]["team_reward"] != 1.0:
        raise NotYet("the last step's reward is in no row: play until `episode.next` returns None")


@exercise(
    "09.3",
    "An episode's return is what `lab.episode_return()` gives each of its rows.",
    'How many calls an episode has: `turns.groupby("episode")["episode"].transform("size")`.',
)
def shared_by_turns(credit):
    for table in tables():
        calls = table.groupby("episode")["episode"].transform("size")
        same_rows(asked(credit, table), episode_return()(table) / calls, table, "credit")
    return "and the credits of an episode add up to its return, however long it was"


@exercise(
    "09.4",
    "`logprobs_N - old_N` is the logarithm of the ratio; call it `moved_N`.",
    "The penalty is half of `self.pull`, times `moved_N` squared; it is added, since a loss is made small.",
)
def a_spring(loss):
    import torch

    generator = torch.Generator().manual_seed(9)
    for _ in range(4):
        old, advantages = (torch.randn(12, generator=generator) for _ in range(2))
        new = (old + 0.6 * torch.randn(12, generator=generator)).requires_grad_()
        found = asked(loss, new, old, advantages, torch.arange(12) // 3)
        moved = (new - old).detach()
        if not isinstance(found, torch.Tensor) or found.shape != (12,):
            raise NotYet(f"12 tokens went in; a tensor with a loss for each is asked for, not {found!r:.60}")
        if not found.requires_grad:
            raise NotYet("no gradient flows: the log-probabilities must not be detached")
        _same(found, -moved.exp() * advantages + PULL / 2 * moved**2, moved.exp(), "loss")
        [slope] = torch.autograd.grad(found.sum(), new)
        _same(slope, -moved.exp() * advantages + PULL * moved, moved.exp(), "slope")


def _same(yours, ours, ratio, what: str) -> None:
    for token, (a, b, r) in enumerate(zip(yours.tolist(), ours.tolist(), ratio.tolist(), strict=True)):
        if abs(a - b) > 1e-4:
            raise NotYet(f"token {token}, ratio {r:.2f}: your {what} is {a:.4f}, and {b:.4f} was expected")


@exercise(
    "09.5",
    "Begin with who speaks and what each of them cannot see; one reward, two roles, one or two turns will do.",
    "A guesser and a hinter: the hinter sees a number from 1 to 9 and says `higher` or `lower`.",
    "If `demonstrate` is right too often, let it draw at random in a third of its answers.",
)
def an_env_of_ones_own(env):
    conforms(env, 4)
    agents = tuple(env.agents)
    if len(agents) < 2 or agents in (("ann", "ben"), ("left", "right")):
        raise NotYet(f"agents are {agents}; a team of your own has two roles or more, and other ones than here")
    if not hasattr(env, "demonstrate"):
        raise NotYet("it has no `demonstrate`, so `make_pocket` could not make it a model")
    won, spoke, rng = [], set(), random.Random(0)
    for task in env.tasks(8, "train", 0):
        for _ in range(12):
            state, done = env.start(task), False
            while not done:
                acting = env.acting(state)
                spoke |= set(acting)
                step = env.step(state, {agent: env.demonstrate(state, agent, rng) for agent in acting})
                state, done = step.state, step.done
            won.append(step.success)
    if silent := set(agents) - spoke:
        raise NotYet(f"{sorted(silent)[0]!r} never spoke in {len(won)} demonstrated episodes")
    share = sum(won) / len(won)
    if not 0.1 <= share <= 0.9:
        raise NotYet(f"demonstrated play succeeds in {share:.0%} of the episodes; leave room to learn: 10 to 90 %")
    return f'demonstrated play succeeds in {share:.0%}: lab.make_pocket(env, "my_model") is the next line'
