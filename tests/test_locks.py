"""Threads that share a model: what each gets is what it gets alone, or it is refused by name."""

import signal
import sys
import threading
import time

import pandas as pd
import pytest
import small
import torch

import mas_lab as lab
from mas_lab.backends.torch.fast.forward_mode import forward_mode, in_forward_mode
from mas_lab.locks import ModelLock, locked
from mas_lab.policy import PolicyError, Request, Sample

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


class InThread(threading.Thread):
    """`work()` in a thread; `.get()` waits for its result and raises its error."""

    def __init__(self, work, name="another"):
        super().__init__(name=name, daemon=True)
        self.work, self.result, self.error = work, None, None
        self.start()

    def run(self):
        try:
            self.result = self.work()
        except BaseException as error:
            self.error = error

    def get(self):
        self.join(PATIENCE)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error
        return self.result


class Model:
    """A policy as the locks see it."""

    def __init__(self, name):
        self.name, self.lock = name, ModelLock()


def requests(seed):
    return [Request((5 + prompt % 3,), 6, 1.0, 100 * seed + prompt) for prompt in range(12)]


def played(team, seed):
    env = small.Relay()
    return lab.rollout(env, team, env.tasks(6, "train", seed), lab.tree(3), seed=seed)


# Side by side


def scored(team):
    env = small.Relay()
    table = lab.evaluate(env, team, env.tasks(3, "test", 7), k=2, seed=7)
    return table.drop(columns=["latency", "throughput"])


@pytest.mark.parametrize("kind", ["shared", "lora"])
def test_a_training_beside_other_calls_is_the_training_alone_and_they_see_its_whole_steps(models, tmp_path, kind):
    team = small.make_team(kind, models)
    of_steps = [scored(team)]
    plain = lab.train(small.Relay(), team, small.RECIPE, STEPS, run=tmp_path / "alone", **small.SETTINGS)
    of_steps += [scored(team) for _ in plain]

    team, env = small.make_team(kind, models), small.Relay()
    turns = small.RECIPE.advantages(played(team, 3))
    before = {agent: team[agent].sample(requests(1)) for agent in team}
    assert before == {agent: team[agent].sample(requests(1)) for agent in team}
    beside = lab.train(env, team, small.RECIPE, STEPS, run=tmp_path / "beside", **small.SETTINGS)
    training, found = InThread(lambda: list(beside)), []
    while training.is_alive():
        found.append(scored(team))
        assert lab.attribute(team, turns)["share"].sum() == pytest.approx(len(team.policies), abs=1e-3)
        for agent in team:
            team[agent].save(tmp_path / "copy" / agent)
    training.get()
    assert small.bits(tmp_path / "beside") == small.bits(tmp_path / "alone")
    for table in found:
        assert any(table.equals(whole) for whole in of_steps)


def test_gradients_of_two_threads_do_not_mix(models):
    """A watch stands between the passes of an update and its step."""
    moved = []
    for beside in (False, True):
        team = small.make_team("shared", models)
        policy, turns = team["asker"], small.RECIPE.advantages(played(team, 3))
        others = []

        def watch(name, norms, batch, team=team, turns=turns, beside=beside, others=others):
            if beside:
                others.append(InThread(lambda: lab.attribute(team, turns)))
                time.sleep(0.1)

        for gradient in policy.gradients() if beside else ():
            gradient[1].fill_(1.0)  # left by hand: no part of the step
        stats = lab.update(team, turns, watch=watch)
        assert all(len(thread.get()) for thread in others) and len(others) == beside
        moved.append((stats, [parameter.detach().clone() for parameter in policy.parameters.values()]))
    pd.testing.assert_frame_equal(moved[0][0], moved[1][0], check_exact=True)
    assert all(torch.equal(one, other) for one, other in zip(moved[0][1], moved[1][1], strict=True))


def test_two_models_are_attributed_in_two_threads_as_in_one(models):
    """torch has one level of forward mode for all threads."""
    teams = [small.make_team("shared", models) for _ in range(2)]
    turns = small.RECIPE.advantages(played(teams[0], 3))
    alone_, said = lab.attribute(teams[0], turns), teams[1]["asker"].logprobs

    def often(team):
        return [lab.attribute(team, turns) for _ in range(6)]

    for thread in [InThread(lambda team=team: often(team)) for team in teams]:
        for shares in thread.get():
            pd.testing.assert_frame_equal(shares, alone_, check_exact=True)
    inside, done = threading.Event(), threading.Event()

    def within():
        with forward_mode():
            inside.set()
            done.wait(PATIENCE)

    samples = [Sample((5, 6), (7, 8), (-1.0, -1.0), 1.0, 1.0, 1.0)]
    plain, other = said(samples), InThread(within)
    inside.wait(PATIENCE)
    assert not in_forward_mode() and torch.equal(said(samples), plain)
    done.set()
    other.get()


# Waiting


def test_weights_change_when_the_rollouts_of_other_threads_have_ended_and_not_before(models):
    team = small.make_team("shared", models)
    turns = small.RECIPE.advantages(played(team, 3))
    version = team["asker"].version
    with locked(team.policies.values()):
        updating = InThread(lambda: lab.update(team, turns))
        time.sleep(0.3)
        assert InThread(lambda: team["asker"].sample(requests(1))).get()  # an env's own threads may still ask
        assert team["asker"].version == version
        lab.evaluate(small.Relay(), team, small.Relay().tasks(2, "test", 0))
        assert updating.is_alive()
    assert len(updating.get()) and team["asker"].version == version + 1


def test_who_waits_can_be_interrupted_and_leaves_nothing_behind():
    model, taken, let_go = Model("a"), threading.Event(), threading.Event()

    def hold():
        with locked([model]):
            taken.set()
            let_go.wait(PATIENCE)

    holder = InThread(hold)
    taken.wait(PATIENCE)
    main = threading.main_thread().ident
    InThread(lambda: (time.sleep(0.5), signal.pthread_kill(main, signal.SIGINT)))
    with pytest.raises(KeyboardInterrupt), locked([model]):
        pytest.fail("taken from its holder")
    let_go.set()
    holder.get()
    InThread(lambda: locked([model]).__enter__()).get()


def test_several_models_are_taken_at_once_in_any_order():
    one, two = Model("one"), Model("two")

    def often(models):
        for _ in range(300):
            with locked(models):
                pass
        return True

    assert all(thread.get() for thread in [InThread(lambda: often([one, two])), InThread(lambda: often([two, one]))])


# Refused


def test_a_policy_is_trained_in_one_thread_at_a_time(models, tmp_path):
    team, go, stepped = small.make_team("lora", models), threading.Event(), threading.Event()
    turns = small.RECIPE.advantages(played(team, 3))
    team["doer"].save(tmp_path / "doer")

    def train(**options):
        for _ in lab.train(small.Relay(), team, small.RECIPE, 2, run=tmp_path / "run", **small.SETTINGS | options):
            stepped.set()
            go.wait(PATIENCE)

    training = InThread(train, "the trainer")
    stepped.wait(PATIENCE)
    for change in (
        lambda: lab.update(team, turns),
        lambda: team["doer"].load(tmp_path / "doer"),
        lambda: next(lab.train(small.Relay(), team, small.RECIPE, 1, **small.SETTINGS)),
    ):
        with pytest.raises(PolicyError, match=r"'(asker|doer)': a train\(\) in thread 'the trainer' is training"):
            change()
    assert len(scored(team))
    go.set()
    training.get()
    lab.update(team, turns)
    plain = lab.train(small.Relay(), small.make_team("lora", models), small.RECIPE, 2, run=tmp_path / "alone",
                      **small.SETTINGS)  # fmt: skip
    assert len(list(plain)) == 2 and small.bits(tmp_path / "run") == small.bits(tmp_path / "alone")


def test_a_loop_that_was_left_keeps_no_other_thread_from_training_and_writes_no_wrong_weights(models, tmp_path):
    """A notebook's traceback keeps the loop that an interrupt ended; a dashboard then trains the same team."""
    team, settings = small.make_team("shared", models), small.SETTINGS | {"save_every": 100}
    left = lab.train(small.Relay(), team, small.RECIPE, 3, run=tmp_path / "left", **settings)
    next(left)
    InThread(lambda: list(lab.train(small.Relay(), team, small.RECIPE, 1, **settings))).get()
    left.close()
    assert lab.load_run(tmp_path / "left").checkpoint().step == 0
    again = lab.train(small.Relay(), team, small.RECIPE, 1, run=tmp_path / "left", **settings)
    plain = lab.train(small.Relay(), small.make_team("shared", models), small.RECIPE, 1, run=tmp_path / "plain",
                      **settings)  # fmt: skip
    assert len(list(again)) == len(list(plain)) == 1
    assert small.bits(tmp_path / "left") == small.bits(tmp_path / "plain")
