"""How plans explore: what is recorded, continuations, and replays without an agent."""

import textwrap
from dataclasses import dataclass

import pytest
import reference
from scripted import LINES, PLACES, Duet, Ladder, by_nth, by_seed, by_side, lines, play, same_draws, says
from small import Relay, make_team

import mas_lab
import mas_lab.cells.plans
from mas_lab.cells.credits import counterfactual, difference_return, episode_return, mixed
from mas_lab.cells.episode import Generate, StepEnv
from mas_lab.cells.plans import episodes, joint, tree, without
from mas_lab.cells.rollout import rollout
from mas_lab.recipes import RECIPES
from mas_lab.table import ROLLOUT, TableError

RELAY = Relay()
TASKS = RELAY.tasks(4, "train", 0)


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


def test_a_pick_sees_the_candidates_of_one_node_alone():
    """Both tasks wait for their picks at once. The best of t0 is not as good as that of t1."""
    said = {"planner hears t0": ["1", "2"], "executor hears t0 2": ["0", "0"],
            "planner hears t1": ["5", "4"], "executor hears t1 5": ["0", "0"]}  # fmt: skip
    best = tree(2, pick=lambda turns: (turns["local_reward"] >= turns["local_reward"].max()).astype(float))
    turns = play(Ladder(max_turns=1), says(said), best, tasks=2)
    planner = turns[turns["agent"] == "planner"]
    assert planner["kept"].tolist() == [False, True, True, False]


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


@pytest.mark.parametrize("mode", ["aligned", "cross"])
@pytest.mark.parametrize("agents", [("a",), ("a", "b"), ("a", "b", "c")])
def test_joint_trees_have_the_returns_of_the_games_that_were_played(mode, agents):
    """The tree is played once more in plain recursion, from the texts of the table alone.

    A completion of a cross stands once, with the mean over the joint actions it took part in.
    """
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
    assert len(expected) == len(turns) and turns["kept"].all()
    for row, value in zip(turns.itertuples(), credit, strict=True):
        twin = expected[row.node, row.agent, row.candidate]
        assert (row.parent, row.action, row.depth) == (twin["parent"], twin["action"], twin["depth"])
        assert row.team_reward == pytest.approx(twin["team_reward"]) and value == pytest.approx(twin["return"])


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
    lambda: episodes(0), lambda: tree(2, follow=-1), lambda: joint(2, mode="star"), lambda: joint(2, stop="first"),
])  # fmt: skip
def test_plans_refuse_what_they_cannot_play(bad):
    with pytest.raises(ValueError, match=r"episodes|tree|joint|without"):
        bad()


def test_a_plan_of_your_own_as_the_module_shows_it():
    """The example of the docstring runs, and plays what `episodes(1)` plays."""
    source = textwrap.dedent(mas_lab.cells.plans.__doc__[mas_lab.cells.plans.__doc__.index("    @dataclass") :])
    names = {"dataclass": dataclass, "Generate": Generate, "StepEnv": StepEnv}
    exec(source, names)
    mine = play(Ladder(), by_seed, names["greedy_two"](), tasks=3)
    assert mine.equals(play(Ladder(), by_seed, episodes(1), tasks=3)) and len(mine) == 12


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


@pytest.mark.parametrize("plan, plain, recipe", [
    (tree(3, follow=2, pick=mixed()), tree(3, pick=mixed()), RECIPES["at_grpo"].replace(credit=counterfactual())),
    (without(2), episodes(2), RECIPES["ccpo"]),
])  # fmt: skip
def test_what_only_values_candidates_changes_nothing_else_and_is_not_trained_on(plan, plain, recipe, models):
    team = make_team("shared", models)
    turns, other = (rollout(RELAY, team, TASKS, one) for one in (plan, plain))
    main = ~turns["probe"]
    assert same_draws(other, turns[main].reset_index(drop=True)) and len(turns) > main.sum() > 0
    assert episode_return()(turns)[main].tolist() == pytest.approx(episode_return()(other).tolist())
    turns = recipe.advantages(turns)
    assert (turns.loc[turns["probe"], "advantage"] == 0).all() and turns["advantage"].any()
    assert mas_lab.update(team, turns)["turns"].sum() == main.sum()


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
