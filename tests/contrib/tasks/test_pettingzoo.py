"""Worlds of PettingZoo: replayed, turn by turn and all at once, on the real package."""

import pytest
from plays import together

import mas_lab as lab
from mas_lab.check import check_env
from mas_lab.env import EnvError

pytestmark = pytest.mark.slow
pytest.importorskip("pettingzoo", reason="PettingZoo is not installed: make games")
pytest.importorskip("pygame", reason="pygame is not installed: make games")
HANDS = {"rock": 0, "paper": 1, "scissors": 2}


def squares(observation, agent):
    mine, theirs = (observation["observation"][..., side].T.ravel() for side in (0, 1))
    return " ".join("x" if mine[i] else "o" if theirs[i] else str(i) for i in range(9))


def square(text, agent):
    return int(text) if text in tuple("012345678") else None


def somewhere(heard, rng):
    return rng.choice([cell for cell in heard.split() if cell.isdigit()])


@pytest.fixture
def tictactoe():
    from pettingzoo.classic import tictactoe_v3

    return lab.from_pettingzoo(tictactoe_v3.env, squares, square, show=somewhere, max_turns=5, max_tokens=1)


@pytest.fixture
def hands():
    from pettingzoo.classic import rps_v2

    return lab.from_pettingzoo(
        rps_v2.parallel_env, lambda seen, agent: f"saw {int(seen)}", lambda text, agent: HANDS.get(text), max_turns=15,
        max_return=15.0, show=lambda heard, rng: rng.choice(list(HANDS)),
    )  # fmt: skip


def play(env, *moves):
    return together(env, env.tasks(1, "train", 0)[0], moves)


def test_the_contract_holds_turn_by_turn_and_all_at_once(tictactoe, hands):
    assert tictactoe.agents == ("player_1", "player_2") and tictactoe.competitive
    assert hands.agents == ("player_0", "player_1")
    check_env(tictactoe, tasks=4)
    check_env(hands, tasks=2)


def test_three_in_a_row_win(tictactoe):
    *_, last = play(tictactoe, "0", "3", "1", "4", "2")
    assert last.local_rewards == {"player_1": 1.0, "player_2": -1.0} and last.success and last.done
    *_, last = play(tictactoe, "0", "3", "1", "4", "8", "5")
    assert last.local_rewards == {"player_1": -1.0, "player_2": 1.0} and not last.success and last.done


def test_both_speak_unseen(hands):
    first, second = play(hands, ("rock", "paper"), ("paper", "rock"))
    assert first.local_rewards == {"player_0": -1.0, "player_1": 1.0}
    assert second.local_rewards == {"player_0": 1.0, "player_1": -1.0}
    assert dict(first.state.prompts) == {"player_0": "saw 1", "player_1": "saw 0"}


@pytest.mark.parametrize("said", ["?", "", "9", "-1", "4 4"])
def test_an_answer_that_is_no_action_ends_it(tictactoe, said):
    *_, last = play(tictactoe, "4", said)
    assert last.done and last.valid == {"player_2": False}
    assert last.local_rewards == {"player_1": 0.0, "player_2": -1.0} and last.success


def test_one_state_may_be_played_on_in_two_ways(tictactoe):
    (first,) = play(tictactoe, "4")
    one, other, again = (tictactoe.step(first.state, {"player_2": text}).state for text in ("0", "8", "0"))
    assert one == again != other


def test_a_team_may_be_paid_together():
    from pettingzoo.classic import rps_v2

    env = lab.from_pettingzoo(
        rps_v2.parallel_env, lambda seen, agent: "play", lambda text, agent: HANDS.get(text), cooperative=True
    )
    (step,) = play(env, ("rock", "paper"))
    assert not env.competitive and step.team_reward == 0.0
    (step,) = play(env, ("rock", "?"))
    assert step.done and step.team_reward == -0.5


def test_what_is_no_world_and_a_missing_package_are_refused(monkeypatch):
    from pettingzoo.test.example_envs import generated_agents_parallel_v0

    for make in (dict, generated_agents_parallel_v0.parallel_env):
        with pytest.raises(EnvError, match=r"make\(\) gave .*; give `env` or `parallel_env` .* possible_agents"):
            lab.from_pettingzoo(make, squares, square)
    monkeypatch.setitem(__import__("sys").modules, "pettingzoo", None)
    with pytest.raises(EnvError, match=r"pip install 'mas-lab\[games\]'"):
        lab.from_pettingzoo(dict, squares, square)
