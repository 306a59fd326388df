"""LiveDashboard: the run it makes is the one that `train` makes; stops, interrupts, errors, and what it shows.

Also tests `live`.
"""

import signal
import threading
import time

import pandas as pd
import pytest
from small import RECIPE, SETTINGS, Memory, Relay, bits, make_team, start
from tables import spikes

import mas_lab as lab
from mas_lab.widgets.dashboard import Training, _rewards, training_figure
from mas_lab.widgets.figures import colors
from mas_lab.widgets.live import LiveCurve, Redrawn

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
    board = dashboard(models, run=tmp_path / "board", watch=Memory())
    assert board.wait() is board and not board.running
    reports = list(start("shared", models, tmp_path / "plain", 3))
    assert bits(tmp_path / "board") == bits(tmp_path / "plain")
    assert board.curve["success"].tolist() == [report.success for report in reports]
    pd.testing.assert_frame_equal(board.stats, board.run.stats)
    assert "3 of 3 steps" in repr(board) and repr(board).endswith("done)")


def test_stop_ends_at_the_next_step_with_a_checkpoint_that_goes_on(models, tmp_path, capfd):
    board = after_a_step(dashboard(models, MANY, tmp_path / "run", save_every=MANY))
    board.stop()
    done = len(board.wait().curve)
    assert 1 <= done < MANY and board.run.checkpoint().step == board.run.steps == done
    again = dashboard(models, done + 1, tmp_path / "run", save_every=MANY).wait()
    assert f"continuing at {done} of {done + 1} steps" in capfd.readouterr().err
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


@pytest.mark.parametrize("kept", [True, False])
def test_the_instruments_take_a_training_under_way(models, tmp_path, kept):
    watch = lab.SpikeWatch(warmup=2, window=4, threshold=1)
    board = dashboard(models, MANY, tmp_path / "run" if kept else None, watch=watch, save_every=MANY)
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
    board = dashboard(models, 4, watch=lab.SpikeWatch(warmup=2, window=4, threshold=1), staleness=2).wait()
    assert board.stats.groupby("step")["age"].first().tolist() == [0, 1, 2, 2]
    figure, shades = board.figure(), colors(("asker", "doer"))
    lines = {trace.name: trace for trace in figure.data if trace.mode == "lines+markers"}
    curves = [trace for trace in figure.data if trace.name == "training episodes, best of 3 candidates"]
    assert [list(trace.y) for trace in curves] == [board.curve[name].tolist() for name in ("success", "return")]
    assert {name: lines[f"shared: {name}"].line.color for name in shades} == shades
    found = spikes(board.stats, warmup=2, window=4, threshold=1)
    assert sum(len(trace.x) for trace in figure.data if trace.mode == "markers") == len(found) > 0
    axes = [axis.title.text for axis in (*figure.select_xaxes(), *figure.select_yaxes())]
    assert all(axes) and any("share of episodes" in title for title in axes)
    page = board.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<figure " in page and "The numbers behind this figure" in page and len(page) < 8e6
    assert training_figure(Training(), ("a",), "training episodes", {}).data[0].x == ()


def test_agents_without_own_rewards_are_drawn_by_their_credit():
    so_far = Training()
    turns = pd.DataFrame({"agent": ["a", "a", "b"], "local_reward": 0.0, "credit": [1.0, 0.0, 3.0]})
    for step in range(2):
        so_far._rewards.append(_rewards(turns.assign(step=step)))
    figure = training_figure(so_far, ("a", "b"), "training episodes", {})
    assert {trace.name: list(trace.y) for trace in figure.data if trace.name in ("a", "b")} == {
        "a": [0.5, 0.5], "b": [3.0, 3.0]
    }  # fmt: skip
    assert "credit (mean per call)" in [axis.title.text for axis in figure.select_yaxes()]


SCORED = {"score_every": 2, "score_tasks": 3, "score_episodes": 1}


def test_held_out_success_stands_beside_what_training_shows_of_it(models, tmp_path):
    first, board = (dashboard(models, steps, tmp_path / "run", **SCORED).wait() for steps in (3, 5))
    assert first.held_out["step"].tolist() == [0, 2, 3] and board.held_out["step"].tolist() == [0, 2, 3, 4, 5]
    sampled = [0, *board.curve["tokens"]]
    assert board.held_out["tokens"].tolist() == [sampled[step] for step in board.held_out["step"]]
    [success, earned] = [trace for trace in board.figure().data if trace.name == "held-out tasks"]
    assert list(success.x) == board.held_out["step"].tolist() and list(success.y) == board.held_out["success"].tolist()
    assert list(earned.y) == board.held_out["return"].tolist()
    means = board.run.turns.groupby(["agent", "step"])["local_reward"].mean()
    for agent, color in colors(("asker", "doer")).items():
        [line] = [trace for trace in board.figure().data if trace.name == agent]
        assert list(line.x) == [0, 1, 2, 3, 4] and list(line.y) == pytest.approx(means[agent].tolist())
        assert line.line.color == color and line.showlegend is None and means[agent].nunique() > 1
    assert "best of 3 candidates" in repr(board) and f"held out {success.y[-1]:.2f} after 5" in repr(board)
    page = board.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Scores on held-out tasks" in page and "(training episodes, best of 3 candidates)" in page


def test_a_fork_goes_on_beside_the_first_as_a_second_line(models, tmp_path):
    first = after_a_step(dashboard(models, MANY, tmp_path / "a", watch=lab.SpikeWatch(warmup=2, threshold=1)))
    second = first.fork(run=tmp_path / "b", lr=1e-3, max_norm=0.5, steps=MANY)
    assert after_a_step(second).running and first.running
    for board in (first, second):
        board.stop()
        board.wait()
    forked = second.run.config["forked"]
    at = forked["step"]
    assert at >= 1 and f"forked from a after {at} steps: max_norm: 1.0 -> 0.5; lr of shared: 0.01 -> " in repr(second)
    assert second.curve.iloc[:at].to_numpy().tolist() == first.curve.iloc[:at].to_numpy().tolist()
    assert len(second.curve) > at and second.watch is not first.watch
    assert second.run.team()["asker"].lr == 1e-3 and first.run.team()["asker"].lr == 1e-2
    lines = {trace.name: trace for trace in second.figure().data if trace.xaxis in (None, "x")}
    behind, own = lines["a"], lines["training episodes, best of 3 candidates"]
    assert list(behind.y) == first.curve["success"].tolist() and list(own.y) == second.curve["success"].tolist()
    assert behind.line.width < own.line.width and {shape.x0 for shape in second.figure().layout.shapes} == {at}
    page = second.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "forked from a after" in page and not first.figure().layout.shapes
    for unkept, run in ((first, None), (dashboard(models, 1).wait(), tmp_path / "c")):
        with pytest.raises(TypeError, match="both trainings are kept"):
            unkept.fork(run=run)
    again = first.fork(run=tmp_path / "d", steps=len(first.curve) + 1, seed=6, lr={"doer": 1e-3}, foreground=True)
    assert again.run.config["forked"]["changed"] == ["seed: 5 -> 6", "lr of shared: 0.01 -> 0.001"]


def test_a_live_curve_takes_held_out_scores_and_nothing_else(models, monkeypatch):
    monkeypatch.setattr(Redrawn, "draw", lambda *_: None)
    board, curve = dashboard(models, **SCORED).wait(), LiveCurve("at_grpo")
    for report in board.reports:
        curve.take(report)
    sampled = [0, *board.curve["tokens"]]
    assert curve.table["tokens"].tolist() == [0, sampled[2], sampled[3]] == board.held_out["tokens"].tolist()
