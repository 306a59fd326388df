"""SkyRL's real server on this CPU, for the tests of this folder: in an environment of its own, which `make test-tinker`
makes and names in MAS_LAB_TINKER_SERVER."""

import json
import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

START = 240
"""Seconds until a server answers, at most."""
BACKEND = {"max_lora_adapters": 12, "max_lora_rank": 4, "loss_chunk_size": 0, "train_micro_batch_size": 8,
           "sample_max_num_sequences": 8}  # fmt: skip
"""Batches of one shape, which JAX compiles once."""


class Server:
    """One in a process group of its own; `stop` kills it, `start` has it go on with what it has saved."""

    def __init__(self, model: Path, folder: Path):
        self.model, self.folder, self.process = model, folder, None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self) -> "Server":
        venv = os.environ["MAS_LAB_TINKER_SERVER"]
        variables = {"VIRTUAL_ENV": venv, "UV_OFFLINE": "1", "JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1",
                     "OMP_NUM_THREADS": "1", "JAX_COMPILATION_CACHE_DIR": str(self.folder / "compiled"),
                     "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}  # fmt: skip
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
        command = ["uv", "run", "--no-project", "--active", "python", "-m", "skyrl.tinker.api", "--base-model",
                   str(self.model), "--backend", "jax", "--backend-config", json.dumps(BACKEND), "--host", "127.0.0.1",
                   "--port", str(self.port), "--checkpoints-base", str(self.folder / "saved"), "--database-url",
                   f"sqlite:///{self.folder / 'server.db'}"]  # fmt: skip
        with (self.folder / "server.log").open("a") as log:
            self.process = subprocess.Popen(command, env=environment, cwd=self.folder, stdout=log, stderr=log,
                                            start_new_session=True)  # fmt: skip
        until = time.monotonic() + START
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > until:
                self.stop()
                pytest.fail(f"the server did not start:\n{(self.folder / 'server.log').read_text()[-3000:]}")
            time.sleep(0.5)
        return self

    def answers(self) -> bool:
        with suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/api/v1/healthz", timeout=20).is_success
        return False

    def stop(self) -> None:
        with suppress(ProcessLookupError):  # one that a test has killed already
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)


@pytest.fixture(scope="session")
def server(models, tmp_path_factory):
    if "MAS_LAB_TINKER_SERVER" not in os.environ:
        pytest.skip("make test-tinker makes the server's environment")
    started = Server(models / "a", tmp_path_factory.mktemp("tinker")).start()
    yield started
    started.stop()
