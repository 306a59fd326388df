"""Two processes, started by a launcher on the CPU (gloo), train as one: the same numbers, and what is done once is done
once; a rank that ends is told of, and its run goes on."""

import json
import os
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

HERE = Path(__file__).parents[2]
LAUNCHER = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
KINDS, NAMES = small.KINDS, ("one", "two")


def launched(*arguments, ranks: bool = True) -> subprocess.CompletedProcess:
    """`rank_children.py` under two ranks, or alone."""
    paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    command = [*(LAUNCHER if ranks else [sys.executable]), str(HERE / "rank_children.py"), *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)


def said(done: subprocess.CompletedProcess) -> list[dict]:
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return small.make_models(tmp_path_factory.mktemp("models"))


# The same numbers


@pytest.fixture(scope="module")
def runs(models, tmp_path_factory):
    """`one/KIND` was made by one process, `two/KIND` by two; and what each rank said, by (ranks, rank, kind)."""
    root, heard = tmp_path_factory.mktemp("runs"), {}
    for name, ranks in (("one", False), ("two", True)):
        done = launched("learn", models, root / name, *KINDS, ranks=ranks)
        assert done.returncode == 0, done.stderr
        heard |= {(name, one["rank"], one["kind"]): one for one in said(done)}
    return root, heard


def newest(run: Path) -> Path:
    return max((run / "checkpoints").iterdir())


def assert_alike(one: Path, two: Path) -> int:
    """Weights and optimizers of two runs within 1e-5; the number of files."""
    one, two = newest(one), newest(two)
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


# Once


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_rank_0_alone_plays_scores_and_keeps(runs, kind):
    root, heard = runs
    idle = {"rank": 1, "kind": kind, "steps": 0, "scores": [], "afterwards": "as before", "weights": ["Tensor"]}
    assert heard["two", 1, kind] == idle
    alone, first = heard["one", 0, kind], heard["two", 0, kind]
    assert first["steps"] == alone["steps"] > 0 and first["afterwards"] == "as before"
    assert first["scores"] == alone["scores"] and len(first["scores"]) == 8
    one, two = (sorted(path.relative_to(root / n).as_posix() for path in (root / n / kind).rglob("*")) for n in NAMES)
    assert one == [name.replace("two/", "one/") for name in two]
    assert one and not [name for name in two if name.endswith(".tmp")]


# Weights that are cut


@pytest.fixture(scope="module")
def cut(models, tmp_path_factory):
    """Runs like those of `runs`, by two ranks that each hold a part of the weights (FSDP2 over gloo); the first of them
    goes on with one step of one process."""
    root = tmp_path_factory.mktemp("cut")
    training, _ = rank_children.start("shared", models, root / "shared", 1, watched=False)
    list(training)
    done = launched("shard", models, root, "shared", "unlike")
    assert done.returncode == 0, done.stderr
    return root, {(one["rank"], one["kind"]): one for one in said(done)}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["shared", "unlike"])
def test_cut_weights_learn_what_whole_ones_learn(cut, runs, kind):
    one, two = runs[0] / "one" / kind, cut[0] / kind
    assert assert_alike(one, two) == (2 if kind == "shared" else 4)
    exact = ["completion", "advantage"]
    pd.testing.assert_frame_equal(lab.load_run(one).turns[exact], lab.load_run(two).turns[exact], check_exact=True)
    pd.testing.assert_frame_equal(lab.load_run(one).stats, lab.load_run(two).stats, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_a_checkpoint_of_cut_weights_is_a_plain_one(cut, runs):
    root, heard = cut
    team = lab.load_run(root / "unlike").team()
    assert heard[0, "unlike"]["scores"] == runs[1]["one", 0, "unlike"]["scores"]
    assert team["asker"].model.get_output_embeddings().weight is team["asker"].model.get_input_embeddings().weight
    assert [heard[rank, "unlike"]["weights"] for rank in (0, 1)] == [["DTensor"], ["DTensor"]]
    assert "load_run(...).team() has them whole" in heard[0, "unlike"]["afterwards"]


@pytest.mark.slow
def test_what_cannot_be_cut_is_refused(models, tmp_path):
    done = launched("shard", models, tmp_path, "lora")
    assert done.returncode != 0
    for rank in (0, 1):
        assert "FSDP cuts full weights; adapters are trained without it" in last_words(done, rank), done.stderr


# Ends


def last_words(done: subprocess.CompletedProcess, rank: int) -> str:
    """The line on which this rank's traceback ends, or what it says when the launcher stops it."""
    starts = (f"[rank{rank}]: mas_lab.", f"mas_lab: rank {rank} was stopped")
    lines = [line for line in done.stderr.splitlines() if line.startswith(starts)]
    return lines[-1] if lines else ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rank", "when", "left"), [(1, "update", 2), (1, "sample", 2), (0, "update", 2), (0, "sample", 2)]
)
def test_a_rank_that_dies_ends_the_run_which_goes_on(models, tmp_path, rank, when, left):
    run = tmp_path / "run"
    done = launched("die", models, run, rank, when)
    assert done.returncode != 0
    assert [one["step"] for one in said(done)] == [0, 1]
    other = last_words(done, 1 - rank)  # the other rank meets the end itself, or the launcher is there first
    noticed = rf"rank {1 - rank} (of 2: another rank ended or lost its connection|was stopped by the launcher: another)"
    assert re.search(noticed, other), done.stderr
    assert "goes on from its newest checkpoint" in other
    kept = lab.load_run(run)
    assert kept.checkpoint().step == left
    training, _ = rank_children.start("shared", models, run, 4)
    assert [report.step for report in training] == [2, 3]
    straight, _ = rank_children.start("shared", models, tmp_path / "straight", 4)
    list(straight)
    assert_alike(tmp_path / "straight", run)


@pytest.mark.slow
def test_two_ranks_go_on_with_a_run_of_one_process(models, tmp_path):
    """Weights, optimizer and the watch's memory reach the rank that has read no checkpoint."""
    run = tmp_path / "shared"
    training, _ = rank_children.start("shared", models, run, 1)
    list(training)
    assert launched("learn", models, tmp_path, "shared").returncode == 0
    straight, _ = rank_children.start("shared", models, tmp_path / "straight", 2)
    list(straight)
    assert_alike(tmp_path / "straight", run)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("why", "kind", "words"), [("env", "RolloutError", "the world ended"), ("nan", "NotFiniteError", "are not finite")]
)
def test_an_error_on_rank_0_ends_all_ranks_with_the_same_words(models, tmp_path, why, kind, words):
    done = launched("fail", models, tmp_path / "run", why)
    assert done.returncode != 0
    assert [one["step"] for one in said(done)] == [0]
    for rank in (0, 1):
        assert kind in last_words(done, rank) and words in last_words(done, rank), done.stderr
    assert lab.load_run(tmp_path / "run").checkpoint().step in (0, 1)
