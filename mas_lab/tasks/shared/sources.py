"""Open the rows of full-size tasks: a file, a folder, or a data set of the Hugging Face hub.

The meaning of columns, and the split of a row, are in `rows`.
"""

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os.path import splitdrive
from pathlib import Path
from typing import Any

from mas_lab.env import EnvError

Row = Mapping[str, Any]

DATA_SETS = {
    "math": (
        "POLARIS-Project/Polaris-Dataset-53K",
        "open-r1/DAPO-Math-17k-Processed:en",
        "BytedTsinghua-SIA/DAPO-Math-17k",
        "openai/gsm8k:main",
        "math-ai/aime24",
        "math-ai/aime25",
        "Maxwell-Jia/AIME_2024",
    ),
    "search": ("hotpotqa/hotpot_qa:distractor",),
    "tldr": ("trl-lib/tldr",),
    "arxiv_intro": ("LovelyBuggies/arXiv_abstract",),
    "code_tests": ("deepmind/code_contests", "openai/openai_humaneval"),
}
"""Data sets of the hub whose columns a task reads unchanged, by the task's name: see docs/data_sets.md."""
LIKE = {"math_tool": "math"}
"""Task -> another task that reads the same data sets."""

TABLES = {".parquet": "parquet", ".csv": "csv"}
"""Files that `datasets` reads, by their suffix; any other file is JSONL."""
ON_THE_HUB = re.compile(r"[\w-][\w.-]*(/[\w.-]+)?")
WAIT = 5.0
"""Seconds to wait for the hub; its own client would try six times, for half a minute and more."""

_flag = threading.Lock()


def read(data: str, env: str) -> Iterator[tuple[str, str | None, Row]]:
    """Yield `(place, split that the source names, row)` for every row; a place is "line 3" or "row 3 of 'train'".

    `data` is a JSONL, parquet or csv file, or anything that `datasets.load_dataset` opens: a folder or a data set of
    the hub, `path` or `path:configuration`. Raises `EnvError` that says what is missing, and how to get it.
    """
    if Path(data).is_file() and Path(data).suffix not in TABLES:
        for number, row in read_jsonl(Path(data), env):
            yield f"line {number}", row.get("split"), row
        return
    for split, part in _open(data, env).items():
        for number, row in enumerate(part, start=1):
            yield f"row {number} of {split!r}", split, row


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
    drive, rest = splitdrive(data)  # a Windows drive has a colon, too
    path, _, configuration = rest.partition(":")
    path = drive + path
    try:
        if Path(data).is_file():
            return load_dataset(TABLES[Path(data).suffix], data_files=data)
        with _quick_without_network(path):
            return load_dataset(path, configuration or None)
    except Exception as error:
        for file in sorted(Path(path).rglob("*.jsonl")) if Path(path).is_dir() else ():
            for _ in read_jsonl(file, env):  # raises with the line if this file is broken
                pass
        raise EnvError(f"{env}: {_why_not(data, path, env, error)}") from error


@contextmanager
def _quick_without_network(path: str) -> Iterator[None]:
    """Set `datasets` to offline if the hub does not answer: it then looks only into its cache."""
    from datasets import config

    with _flag:
        before = config.HF_HUB_OFFLINE
        asks = ON_THE_HUB.fullmatch(path) and not Path(path).exists() and not before
        try:
            config.HF_HUB_OFFLINE = before or bool(asks and not _answers(config.HF_ENDPOINT))
            yield
        finally:
            config.HF_HUB_OFFLINE = before


def _answers(address: str) -> bool:
    import httpx

    try:
        httpx.head(address, timeout=WAIT)
    except httpx.HTTPError:
        return False
    return True


def _why_not(data: str, path: str, env: str, error: BaseException) -> str:
    reasons = [str(error)]
    while error := error.__cause__:
        reasons.append(str(error))
    reason = ": ".join(dict.fromkeys(reason.strip().rstrip(".") for reason in reasons))[:1000]
    if Path(path).exists():
        return f"{data!r} does not open: {reason}"
    told = f"{data!r} is no file or folder here, nor a data set that opens: {reason}."
    if known := DATA_SETS.get(LIKE.get(env, env)):
        told += f" Known data sets: {', '.join(known)}."
    if ON_THE_HUB.fullmatch(path):
        command = f"hf download {path} --repo-type dataset --local-dir FOLDER"
        told += f" Without a network: {command}, where there is one, and data='FOLDER{data.removeprefix(path)}'."
    return told
