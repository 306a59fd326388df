"""Full weights from the trainer's GPU to a server's, by vLLM's own weight transfer.

Both of its ways unpickle data. "ipc" unpickles in the server what comes over HTTP, protected by the key alone. "nccl"
unpickles in trainer and server what is in the store where the group meets. The port of this store requires no key; for
a server on this machine it is bound to the loopback address. Do not use it on a machine whose other users are not
trusted. It has not been run on a GPU yet. Leaves out: FSDP shards (vLLM's `ModuleSource` gathers them on every rank).
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlparse

ROUTES = (
    "/get_world_size", "/init_weight_transfer_engine", "/start_weight_update", "/update_weights",
    "/finish_weight_update", "/shutdown_weight_transfer_engine",
)  # fmt: skip


def sender(kind: str, url: str, workers: int, net, post: Callable[[str, dict[str, Any] | None], Any]):
    """Return an object whose `send_weights()` sends all parameters of `net` to the server at `url`.

    "nccl": the trainer and the server's `workers` GPUs form a group of their own. "ipc": both are on one GPU, and the
    server reads the trainer's memory. `post(path, body)` sends a request to the server, with its key.
    """
    from vllm.distributed.weight_transfer.base import ModuleSource
    from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

    return WeightTransferTrainerFactory.trainer_init(
        _group(url, workers) if kind == "nccl" else _shared(),
        client=asking(url, post),
        source=ModuleSource(net),
    )


def asking(url: str, post: Callable[[str, dict[str, Any] | None], Any]):
    """Return vLLM's client of these routes; its own requests would have no key."""
    from vllm.distributed.weight_transfer.clients import HTTPVLLMWeightSyncClient

    class Client(HTTPVLLMWeightSyncClient):
        def _post(self, path: str, json: dict[str, Any] | None = None) -> None:
            post(f"/{path}", json)

    return Client(url)


def _group(url: str, workers: int):
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo
    from vllm.utils.network_utils import get_ip, get_open_port

    local = urlparse(url).hostname in ("127.0.0.1", "localhost", "::1")
    return NCCLTrainerInitInfo("127.0.0.1" if local else get_ip(), get_open_port(), 1 + workers, rank=0)


def _shared():
    from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo

    return IPCTrainerInitInfo(rank=0)
