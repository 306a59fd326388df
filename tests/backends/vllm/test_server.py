"""vLLM behind HTTP, on loopback: the same rollout and update as in this process, and what a server's end leaves behind.

One server is started and killed in the middle of a rollout; what wants a second start is left out of CI (`full`).
"""

import os
import signal
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

pytest.importorskip("vllm")

from counted import DRAWN, Counted, waits
from small import AGENTS, Relay

import mas_lab as lab
from mas_lab.backends.vllm.engine import EngineError
from mas_lab.policy import Request

pytestmark = pytest.mark.engines
torch.set_num_threads(1)
RECIPE = lab.RECIPES["dr_mas"].replace(plan=lab.episodes(4))
SETTINGS = {"seed": 2, "tasks": 2, "check": False}


def adapters(model, where):
    more = {"where": where, "max_seqs": 16, "reproducible": True}
    base = lab.load_base(model, backend="vllm", adapters=2, rank=2, lr=1e-2, **more)
    return lab.Team.per_agent(base.adapter, AGENTS)


@pytest.fixture(scope="module")
def team(model):
    """Two adapters, whose server starts at the first request and is alone in its session of processes."""
    team = adapters(model, "server")
    yield team
    child = team["asker"].engine._child
    with suppress(ProcessLookupError):
        os.killpg(child.process.pid, signal.SIGKILL)
    assert child.process.wait(10) is not None


def test_a_server_draws_and_learns_as_the_engine_in_this_process(model, team):
    here = adapters(model, "process")
    for found, expected in zip(
        lab.train(Relay(), team, RECIPE, 3, **SETTINGS), lab.train(Relay(), here, RECIPE, 3, **SETTINGS), strict=True
    ):
        assert found.stats["mismatch"].max() < 1e-4
        assert found.turns["completion_ids"].tolist() == expected.turns["completion_ids"].tolist()
        assert found.stats["policy_norm"].tolist() == pytest.approx(expected.stats["policy_norm"].tolist(), rel=1e-3)
    assert team["asker"].engine.syncs == here["asker"].engine.syncs


@pytest.mark.parametrize("staleness", [1, 2])
def test_it_samples_while_its_adapters_learn_as_the_engine_in_this_process_does_in_turns(
    model, team, tmp_path, staleness
):
    here = adapters(model, "process")
    for agent in AGENTS:
        team[agent].save(tmp_path / agent)
        team[agent].load_weights(tmp_path / agent)
        here[agent].load_weights(tmp_path / agent)
    DRAWN.clear()
    settings = SETTINGS | {"staleness": staleness, "score_every": 2, "score_tasks": 2, "score_episodes": 2}
    ahead = lab.train(Counted(), team, RECIPE, 3, run=tmp_path / "run", watch=waits(2)[0], **settings)
    reports = [next(ahead), next(ahead)]
    ahead.close()
    reports += lab.train(Counted(), team, RECIPE, 4, run=tmp_path / "run", **settings)
    assert {"rollout_0"} == {*DRAWN} - {"MainThread"} and not team["asker"].engine._running
    for one, other in zip(reports, lab.train(Relay(), here, RECIPE, 4, **settings), strict=True):
        assert one.stats["age"].tolist() == [min(one.step, staleness)] * 2
        assert one.turns["policy_version"].tolist() == other.turns["policy_version"].tolist()
        assert one.turns["completion_ids"].tolist() == other.turns["completion_ids"].tolist()
        assert other.stats["policy_norm"].tolist() == pytest.approx(one.stats["policy_norm"].tolist(), rel=1e-3)


@dataclass(frozen=True)
class Deadly(Relay):
    """A relay whose third step after `victims` has a process group kills it."""

    victims = []
    steps = []

    def step(self, state, actions):
        self.steps.extend(self.victims)
        if len(self.steps) == 3:
            os.killpg(self.victims.pop(), signal.SIGKILL)
            self.steps.clear()
        return super().step(state, actions)


def test_a_server_killed_in_a_rollout_is_named_and_who_takes_its_port_is_asked_nothing(team, tmp_path):
    run, env = tmp_path / "run", Deadly()
    policy, engine = team["asker"], team["asker"].engine
    training = lab.train(env, team, RECIPE, 3, run=run, save_every=10, **SETTINGS)
    first = next(training)
    before = {name: policy.version for name, policy in team.policies.items()}
    child = engine._child
    assert "VLLM_SERVER_DEV_MODE=0" in Path(f"/proc/{child.process.pid}/environ").read_text(), "adapters need none"
    env.victims.append(child.process.pid)
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
    child.process.wait(10)
    engine._started = True  # as if nobody had noticed its end: the next request would go to its port
    with socket.create_server(("127.0.0.1", int(child.url.rpartition(":")[2]))) as stranger:
        stranger.settimeout(0)
        with pytest.raises(EngineError, match=r"does not answer \(RuntimeError: it has ended\), see .*server\.log"):
            engine._call(child.url, "/health", method="GET")
        policy.sample([Request((4, 9), 2, 1.0, 0)])  # of a new server
        with pytest.raises(BlockingIOError):
            stranger.accept()
    assert not engine._running


@pytest.mark.full
def test_a_run_whose_server_was_killed_goes_on_with_a_new_one(team, tmp_path):
    run, engine = tmp_path / "run", team["asker"].engine
    next(lab.train(Relay(), team, RECIPE, 3, run=run, save_every=1, **SETTINGS))
    victim = engine._child.process.pid
    os.killpg(victim, signal.SIGKILL)
    engine._child.process.wait(10)
    steps = [report.step for report in lab.train(Relay(), team, RECIPE, 3, run=run, save_every=10, **SETTINGS)]
    assert steps == [1, 2] and lab.load_run(run).steps == 3
    assert engine._child.process.pid != victim


@pytest.mark.full
def test_a_server_that_cannot_start_shows_its_log(model, tmp_path):
    policy = lab.load_policy(model, backend="vllm", where="server")
    (model / "config.json").rename(tmp_path / "config.json")
    try:
        with pytest.raises(EngineError, match=r"ended with status [^0](.|\n)*config\.json"):
            policy.sync_weights()
    finally:
        (tmp_path / "config.json").rename(model / "config.json")
