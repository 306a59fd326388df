"""Who is requested when, steps in threads, what breaks and where, and prompts in tokens."""

import threading
from dataclasses import dataclass, field

import pytest
from scripted import Duet, Ladder, Scripted, by_nth, by_seed, play, team_of

from mas_lab.cells.episode import RolloutError
from mas_lab.cells.plans import episodes, joint, tree
from mas_lab.cells.rollout import rollout
from mas_lab.env import EnvError, Step
from mas_lab.policy import PolicyError
from mas_lab.table import ROLLOUT
from mas_lab.team import Team


@dataclass(frozen=True)
class Waiting(Ladder):
    """The first step of the first task goes on only when the other task has been played to its end."""

    ended: threading.Event = field(default_factory=threading.Event)

    def step(self, state, actions):
        step = super().step(state, actions)
        if state == ("t0",):
            assert self.ended.wait(20), "the other episode was held back"
        if state[0] == "t1" and step.done:
            self.ended.set()
        return step


@pytest.mark.parametrize("engines", [1, 2])
def test_a_slow_step_holds_no_other_episode_back_where_engines_stream(engines):
    env = Waiting()
    team = Team({agent: Scripted(by_seed, streams=True) for agent in env.agents})
    team = team if engines == 2 else team_of(env, by_seed, streams=True)
    turns = rollout(env, team, env.tasks(2, "train", 0), episodes(1), workers=2)
    assert turns["task"].tolist() == ["t0"] * 4 + ["t1"] * 4 and env.ended.is_set()


class Failing(Scripted):
    """Answers two requests, then no more."""

    left = 2

    def ready(self):
        self.left -= 1
        if self.left < 0:
            error = PolicyError("the server does not answer")
            error.ticket = self._pending[0][0]
            raise error
        return super().ready()


def test_an_engine_that_fails_is_named_with_whom_it_fails_and_is_left_with_no_requests():
    env, policy = Ladder(), Failing(by_seed, streams=True)
    with pytest.raises(RolloutError, match=r"rollout: task 't0', agent 'planner', turn 0: the server does not answer"):
        rollout(env, Team.shared(policy, env.agents), env.tasks(2, "train", 0), episodes(2))
    assert policy._pending == []
    policy.left = 1000
    assert len(rollout(env, Team.shared(policy, env.agents), env.tasks(2, "train", 0), episodes(2))) == 16


@pytest.mark.parametrize("env, plan, workers", [
    (Ladder(), episodes(3), 3), (Ladder(), tree(3, follow=1), None), (Duet(), tree(3), 3), (Duet(), joint(2), 3),
])  # fmt: skip
def test_an_engine_that_streams_gives_the_same_table(env, plan, workers):
    tasks = env.tasks(3, "train", 0)
    teams = (team_of(env, by_seed, streams=streams) for streams in (False, True))
    tables = (rollout(env, team, tasks, plan, workers=workers) for team in teams)
    whole, streamed = (table.sort_values(["node", "agent", "candidate"], ignore_index=True) for table in tables)
    assert whole.equals(streamed) and whole["completion"].nunique() > 2


def test_all_live_episodes_are_asked_in_one_wave():
    env, policy = Ladder(), Scripted(by_nth)
    rollout(env, Team.shared(policy, env.agents), env.tasks(5, "train", 0), tree(3))
    assert policy.waves == [15] * 4


@pytest.mark.parametrize("plan", [tree(2), episodes(2)])
@pytest.mark.parametrize("kind", [Ladder, Duet])
def test_16_agents_play_and_each_costs_as_much_as_one(plan, kind):
    calls = []

    class Counted(kind):
        def step(self, state, actions):
            calls.append(1)
            return super().step(state, actions)

    turns = play(Counted(agents=tuple(f"agent{i}" for i in range(16)), max_turns=2), by_nth, plan)
    assert turns["agent"].nunique() == 16 and len(turns) == 16 * 2 * 2
    together = plan == episodes(2) and kind is Duet  # every candidate is scored once, a joint step as well
    assert len(calls) == (4 if together else len(turns))


# What breaks, and where


@pytest.mark.parametrize("step, error, message", [
    (lambda *_: 1 / 0, RolloutError, r"Bad.step failed for task 't0', agent 'executor', turn 0: ZeroDivisionError"),
    (lambda *_: None, EnvError, r"Bad.step: it returned NoneType for task 't0', agent 'executor', turn 0"),
    (lambda s, a: Step(s, None, {"executor": 0.0}, {"executor": True}, False, True), EnvError,
     r"team_reward is None for task 't0', agent 'executor', turn 0"),
    (lambda s, a: Step(s, 0.0, {"executor": float("inf")}, {"executor": True}, False, True), EnvError,
     r"local_rewards\['executor'\] is inf for task 't0', agent 'executor', turn 0"),
    (lambda s, a: Step(s, 0.0, {"planner": 0.0}, {"executor": True}, False, True), EnvError,
     r"has no local reward or no `valid` for task 't0', agent 'executor', turn 0"),
])  # fmt: skip
def test_a_step_that_breaks_is_an_error_that_names_its_place(step, error, message):
    class Bad(Ladder):
        def step(self, state, actions):
            return step(state, actions) if "executor" in actions else super().step(state, actions)

    for plan, workers in ((episodes(1), None), (tree(2), 2)):
        with pytest.raises(error, match=message):
            play(Bad(), by_nth, plan, workers=workers)


@pytest.mark.parametrize("who", [("stranger",), ()])
def test_an_env_that_names_strangers_or_nobody(who):
    class Odd(Ladder):
        def acting(self, state):
            return who if len(state) == 3 else super().acting(state)

    with pytest.raises(EnvError, match=r"Odd.acting returned \(.*\) in task 't0' at 't0/2'; it must name one or more"):
        play(Odd(), by_nth, episodes(1))


class Blind(Ladder):
    def observe(self, state, agent):
        return [{}["nothing"]] if len(state) > 1 else super().observe(state, agent)


class Unable(Scripted):
    def encode(self, messages):
        if "executor" in messages[-1]["content"]:
            raise TypeError("no role 'tool' here")
        return super().encode(messages)


@pytest.mark.parametrize("env, policy, words", [
    (Blind(), Scripted(by_nth), r"Blind\.observe failed for task 't0', agent 'executor', turn 0: KeyError"),
    (Ladder(), Unable(by_nth), "agent 'executor', turn 0: its policy's chat template cannot .*: TypeError: no role"),
])  # fmt: skip
def test_a_prompt_that_cannot_be_made_names_its_place(env, policy, words):
    with pytest.raises(RolloutError, match=words):
        rollout(env, Team.shared(policy, env.agents), env.tasks(1, "train", 0), episodes(1))


def test_a_prompt_beyond_the_context_names_its_place():
    env = Ladder(max_turns=3)
    team = team_of(env, lambda *_: "1234567", context=len("executor hears t0 1234567") + env.max_tokens)
    words = r"task 't0', agent 'planner', turn 1 has 32 tokens.*max_tokens=8.*33 tokens"
    with pytest.raises(RolloutError, match=words):
        rollout(env, team, env.tasks(1, "train", 0), episodes(1))


def test_an_agent_without_a_policy_and_a_task_that_stands_twice():
    env = Ladder()
    with pytest.raises(ValueError, match=r"agent 'executor' has no policy; .* the team has \['planner'\]"):
        rollout(env, Team({"planner": Scripted(by_nth)}), env.tasks(1, "train", 0))
    with pytest.raises(ValueError, match="task 't0' occurs twice"):
        rollout(env, team_of(env, by_nth), env.tasks(1, "train", 0) * 2)


def test_no_tasks_make_an_empty_table():
    turns = play(Ladder(), by_nth, episodes(2), tasks=0)
    assert list(turns.columns) == [name for name, column in ROLLOUT.items() if column.required] and turns.empty


# Prompts in tokens


class Batched(Scripted):
    """Notes the chats of each call, and refuses those in which `refused` stands."""

    def __init__(self, refused="nothing"):
        super().__init__(lambda prompt, nth, seed: str(nth % 2))
        self.refused, self.calls = refused, []

    def encode(self, messages):
        return self.encode_all([messages])[0]

    def encode_all(self, chats):
        self.calls.append([chat[-1]["content"] for chat in chats])
        if any(self.refused in content for content in self.calls[-1]):
            raise PolicyError("policy 'batched': not in this house")
        return [list(chat[-1]["content"].encode()) for chat in chats]


def play_batched(policy):
    env = Ladder(max_turns=1)
    return rollout(env, Team.shared(policy, env.agents), env.tasks(2, "train", 0), episodes(4))


def test_a_wave_is_put_into_tokens_in_one_call_and_the_chat_at_fault_is_named():
    policy = Batched()
    turns = play_batched(policy)
    heard = [f"executor hears {task} {said}" for task in ("t0", "t1") for said in "01"]
    assert policy.calls[0] == ["planner hears t0", "planner hears t1"]
    assert [sorted(call) for call in policy.calls[1:] if call] == [heard]
    assert [bytes(ids).decode() for ids in turns["prompt_ids"]] == turns["prompt"].str.removeprefix("user: ").tolist()
    with pytest.raises(RolloutError, match=r"task 't1', agent 'executor', turn 0: policy 'batched': not in this"):
        play_batched(Batched(refused="t1 1"))
