"""Zips of runs that nobody made by `export()`: one honest zip, and what somebody may have done to it.

Leaves out: what is to come of them (`contrib/foreign/test_child.py`).
"""

import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from mas_lab.runs.manifest import MANIFEST, digest, manifest_of

Members = dict[str, bytes]
TURNS, STATS, SCORES = "turns/000001.parquet", "stats/000001.parquet", "scores/000005"


def members(path: Path) -> Members:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def pack(there: Members, path: Path, more=()) -> Path:
    """A zip of the members, and of `more`, (name, data) each, under names that may repeat. Who changes a
    member changes what the manifest says of it, too."""
    if MANIFEST in there:
        told = {name: digest(data) for name, data in there.items() if name != MANIFEST}
        there = there | {MANIFEST: manifest_of(told)}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in (*there.items(), *more):
            archive.writestr(name, data)
    return path


def edited(name: str, change: Callable[[dict], object]) -> Callable:
    """JSON with a change: `change` works on it, or gives what stands in its place."""

    def make(there: Members, path: Path) -> Path:
        data = json.loads(there[name])
        changed = change(data)
        return pack(there | {name: json.dumps(data if changed is None else changed).encode()}, path)

    return make


def field(key: str, value: object) -> Callable:
    return edited("run.json", lambda config: {**config, key: value})


def text(name: str, written: str | bytes) -> Callable:
    return lambda there, path: pack(there | {name: written if isinstance(written, bytes) else written.encode()}, path)


def extra(name: str, data: bytes = b"x") -> Callable:
    return lambda there, path: pack(there, path, more=[(name, data)])


def table(name: str, change: Callable[[pa.Table], pa.Table], **options) -> Callable:
    """A table with a change, written as parquet anew."""

    def make(there: Members, path: Path) -> Path:
        out = io.BytesIO()
        [whole] = [one for one in there if one.startswith(name)]
        parquet.write_table(change(parquet.read_table(io.BytesIO(there[whole]))), out, **options)
        return pack(there | {whole: out.getvalue()}, path)

    return make


def column(name: str, of: str, values: Callable[[int], object]) -> Callable:
    """A table one of whose columns holds other values, or a new one; `values` of the number of rows."""

    def change(held: pa.Table) -> pa.Table:
        new = values(held.num_rows)
        new = new if isinstance(new, pa.Array) else pa.array(new)
        place = held.schema.get_field_index(of)
        return held.append_column(of, new) if place < 0 else held.set_column(place, of, new)

    return table(name, change)


def rows(held: pa.Table, n: int) -> pa.Table:
    """The first row n times, in a few thousand bytes."""
    return held.take(np.zeros(n, int))


def broken(n: int) -> pa.Array:
    """Texts whose last is none, in bytes that are no UTF-8."""
    texts = pa.array([b"a"] * (n - 1) + [b"\xff\xfe"])
    return pa.StringArray.from_buffers(n, *texts.buffers()[1:])


def bytes_changed(change: Callable[[bytearray], None]) -> Callable:
    def make(there: Members, path: Path) -> Path:
        data = bytearray(pack(there, path).read_bytes())
        change(data)
        path.write_bytes(data)
        return path

    return make


def listing_of(data: bytes, name: str) -> int:
    """Where the zip's list speaks of a member."""
    at = data.index(b"PK\1\2")
    while data[at + 46 : at + 46 + len(name)] != name.encode():
        at = data.index(b"PK\1\2", at + 4)
    return at


def lie(name: str, size: int) -> Callable:
    """The zip's list gives a member another size."""
    return bytes_changed(lambda data: struct.pack_into("<L", data, listing_of(bytes(data), name) + 24, size))


def encrypted(data: bytearray) -> None:
    data[6] |= 1  # the first member is run.json
    data[listing_of(bytes(data), "run.json") + 8] |= 1


def damaged(data: bytearray) -> None:
    at = data.index(TURNS.encode())
    data[at + len(TURNS) + 50] ^= 1


def long_listing(data: bytearray) -> None:
    """The end says that the list takes gigabytes."""
    struct.pack_into("<L", data, len(data) - 22 + 12, 2**31)


def nested(depth: int, inner: str = "1") -> str:
    return "[" * depth + inner + "]" * depth


ZEROS = bytes(200 * 2**20)
NOTED = {b"pandas": b'{"index_columns": [{"kind": "range"}], "columns": 5}'}
BOMBS = {
    "a member that unpacks to much": (extra("notes.txt", ZEROS), "takes 0.20 GiB"),
    "JSON that takes much": (text("run.json", b"[" + b"[]," * 2**22 + b"[]]"), "mallory.zip takes more than 0.125 GiB"),
    "a million rows in a few bytes": (table(TURNS, lambda t: rows(t, 500_000)), f"{TURNS} takes more than 0.125 GiB"),
    "a list of members that is too long": (bytes_changed(long_listing), "neither"),
}  # fmt: skip
"""What takes gigabytes if it is read, by the words of its refusal; under a limit of 128 MiB."""

COSINES = json.dumps({"rows": [{
    "agent": "asker", "recipe": "grpo", "cos_team": 0.1, "cos_own": None, "low": "x", "high": 0.2, "norm": 1.0,
    "rows": 12.0, "verdict": "across",
}]})  # fmt: skip
HOSTILE = {
    "encrypted": (bytes_changed(encrypted), "is not a whole table .*encrypted"),
    "a list that makes a member shorter": (lie(TURNS, 10), f"{TURNS} cannot be read"),
    "a flipped bit": (bytes_changed(damaged), f"{TURNS} cannot be read"),
    "cut short": (bytes_changed(lambda data: data.__delitem__(slice(-300, None))), "neither"),
    "empty": (lambda there, path: pack({}, path), "holds no run.json"),
    "no zip": (bytes_changed(lambda data: data.__setitem__(slice(None), b"homework")), "neither"),
    "run.json is cut": (text("run.json", '{"format": 2,'), "run.json is not JSON"),
    "run.json nests without end": (text("run.json", nested(200_000)), "run.json is not JSON"),
    "a recipe nests": (field("settings", {"x": json.loads(nested(480))}), "it nests deeper"),
    "the recipe is null": (field("recipe", None), "run.json: recipe: Input should be a valid dict"),
    "a recipe of unknown arguments": (field("recipe", {"is": "Recipe", "name": "x", "y": 1}), "recipe is not one"),
    "the format is text": (field("format", "x"), "is of format 'x', and this version"),
    "the seed is text": (field("seed", "1"), r"run.json: seed: Input should be a valid integer \(got '1'\)"),
    "the seed is beyond counting": (field("seed", 10**30), "run.json: seed: Input should be less than"),
    "a watch of another form": (edited("watch.json", lambda w: w.update(spikes=5)), "watch.json: spikes: Input should"),
    "a watch without its rule": (edited("watch.json", lambda w: w.update(rule={})), "watch.json: rule.*: Field"),
    "cosines without rows": (text("uphill.json", "{}"), "uphill.json: rows: Field required"),
    "a cosine is text": (text("uphill.json", COSINES), r"uphill.json: rows.0.low: .* valid number \(got 'x'\)"),
    "tokens are a list": (text("tokens.json", "[]"), "tokens.json holds list"),
    "a token is a number": (edited("tokens.json", lambda t: t["shared"].update({"0": 5})), "shared.0: Input should"),
    "a pickle for a table": (text(TURNS, pickle.dumps({})), f"{TURNS} is not a whole table"),
    "half a table": (lambda t, p: pack(t | {TURNS: t[TURNS][:5000]}, p), f"{TURNS} is not a whole table"),
    "a table without a column": (table(TURNS, lambda t: t.drop_columns(["agent"])), f"{TURNS}.*'agent' is missing"),
    "a column of another kind": (column(TURNS, "agent", lambda n: [1] * n), "'agent' does not hold text in every row"),
    "a missing text": (column(TURNS, "group", lambda n: ["g"] * (n - 1) + [None]), "'group' does not hold text"),
    "a text of broken bytes": (column(TURNS, "completion", broken), f"{TURNS} is not a whole table"),
    "an end of no kind": (column(TURNS, "finish", lambda n: ["eos"] * (n - 1) + ["x"]), "'finish' is none of .*'x'"),
    "a reward that is missing": (column(TURNS, "team_reward", lambda n: [None] + [1.0] * (n - 1)), "'team_reward' is"),
    "a reward of no end": (column(TURNS, "local_reward", lambda n: [float("inf")] * n), "'local_reward' is not a fin"),
    "a flag of numbers": (column(TURNS, "valid", lambda n: [2] * n), "'valid' is neither True nor False"),
    "steps below 0": (column(TURNS, "step", lambda n: [-1] * n), f"{TURNS}: column 'step' holds .*, not 1 to 1"),
    "ids that are text": (column(TURNS, "completion_ids", lambda n: [["a"]] * n), f"{TURNS}: column 'completion_ids'"),
    "ids that are missing": (column(TURNS, "prompt_ids", lambda n: [[1]] * (n - 1) + [None]), "'prompt_ids' does not"),
    "an id that is missing": (column(TURNS, "prompt_ids", lambda n: [[1]] * (n - 1) + [[None]]), "'prompt_ids' does"),
    "an id beyond counting": (column(TURNS, "prompt_ids", lambda n: [[-(2**63)]] * n), "'prompt_ids' does not hold"),
    "log-probabilities in lists of lists": (column(TURNS, "logprobs", lambda n: [[[0.0]]] * n), "'logprobs' does"),
    "a log-probability short": (column(TURNS, "logprobs", lambda n: [[0.0]] * n), f"{TURNS}: a row has not one"),
    "advantages of another length": (column(TURNS, "advantage", lambda n: [[1.0] * 9] * n), f"{TURNS}: the advantage"),
    "info that is no JSON": (column(TURNS, "info", lambda n: ["{"] * n), f"{TURNS} is not a whole table"),
    "info that nests without end": (column(TURNS, "info", lambda n: [nested(99_999)] * n), f"{TURNS} is not"),
    "norms of text": (column(STATS, "grad_norm", lambda n: ["1"] * n), f"{STATS}: column 'grad_norm' does not hold"),
    "notes for pandas": (table(TURNS, lambda t: t.replace_schema_metadata(NOTED)), f"{TURNS} is not a whole table"),
    "scores of another step": (column(SCORES, "step", lambda n: [10**6] * n), "'step' holds .*, not 5 to 5"),
}  # fmt: skip
"""What is refused by its own fault, by the words of the refusal."""
