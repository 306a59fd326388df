"""A run stops anywhere and goes on bit for bit; a damaged or foreign folder says what is wrong with it."""

import pickle
import shutil
import subprocess
import sys
from contextlib import contextmanager
from importlib.metadata import version
from itertools import islice
from pathlib import Path

import pandas as pd
import pytest
import small
import torch

import mas_lab as lab
from mas_lab.policy import PolicyError

STEPS = 3


def play(generator, steps: int | None = None) -> list[int]:
    """The numbers of the first steps, or of all; then the generator is closed."""
    made = [report.step for report in islice(generator, steps)]
    generator.close()
    return made


def train(models, run, steps: int = STEPS, kind: str = "shared", **changes) -> list[int]:
    return play(small.start(kind, models, run, steps, **changes))


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


@pytest.fixture(scope="session")  # of a worker, which may be handed tests of this file again and again
def runs(models, tmp_path_factory):
    """`straight/kind` made all steps at once; `cut/kind-k` is what it left after k."""
    root = tmp_path_factory.mktemp("runs")
    for kind in small.KINDS:
        for report in small.start(kind, models, root / "straight" / kind, STEPS):
            if report.step + 1 < STEPS:
                shutil.copytree(root / "straight" / kind, root / "cut" / f"{kind}-{report.step + 1}")
    return root


@pytest.fixture(scope="module")
def finished(runs, models):
    """`runs`, where another process went on with `cut/kind-k` to the end."""
    small.child("finish", models, runs / "cut", STEPS)
    return runs


@pytest.mark.slow
@pytest.mark.parametrize("kind", small.KINDS)
@pytest.mark.parametrize("k", range(1, STEPS))
def test_resumed_run_equals_the_uninterrupted_one(finished, kind, k):
    straight, cut = (small.bits(finished / name) for name in (f"straight/{kind}", f"cut/{kind}-{k}"))
    assert cut == straight
    names = {Path(name).name for name in straight}
    weights = "adapter_model.safetensors" if kind == "lora" else "model.safetensors"
    assert {weights, "optimizer.safetensors", "state.json"} <= names
    assert len([name for name in straight if name.startswith("turns/")]) == STEPS


@pytest.mark.parametrize("k", [1, 2])
def test_leaving_the_loop_saves_a_checkpoint_to_continue_from(runs, models, tmp_path, k):
    run = tmp_path / "run"
    assert len(play(small.start("shared", models, run, STEPS, save_every=100), k)) == k
    assert lab.load_run(run).steps == lab.load_run(run).checkpoint().step == k
    assert not list(run.rglob("*.tmp"))
    assert train(models, run, workers=1) == list(range(k, STEPS))  # steps count from the start of the run
    assert small.bits(run) == small.bits(runs / "straight" / "shared")


def test_other_devices_are_recorded_from_the_first_step_they_made(models, tmp_path):
    run, here = tmp_path / "run", {"step": 1, "ranks": 1, "device": "cpu"}
    train(models, run, 1)
    begun = lab.load_run(run).config
    assert (begun["ranks"], begun["device"]) == (1, "cpu")
    small.recorded(run, without="ranks", device="NVIDIA T4")
    for steps, continued in ((1, None), (2, [here]), (3, [here])):  # the first makes no step
        train(models, run, steps)
        config = lab.load_run(run).config
        assert config.get("continued") == continued and config["device"] == "NVIDIA T4"
    assert lab.load_run(lab.export(run, tmp_path / "run.zip")).config["continued"] == [here]


def test_run_that_is_already_longer_only_sets_the_team(runs, models, tmp_path):
    shutil.copytree(runs / "straight" / "shared", tmp_path / "run")
    team = small.make_team("shared", models)
    before = team["doer"].model.get_input_embeddings().weight.clone()
    play(lab.train(small.Relay(), team, small.RECIPE, 2, run=tmp_path / "run", watch=small.Memory(), **small.SETTINGS))
    saved = lab.load_run(tmp_path / "run").team()["doer"].model.get_input_embeddings().weight
    assert torch.equal(team["doer"].model.get_input_embeddings().weight, saved)
    assert not torch.equal(before, saved)


@pytest.mark.parametrize("kind", ["shared", "lora"])
def test_a_model_whose_chat_template_changed_is_another(models, tmp_path, kind):
    root, run = shutil.copytree(models, tmp_path / "models"), tmp_path / "run"
    train(root, run, 1, kind)
    with (root / "a" / "chat_template.jinja").open("a") as file:
        file.write("now")
    with pytest.raises(lab.RunError, match=r"policies\.\w+\.source\.digest differs"):
        train(root, run, 2, kind)
    if kind == "shared":  # the checkpoint has its own
        assert lab.load_run(run).team()["doer"].tokenizer.chat_template == small.TEMPLATE
    else:
        with pytest.raises(PolicyError, match=r"chat template of the base model at .* have changed .*; put the"):
            lab.load_run(run).team()


def test_a_second_training_is_refused_until_the_first_is_closed(models, tmp_path):
    run, team = tmp_path / "run", small.make_team("shared", models)
    settings = small.SETTINGS | {"save_every": 100}
    older, newer = (lab.train(small.Relay(), team, small.RECIPE, STEPS, run=run, **settings) for _ in range(2))
    next(older)
    with refused(run, "another training writes in this folder; end it first (a loop by .close()"):
        next(newer)
    assert next(older).step == 1
    older.close()
    assert train(models, run) == [2]


HELD = "import filelock, sys; lock = filelock.FileLock(sys.argv[1]).acquire(); print(1, flush=True); sys.stdin.read()"


def test_second_process_is_refused_while_the_first_trains(runs, models, tmp_path):
    run = tmp_path / "run"
    train(models, run, 1)
    command = [sys.executable, "-c", HELD, str(run / "training.lock")]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "1\n"
        with refused(run, str(run), "another training writes in this folder"):
            train(models, run)
    finally:
        other.kill()
        other.communicate()
    train(models, run)  # its lock went with it
    assert small.bits(run) == small.bits(runs / "straight" / "shared")


def test_leftovers_of_a_kill_are_deleted_on_resume_and_notes_of_a_person_stay(runs, models, tmp_path):
    """Torn files under their staging names, and whole tables beyond the last checkpoint."""
    straight, run = runs / "straight" / "shared", tmp_path / "run"
    play(small.start("shared", models, run, STEPS), 2)
    torn = run / "checkpoints" / "000003.tmp"
    shutil.copytree(run / "checkpoints" / "000002", torn)
    (torn / "state.json").rename(torn / "state.json.tmp")
    (torn / "policies" / "0" / "model.safetensors").write_bytes(b"torn")
    [table] = (straight / "turns").glob("000002-*")
    (run / "turns" / f"{table.name}.tmp").write_bytes(table.read_bytes()[:2000])
    (run / "stats" / "000002-0123456789abcdef.parquet").write_bytes(table.read_bytes())
    notes = [run / "turns" / "README.md", run / "notes.txt"]
    for note in notes:
        note.write_text("mine")
    train(models, run)
    assert small.bits(run) == small.bits(straight) and not list(run.rglob("*.tmp"))
    assert [note.read_text() for note in notes] == ["mine", "mine"]
    assert lab.load_run(run).turns["step"].unique().tolist() == list(range(STEPS))


@pytest.fixture(scope="module")
def short(models, tmp_path_factory):
    """A run of two steps, with checkpoints after one and two."""
    run = tmp_path_factory.mktemp("short") / "run"
    train(models, run, 2)
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["000001", "000002"]
    return run


@pytest.fixture
def run(short, tmp_path):
    return shutil.copytree(short, tmp_path / "run")


def flip(path: Path, position: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


BREAK = {
    "model.safetensors is missing or changed": lambda folder: flip(folder / "policies/0/model.safetensors"),
    "optimizer.safetensors is missing": lambda folder: (folder / "policies/0/training/optimizer.safetensors").unlink(),
    "state.json is changed": lambda folder: flip(folder / "state.json", 5),
}


def test_a_broken_checkpoint_is_named_and_without_it_the_run_goes_on_from_the_one_before(run, runs, models, tmp_path):
    for number, (what, harm) in enumerate(BREAK.items()):
        harm((broken := shutil.copytree(run, tmp_path / str(number))) / "checkpoints" / "000002")
        with refused(broken, what, "checkpoints"):
            train(models, broken)
        with refused(broken, what):
            lab.load_run(broken).team()
    shutil.rmtree(run / "checkpoints" / "000002")
    assert train(models, run) == [1, 2]
    assert small.bits(run) == small.bits(runs / "straight" / "shared")
    shutil.rmtree(run / "checkpoints")
    with refused(run, "holds no checkpoint"):
        train(models, run)


def test_run_json_of_another_making_is_refused(run, models):
    for text, words in (("{", "run.json is not JSON"), ('{"format": 4}', "run.json is changed: it holds another sha")):
        (run / "run.json").write_text(text)
        with refused(run, words):
            train(models, run)
        with refused(run, words):
            lab.load_run(run).recipe  # noqa: B018


ANOTHER = {
    "settings.minibatches differs: the run has 2, this call has 1": {"settings": {"minibatches": 1}},
    "env.max_turns differs": {"env": small.Relay(max_turns=3)},
    "recipe.loss.low differs": {"recipe": small.RECIPE.replace(loss=lab.clipped(0.1))},
    "agents.asker differs": {"kind": "per_agent"},
    "policies.shared.lr differs": {"lr": 0.5},
    "frozen differs": {"frozen": ("asker",)},
    "policies.shared.source.digest differs": {"model": "b"},
    "policies.shared.options.train_tokens differs": {"options": {"train_tokens": 100}},
}


@pytest.mark.parametrize("what", ANOTHER)
def test_other_settings_are_refused_by_name(run, models, what, monkeypatch):
    monkeypatch.setattr(sys.modules["mas_lab.train.hooks"], "in_notebook", lambda: True)  # with a status line
    asked = {"env": small.Relay(), "recipe": small.RECIPE, "kind": "shared", "lr": 1e-2, "settings": {}} | ANOTHER[what]
    if "model" in asked or "options" in asked:
        model = lab.load_policy(models / asked.get("model", "a"), lr=1e-2, **asked.get("options", {}))
        team = lab.Team.shared(model, small.AGENTS)
    else:
        team = small.make_team(asked["kind"], models, asked["lr"])
    team = lab.Team(dict(team), asked.get("sampling", {}), asked.get("frozen", ()))
    weights = {name: value.clone() for name, value in team.policies[next(iter(team.policies))].parameters.items()}
    with refused(run, what):
        play(lab.train(asked["env"], team, asked["recipe"], STEPS, run=run, **small.SETTINGS | asked["settings"]))
    for name, value in team.policies[next(iter(team.policies))].parameters.items():
        assert torch.equal(value, weights[name])


def test_resumed_run_uses_its_number_of_threads(run, models, capfd):
    generator = small.start("shared", models, run, 2)
    torch.set_num_threads(2)
    try:
        play(generator)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(1)
    assert f"torch now uses 1 thread, as {run} did" in capfd.readouterr().err
    assert lab.load_run(run).config["threads"] == 1


def test_a_place_that_is_taken_is_left_alone_and_leftovers_of_a_killed_start_are_deleted(models, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("...")
    with refused(tmp_path, "thesis is not empty and holds no run.json"):
        train(models, tmp_path / "thesis", 1)
    (tmp_path / "run").write_text("a file")
    with refused(tmp_path, f"{tmp_path / 'run'}: cannot keep the run"):
        train(models, tmp_path / "run", 1)
    (tmp_path / "other.tmp" / "turns").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    assert train(models, tmp_path / "other", 0) == []
    assert {path.name for path in tmp_path.iterdir()} == {"run", "thesis", "other"}


def test_failed_start_leaves_nothing(models, tmp_path):
    class Unplain(small.Memory):
        def state(self):
            return {"norms": {1, 2}}

    settings = dict(run=tmp_path / "run", watch=Unplain(), **small.SETTINGS)
    with pytest.raises(lab.RunError, match=r"state\.json cannot hold it: Object of type set"):
        play(lab.train(small.Relay(), small.make_team("shared", models), small.RECIPE, 1, **settings))
    assert list(tmp_path.iterdir()) == []


def test_bare_names_lie_under_runs_dir(models, tmp_path, monkeypatch):
    monkeypatch.setenv("MAS_LAB_RUNS", str(tmp_path / "all"))
    monkeypatch.chdir(tmp_path)
    train(models, "mine", 0)
    (tmp_path / "elsewhere").mkdir()
    for _ in small.start("shared", models, "./here", 1):  # a training that changes the working folder keeps its run
        monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path)
    assert (tmp_path / "here" / "run.json").is_file()
    assert lab.load_run("mine").folder == tmp_path / "all" / "mine"
    assert lab.load_run("./here").steps == lab.load_run("here").checkpoint().step == 1
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


def assert_same_table(left: pd.DataFrame, right: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(left, right.reset_index(drop=True), check_dtype=False, check_exact=True)


def test_loaded_tables_equal_the_reports(models, tmp_path):
    reports = list(small.start("per_agent", models, tmp_path / "run", 2))
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
    assert run.config["versions"]["torch"] == version("torch") and run.config["threads"] == 1


@pytest.mark.parametrize("kind", ["lora", "unlike"])
def test_restored_team_plays_and_trains_alike(runs, models, tmp_path, kind):
    straight, run = runs / "straight" / kind, tmp_path / "run"
    team = small.make_team(kind, models)
    play(lab.train(small.Relay(), team, small.RECIPE, 2, run=run, watch=small.Memory(), **small.SETTINGS))
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
    assert (zipped.recipe, zipped.config, zipped.steps) == (there.recipe, there.config, 2)
    assert path.stat().st_size < sum(len(data) for name, data in contents(run).items() if "checkpoints" not in name) * 2
    with pytest.raises(lab.RunError, match=r"alice\.zip.* not weights"):
        zipped.team()
    assert contents(tmp_path).keys() == {"alice.zip", *(f"run/{name}" for name in contents(run))}
    assert lab.load_run(lab.export(zipped, tmp_path / "again.zip")).steps == 2


def test_runs_hold_no_pickle(models, tmp_path, monkeypatch):
    def no(*arguments, **options):
        raise AssertionError("pickled")

    for module, name in ((pickle, "dump"), (pickle, "dumps"), (torch, "save")):
        monkeypatch.setattr(module, name, no)
    train(models, tmp_path / "lora", 1, "lora")
    train(models, tmp_path / "unlike", 0, "unlike")
    suffixes = {path.suffix for path in tmp_path.rglob("*") if path.is_file()}
    assert suffixes == {".json", ".parquet", ".safetensors", ".jinja", ".lock"}


def test_a_kept_run_is_watched_and_a_watch_that_joins_late_dates_its_spikes_by_the_steps_of_the_run(models, tmp_path):
    run, watch = tmp_path / "run", lab.SpikeWatch(warmup=2, window=4, threshold=1)
    for steps, watching in ((3, None), (7, watch), (8, None)):
        team = small.make_team("shared", models)
        play(lab.train(small.Relay(), team, small.RECIPE, steps, run=run, watch=watching, **small.SETTINGS))
    found = lab.load_run(run).watched()
    assert all(spike in found["spikes"] for spike in watch.spikes), "something is forgotten"
    assert found["tallest"]["norm"] == pytest.approx(lab.load_run(run).stats["grad_norm"].max(), rel=1e-5)
    norms = lab.load_run(run).stats.drop_duplicates(["step", "optimizer_step"]).set_index(["step", "optimizer_step"])
    spikes = lab.SpikeInspector(run).spikes
    assert {spike["step"] for spike in spikes} & {3, 4, 5, 6}
    for spike in spikes:
        assert spike["norms"][""] == pytest.approx(norms["policy_norm"][spike["step"], spike["optimizer_step"]])
