"""Read the texts of full-size tasks from files, data sets or a generator, in three splits, by their columns.

Splits are disjoint by content, not by row number: the same problem is never in `train` and `test`, even if a data set
holds it twice. `docs/data_sets.md` lists data sets of the hub whose columns a task reads unchanged.
"""

import ast
import hashlib
import json
import math
import random
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from mas_lab.env import EnvError
from mas_lab.tasks.shared.grading import LONGEST, is_readable, is_right, is_short, last_boxed, plain_answer

Row = Mapping[str, Any]
SPLITS = ("train", "val", "test")
OWN_SPLITS = {"validation": "val", "dev": "val", **{split: split for split in SPLITS}}
"""Split that a source names -> ours."""
TABLES = {".parquet": "parquet", ".csv": "csv"}
"""Files that `datasets` reads, by their suffix; any other file is JSONL."""


def read(data: str, env: str) -> Iterator[tuple[str, str | None, Row]]:
    """Yield `(place, split that the source names, row)` for every row; a place is "line 3" or "row 3 of 'train'".

    `data` is a JSONL, parquet or csv file, or anything that `datasets.load_dataset` opens: a folder or a data set of
    the hub, `path` or `path:configuration`. Raises `EnvError` that says what is missing, and how to get it.
    """
    if Path(data).is_file() and Path(data).suffix not in TABLES:
        yield from ((f"line {number}", row.get("split"), row) for number, row in read_jsonl(Path(data), env))
        return
    for split, part in _open(data, env).items():
        yield from ((f"row {number} of {split!r}", split, row) for number, row in enumerate(part, start=1))


def read_jsonl(path: Path, env: str) -> Iterator[tuple[int, Row]]:
    """Yield `(line number, row)` for every row of a file; raise EnvError, with file and line, if one is broken."""
    with path.open("rb") as lines:  # bytes end a line only at \n, and at no other separator inside a text
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


def _open(data: str, env: str) -> Mapping[str, Any]:
    """Return the splits of a parquet or csv file, a folder or a data set of the hub, by their names."""
    try:
        from datasets import load_dataset
    except ImportError:
        raise EnvError(f"{env}: {data!r} is opened by the library datasets: pip install 'mas-lab[tasks]'") from None
    is_plain = ":" not in data or Path(data).exists()  # a Windows drive has a colon, too
    path, configuration = (data, None) if is_plain else data.rsplit(":", 1)
    try:
        if Path(data).is_file():
            return load_dataset(TABLES[Path(data).suffix], data_files=data)
        return load_dataset(path, configuration)
    except Exception as error:
        for file in sorted(Path(path).rglob("*.jsonl")) if Path(path).is_dir() else ():
            list(read_jsonl(file, env))  # raises with the line if this file is broken
        raise EnvError(
            f"{env}: {data!r} does not open: {str(error)[:1000]} ({str(error.__cause__)[:1000]}). Give a file, a "
            f"folder or a data set of the hub. Without a network, set HF_HUB_OFFLINE=1 if it was opened before, or "
            f"give a folder that `hf download {path} --repo-type dataset --local-dir FOLDER` made elsewhere"
        ) from error


def content_id(text: str) -> str:
    """Return a short name for a text; texts that are equal up to white space have equal names."""
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:12]


def split_of(text: str) -> str:
    """Return the split of a text, the same in every data set: 80 % train, 10 % val, 10 % test."""
    return (*["train"] * 8, "val", "test")[int(content_id(text), 16) % 10]


def check_split(split: str, env: str) -> None:
    if split not in SPLITS:
        raise EnvError(f"{env}: split={split!r}; use one of {', '.join(map(repr, SPLITS))}")


PATIENCE = 10_000
"""Draws in a row without a new problem, after which drawing stops."""

T = TypeVar("T", bound=Hashable)


def draw(
    things: Iterable[T],
    n: int,
    split: str,
    env: str,
    home: Callable[[T], str] = str,
    fits: Callable[[T], bool] = lambda thing: True,
) -> list[T]:
    """Return the first `n` different things that belong to `split` and fit; a longer list starts with the shorter one.

    `home(thing)` is the text that decides its split. Raises `EnvError` if there are too few.
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


def sample(data: str, n: int, split: str, seed: int, read_row: Callable[[Row], Any], env: str) -> list[Any]:
    """Return what `read_row` reads in `n` rows of `data`; a longer list starts with the shorter one.

    `read_row(row)` is a text, or a tuple that begins with one; the text decides the row's split. A source's own `test`
    and `val` are kept, and if it has a `test`, its `train` too. Without a `test`, a tenth of the other rows is the test
    split. Without a `val`, another tenth is the val split. Raises `EnvError` if the source cannot be read, if a row
    lacks its columns (the message names it), or if there are too few rows.
    """
    found = shuffled(data, split, seed, read_row, env)
    if n > len(found):
        splits = _by_split(data, read_row, env, files_of(data))
        sizes = ", ".join(f"{name} {len(rows)}" for name, rows in splits.items())
        raise EnvError(f"{env}: {data} holds {len(found)} rows of split {split!r}, asked for {n} (of each: {sizes})")
    return found[:n]


def shuffled(data: str, split: str, seed: int, read_row: Callable[[Row], Any], env: str) -> list[Any]:
    """Return all rows of a split as `sample` reads them, in the order in which it takes them."""
    check_split(split, env)
    found = _by_split(data, read_row, env, files_of(data))[split]
    return random.Random(f"{env} {split} {seed}").sample(found, len(found))


def files_of(data: str) -> tuple[tuple[Path, int, int], ...]:
    """Return the path, the time and the size of each file of `data`, which a cache needs to notice a change.

    A data set of the hub has none.
    """
    root = Path(data if Path(data).exists() else data.rsplit(":", 1)[0]).resolve()
    files = [file for file in (root, *sorted(root.rglob("*"))) if file.is_file()]
    return tuple((file, file.stat().st_mtime_ns, file.stat().st_size) for file in files)


@lru_cache(maxsize=8)
def _by_split(data: str, read_row: Callable[[Row], Any], env: str, files: Hashable) -> Mapping[str, list[Any]]:
    """Return one row per content, by split; a content with two splits goes to the later one in SPLITS.

    `files` is `files_of(data)`.
    """
    found: dict[str, tuple[str | None, str, Any]] = {}
    named = set()
    for place, own, row in read(data, env):
        try:
            content = read_row(row)
        except EnvError as error:
            raise EnvError(f"{env}: {data}, {place}: {error}") from None
        text = content if isinstance(content, str) else content[0]
        own = OWN_SPLITS.get(own)
        named.add(own)
        name = content_id(text)
        if name not in found or (own and SPLITS.index(own) > SPLITS.index(found[name][0] or "train")):
            found[name] = (own, text, content)
    splits: dict[str, list[Any]] = {split: [] for split in SPLITS}
    for own, text, content in found.values():
        keeps_split = own in ("val", "test") or (own == "train" and "test" in named)
        drawn = split_of(text)
        splits[own if keeps_split else "train" if drawn in named else drawn].append(content)
    return splits


def _column(row: Row, *names: str) -> Any:
    """Return the first of these columns that holds something, in upper or lower case; `None` if none does."""
    columns = {name.lower(): value for name, value in row.items()}
    return next((columns[name] for name in names if columns.get(name) not in (None, "", [])), None)


def _text(row: Row, value: Any, columns: str) -> str:
    """Return the text of a column, or of the user's message if the column is a chat with one such message.

    Raises EnvError, with the `columns`, if there is none.
    """
    if value is None:
        raise EnvError(f"a row needs {columns}, this one has {sorted(row)}")
    if isinstance(value, list) and all(isinstance(part, Mapping) and "role" in part for part in value):
        messages = [part.get("content") for part in value if part["role"] != "system"]
        value = messages[0] if len(messages) == 1 and value[-1]["role"] == "user" else value
    if not isinstance(value, str) or not value.strip():
        raise EnvError(f"a row needs {columns} as a text, or a chat with one message of the user; it is {value!r:.200}")
    return value


def problem_and_answer(row: Row) -> tuple[str, str]:
    r"""Return the problem and the answer of a row, from the usual columns.

    The problem is in `problem`, `question` or `prompt`, the answer in `answer` or `solution`. Of a worked answer only
    the part after its `####` (GSM8K) or in its last `\boxed{}` (MATH) is taken. Raises EnvError if a column is missing,
    or if no answer could ever be the same as this one.
    """
    worked = _column(row, "answer", "solution")
    problem = None if worked is None else _column(row, "problem", "question", "prompt")
    problem = _text(row, problem, "problem|question|prompt and answer|solution").strip()
    text = str(worked) if isinstance(worked, str | int | float) and worked == worked else ""
    boxed, (_, mark, last) = last_boxed(text), text.rpartition("####")
    gold = boxed or last.strip()
    if not is_readable(gold) or not (boxed or mark or is_short(gold)):
        remedy = "give a text or a number, alone, in \\boxed{} or after ####, with braces in pairs and at most"
        raise EnvError(f"its answer cannot be read: {text[-200:] or worked!r}; {remedy} {LONGEST} characters")
    return problem, gold


GENERATOR = "reasoning_gym:"


def word_problems(data: str | None, n: int, split: str, seed: int, env: str) -> list[tuple[str, str]]:
    """Return `n` different problems of a full-size math task, each with its answer.

    `data` is a file, a folder or a data set (`rows.read`), or `reasoning_gym:<task>` for generated problems. `None`
    means `reasoning_gym:gsm_symbolic`. Raises EnvError for a generator whose answers are lists of words in order, and
    for an answer that nobody can give.
    """
    if (data or GENERATOR).startswith(GENERATOR):
        task = (data or "").removeprefix(GENERATOR) or "gsm_symbolic"
        number = random.Random(f"{env} {task} {split} {seed}").randrange(2**31)
        entries = generator(task, number, 1000 + 100 * n)
        remedy = f"use the env of examples/reasoning_gym_env.py with dataset={task!r}"
        for entry in map(entries.__getitem__, range(8)):
            turned = ",".join((answer := str(entry["answer"])).split(",")[::-1])
            if turned != answer and is_right(turned, answer) and entries.score_answer(turned, entry) < 1:
                raise EnvError(f"{env}: the order counts in answers such as {answer!r}, but not here; {remedy}")
        places: dict[str, int] = {}

        def questions() -> Iterator[str]:
            for place in range(len(entries)):
                places.setdefault(question := entries[place]["question"], place)
                yield question

        found = []
        for question in draw(questions(), n, split, env):
            answer = entries[places[question]]["answer"]
            if answer is None or not is_readable(str(answer)):
                why = f"nobody can give its answer {str(answer)!r:.80} in a box, with at most {LONGEST} characters"
                raise EnvError(f"{env}: {GENERATOR}{task}, problem {places[question]}: {why}; {remedy}")
            found.append((question, str(answer)))
        return found
    return sample(data, n, split, seed, problem_and_answer, env)


def question_and_answers(row: Row) -> tuple[str, list[str], list[str]]:
    """Return the question, the accepted answers and the needed titles of a row, from the usual columns.

    The columns are `question`; `golden_answers`, `answers` or `answer`, one or several; and, if the row has them,
    `answer_aliases` (as in MuSiQue) and `supporting_facts` with the titles of the needed passages (as in HotpotQA). An
    answer is a text, a number, True or False (as in StrategyQA), or a dict of texts (as in SQuAD and TriviaQA). A list
    or a dict may be written as a text (as in PopQA).
    """
    columns = "question and golden_answers|answers|answer"
    answers = _column(row, "golden_answers", "answers", "answer")
    question = _text(row, None if answers is None else _column(row, "question"), columns)
    titles = _titles(_column(row, "supporting_facts") or [])
    accepted = _accepted([answers, _column(row, "answer_aliases") or []])
    if not accepted or not all(map(_says, accepted)):
        kinds = "text, numbers, True or False, or a list of them in JSON"
        raise EnvError(f"a row needs {columns} as {kinds}; its answer is {answers!r:.200}")
    return question.strip(), accepted, list(dict.fromkeys(titles))


def _says(text: Any) -> bool:
    """Return whether it is a text with something to compare."""
    return isinstance(text, str) and plain_answer(text) != ""


def _titles(facts: Any) -> list[str]:
    """Return the titles in `supporting_facts`: a list of texts, pairs or dicts, or a dict with a list of titles."""
    listed = facts.get("title") if isinstance(facts, Mapping) else facts
    titles = [fact.get("title") if isinstance(fact, Mapping) else fact[0] if isinstance(fact, list) and fact else fact
              for fact in (listed if isinstance(listed, list) else [None])]  # fmt: skip
    if not all(map(_says, titles)):
        forms = "a list of titles, of [title, number], or of dicts with title"
        raise EnvError(f"supporting_facts is {facts!r:.200}; give {forms}")
    return titles


def _accepted(answer: Any) -> list[Any]:
    """Return the accepted answers in a column: texts, and what cannot be read as it is."""
    if isinstance(answer, str) and re.match(r"\s*(?:array\()?[\[{][\s\[]*['\"\]]", answer):
        return _accepted(_listed(answer.strip()))
    if isinstance(answer, Mapping):  # SQuAD: text, TriviaQA: value (<unk> if unlabelled) and aliases
        named = [answer[name] for name in ("text", "value", "aliases") if answer.get(name, "<unk>") != "<unk>"]
        return _accepted(named) if named else [answer]
    if isinstance(answer, bool):
        return ["yes", "true"] if answer else ["no", "false"]
    if isinstance(answer, int) or (isinstance(answer, float) and math.isfinite(answer)):
        return [str(int(answer) if answer == int(answer) else answer)]
    return [text for part in answer for text in _accepted(part)] if isinstance(answer, list) else [answer]


def _listed(text: str) -> Any:
    """Return the list or dict that a text spells in JSON or as Python prints it; `None` if it is in another spelling.

    Python would join the two names of `['Paris' 'Lyon']`, as NumPy prints them.
    """
    with suppress(ValueError):
        return json.loads(text)
    with suppress(ValueError, SyntaxError):
        return found if str(found := ast.literal_eval(text)) == text else None


def post(row: Row) -> str:
    """Return a post: `post` (with its `title`), else `prompt` without its closing `TL;DR:`, else `text`."""
    if isinstance(body := _column(row, "post"), str):
        return "\n".join(part.strip() for part in (_column(row, "title"), body) if part)
    text = _text(row, _column(row, "prompt", "text"), "post, prompt or text")
    return re.sub(r"\s*TL;?DR:?\s*$", "", text, flags=re.IGNORECASE).strip()


def abstract(row: Row) -> str:
    """Return an abstract from `abstract_text`, `abstract`, `summary` or `text`: a text, or a list of sentences."""
    text = _column(row, "abstract_text", "abstract", "summary", "text")
    text = " ".join(map(str, text)) if isinstance(text, list) else text
    return " ".join(_text(row, text, "abstract_text, abstract, summary or text").split())


@lru_cache(maxsize=64)
def generator(dataset: str, seed: int, size: int) -> Any:
    """Return a generator; raise EnvError if the package or the generator is missing, or does not begin."""
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ImportError:
        raise EnvError("generated problems need reasoning-gym: pip install 'mas-lab[puzzles]'") from None
    if dataset not in DATASETS:
        raise EnvError(f"reasoning_gym has no dataset {dataset!r}; known are: {', '.join(sorted(DATASETS))}")
    try:
        return reasoning_gym.create_dataset(dataset, seed=seed, size=size)
    except (TypeError, AssertionError, ValueError) as error:
        raise EnvError(f"reasoning_gym {dataset!r}: {error}") from error
