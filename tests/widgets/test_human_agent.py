"""A person's seat: the others play as they would, and what is played is a table like any other."""

import pytest
from scripted import Duet, Ladder, team_of

import mas_lab as lab
from mas_lab.widgets.play import PERSON, HumanAgent


def five(prompt, nth, seed):
    return "5"


def seated(env, agent, team=None, seed=0):
    return HumanAgent(env, team_of(env, five) if team is None else team, agent, env.tasks(1, "train", 0)[0], seed)


def test_the_others_play_until_it_is_the_persons_turn():
    seat = seated(Ladder(), "executor")
    assert seat.waits and seat.heard[-1]["content"] == "executor hears t0 5"
    seat.say("7")
    assert seat.heard[-1]["content"] == "executor hears t0 5 7 5"
    seat.say("win")
    assert not seat.waits
    turns = seat.turns
    assert list(turns["agent"]) == ["planner", "executor"] * 2
    assert list(turns["completion"]) == ["5", "7", "5", "win"]
    assert list(turns["policy"] == PERSON) == [False, True] * 2
    assert list(turns["team_reward"]) == [0.0, 7.0, 0.0, 0.0] and list(turns["success"]) == [False] * 3 + [True]
    with pytest.raises(ValueError, match="play_as: the episode of task 't0' has ended"):
        seat.say("9")


def test_a_person_who_says_what_the_policy_would_plays_the_same_episode():
    env = Ladder()
    team, tasks = team_of(env, five), env.tasks(1, "train", 0)
    seat = HumanAgent(env, team, "planner", tasks[0])
    while seat.waits:
        seat.say("5")
    played, alone = seat.turns, lab.rollout(env, team, tasks, lab.episodes(1))
    assert list(played.columns) == list(alone.columns)
    same = [
        name
        for name in alone
        if name not in ("policy", "prompt_ids", "completion_ids", "logprobs", "finish", "temperature")
    ]
    assert played[same].to_dict("records") == alone[same].to_dict("records")


def test_two_who_act_at_once_are_stepped_together():
    seat = seated(Duet(max_turns=1), "left")
    seat.say("2")
    assert list(seat.turns["completion"]) == ["2", "5"] and list(seat.turns["team_reward"]) == [25.0, 25.0]


def test_a_seat_that_is_not_there_or_a_team_that_is_not_whole_is_refused():
    env = Ladder()
    with pytest.raises(ValueError, match="play_as: no agent is named 'cook'; Ladder plays"):
        seated(env, "cook")
    with pytest.raises(ValueError, match="play_as: agent 'planner' has no policy"):
        seated(env, "executor", lab.Team({}))
