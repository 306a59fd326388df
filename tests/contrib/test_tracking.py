"""Reports sent to trackers: what is logged, that the loop is the same, and the real ones after `make trackers`."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest
from accelerate.tracking import GeneralTracker
from small import RECIPE, SETTINGS, Relay, environment, make_team

import mas_lab as lab
from mas_lab.contrib.tracking import TrackingError, traces


class Lines(GeneralTracker):
    """A tracker of accelerate's kind that writes JSON lines."""

    name, requires_logging_directory, main_process_only = "lines", False, False

    def __init__(self, path: Path):
        super().__init__()
        self.path, self.config, self.finished = path, {}, False

    @property
    def tracker(self):
        return self.path

    def store_init_configuration(self, values):
        self.config = values

    def log(self, values, step=None, **kwargs):
        with self.path.open("a") as out:
            out.write(json.dumps({"step": step, **values}) + "\n")

    def finish(self):
        self.finished = True


def train(models, run=None, steps=3):
    return lab.train(Relay(), make_team("unlike", models), RECIPE, steps, run=run, **SETTINGS)


def test_every_step_is_logged_and_passed_on_as_it_was(models, tmp_path):
    tracker = Lines(tmp_path / "log.jsonl")
    reports = list(lab.track(train(models), to=tracker, config={"seed": 5}))
    assert tracker.config == {"seed": 5} and tracker.finished
    for report, plain in zip(reports, train(models), strict=True):
        pd.testing.assert_frame_equal(report.stats, plain.stats)
    logged = [json.loads(line) for line in tracker.path.read_text().splitlines()]
    assert [one["step"] for one in logged] == [0, 1, 2]
    for one, report in zip(logged, reports, strict=True):
        assert one["team/success"] == report.success and one["team/tokens"] == report.tokens
        own = report.stats[report.stats["agent"] == "doer"]
        assert one["agent/doer/grad_norm"] == pytest.approx(own["grad_norm"].mean())
        assert one["policy/doer/lr"] == pytest.approx(own["lr"].mean()) and one["seconds/rollout"] > 0
        assert "agent/doer/kl" not in one  # there was no reference


def test_a_tracker_that_does_not_start_closes_the_reports_and_says_why(tmp_path):
    class Unready(Lines):
        def start(self):
            raise ValueError("no key is configured")

        def finish(self):
            raise AttributeError("it never started")

    class Reports(list):
        closed = False

        def close(self):
            self.closed = True

    reports = Reports()
    with pytest.raises(ValueError, match="no key is configured"):
        list(lab.track(reports, to=Unready(tmp_path)))
    assert reports.closed


def test_breaking_out_leaves_a_checkpoint_and_a_finished_tracker(models, tmp_path):
    tracker = Lines(tmp_path / "log.jsonl")
    for report in lab.track(train(models, tmp_path / "run", 9), to=tracker):
        if report.step == 1:
            break
    assert tracker.finished and lab.load_run(tmp_path / "run").checkpoint().step == 2


def test_trackers_that_cannot_be_had_are_named(models, tmp_path):
    with pytest.raises(TrackingError, match=r"to='tensorbord'; known are .*tensorboard"):
        lab.track([], to="tensorbord")
    with pytest.raises(TrackingError, match="library of 'clearml' is not installed here; pip install clearml"):
        lab.track([], to="clearml")
    with pytest.raises(TrackingError, match="name go to a tracker named by `to`; yours is already made"):
        lab.track([], to=Lines(tmp_path), name="x")
    with pytest.raises(TrackingError, match="'lines' takes numbers; traces go to trackio alone"):
        lab.track([], to=Lines(tmp_path), traces=3)


def test_a_trace_holds_the_path_and_every_call_with_its_numbers(models):
    [report] = train(models, steps=1)
    held, *others = traces(report.turns, 99)
    assert len(others) + 1 == report.turns["episode"].nunique() and len(list(traces(report.turns, 1))) == 1
    about = held["metadata"]
    assert about["telling"] == max(other["metadata"]["telling"] for other in [held, *others])
    assert about["step"] == 0 and about["status"] in ("success", "failed")
    rows = report.turns[report.turns["episode"] == about["episode"]].sort_values(["depth", "node"], kind="stable")
    assert len({span["id"] for span in held["spans"]}) == len(rows)
    for span, row in zip(held["spans"], rows.to_dict("records"), strict=True):
        assert (span["model"], span["output"]) == (row["policy"], row["completion"])
        assert span["usage"] == {"input_tokens": len(row["prompt_ids"]), "output_tokens": len(row["completion_ids"])}
        names = ("agent", "turn", "candidate", "kept", "group")
        assert [span["metadata"][name] for name in names] == [row[name] for name in names]
        assert span["metadata"]["advantage"] == pytest.approx(row["advantage"], abs=1e-5)
        assert span["metadata"]["logprob"] == pytest.approx(sum(row["logprobs"]), abs=1e-5)
    kept = rows[rows["kept"]]
    assert [one["name"] for one in held["messages"]] == [agent for agent in kept["agent"] for _ in range(2)]
    said = [one["content"] for one in held["messages"] if one["role"] == "assistant"]
    assert said == [f"{agent}: {text}" for agent, text in zip(kept["agent"], kept["completion"], strict=True)]
    assert json.loads(json.dumps(held, allow_nan=False)) == held


@pytest.mark.slow
def test_trackio_holds_the_numbers(models, tmp_path):
    pytest.importorskip("trackio", reason="trackio is not installed")
    program = (
        "import sys, mas_lab as lab; from pathlib import Path; from small import *\n"
        "team = make_team('unlike', Path(sys.argv[1]))\n"
        "reports = lab.train(Relay(), team, RECIPE, 3, **SETTINGS)\n"
        "print(len(list(lab.track(reports, to='trackio', project='mine', config={'seed': 0}, traces=2))))\n"
    )
    command, places = [sys.executable, "-c", program, str(models)], environment(TRACKIO_DIR=str(tmp_path))
    done = subprocess.run(command, env=places, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    with closing(sqlite3.connect(tmp_path / "mine.db")) as kept:
        logged = [(step, json.loads(metrics)) for step, metrics in kept.execute("select step, metrics from metrics")]
        query = "select step, key, messages, metadata, spans from traces order by step, trace_index"
        traces = [(step, key, *map(json.loads, held)) for step, key, *held in kept.execute(query)]
    assert [step for step, _ in logged] == [0, 1, 2]
    assert all(metrics["agent/asker/grad_norm"] > 0 for _, metrics in logged)
    assert [(step, key) for step, key, *_ in traces] == [(step, "episodes") for step in (0, 0, 1, 1, 2, 2)]
    for step, _, messages, about, spans in traces:
        assert about["step"] == step and messages[0]["role"] == "user" and messages[1]["role"] == "assistant"
        assert {"asker", "doer"} >= {one["name"] for one in messages}
        assert {one["kind"] for one in spans} == {"generation"}
