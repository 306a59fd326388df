"""Names that do all that a name can do, as HTML, as plotly's markup and templates, as LaTeX; and a run full of them.

Leaves out: what must become of them.
"""

import dataclasses
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pandas as pd
from small import Relay

import mas_lab as lab
from mas_lab.runs.disk import digest, hashed
from mas_lab.runs.run import EXPORTED

EVIL = (
    """<span style="background:url(https://evil.test/a);cursor:url(https://evil.test/b)">x</span>"""
    """<img src=https://evil.test/c onerror="window.hacked = 1"><a href="https://evil.test/d">link</a>"""
    r"""$\href{https://evil.test/e}{m}$</script></style><script>window.hacked = 1</script><!--%{x}%{y:.1f}&lt;b&gt;"""
)
NAMES = ("asker", "doer", "shared", "at_grpo", "small:Relay")
"""Agents, policy, recipe and env of the run `spiky`."""
TOLD = ("local_rewards", "valid")
"""What a step tells of each agent."""
TEXTS = ("task", "episode", "node", "parent", "action", "agent", "policy", "group", "prompt", "completion")


def evil(name: str) -> str:
    return f"{EVIL} {name}"


def good(name: str) -> str:
    """The name that `evil` was given."""
    return name.removeprefix(f"{EVIL} ")


def evil_zip(run: Path, folder: Path) -> Path:
    """A run as somebody hands it in whose every name and text is evil."""
    handed_in, tables = folder / "evil.zip", []
    with zipfile.ZipFile(lab.export(run, folder / "good.zip")) as old, zipfile.ZipFile(handed_in, "w") as new:
        for name in [name for name in old.namelist() if name.endswith(".parquet")]:
            held = _of_table(old.read(name))
            tables.append(f"{name.rpartition('-')[0]}-{digest(held)[:16]}.parquet")
            new.writestr(tables[-1], held)
        for name, changes in {"run.json": {}, EXPORTED: {"files": tables}}.items():
            data = _renamed(json.loads(old.read(name))) | changes
            del data["sha256"]
            new.writestr(name, hashed(data, handed_in))
    return handed_in


def _renamed(data: Any) -> Any:
    if isinstance(data, dict):
        return {_renamed(key): _renamed(value) for key, value in data.items()}
    if isinstance(data, list):
        return list(map(_renamed, data))
    return evil(data) if data in NAMES else data


def _of_table(held: bytes) -> bytes:
    table, written = pd.read_parquet(io.BytesIO(held)), io.BytesIO()
    for name in table.columns.intersection(TEXTS):
        table[name] = [evil(text) if text else text for text in table[name]]
    table.to_parquet(written)
    return written.getvalue()


class EvilRelay(Relay):
    """`Relay` under other names."""

    name = evil(Relay.name)
    agents = tuple(map(evil, Relay.agents))

    def acting(self, state):
        return tuple(map(evil, super().acting(state)))

    def observe(self, state, agent):
        return super().observe(state, good(agent))

    def step(self, state, actions):
        step = super().step(state, {good(agent): text for agent, text in actions.items()})
        renamed = {name: {evil(agent): value for agent, value in getattr(step, name).items()} for name in TOLD}
        return dataclasses.replace(step, **renamed)
