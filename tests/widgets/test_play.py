"""`play_as`: buttons, boxes and typed lines; what a model says is shown, never obeyed."""

from scripted import Duel, Ladder, team_of

import mas_lab as lab
from mas_lab.widgets.play import Panel


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
    assert "planner" not in panel._told.value and ">7<" in panel._told.value
    panel._answer.value = "win"
    panel._say.click()
    assert "the team earned 7.00 of at most 100: success" in panel._told.value and "planner" in panel._told.value
    assert panel._say.disabled and panel._answer.disabled and panel._heard.value == ""
    panel.box.children[4].children[2].click()
    assert panel._heading.value == "You are executor, in task t1" and not panel._say.disabled
    assert list(play.turns["task"].unique()) == ["t0", "t1"]


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
    assert "<b>" not in panel._told.value


def test_without_widgets_the_prompt_is_printed_and_say_answers(monkeypatch, capsys):
    play = playing(monkeypatch, front_end="terminal")
    play.say("7")
    assert "executor hears t0 5 7 5" in capsys.readouterr().out
    play.say("win")
    assert "the team earned 7.00 of at most 100: success" in capsys.readouterr().out
    playing(monkeypatch, front_end="static")._ipython_display_()
    assert "answer with .say(text)" in capsys.readouterr().out


def test_where_no_widget_lives_there_is_text(monkeypatch):
    """A stored notebook has what was to be answered, and in the end what everybody said."""
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda bundle, **how: shown.append(bundle))
    play = playing(monkeypatch)
    play._ipython_display_()
    play.say("5")
    while play.heard:
        play.say("5")
    play._ipython_display_()
    first, last = (bundle["text/html"] for bundle in shown)
    assert all("application/vnd.jupyter.widget-view+json" in bundle for bundle in shown)
    assert f"You are executor, in task {play.task.id}" in first and "<pre" in first and "<td" not in first
    assert ">executor</td>" in last and "the team earned" in last


def test_a_game_tells_what_one_earned_oneself(monkeypatch):
    play = playing(monkeypatch, Duel(), "right")
    play.say("9")
    assert "right earned 1.00 of at most 1" in repr(play)
