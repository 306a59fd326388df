"""Count properties of a text: content words, transitions, overlap, faithfulness to a source; and draw pocket texts.

The writing tasks share this module. Counting does not see grammar, order or truth. So a good summary has a high score,
but a high score does not prove a good summary. The pocket size has short texts of plain words, which are retold badly.
"""

import random
import re
from collections.abc import Iterable, Iterator

from mas_lab.tasks.shared.bases import WORD_LISTS

TRANSITIONS = WORD_LISTS["transitions"]
"""Twelve kinds of transition; no phrase belongs to two of them."""

FUNCTION_WORDS = frozenset(WORD_LISTS["function_words"].split())
"""Words that carry no content."""

_IN_TRANSITIONS = frozenset(word for phrases in TRANSITIONS.values() for phrase in phrases for word in phrase.split())
_REACH = 3
"""A content word of the source must follow a transition within this number of words."""


KINDS, ORDER = WORD_LISTS["stories"], ("how", "who", "did", "what", "where")
"""Words of a sentence by their kind, and the order of the kinds."""
STORY_WORDS = tuple(word for kind in KINDS.values() for word in kind)
SENTENCES = 4
"""Sentences of a text by default."""
LINKS = [phrases[0] for phrases in TRANSITIONS.values() if " " not in phrases[0]]
"""First phrase of each kind of transition, if it is a single word."""


def words(text: str) -> list[str]:
    """Return the words of a text in lower case; punctuation and underscores separate."""
    return re.findall(r"[^\W_]+(?:['’][^\W_]+)?", text.lower())


def content(listed: Iterable[str]) -> list[str]:
    """Return the stems of the words that are neither function words nor part of a transition."""
    return [stem(word) for word in listed if word not in FUNCTION_WORDS and word not in _IN_TRANSITIONS]


def stem(word: str) -> str:
    """Return a word without the most common English endings, so that `walked` and `walks` are equal."""
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word.removesuffix(ending)
    return word


def jaccard(first: Iterable[str], second: Iterable[str]) -> float:
    """Return |A ∩ B| / |A ∪ B| of the two sets of words, or 0 if both are empty."""
    first, second = set(first), set(second)
    return len(first & second) / max(1, len(first | second))


def ramp(value: float, least: float, best: float, most: float = float("inf"), end: float = float("inf")):
    """Return 1 from `best` to `most`, falling linearly to 0 at `least` and `end`; outside `None`: the gate is shut."""
    if not least <= value <= end:
        return None
    if value < best:
        return (value - least) / (best - least)
    return 1.0 if value <= most else (end - value) / (end - most)


def transitions(text: str, source: str) -> set[str]:
    """Return the kinds of transition that connect something in `text`.

    They are whole words or phrases, each followed within three words by a content word of `source`. A tail of
    transition words connects nothing.
    """
    listed, known = words(text), set(content(words(source)))

    def connects(phrase: list[str]) -> bool:
        ends = [i + len(phrase) for i in range(len(listed)) if listed[i : i + len(phrase)] == phrase]
        return any(known.intersection(content(listed[end : end + _REACH])) for end in ends)

    return {kind for kind, phrases in TRANSITIONS.items() if any(map(connects, map(str.split, phrases)))}


def transitions_inside(text: str) -> set[str]:
    """Return the kinds of transition with a phrase anywhere in `text`, also inside a word ("so" in "masonry")."""
    return {name for name, phrases in TRANSITIONS.items() if any(phrase in text.lower() for phrase in phrases)}


def faithfulness(text: str, source: str, precise: float, dense: float) -> float:
    """Return how far `text` is about `source`, 0 to 1: the product of two shares, each full at its threshold.

    Precision is distinct content words that are in the source / all content words: invented and repeated words lower
    it. Density is content words / all words: filler lowers it.
    """
    listed = words(text)
    about = content(listed)
    if not about:
        return 0.0
    precision = len(set(about) & set(content(words(source)))) / len(about)
    return min(1.0, precision / precise) * min(1.0, len(about) / len(listed) / dense)


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
            drawn.append(rng.choice(STORY_WORDS) if rng.random() < invents else word)
    return " ".join(drawn)
