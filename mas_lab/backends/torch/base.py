"""Make torch policies: full weights, adapters over one base, and both from disk.

Leaves out: the methods of a policy (`policy`) and its files (`state`).
"""

import json
import threading
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from mas_lab.backends.torch.model import TorchModel
from mas_lab.backends.torch.policy import TorchPolicy
from mas_lab.backends.torch.source import Source, model_config, options_of
from mas_lab.backends.torch.state import RECORD, read_record
from mas_lab.policy import PolicyError

RANDOM = threading.Lock()


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


def load_full(make: type[TorchModel], name, lr=None, template=None, seed=0, **options) -> TorchPolicy:
    """Load a policy, see `mas_lab.backends.loading.load_policy`. Nothing random is drawn, so `seed` has no effect."""
    source = Source.find(name)
    lr = source.default_lr(lora=False) if lr is None else lr
    return TorchPolicy(make(source, options_of(make.Options, options), template), lr)


def load_base(
    make: type[TorchModel], name, adapters=1, rank=16, lr=None, template=None, seed=0, **options
) -> TorchBase:
    """Load a base, see `mas_lab.backends.loading.load_base`."""
    source = Source.find(name)
    lr = source.default_lr(lora=True) if lr is None else lr
    return TorchBase(
        make(source, options_of(make.Options, options), template, lora=(adapters, rank)), adapters, rank, lr, seed
    )


def restore(
    directories: dict[str, str | Path], model_of: Callable[[str], type[TorchModel]], asked: Collection[str] = ()
) -> dict[str, TorchPolicy]:
    """Restore policies, see `mas_lab.backends.loading.restore_policies`.

    `model_of` returns the model class of a back end.
    """
    bases: dict[str, list[TorchBase]] = {}
    policies = {}
    for name, directory in directories.items():
        record = read_record(Path(directory))
        _refuse_unasked(record, Path(directory), asked)
        make = model_of(record["backend"])
        if record["lora"] is None:
            shared = _model(make, record, weights=directory)
            policy = TorchPolicy(shared, record["lr"])
        else:
            policy = _restore_adapter(make, record, bases)
        policy.name = record["name"]
        policy.load(Path(directory))
        policies[name] = policy
    return policies


@dataclass(frozen=True)
class Given:
    """Weights from another user: a folder in Hugging Face form (`lora` is `None`), or in PEFT form over `source`."""

    folder: Path
    lr: float
    template: dict[str, Any]
    lora: dict[str, int] | None = None
    source: Source | None = None


def open_given(make: type[TorchModel], given: dict[str, Given], options: dict[str, Any]) -> dict[str, TorchPolicy]:
    """Return policies with these weights and new optimizers; adapters that shared a base share it again."""
    bases: dict[str, list[TorchBase]] = {}
    policies = {}
    for name, one in given.items():
        if one.lora is None:
            _refuse_more_than_held(one.folder)
            policy = load_full(make, one.folder, lr=one.lr, template=one.template, **options)
            policy.name = name
        else:
            record = {"backend": make.backend, "name": name, "source": asdict(one.source), "lora": one.lora,
                      "lr": one.lr, "template": one.template, "options": options}  # fmt: skip
            policy = _restore_adapter(make, record, bases)
            policy.load_weights(one.folder)
            policy.lr = one.lr
        policies[name] = policy
    return policies


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


def _refuse_unasked(record: dict[str, Any], directory: Path, asked: Collection[str]) -> None:
    """Raise PolicyError if an untrusted record would make us load a hub model that the user did not name."""
    source = Source(**record["source"])
    fetched = source.kind == "hub" and (record["lora"] is not None or source.digest is None)
    if fetched and source.name not in asked:
        raise PolicyError(
            f"{directory / RECORD} names the model {source.name!r} of the hub, which is not loaded unasked; if it is "
            f"the one that you trained, ask for it: load_run(...).team(base={source.name!r})"
        )


def _model(make: type[TorchModel], record: dict[str, Any], **given: Any) -> TorchModel:
    options = {name: value for name, value in record["options"].items() if name not in make.Options.removed}
    return make(Source(**record["source"]), options_of(make.Options, options), record["template"], **given)


def _restore_adapter(make: type[TorchModel], record: dict[str, Any], bases: dict[str, list[TorchBase]]) -> TorchPolicy:
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
