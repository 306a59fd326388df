"""A vLLM server that is started here: whom it answers, what it refuses, and that nothing of it outlives its starter.

The starter is a process of its own, killed in the last test; the file takes as long as one start.
"""

import base64
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import httpx
import psutil
import pytest
import torch

pytest.importorskip("vllm")

from small import AGENTS, Relay, make_model

import mas_lab as lab
from mas_lab.backends.vllm.child import _end
from mas_lab.backends.vllm.engine import EngineError
from mas_lab.policy import PolicyError

pytestmark = pytest.mark.engines
torch.set_num_threads(1)
STARTER = """
import json, os, sys, time
import mas_lab as lab
policy = lab.load_policy(sys.argv[1], backend="vllm", where="server", max_seqs=8)
policy.sync_weights()
child = policy.engine._child
said = {"url": child.url, "key": child.key, "pid": child.process.pid, "log": str(child.log)}
print("started", json.dumps(said), flush=True)
sys.stdin.readline()
fork = os.fork()
if fork:
    print("forked", fork, flush=True)
time.sleep(1200)
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("models") / "a", 0, head_dim=32)


@pytest.fixture(scope="module")
def server(model):
    """All weights of a model, so that it has endpoints for developers. Its log lists the routes."""
    environment = os.environ | {"VLLM_LOGGING_LEVEL": "INFO", "MAS_LAB_THREADS": "1"}
    starter = subprocess.Popen(
        [sys.executable, "-P", "-c", STARTER, str(model)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    try:
        said = next(line for line in starter.stdout if line.startswith("started"))
        server = SimpleNamespace(**json.loads(said.partition(" ")[2]), starter=starter)
        yield server
        shutil.rmtree(Path(server.log).parent)  # who is killed sweeps nothing
    finally:
        starter.kill()
        starter.wait()


def processes(server):
    root = psutil.Process(server.pid)
    return [root, *root.children(recursive=True)]


def bearing(server):
    return httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {server.key}"}, trust_env=False)


def test_no_route_answers_without_the_key(server):
    log = Path(server.log).read_text(encoding="utf-8")
    routes = dict(re.findall(r"Route: (\S+), Methods: (\w+)", log)) | {"/metrics": "GET", "/nowhere": "GET"}
    assert {"/health", "/collective_rpc", "/update_weights", "/sleep", "/v1/completions"} <= set(routes)
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        for path, method in routes.items():
            for wrong in ({}, {"Authorization": "Bearer x"}, {"Authorization": server.key}, {"X-Key": server.key}):
                found = client.request(method, path, headers=wrong)
                assert found.status_code == 401 and "x-mas-lab-server" not in found.headers, (method, path, wrong)
    with bearing(server) as client:
        assert client.get("/health").is_success
        assert client.get("/health").headers["x-mas-lab-server"] != server.key


def test_the_key_is_in_no_command_line_and_no_log(server):
    found = processes(server)
    assert len(found) > 1
    for process in found:
        assert server.key not in Path(f"/proc/{process.pid}/cmdline").read_text()
    assert server.key not in Path(server.log).read_text(encoding="utf-8")


def test_its_processes_listen_on_the_loopback_address_alone(server):
    listening = {
        found.laddr.ip for process in processes(server) for found in process.net_connections()
        if found.status == psutil.CONN_LISTEN
    }  # fmt: skip
    assert listening == {"127.0.0.1"}


class Payload:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_pickle_is_refused_even_with_the_key(server, tmp_path):
    raw = pickle.dumps(Payload(tmp_path / "ran"))
    text = base64.b64encode(raw).decode()
    weights = {"method": "reload_weights", "kwargs": {"weights_path": str(tmp_path)}}
    bodies = [
        {"method": text},
        {"method": "reload_weights", "args": [text]},
        {**weights, "args": [text]},
        {"method": "update_weights", "kwargs": {"update_info": {"ipc_handles_pickled": text}}},
        {"method": "reload_weights", "kwargs": {"weights_path": [text]}},
        [weights],
        None,
    ]
    with bearing(server) as client:
        for body in bodies:
            assert client.post("/collective_rpc", json=body).status_code == 403, body
        assert client.post("/collective_rpc", content=raw).status_code == 403
        unused = client.post("/update_weights", json={"update_info": {"ipc_handles_pickled": text}})
        assert unused.status_code == 404 and "this server has no /update_weights" in unused.text
    assert not (tmp_path / "ran").exists()


def test_running_servers_are_used_by_their_addresses(model, server, monkeypatch):
    where = (server.url, server.url)
    policy = lab.load_policy(model, backend="vllm", lr=1e-2, where=where, max_seqs=8)
    with pytest.raises(EngineError, match=rf"{server.url} wants a key: set VLLM_API_KEY"):
        policy.sync_weights()
    monkeypatch.setenv("VLLM_API_KEY", server.key)
    team = lab.Team.shared(policy, AGENTS)
    for report in lab.train(Relay(), team, "at_grpo", 2, seed=2, tasks=2, check=False):
        assert report.stats["mismatch"].max() < 1e-4
    assert policy.engine.syncs.total() == 2 and policy.engine.gaps[policy.name] < 1e-4
    policy.engine._push = lambda policy: None
    with torch.no_grad():
        for parameter in policy.parameters.values():
            parameter.add_(0.1)
    policy.version += 1
    with pytest.raises(PolicyError, match="stale weights"):
        policy.sync_weights()


def test_nothing_outlives_the_process_that_started_it(server):
    """It is killed without a chance to say so, and what it forked before, which holds all that it held, lives on."""
    found = processes(server)
    server.starter.stdin.write("fork\n")
    server.starter.stdin.flush()
    fork = int(next(line for line in server.starter.stdout if line.startswith("forked")).split()[1])
    try:
        server.starter.kill()
        server.starter.wait()
        assert not psutil.wait_procs(found, 60)[1]  # seconds, unless the machine is busy
        assert psutil.Process(fork).is_running()
    finally:
        os.kill(fork, signal.SIGKILL)


def test_a_fork_of_the_starter_ends_no_server():
    server = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    here = os.getpid()
    if not (fork := os.fork()):
        _end(server, here)
        os._exit(0)
    os.waitpid(fork, 0)
    assert server.poll() is None
    _end(server, here)
    assert server.poll() == -signal.SIGTERM
