"""Texts of the full-size tasks: a JSONL file, anything `datasets.load_dataset` opens, or a generator; in three splits.

Splits are disjoint by content, not by row number: the same problem never stands in `train` and `test`, even where a
data set holds it twice. Leaves out: what the columns mean (each task says which it reads).
"""

import hashlib
import json
import random
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from os.path import splitdrive
from pathlib import Path
from typing import Any, TypeVar

from mas_lab.env import EnvError
from mas_lab.tasks.shared.grading import last_boxed

SPLITS = ("train", "val", "test")
Row = Mapping[str, Any]


def content_id(text: str) -> str:
    """A short name for a text: equal texts, up to white space, have equal names."""
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:12]


def split_of(text: str) -> str:
    """The split that a text belongs to wherever it turns up: 80 % train, 10 % val, 10 % test."""
    return (*["train"] * 8, "val", "test")[int(content_id(text), 16) % 10]


def check_split(split: str, env: str) -> None:
    if split not in SPLITS:
        raise EnvError(f"{env}: split={split!r}; use one of {', '.join(map(repr, SPLITS))}")


PATIENCE = 10_000
"""Draws in a row without a new problem, after which there are no more."""

T = TypeVar("T", bound=Hashable)


def draw(
    things: Iterable[T],
    n: int,
    split: str,
    env: str,
    home: Callable[[T], str] = str,
    fits: Callable[[T], bool] = lambda thing: True,
) -> list[T]:
    """The first `n` different ones that belong to `split` and fit; `home(thing)` is the text that decides its split.

    The first ones of a longer list are those of a shorter one. Raises `EnvError` where there are too few.
    """
    drawn: dict[T, None] = {}
    idle = 0
    for thing in things:
        idle += 1
        if len(drawn) == n or idle > PATIENCE:
            break
        if thing not in drawn and split_of(home(thing)) == split and fits(thing):
            drawn[thing], idle = None, 0
    if len(drawn) < n:
        raise EnvError(f"{env}: found only {len(drawn)} of {n} different problems of split {split!r}; ask for fewer")
    return list(drawn)


def sample_rows(data: str, n: int, split: str, seed: int, key: Callable[[Row], str], env: str) -> list[Row]:
    """`n` rows of `data` without replacement; `key(row)` is the content that decides its split. The first ones of a
    longer list are those of a shorter one.

    Raises `EnvError` if the source cannot be read or holds too few rows.
    """
    check_split(split, env)
    rows = _by_split(_load(data, env), key).get(split, [])
    if n > len(rows):
        raise EnvError(f"{env}: {data} holds {len(rows)} rows of split {split!r}, asked for {n}")
    return random.Random(f"{env} {split} {seed}").sample(rows, len(rows))[:n]


def problem_and_answer(row: Row) -> tuple[str, str]:
    r"""Reads the usual columns: `problem` or `question`, and `answer` or `solution`. A worked answer counts by what
    follows its `####` (GSM8K) or stands in its last `\boxed{}` (MATH)."""
    problem = next((row[name] for name in ("problem", "question") if row.get(name)), None)
    worked = next((str(row[name]) for name in ("answer", "solution") if row.get(name) is not None), None)
    if problem is None or worked is None:
        raise EnvError(f"a row needs problem|question and answer|solution, this one has {sorted(row)}")
    return problem.strip(), last_boxed(worked) or worked.rpartition("####")[2].strip()


def question_and_answers(row: Row) -> tuple[str, list[str], list[str]]:
    """Reads the usual columns: `question`; the accepted answers, `golden_answers`, `answers` or `answer`, one or
    several; and the titles of the passages that it takes, where the row says (`supporting_facts`, as HotpotQA)."""
    question = row.get("question")
    accepted = next((row[name] for name in ("golden_answers", "answers", "answer") if row.get(name)), None)
    accepted = [accepted] if isinstance(accepted, str) else accepted
    facts = row.get("supporting_facts") or []
    titles = facts.get("title", []) if isinstance(facts, Mapping) else [title for title, *_ in facts]
    if not question or not accepted or not all(isinstance(text, str) for text in (*accepted, *titles)):
        raise EnvError(f"a row needs question and golden_answers|answers|answer as text, this one has {sorted(row)}")
    return question.strip(), list(accepted), list(dict.fromkeys(titles))


def post(row: Row) -> str:
    """Reads the usual columns: `post` (with its `title`), else `prompt` without its closing `TL;DR:`, else `text`."""
    if row.get("post"):
        return "\n".join(part.strip() for part in (row.get("title"), row["post"]) if part)
    text = row.get("prompt") or row.get("text")
    if not text:
        raise EnvError(f"a row needs post, prompt or text, this one has {sorted(row)}")
    return re.sub(r"\s*TL;?DR:?\s*$", "", text, flags=re.IGNORECASE).strip()


def generated(task: str, n: int, split: str, seed: int, env: str) -> list[tuple[str, str]]:
    """`n` distinct problems of a `reasoning_gym` task that belong to `split`, each with its answer."""
    try:
        import reasoning_gym
    except ImportError:
        raise EnvError(f"{env}: generated word problems need reasoning-gym: pip install reasoning-gym") from None
    number = random.Random(f"{env} {task} {split} {seed}").randrange(2**31)
    answers: dict[str, str] = {}

    def questions() -> Iterator[str]:
        for entry in reasoning_gym.create_dataset(task, seed=number, size=1000 + 100 * n):
            answers[entry["question"]] = str(entry["answer"])
            yield entry["question"]

    return [(text, answers[text]) for text in draw(questions(), n, split, env)]


def _by_split(rows: Sequence[tuple[str | None, Row]], key: Callable[[Row], str]) -> dict[str, list[Row]]:
    """Rows once per content. A row's own split is kept; where the same content has two, the later in SPLITS wins."""
    named = {split for split, _ in rows} - {None}
    home: dict[str, tuple[str, Row]] = {}
    for own, row in rows:
        name = content_id(key(row))
        split = own if own and {"train", "test"} <= named else split_of(key(row))
        if name not in home or SPLITS.index(split) > SPLITS.index(home[name][0]):
            home[name] = (split, row)
    splits: dict[str, list[Row]] = {}
    for split, row in home.values():
        splits.setdefault(split, []).append(row)
    return splits


@lru_cache(maxsize=8)
def _load(data: str, env: str) -> tuple[tuple[str | None, Row], ...]:
    """`(own split or None, row)` for every row of a JSONL file or a data set `path` or `path:configuration`."""
    if Path(data).is_file():
        return tuple((_own_split(row.get("split")), row) for _, row in read_jsonl(Path(data), env))
    from datasets import load_dataset

    drive, rest = splitdrive(data)  # of Windows, with a colon of its own
    path, _, configuration = rest.partition(":")
    try:
        parts = load_dataset(drive + path, configuration or None)
    except Exception as error:
        raise EnvError(f"{env}: {data!r} is neither a JSONL file nor a data set that opens: {error}") from error
    return tuple((_own_split(split), row) for split, part in parts.items() for row in part)


def read_jsonl(path: Path, env: str) -> Iterator[tuple[int, Row]]:
    """`(number of its line, row)` for every row of a file. Raises EnvError, with file and line, where one is broken."""
    with path.open("rb") as lines:  # bytes end lines at \n alone; text that holds a U+2028 would be cut there
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise ValueError("not a JSON object")
            except ValueError as error:
                raise EnvError(f"{env}: {path}, line {number}: {error}") from None
            yield number, row


def _own_split(name: str | None) -> str | None:
    name = {"validation": "val", "dev": "val"}.get(name, name)
    return name if name in SPLITS else None
