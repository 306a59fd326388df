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
    """One sentence of a story, or (`long`) two or three, in its order; a share `invents` of the words is drawn from all
    words, and a share `connects` of the sentences of a long retelling opens with a transition."""
    sentences, told = story.split(" ."), []
    count = len(sentences) - 1  # nothing stands behind the last full stop
    for chosen in sorted(rng.sample(range(count), min(count, rng.choice((2, 3)) if long else 1))):
        if long and rng.random() < connects:
            told.append(rng.choice(LINKS))
        for word in sentences[chosen].split():
            told.append(rng.choice(WORDS) if rng.random() < invents else word)
    return " ".join(told)
