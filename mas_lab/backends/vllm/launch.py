"""The start of vLLM: its arguments, and the global state of this process that must not change.

Leaves out: the preparation of the process in which it runs (`serve`).
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

CPU_CACHE = 2**30
"""Bytes of key-value cache on a CPU."""


@contextmanager
def undisturbed() -> Iterator[None]:
    """Restore random states, the number of threads and `torch.set_num_threads` after the `with` block."""
    threads, set_threads = torch.get_num_threads(), torch.set_num_threads
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_num_threads = set_threads  # vLLM puts a warning in its place
        torch.set_num_threads(threads)


def arguments(model, directory: str) -> dict[str, Any]:
    """Return vLLM's engine arguments for a `VllmModel` whose base is in `directory`."""
    from typing import get_args

    from vllm.config.lora import MaxLoRARanks

    from mas_lab.backends.vllm.weights import lora_rank

    options = model.options
    chosen: dict[str, Any] = {
        "model": directory,
        "dtype": str(model.dtype).removeprefix("torch."),
        "max_model_len": model.context,
        "max_num_seqs": options.max_seqs,
        "tensor_parallel_size": options.tensor_parallel,
        "enable_prefix_caching": options.prefix_caching,
        "logprobs_mode": "processed_logprobs",  # of the sampling distribution, temperature included
        "generation_config": "vllm",  # only the settings of the request
        "seed": 0,
    }
    if model.lora is not None:
        adapters, rank = model.lora
        # Only the adapters' layers: if the head is wrapped too, the CPU build cannot score a prompt. Only last names:
        # PEFT lists few layers by full names, and vLLM would then leave out the layers that it fuses.
        configs = model.peft.peft_config.values()
        layers = {layer.rpartition(".")[2] for config in configs for layer in config.target_modules}
        chosen |= {
            "enable_lora": True,
            "max_loras": adapters,
            "max_lora_rank": lora_rank(rank, get_args(MaxLoRARanks)),
            "lora_target_modules": sorted(layers),
        }
    if model.device.type == "cuda":
        return chosen | {"gpu_memory_utilization": options.memory, "enable_sleep_mode": options.sleep}
    return chosen | {"kv_cache_memory_bytes": CPU_CACHE, "enforce_eager": True}


def flags(chosen: dict[str, Any]) -> list[str]:
    """Return the same arguments for a command line."""
    line: list[str] = []
    for name, value in chosen.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            line.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            line += [f"--{flag}", *map(str, value if isinstance(value, list) else [value])]
    return line
