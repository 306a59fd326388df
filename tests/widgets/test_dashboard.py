"""LiveDashboard: the run it makes is the one that `train` makes; stops, interrupts, errors, and what it shows."""

import signal
import threading
import time

import nbformat
import pandas as pd
import pytest
from nbclient import NotebookClient
from small import RECIPE, SETTINGS, Relay, bits, make_team, start

import mas_lab as lab
from mas_lab.widgets.figures import colors
from mas_lab.widgets.live import LiveCurve
from mas_lab.widgets.training import training_figure, whose_success

MANY = 10_000


def dashboard(models, steps=3, run=None, env=None, **options):
    options = {"foreground": False} | options
    return lab.LiveDashboard(env or Relay(), make_team("shared", models), RECIPE, steps, run=run, **SETTINGS | options)


def after_a_step(board):
    """Wait until the first step is done."""
    while board.curve.empty:
        assert board.running
        time.sleep(0.01)
    assert board.running
    return board


def test_it_makes_the_run_that_train_makes(models, tmp_path):
    from small import Memory

    board = dashboard(models, run=tmp_path / "board", watch=Memory())
    assert board.wait() is board and not board.running
    list(start("shared", models, tmp_path / "plain", 3))
    assert bits(tmp_path / "board") == bits(tmp_path / "plain")
    assert board.curve["success"].tolist() == [report.success for report in start("shared", models, None, 3)]
    pd.testing.assert_frame_equal(board.stats, board.run.stats)
    assert "step 3 of 3" in repr(board) and repr(board).endswith("done)")


def test_stop_ends_at_the_next_step_with_a_checkpoint_that_goes_on(models, tmp_path):
    board = after_a_step(dashboard(models, MANY, tmp_path / "run", save_every=MANY))
    board.stop()
    done = len(board.wait().curve)
    assert 1 <= done < MANY and board.run.checkpoint().step == board.run.steps == done
    again = dashboard(models, done + 1, tmp_path / "run", save_every=MANY).wait()
    assert again.curve["step"].tolist() == list(range(done + 1))
    assert again.curve.iloc[:done].to_numpy().tolist() == board.curve.to_numpy().tolist()
    assert len(again.reports) == 1  # the folder keeps the others
    finished = dashboard(models, done + 1, tmp_path / "run").wait()
    pd.testing.assert_frame_equal(finished.curve, again.curve)
    pd.testing.assert_frame_equal(finished.stats, again.stats)


@pytest.mark.parametrize("foreground", [True, False])
def test_an_interrupt_while_waiting_is_a_stop(models, tmp_path, foreground):
    def interrupt():
        while not list((tmp_path / "run" / "stats").glob("*.parquet")):
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    board = dashboard(models, MANY, tmp_path / "run", foreground=foreground, save_every=MANY).wait()
    assert board.run.checkpoint().step == len(board.curve) < MANY
    assert board.error is None and repr(board).endswith("stopped)")


def test_the_error_of_a_step_is_told_and_raised(models, capfd):
    board = dashboard(models, env=Relay(broken="nan"))
    with pytest.raises(Exception, match="local_reward"):
        board.wait()
    assert "ended by" in repr(board) and "local_reward" in capfd.readouterr().err
    with pytest.raises(type(board.error)):
        dashboard(models, env=Relay(broken="nan"), foreground=True)
    with pytest.raises(ValueError, match="unknown recipe"):
        lab.LiveDashboard(Relay(), make_team("shared", models), "grppo", 1)


def test_one_team_is_trained_once_at_a_time(models):
    board = after_a_step(dashboard(models, MANY))
    with pytest.raises(RuntimeError, match=r"is being trained by LiveDashboard\(at_grpo, seed 5: step"):
        lab.LiveDashboard(Relay(), board._team, RECIPE, 1)
    board.stop()
    board.wait()
    lab.LiveDashboard(Relay(), board._team, RECIPE, 1, foreground=True, **SETTINGS)


def test_waiting_has_an_end(models):
    board = after_a_step(dashboard(models, MANY))
    assert board.wait(timeout=0.01).running
    board.stop()
    assert not board.wait(timeout=60).running


@pytest.mark.parametrize("kept", [True, False])
def test_the_instruments_take_a_training_under_way(models, tmp_path, kept):
    watch = lab.SpikeWatch(warmup=2, window=4, threshold=0.01)
    board = dashboard(models, MANY, tmp_path / "run" if kept else None, watch=watch)
    while len(after_a_step(board).curve) < 4:
        time.sleep(0.01)
    inspectors = lab.SpikeInspector(board), lab.RewardInspector(board), lab.RolloutViewer(board)
    board.stop()
    board.wait()
    assert inspectors[0].rule == watch.rule and inspectors[0].spikes and inspectors[0].data()["spikes"]
    assert inspectors[1].source.agents == ("asker", "doer") and inspectors[2].episodes
    with pytest.raises(Exception, match=r"no step is done|holds no"):
        lab.SpikeInspector(dashboard(models, 0, tmp_path / "empty" if kept else None).wait())


def test_the_figure_marks_spikes_in_the_agents_colours(models, tmp_path):
    board = dashboard(models, 4, watch=lab.SpikeWatch(warmup=2, window=4, threshold=0.01)).wait()
    figure, shades = board.figure(), colors(("asker", "doer"))
    lines = {trace.name: trace for trace in figure.data if trace.mode != "markers"}
    curves = [trace for trace in figure.data if trace.name == "training episodes, best of 3 candidates"]
    assert [list(trace.y) for trace in curves] == [board.curve[name].tolist() for name in ("success", "return")]
    assert {name: lines[f"shared: {name}"].line.color for name in shades} == shades
    spikes = lab.spikes(board.stats, warmup=2, window=4, threshold=0.01)
    assert sum(len(trace.x) for trace in figure.data if trace.mode == "markers") == len(spikes) > 0
    axes = [axis.title.text for axis in (*figure.select_xaxes(), *figure.select_yaxes())]
    assert all(axes) and any("share of episodes" in title for title in axes)
    page = board.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<figure " in page and "The numbers behind this figure" in page and len(page) < 8e6
    assert training_figure(board.curve.iloc[:0], None, ("a",)).data[0].x == ()


@pytest.mark.parametrize("kept", [True, False])
def test_held_out_success_stands_beside_what_training_shows_of_it(models, tmp_path, kept):
    scored = {"score_every": 2, "score_tasks": 3, "score_episodes": 1}
    run = tmp_path / "run" if kept else None
    first = dashboard(models, 3, run, **scored).wait()
    assert first.held_out["step"].tolist() == [0, 2, 3]
    board = dashboard(models, 5, run, **scored).wait() if kept else dashboard(models, 5, **scored).wait()
    assert board.held_out["step"].tolist() == [0, 2, *([3] if kept else []), 4, 5]
    assert board.held_out["tokens"].tolist() == [
        0 if step == 0 else board.curve["tokens"][step - 1] for step in board.held_out["step"]
    ]
    [success, earned] = [trace for trace in board.figure().data if trace.name == "held-out tasks"]
    assert list(success.x) == board.held_out["step"].tolist() and list(success.y) == board.held_out["success"].tolist()
    assert list(earned.y) == board.held_out["return"].tolist()
    assert "best of 3 candidates" in repr(board) and f"held out {success.y[-1]:.2f} after 5" in repr(board)
    page = board.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Scores on held-out tasks" in page and "(training episodes, best of 3 candidates)" in page


def test_whose_success_a_training_curve_shows():
    plans = (lab.tree(8), lab.episodes(4), lab.joint(3))
    assert [whose_success(plan) for plan in plans] == [
        "training episodes, best of 8 candidates", "training episodes", "training episodes, all branches"
    ]  # fmt: skip


def test_a_live_curve_takes_held_out_scores_and_nothing_else(models, monkeypatch):
    monkeypatch.setattr("IPython.display.display", lambda *_, **__: None)
    curve, sampled = LiveCurve("at_grpo"), [0]
    for report in start("shared", models, None, 3, score_every=2, score_tasks=2, score_episodes=1):
        curve.take(report)
        sampled.append(sampled[-1] + report.tokens)
    assert curve.table["tokens"].tolist() == [0, sampled[2], sampled[3]]


CELL = """
import sys; sys.path.insert(0, {tests!r})
from pathlib import Path
from small import *
options = SETTINGS | dict(env=Relay(), team=make_team("shared", Path({models!r})), recipe=RECIPE, steps=3)
lab.LiveDashboard(**options)
"""


def test_a_notebook_without_widgets_trains_in_the_foreground_and_keeps_a_figure(models):
    from pathlib import Path

    source = CELL.format(tests=str(Path(__file__).parents[1]), models=str(models))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    outputs = [output.data for output in notebook.cells[0].outputs if output.output_type == "display_data"]
    [told] = [data["text/plain"] for data in outputs if data.get("text/plain", "").startswith("step")]
    assert told.startswith("step 3 of 3") and told.endswith("done")
    [drawn] = [data["application/vnd.plotly.v1+json"] for data in outputs if "application/vnd.plotly.v1+json" in data]
    assert len(drawn["data"][0]["y"]) == 3
