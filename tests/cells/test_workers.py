"""Steps in threads: a limit that names who exceeded it, and nothing that waits for a thread which hangs."""

import threading
import time

import pytest
from scripted import Ladder, team_of

import mas_lab as lab
from mas_lab.backends.threads import Job, ended, worker_threads


def by_nth(prompt, nth, seed):
    return str(nth + 1)


class Hanging(Ladder):
    """The executor's first step in task t1 hangs until `let_go` is set."""

    def __init__(self, let_go):
        object.__setattr__(self, "let_go", let_go)
        super().__init__()

    def step(self, state, actions):
        if state[0] == "t1" and "executor" in actions:
            self.let_go.wait(60)
        return super().step(state, actions)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("plan", [lab.episodes(1), lab.tree(2)])
def test_a_step_beyond_the_limit_names_its_place_and_is_not_waited_for(plan, streams):
    let_go = threading.Event()
    env = Hanging(let_go)
    words = r"Hanging\.step failed for task 't1', agent 'executor', turn 0: TimeoutError: .*step_timeout=0\.2 seconds"
    for call in (lab.rollout, lab.evaluate) if isinstance(plan, lab.episodes) else (lab.rollout,):
        how = {"plan": plan} if call is lab.rollout else {}
        with pytest.raises(lab.RolloutError, match=words):
            call(env, team_of(env, by_nth, streams=streams), env.tasks(2, "", 0), workers=2, step_timeout=0.2, **how)
        assert any(thread.name.startswith("mas_lab step") and thread.daemon for thread in threading.enumerate())
    let_go.set()


def test_within_its_limit_it_is_the_same_table():
    env = Ladder()
    tasks, limit = env.tasks(4, "", 0), {"workers": 2, "step_timeout": 60}
    plain, timed = (lab.rollout(env, team_of(env, by_nth), tasks, lab.tree(2), **how) for how in ({}, limit))
    assert plain.equals(timed)


def test_a_late_answer_is_not_taken():
    job = Job(lambda: time.sleep(0.05) or "late", limit=0.01)
    job.run()
    assert job.result() == "late"
    with pytest.raises(TimeoutError, match=r"step_timeout=0\.01 seconds"):
        job.answer()


def test_waiting_for_a_free_worker_does_not_count():
    with worker_threads(1, 2.0) as workers:
        jobs = [workers.submit(lambda: time.sleep(0.7)) for _ in range(4)]
        assert ended(jobs) == jobs
        assert [job.answer() for job in jobs] == [None] * 4


def test_what_has_not_begun_when_another_step_breaks_never_does():
    begun, ending = [], threading.Event()
    with worker_threads(1) as workers:
        first = workers.submit(lambda: ending.wait(60))
        second = workers.submit(lambda: begun.append("second"))
    ending.set()
    assert second.cancelled() and first.result(60)
    for thread in [thread for thread in threading.enumerate() if thread.name.startswith("mas_lab step")]:
        thread.join(60)
    assert begun == []


def test_limits_that_nobody_could_keep_are_refused():
    env = Ladder()
    team, tasks = team_of(env, by_nth), env.tasks(1, "", 0)
    for step_timeout in (0, -1, float("nan"), float("inf"), "5", True):
        with pytest.raises(ValueError, match=r"rollout: step_timeout=.*; give seconds above 0, or None"):
            lab.rollout(env, team, tasks, workers=1, step_timeout=step_timeout)
    for call in (lab.rollout, lab.evaluate):
        with pytest.raises(ValueError, match=rf"{call.__name__}: step_timeout=5 needs workers.*pass workers=1 or more"):
            call(env, team, tasks, step_timeout=5)
    with pytest.raises(ValueError, match="train: step_timeout=5 needs workers"):
        lab.Settings(step_timeout=5)
    assert lab.Settings(step_timeout=5, workers=2).step_timeout == 5
