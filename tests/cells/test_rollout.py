"""Who is asked what, what is written down, and that a draw depends on nothing but its place."""

import re
import textwrap
import threading
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import reference
import torch
from scripted import Duel, Duet, Ladder, Scripted, says, team_of
from small import KINDS, Relay, make_team

import mas_lab
import mas_lab.cells.plans
from mas_lab.cells.credits import counterfactual, difference_return, episode_return, mixed, own_return
from mas_lab.cells.episode import Generate, RolloutError, StepEnv
from mas_lab.cells.plans import episodes, joint, tree, without
from mas_lab.cells.rollout import rollout
from mas_lab.env import EnvError, Step
from mas_lab.policy import PolicyError
from mas_lab.recipes import RECIPES
from mas_lab.table import ROLLOUT, TableError, column
from mas_lab.team import Sampling, Team

LINES = ["candidate", "kept", "team_reward", "local_reward"]
PLACES = ["node", "parent", "turn", "depth", "agent", "action"]


def play(env, reply, plan, tasks=1, **options):
    return rollout(env, team_of(env, reply), env.tasks(tasks, "train", 0), plan, **options)


def by_nth(prompt, nth, seed):
    """The nth candidate of a prompt says n + 1."""
    return str(nth + 1)


def by_seed(prompt, nth, seed):
    return str(seed % 5)


def lines(turns, columns):
    return [tuple(row) for row in turns[columns].itertuples(index=False)]


# What is written down, by hand


def test_episodes_by_hand():
    said = {"planner hears t0": ["1", "2"], "executor hears t0 1": ["3"], "executor hears t0 2": ["win"],
            "planner hears t0 1 3": ["?"], "executor hears t0 1 3 ?": ["5"]}  # fmt: skip
    turns = play(Ladder(), says(said), episodes(2))
    assert list(turns.columns) == [name for name, column in ROLLOUT.items() if column.required]
    first, second = turns[turns["episode"] == "t0#0"], turns[turns["episode"] == "t0#1"]
    assert lines(first, PLACES) == [
        ("t0#0/0", "", 0, 0, "planner", "t0#0/0.0"),
        ("t0#0/1", "t0#0/0.0", 0, 1, "executor", "t0#0/1.0"),
        ("t0#0/2", "t0#0/1.0", 1, 2, "planner", "t0#0/2.0"),
        ("t0#0/3", "t0#0/2.0", 1, 3, "executor", "t0#0/3.0"),
    ]
    assert lines(first, ["completion", "valid", "team_reward", "local_reward", "success", "done"]) == [
        ("1", True, 0.0, 0.1, False, False),
        ("3", True, 3.0, 0.3, False, False),
        ("?", False, 0.0, 0.0, False, False),
        ("5", True, 5.0, 0.5, False, True),
    ]
    assert lines(second, ["completion", "success", "done"]) == [("2", False, False), ("win", True, True)]
    assert turns["kept"].all() and not turns["probe"].any() and set(turns["policy"]) == {"shared"}
    assert first["prompt"].tolist()[1] == "user: executor hears t0 1"
    assert bytes(first["prompt_ids"].tolist()[1]).decode() == "executor hears t0 1"
    assert set(turns["step"]) == {0} and set(turns["temperature"]) == {1.0} and set(turns["task"]) == {"t0"}


def test_trap_10_the_next_agent_sees_the_state_moved_by_the_best_candidate():
    """Two candidates each; the planner's second is best, the executor's two tie and the first is kept."""
    said = {"planner hears t0": ["1", "3"], "executor hears t0 3": ["2", "2"]}
    turns = play(Ladder(max_turns=1), says(said), tree(2))
    assert lines(turns, [*PLACES, *LINES]) == [
        ("t0/0", "", 0, 0, "planner", "t0/0.0", 0, False, 0.0, 0.1),
        ("t0/0", "", 0, 0, "planner", "t0/0.1", 1, True, 0.0, 0.3),
        ("t0/1", "t0/0.1", 0, 1, "executor", "t0/1.0", 0, True, 2.0, 0.2),
        ("t0/1", "t0/0.1", 0, 1, "executor", "t0/1.1", 1, False, 2.0, 0.2),
    ]


def test_the_credit_that_picks_decides_and_if_it_is_no_number_its_place_is_named():
    said = {"planner hears t0": ["1", "3"], "executor hears t0 1": ["5", "4"]}
    turns = play(Ladder(max_turns=1), says(said), tree(2, pick=lambda turns: -turns["local_reward"]))
    assert turns["kept"].tolist() == [True, False, False, True]
    said = {"planner hears t0": ["1", "3"], "executor hears t0 1": ["0", "4"]}
    with pytest.raises(TableError, match=r"rollout: .* is nan at .*task 't0'.*agent 'executor', turn 0, candidate 0"):
        play(Ladder(), says(said), tree(2, pick=lambda turns: turns["local_reward"] / turns["local_reward"]))


def test_a_tree_scores_agents_that_act_together_in_acting_order():
    """left is scored against right's first candidate, right against left's kept one; the state moves by both kept."""
    said = {"left hears t0": ["1", "2"], "right hears t0": ["5", "7"],
            "left hears t0 2+7": ["0", "0"], "right hears t0 2+7": ["0", "0"]}  # fmt: skip
    turns = play(Duet(), says(said), tree(2))
    assert lines(turns.head(4), ["agent", "action", *LINES]) == [
        ("left", "t0/0.0-0", 0, False, 15.0, 0.1),
        ("left", "t0/0.1-0", 1, True, 25.0, 0.2),
        ("right", "t0/0.1-0", 0, False, 25.0, 0.5),
        ("right", "t0/0.1-1", 1, True, 27.0, 0.7),
    ]
    assert set(turns["parent"][4:]) == {"t0/0.1-1"} and turns["depth"].tolist() == turns["turn"].tolist()


def test_aligned_joint_actions_by_hand():
    turns = play(Duet(), by_nth, joint(2))
    root, rest = turns.head(4), turns.iloc[4:]
    assert lines(root, ["agent", "action", *LINES]) == [
        ("left", "t0/0.0-0", 0, True, 11.0, 0.1),
        ("left", "t0/0.1-1", 1, True, 22.0, 0.2),
        ("right", "t0/0.0-0", 0, True, 11.0, 0.1),
        ("right", "t0/0.1-1", 1, True, 22.0, 0.2),
    ]
    assert {*zip(rest["node"], rest["parent"], strict=True)} == {("t0/1~0", "t0/0.0-0"), ("t0/1~1", "t0/0.1-1")}
    assert len(rest) == 8 and rest["done"].all() and set(rest["depth"]) == {1} == set(rest["turn"])


def test_a_full_cross_by_hand():
    """Rewards 11, 12, 21, 22: a completion stands once, with the mean over the joint actions it took part in."""
    turns = play(Duet(), by_nth, joint(2, mode="cross"))
    assert lines(turns.head(4), ["agent", "action", *LINES]) == [
        ("left", "t0/0.0-*", 0, True, 11.5, 0.1),
        ("left", "t0/0.1-*", 1, True, 21.5, 0.2),
        ("right", "t0/0.*-0", 0, True, 16.0, 0.1),
        ("right", "t0/0.*-1", 1, True, 17.0, 0.2),
    ]
    parents = {"t0/0.0-0", "t0/0.0-1", "t0/0.1-0", "t0/0.1-1"}
    assert set(turns["parent"][4:]) == parents and len(turns) == 4 + 4 * 4


@pytest.mark.parametrize("mode", ["aligned", "cross"])
@pytest.mark.parametrize("agents", [("a",), ("a", "b"), ("a", "b", "c")])
def test_joint_trees_have_the_returns_of_the_games_that_were_played(mode, agents):
    """The tree is played once more in plain recursion, from the texts of the table alone."""
    env = Duet(agents=agents) if len(agents) > 1 else Ladder(agents=agents)
    turns = play(env, by_seed, joint(2, mode=mode, limit=100))
    texts = {(row.node, row.agent, row.candidate): row.completion for row in turns.itertuples()}
    node_after = dict(zip(turns["parent"], turns["node"], strict=True))

    def nested(name, state):
        node = {"task": "t0", "agents": agents, "g": 2, "mode": mode, "name": name, "reward": {}, "next": {}}
        for action in reference.joint_actions(node):
            said = {agent: texts[name, agent, i] for agent, i in zip(agents, action, strict=True)}
            step = env.step(state, said)
            node["reward"][action] = step.team_reward
            child = node_after.get(f"{name}.{'-'.join(map(str, action))}")
            assert (child is None) == step.done
            if child:
                node["next"][action] = nested(child, step.state)
        return node

    rows = reference.tree_rows(nested("t0/0", env.start(env.tasks(1, "", 0)[0])), 0.5)
    expected = {(row["node"], row["agent"], row["candidate"]): row for row in rows}
    credit = mas_lab.cells.credits.return_to_go(0.5)(turns)
    assert len(expected) == len(turns)
    for row, value in zip(turns.itertuples(), credit, strict=True):
        twin = expected[row.node, row.agent, row.candidate]
        assert (row.parent, row.action, row.depth) == (twin["parent"], twin["action"], twin["depth"])
        assert row.team_reward == pytest.approx(twin["team_reward"]) and value == pytest.approx(twin["return"])


def test_a_joint_branch_stops_at_the_reward_that_is_enough():
    full, cut = (play(Duet(enough=enough), by_nth, joint(2)) for enough in (float("inf"), 22.0))
    assert set(full["parent"]) - set(cut["parent"]) == {"t0/0.1-1"} and len(cut) == 8


@pytest.mark.parametrize("mode", ["aligned", "cross"])
@pytest.mark.parametrize(("rewards", "own", "mean"), [
    # enough is 20: one branch reaches it; the mean is 15, 20, 20.5
    ((10, 20), [0], [0, 1]), ((19, 21), [0], [0, 1]), ((19, 22), [0], []), ((25, 30), [], []),
    ((0, 19), [0, 1], [0, 1]),
])  # fmt: skip
def test_a_branch_stops_by_its_own_reward_or_with_its_siblings_by_their_mean(mode, rewards, own, mean):
    """The right one says the rewards, the left one nothing, so that in a full cross each reward occurs twice."""
    for stop, expected in (("own", own), ("mean", mean)):
        turns = play(Duet(enough=20.0), lambda prompt, nth, _: str(rewards[nth]) if prompt == "right hears t0" else "0",
                     joint(2, mode=mode, stop=stop))  # fmt: skip
        went_on = {parent.rsplit(".", 1)[1] for parent in turns["parent"] if parent}
        lefts = (0, 1) if mode == "cross" else None
        assert went_on == {f"{left}-{right}" for right in expected for left in lefts or (right,)}, stop


def test_a_joint_tree_that_could_exceed_its_limit_is_refused_with_the_number():
    with pytest.raises(ValueError, match=r"2 steps with 16 branches each may hold 272 joint actions, .* limit=271"):
        play(Duet(), by_nth, joint(4, mode="cross", limit=271))
    with pytest.raises(ValueError, match="4 steps with 3 branches each may hold 120 joint actions"):
        play(Ladder(), by_nth, joint(3, limit=119))
    play(Ladder(), by_nth, joint(3, limit=120))


@pytest.mark.parametrize("bad", [
    lambda: episodes(0), lambda: tree(0), lambda: tree(2, follow=-1), lambda: joint(0), lambda: joint(2, mode="star"),
    lambda: joint(2, stop="first"), lambda: without(0),
])  # fmt: skip
def test_plans_refuse_what_they_cannot_play(bad):
    with pytest.raises(ValueError, match=r"episodes|tree|joint|without"):
        bad()


# Turns


def test_max_turns_counts_an_agents_own_turns():
    turns = play(Ladder(max_turns=5), by_nth, episodes(1), max_turns=3)
    assert turns.groupby("agent")["turn"].apply(list).to_dict() == {"executor": [0, 1, 2], "planner": [0, 1, 2]}
    assert turns["done"].tolist() == [False] * 5 + [True]
    with pytest.raises(ValueError, match=r"max_turns=0 .*1 or more"):
        play(Ladder(), by_nth, episodes(1), max_turns=0)


def test_max_turns_bounds_an_env_that_is_no_dataclass_and_has_no_end_of_its_own():
    class Endless:
        agents, max_turns, max_return, pocket, max_tokens = ("planner", "executor"), 2, 1.0, "", 8
        tasks, start, acting, observe = Ladder.tasks, Ladder.start, Ladder.acting, Ladder.observe

        def step(self, state, actions):
            return replace(Ladder.step(self, state, actions), done=False)

    env = Endless()
    turns = play(env, by_nth, tree(2))
    assert turns.groupby("agent")["turn"].max().to_dict() == {"planner": 1, "executor": 1}
    assert len(play(env, by_nth, episodes(1), max_turns=1)) == 2 and env.max_turns == 2


# The driver


def test_a_plan_of_your_own_as_the_module_shows_it():
    """The example of the docstring runs, and plays what `episodes(1)` plays."""
    source = textwrap.dedent(mas_lab.cells.plans.__doc__[mas_lab.cells.plans.__doc__.index("    @dataclass") :])
    names = {"dataclass": dataclass, "Generate": Generate, "StepEnv": StepEnv}
    exec(source, names)
    mine = play(Ladder(), by_seed, names["greedy_two"](), tasks=3)
    assert mine.equals(play(Ladder(), by_seed, episodes(1), tasks=3)) and len(mine) == 12


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


@pytest.mark.parametrize("env", [Ladder(), Duet()])
@pytest.mark.parametrize("plan", [episodes(3), tree(3, follow=1), joint(2)])
@pytest.mark.parametrize("workers", [None, 3])
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


@pytest.mark.parametrize("plan", [tree(2), episodes(2), tree(2, follow=1)])
@pytest.mark.parametrize("kind", [Ladder, Duet])
def test_up_to_16_agents_play_and_cost_grows_linearly(plan, kind):
    calls = []

    class Counted(kind):
        def step(self, state, actions):
            calls.append(1)
            return super().step(state, actions)

    rows, steps = {}, {}
    for n in (4, 8, 16):
        calls.clear()
        env = Counted(agents=tuple(f"agent{i}" for i in range(n)), max_turns=2)
        turns = play(env, by_nth, plan)
        rows[n], steps[n] = len(turns[~turns["probe"]]), len(calls)
        assert turns["agent"].nunique() == n
    assert rows[16] == 2 * rows[8] == 4 * rows[4] == 16 * 2 * 2
    if plan == tree(2):  # every candidate is scored once
        assert steps == rows
    if plan == episodes(2):
        assert steps == (rows if kind is Ladder else dict.fromkeys(rows, 4))


@pytest.mark.parametrize("workers", [None, 4])
def test_workers_step_the_world_in_threads(workers):
    seen = set()

    class Watched(Ladder):
        def step(self, state, actions):
            seen.add(threading.current_thread() is threading.main_thread())
            return super().step(state, actions)

    play(Watched(), by_nth, tree(3), tasks=4, workers=workers)
    assert seen == {workers is None}


# What breaks, and where


@pytest.mark.parametrize("workers", [None, 2])
@pytest.mark.parametrize("step, error, message", [
    (lambda *_: 1 / 0, RolloutError, r"Bad.step failed for task 't0', agent 'executor', turn 0: ZeroDivisionError"),
    (lambda *_: None, EnvError, r"Bad.step: it returned NoneType for task 't0', agent 'executor', turn 0"),
    (lambda s, a: Step(s, float("nan"), {"executor": 0.0}, {"executor": True}, False, True), EnvError,
     r"team_reward is nan for task 't0', agent 'executor', turn 0"),
    (lambda s, a: Step(s, 0.0, {"executor": float("inf")}, {"executor": True}, False, True), EnvError,
     r"local_rewards\['executor'\] is inf for task 't0', agent 'executor', turn 0"),
    (lambda s, a: Step(s, None, {"executor": 0.0}, {"executor": True}, False, True), EnvError,
     r"team_reward is None for task 't0', agent 'executor', turn 0"),
    (lambda s, a: Step(s, 0.0, {"planner": 0.0}, {"executor": True}, False, True), EnvError,
     r"has no local reward or no `valid` for task 't0', agent 'executor', turn 0"),
])  # fmt: skip
def test_a_step_that_breaks_is_an_error_that_names_its_place(step, error, message, workers):
    class Bad(Ladder):
        def step(self, state, actions):
            return step(state, actions) if "executor" in actions else super().step(state, actions)

    for plan in (episodes(1), tree(2)):
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
    """Raises `error` for each chat of the executor."""

    error = None

    def encode(self, messages):
        if self.error and "executor" in messages[-1]["content"]:
            raise self.error
        return super().encode(messages)


@pytest.mark.parametrize("env, error, words", [
    (Blind(), None, "Blind.observe failed for task 't0', agent 'executor', turn 0: KeyError"),
    (Ladder(), PolicyError("policy 'x': unknown"), "task 't0', agent 'executor', turn 0: policy 'x': unknown"),
    (Ladder(), TypeError("no role 'tool' here"),
     "agent 'executor', turn 0: its policy's chat template cannot write the prompt: TypeError: no"),
])  # fmt: skip
def test_a_prompt_that_cannot_be_made_names_its_place(env, error, words):
    policy = Unable(by_nth)
    policy.error = error
    with pytest.raises(RolloutError, match=re.escape(words)):
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


# Real draws


RELAY = Relay()
TASKS = RELAY.tasks(4, "train", 0)
DRAWN = ["node", "agent", "candidate", "parent", "kept", "completion", "finish", "team_reward", "local_reward"]


def same_draws(one, other):
    """The same calls in any order, with the same tokens; log-probabilities up to float noise."""
    one, other = (t.sort_values(["node", "agent", "candidate"], ignore_index=True) for t in (one, other))
    logprobs = [np.concatenate(turns["logprobs"].tolist()) for turns in (one, other)]
    same = one[DRAWN].equals(other[DRAWN]) and one["completion_ids"].tolist() == other["completion_ids"].tolist()
    return same and np.abs(logprobs[0] - logprobs[1]).max() < 1e-4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("plan", [episodes(2), tree(3, follow=1), joint(2), without(2)])
def test_a_draw_depends_on_its_place_alone(kind, plan, models):
    """Twice, in threads, in another order, and each task alone: the same tokens."""
    team, env = make_team(kind, models), Relay(together=isinstance(plan, joint))
    turns = rollout(env, team, TASKS, plan, seed=7, step=2)
    assert same_draws(turns, rollout(env, team, TASKS, plan, seed=7, step=2, workers=4))
    assert same_draws(turns, rollout(env, team, TASKS[::-1], plan, seed=7, step=2))
    alone = rollout(env, team, TASKS[2:3], plan, seed=7, step=2)
    assert same_draws(turns[turns["task"] == TASKS[2].id], alone)


def test_seed_step_and_candidate_change_the_draws(models):
    team = make_team("shared", models)
    turns = rollout(RELAY, team, TASKS, tree(6))
    first = turns[turns["depth"] == 0]
    assert first.groupby("node")["completion"].nunique().min() > 1
    assert first.groupby("candidate")["completion"].nunique().min() > 1
    for other in ({"seed": 1}, {"step": 1}):
        again = rollout(RELAY, team, TASKS, tree(6), **other)
        assert again[again["depth"] == 0]["completion"].tolist() != first["completion"].tolist()


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.3])
def test_traps_3_to_6_the_table_holds_what_was_sampled(temperature, models):
    """EOS once, last, iff it ended the text; log-probabilities are the full distribution's at T, by the plain model.

    Nothing is read back from text: ids that the tokenizer would not give again are there as they were sampled.
    """
    team = make_team("unlike", models).with_sampling(Sampling(temperature=temperature))
    turns = rollout(RELAY, team, RELAY.tasks(8, "train", 0), tree(4), seed=1)
    changed = 0
    for row in turns.itertuples():
        policy = team[row.agent]
        eos = policy.tokenizer.eos_token_id
        assert (row.finish == "eos") == (row.completion_ids[-1] == eos) and eos not in row.completion_ids[:-1]
        assert row.finish == "eos" or len(row.completion_ids) == RELAY.max_tokens
        assert row.temperature == temperature
        ids = torch.tensor([row.prompt_ids + row.completion_ids])
        with torch.no_grad():
            logits = policy.model(input_ids=ids).logits[0, len(row.prompt_ids) - 1 : -1].double()
        expected = (logits / temperature).log_softmax(-1).gather(1, ids[0, len(row.prompt_ids) :, None])[:, 0]
        assert row.logprobs == pytest.approx(expected.tolist(), abs=1e-4)
        changed += policy.tokenizer(row.completion)["input_ids"] != row.completion_ids
    assert set(turns["finish"]) == {"eos", "length"}
    assert 0 < changed < len(turns)


def test_trap_6_nothing_is_cut_from_the_distribution(models):
    team = make_team("shared", models).with_sampling(Sampling(temperature=50.0))
    turns = rollout(RELAY, team, RELAY.tasks(8, "train", 0), tree(24))
    vocabulary = team["asker"].model.config.vocab_size
    counts = np.bincount(np.concatenate(turns["completion_ids"].tolist()), minlength=vocabulary)
    assert (counts > 0.5 * counts.sum() / vocabulary).all()


def test_a_text_is_bounded_by_the_env_or_by_the_teams_settings(models):
    team = make_team("shared", models).with_sampling({"doer": Sampling(max_tokens=1)})
    turns = rollout(RELAY, team, TASKS, episodes(2))
    longest = turns["completion_ids"].map(len).groupby(turns["agent"]).max()
    assert longest.to_dict() == {"asker": RELAY.max_tokens, "doer": 1}


# Continuations


@pytest.mark.parametrize("together", [False, True])
def test_counterfactual_is_the_mean_of_the_continuations_that_were_played(together, models):
    env, team = Relay(together=together, max_turns=3), make_team("per_agent", models)
    turns = rollout(env, team, TASKS, tree(3, follow=2), seed=3)
    main, probes = turns[~turns["probe"]], turns[turns["probe"]]
    expected = reference.counterfactual(turns.to_dict("records"))
    credit = counterfactual()(turns)
    assert credit[main.index].tolist() == pytest.approx([expected[place] for place in main.index])
    followed = probes[~probes["parent"].isin(probes["action"])].groupby("parent")["episode"].nunique()
    going_on = main.loc[~main["done"] & (main["turn"] < 2), "action"]
    assert set(going_on) <= set(followed.index) <= set(main["action"]) and set(followed) == {2}
    assert credit[~turns["probe"]].nunique() > 4


def test_continuations_change_neither_the_main_line_nor_its_return(models):
    team = make_team("shared", models)
    plain, followed = (rollout(RELAY, team, TASKS, tree(3, follow=m)) for m in (0, 2))
    main = followed[~followed["probe"]].reset_index(drop=True)
    assert same_draws(plain, main) and len(followed) > 2 * len(main)
    returns = episode_return()(followed)[~followed["probe"]]
    assert returns.tolist() == pytest.approx(episode_return()(plain).tolist())


def test_a_return_is_never_counted_twice(models):
    """What the world paid on the kept path, each step once: proposals pay nothing, joint steps stand in two rows."""
    for together in (False, True):
        env = Relay(together=together)
        turns = rollout(env, make_team("shared", models), TASKS, episodes(4))
        turns = turns.assign(earned=episode_return()(turns))
        for _, rows in turns.groupby("episode"):
            paid = rows.groupby("depth")["team_reward"].first().sum()
            assert rows["earned"].tolist() == pytest.approx([paid] * len(rows)) and paid <= env.max_return
        assert (turns["team_reward"] != 0).groupby(turns["agent"]).any()["asker"] == together


def test_continuations_are_never_trained_on(models):
    team = make_team("shared", models)
    turns = rollout(RELAY, team, TASKS, tree(3, follow=2, pick=mixed()))
    turns = RECIPES["at_grpo"].replace(credit=counterfactual()).advantages(turns)
    assert (turns.loc[turns["probe"], "advantage"] == 0).all() and turns.loc[~turns["probe"], "advantage"].any()
    stats = mas_lab.update(team, turns)
    assert stats["turns"].sum() == (~turns["probe"]).sum()


# Replays without an agent


def test_a_replay_without_an_agent_by_hand():
    """Planner 1, executor 3, planner 2, executor 4 earn 3 + 4. Without the executor its moves earn nothing, and the
    planner's first word stands; without the planner the executor hears nothing and says 5 each time."""
    said = {"planner hears t0": ["1"], "executor hears t0 1": ["3"], "planner hears t0 1 3": ["2"],
            "executor hears t0 1 3 2": ["4"], "planner hears t0 1 ": ["9"], "executor hears t0 ": ["5"],
            "executor hears t0  5 ": ["5"]}  # fmt: skip
    turns = play(Ladder(), says(said), without(1))
    alone = turns[turns["removed"] == "executor"]
    assert lines(alone, ["node", "parent", "agent", "completion", "team_reward", "policy"]) == [
        ("t0 without executor/1", "t0/0.0", "executor", "", 0.0, ""),
        ("t0 without executor/2", "t0 without executor/1.0", "planner", "9", 0.0, "shared"),
        ("t0 without executor/3", "t0 without executor/2.0", "executor", "", 0.0, ""),
    ]
    assert turns.loc[turns["removed"] == "planner", "completion"].tolist() == ["", "5", "", "5"]
    assert turns["probe"].tolist() == (turns["removed"] != "").tolist() and turns["kept"].all()
    main = turns[~turns["probe"]]
    assert difference_return()(turns)[main.index].tolist() == [7 - 10, 7 - 0, 7 - 10, 7 - 0]


def test_agents_that_act_together_keep_what_they_said_when_one_is_left_out():
    turns = play(Duet(), by_side, without(1, agents=("left",), says="7"))
    replay = turns[turns["probe"]]
    assert lines(replay[replay["depth"] == 0], ["agent", "completion"]) == [("left", "7"), ("right", "4")]
    assert set(turns["removed"]) == {"", "left"}


def test_replays_change_nothing_else_and_are_not_trained_on(models):
    team = make_team("shared", models)
    turns = RECIPES["ccpo"].replace(plan=without(2)).advantages(rollout(RELAY, team, TASKS, without(2)))
    assert same_draws(rollout(RELAY, team, TASKS, episodes(2)), turns[~turns["probe"]].reset_index(drop=True))
    assert (turns.loc[turns["probe"], "advantage"] == 0).all() and turns["advantage"].any()
    assert mas_lab.update(team, turns)["turns"].sum() == (~turns["probe"]).sum()


def test_alternatives_of_c3_are_compared_with_the_mean_of_the_others(models):
    turns = rollout(RELAY, make_team("shared", models), TASKS, tree(3, follow=2))
    advised = RECIPES["c3"].replace(plan=tree(3, follow=2)).advantages(turns)
    main = advised[~advised["probe"]]
    for _, rows in main.groupby("node"):
        credit = rows["credit"].tolist()
        assert rows["advantage"].tolist() == pytest.approx([own - (sum(credit) - own) / 2 for own in credit])
    assert main["advantage"].abs().max() > 0


def test_without_a_stranger():
    with pytest.raises(ValueError, match=r"without: no agent is named 'judge'; they are .*'planner'"):
        play(Ladder(), by_nth, without(1, agents=("judge",)))


# What the world tells, and pays to those who did not act


def by_side(prompt, nth, seed):
    return "3" if prompt.startswith("left") else "4"


def test_what_a_step_tells_is_a_column_that_credits_read():
    turns = play(Duel(), by_side, episodes(2))
    assert turns["info"].tolist() == [{}, {"said": [3, 4]}] * 2

    @dataclass(frozen=True)
    class told:
        def __call__(self, turns):
            return column(turns, "info").map(lambda info: float(sum(info.get("said", ()))))

    credits = mas_lab.group(turns, ("task", "agent"), told())["credit"]
    assert credits.tolist() == [0.0, 7.0] * 2
    assert told()(turns.drop(columns="info")).tolist() == [0.0] * 4


def test_a_completion_of_several_joint_actions_lists_what_each_told():
    class Tells(Duet):
        def step(self, state, actions):
            return replace(super().step(state, actions), info={"both": "".join(actions.values())})

    turns = play(Tells(max_turns=1), by_nth, joint(2, mode="cross"))
    first = turns[(turns["agent"] == turns["agent"].iloc[0]) & (turns["candidate"] == 0)]
    assert first["info"].tolist() == [[{"both": "11"}, {"both": "12"}]]


def test_info_that_is_not_plain_is_refused_with_its_place():
    class Strange(Duel):
        def step(self, state, actions):
            return replace(super().step(state, actions), info={"said": {1, 2}})

    words = r"Strange.step: info\['said'\] is \{1, 2\} \(set\).*task 'train0-0', agent 'left'"
    with pytest.raises(EnvError, match=words):
        play(Strange(), by_nth, episodes(1))


def test_whole_episodes_pay_who_did_not_act_at_its_last_call():
    turns = play(Duel(), by_side, episodes(2))
    paid = [("left", -1.0, 0.0), ("right", 1.0, 0.0)] * 2
    assert lines(turns, ["agent", "local_reward", "team_reward"]) == paid
    assert own_return()(turns).tolist() == [-1.0, 1.0] * 2


def test_a_reward_for_a_call_long_past_goes_to_its_last_one_on_the_path():
    class Late(Ladder):
        """Pays the planner with the executor's last words, too."""

        def step(self, state, actions):
            step = super().step(state, actions)
            both = {**step.local_rewards, "planner": 10.0} if step.done else step.local_rewards
            return replace(step, local_rewards=both)

    plain, late = (play(env, lambda *asked: "1", episodes(2)) for env in (Ladder(), Late()))
    more = late["local_reward"] - plain["local_reward"]
    assert more.tolist() == [0.0, 0.0, 10.0, 0.0] * 2
    assert set(late["agent"][more > 0]) == {"planner"}


@pytest.mark.parametrize("plan", [tree(2), tree(2, follow=1), joint(2), joint(2, mode="cross")])
def test_where_candidates_are_compared_nobody_else_is_paid(plan):
    with pytest.raises(EnvError, match=r"pays agent 'left', which did not act, in task 'train0-0' .* episodes\(n\)"):
        play(Duel(), by_nth, plan)


@pytest.mark.parametrize("who, words", [
    ("right", "pays agent 'right' in task 'train0-0' at .*, but the agent has not acted"),
    ("referee", "pays 'referee' for task 'train0-0', agent 'left', turn 0; the env plays"),
])  # fmt: skip
def test_who_has_not_spoken_or_is_a_stranger_cannot_be_paid(who, words):
    class Early(Duel):
        def step(self, state, actions):
            return replace(super().step(state, actions), local_rewards={"left": 0.0, who: 1.0})

    with pytest.raises(EnvError, match=words):
        play(Early(), by_nth, episodes(1))


@pytest.mark.parametrize("cut", [{"top_p": 0.9}, {"top_k": 3}])
def test_what_is_trained_on_is_drawn_from_the_full_distribution(cut):
    env = Ladder()
    team = team_of(env, by_nth).with_sampling(Sampling(**cut))
    with pytest.raises(ValueError, match=r"agent 'planner' samples with top_p=.*training moves.*evaluate"):
        rollout(env, team, env.tasks(1, "train", 0), episodes(1))


def test_tool_messages_stand_in_the_prompt():
    class Tools(Ladder):
        def observe(self, state, agent):
            told = {"role": "tool", "name": "add", "tool_call_id": "7", "content": "3"}
            return [told, *super().observe(state, agent)]

    assert play(Tools(), by_nth, episodes(1))["prompt"].iloc[0].startswith("tool add 7: 3\nuser: planner hears t0")


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


def test_policies_of_one_team_do_not_share_tokens():
    class Upper(Batched):
        def encode_all(self, chats):
            return [list(chat[-1]["content"].upper().encode()) for chat in chats]

    class Alike(Ladder):
        def observe(self, state, agent):
            return [{"role": "user", "content": "all hear this"}]

    env = Alike(max_turns=1)
    team = Team(dict(zip(env.agents, (Batched(), Upper()), strict=True)))
    turns = rollout(env, team, env.tasks(1, "train", 0), episodes(1))
    assert [bytes(ids) for ids in turns["prompt_ids"]] == [b"all hear this", b"ALL HEAR THIS"]
