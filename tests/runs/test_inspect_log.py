"""A run as a log of Inspect: what it holds, and that Inspect's own reader takes it, where one is installed."""

import json
import shutil
import subprocess
import zipfile

import pytest
from evil_names import evil_zip

import mas_lab as lab

INSPECT = shutil.which("inspect")
"""Its command, which may stand in an environment of its own: `pipx install inspect-ai`."""


def read(path):
    with zipfile.ZipFile(path) as held:
        return {name: json.loads(held.read(name)) for name in held.namelist()}


@pytest.fixture(scope="module")
def log(spiky, tmp_path_factory):
    return lab.export(spiky, tmp_path_factory.mktemp("logs") / "run.eval")


def test_every_episode_is_a_sample_and_every_call_an_event(log, spiky):
    held, turns = read(log), lab.load_run(spiky).turns
    samples = [value for name, value in held.items() if name.startswith("samples/")]
    assert len(samples) == len(turns[["step", "episode"]].drop_duplicates())
    assert [one["id"] for one in held["summaries.json"]] == [one["id"] for one in samples]
    assert all(f"samples/{one['id']}_epoch_1.json" in held for one in samples)
    for one in samples:
        rows = turns[(turns["step"] == one["metadata"]["step"]) & (turns["episode"] == one["metadata"]["episode"])]
        rows = rows.sort_values(["depth", "node"], kind="stable")
        events = [event for event in one["events"] if event["event"] == "model"]
        assert [event["role"] for event in events] == rows["agent"].tolist()
        assert [event["output"]["completion"] for event in events] == rows["completion"].tolist()
        assert [event["metadata"]["advantage"] for event in events] == pytest.approx(rows["advantage"], abs=1e-5)
        assert [event["metadata"]["group"] for event in events] == rows["group"].tolist()
        assert one["scores"]["success"]["value"] == float(rows.loc[rows["kept"], "success"].any())
        used = sum(usage["output_tokens"] for usage in one["model_usage"].values())
        assert used == rows["completion_ids"].map(len).sum()
        opened = [event["id"] for event in one["events"] if event["event"] == "span_begin"]
        closed = [event["id"] for event in one["events"] if event["event"] == "span_end"]
        assert len(set(opened)) == len(opened) and sorted(opened) == sorted(closed)
    assert held["header.json"]["results"]["total_samples"] == len(samples)


def test_only_the_most_telling_go_along_if_asked(spiky, log, tmp_path):
    of = {}
    for one in read(log)["summaries.json"]:
        of.setdefault(one["metadata"]["step"], []).append(one["id"])
    some = read(lab.export(spiky, tmp_path / "a new" / "folder" / "some.eval", traces=2))["summaries.json"]
    assert [one["id"] for one in some] == [name for step in sorted(of) for name in of[step][:2]]


def test_names_reach_no_path_of_the_zip(spiky, tmp_path):
    log = lab.export(evil_zip(spiky, tmp_path), tmp_path / "evil.eval")
    names = zipfile.ZipFile(log).namelist()
    assert all(name.count("/") <= 1 and "\\" not in name and "<" not in name for name in names)
    assert len(set(names)) == len(names)


def test_what_cannot_be_asked_for_is_told(spiky, tmp_path):
    with pytest.raises(ValueError, match=r"traces=0; say how many episodes of each step, 1 or more"):
        lab.export(spiky, tmp_path / "run.eval", traces=0)
    with pytest.raises(ValueError, match=r"traces=3 is for a log, whose name ends in \.eval"):
        lab.export(spiky, tmp_path / "run.zip", traces=3)
    with pytest.raises(lab.RunError, match="no run at"):
        lab.export(tmp_path / "nothing", tmp_path / "run.eval")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.slow
@pytest.mark.skipif(INSPECT is None, reason="the command of inspect-ai is not installed")
def test_inspect_reads_it(log):
    done = subprocess.run([INSPECT, "log", "dump", str(log)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    dumped, held = json.loads(done.stdout), read(log)
    assert len(dumped["samples"]) == len(held["summaries.json"]) and dumped["status"] == "success"
    events = [event for one in dumped["samples"] for event in one["events"] if event["event"] == "model"]
    assert len(events) == sum(json.dumps(one).count('"event": "model"') for one in held.values())
