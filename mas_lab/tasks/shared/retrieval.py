"""Find passages for a query, by BM25 over a corpus in a JSONL file (`bm25s`) or by a function of the user.

This module also says what was found, and whether it is enough. A line of a corpus is `{"id": ..., "title": ..., "text":
...}`. Embeddings, and servers that hold a corpus, are left out; a function that asks one is a retriever too.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from mas_lab.env import EnvError
from mas_lab.tasks.shared.grading import plain_answer
from mas_lab.tasks.shared.rows import read_jsonl

Passage = Mapping[str, Any]
"""`{"title": text, "text": text}`, and other entries of its source."""
Retriever = Callable[[str], Sequence[Passage]]
"""Function from a query to passages, the best first; the same query gives the same passages."""
COLUMNS = ("id", "title", "text")


@dataclass(frozen=True)
class Look:
    """One search: its query (`None`: unreadable), and (title, text) of each passage that was found."""

    query: str | None
    found: tuple[tuple[str, str], ...] = ()


def shown(look: Look) -> str:
    """Return a search as text for an instruction model."""
    found = "\n".join(f"[{number}] {title}: {text}" for number, (title, text) in enumerate(look.found, start=1))
    said = f"<search>{look.query}</search>" if look.query else "A search without a query that can be read."
    return f"{said}\n<information>\n{found or 'Nothing was found.'}\n</information>"


def missing(looks: Iterable[Look], needed: Sequence[str], answers: Sequence[str]) -> int:
    """Return how many passages of the titles `needed` have not been found yet.

    If no titles are named, it is 1 until a passage is found that has one of the `answers` as whole words, then 0.
    """
    found = [passage for look in looks for passage in look.found]
    if needed:
        titles = {title.strip().casefold() for title, _ in found}
        return sum(title.strip().casefold() not in titles for title in needed)
    told = [f" {plain_answer(f'{title} {text}')} " for title, text in found]
    return int(not any(f" {plain_answer(answer)} " in text for text in told for answer in answers))


def retrieve(retriever: Retriever, query: str, place: str) -> list[tuple[str, str]]:
    """Return (title, text) of each passage that a retriever finds; nothing is ever made up.

    Raises EnvError, with `place` and query, if the retriever fails or does not return passages.
    """
    try:
        found = retriever(query)
    except Exception as error:
        raise EnvError(f"{place}, query {query!r}: retrieval failed: {type(error).__name__}: {error}") from error
    if not isinstance(found, Sequence) or not all(map(_is_passage, found)):
        raise EnvError(
            f"{place}, query {query!r}: the retriever gave {str(found)[:80]!r}; give a list of "
            "{'title': text, 'text': text}"
        )
    return [(passage["title"], passage["text"]) for passage in found]


def _is_passage(found: Any) -> bool:
    return isinstance(found, Mapping) and all(isinstance(found.get(name), str) for name in ("title", "text"))


def bm25(corpus: str, query: str, most: int, env: str) -> list[Passage]:
    """Return up to `most` passages of a corpus that share a word with the query, by their BM25 score."""
    tokenize, scored, passages = index(corpus, env)
    numbers, scores = scored.retrieve(tokenize([query]), k=min(most, len(passages)), show_progress=False)
    return [passages[number] for number, score in zip(numbers[0], scores[0], strict=True) if score > 0]


@lru_cache(maxsize=2)
def index(corpus: str, env: str) -> tuple[Callable, Any, list[Passage]]:
    """Return the tokenizer, the index of a corpus, and its passages; a title counts as a part of its text.

    Raises EnvError that names the file, and the line, if the corpus cannot be read.
    """
    try:
        import bm25s
    except ImportError:
        raise EnvError(f"{env}: BM25 needs bm25s: pip install bm25s, or give a retriever of your own") from None
    passages, scored = _read(corpus, env), bm25s.BM25()
    tokenize = partial(bm25s.tokenize, show_progress=False)
    scored.index(tokenize([f"{passage['title']} {passage['text']}" for passage in passages]), show_progress=False)
    return tokenize, scored, passages


def _read(corpus: str, env: str) -> list[Passage]:
    if not Path(corpus).is_file():
        raise EnvError(f"{env}: there is no corpus {corpus}; give a JSONL file with {', '.join(COLUMNS)} in each line")
    passages: dict[str, Passage] = {}
    for number, row in read_jsonl(Path(corpus), env):
        place = f"{env}: {corpus}, line {number}"
        lacking = [name for name in COLUMNS if not isinstance(row.get(name), str)]
        if lacking:
            raise EnvError(f"{place}: a passage needs {lacking[0]} as text, it has {sorted(row)}")
        if row["id"] in passages:
            raise EnvError(f"{place}: the id {row['id']!r} is another passage's too")
        passages[row["id"]] = row
    if not passages:
        raise EnvError(f"{env}: {corpus} holds no passage")
    return list(passages.values())
