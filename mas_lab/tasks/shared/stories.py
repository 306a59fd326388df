"""Texts of a few short sentences in plain words, for the pocket size of the writing tasks, and retelling them badly.

Leaves out: what makes a retelling good (`wording`).
"""

import random
from collections.abc import Iterator

from mas_lab.tasks.shared.wording import TRANSITIONS

WHO = ("farmer", "sailor", "teacher", "doctor", "singer", "painter", "soldier", "hunter", "baker", "child")
HOW = ("old", "young", "tall", "quiet", "proud", "poor", "happy", "clever", "lonely", "brave")
DID = ("found", "sold", "built", "carried", "broke", "watched", "cleaned", "hid", "bought", "lost")
WHAT = ("boat", "clock", "lamp", "chair", "violin", "basket", "letter", "map", "bell", "wagon")
WHERE = ("river", "market", "forest", "harbor", "castle", "garden", "tower", "village", "beach", "bridge")
WORDS = (*WHO, *HOW, *DID, *WHAT, *WHERE)
SENTENCES = 4
"""Sentences of a text where nobody says otherwise."""
LINKS = [phrases[0] for phrases in TRANSITIONS.values() if " " not in phrases[0]]
"""One transition of each kind that is a single word."""


def stories(rng: random.Random, sentences: int = SENTENCES) -> Iterator[str]:
    """Random texts without end, such as `old farmer found boat near river . proud ...`."""
    while True:
        drawn = zip(*(rng.sample(kind, sentences) for kind in (HOW, WHO, DID, WHAT, WHERE)), strict=True)
        yield " ".join(f"{how} {who} {did} {what} near {where} ." for how, who, did, what, where in drawn)


def retold(story: str, rng: random.Random, long: bool, invents: float, connects: float) -> str:
    """`excerpt` of one sentence of a story without transitions, or (`long`) of two or three."""
    return excerpt(story, rng, rng.choice((2, 3)) if long else 1, invents, connects if long else 0.0)


def excerpt(story: str, rng: random.Random, sentences: int, invents: float, connects: float) -> str:
    """So many sentences of a story, in its order; a share `invents` of the words is drawn from all words, and a share
    `connects` of the sentences opens with a transition."""
    held, told = story.split(" ."), []
    count = len(held) - 1  # nothing stands behind the last full stop
    for chosen in sorted(rng.sample(range(count), min(count, sentences))):
        if connects and rng.random() < connects:
            told.append(rng.choice(LINKS))
        for word in held[chosen].split():
            told.append(rng.choice(WORDS) if rng.random() < invents else word)
    return " ".join(told)
