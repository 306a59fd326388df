"""The examples: each runs, on public names alone, and keeps its laws: numbers by hand, and the contract of an env."""

import importlib
import json
import random
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import critic
import dpo
import numpy as np
import pandas as pd
import pettingzoo_env
import pytest
import reasoning_gym_env
import small
import textarena_env
import torch
from plays import in_turn

import mas_lab as lab

ROOT = Path(__file__).resolve().parents[1]
GAMES = ("pettingzoo", "pygame")
NEEDS = {
    "critic": (), "dpo": (), "pettingzoo_env": (*GAMES, "trl"), "reasoning_gym_env": ("reasoning_gym", "trl"),
    "textarena_env": ("textarena", "trl"),
}  # fmt: skip
"""Example -> the packages without which its `main` is skipped."""
TEAM = {"a": None, "b": None}
PLAYED = pd.DataFrame(
    [("e", 0, "a", 0.0, [0]), ("e", 1, "b", 1.0, [1]), ("e", 2, "a", 2.0, [2]), ("e", 3, "b", 4.0, [3])],
    columns=["episode", "depth", "agent", "team_reward", "prompt_ids"],
)
HIDDEN = (0.5, 0.25, 1.5, 2.0)
"""The hidden state of each prompt of `PLAYED`, which is its value under the weights of `ready`."""


def needs(*packages):
    for package in packages:
        pytest.importorskip(package, reason=f"{package} is not installed: make games")


def test_every_example_is_listed_and_uses_public_names_alone():
    paths = list((ROOT / "examples").glob("*.py"))
    assert sorted(NEEDS) == sorted(path.stem for path in paths)
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert re.findall(r"^ *(?:import|from) mas_lab.*", text, re.MULTILINE) == ["import mas_lab as lab"]
        assert f"python examples/{path.name}" in text


@pytest.mark.parametrize(
    "name", [name if not NEEDS[name] else pytest.param(name, marks=pytest.mark.slow) for name in NEEDS]
)
def test_an_example_trains_and_says_what_it_learned(name, capsys):
    needs(*NEEDS[name])
    main = importlib.import_module(name).main
    main(steps=1, tasks=2, **({"lessons": 2} if NEEDS[name] else {}))
    assert capsys.readouterr().out


# critic.py


@pytest.fixture
def known(monkeypatch):
    found = {prompt: np.array([value]) for prompt, value in enumerate(HIDDEN)}
    monkeypatch.setattr(critic, "hidden_states", lambda policy, prompts: np.array([found[one[0]] for one in prompts]))


def ready(**options):
    """A critic whose value is the sum of the hidden states that it reads."""
    state = {"a": [1.0, 0.0], "b": [1.0, 0.0], "all": [1.0, 1.0, 0.0]}
    return critic.critic(**options, state=state)


@pytest.mark.parametrize(("lam", "expected"), [
    (0.0, [1 + 0.5 * 1.5 - 0.5, 3 + 0.5 * 2 - 0.25, 6 - 1.5, 4 - 2.0]),
    (1.0, [1.25 + 0.5 * 4.5, 3.75 + 0.5 * 2, 4.5, 2.0]),
])  # fmt: skip
def test_independent_critics_by_hand(known, lam, expected):
    """Agent a earns 0 + 1 until its next turn, then 2 + 4; agent b earns 1 + 2, then 4."""
    made = ready(gamma=0.5, lam=lam)
    assert made(PLAYED, TEAM).tolist() == pytest.approx(expected)
    features_Mh, values_M, targets_M = made.targets(PLAYED, TEAM)["a"]
    assert features_Mh.tolist() == [[0.5, 1.0], [1.5, 1.0]] and values_M.tolist() == [0.5, 1.5]
    assert targets_M.tolist() == pytest.approx([expected[0] + 0.5, expected[2] + 1.5])


def test_a_central_critic_sees_the_last_prompt_of_every_agent(known):
    """V is the sum of what a and b saw last: 0.5, 0.75, 1.75, 3.5; rewards 0, 1, 2, 4."""
    assert ready(central=True, gamma=0.5)(PLAYED, TEAM).tolist() == pytest.approx([-0.125, 1.125, 2.0, 0.5])


def test_agents_that_act_together_share_one_advantage(known):
    together = PLAYED.assign(depth=[0, 0, 1, 1], team_reward=[1.0, 1.0, 2.0, 2.0])
    credit = ready(central=True)(together, TEAM).tolist()
    assert credit == pytest.approx([1 + 3.5 - 0.75, 1 + 3.5 - 0.75, 2 - 3.5, 2 - 3.5])
    assert ready()(together, TEAM).tolist() == pytest.approx([2, 1 + 2 - 0.25, 0.5, 0])


@pytest.mark.parametrize("central", [False, True])
def test_the_order_and_the_index_of_rows_change_nothing(known, central):
    twice = pd.concat([PLAYED, PLAYED.assign(episode="d", prompt_ids=[[3], [0], [2], [1]])], ignore_index=True)
    one, other = (ready(lam=0.5, central=central)(rows, TEAM) for rows in (twice, twice[::-1]))
    pd.testing.assert_series_equal(one, other.sort_index())


def test_critics_learn_and_go_on_from_their_state(known):
    made = critic.critic(lam=1.0, ridge=0.01)
    for _ in range(5):
        made = made.after(PLAYED, TEAM)
    again = replace(made, state=json.loads(json.dumps(made.state)))
    assert made(PLAYED, TEAM).abs().max() < 0.01 and made.after(PLAYED, TEAM).state == again.after(PLAYED, TEAM).state


@pytest.mark.parametrize("kind", ["shared", "lora"])
def test_hidden_states_are_those_that_predict_the_first_token(kind, models):
    team = small.make_team(kind, models)
    turns = lab.rollout(small.Relay(), team, small.Relay().tasks(3, "train", 0), lab.episodes(2))
    for agent, own in turns.groupby("agent"):
        hidden_Rh = torch.tensor(critic.hidden_states(team[agent], own["prompt_ids"].tolist())).float()
        logits_RV = team[agent].model.get_output_embeddings()(hidden_Rh)
        first_R = torch.tensor([ids[0] for ids in own["completion_ids"]])
        found_R = logits_RV.log_softmax(-1).gather(1, first_R[:, None])[:, 0].tolist()
        assert found_R == pytest.approx([logprobs[0] for logprobs in own["logprobs"]], abs=1e-4)


def test_a_run_goes_on_with_its_critic(models, tmp_path):
    ends = []
    for folder, stops in (("whole", [2]), ("cut", [1, 2])):
        team = small.make_team("per_agent", models)
        for stop in stops:
            *_, report = lab.train(small.Relay(), team, critic.MAAC, stop, run=tmp_path / folder, tasks=2, check=False)
        ends.append(report.turns)
    pd.testing.assert_frame_equal(*ends)
    assert small.bits(tmp_path / "cut") == small.bits(tmp_path / "whole")


# dpo.py


def pairs(earned, said):
    """One node with two agents; `said` has the log-probabilities of each joint action's two completions."""
    rows = [("n", i, agent, f"n.{i}-{i}", [said[i][seat]], earned[i], "")
            for i in range(len(earned)) for seat, agent in enumerate("ab")]  # fmt: skip
    names = ["node", "candidate", "agent", "action", "logprobs", "team_reward", "parent"]
    return pd.DataFrame(rows, columns=names).assign(depth=0, kept=True)


def test_preferences_by_hand():
    """Equal log-probabilities: sigmoid(0) = 1/2. Of three joint actions that earn 2, 1, 1 there are two pairs, so the
    best has 3 * beta / 2 and the others half of it; of two equal ones there is none."""
    credit = dpo.preference(0.1)
    assert credit(pairs([2.0, 1.0, 1.0], [(-1, -1)] * 3)).tolist() == pytest.approx([0.15] * 2 + [-0.075] * 4)
    assert credit(pairs([1.0, 1.0], [(-1, -2), (-3, -4)])).tolist() == [0.0] * 4


def test_a_preference_is_the_gradient_of_the_loss_over_pairs():
    earned, said = [3.0, 1.0, 2.0, 1.0], [(-1.0, -2.0), (-0.5, -0.25), (-3.0, -0.1), (-2.0, -2.0)]
    said_K2 = torch.tensor(said, dtype=torch.float64, requires_grad=True)
    sums_K = said_K2.sum(1)
    losses = [-torch.nn.functional.logsigmoid(0.5 * (sums_K[w] - sums_K[x]))
              for w in range(4) for x in range(4) if earned[w] > earned[x]]  # fmt: skip
    torch.stack(losses).mean().backward()
    assert dpo.preference(0.5)(pairs(earned, said)).tolist() == pytest.approx((-4 * said_K2.grad).flatten().tolist())


def test_a_reference_is_subtracted(models):
    """Where the weights are still those of the reference, every pair has the weight beta / 2."""
    env, team = small.Relay(together=True), small.make_team("per_agent", models)
    turns = lab.rollout(env, team, env.tasks(2, "train", 0), lab.joint(3))
    alike = dpo.preference()(turns.assign(logprobs=[[0.0]] * len(turns)))
    found = dpo.preference(reference=str(models / "a"))(turns)
    assert found.tolist() == pytest.approx(alike.tolist(), abs=1e-6) and alike.abs().max() > 0
    assert (found - dpo.preference()(turns)).abs().max() > 1e-3


# pettingzoo_env.py


def play(env, *moves):
    return [step for _, step in in_turn(env, env.tasks(1, "train", 0)[0], moves)]


@pytest.mark.slow
def test_a_world_keeps_the_contract_pays_three_in_a_row_and_ends_at_no_legal_move():
    needs(*GAMES)
    tictactoe = pettingzoo_env.tictactoe()
    lab.check_env(tictactoe, tasks=4)
    *_, last = play(tictactoe, "0", "3", "1", "4", "2")
    assert last.local_rewards == {"player_1": 1.0, "player_2": -1.0} and last.success and last.done
    *_, last = play(tictactoe, "0", "3", "1", "4", "8", "5")
    assert last.local_rewards == {"player_1": -1.0, "player_2": 1.0} and not last.success and last.done
    (first,) = play(tictactoe, "4")
    one, other, again = (tictactoe.step(first.state, {"player_2": text}).state for text in ("0", "8", "0"))
    assert one == again != other
    for said in ("?", "9", "4"):
        *_, last = play(tictactoe, "4", said)
        assert last.done and last.valid == {"player_2": False}
        assert last.local_rewards == {"player_1": 0.0, "player_2": -1.0} and last.success


# textarena_env.py


@pytest.mark.slow
def test_a_game_keeps_the_contract_pays_its_winner_and_lets_a_refused_move_be_given_again():
    needs("textarena")
    lab.check_env(textarena_env.TextArena("SecretMafia-v0", 6), tasks=3)
    env = textarena_env.TextArena("TicTacToe-v0")
    *before, last = play(env, "[0]", "[3]", "[1]", "[4]", "[2]")
    assert last.local_rewards == {"player_0": 1.0, "player_1": -1.0} and last.success and last.done
    assert not any(sum(step.local_rewards.values()) or step.done for step in before)
    steps = play(env, "[0]", "[0]", "[1]", "nonsense", "[2]")
    assert [one for step in steps for one in step.valid.values()] == [True, False, True, False, True]
    *_, last = play(env, "[0]", "[0]", "[0]")
    assert not last.valid["player_1"] and last.local_rewards == {"player_0": 1.0, "player_1": -1.0}
    *_, last = play(replace(env, max_turns=2), "[0]", "[1]", "[2]", "[3]")
    assert last.done and not last.success and last.local_rewards == {"player_1": 0.0}


@pytest.mark.slow
def test_the_dice_of_a_game_depend_on_its_task_and_turn_alone():
    needs("textarena")
    env = textarena_env.TextArena("PigDice-v0")
    state, before = env.start(lab.Task("t", {"seed": 3})), random.getstate()
    first, other, again = (env.step(state, {"player_0": move}).state for move in ("[roll]", "[hold]", "[roll]"))
    assert first == again != other and random.getstate() == before


# reasoning_gym_env.py


def posed(dataset="chain_sum", **options):
    needs("reasoning_gym")
    env = reasoning_gym_env.ReasoningGym(dataset=dataset, **options)
    [task] = env.tasks(1, "train", 0)
    return env, task, env.start(task)


@pytest.mark.parametrize("options", [{"config": {"min_digits": 1, "max_digits": 1}}, {"fixer": True, "size": "full"}])
def test_generated_problems_keep_the_contract_and_pay_a_right_answer_that_is_approved(options):
    env, task, state = posed(**options)
    lab.check_env(env, tasks=3)
    said = env.demonstrate(state, "solver", SimpleNamespace(random=lambda: 1.0))
    drafted = env.step(state, {"solver": said})
    assert task.data["gold"] in said and drafted.local_rewards == {"solver": 1.0} and not drafted.done
    judged = env.step(drafted.state, {"verifier": "<verdict>approve</verdict>" if env.full else "approve"})
    assert (judged.team_reward, judged.success, judged.done) == (1.0, True, True)


def test_the_generator_judges_where_many_answers_are_right():
    env, task, state = posed("countdown", size="full")
    assert env.is_right(task.data["gold"], state) and env.is_right(f"({task.data['gold']})", state)
    assert not env.is_right(f"({task.data['gold']}) + 0", state)  # uses a number that is not there


@pytest.mark.parametrize("dataset", ["spiral_matrix", "countdown", "string_insertion", "n_queens", "binary_matrix"])
def test_an_answer_is_not_run(dataset, tmp_path):
    """These generators pass an answer to `eval`, or to what calls it."""
    env, _, state = posed(dataset, size="full")
    here = tmp_path / "ran"
    for answer in (f"open('{here}', 'w')", f"[open('{here}','w') for a in [1]]", "9**9**9**9", "x**999999999",
                   "a" * 100_000, "[" * 5000):  # fmt: skip
        assert not env.is_right(answer, state) and not here.exists()
