"""Let two agents write the introduction of an arXiv paper from its abstract (MAGRPO, arXiv 2508.04652).

Both agents write at once and do not see each other's text. One writes background and motivation, the other method and
implications. With two turns, a reviewer says in plain words what each part lacks, and both write again. Pocket size has
five generated sentences, full size has abstracts for an instruction model. The reward of two texts is in `pair_reward`,
the pocket texts are in `stories`, and reading files is in `rows`.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from mas_lab.env import Message, Step, Task
from mas_lab.tasks.shared import pair_reward, stories, wording
from mas_lab.tasks.shared.options import check_options
from mas_lab.tasks.shared.pair_reward import MARKER, Wanted
from mas_lab.tasks.shared.rows import abstract, check_split, content_id, draw, sample_rows

RATIO, UNIQUE = (0.8, 1.3, 1.6, 2.0), (0.5, 0.7, 1.3, 1.7)
POCKET = Wanted(6, 24, RATIO, UNIQUE, overlap=0.23, precise=1.0, dense=0.4)
FULL = Wanted(128, 256, RATIO, UNIQUE, overlap=0.23, precise=0.5, dense=0.3)
SENTENCES = 5

BACKGROUND, METHOD = "background and motivation", "method and implications"
KEEP = "Keep to what the abstract says, in its words where they fit. Write no heading and no remark."
TASK = {
    "background": f"Write a paragraph of an introduction from the abstract: {BACKGROUND}, in about 140 words "
    f"({{least}} to {{most}} are accepted). Somebody else writes the next one ({METHOD}) in about 200 words, about the "
    f"same things in part. {KEEP}",
    "method": f"Write a paragraph of an introduction from the abstract: {METHOD}, in about 200 words ({{least}} to "
    f"{{most}} are accepted). Somebody else writes the one before it ({BACKGROUND}) in about 140 words; yours is to be "
    f"about the same things in part, and to lead from point to point (therefore, however, for example). {KEEP}",
    "solo": "Write two paragraphs of an introduction from the abstract ({least} to {most} words each are accepted): "
    f"first {BACKGROUND} in about 140 words, then a line that holds ||| and nothing else, then {METHOD} in about 200 "
    "words, about the same things in part, leading from point to point (therefore, however, for example). " + KEEP,
}
"""Prompts by role. The lengths that they name earn the full reward for the ratio."""
ANEW = "Now write what is to stand, whole, with what the reviewer misses."
REVIEWS = {
    "short": "It is too short.",
    "long": "It is too long.",
    "invented": "It says what the abstract does not.",
    "link": "Lead from point to point.",
    "apart": "The two parts have little in common.",
    "fine": "It is fine as it is.",
}
"""Sentences of the reviewer, by their pocket words."""


@dataclass(frozen=True)
class State:
    source: str
    drafts: tuple[str, str] | None = None
    """Drafts after the last turn: background, method."""
    score: float = 0.0
    turn: int = 0
    done: bool = False


@dataclass(frozen=True)
class ArxivIntro:
    """Both agents write at once; with two turns, each then sees its own draft with a review, and writes again.

    A pair of drafts is worth up to 3 (`pair_reward`). The levels are gated: a level that fails shuts off those after
    it.

    - lengths: 0.5 if both are in range
    - ratio: the length of method / background gives 1 in [1.3, 1.6], falling to 0 at 0.8 and 2.0
    - unique: the number of different words in method / background gives 0.5 in [0.7, 1.3], falling to 0 at 0.5 and 1.7
    - style: at most 1

    With rewards "ours", the worth is multiplied by the drafts' faithfulness to the abstract. `team_reward` is the gain
    in worth in this turn, so the return is the worth of the last drafts. Success needs a worth of 2.4 (80 %).

    Rewards "published" (CoMLRL's formula, with our word lists) do not read the abstract. They pay each turn's drafts
    again, so `max_return` is 3 per turn. The tests score their known defects: invented words with a tail of transition
    words, transitions inside words, an introduction to another abstract, and the same draft handed in twice.

    `local_reward` is 1 if the writer's own length is in range. An answer without a word is invalid. A single agent's
    answer is also invalid if it does not have exactly one marker between two texts.
    """

    size: str | int = "pocket"
    """Either "pocket" (5 sentences), "full", or the number of sentences of a pocket text, 3 to 8."""
    rewards: str = "ours"
    single_agent: bool = False
    max_turns: int = 1
    """Either 1, or 2 with a review between the turns."""
    data: str = "LovelyBuggies/arXiv_abstract"
    """Full size: a file, a folder or a data set of the hub (`sources.read`). `rows.abstract` lists its columns."""
    mistakes: float = 1.0
    """How imperfect `demonstrate` is, 0 to 1. Invented words and wrong lengths grow with it."""

    name = "arxiv_intro"
    paper = "MAGRPO, arXiv 2508.04652"
    order = "background + method, 1 or 2 turns"
    pocket = "arxiv_intro"
    succeeds_at = 2.4
    invents = 0.1
    """Share of the words of `demonstrate` that are drawn from all words, at `mistakes` = 1."""
    connects = 0.25
    """Share of the sentences of its method part that start with a transition."""
    misjudges = 0.6
    """Share of its texts that are a sentence too long or too short, at `mistakes` = 1."""

    def __post_init__(self):
        check_options(self, range(3, 9), "sentences")
        if self.max_turns > 2:
            raise ValueError(f"arxiv_intro: max_turns={self.max_turns}; one turn, or two with the reviewer between")

    @property
    def agents(self) -> tuple[str, ...]:
        return ("solo",) if self.single_agent else ("background", "method")

    @property
    def wanted(self) -> Wanted:
        return FULL if self.size == "full" else POCKET

    @property
    def max_return(self) -> float:
        return pair_reward.BEST * (self.max_turns if self.rewards == "published" else 1)

    @property
    def max_tokens(self) -> int:
        both = 2 if self.single_agent else 1
        return both * (512 if self.size == "full" else POCKET.most + 6)

    @property
    def words(self) -> tuple[str, ...]:
        """Return every word of a pocket prompt or answer."""
        return (*stories.WORDS, "near", ".", *stories.LINKS, MARKER, "draft", *REVIEWS, *TASK)

    def tasks(self, n: int, split: str, seed: int) -> list[Task]:
        """Return `n` different abstracts; a longer list starts with the shorter one."""
        check_split(split, self.name)
        if self.size == "full":
            texts = [abstract(row) for row in sample_rows(self.data, n, split, seed, key=abstract, env=self.name)]
        else:
            count = self.size if type(self.size) is int else SENTENCES
            rng = random.Random(f"arxiv_intro {count} {split} {seed}")
            texts = draw(stories.stories(rng, count), n, split, self.name)
        return [Task(f"arxiv_intro-{content_id(text)}", {"source": text}) for text in texts]

    def start(self, task: Task) -> State:
        return State(task.data["source"])

    def acting(self, state: State) -> tuple[str, ...]:
        return () if state.done else self.agents

    def observe(self, state: State, agent: str) -> list[Message]:
        seen = (
            [(state.drafts[place], self._review(state, place)) for place in self._places(agent)] if state.turn else []
        )
        if self.size != "full":
            told = "".join(f" draft {draft} {word}" for draft, word in seen)
            return [{"role": "user", "content": " ".join(f"{state.source}{told} {agent}".split())}]
        told = "".join(f"\n\nYour draft:\n\n{draft}\n\nThe reviewer: {REVIEWS[word]}" for draft, word in seen)
        told += f"\n\n{ANEW}" if seen else ""
        duty = TASK[agent].format(least=self.wanted.least, most=self.wanted.most)
        return [{"role": "system", "content": duty}, {"role": "user", "content": f"{state.source}{told}"}]

    def _places(self, agent: str) -> tuple[int, ...]:
        return (0, 1) if agent == "solo" else (self.agents.index(agent),)

    def _review(self, state: State, place: int) -> str:
        """Return the first defect of one part, as a key of `REVIEWS`."""
        first, second = (wording.words(draft) for draft in state.drafts)
        own, wanted = (first, second)[place], self.wanted
        if not wanted.least <= len(own) <= wanted.most:
            return "short" if len(own) < wanted.least else "long"
        if wording.faithfulness(state.drafts[place], state.source, wanted.precise, wanted.dense) < 1:
            return "invented"
        ratio = len(second) / max(1, len(first))
        if not RATIO[1] <= ratio <= RATIO[2]:
            return "short" if (ratio < RATIO[1]) == (place == 1) else "long"
        if place == 1 and not wording.transitions(state.drafts[1], state.source):
            return "link"
        apart = wording.jaccard(wording.content(first), wording.content(second)) < wanted.overlap
        return "apart" if apart else "fine"

    def step(self, state: State, actions: Mapping[str, str]) -> Step:
        published = self.rewards == "published"
        said = pair_reward.written(actions, self.agents, self.wanted, published)
        parts = pair_reward.parts(*said.texts, state.source, self.wanted, published)
        score, done = pair_reward.total(parts), state.turn + 1 == self.max_turns
        after = State(state.source, said.texts, score, state.turn + 1, done)
        gained = score if published else score - state.score
        return Step(after, gained, said.fits, said.valid, done and score >= self.succeeds_at, done, parts)

    def demonstrate(self, state: State, agent: str, rng: random.Random) -> str:
        """Return an imperfect answer to learn from: invented words, wrong lengths, few transitions.

        In full size it is the abstract, repeated if it is short, and cut to length.
        """
        if agent == "solo":
            return f"{self.demonstrate(state, 'background', rng)} {MARKER} {self.demonstrate(state, 'method', rng)}"
        method = agent == "method"
        if self.size == "full":
            return " ".join((state.source.split() * 40)[: 200 if method else 140])
        slip = rng.choice((-1, 1)) if rng.random() < self.misjudges * self.mistakes else 0
        count = max(1, (3 if method else 2) + slip)
        return stories.excerpt(state.source, rng, count, self.invents * self.mistakes, self.connects * method)
