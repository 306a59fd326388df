"""Score two texts that are written at once about one source (MAGRPO, arXiv 2508.04652).

The score has parts for lengths, their ratio, different words and style. It is multiplied by the faithfulness to the
source, which the published formula does not read. The tasks decide who writes, and set the targets; counting is in
`wording`.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from mas_lab.env import Step, Task
from mas_lab.tasks.shared import wording
from mas_lab.tasks.shared.bases import PROMPTS, SizedTask
from mas_lab.tasks.shared.rows import draw, sample

MARKER = "|||"
"""Separator of the two texts if one agent writes both."""
BEST = 3.0
PARTS = ("lengths", "ratio", "unique", "style")


@dataclass(frozen=True)
class Targets:
    """Targets of the reward for one task and size; ramps as in `wording.ramp`: (0 at, 1 from[, 1 to, 0 at])."""

    least: int
    most: int
    """Least and most words of each text."""
    ratio: tuple[float, ...]
    """Ramp for the length of the second text / the first."""
    unique: tuple[float, ...]
    """Ramp for the number of different words in the second text / the first."""
    overlap: float
    """Jaccard overlap of their content words that earns the full reward."""
    precise: float
    dense: float
    """Thresholds of `wording.faithfulness`."""

    def fits(self, text: str, published: bool = False) -> bool:
        return self.least <= (len(text.split()) if published else len(wording.words(text))) <= self.most


def parts(first: str, second: str, source: str, goal: Targets, published: bool = False) -> dict[str, float]:
    """Return the parts: `lengths` 0.5, `ratio` 1, `unique` 0.5 and `style` 1 at most, and `faithful`, 0 to 1.

    The first four are gated: a part that fails shuts off those after it. `faithful` is the faithfulness of the less
    faithful text (1 by the published formula).
    """
    found = dict.fromkeys(PARTS, 0.0) | {"faithful": 1.0}
    texts = (first, second)
    if not published:
        found["faithful"] = min(wording.faithfulness(text, source, goal.precise, goal.dense) for text in texts)
    if not all(goal.fits(text, published) for text in texts):
        return found
    found["lengths"] = 0.5
    lengths = [len(text) if published else len(wording.words(text)) for text in texts]
    ratio = wording.ramp(lengths[1] / lengths[0], *goal.ratio)
    if ratio is None:
        return found
    found["ratio"] = ratio
    different = [len(set(wording.words(text))) for text in texts]
    unique = wording.ramp(different[1] / max(1, different[0]), *goal.unique)
    if unique is None:
        return found
    return found | {"unique": 0.5 * unique, "style": _style(first, second, source, goal.overlap, published)}


def _style(first: str, second: str, source: str, enough: float, published: bool) -> float:
    """Return 0.4 * transitions + 0.6 * min(J, enough) / enough.

    J is the Jaccard overlap of the content words. Transitions are 0.4 for the first of twelve kinds in the second text
    and 0.05 for each more.
    """
    contents = [set(wording.content(wording.words(text))) for text in (first, second)]
    if published:
        kinds = len(wording.transitions_inside(second))
    else:
        known = set(wording.content(wording.words(source)))
        contents = [content & known for content in contents]
        kinds = len(wording.transitions(second, source))
    transitions = min(1.0, 0.4 + 0.05 * (kinds - 1)) if kinds else 0.0
    return 0.4 * transitions + 0.6 * min(wording.jaccard(*contents), enough) / enough


def total(found: Mapping[str, float]) -> float:
    """Return the reward, 0 to `BEST`."""
    return sum(found[name] for name in PARTS) * found["faithful"]


@dataclass(frozen=True)
class State:
    source: str
    drafts: tuple[str, str] | None = None
    """Drafts after the last turn."""
    score: float = 0.0
    turn: int = 0
    done: bool = False


@dataclass(frozen=True)
class TwoTextsTask(SizedTask):
    """Base class of the tasks in which two agents write about one source at once.

    A subclass has `targets` and `spare` (pocket tokens beyond the longest text), `default` (sentences of a pocket
    text), `column` (the text of a row), `data`, `max_turns`, `observe`, and `imperfect(source, second, rng)`, which
    returns an imperfect first or second text.
    """

    unit = "sentences"
    succeeds_at = 2.4
    invents = 0.1
    """Share of the words of `demonstrate` that are drawn from all words, at `mistakes` = 1."""
    connects = 0.25
    """Share of the sentences of its second text that start with a transition."""

    @property
    def goal(self) -> Targets:
        return self.targets["full" if self.full else "pocket"]

    @property
    def max_tokens(self) -> int:
        return (2 if self.single_agent else 1) * (512 if self.full else self.goal.most + self.spare)

    def duty(self, agent: str) -> str:
        """Return the full-size prompt of an agent; the lengths that it names earn the full reward for the ratio."""
        return PROMPTS[self.name][agent].format(least=self.goal.least, most=self.goal.most)

    def problems(self, n: int, split: str, seed: int) -> list[tuple[str, dict]]:
        if self.full:
            texts = sample(self.data, n, split, seed, type(self).column, self.name)
        else:
            rng = random.Random(f"{self.name} {self.number} {split} {seed}")
            texts = draw(wording.stories(rng, self.number), n, split, self.name)
        return [(text, {"source": text}) for text in texts]

    def start(self, task: Task) -> State:
        return State(task.data["source"])

    def act(self, state: State, actions: Mapping[str, str]) -> Step:
        texts, goal = tuple(actions[agent] for agent in self.agents), self.goal
        if self.single_agent:
            texts = tuple(text.strip() for text in texts[0].split(MARKER))
            texts = texts if len(texts) == 2 and all(map(wording.words, texts)) else ("", "")
        own = {"solo": texts} if self.single_agent else {agent: (actions[agent],) for agent in self.agents}
        valid = {agent: all(map(wording.words, texts)) for agent, texts in own.items()}
        fits = {agent: float(all(goal.fits(text, self.published) for text in own[agent])) for agent in own}
        found = parts(*texts, state.source, goal, self.published)
        score, done = total(found), state.turn + 1 == self.max_turns
        after = State(state.source, texts, score, state.turn + 1, done)
        gained = score if self.published else score - state.score
        return Step(after, gained, fits, valid, done and score >= self.succeeds_at, done, found)

    def demonstrate(self, state: State, agent: str, rng: random.Random) -> str:
        """Return an imperfect answer to learn from: invented words, wrong lengths, few transitions."""
        if agent == "solo":
            return f" {MARKER} ".join(self.demonstrate(state, role, rng) for role in self.roles)
        return self.imperfect(state.source, agent == self.roles[1], rng)
