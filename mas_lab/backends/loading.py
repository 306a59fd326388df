"""Where weights live: constructors of policies for each back end, and the thread probe.

`load_policy` gives one policy, full weights or one adapter; `load_base` gives many adapters over one copy of a base.
Heavy libraries are imported when a policy is made, not before. Leaves out: who plays which role (`mas_lab.team`).
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mas_lab.policy import Policy, PolicyError

if TYPE_CHECKING:
    from mas_lab.backends.torch.base import Given

BACKENDS = ("torch", "unsloth", "vllm", "tinker")


def load_policy(name: str | Path, backend="torch", lora: int | None = None, lr: float | None = None, template=None,
                seed=0, **options) -> Policy:  # fmt: skip
    """A policy from a pocket model's family name, a directory in Hugging Face format, or a hub id.

    `lora`: rank of one adapter to train instead of the full weights. `lr` defaults to what the folder's
    `provenance.json` says, which is what makes it a pocket model, shipped or your own (`lab.make_pocket`): 1e-3, and
    5e-3 with LoRA; to 1e-6, and 2e-5 with LoRA, for any other model; what `policy.save` wrote goes on at the rate that
    it had. `template`: keyword arguments for the chat template, such as `{"enable_thinking": False}`. `options`: see
    `mas_lab.backends.torch.model.Options`, for vLLM `mas_lab.backends.vllm.model.VllmOptions`, and for weights behind a
    Tinker server `mas_lab.backends.tinker.base.TinkerOptions`. The first policy of
    a process on a CPU settles how many threads torch uses: as many as MAS_LAB_THREADS says or a probe finds, unless
    `set_threads` was called before.
    """
    if lora is not None:
        return load_base(name, backend, 1, lora, lr, template, seed, **options).adapter(Path(name).name)
    if backend == "tinker":
        raise PolicyError("backend 'tinker' trains adapters alone; give lora=, their rank")
    model = _model_of(backend)
    from mas_lab.backends.torch import base as torch_base

    return torch_base.load_full(model, name, lr=lr, template=template, seed=seed, **options)


def load_base(name: str | Path, backend="torch", adapters=1, rank=16, lr: float | None = None, template=None, seed=0,
              **options):  # fmt: skip
    """One copy of a base whose `.adapter(agent)` gives each agent an adapter and an optimizer of its own.

    One engine serves them all in one mixed batch. `adapters`: how many there will be; more is an error.
    """
    if backend == "tinker":
        from mas_lab.backends.tinker import making as tinker_making

        return tinker_making.load_base(name, adapters, rank, lr, template, seed, **options)
    model = _model_of(backend)
    from mas_lab.backends.torch import base as torch_base

    return torch_base.load_base(model, name, adapters, rank, lr=lr, template=template, seed=seed, **options)


def restore_policy(directory: str | Path, base: str | Sequence[str] = ()) -> Policy:
    """The policy that `policy.save(directory)` wrote, optimizer included, from the directory alone; for an adapter of a
    model of the hub, with that one's id as `base`."""
    return restore_policies({"policy": directory}, base)["policy"]


def restore_policies(directories: dict[str, str | Path], base: str | Sequence[str] = ()) -> dict[str, Policy]:
    """Several saved policies by name; adapters that shared a base share it again.

    `base`: hub ids that may be loaded. Raises PolicyError where a saved policy names another one.
    """
    kinds = {name: _backend_in(directory) for name, directory in directories.items()}
    if "unsloth" in kinds.values():
        _model_of("unsloth")  # before transformers, which the next line imports
    from mas_lab.backends.torch import base as torch_base

    here = {name: directory for name, directory in directories.items() if kinds[name] != "tinker"}
    found = torch_base.restore(here, _model_of, (base,) if isinstance(base, str) else base)
    if len(here) < len(directories):
        from mas_lab.backends.tinker import making as tinker_making

        found |= tinker_making.restore({name: one for name, one in directories.items() if name not in here})
    return {name: found[name] for name in directories}


def open_given(given: "dict[str, Given]", backend: str = "torch", **options) -> dict[str, Policy]:
    """Policies from weights that were handed out (`mas_lab.backends.torch.base.Given`), by their names."""
    if backend == "tinker":
        raise PolicyError("backend 'tinker' takes no weights from here; load the team with backend='torch' or 'vllm'")
    model = _model_of(backend)
    from mas_lab.backends.torch import base as torch_base

    return torch_base.open_given(model, given, options)


def _backend_in(directory: str | Path) -> str | None:
    """None where it cannot be told; reading the whole record then says why."""
    try:
        return json.loads((Path(directory) / "policy.json").read_text(encoding="utf-8"))["backend"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _model_of(backend: str):
    """The class of the back end's models: how weights are read, adapters added and tokens sampled."""
    if backend == "torch":
        from mas_lab.backends.torch.model import TorchModel

        return TorchModel
    if backend == "unsloth":
        from mas_lab.backends.unsloth.importing import import_unsloth

        import_unsloth()  # before transformers, which the next line imports
        from mas_lab.backends.unsloth.model import UnslothModel

        return UnslothModel
    if backend == "vllm":
        from mas_lab.backends.vllm.model import VllmModel

        return VllmModel
    raise PolicyError(f"unknown back end {backend!r}; known: {', '.join(BACKENDS)}")
