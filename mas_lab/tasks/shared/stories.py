"""Draw short texts of plain words for the pocket size of the writing tasks, and retell them badly.

How good a retelling is, is measured in `wording`.
"""

import random
from collections.abc import Iterator

from mas_lab.tasks.shared.bases import WORD_LISTS
from mas_lab.tasks.shared.wording import TRANSITIONS

KINDS, ORDER = WORD_LISTS["stories"], ("how", "who", "did", "what", "where")
"""Words of a sentence by their kind, and the order of the kinds."""
WORDS = tuple(word for kind in KINDS.values() for word in kind)
SENTENCES = 4
"""Sentences of a text by default."""
LINKS = [phrases[0] for phrases in TRANSITIONS.values() if " " not in phrases[0]]
"""First phrase of each kind of transition, if it is a single word."""


def stories(rng: random.Random, sentences: int = SENTENCES) -> Iterator[str]:
    """Yield random texts without end, such as `old farmer found boat near river . proud ...`."""
    while True:
        drawn = zip(*(rng.sample(KINDS[kind], sentences) for kind in ORDER), strict=True)
        yield " ".join(f"{how} {who} {did} {what} near {where} ." for how, who, did, what, where in drawn)


def excerpt(story: str, rng: random.Random, sentences: int, invents: float, connects: float) -> str:
    """Return an excerpt with `sentences` sentences of a story, in their order.

    A share `invents` of its words is drawn from all words, and a share `connects` of its sentences starts with a
    transition.
    """
    listed, drawn = story.split(" ."), []
    count = len(listed) - 1  # the part after the last full stop is empty
    for chosen in sorted(rng.sample(range(count), min(count, sentences))):
        if connects and rng.random() < connects:
            drawn.append(rng.choice(LINKS))
        for word in listed[chosen].split():
            drawn.append(rng.choice(WORDS) if rng.random() < invents else word)
    return " ".join(drawn)
