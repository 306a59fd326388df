"""Programs behind the gateway: what a row holds, what is refused, and what costs one episode and no other.

These are the tests of `gateway`, `dispatcher`, `episode` and `program`.
"""

import asyncio
import contextlib
import json
import re
import threading
import time
import warnings
from dataclasses import replace
from urllib.parse import urlsplit

import numpy as np
import pandas as pd
import pytest
import torch
from small import AGENTS, LENGTH, WORDS, make_team, score
from talking import post

import mas_lab as lab
from mas_lab.cells.episode import RolloutError
from mas_lab.contrib import programs
from mas_lab.contrib.programs.chat import RequestError
from mas_lab.env import EnvError
from mas_lab.policy import PolicyError, Sample

TASKS = [{"word": word} for word in WORDS[:4]]
LIMITS = {"max_tokens": LENGTH, "timeout_s": 20}


def relay(task, endpoint):
    """The task of `small.Relay` as somebody's program."""
    heard = endpoint("asker", f"asker now {task.data['word']}")
    return score(endpoint("doer", f"doer now {task.data['word']} {heard}"), task.data["word"])


@pytest.fixture(scope="module")
def team(models):
    return make_team("unlike", models)


@pytest.fixture(scope="module")
def turns(team):
    return programs.play(relay, team, TASKS, n=3, seed=1, **LIMITS)


def test_the_table_is_a_rollouts(turns, team):
    assert list(turns.columns) == [name for name in lab.schema()["column"] if name in turns] and len(turns) == 24
    assert all(tuple(own["agent"]) == AGENTS for _, own in turns.groupby("episode"))
    assert (turns["policy"] == turns["agent"]).all()
    assert set(turns.loc[turns["agent"] == "doer", "temperature"]) == {0.8}
    last = turns["depth"] == 1
    assert (turns["done"] == last).all() and (turns.loc[~last, "team_reward"] == 0).all()
    assert (turns.loc[last, "parent"] == turns.loc[~last, "action"].tolist()).all()
    for row in turns[last].itertuples():
        word = TASKS[[task.id for task in programs.ProgramEnv(relay, AGENTS, TASKS).train].index(row.task)]["word"]
        assert row.team_reward == score(row.completion, word) and row.success == (row.team_reward == 1)
    for row in turns.itertuples():  # with the tokens that were sampled and their log-probabilities
        policy = team[row.agent]
        sample = Sample(row.prompt_ids, row.completion_ids, row.logprobs, row.temperature, 0.0, 1.0)
        with torch.no_grad():
            assert np.allclose(policy.logprobs([sample])[0].tolist(), row.logprobs, atol=1e-5)
        assert policy.encode([{"role": "user", "content": row.prompt.removeprefix("user: ")}]) == row.prompt_ids


def test_draws_depend_on_seed_task_episode_agent_and_number_alone(turns, team):
    def slow(task, endpoint):
        time.sleep(0.02 * (hash(threading.current_thread().name) % 3))
        return relay(task, endpoint)

    again = programs.play(slow, team, TASKS[::-1], n=3, seed=1, at_once=2, patience_s=0.01, **LIMITS)
    by = ["episode", "depth"]
    again, first = (table.sort_values(by, ignore_index=True) for table in (again, turns))
    said = np.concatenate(again.pop("logprobs").tolist()), np.concatenate(first.pop("logprobs").tolist())
    pd.testing.assert_frame_equal(again, first)
    assert np.allclose(*said, atol=1e-5)  # what is computed together decides the last digits
    other = programs.play(relay, team, TASKS, n=3, seed=2, **LIMITS)
    assert (other["completion"].to_numpy() != turns["completion"].to_numpy()).any()


def test_the_same_calls_are_computed_together_however_slow_a_program_is(team, monkeypatch):
    waves, played, real = [], [], team["asker"].engine.complete

    def spied(requests):
        waves.append([request.seed for _, request in requests])
        return real(requests)

    monkeypatch.setattr(team["asker"].engine, "complete", spied)
    for pause in (0.0, 0.2):

        def uneven(task, endpoint, pause=pause):
            """One call more or less by the task; who made fewer returns late, when all others wait."""
            more = WORDS.index(task.data["word"]) % 2
            told = [endpoint("asker", f"asker now {task.data['word']}") for _ in range(1 + more)]
            time.sleep(0.0 if more else pause)
            return score(told[-1], task.data["word"])

        played.append((programs.play(uneven, team, TASKS, n=3, seed=1, at_once=5, patience_s=30, **LIMITS), waves[:]))
        waves.clear()
    (first, before), (again, after) = played
    assert before == after and 2 < len(before) < sum(map(len, before))
    pd.testing.assert_frame_equal(first, again, check_exact=True)


def test_a_program_pays_the_team_or_its_agents(team):
    def own(task, endpoint):
        relay(task, endpoint)
        endpoint("asker", "asker then w1")
        return {"asker": 2.0, "doer": -1}

    turns = programs.play(own, team, TASKS[:1], **LIMITS)
    assert turns["local_reward"].tolist() == [0.0, -1.0, 2.0] and turns["team_reward"].sum() == 0
    assert turns["turn"].tolist() == [0, 0, 1]

    def both(task, endpoint):
        relay(task, endpoint)
        return programs.EpisodeResult(0.25, {"asker": 1.0}, success=True, info={"tests": [1, 2]})

    turns = programs.play(both, team, TASKS[:1], **LIMITS)
    assert turns["team_reward"].tolist() == [0, 0.25] and turns["local_reward"].tolist() == [1.0, 0.0]
    assert turns["success"].tolist() == [False, True] and turns["info"].iloc[-1] == {"tests": [1, 2]}


async def at_the_same_time(task, endpoint):
    """A coroutine whose agents are asked at once, in threads of its own."""
    asked = [asyncio.to_thread(endpoint, agent, f"{agent} now {task.data['word']}") for agent in AGENTS]
    return score(" ".join(await asyncio.gather(*asked)), task.data["word"], 2 * LENGTH)


def test_a_coroutine_may_ask_several_at_once(team):
    turns, again = (programs.play(at_the_same_time, team, TASKS, n=2, **LIMITS) for _ in range(2))
    assert all(set(own["agent"]) == set(AGENTS) for _, own in turns.groupby("episode"))
    key = ["episode", "agent", "turn"]
    assert turns.set_index(key)["completion"].to_dict() == again.set_index(key)["completion"].to_dict()


def stumbles(task, endpoint):
    """A call is refused, and another one is left in a thread that goes on after the end."""
    with pytest.raises(Exception, match="exceeds the context"):
        endpoint("asker", "w1 " * 80)
    reward = relay(task, endpoint)

    def goes_on():
        with contextlib.suppress(RequestError):  # the episode has ended meanwhile
            while True:
                endpoint("asker", "")

    threading.Thread(target=goes_on, daemon=True).start()
    return reward


def test_a_refused_call_leaves_no_gap_and_one_that_nobody_waits_for_no_row(team):
    with warnings.catch_warnings(action="error"):
        turns = programs.play(stumbles, team, TASKS, n=8, **LIMITS)
    for _, own in turns.groupby("episode"):
        assert own["depth"].tolist() == [*range(len(own))] and own["done"].tolist() == [False] * (len(own) - 1) + [True]
        assert own["turn"].tolist()[:2] == [0, 0] and own["parent"].tolist()[:2] == ["", own["action"].iloc[0]]


def raises(task, endpoint):
    relay(task, endpoint)
    raise KeyError("no such tool")


def hangs(task, endpoint):
    relay(task, endpoint)
    time.sleep(30)


def hides_a_stranger(task, endpoint):
    with contextlib.suppress(Exception):
        endpoint("boss", "hello")
    return relay(task, endpoint)


def floods(task, endpoint):
    while True:
        relay(task, endpoint)


BROKEN = {
    raises: r"its program raised KeyError: 'no such tool' \(test_gateway.py, line \d+\)",
    hangs: "took more than timeout_s=8 seconds",
    hides_a_stranger: "called agent 'boss', and the agents are asker, doer",
    floods: "more than max_calls=6 calls",
    lambda task, endpoint: 1.0: "no call of it was answered before it returned",
    lambda task, endpoint: None: "the program's result: team=None .*; give a number",
    lambda task, endpoint: relay(task, endpoint) * float("nan"): "the program's result: team=nan",
    lambda task, endpoint: {"doer": len(endpoint("asker", "now")) + 1}: "it pays agent 'doer', which it never called",
    lambda task, endpoint: programs.EpisodeResult(relay(task, endpoint), info=[1]): r"info=\[1\] .*; give a dict",
}


@pytest.mark.slow
def test_broken_episodes_are_named_and_the_others_go_on(team, turns):
    def program(task, endpoint):
        own = list(BROKEN)[task.data["broken"]] if "broken" in task.data else relay
        return own(task, endpoint)

    tasks = [*TASKS, *({"word": "w4", "broken": number} for number in range(len(BROKEN)))]
    limits = LIMITS | {"max_calls": 6, "timeout_s": 8, "patience_s": 0.05}
    with pytest.warns(programs.ProgramWarning) as warned:
        found = programs.play(program, team, tasks, n=3, seed=1, **limits)
    told = [str(one.message) for one in warned]
    for sentence in BROKEN.values():
        assert sum(bool(re.search(sentence, one)) for one in told) == 3, sentence
    assert len(told) == 3 * len(BROKEN) and found["completion"].tolist() == turns["completion"].tolist()


def test_a_failed_episode_may_be_paid_and_where_all_fail_nothing_is_returned(team):
    with pytest.warns(programs.ProgramWarning, match="earns -1.0: "):
        turns = programs.play(raises, team, TASKS[:1], failed=-1.0, **LIMITS)
    assert turns["team_reward"].tolist() == [0.0, -1.0] and not turns["success"].any() and turns["done"].iloc[-1]
    first = "every episode failed; the first, 'task-[0-9a-f]*': its program raised KeyError"
    with pytest.raises(RolloutError, match=first), warnings.catch_warnings(action="ignore"):
        programs.play(raises, team, TASKS, **LIMITS)


ASKED = {"model": "asker", "messages": [{"role": "user", "content": "asker now w1"}]}


def test_a_call_with_another_key_or_path_or_after_the_end_is_refused(team):
    found, later = [], []

    def asks(task, endpoint):
        assert urlsplit(endpoint.base_url).hostname == "127.0.0.1"
        found.extend(post(one, ASKED)[0] for one in (endpoint, replace(endpoint, api_key="another")))
        found.append(post(endpoint, ASKED, path="/v1/embeddings")[0])
        found.append(post(endpoint, "{"))
        later.append(endpoint)
        return 1.0

    [row] = programs.play(asks, team, TASKS[:1], **LIMITS).itertuples()
    assert found[:3] == [200, 401, 404] and row.prompt == "user: asker now w1"
    assert found[3][0] == 500 and "JSONDecodeError" in found[3][1]
    with pytest.raises(OSError):  # the gateway has closed with the rollout
        post(later[0], ASKED)
    with pytest.raises(RequestError, match="has ended: it has returned"):
        later[0]("asker", "once more")


def test_an_engine_that_fails_is_told_with_the_call_that_it_failed(team, monkeypatch):
    def gone():
        raise PolicyError("the engine is gone; start it again")

    monkeypatch.setattr(team["asker"].engine, "ready", gone)
    with pytest.raises(RolloutError, match=r"task 'task-\w+', agent 'asker', turn 0: the engine is gone"):
        programs.play(relay, team, TASKS[:1], **LIMITS)


def test_an_answer_ends_before_its_stop_text_and_the_row_holds_it(team):
    said = []

    def stops(task, endpoint):
        said.append(endpoint("asker", "asker now w1", stop=list(WORDS)))
        return 1.0

    turns = programs.play(stops, team, TASKS[:1], n=6, **LIMITS)
    stopped = turns["finish"] == "stop"
    assert stopped.any() and all(not any(word in text for word in WORDS) for text in said)
    assert all(any(word in text for word in WORDS) for text in turns.loc[stopped, "completion"])


def env_of(program=relay):
    test = [{"word": word} for word in WORDS[4:]]
    return programs.ProgramEnv(program, AGENTS, train=TASKS, test=test, max_tokens=LENGTH)


def test_an_env_made_of_a_program_is_trained_scored_kept_and_resumed(models, tmp_path):
    settings = {"seed": 3, "tasks": 2, "save_every": 1, "score_every": 1, "score_tasks": 1}
    recipe = lab.RECIPES["dr_mas"].replace(plan=lab.episodes(3))

    def trained(steps, run, env=env_of()):  # noqa: B008
        return list(lab.train(env, make_team("shared", models), recipe, steps, run=tmp_path / run, **settings))

    whole = trained(2, "whole")
    assert all(report.stats["grad_norm"].gt(0).any() and len(report.turns) == 12 for report in whole)
    for steps in (1, 2):
        trained(steps, "cut")
    runs = [lab.load_run(tmp_path / name) for name in ("whole", "cut")]
    pd.testing.assert_frame_equal(runs[0].turns, runs[1].turns)
    scores = lab.evaluate(env_of(), make_team("shared", models), env_of().test, k=2)
    assert scores["latency"].gt(0).all() and scores["return"].between(0, 1).all()
    assert "relay" in json.dumps(runs[0].config["env"])
    with pytest.raises(lab.RunError, match="cannot resume"):
        trained(2, "cut", env_of(at_the_same_time))


@pytest.mark.parametrize(("wrong", "error", "sentence"), [
    (lambda team: lab.rollout(env_of(), team, env_of().train, lab.tree(2)), RolloutError, "cannot be set back"),
    (lambda team: env_of().tasks(9, "test", 0), EnvError, "9 tasks of 'test' .* has 4 of 'train' and 4 of 'test'"),
    (lambda team: programs.play(relay, team, [{"set": {1, 2}}]), EnvError, r"task 0.* is \{1, 2\}"),
    (lambda team: lab.check_env(programs.ProgramEnv(relay, AGENTS, TASKS, TASKS)), EnvError, "occurs twice"),
])  # fmt: skip
def test_what_a_program_cannot_be_is_refused(wrong, error, sentence, team):
    with pytest.raises(error, match=sentence):
        wrong(team)
