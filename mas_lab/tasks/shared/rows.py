"""Read the texts of full-size tasks from files, data sets or a generator, in three splits, by their columns.

Splits are disjoint by content, not by row number: the same problem is never in `train` and `test`, even if a data set
holds it twice. `docs/data_sets.md` lists data sets of the hub whose columns a task reads unchanged.
"""

import ast
import hashlib
import json
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
COLUMNS = {
    "problem": ("problem", "question", "prompt"), "answer": ("answer", "solution"),
    "question": ("question",), "answers": ("golden_answers", "answers", "answer"),
    "aliases": ("answer_aliases",), "titles": ("supporting_facts",),
    "post": ("prompt", "text"), "abstract": ("abstract_text", "abstract", "summary", "text"),
}  # fmt: skip
"""What a task reads -> the columns that may hold it, the first one first."""


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
        for file in sorted(Path(path).rglob("*.jsonl")):
            list(read_jsonl(file, env))  # raises with the line if this file is broken
        remedy = "give a file, a folder or a data set of the hub. Without a network: HF_HUB_OFFLINE=1 if it was opened "
        remedy += f"before, or a folder that `hf download {path} --repo-type dataset --local-dir FOLDER` made elsewhere"
        why = f"{str(error)[:1000]} ({str(error.__cause__)[:1000]})"
        raise EnvError(f"{env}: {data!r} does not open: {why}; {remedy}") from error


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
        sizes = ", ".join(
            f"{name} {len(rows)}" for name, rows in _by_split(data, read_row, env, files_of(data)).items()
        )
        raise EnvError(f"{env}: {data} holds {len(found)} rows of split {split!r}, asked for {n} (of each: {sizes})")
    return found[:n]


def shuffled(data: str, split: str, seed: int, read_row: Callable[[Row], Any], env: str) -> list[Any]:
    """Return all rows of a split as `sample` reads them, in the order in which it takes them."""
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
    for place, split, row in read(data, env):
        try:
            content = read_row(row)
        except EnvError as error:
            raise EnvError(f"{env}: {data}, {place}: {error}") from None
        text, own = content if isinstance(content, str) else content[0], OWN_SPLITS.get(split)
        known = found.setdefault(content_id(text), (own, text, content))
        if own and SPLITS.index(own) > SPLITS.index(known[0] or "train"):
            found[content_id(text)] = (own, text, content)
    named = {own for own, _, _ in found.values()}
    splits: dict[str, list[Any]] = {split: [] for split in SPLITS}
    for own, text, content in found.values():
        keeps_split = own in ("val", "test") or (own == "train" and "test" in named)
        drawn = split_of(text)
        splits[own if keeps_split else "train" if drawn in named else drawn].append(content)
    return splits


def _column(row: Row, name: str, needed: bool = True) -> Any:
    """Return the first of `COLUMNS[name]` that holds something, in upper or lower case.

    If none does, return `None`, or raise EnvError with the columns if one is `needed`.
    """
    columns = {key.lower(): value for key, value in row.items()}
    found = next((columns[key] for key in COLUMNS[name] if columns.get(key) not in (None, "", [])), None)
    if found is None and needed:
        raise EnvError(f"a row needs {' or '.join(COLUMNS[name])}, this one has {sorted(row)}")
    return found


def _text(row: Row, name: str) -> str:
    """Return the text of a column: its text, its sentences, or the user's message of a chat with one such message."""
    value = _column(row, name)
    if isinstance(value, list) and all(isinstance(part, Mapping) and "role" in part for part in value):
        value = (
            [part.get("content") for part in value if part["role"] != "system"] if value[-1]["role"] == "user" else []
        )
        value = value if len(value) == 1 else None
    text = " ".join(map(str, value)) if isinstance(value, list) else value
    if not isinstance(text, str) or not text.strip():
        wanted = f"{' or '.join(COLUMNS[name])} as a text, or a chat with one message of the user"
        raise EnvError(f"a row needs {wanted}; it is {_column(row, name)!r:.200}")
    return text.strip()


def problem_and_answer(row: Row) -> tuple[str, str]:
    r"""Return the problem and the answer of a row.

    Of a worked answer only the part after its `####` (GSM8K) or in its last `\boxed{}` (MATH) is taken. Raises EnvError
    if a column is missing, or if no answer could ever be the same as this one.
    """
    worked = _column(row, "answer")
    text = str(worked) if isinstance(worked, str | int | float) and worked == worked else ""
    boxed, (_, mark, last) = last_boxed(text), text.rpartition("####")
    gold = boxed or last.strip()
    if not is_readable(gold) or not (boxed or mark or is_short(gold)):
        remedy = "give a text or a number, alone, in \\boxed{} or after ####, with braces in pairs and at most"
        raise EnvError(f"its answer cannot be read: {text[-200:] or worked!r}; {remedy} {LONGEST} characters")
    return _text(row, "problem"), gold


GENERATOR = "reasoning_gym:"


def word_problems(data: str | None, n: int, split: str, seed: int, env: str) -> list[tuple[str, str]]:
    """Return `n` different problems of a full-size math task, each with its answer.

    `data` is a file, a folder or a data set (`rows.read`), or `reasoning_gym:<task>` for generated problems. `None`
    means `reasoning_gym:gsm_symbolic`. Raises EnvError for a generator whose answers are lists of words in order, and
    for an answer that nobody can give.
    """
    if not (data or GENERATOR).startswith(GENERATOR):
        return sample(data, n, split, seed, problem_and_answer, env)
    task = (data or "").removeprefix(GENERATOR) or "gsm_symbolic"
    entries = generator(task, random.Random(f"{env} {task} {split} {seed}").randrange(2**31), 1000 + 100 * n)
    place, remedy = f"{env}: {GENERATOR}{task}", f"use the env of examples/reasoning_gym_env.py with dataset={task!r}"
    for entry in map(entries.__getitem__, range(8)):
        turned = ",".join((answer := str(entry["answer"])).split(",")[::-1])
        if turned != answer and is_right(turned, answer) and entries.score_answer(turned, entry) < 1:
            raise EnvError(f"{place}: the order counts in answers such as {answer!r}, but not here; {remedy}")
    answers: dict[str, Any] = {}

    def questions() -> Iterator[str]:
        for entry in map(entries.__getitem__, range(len(entries))):
            answers.setdefault(entry["question"], entry["answer"])
            yield entry["question"]

    found = [(question, answers[question]) for question in draw(questions(), n, split, env)]
    for question, answer in found:
        if answer is None or not is_readable(str(answer)):
            why = f"nobody can give its answer {str(answer)!r:.80} in a box, with at most {LONGEST} characters"
            raise EnvError(f"{place}, problem {question!r:.80}: {why}; {remedy}")
    return [(question, str(answer)) for question, answer in found]


def question_and_answers(row: Row) -> tuple[str, list[str], list[str]]:
    """Return the question, the accepted answers and the needed titles of a row.

    An answer is a text, a number, True or False (as in StrategyQA), or a dict of texts (as in SQuAD and TriviaQA). A
    list or a dict may be written as a text (as in PopQA). A row may have further answers (as in MuSiQue), and the
    titles of the needed passages (as in HotpotQA).
    """
    answers = _column(row, "answers")
    accepted = _accepted([answers, _column(row, "aliases", needed=False) or []])
    if not accepted or not all(map(_says, accepted)):
        kinds = "text, numbers, True or False, or a list of them in JSON"
        raise EnvError(f"a row needs {' or '.join(COLUMNS['answers'])} as {kinds}; its answer is {answers!r:.200}")
    titles = _titles(_column(row, "titles", needed=False) or [])
    return _text(row, "question"), accepted, list(dict.fromkeys(titles))


def _says(text: Any) -> bool:
    """Return whether it is a text with something to compare."""
    return isinstance(text, str) and plain_answer(text) != ""


def _titles(facts: Any) -> list[str]:
    """Return the titles in `supporting_facts`: a list of texts or pairs, or a dict with a list of titles."""
    listed = facts.get("title") if isinstance(facts, Mapping) else facts
    titles = (
        [fact[0] if isinstance(fact, list) and fact else fact for fact in listed]
        if isinstance(listed, list)
        else [None]
    )
    if not all(map(_says, titles)):
        raise EnvError(f"supporting_facts is {facts!r:.200}; give a list of titles or of [title, number]")
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
    if isinstance(answer, int | float) and answer - answer == 0:  # finite
        return [str(answer).removesuffix(".0")]
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
    """Return a post without its closing `TL;DR:`."""
    return re.sub(r"\s*TL;?DR:?\s*$", "", _text(row, "post"), flags=re.IGNORECASE).strip()


def abstract(row: Row) -> str:
    """Return an abstract: a text, or a list of sentences."""
    return " ".join(_text(row, "abstract").split())


@lru_cache(maxsize=64)
def generator(dataset: str, seed: int, size: int) -> Any:
    """Return a generator; raise EnvError if the package or the generator is missing, or does not begin."""
    try:
        import reasoning_gym
    except ImportError:
        raise EnvError("generated problems need reasoning-gym: pip install 'mas-lab[puzzles]'") from None
    if dataset not in (known := reasoning_gym.factory.DATASETS):
        raise EnvError(f"reasoning_gym has no dataset {dataset!r}; known are: {', '.join(sorted(known))}")
    try:
        return reasoning_gym.create_dataset(dataset, seed=seed, size=size)
    except (TypeError, AssertionError, ValueError) as error:
        raise EnvError(f"reasoning_gym {dataset!r}: {error}") from error
