"""What the tests of several ranks run under a launcher, or in one process to compare.

torchrun --nproc_per_node 2 rank_children.py learn MODELS RUNS KIND..   a run of two steps per kind, in RUNS/KIND
... rank_children.py die MODELS RUN RANK WHEN    rank RANK is killed in the third step, while all "sample" or "update"
... rank_children.py fail MODELS RUN             the environment fails in the second step
Prints a JSON object per line: what this rank did.
"""

import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import small

import mas_lab as lab
from mas_lab.explain.diagnostics import norm_without
from mas_lab.policy import Request

RANK = int(os.environ.get("RANK", "0"))
CHANGES = {"tasks": 6, "save_every": 2}


class Counted(small.Relay):
    """Relay, and how often it was stepped in this process; from `breaks_at` on it fails."""

    steps = 0
    breaks_at: int | None = None

    def step(self, state, actions: Mapping[str, str]):
        Counted.steps += 1
        if Counted.breaks_at is not None and Counted.steps >= Counted.breaks_at:
            raise ValueError("the world ended")
        return super().step(state, actions)


@dataclass(frozen=True)
class Long(lab.Loss):
    """A loss of one's own that goes wild where a row is cut: a token counts by the length of its row."""

    def __call__(self, logprobs_N, old_N, advantages_N, row_N, entropy_N=None, reference_N=None):
        return -advantages_N * logprobs_N * lab.row_sum(row_N.new_ones(row_N.shape), row_N)


class Curious(small.Memory):
    """A watch that also asks what a step would be without its first row: passes that all ranks must make."""

    def __call__(self, batch) -> None:
        super().__call__(batch)
        self.total += norm_without(batch, batch.rows.index[0]) + batch.token_shares()["share"].abs().max()
        Curious.calls += 1
        if Curious.dies_at == Curious.calls:
            os.kill(os.getpid(), signal.SIGKILL)

    calls, dies_at = 0, None


RECIPES = {"per_agent": {"loss": Long()}, "unlike": {"loss": lab.clipped(0.2, ratio="sequence"), "aggregate": "turn"}}


def start(kind: str, models: Path, run: Path, steps: int, team: lab.Team | None = None):
    """Return the training of these tests. Small steps: Adam turns noise into whole ones."""
    team = team or small.make_team(kind, models, lr=1e-3)
    recipe = small.RECIPE.replace(**RECIPES.get(kind, {}))
    return lab.train(Counted(), team, recipe, steps, run=run, watch=Curious(), **small.SETTINGS | CHANGES)


def learn(models: Path, runs: Path, *kinds: str) -> None:
    for kind in kinds:
        Counted.steps, scores, team = 0, [], small.make_team(kind, models, lr=1e-3)
        for report in start(kind, models, runs / kind, 2, team):
            steps = Counted.steps
            scores += lab.evaluate(Counted(), team, Counted().tasks(2, "test", 0))["return"].tolist()
            Counted.steps = steps
            if "WORLD_SIZE" in os.environ:
                try:  # passes that the other ranks would not make
                    raise AssertionError(lab.attribute(team, report.turns))
                except lab.PolicyError as error:
                    assert "only train() computes gradients over several ranks" in str(error), error
        team["doer"].sample([Request((5, 6), 3, 1.0, 0)])  # the policies are as before
        say(kind=kind, steps=Counted.steps, scores=scores)


def die(models: Path, run: Path, rank: str, when: str) -> None:
    team = small.make_team("shared", models, lr=1e-3)
    engine, waves = team["doer"].engine, count(1)
    complete = engine.complete

    def dying(asked):
        if next(waves) == 10:
            os.kill(os.getpid(), signal.SIGKILL)
        return complete(asked)

    if int(rank) == RANK and when == "update":
        Curious.dies_at = 5  # two optimizer steps of one policy per training step
    if int(rank) == RANK and when == "sample":
        engine.complete = dying
    for report in start("shared", models, run, 4, team):
        say(step=report.step)


def fail(models: Path, run: Path) -> None:
    team = small.make_team("shared", models, lr=1e-3)
    for report in start("shared", models, run, 4, team):
        say(step=report.step)
        Counted.breaks_at = Counted.steps + 3


def say(**what) -> None:
    print(json.dumps({"rank": RANK, **what}) + "\n", end="", flush=True)  # at once: others print beside it


if __name__ == "__main__":
    import rank_children as named  # as the tests know it: a run says whose env and loss it had

    what, models, where, *rest = sys.argv[1:]
    {"learn": named.learn, "die": named.die, "fail": named.fail}[what](Path(models), Path(where), *rest)
