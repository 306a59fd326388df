"""Games of TextArena: pure steps over games that change, who is paid what, and self-play on the real package."""

import random
import re

import pytest
from plays import in_turn

import mas_lab as lab
from mas_lab.check import check_env
from mas_lab.env import EnvError, Task

pytestmark = pytest.mark.slow
pytest.importorskip("textarena", reason="TextArena is not installed: make games")
GAMES = {"TicTacToe-v0": 2, "KuhnPoker-v0": 2, "GuessTheNumber-v0": 1, "ThreePlayerTicTacToe-v0": 3,
         "SecretMafia-v0": 6}  # fmt: skip


@pytest.mark.parametrize("id", GAMES)
def test_the_contract_holds(id):
    env = lab.from_textarena(id)
    assert env.players == GAMES[id] and env.competitive == (env.players > 1)
    check_env(env, tasks=3)


def play(env, *moves):
    return in_turn(env, env.tasks(1, "train", 0)[0], moves)


def test_a_win_is_a_gain_and_a_loss():
    steps = play(lab.from_textarena("TicTacToe-v0"), "[0]", "[3]", "[1]", "[4]", "[2]")
    assert [agent for agent, _ in steps] == ["player_0", "player_1", "player_0", "player_1", "player_0"]
    last = steps[-1][1]
    assert last.local_rewards == {"player_0": 1.0, "player_1": -1.0} and last.team_reward == 0
    assert last.success and last.done
    assert not any(step.done or step.local_rewards[agent] for agent, step in steps[:-1])


def test_a_refused_move_is_invalid_and_may_be_given_again():
    steps = play(lab.from_textarena("TicTacToe-v0"), "[0]", "[0]", "[1]", "nonsense", "[2]")
    assert [step.valid[agent] for agent, step in steps] == [True, False, True, False, True]
    twice = play(lab.from_textarena("TicTacToe-v0"), "[0]", "[0]", "[0]")[-1]
    assert not twice[1].valid["player_1"] and twice[1].local_rewards == {"player_0": 1.0, "player_1": -1.0}


def test_who_has_said_nothing_is_not_paid_and_a_game_that_takes_too_long_is_a_draw():
    _, (_, last) = play(lab.from_textarena("TicTacToe-v0"), "?", "?")
    assert last.done and last.local_rewards == {"player_0": -1.0} and not last.success
    last = play(lab.from_textarena("TicTacToe-v0", max_turns=2), "[0]", "[1]", "[2]", "[3]")[-1][1]
    assert last.done and not last.success and last.local_rewards == {"player_1": 0.0}


def test_one_state_may_be_played_on_in_two_ways():
    env = lab.from_textarena("PigDice-v0")
    state = env.start(Task("t", {"seed": 3}))
    before = random.getstate()
    first, other, again = (env.step(state, {"player_0": move}).state for move in ("[roll]", "[hold]", "[roll]"))
    assert first == again != other
    assert random.getstate() == before  # the dice of others are left alone


def test_a_game_that_ends_without_rewards_is_named():
    env = lab.from_textarena("TicTacToe-v0")
    state = env.start(Task("t", {"seed": 3}))
    state.game.close = lambda: (None, {})
    with pytest.raises(EnvError, match=r"'TicTacToe-v0' \(.*\), step 3: it ended with the rewards None"):
        env._rewards(state.game, 3)


def test_a_game_or_a_package_that_is_not_there_is_named(monkeypatch):
    with pytest.raises(EnvError, match=r"no game 'TicTacTo'; its games are: .*TicTacToe-v0"):
        lab.from_textarena("TicTacTo")
    with pytest.raises(EnvError, match="does not open for 5: AssertionError"):
        lab.from_textarena("TicTacToe-v0", players=5)
    monkeypatch.setitem(__import__("sys").modules, "textarena", None)
    with pytest.raises(EnvError, match=r"pip install 'mas-lab\[games\]'"):
        lab.from_textarena("TicTacToe-v0")


def board(observation):
    """The last board as words: a mark, or the number of a free square."""
    rows = re.findall(r"^ (\S) \| (\S) \| (\S) $", observation, re.MULTILINE)[-3:]
    return " ".join(cell for row in rows for cell in row)


def somewhere(shown, rng):
    return rng.choice([cell for cell in shown.split() if cell.isdigit()])


@pytest.mark.full
def test_self_play_trains_a_pocket_model(tmp_path):
    pytest.importorskip("trl", reason="TRL is not installed")
    env = lab.from_textarena(
        "TicTacToe-v0", say=board, read=lambda text: f"[{text}]", show=somewhere, max_turns=10, max_tokens=1
    )
    check_env(env, tasks=3)
    team = lab.Team.shared(lab.load_policy(lab.make_pocket(env, tmp_path / "ttt", steps=60, tasks=8)), env.agents)
    recipe = lab.RECIPES["dr_mas"].replace(credit=lab.own_return())
    reports = list(lab.train(env, team, recipe, steps=3, seed=0, tasks=8))
    turns = reports[-1].turns
    assert turns["valid"].mean() > 0.5 and reports[-1].stats["grad_norm"].gt(0).any()
    own = turns.groupby(["episode", "agent"])["local_reward"].sum().unstack()
    assert (own["player_0"] + own["player_1"]).abs().max() == 0
