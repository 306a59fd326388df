"""Threads that share a model: what each gets is what it gets alone, or it is refused by name.

Policies on different devices learn at the same time, and what they learn is what they would learn in turn. The CPU has
two names here, `cpu` and `cpu:0`, which torch takes for two devices.
"""

import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pandas as pd
import pytest
import small
import torch
from backends.drawn import same, weights

import mas_lab as lab
from mas_lab.locks import ModelLock, locked
from mas_lab.policy import PolicyError, Request

PATIENCE = 60.0
"""Seconds after which a thread that should have ended, or waited, has not."""
STEPS = 3


@pytest.fixture(autouse=True)
def switching():
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_thread(work, name="another"):
    """Return the future of `work()` in a thread."""
    pool = ThreadPoolExecutor(1, name)
    future = pool.submit(work)
    pool.shutdown(wait=False)
    return future


def train(team, steps, **options):
    return lab.train(small.Relay(), team, small.RECIPE, steps, **small.SETTINGS | options)


def scored(team):
    table = lab.evaluate(small.Relay(), team, small.Relay().tasks(3, "test", 7), k=2, seed=7)
    return table.drop(columns=["latency", "throughput"])


@pytest.mark.parametrize("kind", ["shared", "lora"])
def test_a_training_beside_other_calls_is_the_training_alone_and_they_see_its_whole_steps(models, tmp_path, kind):
    team = small.make_team(kind, models)
    of_steps = [scored(team)]
    of_steps += [scored(team) for _ in train(team, STEPS, run=tmp_path / "alone")]

    team = small.make_team(kind, models)
    turns = small.judged(team)
    beside = train(team, STEPS, run=tmp_path / "beside")
    training, found = in_thread(lambda: list(beside)), []
    while not training.done():
        found.append(scored(team))
        assert lab.attribute(team, turns)["share"].sum() == pytest.approx(len(team.policies), abs=1e-3)
        for agent in team:
            team[agent].save(tmp_path / "copy" / agent)
    training.result(PATIENCE)
    assert small.bits(tmp_path / "beside") == small.bits(tmp_path / "alone")
    for table in found:
        assert any(table.equals(whole) for whole in of_steps)


def test_gradients_of_two_threads_do_not_mix(models):
    """A watch stands between the passes of an update and its step."""
    moved = []
    for beside in (False, True):
        team = small.make_team("shared", models)
        policy, turns = team["asker"], small.judged(team)
        others = []

        def watch(batch, team=team, turns=turns, beside=beside, others=others):
            if beside:
                others.append(in_thread(lambda: lab.attribute(team, turns)))
                time.sleep(0.1)

        for gradient in policy.gradients() if beside else ():
            gradient[1].fill_(1.0)  # left by hand: no part of the step
        stats = lab.update(team, turns, watch=watch)
        assert all(len(thread.result(PATIENCE)) for thread in others) and len(others) == beside
        moved.append((stats, weights(policy)))
    pd.testing.assert_frame_equal(moved[0][0], moved[1][0], check_exact=True)
    assert same(moved[0][1], moved[1][1])


def test_two_models_are_attributed_in_two_threads_as_in_one(models):
    """torch has one level of forward mode for all threads."""
    teams = [small.make_team("shared", models) for _ in range(2)]
    turns = small.judged(teams[0])
    alone = lab.attribute(teams[0], turns)
    threads = [in_thread(lambda team=team: [lab.attribute(team, turns) for _ in range(4)]) for team in teams]
    for shares in [one for thread in threads for one in thread.result(PATIENCE)]:
        pd.testing.assert_frame_equal(shares, alone, check_exact=True)


def test_weights_change_when_the_rollouts_of_other_threads_have_ended_and_not_before(models):
    team = small.make_team("shared", models)
    turns = small.judged(team)
    version = team["asker"].version
    with locked(team.policies.values()):
        updating = in_thread(lambda: lab.update(team, turns))
        time.sleep(0.3)
        asked = [Request((5 + prompt % 3,), 6, 1.0, prompt) for prompt in range(12)]
        assert in_thread(lambda: team["asker"].sample(asked)).result(PATIENCE)  # an env's own threads may still ask
        assert team["asker"].version == version
        lab.evaluate(small.Relay(), team, small.Relay().tasks(2, "test", 0))
        assert not updating.done()
    assert len(updating.result(PATIENCE)) and team["asker"].version == version + 1


def test_who_waits_can_be_interrupted_and_leaves_nothing_behind():
    model, taken, let_go = SimpleNamespace(name="a", lock=ModelLock()), threading.Event(), threading.Event()

    def hold():
        with locked([model]):
            taken.set()
            let_go.wait(PATIENCE)

    holder = in_thread(hold)
    taken.wait(PATIENCE)
    main = threading.main_thread().ident
    in_thread(lambda: (time.sleep(0.5), signal.pthread_kill(main, signal.SIGINT)))
    with pytest.raises(KeyboardInterrupt), locked([model]):
        pytest.fail("taken from its holder")
    let_go.set()
    holder.result(PATIENCE)
    in_thread(lambda: locked([model]).__enter__()).result(PATIENCE)


def test_several_models_are_taken_in_any_order():
    one, two = (SimpleNamespace(name=name, lock=ModelLock()) for name in ("one", "two"))

    def often(models):
        for _ in range(100):
            with locked(models):
                pass

    for thread in [in_thread(lambda models=models: often(models)) for models in ([one, two], [two, one])]:
        thread.result(PATIENCE)


def test_a_policy_is_trained_in_one_thread_at_a_time(models, tmp_path):
    team, go, stepped = small.make_team("lora", models), threading.Event(), threading.Event()
    turns = small.judged(team)
    team["doer"].save(tmp_path / "doer")

    def work():
        for _ in train(team, 2, run=tmp_path / "run"):
            stepped.set()
            go.wait(PATIENCE)

    training = in_thread(work, "the trainer")
    stepped.wait(PATIENCE)
    calls = lambda: lab.update(team, turns), lambda: team["doer"].load(tmp_path / "doer"), lambda: next(train(team, 1))
    for change in calls:
        with pytest.raises(PolicyError, match=r"'(asker|doer)': a train\(\) in thread 'the trainer_0' is training"):
            change()
    assert len(scored(team))
    go.set()
    training.result(PATIENCE)
    lab.update(team, turns, off_policy=True)


def test_a_loop_that_was_left_keeps_no_other_thread_from_training_and_writes_no_wrong_weights(models, tmp_path):
    """A notebook's traceback keeps the loop that an interrupt ended; a dashboard then trains the same team."""
    team = small.make_team("shared", models)
    left = train(team, 3, run=tmp_path / "left", save_every=100)
    next(left)
    in_thread(lambda: list(train(team, 1, save_every=100))).result(PATIENCE)
    left.close()
    assert lab.load_run(tmp_path / "left").checkpoint().step == 0
    for name, trained in (("left", team), ("plain", small.make_team("shared", models))):
        assert len(list(train(trained, 1, run=tmp_path / name, save_every=100))) == 1
    assert small.bits(tmp_path / "left") == small.bits(tmp_path / "plain")


def make_team(models, second: str) -> lab.Team:
    devices = {"asker": "cpu", "doer": second}
    return lab.Team.per_agent(lambda agent: lab.load_policy(models / "a", lr=1e-2, device=devices[agent]), small.AGENTS)


def learn(team: lab.Team):
    turns = small.judged(team)
    stats = lab.update(team, turns, minibatches=2)
    return turns, stats, [weights(team[agent]) for agent in team]


def watch_threads(team: lab.Team, wait=lambda: None) -> dict[str, set[int]]:
    """In which threads each policy makes its passes; `wait` is called first."""
    seen: dict[str, set[int]] = {agent: set() for agent in team}

    def watched(agent, forward_backward):
        def passes(samples, loss):
            if samples:
                seen[agent].add(threading.get_ident())
                wait()
            return forward_backward(samples, loss)

        return passes

    for agent, policy in team.items():
        policy.forward_backward = watched(agent, policy.forward_backward)
    return seen


def test_two_devices_at_once_give_what_one_gives(models):
    in_turn, at_once = make_team(models, "cpu"), make_team(models, "cpu:0")
    assert at_once["asker"].device != at_once["doer"].device
    both = threading.Barrier(2, timeout=PATIENCE)  # each waits until the other has begun: in turn, neither would end
    seen = watch_threads(at_once, both.wait)
    results = [learn(team) for team in (in_turn, at_once)]
    for one, other in zip(results[0][:2], results[1][:2], strict=True):
        pd.testing.assert_frame_equal(one, other, check_exact=True)
    assert all(map(same, results[0][2], results[1][2]))
    assert threading.get_ident() not in seen["asker"] | seen["doer"]


def test_one_device_is_one_after_the_other(models):
    team = small.make_team("lora", models)
    seen = watch_threads(team)
    learn(team)
    assert seen == {agent: {threading.get_ident()} for agent in team}


def test_an_error_on_one_device_ends_the_step_for_all(models):
    team = make_team(models, "cpu:0")
    with torch.no_grad():
        team["doer"].model.get_input_embeddings().weight[5] = float("nan")
    before = weights(team["asker"])
    with pytest.raises(lab.UpdateError, match="policy 'doer' is not finite"):
        lab.update(team, small.judged(make_team(models, "cpu")))
    assert same(before, weights(team["asker"]))
    assert all(parameter.grad is None for agent in team for parameter in team[agent].parameters.values())
