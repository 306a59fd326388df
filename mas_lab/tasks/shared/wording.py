"""What can be counted in a text: content words, transitions, overlap, faithfulness to a source.

Shared by the writing tasks. The word lists are this project's own. Leaves out: quality that counting does not see
(grammar, order, truth), so a high score is a necessary sign of a good summary and not a sufficient one.
"""

import re
from collections.abc import Iterable

TRANSITIONS = {
    "elaboration": ("also", "moreover", "furthermore", "additionally", "besides", "in addition", "what is more"),
    "examples": ("namely", "for example", "for instance", "such as", "including", "in particular"),
    "explanation": ("that is", "in other words", "put simply", "meaning that", "more precisely"),
    "cause-effect": ("so", "because", "therefore", "thus", "hence", "consequently", "as a result", "due to"),
    "contrast": ("but", "however", "yet", "instead", "whereas", "in contrast", "on the other hand"),
    "sequence": ("then", "next", "first", "second", "third", "finally", "afterwards", "after that"),
    "emphasis": ("indeed", "certainly", "clearly", "above all", "of course", "in fact"),
    "summary": ("overall", "altogether", "in short", "in summary", "to sum up", "in conclusion", "all in all"),
    "comparison": ("likewise", "similarly", "equally", "just like", "compared with", "in the same way"),
    "concession": ("although", "though", "despite", "nevertheless", "nonetheless", "even so", "in spite of"),
    "condition": ("if", "unless", "otherwise", "provided that", "as long as", "in case"),
    "time": ("when", "while", "until", "since", "meanwhile", "later", "before", "during"),
}
"""Twelve kinds of transition; no phrase stands under two of them."""

_FUNCTION_WORDS = """
a about after again all am an and any are as at be been being between both by can could did do does done down
each every few for from had has have having he her here hers him his how i in into is it its itself just me might
more most much must my no nor not now of off on once one only onto or other our out over own per same shall she
should some still such than that the their them these they this those through to too under up upon us very was we
were what where which who whom whose why will with within without would you your near
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
"""Words that carry no content of their own."""

_IN_TRANSITIONS = frozenset(word for phrases in TRANSITIONS.values() for phrase in phrases for word in phrase.split())
_REACH = 3
"""A transition must be followed by a content word of the source within this many words."""


def words(text: str) -> list[str]:
    """The words of a text in lower case; punctuation and underscores separate."""
    return re.findall(r"[^\W_]+(?:['’][^\W_]+)?", text.lower())


def content(listed: Iterable[str]) -> list[str]:
    """Stems of the words that are neither function words nor part of a transition."""
    return [stem(word) for word in listed if word not in FUNCTION_WORDS and word not in _IN_TRANSITIONS]


def stem(word: str) -> str:
    """A word without the commonest English endings, so that `walked` and `walks` are one."""
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word.removesuffix(ending)
    return word


def jaccard(first: Iterable[str], second: Iterable[str]) -> float:
    """|A ∩ B| / |A ∪ B| of the two sets of words; 0 where both are empty."""
    first, second = set(first), set(second)
    return len(first & second) / max(1, len(first | second))


def ramp(value: float, least: float, best: float, most: float = float("inf"), end: float = float("inf")):
    """1 from `best` to `most`, falling linearly to 0 at `least` and `end`, and None outside: the gate is shut."""
    if not least <= value <= end:
        return None
    if value < best:
        return (value - least) / (best - least)
    return 1.0 if value <= most else (end - value) / (end - most)


def transitions(text: str, source: str) -> set[str]:
    """The categories that `text` uses to connect something: whole words or phrases, each followed within three words
    by a content word of `source`. A tail of transition words connects nothing."""
    listed, known = words(text), set(content(words(source)))
    found = set()
    for category, phrases in TRANSITIONS.items():
        for phrase in map(str.split, phrases):
            for i in range(len(listed) - len(phrase) + 1):
                after = listed[i + len(phrase) : i + len(phrase) + _REACH]
                if listed[i : i + len(phrase)] == phrase and known.intersection(content(after)):
                    found.add(category)
    return found


def transitions_inside(text: str) -> set[str]:
    """The categories of which some phrase occurs anywhere in `text`, inside a word too ("so" in "masonry")."""
    return {name for name, phrases in TRANSITIONS.items() if any(phrase in text.lower() for phrase in phrases)}


def faithfulness(text: str, source: str, precise: float, dense: float) -> float:
    """How far `text` speaks about `source`, 0 to 1: the product of two shares, each full at its threshold.

    precision: distinct content words that stand in the source / all content words, so that invented and repeated
    words count against it; density: content words / all words, so that filler does.
    """
    listed = words(text)
    said = content(listed)
    if not said:
        return 0.0
    precision = len(set(said) & set(content(words(source)))) / len(said)
    return min(1.0, precision / precise) * min(1.0, len(said) / len(listed) / dense)
