"""A run stops anywhere and goes on bit for bit; a damaged or foreign folder says what is wrong with it."""

import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
import small
import torch
from filelock import FileLock

import mas_lab as lab

STEPS = 4
HERE = Path(__file__).parents[1]


def play(generator, steps: int | None = None) -> list[lab.Report]:
    """The reports of `steps` steps; then the generator is closed."""
    reports = []
    for report in generator:
        reports.append(report)
        if len(reports) == steps:
            break
    generator.close()
    return reports


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@contextmanager
def refused(folder: Path, *words: str):
    """A RunError that holds all `words`, and a folder that is what it was."""
    before = contents(folder)
    with pytest.raises(lab.RunError) as caught:
        yield
    for word in words:
        assert word in str(caught.value)
    assert contents(folder) == before


# Bit for bit


@pytest.fixture(scope="session")  # of a worker, which may be handed tests of this file again and again
def runs(models, tmp_path_factory):
    """`straight/kind` made 4 steps at once; `cut/kind-k` is what it left after k, finished in another process."""
    root = tmp_path_factory.mktemp("runs")
    for kind in small.KINDS:
        for report in small.start(kind, models, root / "straight" / kind, STEPS):
            if report.step + 1 < STEPS:
                shutil.copytree(root / "straight" / kind, root / "cut" / f"{kind}-{report.step + 1}")
    small.child("finish", models, root / "cut", STEPS)
    return root


@pytest.mark.parametrize("kind", small.KINDS)
@pytest.mark.parametrize("k", range(1, STEPS))
def test_k_steps_and_a_new_process_are_the_run_that_never_stopped(runs, kind, k):
    straight, cut = small.bits(runs / "straight" / kind), small.bits(runs / "cut" / f"{kind}-{k}")
    assert cut == straight
    names = {Path(name).name for name in straight}
    weights = "adapter_model.safetensors" if kind == "lora" else "model.safetensors"
    assert {weights, "optimizer.safetensors", "state.json"} <= names
    assert len([name for name in straight if name.startswith("turns/")]) == STEPS


@pytest.mark.parametrize("k", range(1, STEPS))
def test_leaving_the_loop_between_two_checkpoints_makes_one(runs, models, tmp_path, k):
    run = tmp_path / "run"
    assert len(play(small.start("shared", models, run, STEPS, save_every=100), k)) == k
    assert lab.load_run(run).steps == lab.load_run(run).checkpoint().step == k
    assert not list(run.rglob("*.tmp"))
    assert len(play(small.start("shared", models, run, STEPS, save_every=100))) == STEPS - k
    assert small.bits(run) == small.bits(runs / "straight" / "shared")


def test_every_step_of_these_runs_changed_the_weights(models, tmp_path):
    """Else going on would be easy. The checkpoint of a step stands when its report is out."""
    seen = set()
    for report in small.start("shared", models, tmp_path, STEPS):
        seen.add(small.bits(tmp_path)[f"checkpoints/{report.step + 1:06d}/policies/0/model.safetensors"])
    assert len(seen) == STEPS


def test_steps_is_the_total_and_the_schedule_hangs_on_the_horizon(runs, models, tmp_path):
    first = play(small.start("shared", models, tmp_path / "run", 2))
    second = play(small.start("shared", models, tmp_path / "run", STEPS))
    assert [report.step for report in first + second] == [0, 1, 2, 3]
    assert small.bits(tmp_path / "run") == small.bits(runs / "straight" / "shared")
    assert play(small.start("shared", models, tmp_path / "run", 2)) == []


def test_a_run_that_goes_on_with_other_versions_or_devices_says_from_which_step_on(models, tmp_path):
    run = tmp_path / "run"
    play(small.start("shared", models, run, 1))
    begun = lab.load_run(run).config
    assert (begun["ranks"], begun["device"]) == (1, "cpu") and "continued" not in begun
    small.recorded(run, without="ranks", device="NVIDIA T4")
    play(small.start("shared", models, run, 1))
    assert "continued" not in lab.load_run(run).config, "no step was made"
    play(small.start("shared", models, run, 2))
    here = {"step": 1, "ranks": 1, "device": "cpu"}
    assert lab.load_run(run).config["continued"] == [here]
    play(small.start("shared", models, run, 3))
    torn = {"step": 3, "device": "NVIDIA H200"}  # of a step that was never kept
    small.recorded(run, continued=[here, torn])
    play(small.start("shared", models, run, STEPS))
    assert lab.load_run(run).config["continued"] == [here] and lab.load_run(run).config["device"] == "NVIDIA T4"
    read = lab.load_run(lab.export(run, tmp_path / "run.zip"))
    assert read.config["continued"] == [here]


def test_a_run_that_is_already_longer_only_sets_the_team(runs, models, tmp_path):
    shutil.copytree(runs / "straight" / "shared", tmp_path / "run")
    team = small.make_team("shared", models)
    before = team["doer"].model.get_input_embeddings().weight.clone()
    play(lab.train(small.Relay(), team, small.RECIPE, 2, run=tmp_path / "run", watch=small.Memory(), **small.SETTINGS))
    saved = lab.load_run(tmp_path / "run").team()["doer"].model.get_input_embeddings().weight
    assert torch.equal(team["doer"].model.get_input_embeddings().weight, saved)
    assert not torch.equal(before, saved)


def test_closing_before_the_first_step_leaves_a_run_that_goes_on(runs, models, tmp_path):
    play(small.start("shared", models, tmp_path / "run", 0))
    assert lab.load_run(tmp_path / "run").checkpoint().step == 0
    play(small.start("shared", models, tmp_path / "run", STEPS))
    assert small.bits(tmp_path / "run") == small.bits(runs / "straight" / "shared")


def test_a_training_that_another_one_went_on_with_writes_no_more(runs, models, tmp_path):
    run, team = tmp_path / "run", small.make_team("shared", models)
    settings = small.SETTINGS | {"save_every": 100}
    older = lab.train(small.Relay(), team, small.RECIPE, STEPS, run=run, **settings)
    next(older)
    newer = lab.train(small.Relay(), team, small.RECIPE, STEPS, run=run, **settings)
    assert [next(newer).step, next(newer).step] == [0, 1]
    with refused(run, "later train()"):
        next(older)
    older.close()
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["000000"]
    play(newer)
    assert lab.load_run(run).checkpoint().step == STEPS


HELD = """
import sys
from pathlib import Path
import small
for _ in small.start("shared", Path(sys.argv[1]), Path(sys.argv[2]), 3):
    print("training", flush=True)
    sys.stdin.read()
"""


def test_another_process_that_trains_here_is_not_disturbed(runs, models, tmp_path):
    run = tmp_path / "run"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", HELD, str(models), str(run)]
    other = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "training\n"
        with refused(run, str(run), "another process is training in this folder"):
            play(small.start("shared", models, run, STEPS))
    finally:
        other.kill()
        other.communicate()
    play(small.start("shared", models, run, STEPS))  # its lock went with it
    assert small.bits(run) == small.bits(runs / "straight" / "shared")


def test_an_ended_training_and_a_refused_one_hold_no_lock(models, tmp_path):
    run = tmp_path / "run"
    play(small.start("shared", models, run, 2))
    (run / "turns" / "000000.parquet").rename(tmp_path / "away")
    with refused(run, "000000.parquet is missing"):
        play(small.start("shared", models, run, STEPS))
    with FileLock(run / "training.lock", timeout=0, thread_local=False):
        pass


# Killed


def test_killed_at_a_write_it_resumes_to_the_same_bits(models, tmp_path):
    play(small.start("shared", models, tmp_path / "straight", 2))
    moments = [1, 7, 23, 48, 61]
    (tmp_path / "runs").mkdir()
    deaths = small.child("killed", models, tmp_path / "runs", 2, *moments)
    assert [death["ended"] for death in deaths] == [9] * len(moments)
    for death in deaths:
        assert death["bits"] == small.bits(tmp_path / "straight"), f"killed before write {death['moment']}"


@pytest.mark.slow
def test_killed_at_every_third_write_until_it_is_through(models, tmp_path):
    play(small.start("shared", models, tmp_path / "straight", 2))
    (tmp_path / "runs").mkdir()
    *deaths, survived = small.child("killed", models, tmp_path / "runs", 2, *range(1, 600, 3))
    assert len(deaths) > 30 and {death["ended"] for death in deaths} == {9} and survived["ended"] == 0
    for death in (*deaths, survived):
        assert death["bits"] == small.bits(tmp_path / "straight"), f"killed before write {death['moment']}"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["per_agent", "lora"])
def test_killed_at_random_moments_again_and_again(models, tmp_path, kind):
    play(small.start(kind, models, tmp_path / "straight", 8))
    [told] = small.child("shot", models, tmp_path / f"{kind}-shot", 8, 12, 7)
    assert told["deaths"] >= 3
    assert told["bits"] == small.bits(tmp_path / "straight")


def test_what_a_kill_leaves_behind_is_swept_away(runs, models, tmp_path):
    """Torn files under their staging names, and whole tables beyond the last checkpoint."""
    straight, run = runs / "straight" / "shared", tmp_path / "run"
    play(small.start("shared", models, run, STEPS), 3)
    torn = run / "checkpoints" / "000004.tmp"
    shutil.copytree(run / "checkpoints" / "000003", torn)
    (torn / "hashes.json").unlink()
    (torn / "policies" / "0" / "model.safetensors").write_bytes(b"torn")
    table = (straight / "turns" / "000003.parquet").read_bytes()
    (run / "turns" / "000003.parquet.tmp").write_bytes(table[: len(table) // 2])
    (run / "turns" / "000003.parquet").write_bytes(table[: len(table) // 3])
    (run / "run.json.tmp").write_text("{")
    play(small.start("shared", models, run, STEPS))
    assert small.bits(run) == small.bits(straight)
    assert [path.name for path in run.rglob("*.tmp")] == ["run.json.tmp"]


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="asks /proc what is mapped")
@pytest.mark.parametrize("kind", ["shared", "lora"])
def test_no_file_of_a_run_stays_mapped(models, tmp_path, kind):
    """Windows deletes no file that is, and older checkpoints are deleted while training goes on."""
    play(small.start(kind, models, tmp_path / "run", STEPS), 2)
    training = small.start(kind, models, tmp_path / "run", STEPS)
    next(training)  # its team is alive
    team = lab.load_run(tmp_path / "run").team()
    mapped = Path("/proc/self/maps").read_text(encoding="utf-8")
    assert team.policies and str(tmp_path) not in mapped


def test_interrupted_in_the_middle_of_a_step_it_goes_on_from_the_last_checkpoint(runs, models, tmp_path, monkeypatch):
    """The interrupt of a notebook, after the weights have stepped and before the tables stand."""
    write, run = Path.write_bytes, tmp_path / "run"

    def stop(path, data):
        if path.name == "000002.parquet.tmp":
            raise KeyboardInterrupt
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", stop)
    with pytest.raises(KeyboardInterrupt):
        play(small.start("shared", models, run, STEPS))
    monkeypatch.undo()
    assert (lab.load_run(run).steps, lab.load_run(run).checkpoint().step) == (2, 2)
    assert [report.step for report in play(small.start("shared", models, run, STEPS))] == [2, 3]
    assert small.bits(run) == small.bits(runs / "straight" / "shared")


def test_a_note_that_a_person_left_in_the_folder_stays(models, tmp_path):
    run = tmp_path / "run"
    play(small.start("shared", models, run, 1))
    (run / "turns" / "README.md").write_text("mine")
    (run / "notes.txt").write_text("mine too")
    play(small.start("shared", models, run, 2))
    assert (run / "turns" / "README.md").read_text() == "mine"
    assert lab.load_run(run).turns["step"].unique().tolist() == [0, 1]


# Broken


@pytest.fixture(scope="module")
def short(models, tmp_path_factory):
    """A run of three steps, with checkpoints after two and three."""
    run = tmp_path_factory.mktemp("short") / "run"
    play(small.start("shared", models, run, 3))
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["000002", "000003"]
    return run


@pytest.fixture
def run(short, tmp_path):
    return Path(shutil.copytree(short, tmp_path / "run"))


def flip(path: Path, position: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


BREAK = {
    "policies/0/model.safetensors is changed": lambda folder: flip(folder / "policies/0/model.safetensors"),
    "optimizer.safetensors is missing": lambda folder: (folder / "policies/0/training/optimizer.safetensors").unlink(),
    "policies/0/tokenizer.json is changed": lambda folder: flip(folder / "policies/0/tokenizer.json"),
    "state.json is changed": lambda folder: flip(folder / "state.json", 5),
    "extra.bin is not recorded": lambda folder: (folder / "extra.bin").write_bytes(b"x"),
    "hashes.json is missing": lambda folder: (folder / "hashes.json").unlink(),
    "hashes.json is not JSON": lambda folder: (folder / "hashes.json").write_text("{"),
    "after 3 steps": lambda folder: folder.rename(folder.with_name("000009")),
}


@pytest.mark.parametrize("what", BREAK)
def test_a_broken_checkpoint_is_named_and_nothing_is_touched(run, models, what):
    BREAK[what](run / "checkpoints" / "000003")
    with refused(run, what, "checkpoints"):
        play(small.start("shared", models, run, STEPS))
    with refused(run, what):
        lab.load_run(run).team()


def test_without_the_broken_checkpoint_it_goes_on_from_the_one_before(run, runs, models):
    shutil.rmtree(run / "checkpoints" / "000003")
    assert [report.step for report in play(small.start("shared", models, run, STEPS))] == [2, 3]
    assert small.bits(run) == small.bits(runs / "straight" / "shared")


def test_without_any_checkpoint_it_says_so(run, models):
    shutil.rmtree(run / "checkpoints")
    with refused(run, "holds no checkpoint"):
        play(small.start("shared", models, run, STEPS))


@pytest.mark.parametrize("table", ["turns", "stats"])
def test_a_missing_table_is_named(run, models, table):
    (run / table / "000001.parquet").unlink()
    with refused(run, f"{table}/000001.parquet is missing"):
        play(small.start("shared", models, run, STEPS))


def test_a_torn_table_is_named(run):
    path = run / "turns" / "000001.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    with refused(run, "turns/000001.parquet is changed", "manifest.txt"):
        lab.load_run(run).turns  # noqa: B018
    assert len(lab.load_run(run).stats) > 0
    small.of_format(run, 2)
    with refused(run, "turns/000001.parquet is not a whole table"):
        lab.load_run(run).turns  # noqa: B018


@pytest.mark.parametrize(("text", "words"), [("{", "is not JSON"), ("[1]", "holds list"), ("{}", "cannot resume")])
def test_a_run_json_that_is_not_ours_is_named(run, models, text, words):
    (run / "run.json").write_text(text)
    with refused(run, "run.json is changed"):
        play(small.start("shared", models, run, STEPS))
    (run / "manifest.txt").unlink()
    with refused(run, words):
        play(small.start("shared", models, run, STEPS))


# Another run


def other_recipe(name: str) -> lab.Recipe:
    return lab.RECIPES[name].replace(plan=lab.tree(3))


ANOTHER = {
    "seed differs: the run has 5, asked is 6": {"settings": {"seed": 6}},
    "settings.minibatches differs: the run has 2, asked is 1": {"settings": {"minibatches": 1}},
    "settings.horizon differs": {"settings": {"horizon": 10}},
    "env.max_turns differs: the run has 2, asked is 3": {"env": small.Relay(max_turns=3)},
    "env.name differs": {"env": lab.make_env("plan_path")},
    "recipe.loss.low differs: the run has 0.2, asked is 0.1": {"recipe": small.RECIPE.replace(loss=lab.clipped(0.1))},
    "recipe.plan.k differs": {"recipe": small.RECIPE.replace(plan=lab.tree(4))},
    "recipe.name differs": {"recipe": "dr_mas"},
    "agents.asker differs": {"kind": "per_agent"},
    "policies.shared.lr differs": {"lr": 0.5},
    "sampling.doer.temperature differs": {"sampling": {"doer": lab.Sampling(0.5)}},
    "frozen differs": {"frozen": ("asker",)},
}


@pytest.mark.parametrize("what", ANOTHER)
def test_another_run_is_refused_and_told_what_differs(run, models, what):
    asked = {
        "env": small.Relay(),
        "recipe": small.RECIPE,
        "kind": "shared",
        "lr": 1e-2,
        "sampling": {},
        "frozen": (),
        "settings": {},
    }
    asked |= ANOTHER[what]
    team = small.make_team(asked["kind"], models, asked["lr"])
    team = lab.Team(dict(team), asked["sampling"], asked["frozen"])
    if asked["env"].name == "plan_path":
        team = lab.Team.shared(team["asker"], asked["env"].agents)
    weights = {name: value.clone() for name, value in team.policies[next(iter(team.policies))].parameters.items()}
    with refused(run, what):
        play(lab.train(asked["env"], team, asked["recipe"], STEPS, run=run, **small.SETTINGS | asked["settings"]))
    for name, value in team.policies[next(iter(team.policies))].parameters.items():
        assert torch.equal(value, weights[name])


def test_a_run_goes_on_with_as_many_threads_as_it_was_made_with(run, models, capfd):
    generator = small.start("shared", models, run, STEPS + 1)
    torch.set_num_threads(2)
    try:
        play(generator)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(1)
    assert f"torch now uses 1 thread, as {run} did" in capfd.readouterr().err
    assert lab.load_run(run).config["threads"] == 1


def test_another_micro_batch_size_is_refused(run, models):
    """It changes the order of sums, and so the bits."""
    team = lab.Team.shared(lab.load_policy(models / "a", lr=1e-2, train_tokens=100), small.AGENTS)
    with refused(run, "policies.shared.options.train_tokens differs: the run has 4096, asked is 100"):
        play(lab.train(small.Relay(), team, small.RECIPE, STEPS, run=run, **small.SETTINGS))


def test_another_model_is_refused(run, models):
    team = lab.Team.shared(lab.load_policy(models / "b", lr=1e-2), small.AGENTS)
    with refused(run, "policies.shared.source.digest differs"):
        play(lab.train(small.Relay(), team, small.RECIPE, STEPS, run=run, **small.SETTINGS))


# Folders


def test_a_folder_of_somebody_else_is_left_alone(models, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("...")
    with refused(tmp_path, "thesis is not empty and holds no run.json"):
        play(small.start("shared", models, tmp_path / "thesis", 1))


def test_an_empty_folder_and_a_start_that_was_killed_are_used(models, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json.tmp").write_text("{")
    assert len(play(small.start("shared", models, tmp_path / "run", 1))) == 1


def test_a_file_in_the_place_of_the_folder_is_named(models, tmp_path):
    (tmp_path / "run").write_text("a file")
    with refused(tmp_path, f"{tmp_path / 'run'}: cannot keep a run here"):
        play(small.start("shared", models, tmp_path / "run", 1))


@contextmanager
def unprivileged():
    """Root may write anywhere: be nobody for a while."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.name == "nt", reason="permissions of folders are a POSIX matter")
def test_a_folder_that_cannot_be_written_is_named(models):
    with tempfile.TemporaryDirectory() as root:
        os.chmod(root, 0o555)
        generator = small.start("shared", models, Path(root) / "run", 1)
        with unprivileged(), pytest.raises(lab.RunError, match=f"{root}/run: cannot keep a run here .*ermission"):
            next(generator)
        assert os.listdir(root) == []
        os.chmod(root, 0o755)


def test_a_start_that_fails_leaves_nothing(models, tmp_path):
    class Unplain(small.Memory):
        def state(self):
            return {"norms": {1, 2}}

    team = small.make_team("shared", models)
    settings = dict(run=tmp_path / "run", watch=Unplain(), **small.SETTINGS)
    with pytest.raises(lab.RunError, match=r"state\.json cannot hold it: Object of type set"):
        play(lab.train(small.Relay(), team, small.RECIPE, 1, **settings))
    assert list(tmp_path.iterdir()) == []


def test_bare_names_go_under_runs_dir_and_paths_do_not(models, tmp_path, monkeypatch):
    monkeypatch.setenv("MAS_LAB_RUNS", str(tmp_path / "all"))
    monkeypatch.chdir(tmp_path)
    play(small.start("shared", models, "mine", 1))
    play(small.start("shared", models, "./here", 1))
    assert (tmp_path / "all" / "mine" / "run.json").is_file()
    assert (tmp_path / "here" / "run.json").is_file()
    assert lab.load_run("mine").folder == tmp_path / "all" / "mine"
    assert lab.load_run("./here").steps == lab.load_run("here").steps == 1
    with pytest.raises(lab.RunError, match=r"no run at yours .*: mine$"):
        lab.load_run("yours")


def test_runs_dir(monkeypatch):
    monkeypatch.delenv("MAS_LAB_RUNS", raising=False)

    def with_folders(*there):
        monkeypatch.setattr(Path, "is_dir", lambda path: path.as_posix() in there)
        return lab.runs_dir().as_posix()

    assert with_folders() == "runs"
    assert with_folders("/content") == "runs"
    assert with_folders("/content/drive/MyDrive") == "/content/drive/MyDrive/mas_lab_runs"
    assert with_folders("/kaggle/working") == "/kaggle/working/runs"
    monkeypatch.setenv("MAS_LAB_RUNS", "/somewhere")
    assert with_folders("/content/drive/MyDrive") == "/somewhere"


# Reading it back


def assert_same_table(left: pd.DataFrame, right: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(left, right.reset_index(drop=True), check_dtype=False, check_exact=True)


def test_load_run_gives_what_was_reported(models, tmp_path):
    reports = play(small.start("per_agent", models, tmp_path / "run", 2))
    run = lab.load_run(tmp_path / "run")
    assert run.recipe == small.RECIPE
    assert_same_table(run.turns, pd.concat([report.turns for report in reports]))
    assert_same_table(run.stats, pd.concat([report.stats for report in reports]))
    assert not {"seconds", "time"} & set(run.stats.columns)
    assert "at_grpo, 2 steps" in repr(run)
    ids = run.turns.loc[0, "completion_ids"]
    assert isinstance(ids, list) and all(isinstance(token, int) for token in ids)
    again = run.turns.drop(columns=["credit", "group", "center", "scale", "advantage"])
    assert_same_table(run.recipe.advantages(again), run.turns)


def test_the_versions_are_recorded(run):
    config = json.loads((run / "run.json").read_text())
    assert config["versions"]["torch"] == torch.__version__
    assert config["threads"] == 1
    assert {"env", "recipe", "seed", "settings"} <= set(config)


@pytest.mark.parametrize("kind", small.KINDS)
def test_the_restored_team_evaluates_alike_and_trains_on_alike(runs, models, tmp_path, kind):
    straight, run = runs / "straight" / kind, tmp_path / "run"
    team = small.make_team(kind, models)
    play(lab.train(small.Relay(), team, small.RECIPE, 3, run=run, watch=small.Memory(), **small.SETTINGS))
    restored = lab.load_run(run).team()
    tasks = small.Relay().tasks(4, "test", 0)
    ours, theirs = (lab.rollout(small.Relay(), one, tasks, seed=1) for one in (team, restored))
    pd.testing.assert_frame_equal(ours, theirs, check_exact=True)
    assert (restored.sampling, restored.frozen, dict(restored._name_of)) == (team.sampling, team.frozen, team._name_of)
    assert (len({id(policy.model) for policy in restored.policies.values()}) == 1) == (kind in ("shared", "lora"))
    play(lab.train(small.Relay(), restored, small.RECIPE, STEPS, run=run, watch=small.Memory(), **small.SETTINGS))
    assert small.bits(run) == small.bits(straight)


def test_export_is_a_zip_that_load_run_reads(run, tmp_path):
    there = lab.load_run(run)
    path = lab.export(run, tmp_path / "alice.zip")
    assert path == tmp_path / "alice.zip"
    zipped = lab.load_run(path)
    assert_same_table(zipped.turns, there.turns)
    assert_same_table(zipped.stats, there.stats)
    assert (zipped.recipe, zipped.config, zipped.steps) == (there.recipe, there.config, 3)
    assert path.stat().st_size < sum(len(data) for name, data in contents(run).items() if "checkpoints" not in name) * 2
    with pytest.raises(lab.RunError, match=r"alice\.zip.* not weights"):
        zipped.team()
    assert contents(tmp_path).keys() == {"alice.zip", *(f"run/{name}" for name in contents(run))}
    assert lab.load_run(lab.export(zipped, tmp_path / "again.zip")).steps == 3


def test_a_file_that_is_no_export_is_named(tmp_path):
    (tmp_path / "bob.zip").write_text("homework")
    with pytest.raises(lab.RunError, match=r"bob\.zip is neither"):
        lab.load_run(tmp_path / "bob.zip")
    shutil.make_archive(str(tmp_path / "carol"), "zip", HERE / "tasks")
    with pytest.raises(lab.RunError, match=r"carol\.zip holds no run\.json"):
        lab.load_run(tmp_path / "carol.zip")


def test_there_is_no_pickle(models, tmp_path, monkeypatch):
    def no(*arguments, **options):
        raise AssertionError("pickled")

    for module, name in ((pickle, "dump"), (pickle, "dumps"), (torch, "save")):
        monkeypatch.setattr(module, name, no)
    play(small.start("lora", models, tmp_path / "lora", 1))
    play(small.start("unlike", models, tmp_path / "unlike", 1))
    suffixes = {path.suffix for path in tmp_path.rglob("*") if path.is_file()}
    assert suffixes == {".json", ".txt", ".parquet", ".safetensors", ".jinja", ".lock"}


# What users bring


@dataclass(frozen=True)
class my_credit:
    bonus: float = 0.5

    def __call__(self, turns: pd.DataFrame) -> pd.Series:
        return turns["team_reward"] + self.bonus * turns["local_reward"]


class mixed(my_credit):
    """Called like a credit of the kit, and another one."""


@pytest.mark.parametrize("credit", [my_credit(), mixed()])
def test_a_recipe_with_a_part_of_ones_own_trains_and_resumes_but_cannot_be_made_from_the_folder(
    models, tmp_path, credit
):
    recipe = small.RECIPE.replace(name="mine", credit=credit)
    for steps in (1, 2):
        team = small.make_team("shared", models)
        play(lab.train(small.Relay(), team, recipe, steps, run=tmp_path / "run", **small.SETTINGS))
    run = lab.load_run(tmp_path / "run")
    assert run.steps == 2 and len(run.turns)
    with pytest.raises(ValueError, match=rf"{type(credit).__name__}' *, which is not part of mas_lab"):
        run.recipe  # noqa: B018
    for instrument in (lab.RewardInspector, lab.SpikeInspector, lab.RolloutViewer):
        assert "run run, mine" in instrument(run).to_html(tmp_path / "shown.html").read_text()
    changed = recipe.replace(credit=type(credit)(bonus=1.0))
    with pytest.raises(lab.RunError, match=r"recipe\.credit\.bonus differs"):
        play(lab.train(small.Relay(), small.make_team("shared", models), changed, 3, run=run.folder, **small.SETTINGS))


class Plain:
    """An env that is no dataclass and prints as an address in memory."""

    def __init__(self):
        self.inner = small.Relay()

    def __getattr__(self, name):
        if name == "name" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)


def test_an_env_of_ones_own_resumes_in_another_object(models, tmp_path):
    for steps in (1, 2):
        team = small.make_team("shared", models)
        reports = play(lab.train(Plain(), team, small.RECIPE, steps, run=tmp_path / "run", **small.SETTINGS))
    assert [report.step for report in reports] == [1]
    assert lab.load_run(tmp_path / "run").config["env"]["name"].endswith(":Plain")


def test_a_watch_may_join_or_leave_a_run(models, tmp_path):
    run, watch = tmp_path / "run", small.Memory()
    for steps, watching in ((1, None), (2, watch), (3, None)):
        team = small.make_team("shared", models)
        play(lab.train(small.Relay(), team, small.RECIPE, steps, run=run, watch=watching, **small.SETTINGS))
    assert watch.seen == ["shared", "shared"]
    assert lab.load_run(run).watched() == watch.state()  # nothing is forgotten


def test_a_watch_that_joins_late_dates_its_spikes_by_the_runs_steps(models, tmp_path):
    run = tmp_path / "run"
    for steps, watch in ((3, None), (7, lab.SpikeWatch(warmup=2, window=4, threshold=0.01))):
        team = small.make_team("shared", models)
        play(lab.train(small.Relay(), team, small.RECIPE, steps, run=run, watch=watch, **small.SETTINGS))
    norms = lab.load_run(run).stats.drop_duplicates(["step", "optimizer_step"]).set_index(["step", "optimizer_step"])
    spikes = lab.SpikeInspector(run).spikes
    assert spikes and {spike["step"] for spike in spikes} <= {3, 4, 5, 6}
    for spike in spikes:
        assert spike["norms"][""] == pytest.approx(norms["policy_norm"][spike["step"], spike["optimizer_step"]])


def test_how_often_a_run_is_kept_may_change_when_it_goes_on(models, tmp_path):
    play(small.start("shared", models, tmp_path / "run", 2, save_every=1))
    assert len(play(small.start("shared", models, tmp_path / "run", 3, save_every=5, workers=2))) == 1
