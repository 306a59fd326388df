"""Make adapters over one base, and policies from weights on disk.

Leaves out: the methods of a policy (`policy`) and its files (`state`).
"""

import json
import threading
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from mas_lab.backends.torch.model import TorchModel
from mas_lab.backends.torch.policy import TorchPolicy
from mas_lab.backends.torch.source import RECORD, Source, model_config, options_of
from mas_lab.policy import PolicyError

RANDOM = threading.Lock()
Bases = dict[str, list["TorchBase"]]
"""Bases by what their adapters must have in common."""


class TorchBase:
    """One copy of a base with `adapters` LoRA adapters; each adapter is a policy with its own optimizer."""

    def __init__(self, shared: TorchModel, adapters: int, rank: int, lr: float, seed: int):
        self.shared, self.size, self.rank = shared, adapters, rank
        self.policies: dict[str, TorchPolicy] = {}
        shared.net.requires_grad_(False)
        made_with = {"adapters": adapters, "rank": rank, "seed": seed}
        self._free = [self._make(made_with | {"index": i}, rank, lr) for i in range(adapters)]

    def _make(self, made_with: dict[str, int], rank: int, lr: float) -> TorchPolicy:
        name = f"adapter{made_with['index']}"
        with RANDOM, torch.random.fork_rng():
            torch.manual_seed(made_with["seed"] + made_with["index"])
            self.shared.add_adapter(name, rank)
        policy = TorchPolicy(self.shared, lr, name)
        policy.made_with = made_with
        return policy

    def adapter(self, agent: str, rank: int | None = None, lr: float | None = None) -> TorchPolicy:
        """Return the policy of `agent`; another call for the same agent returns the same policy.

        `rank` is at most the rank of the base, because an engine has room for no more. `None` as `rank` or `lr` keeps
        the present value, which is the base's at first. Raises PolicyError if all adapters are taken, if `rank` is out
        of range, or if the agent's adapter was made with another rank.
        """
        if agent not in self.policies:
            if not self._free:
                raise PolicyError(
                    f"agent {agent!r} asks for an adapter; the base was loaded with adapters={self.size}, "
                    f"taken by {', '.join(self.policies)}"
                )
            self._hand_out(self._free[0], agent, rank)
        policy = self.policies[agent]
        if rank not in (None, policy.made_with.get("own_rank", self.rank)):
            raise PolicyError(f"agent {agent!r} asks for rank {rank}; its adapter was made before, of another rank")
        policy.lr = policy.lr if lr is None else lr
        return policy

    def take(self, index: int, agent: str, rank: int | None = None) -> TorchPolicy | None:
        """Give adapter `index` to `agent`; return `None` if it is taken or if the agent has a policy already."""
        for policy in self._free:
            if policy.made_with["index"] == index and agent not in self.policies:
                return self._hand_out(policy, agent, rank)
        return None

    def _hand_out(self, policy: TorchPolicy, agent: str, rank: int | None) -> TorchPolicy:
        if rank not in (None, self.rank):
            if not 1 <= rank < self.rank:
                raise PolicyError(
                    f"agent {agent!r} asks for rank {rank}; the base was loaded with rank={self.rank}, which must be "
                    "the largest of its adapters'"
                )
            self._free.remove(policy)
            self.shared.peft.delete_adapter(policy.adapter)
            policy = self._make(policy.made_with | {"own_rank": rank}, rank, policy.lr)
            self._free.append(policy)
        self._free.remove(policy)
        policy.name = agent
        self.policies[agent] = policy
        return policy


def restore(
    make: type[TorchModel], record: dict[str, Any], directory: str | Path, bases: Bases, asked: Collection[str]
) -> TorchPolicy:
    """Return the policy of a record, whose state is still to be loaded from `directory`.

    `bases` holds the bases of the policies before it. `asked`: hub ids that may be loaded, since a stranger may have
    written the record.
    """
    source = Source(**record["source"])
    fetched = source.kind == "hub" and (record["lora"] is not None or source.digest is None)
    if fetched and source.name not in asked:
        raise PolicyError(
            f"{Path(directory) / RECORD} names the model {source.name!r} of the hub, which is not loaded unasked; if "
            f"it is the one that you trained, ask for it: load_run(...).team(base={source.name!r})"
        )
    if record["lora"] is not None:
        return _restore_adapter(make, record, bases)
    return TorchPolicy(_model(make, record, weights=directory), record["lr"])


@dataclass(frozen=True)
class Given:
    """Weights from another user: a folder in Hugging Face form (`lora` is `None`), or in PEFT form over `source`."""

    folder: Path
    lr: float
    template: dict[str, Any]
    lora: dict[str, int] | None = None
    source: Source | None = None


def open_one(make: type[TorchModel], name: str, one: Given, options: dict[str, Any], bases: Bases) -> TorchPolicy:
    """Return a policy with these weights and a new optimizer; adapters that shared a base share it again."""
    if one.lora is None:
        _refuse_more_than_held(one.folder)
        model = make(Source.find(one.folder), options_of(make.Options, options), one.template)
        policy = TorchPolicy(model, one.lr)
    else:
        record = {"backend": make.backend, "name": name, "source": asdict(one.source), "lora": one.lora, "lr": one.lr,
                  "template": one.template, "options": options}  # fmt: skip
        policy = _restore_adapter(make, record, bases)
        policy.load_weights(one.folder)
    policy.name, policy.lr = name, one.lr
    return policy


def _refuse_more_than_held(folder: Path) -> None:
    """Raise PolicyError if the config needs more weights than the files hold; transformers would draw the rest."""
    try:
        with torch.device("meta"):
            net = AutoModelForCausalLM.from_config(model_config(folder), trust_remote_code=False)
    except Exception as error:
        raise PolicyError(f"{folder / 'config.json'} is of no model that transformers makes: {error}") from error
    asked = sum(parameter.numel() for parameter in net.parameters())
    held = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    if asked > 2 * held:  # each weight takes four bits or more
        raise PolicyError(f"{folder}: config.json asks for {asked} weights, and its files hold {held} bytes of them")


def _model(make: type[TorchModel], record: dict[str, Any], **given: Any) -> TorchModel:
    options = {name: value for name, value in record["options"].items() if name not in make.Options.removed}
    return make(Source(**record["source"]), options_of(make.Options, options), record["template"], **given)


def _restore_adapter(make: type[TorchModel], record: dict[str, Any], bases: Bases) -> TorchPolicy:
    """Restore an adapter on the base that it shared, or on a second base if its place there is taken."""
    made_with = dict(record["lora"])
    index, own_rank = made_with.pop("index"), made_with.pop("own_rank", None)
    shared = [record[key] for key in ("backend", "source", "options", "template")]
    same_base = bases.setdefault(json.dumps([shared, made_with], sort_keys=True), [])
    for base in same_base:
        if (policy := base.take(index, record["name"], own_rank)) is not None:
            return policy
    Source(**record["source"]).check()
    model = _model(make, record, lora=(made_with["adapters"], made_with["rank"]))
    same_base.append(TorchBase(model, lr=record["lr"], **made_with))
    return same_base[-1].take(index, record["name"], own_rank)
