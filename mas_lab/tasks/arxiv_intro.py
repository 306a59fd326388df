"""Let two agents write the introduction of an arXiv paper from its abstract (MAGRPO, arXiv 2508.04652).

Both agents write at once and do not see each other's text. One writes background and motivation, the other method and
implications. With two turns, a reviewer says in plain words what each part lacks, and both write again. Pocket size has
five generated sentences, full size has abstracts for an instruction model. The reward of two texts is in `pair_reward`,
the pocket texts are in `wording`, and reading files is in `rows`.
"""

import random
from dataclasses import dataclass

from mas_lab.env import Message
from mas_lab.tasks.shared import wording
from mas_lab.tasks.shared.bases import PROMPTS, chat
from mas_lab.tasks.shared.pair_reward import BEST, MARKER, State, Targets, TwoTextsTask
from mas_lab.tasks.shared.rows import abstract

RATIO, UNIQUE = (0.8, 1.3, 1.6, 2.0), (0.5, 0.7, 1.3, 1.7)
POCKET = Targets(6, 24, RATIO, UNIQUE, overlap=0.23, precise=1.0, dense=0.4)
FULL = Targets(128, 256, RATIO, UNIQUE, overlap=0.23, precise=0.5, dense=0.3)
REVIEWS = PROMPTS["arxiv_intro_review"]
"""Sentences of the reviewer, by their pocket words."""


@dataclass(frozen=True)
class ArxivIntro(TwoTextsTask):
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

    `size` is either "pocket" (5 sentences), "full", or the number of sentences of a pocket text, 3 to 8.
    """

    max_turns: int = 1
    """Either 1, or 2 with a review between the turns."""
    data: str = "LovelyBuggies/arXiv_abstract"
    """Full size: a file, a folder or a data set of the hub (`rows.read`). `rows.COLUMNS` lists its columns."""

    name = "arxiv_intro"
    paper = "MAGRPO, arXiv 2508.04652"
    order = "background + method, 1 or 2 turns"
    roles = ("background", "method")
    words = (*wording.STORY_WORDS, "near", ".", *wording.LINKS, MARKER, "draft", *REVIEWS, *roles, "solo")
    choices = {"max_turns": (1, 2)}
    numbers = range(3, 9)
    targets = {"pocket": POCKET, "full": FULL}
    spare = 6
    default = 5
    column = abstract
    misjudges = 0.6
    """Share of its texts that are a sentence too long or too short, at `mistakes` = 1."""

    @property
    def max_return(self) -> float:
        return BEST * (self.max_turns if self.published else 1)

    def observe(self, state: State, agent: str) -> list[Message]:
        places = {"background": (0,), "method": (1,)}.get(agent, (0, 1))
        reviewed = [(state.drafts[place], self._review(state, place)) for place in places if state.turn]
        if not self.full:
            reviews = "".join(f" draft {draft} {word}" for draft, word in reviewed)
            return chat(" ".join(f"{state.source}{reviews} {agent}".split()))
        reviews = "".join(f"\n\nYour draft:\n\n{draft}\n\nThe reviewer: {REVIEWS[word]}" for draft, word in reviewed)
        reviews += f"\n\n{PROMPTS[self.name]['anew']}" if reviewed else ""
        return chat(f"{state.source}{reviews}", self.duty(agent))

    def _review(self, state: State, place: int) -> str:
        """Return the first defect of one part, as a key of `REVIEWS`."""
        first, second = (wording.words(draft) for draft in state.drafts)
        own, goal = (first, second)[place], self.goal
        if not goal.least <= len(own) <= goal.most:
            return "short" if len(own) < goal.least else "long"
        if wording.faithfulness(state.drafts[place], state.source, goal.precise, goal.dense) < 1:
            return "invented"
        ratio = len(second) / max(1, len(first))
        if not RATIO[1] <= ratio <= RATIO[2]:
            return "short" if (ratio < RATIO[1]) == (place == 1) else "long"
        if place == 1 and not wording.transitions(state.drafts[1], state.source):
            return "link"
        apart = wording.jaccard(wording.content(first), wording.content(second)) < goal.overlap
        return "apart" if apart else "fine"

    def imperfect(self, source: str, second: bool, rng: random.Random) -> str:
        """Return an imperfect paragraph; in full size it is the abstract, repeated and cut to length."""
        if self.full:
            return " ".join((source.split() * 40)[: 200 if second else 140])
        slip = rng.choice((-1, 1)) if rng.random() < self.misjudges * self.mistakes else 0
        count = max(1, (3 if second else 2) + slip)
        return wording.excerpt(source, rng, count, self.invents * self.mistakes, self.connects * second)
