"""Making Tinker policies: adapters over one base, new or from a checkpoint.

Leaves out: the policy itself (`policy`).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mas_lab.backends.tinker.base import TinkerBase
from mas_lab.backends.tinker.policy import TinkerPolicy, read_record
from mas_lab.backends.torch.source import Source


def load_base(name: str | Path, adapters: int, rank: int, lr: float | None, template: Any, seed: int,
              **options: Any) -> TinkerBase:  # fmt: skip
    """Load a base, see `mas_lab.backends.loading.load_base`."""
    source = Source.find(name)
    lr = source.default_lr(lora=True) if lr is None else lr
    return TinkerBase(TinkerPolicy, source, adapters, rank, lr, seed, template, **options)


def restore(directories: Mapping[str, str | Path]) -> dict[str, TinkerPolicy]:
    """Return policies that `save` wrote, by name; adapters of one base share it again."""
    bases: dict[str, TinkerBase] = {}
    found = {}
    for name, directory in directories.items():
        record = read_record(Path(directory))
        lora, options = record["lora"], record["options"] | {"url": record["url"]}
        alike = json.dumps([record["source"], lora["rank"], lora["seed"], options], sort_keys=True)
        if alike not in bases:
            made_with = {"adapters": record["adapters"], "lr": record["lr"], "template": record["template"]}
            source = Source(**record["source"])
            bases[alike] = TinkerBase(
                TinkerPolicy, source, rank=lora["rank"], seed=lora["seed"], **made_with, **options
            )
        policy = found[name] = bases[alike].adapter(record["name"], lr=record["lr"])
        policy.load(Path(directory))
    return found
