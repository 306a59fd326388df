"""TLDR: two agents write a short and a detailed summary of one text at once (MAGRPO, arXiv 2508.04652).

They do not see each other's text, and there is one turn. Pocket size has four generated sentences of plain words, full
size has posts for an instruction model. The reward of two texts is in `pair_reward`, the pocket texts are in `wording`,
and reading files is in `rows`.
"""

import random
from dataclasses import dataclass

from mas_lab.env import Message
from mas_lab.tasks.shared import wording
from mas_lab.tasks.shared.bases import chat
from mas_lab.tasks.shared.pair_reward import BEST, MARKER, State, Targets, TwoTextsTask
from mas_lab.tasks.shared.rows import post

RATIO, UNIQUE = (1.1, 1.6, 3.2, 5.0), (1.3, 2.0)
POCKET = Targets(4, 32, RATIO, UNIQUE, overlap=0.2, precise=1.0, dense=0.4)
FULL = Targets(8, 256, RATIO, UNIQUE, overlap=0.03, precise=0.5, dense=0.3)


@dataclass(frozen=True)
class TLDR(TwoTextsTask):
    """Both agents write at once, then the episode ends with one joint reward of at most 3.

    The levels are gated: a level that fails shuts off those after it.

    - lengths: 0.5 if both are in range
    - ratio: the length of detailed / short gives 1 in [1.6, 3.2], falling to 0 at 1.1 and 5.0
    - unique: the number of different words in detailed / short gives 0.5 from 2 on, falling to 0 at 1.3
    - style: 0.4 * transitions + 0.6 * min(J, enough) / enough, with J the Jaccard overlap of the content words;
      transitions is 0.4 for the first of 12 categories in the detailed summary and 0.05 for each more

    Rewards "ours": lengths are in words. Transitions are whole words that lead on to something from the text. J counts
    only content words of the text. The sum is multiplied by the faithfulness of the less faithful summary
    (`wording.faithfulness`): content words that the text does not have, repetition and filler cost.

    Rewards "published" (CoMLRL's formula, with our word lists) do not read the text. The tests score their known
    defects. Invented words with a tail of transition words score 2.9 of 3. A summary of another text scores like one of
    this text. "masonry" counts as "so". Length is in characters, so one endless word is a detailed summary. A word may
    be repeated without end.

    `local_reward` is 1 if the writer's own length is in range, a format reward. Success is a return of 2.4 (80 %). An
    answer without a word is invalid. A single agent's answer is also invalid if it does not have exactly one marker
    between two texts.

    A small instruction model writes up to the limit of 512 tokens in full size, much of it invented. Let it sample with
    `lab.Sampling(temperature=0.7, max_tokens=150)`; `benchmarks/real_tldr.py` trains SmolLM2-135M-Instruct so.

    `size` is either "pocket" (4 sentences), "full", or the number of sentences of a pocket text, 2 to 8.
    """

    data: str = "trl-lib/tldr"
    """Full size: a file, a folder or a data set of the hub (`rows.read`). `rows.COLUMNS` lists its columns."""

    name = "tldr"
    paper = "MAGRPO, arXiv 2508.04652"
    order = "short + detailed"
    words = (*wording.STORY_WORDS, "near", ".", *wording.LINKS, MARKER, "short", "detailed", "solo")
    max_turns = 1
    max_return = BEST
    roles = ("short", "detailed")
    numbers = range(2, 9)
    targets = {"pocket": POCKET, "full": FULL}
    spare = 2
    default = wording.SENTENCES
    column = post
    overlong = 0.3
    """Share of its short summaries that are as long as a detailed one, and the other way round, at `mistakes` = 1."""

    def observe(self, state: State, agent: str) -> list[Message]:
        if not self.full:
            return chat(f"{state.source} {agent}")
        return chat(state.source, self.duty(agent))

    def imperfect(self, source: str, second: bool, rng: random.Random) -> str:
        """Return an imperfect summary; in full size it is the first words of the text, cut to length."""
        long = second != (rng.random() < self.overlong * self.mistakes)
        if self.full:
            return " ".join(source.split()[: 40 if long else 16])
        sentences = rng.choice((2, 3)) if long else 1
        return wording.excerpt(source, rng, sentences, self.invents * self.mistakes, self.connects if long else 0.0)
