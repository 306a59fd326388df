"""Make adapters over one base, and policies from weights on disk.

Leaves out: the methods of a policy (`policy`) and its files (`state`).
"""

import hashlib
import json
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch

from mas_lab.backends.torch.encoding import AdapterBase
from mas_lab.backends.torch.model import TorchModel
from mas_lab.backends.torch.policy import TorchPolicy
from mas_lab.backends.torch.source import RECORD, Source, options_of, read_record
from mas_lab.backends.torch.state import ADAPTER
from mas_lab.paths import data_dir
from mas_lab.policy import PolicyError

RANDOM = threading.Lock()
Bases = dict[str, list["TorchBase"]]
"""Bases by what their adapters must have in common."""


class TorchBase(AdapterBase):
    """One copy of a base with up to `size` LoRA adapters; each adapter is a policy with its own optimizer."""

    def __init__(self, shared: TorchModel, adapters: int, rank: int, lr: float, seed: int,
                 start: str | Path | None = None):  # fmt: skip
        self.shared, self.size, self.rank, self.lr, self.seed = shared, adapters, rank, lr, seed
        self.start = None if start is None else warm_start(start, shared.source)
        self.policies: dict[str, TorchPolicy] = {}
        shared.net.requires_grad_(False)

    def make(self, index: int, agent: str, rank: int | None = None) -> TorchPolicy:
        """Make adapter `index` for `agent`; its initial weights depend on the base's seed and on `index`."""
        if rank is not None and not 1 <= rank <= self.rank:
            raise PolicyError(
                f"agent {agent!r} requests rank {rank}; the base was loaded with rank={self.rank}, which must be "
                "the largest of its adapters'"
            )
        with RANDOM, torch.random.fork_rng():
            torch.manual_seed(self.seed + index)
            self.shared.add_adapter(f"adapter{index}", rank or self.rank)
        policy = TorchPolicy(self.shared, self.lr, f"adapter{index}")
        policy.name, self.policies[agent] = agent, policy
        policy.made_with = {"adapters": self.size, "rank": self.rank, "seed": self.seed, "index": index,
                            "own_rank": rank or self.rank, "start": None}  # fmt: skip
        if self.start is not None:
            policy.load_weights(self.start)
            policy.made_with["start"] = hashlib.sha256((self.start / ADAPTER).read_bytes()).hexdigest()
        return policy


def warm_start(start: str | Path, base: Source) -> Path:
    """Return the folder of an adapter, shipped or not; raise PolicyError if it is of another base."""
    places = [folder for folder in (Path(start), data_dir() / "warm" / start) if (folder / ADAPTER).is_file()]
    if not places:
        raise PolicyError(f"start={str(start)!r} is no folder of an adapter that policy.save wrote")
    made_on = Source(**read_record(places[0])["source"])
    if made_on.digest != base.digest or base.digest is None:
        raise PolicyError(
            f"start={str(start)!r} is an adapter of {made_on.name!r}, and the base is {base.name!r} (sha256 or "
            f"commit: {made_on.digest} and {base.digest})"
        )
    return places[0]


def restore(
    make: type[TorchModel], record: dict[str, Any], directory: str | Path, bases: Bases, allowed: Collection[str]
) -> TorchPolicy:
    """Return the policy of a record, whose state is still to be loaded from `directory`.

    `bases` holds the bases of the policies before it. `allowed`: hub ids that may be loaded, since a stranger may have
    written the record.
    """
    source = Source(**record["source"])
    fetched = source.kind == "hub" and (record["lora"] is not None or source.digest is None)
    if fetched and source.name not in allowed:
        raise PolicyError(
            f"{Path(directory) / RECORD} names the model {source.name!r} of the hub, which is only loaded on request; "
            f"if it is the one that you trained, pass it: load_run(...).team(base={source.name!r})"
        )
    if record["lora"] is not None:
        return _restore_adapter(make, record, bases)
    return TorchPolicy(_model(make, record, weights=directory), record["lr"])


def _model(make: type[TorchModel], record: dict[str, Any], **others: Any) -> TorchModel:
    options = options_of(make.Options, record["options"])
    return make(Source(**record["source"]), options, record["template"], **others)


def _restore_adapter(make: type[TorchModel], record: dict[str, Any], bases: Bases) -> TorchPolicy:
    """Restore an adapter on the base that it shared, or on a second base if its place there is taken."""
    made_with = dict(record["lora"])
    index, own_rank, start = (made_with.pop(name) for name in ("index", "own_rank", "start"))
    shared = [record[key] for key in ("backend", "source", "options", "template")]
    same_base = bases.setdefault(json.dumps([shared, made_with], sort_keys=True), [])
    fits = [base for base in same_base if index in base.free() and record["name"] not in base.policies]
    if not fits:
        source = Source(**record["source"])
        where = source.check()
        commit = {"weights": where} if source.kind == "hub" else {}
        model = _model(make, record, lora=(made_with["adapters"], made_with["rank"]), **commit)
        fits = [TorchBase(model, lr=record["lr"], **made_with)]
        same_base += fits
    policy = fits[0].make(index, record["name"], own_rank)
    policy.made_with["start"] = start  # the weights have a folder of their own
    return policy
