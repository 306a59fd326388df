"""A vLLM server that is started here, on the loopback address, and ends with this process.

Leaves out: talking to it (`server`).
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import weakref
from pathlib import Path

import httpx
import torch

from mas_lab.backends.vllm import launch as vllm_launch
from mas_lab.backends.vllm.engine import EngineError
from mas_lab.backends.vllm.launch import FOLLOWS, arguments, flags, prepare
from mas_lab.backends.vllm.weights import widened


class Child:
    """The server of a `VllmModel`. `url` is where it answers, `log` what it printed, `heads` how its heads are wide."""

    def __init__(self, model, folder: Path):
        prepare()
        base, self.heads = widened(model, folder)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url, self.log = f"http://127.0.0.1:{port}", folder / "server.log"
        # By its path, which spares it the import of the package; -P: beside it lies a module that is called vllm too.
        line = [sys.executable, "-P", vllm_launch.__file__, "--host", "127.0.0.1", "--port", str(port)]
        line += ["--disable-uvicorn-access-log"]
        if model.options.transfer in ("nccl", "ipc"):
            line += ["--weight-transfer-config", json.dumps({"backend": model.options.transfer})]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*line, *flags(arguments(model, base))],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=_environment(model),
                start_new_session=True,
            )
        weakref.finalize(self, _end, self.process)

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def wait(self, seconds: float) -> None:
        """Until it answers. Raises EngineError with the end of its log where it does not."""
        end = time.monotonic() + seconds
        while self.is_alive() and time.monotonic() < end:
            try:
                if httpx.get(f"{self.url}/health", timeout=5).is_success:
                    return
            except httpx.HTTPError:
                time.sleep(0.25)
        why = f"ended with status {self.process.poll()}" if not self.is_alive() else f"is not up after {seconds:.0f} s"
        tail = self.log.read_text(errors="replace")[-2000:]
        _end(self.process)
        raise EngineError(f"the vLLM server that was started here {why}; the end of its log:\n{tail}")


def _environment(model) -> dict[str, str]:
    changed = {
        FOLLOWS: "1",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
        "VLLM_SERVER_DEV_MODE": "1",
        "OMP_NUM_THREADS": str(torch.get_num_threads()),
    }
    if model.options.gpus is not None:
        changed["CUDA_VISIBLE_DEVICES"] = model.options.gpus
    if model.options.transfer == "ipc":
        changed["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"  # vLLM sends the handles of GPU memory pickled
    return {name: value for name, value in os.environ.items() if name != "VLLM_ENABLE_V1_MULTIPROCESSING"} | changed


def _end(process: subprocess.Popen) -> None:
    """The server and its workers, which are a session of their own."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
            process.wait(10)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
    process.stdin.close()
