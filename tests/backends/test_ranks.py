"""Two processes, started by a launcher on the CPU (gloo), train as one: the same numbers, and what is done once is done
once; a rank that ends is told of, and its run goes on."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import rank_children
import small
from safetensors.torch import load_file

import mas_lab as lab

LAUNCHER = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
KINDS, NAMES = small.KINDS, ("one", "two")


def launched(*arguments, ranks: bool = True) -> subprocess.CompletedProcess:
    """`rank_children.py` under two ranks, or alone."""
    command = [*(LAUNCHER if ranks else [sys.executable]), rank_children.__file__, *map(str, arguments)]
    return subprocess.run(command, env=small.environment(), capture_output=True, text=True, timeout=600)


def said(done: subprocess.CompletedProcess) -> list[dict]:
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.fixture(scope="module")
def runs(models, tmp_path_factory):
    """`one/KIND` was made by one process, `two/KIND` by two; and what each rank said, by (ranks, rank, kind)."""
    root, heard = tmp_path_factory.mktemp("runs"), {}
    for name, ranks in (("one", False), ("two", True)):
        done = launched("learn", models, root / name, *KINDS, ranks=ranks)
        assert done.returncode == 0, done.stderr
        heard |= {(name, one["rank"], one["kind"]): one for one in said(done)}
    return root, heard


def assert_alike(one: Path, two: Path) -> int:
    """Weights and optimizers of two runs within 1e-5; the number of files."""
    one, two = (max((run / "checkpoints").iterdir()) for run in (one, two))
    files = sorted(path.relative_to(one) for path in one.rglob("*.safetensors"))
    for file in files:
        alone, together = load_file(one / file), load_file(two / file)
        assert alone.keys() == together.keys()
        for name in alone:
            assert (alone[name] - together[name]).abs().max() < 1e-5, (file, name)
    return len(files)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_two_ranks_learn_what_one_process_learns(runs, kind):
    """Also a watch, which asks for passes of its own: every rank makes them."""
    paths = [runs[0] / name / kind for name in NAMES]
    assert assert_alike(*paths) == (2 if kind == "shared" else 4)
    one, two = map(lab.load_run, paths)
    assert (one.config["ranks"], two.config["ranks"]) == (1, 2)
    exact = ["completion", "advantage", "group", "credit", "team_reward"]
    pd.testing.assert_frame_equal(one.turns[exact], two.turns[exact], check_exact=True)
    assert one.stats["grad_norm"].min() > 0
    pd.testing.assert_frame_equal(one.stats, two.stats, atol=1e-5, rtol=0)
    alone, together = (run.checkpoint().state["watch"] for run in (one, two))
    assert alone["total"] == pytest.approx(together["total"], abs=1e-4) and alone["total"] > 0
    assert alone["seen"] == together["seen"]
    root, heard = runs  # rank 0 alone plays, scores and keeps
    assert heard["two", 1, kind] == {"rank": 1, "kind": kind, "steps": 0, "scores": []}
    alone, first = heard["one", 0, kind], heard["two", 0, kind]
    assert first == alone and first["steps"] > 0 and len(first["scores"]) == 8
    places = (map(str, (root / n / kind).rglob("*")) for n in NAMES)
    one, two = (sorted(re.sub("-[0-9a-f]{16}", "", one).partition(f"/{kind}/")[2] for one in found) for found in places)
    assert one == two and one and not [name for name in two if name.endswith(".tmp")]


def last_words(done: subprocess.CompletedProcess, rank: int) -> str:
    """The line on which this rank's traceback ends; none if the launcher stops it before."""
    lines = [line for line in done.stderr.splitlines() if line.startswith(f"[rank{rank}]: mas_lab.")]
    return lines[-1] if lines else ""


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "when"), [(1, "update"), pytest.param(0, "sample", marks=pytest.mark.full)])
def test_a_rank_that_dies_ends_the_run_which_goes_on(models, tmp_path, rank, when):
    run = tmp_path / "run"
    done = launched("die", models, run, rank, when)
    assert done.returncode != 0
    assert [one["step"] for one in said(done)] == [0, 1]
    noticed = rf"rank {1 - rank} of 2: another rank ended or lost its connection.*goes on from its newest checkpoint"
    assert re.search(noticed, last_words(done, 1 - rank)) or not last_words(done, 1 - rank), done.stderr
    kept = lab.load_run(run)
    assert kept.checkpoint().step == 2
    assert [report.step for report in rank_children.start("shared", models, run, 4)] == [2, 3]
    list(rank_children.start("shared", models, tmp_path / "straight", 4))
    assert_alike(tmp_path / "straight", run)


@pytest.mark.slow
@pytest.mark.full
def test_two_ranks_go_on_with_a_run_of_one_process(models, tmp_path):
    """Weights, optimizer and the watch's memory reach the rank that has read no checkpoint."""
    for name, steps in (("shared", 1), ("straight", 2)):
        list(rank_children.start("shared", models, tmp_path / name, steps))
    assert launched("learn", models, tmp_path, "shared").returncode == 0
    assert_alike(tmp_path / "straight", tmp_path / "shared")


@pytest.mark.slow
def test_an_error_on_rank_0_ends_all_ranks(models, tmp_path):
    done = launched("fail", models, tmp_path / "run")
    assert done.returncode != 0
    assert [one["step"] for one in said(done)] == [0]
    assert re.search("RolloutError.*the world ended", last_words(done, 0)), done.stderr
    assert not last_words(done, 1)
    assert lab.load_run(tmp_path / "run").checkpoint().step in (0, 1)
