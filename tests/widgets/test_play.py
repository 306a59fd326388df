"""`play_as`: buttons, boxes and typed lines; what a model says is shown, never obeyed."""

import pytest
from scripted import Duel, Duet, Ladder, team_of

import mas_lab as lab
from mas_lab.widgets.play import PERSON, Panel


def five(prompt, nth, seed):
    return "5"


def playing(monkeypatch, env=None, agent="executor", front_end="jupyter", reply=five):
    monkeypatch.setattr("mas_lab.widgets.play.front_end", lambda: front_end)
    env = env or Ladder()
    return lab.play_as(env, team_of(env, reply), agent)


def panel_of(play):
    play._panel = Panel(play)
    play._show()
    return play._panel


def test_a_box_two_answers_and_the_end(monkeypatch):
    play = playing(monkeypatch)
    panel = panel_of(play)
    assert "executor hears t0 5" in panel._heard.value and panel._heading.value == "You are executor, in task t0"
    panel._answer.value = "7"
    panel._say.click()
    assert panel._answer.value == "" and "executor hears t0 5 7 5" in panel._heard.value
    assert "planner" not in panel._table.value and ">7<" in panel._table.value
    panel._answer.value = "win"
    panel._say.click()
    assert "the team earned 7.00 of at most 100: success" in panel._table.value and "planner" in panel._table.value
    assert panel._say.disabled and panel._answer.disabled and panel._heard.value == ""
    panel.box.children[4].children[2].click()
    assert panel._heading.value == "You are executor, in task t1" and not panel._say.disabled
    assert list(play.turns["task"].unique()) == ["t0", "t1"]


def test_an_episode_that_is_left_stays_as_it_is(monkeypatch):
    play = playing(monkeypatch)
    play.another()
    play.say("win")
    assert play.turns.groupby("task").size().to_dict() == {"t0": 1, "t1": 2} and not play.heard


def test_the_policy_may_be_asked(monkeypatch):
    from mas_lab.backends.loading import load_policy

    monkeypatch.setattr("mas_lab.widgets.play.front_end", lambda: "jupyter")
    env = lab.make_env("plan_path")
    play = lab.play_as(env, lab.Team.shared(load_policy("plan_path"), env.agents), "executor")
    panel = panel_of(play)
    panel._ask.click()
    assert env.read(panel._answer.value) is not None
    assert len(play.turns) == 1  # asked, not said


def test_what_is_heard_and_said_is_text(monkeypatch):
    play = playing(monkeypatch, reply=lambda *_: "<img src=x onerror=alert(1)>")
    panel = panel_of(play)
    panel._answer.value = "<b>win</b>"
    panel._say.click()
    assert "<img" not in panel._heard.value and "&lt;img" in panel._heard.value
    assert "<b>" not in panel._table.value


def test_without_widgets_the_prompt_is_printed_and_say_answers(monkeypatch, capsys):
    play = playing(monkeypatch, front_end="terminal")
    play.say("7")
    assert "executor hears t0 5 7 5" in capsys.readouterr().out
    play.say("win")
    assert "the team earned 7.00 of at most 100: success" in capsys.readouterr().out
    playing(monkeypatch, front_end="static")._ipython_display_()
    assert "answer with .say(text)" in capsys.readouterr().out


def test_a_game_tells_what_one_earned_oneself(monkeypatch):
    play = playing(monkeypatch, Duel(), "right")
    play.say("9")
    assert "right earned 1.00 of at most 1" in repr(play)


def seated(env, agent):
    return lab.play_as(env, team_of(env, five), agent)


def test_the_others_play_until_it_is_the_persons_turn():
    seat = seated(Ladder(), "executor")
    assert seat.heard == "user: executor hears t0 5"
    seat.say("7")
    assert seat.heard == "user: executor hears t0 5 7 5"
    seat.say("win")
    assert not seat.heard
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
    seat = lab.play_as(env, team, "planner")
    while seat.heard:
        seat.say("5")
    played, alone = seat.turns, lab.rollout(env, team, tasks, lab.episodes(1))
    assert list(played.columns) == list(alone.columns)
    own = ["policy", "prompt_ids", "completion_ids", "logprobs", "finish", "temperature"]
    assert played.drop(columns=own).to_dict("records") == alone.drop(columns=own).to_dict("records")


def test_two_who_act_at_once_are_stepped_together():
    seat = seated(Duet(max_turns=1), "left")
    seat.say("2")
    assert list(seat.turns["completion"]) == ["2", "5"] and list(seat.turns["team_reward"]) == [25.0, 25.0]


def test_a_seat_that_is_not_there_or_a_team_that_is_not_whole_is_refused():
    env = Ladder()
    with pytest.raises(ValueError, match="play_as: no agent is named 'cook'; Ladder plays"):
        seated(env, "cook")
    with pytest.raises(ValueError, match="play_as: agent 'planner' has no policy"):
        lab.play_as(env, lab.Team({"executor": team_of(env, five)["executor"]}), "executor")
