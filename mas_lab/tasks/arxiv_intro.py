"""ArXiv introductions (MAGRPO, arXiv 2508.04652): two writers expand an abstract at once, unseen by each other.

One writes background and motivation, the other method and implications; over two turns a reviewer tells each in plain
words what its part lacks, and both write anew. Pocket: five generated sentences; full: abstracts for an instruction
model. Leaves out: the reward of two texts (`pair_reward`), the pocket texts (`stories`), how files are read (`rows`).
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
"""The lengths are some at which their ratio pays in full."""
ANEW = "Now write what is to stand, whole, with what the reviewer misses."
REVIEWS = {
    "short": "It is too short.",
    "long": "It is too long.",
    "invented": "It says what the abstract does not.",
    "link": "Lead from point to point.",
    "apart": "The two parts have little in common.",
    "fine": "It is fine as it is.",
}
"""What the reviewer says, by its pocket word."""


@dataclass(frozen=True)
class State:
    source: str
    drafts: tuple[str, str] | None = None
    """What stands after the last turn: background, method."""
    score: float = 0.0
    turn: int = 0
    done: bool = False


@dataclass(frozen=True)
class ArxivIntro:
    """Both write at once; over two turns each then sees its own draft with the reviewer's word on it, and writes anew.

    A draft of both is worth up to 3, gated (`pair_reward`): both lengths in range 0.5; length method / background in
    [1.3, 1.6] 1, falling to 0 at 0.8 and 2.0; different words method / background in [0.7, 1.3] 0.5, falling to 0 at
    0.5 and 1.7; style 1. `team_reward`, "ours": what the drafts gained in worth, so that a return is that of the last
    ones; times their faithfulness to the abstract. Success: 2.4 (80 %).

    Rewards "published" (CoMLRL's formula, with our word lists) read no abstract, and pay each turn's drafts anew, so
    that `max_return` is 3 a turn. Their holes, scored in the tests: invented words with a tail of transition words,
    transitions inside words, an introduction to another abstract, and the same draft handed in twice.

    `local_reward`: 1 if the writer's own length is in range. An answer without a word is invalid, and so is a single
    agent's without exactly one marker between two texts.
    """

    size: str | int = "pocket"
    """"pocket" (5 sentences), "full", or the number of sentences of a pocket text, 3 to 8."""
    rewards: str = "ours"
    single_agent: bool = False
    max_turns: int = 1
    """1, or 2 with the reviewer between them."""
    data: str = "LovelyBuggies/arXiv_abstract"
    """Full size: a file, a folder or a data set of the hub (`sources.read`); `rows.abstract` names its columns."""
    mistakes: float = 1.0
    """How imperfect `demonstrate` is, 0 to 1: invented words and misjudged lengths grow with it."""

    name = "arxiv_intro"
    paper = "MAGRPO, arXiv 2508.04652"
    order = "background + method, 1 or 2 turns"
    pocket = "arxiv_intro"
    succeeds_at = 2.4
    invents = 0.1
    """How often a word of `demonstrate` is drawn from all words, at `mistakes` = 1."""
    connects = 0.25
    """How often a sentence of its method opens with a transition."""
    misjudges = 0.6
    """How often it writes a sentence more or less than it should, at `mistakes` = 1."""

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
        """Every word of a pocket prompt or answer."""
        return (*stories.WORDS, "near", ".", *stories.LINKS, MARKER, "draft", *REVIEWS, *TASK)

    def tasks(self, n: int, split: str, seed: int) -> list[Task]:
        """`n` different abstracts; the first ones of a longer list are those of a shorter one."""
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
        """The first thing that is amiss in one part, as a key of `REVIEWS`."""
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
        """An answer to learn from, imperfect on purpose: invented words, wrong lengths, few transitions.

        Full size: the first words of the abstract, cut to length.
        """
        if agent == "solo":
            return f"{self.demonstrate(state, 'background', rng)} {MARKER} {self.demonstrate(state, 'method', rng)}"
        method = agent == "method"
        if self.size == "full":
            return " ".join((state.source.split() * 40)[: 200 if method else 140])
        slip = rng.choice((-1, 1)) if rng.random() < self.misjudges * self.mistakes else 0
        count = max(1, (3 if method else 2) + slip)
        return stories.excerpt(state.source, rng, count, self.invents * self.mistakes, self.connects * method)
