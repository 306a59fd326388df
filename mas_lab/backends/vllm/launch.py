"""How vLLM is started: its arguments, what it must leave alone in this process, and what its CPU build needs.

`python -m mas_lab.backends.vllm.launch --model DIR ...` is vLLM's OpenAI-compatible server, with its own flags; full
weights can be exchanged in it without a GPU too. Leaves out: talking to it (`server`).
"""

import os
import random
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

QUIET = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
FOLLOWS = "MAS_LAB_VLLM_FOLLOWS"
"""In the environment of a server that ends with the process at the other end of its standard input."""
CPU_CACHE = 2**30
"""Bytes of key-value cache on a CPU."""


def prepare() -> None:
    """To be called before anything of vLLM is imported."""
    for name, value in (QUIET | {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}).items():
        os.environ.setdefault(name, value)
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        # Small helpers would be compiled by a C++ compiler, for half a minute.
        type(current_platform).simple_compile_backend = "eager"
        import vllm._custom_ops as ops

        # Packed copies of the weights would go on being used after new weights are loaded.
        ops._supports_onednn = False


@contextmanager
def undisturbed() -> Iterator[None]:
    """Random states, threads and the means to set them are afterwards what they were before."""
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
    """vLLM's engine arguments for a `VllmModel` whose base is in `directory`."""
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
        "logprobs_mode": "processed_logprobs",  # of the distribution that is drawn from, temperature included
        "generation_config": "vllm",  # nothing but what a request asks for
        "seed": 0,
    }
    if model.lora is not None:
        adapters, rank = model.lora
        # The adapters' layers and no others: with its head wrapped too, the CPU build cannot score a prompt. By their
        # last names: PEFT lists them in full where they are few, and vLLM would leave out those that it fuses.
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
    """The same on a command line."""
    line: list[str] = []
    for name, value in chosen.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            line.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            line += [f"--{flag}", *map(str, value if isinstance(value, list) else [value])]
    return line


def _follow() -> None:
    """Ends this process with the one that started it, however that ended: its end of the pipe is closed then."""
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ in ("__main__", "__mp_main__"):  # the server and, where its workers are spawned, each of them
    prepare()

if __name__ == "__main__":
    import runpy

    if FOLLOWS in os.environ:
        threading.Thread(target=_follow, daemon=True).start()
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
