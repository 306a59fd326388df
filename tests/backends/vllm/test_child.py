"""A vLLM server that is started here: whom it answers, what it refuses, and that nothing of it outlives its starter.

The starter is a process of its own, killed in the last test; the file takes as long as one start.
"""

import json
import os
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

from small import AGENTS, Relay

import mas_lab as lab
from mas_lab.backends.vllm.engine import EngineError
from mas_lab.backends.vllm.server import _end

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


def test_no_route_answers_without_the_key_and_none_listens_beyond_this_machine(server):
    log = Path(server.log).read_text(encoding="utf-8")
    routes = dict(re.findall(r"Route: (\S+), Methods: (\w+)", log)) | {"/metrics": "GET", "/nowhere": "GET"}
    assert {"/health", "/collective_rpc", "/update_weights", "/sleep", "/v1/completions"} <= set(routes)
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        for path, method in routes.items():
            for wrong in ({}, {"Authorization": "Bearer x"}, {"Authorization": server.key}, {"X-Key": server.key}):
                found = client.request(method, path, headers=wrong)
                assert found.status_code == 401, (method, path, wrong)
        assert client.get("/health", headers={"Authorization": f"Bearer {server.key}"}).is_success
    # Its processes listen on the loopback address alone and show no key.
    assert len(processes(server)) > 1 and server.key not in Path(server.log).read_text(encoding="utf-8")
    for process in processes(server):
        assert server.key not in Path(f"/proc/{process.pid}/cmdline").read_text()
    found = [one for process in processes(server) for one in process.net_connections()]
    assert {one.laddr.ip for one in found if one.status == psutil.CONN_LISTEN} == {"127.0.0.1"}


def test_running_servers_are_used_by_their_addresses(model, server, monkeypatch):
    where = (server.url, server.url)
    policy = lab.load_policy(model, backend="vllm", lr=1e-2, where=where, max_seqs=8)
    with pytest.raises(EngineError, match=rf"{server.url} refused .*401.*set VLLM_API_KEY"):
        policy.sync_weights()
    monkeypatch.setenv("VLLM_API_KEY", server.key)
    team = lab.Team.shared(policy, AGENTS)
    for report in lab.train(Relay(), team, "at_grpo", 2, seed=2, tasks=2, check=False):
        assert report.stats["mismatch"].max() < 1e-4
    assert policy.engine.syncs.total() == 2


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
