"""vLLM behind HTTP, on loopback: the same rollout and update as in this process, and what a server's end leaves behind.

One server is started, killed in the middle of a rollout, and started again; the file takes as long as two starts.
"""

import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass

import pytest
import torch

pytest.importorskip("vllm")

from small import AGENTS, Relay, make_model

import mas_lab as lab
from mas_lab.backends.vllm.engine import EngineError
from mas_lab.policy import PolicyError, Request

pytestmark = pytest.mark.engines
torch.set_num_threads(1)
RECIPE = lab.RECIPES["dr_mas"].replace(plan=lab.episodes(4))
SETTINGS = {"seed": 2, "tasks": 2, "check": False}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("models") / "a", 0, head_dim=32)


def adapters(model, where):
    base = lab.load_base(model, backend="vllm", adapters=2, rank=2, lr=1e-2, where=where, max_seqs=16)
    return lab.Team.per_agent(base.adapter, AGENTS)


@pytest.fixture(scope="module")
def team(model):
    """Two adapters, whose server starts at the first request and is alone in its session of processes."""
    team = adapters(model, "server")
    yield team
    child = team["asker"].engine._child
    os.killpg(child.process.pid, signal.SIGKILL)
    assert child.process.wait(10) is not None


@pytest.fixture(scope="module")
def url(team):
    team["asker"].publish()
    return team["asker"].engine._child.url


def test_a_server_draws_and_learns_as_the_engine_in_this_process(model, team):
    here = adapters(model, "process")
    for found, expected in zip(
        lab.train(Relay(), team, RECIPE, 3, **SETTINGS), lab.train(Relay(), here, RECIPE, 3, **SETTINGS), strict=True
    ):
        assert found.stats["mismatch"].max() < 1e-4
        assert found.turns["completion_ids"].tolist() == expected.turns["completion_ids"].tolist()
        assert found.stats["policy_norm"].tolist() == pytest.approx(expected.stats["policy_norm"].tolist(), rel=1e-3)
    assert team["asker"].engine.syncs == here["asker"].engine.syncs
    assert max(team["asker"].engine.gaps.values()) < 1e-4


@dataclass(frozen=True)
class Deadly(Relay):
    """A relay in which the server is killed at the third step of the environment after `armed` is set."""

    armed = threading.Event()
    left = [3]
    victim = [0]

    def step(self, state, actions):
        if self.armed.is_set():
            self.left[0] -= 1
            if self.left[0] == 0:
                os.killpg(self.victim[0], signal.SIGKILL)
                self.armed.clear()
        return super().step(state, actions)


def test_a_server_killed_in_a_rollout_is_named_and_the_run_goes_on(team, model, tmp_path):
    run, env = tmp_path / "run", Deadly()
    engine = team["asker"].engine
    training = lab.train(env, team, RECIPE, 3, run=run, save_every=10, **SETTINGS)
    first = next(training)
    before = {name: policy.version for name, policy in team.policies.items()}
    env.victim[0] = engine._child.process.pid
    env.armed.set()
    reason = (
        r"rollout: task 'train-\d+', agent '(asker|doer)', turn \d: policy '(asker|doer)': the vLLM server at "
        r"http://127\.0\.0\.1:\d+ does not answer .*see .*server\.log; resume the run, and a new one is started"
    )
    with pytest.raises(lab.RolloutError, match=reason):
        next(training)
    assert {name: policy.version for name, policy in team.policies.items()} == before  # nothing was learned from half
    kept = lab.load_run(run)
    assert kept.steps == 1 and kept.checkpoint().step == 1
    assert kept.turns["completion"].tolist() == first.turns["completion"].tolist()
    steps = [report.step for report in lab.train(env, team, RECIPE, 3, run=run, save_every=10, **SETTINGS)]
    assert steps == [1, 2] and lab.load_run(run).steps == 3
    assert max(engine.gaps.values()) < 1e-4 and engine._child.process.pid != env.victim[0]


def test_running_servers_are_used_by_their_addresses(model, url):
    """All weights of a model this time; the server reads them from a file, under the adapters it also serves, which
    are not to be used after this test."""
    policy = lab.load_policy(model, backend="vllm", lr=1e-2, where=(url, url), max_seqs=8)
    team = lab.Team.shared(policy, AGENTS)
    for report in lab.train(Relay(), team, "at_grpo", 2, **SETTINGS):
        assert report.stats["mismatch"].max() < 1e-4
    assert policy.engine.syncs.total() == 2 and policy.engine.gaps[policy.name] < 1e-4
    policy.engine._push = lambda policy: None
    with torch.no_grad():
        for parameter in policy.parameters.values():
            parameter.add_(0.1)
    policy.version += 1
    with pytest.raises(PolicyError, match="stale weights"):
        policy.publish()


def test_addresses_where_nothing_answers_are_named(model):
    policy = lab.load_policy(model, backend="vllm", where="http://127.0.0.1:9", patience=5)
    with pytest.raises(EngineError, match=r"server at http://127\.0\.0\.1:9 does not answer .* start it again"):
        policy.sample([Request((4, 9), 2, 1.0, 0)])


def test_a_server_that_cannot_start_shows_its_log(model, tmp_path):
    policy = lab.load_policy(model, backend="vllm", where="server")
    (model / "config.json").rename(tmp_path / "config.json")
    try:
        with pytest.raises(EngineError, match=r"ended with status [^0](.|\n)*config\.json"):
            policy.publish()
    finally:
        (tmp_path / "config.json").rename(model / "config.json")


def test_a_server_ends_with_the_process_that_started_it(tmp_path):
    """Its starter is killed without a chance to say so."""
    waiting = (
        "import threading, time; from mas_lab.backends.vllm import launch as vllm_launch;"
        "threading.Thread(target=vllm_launch._follow, daemon=True).start();"
        "print('follows', flush=True); time.sleep(1200)"
    )
    lines = (
        "import subprocess, sys;"
        f"child = subprocess.Popen([sys.executable, '-c', {waiting!r}], stdin=subprocess.PIPE);"
        "print(child.pid, flush=True); sys.stdin.read()"
    )
    starter = subprocess.Popen([sys.executable, "-c", lines], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    child = int(starter.stdout.readline())
    assert starter.stdout.readline() == "follows\n"
    os.kill(child, 0)  # it lives while its starter does
    starter.kill()
    starter.wait()
    for _ in range(3000):  # at once, unless the machine is busy
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return
        threading.Event().wait(0.1)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the server lived on")
