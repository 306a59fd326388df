"""Constructors of policies for each back end.

`load_policy` returns one policy, with full weights or one adapter. `load_base` makes many adapters over one copy of a
base. Heavy libraries are imported when a policy is made, not before. Leaves out: the roles of the policies
(`mas_lab.team`).
"""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from mas_lab.arguments import check_arguments
from mas_lab.backends.torch.source import Source, options_of, read_record
from mas_lab.display.progress import is_watched
from mas_lab.policy import Policy, PolicyError

MODELS = {"torch": "TorchModel", "unsloth": "UnslothModel", "vllm": "VllmModel"}
"""The class of each back end that trains in torch."""
TINKER = "mas_lab.contrib.tinker.policy"
"""The module of the back end whose weights are behind a server."""


def load_policy(name: str | Path, backend: str = "torch", lora: int | None = None, lr: float | None = None,
                template: Mapping[str, Any] | None = None, seed: int = 0, plain: bool = False,
                start: str | Path | None = None, **options) -> Policy:  # fmt: skip
    """Load one policy, with full weights or one adapter.

    Args:
        name: Family name of a pocket model, a directory in Hugging Face format, a name in `data/models.toml` such as
            "smollm2-135m", a GGUF file, or a hub id.
        backend: "torch", "unsloth", "vllm" or "tinker".
        lora: Rank of one adapter that is trained in place of the full weights. `None`: the full weights are trained,
            which "tinker" cannot do.
        lr: Learning rate. `None`: the rate in the folder's `provenance.json` or in `data/models.toml`, or the rate at
            which `policy.save` left off, else 1e-6 (2e-5 with LoRA).
        template: Keyword arguments of the chat template, such as `{"enable_thinking": False}`. `None`: no arguments.
        seed: Seed of the adapter's initial weights; it has no effect on full weights.
        plain: Sample and train by the readable padded code in `mas_lab.backends.torch`, in place of the fast code in
            its room `fast`: for a debugger, and for a doubt. The numbers are the same up to float noise.
        start: For an adapter, the weights that it starts from, see `load_base`.
        **options: Options of the back end: `mas_lab.backends.torch.model.Options`, for vLLM
            `mas_lab.backends.vllm.model.VllmOptions`, for Unsloth `mas_lab.backends.unsloth.model.UnslothOptions`, and
            for weights behind a Tinker server `mas_lab.contrib.tinker.TinkerOptions`.

    Returns:
        The policy.

    Raises:
        PolicyError: The model, back end or an option is unknown, or the back end cannot do this here. A file of the
            model is missing or broken, or the model needs code of its own; the message names the file.

    A GGUF file is unpacked at its first use, once on a machine (docs/real_models.md). Nothing is downloaded for it.
    `provenance.json` makes a folder a pocket model, shipped or your own (`lab.make_pocket`). Its rates are usually
    1e-3, and 5e-3 with LoRA. The first policy on a CPU sets torch's number of threads for the process: MAS_LAB_THREADS,
    or else the number that a probe finds. It leaves the number alone where OMP_NUM_THREADS, MKL_NUM_THREADS or
    WORLD_SIZE is set. A call of `set_threads` before that has priority.
    """
    check_arguments(load_policy, locals(), lora=1, lr=0)
    options |= {"plain": True} if plain else {}
    if lora is not None:
        return load_base(name, backend, 1, lora, lr, template, seed, start, **options).adapter(Path(name).name)
    if start is not None:
        raise PolicyError(f"start={str(start)!r} holds weights of an adapter; give lora=, its rank")
    if backend == "tinker":
        raise PolicyError("backend 'tinker' trains adapters alone; give lora=, their rank")
    make = _model_class(backend)
    from mas_lab.backends.torch.policy import TorchPolicy

    source = Source.find(name)
    lr = source.default_lr(lora=False) if lr is None else lr
    return TorchPolicy(make(source, options_of(make.Options, options), template), lr)


def load_base(name: str | Path, backend: str = "torch", adapters: int = 1, rank: int = 16, lr: float | None = None,
              template: Mapping[str, Any] | None = None, seed: int = 0, start: str | Path | None = None,
              **options):  # fmt: skip
    """Load one copy of a base whose `.adapter(agent)` gives each agent an adapter and an optimizer of its own.

    Args:
        name: Family name of a pocket model, a directory, a listed name, a GGUF file, or a hub id, as in `load_policy`.
        backend: "torch", "unsloth", "vllm" or "tinker".
        adapters: Number of adapters that will be made; asking for more is an error.
        rank: Largest rank of the adapters.
        lr: Learning rate. `None`: the default of `load_policy` with LoRA.
        template: Keyword arguments of the chat template. `None`: no arguments.
        seed: Seed of the adapters' initial weights.
        start: Folder of an adapter of this base that `policy.save` wrote. Each new adapter starts from its weights, and
            they are the reference of the KL term. Or the name of a warm start that the kit ships, such as "words",
            which plays the tasks with `size="words"`. `None`: an adapter starts as the base.
        **options: Options of the back end, see `load_policy`.

    Returns:
        The base. One engine serves all its adapters in one mixed batch.

    Raises:
        PolicyError: The model, back end or an option is unknown, or the back end cannot do this here. `start` is no
            adapter, or one of another base or rank.
    """
    check_arguments(load_base, locals(), adapters=1, rank=1, lr=0)
    source = Source.find(name)
    lr = source.default_lr(lora=True) if lr is None else lr
    if backend == "tinker":
        if start is not None:
            raise PolicyError("backend 'tinker' takes no weights from here; leave out start=")
        return import_module(TINKER).TinkerBase(source, adapters, rank, lr, seed, template, **options)
    make = _model_class(backend)
    from mas_lab.backends.torch.base import TorchBase

    model = make(source, options_of(make.Options, options), template, lora=(adapters, rank))
    return TorchBase(model, adapters, rank, lr, seed, start)


def restore_policies(directories: dict[str, str | Path], base: str | Sequence[str] = ()) -> dict[str, Policy]:
    """Return the policies that `policy.save(directory)` wrote, by name and with their optimizers.

    Adapters that shared a base share it again. `base`: hub ids that may be loaded. Raises PolicyError if a saved policy
    names another one.
    """
    records = {name: read_record(Path(directory)) for name, directory in directories.items()}
    if any(record["backend"] == "unsloth" for record in records.values()):
        _model_class("unsloth")  # before transformers, which the others import
    bases: dict[str, list[Any]] = {}
    policies = {}
    for name, record in records.items():
        if record["backend"] == "tinker":
            policies[name] = import_module(TINKER).restore(record, bases)
        else:
            make = _model_class(record["backend"])
            from mas_lab.backends.torch.base import restore

            allowed = (base,) if isinstance(base, str) else base
            policies[name] = restore(make, record, directories[name], bases, allowed)
        policies[name].name = record["name"]
        policies[name].load(Path(directories[name]))
    return policies


def _model_class(backend: str):
    """Return the class of the back end's models: it reads weights, adds adapters and samples tokens."""
    if backend not in MODELS:
        raise PolicyError(f"unknown back end {backend!r}; known: {', '.join(MODELS)}, tinker")
    if "torch" not in sys.modules and is_watched():
        print("mas_lab: loading torch, once (about 10 s)", file=sys.stderr)
    if backend == "unsloth":
        from mas_lab.backends.unsloth.importing import import_unsloth

        import_unsloth()  # before transformers, which its room imports
    return getattr(import_module(f"mas_lab.backends.{backend}.model"), MODELS[backend])
