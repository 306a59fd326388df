"""A torch policy on disk: weights in Hugging Face or PEFT format, the optimizer's state, and a record to rebuild it.

The files are safetensors and JSON, without pickle. A step after loading equals the step without, bit for bit. Leaves
out: staging, hashing and naming of checkpoints (`mas_lab.runs.run`). Base models of adapters are named and not
copied.
"""

import json
from copy import copy
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from mas_lab.backends.torch.model import quiet, require_finite
from mas_lab.backends.torch.source import RECORD, read_record, reading
from mas_lab.describe import describe as describe_part
from mas_lab.policy import PolicyError

ADAPTER = "adapter_model.safetensors"
OPTIMIZER, FIRST = "training/optimizer.safetensors", "training/first_weights.safetensors"
KEPT = "training/kept.safetensors"
"""The files have a folder of their own, because vLLM reads every safetensors file beside a model as weights of it."""


def record(policy: Any) -> dict[str, Any]:
    """Return everything that is needed to make an equal policy anew, as plain data."""
    shared = policy.shared
    options = asdict(shared.options) | {"optimizer": describe_part(shared.options.optimizer, "optimizer")}
    return {"backend": shared.backend, "name": policy.name, "source": asdict(shared.source), "lora": policy.made_with,
            "lr": float(policy.lr), "template": shared.template, "options": options}  # fmt: skip


def describe(policy: Any) -> dict[str, Any]:
    """Return the record without the parts that depend on the machine: the place of files, device, engine settings."""
    described = record(policy)
    if described["source"]["kind"] in ("directory", "gguf"):
        del described["source"]["name"], described["name"]
    for option in policy.shared.options.of_the_machine:
        del described["options"][option]
    return described


def save_weights(policy: Any, directory: Path) -> None:
    """Write a model with its tokenizer, or one adapter, in the form that transformers, PEFT and vLLM load."""
    directory.mkdir(parents=True, exist_ok=True)
    shared = policy.shared
    if policy.adapter is None:
        with quiet():
            shared.net.save_pretrained(directory)
        shared.tokenizer.save_pretrained(directory)
    else:
        from peft import get_peft_model_state_dict

        weights = get_peft_model_state_dict(shared.peft, adapter_name=policy.adapter)
        save_file(_contiguous(weights), directory / ADAPTER, metadata={"format": "pt"})
        config = copy(shared.peft.peft_config[policy.adapter])
        config.target_modules = sorted(config.target_modules)  # a set has another order in each process
        config.save_pretrained(directory)


def save(policy: Any, directory: Path) -> None:
    require_finite(policy.parameters, policy.name, "and are not kept")
    save_weights(policy, directory)
    state = {
        f"{name}|{key}": value
        for name, parameter in policy.parameters.items()
        for key, value in policy.optimizer.state.get(parameter, {}).items()
    }
    (directory / OPTIMIZER).parent.mkdir(exist_ok=True)
    save_file(_contiguous(state), directory / OPTIMIZER)
    for name in (FIRST, KEPT):  # of a policy that was saved here before
        (directory / name).unlink(missing_ok=True)
    if policy.first_weights is not None:
        save_file(_contiguous(policy.first_weights), directory / FIRST)
    if policy.kept:
        kept = {f"{number}|{name}": tensor for number, own in policy.kept.items() for name, tensor in own.items()}
        save_file(_contiguous(kept), directory / KEPT)
    (directory / RECORD).write_text(json.dumps(record(policy), indent=1) + "\n", encoding="utf-8")


def load_weights(policy: Any, directory: Path) -> None:
    """Load the weights that `save_weights` wrote, bit for bit; the optimizer starts anew."""
    shared = policy.shared
    if policy.adapter is None:
        net = shared.read(str(directory), shared.net.dtype)
        require_finite(dict(net.named_parameters()), policy.name, f"in {directory}")
        shared.net.load_state_dict(net.state_dict())
    else:
        from peft import get_peft_model_state_dict, set_peft_model_state_dict

        with reading(directory, f"{ADAPTER} or adapter_config.json"):
            weights = load_file(directory / ADAPTER)
            config = json.loads((directory / "adapter_config.json").read_bytes())
            there = {"rank": config["r"], "lora_alpha": config["lora_alpha"]}
        require_finite(weights, policy.name, f"in {directory / ADAPTER}")
        own, config = get_peft_model_state_dict(shared.peft, adapter_name=policy.adapter), shared.peft.peft_config
        here = {"rank": config[policy.adapter].r, "lora_alpha": config[policy.adapter].lora_alpha}
        shapes, own_shapes = ({name: w.shape for name, w in some.items()} for some in (weights, own))
        if (there, shapes) != (here, own_shapes):
            raise PolicyError(
                f"policy {policy.name!r}: the adapter in {directory} is of another make, with {there}, and this one "
                f"has {here}; load it over its base, with its lora= and alpha="
            )
        set_peft_model_state_dict(shared.peft, weights, adapter_name=policy.adapter)
    policy.start_anew()


def load(policy: Any, directory: Path) -> None:
    lr = read_record(directory)["lr"]
    with reading(directory, "the files in training/"):
        state = load_file(directory / OPTIMIZER)
        first, kept = (load_file(path) if (path := directory / name).is_file() else {} for name in (FIRST, KEPT))
    load_weights(policy, directory)
    for key, value in state.items():
        name, field = key.split("|")
        parameter = policy.parameters[name]
        # A copy: the tensor is the mapped file itself, and Windows cannot delete a checkpoint that is mapped.
        policy.optimizer.state[parameter][field] = value.to(parameter.device, copy=True)
    if policy.adapter is not None:
        copies = {name: first[name].to(p, copy=True) for name, p in policy.parameters.items()} if first else None
        policy.first_weights = copies
    for key, value in kept.items():
        number, name = key.split("|")
        policy.kept.setdefault(int(number), {})[name] = value.to(policy.parameters[name], copy=True)
    policy.lr = lr


def _contiguous(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
