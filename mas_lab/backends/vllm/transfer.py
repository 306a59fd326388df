"""Full weights from the trainer's GPU to a server's, by vLLM's own weight transfer.

Not verified: it has not run on a GPU yet. Leaves out: FSDP shards (vLLM's `ModuleSource` gathers them on every rank).
"""

from urllib.parse import urlparse


def sender(kind: str, url: str, workers: int, net):
    """What sends all parameters of `net` to the server at `url` when its `send_weights()` is called.

    "nccl": the trainer and the server's `workers` GPUs form a group of their own; "ipc": both are on one GPU, and the
    server reads the trainer's memory.
    """
    from vllm.distributed.weight_transfer.base import ModuleSource
    from vllm.distributed.weight_transfer.clients import HTTPVLLMWeightSyncClient
    from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

    return WeightTransferTrainerFactory.trainer_init(
        _group(url, workers) if kind == "nccl" else _shared(),
        client=HTTPVLLMWeightSyncClient(url),
        source=ModuleSource(net),
    )


def _group(url: str, workers: int):
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo
    from vllm.utils.network_utils import get_ip, get_open_port

    local = urlparse(url).hostname in ("127.0.0.1", "localhost", "::1")
    return NCCLTrainerInitInfo("127.0.0.1" if local else get_ip(), get_open_port(), 1 + workers, rank=0)


def _shared():
    from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo

    return IPCTrainerInitInfo(rank=0)
