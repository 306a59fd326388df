"""`python -m mas_lab.train --config`: the shipped example, what each key does, and what is refused where."""

import sys

import pytest
import small
import yaml

import mas_lab as lab
from mas_lab.paths import data_dir
from mas_lab.train.__main__ import main
from mas_lab.train.config import Config, ConfigError

EXAMPLE = data_dir() / "configs" / "plan_path.yaml"
SHORT = {"steps": 2, "settings": {"tasks": 2, "check": False}}


def write(path, **changes):
    """The example, with other values of its keys; `None` leaves a key out."""
    data = yaml.safe_load(EXAMPLE.read_text()) | changes
    path.write_text(yaml.safe_dump({key: value for key, value in data.items() if value is not None}))
    return path


def team_of(path, **team):
    return Config.read(write(path, team=team)).make_team()


def test_the_example_trains_and_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MAS_LAB_RUNS", str(tmp_path))
    assert yaml.safe_load(EXAMPLE.read_text())["steps"] == 20
    config = write(tmp_path / "short.yaml", settings=SHORT["settings"])
    assert main(["--config", str(config), "--steps", "1"]) == 0
    first = capsys.readouterr().out.splitlines()
    assert len(first) == 2 and first[0].startswith("step 0 (1 of 1 done)  success ") and "executor" in first[0]
    assert first[1] == f"1 steps in {tmp_path / 'plan_path'}"
    assert main(["--config", str(config), "--steps", "2"]) == 0
    assert [line[:20] for line in capsys.readouterr().out.splitlines()[:-1]] == ["step 1 (2 of 2 done)"]
    run = lab.load_run(tmp_path / "plan_path")
    assert run.steps == 2 and run.recipe.plan == lab.tree(8)
    assert run.stats.groupby("agent")["lr"].first().to_dict() == {"planner": 5e-3, "executor": 3e-3}
    assert run.turns.groupby("agent")["temperature"].first().to_dict() == {"planner": 0.9, "executor": 1.0}
    config = {agent: policy.model.peft_config[policy.adapter] for agent, policy in run.team().items()}
    assert {agent: one.r for agent, one in config.items()} == {"planner": 8, "executor": 4}
    own = write(tmp_path / "fork.yaml", settings=SHORT["settings"] | {"max_norm": 0.5}, run="other", fork="plan_path")
    assert main(["--config", str(own), "--steps", "3"]) == 0
    assert capsys.readouterr().out.startswith("step 2 (3 of 3 done)")
    forked = lab.load_run(tmp_path / "other").config["forked"]
    assert forked == {"from": "plan_path", "step": 2, "changed": ["max_norm: 1.0 -> 0.5"]}


def test_a_file_that_cannot_be_read_is_named(tmp_path, capsys):
    assert main(["--config", "nowhere.yaml"]) == 1
    assert capsys.readouterr().err == (
        "mas_lab.train: nowhere.yaml: cannot be read as YAML in UTF-8: [Errno 2] No such file or directory: "
        "'nowhere.yaml'\n"
    )
    (tmp_path / "a.yaml").write_text("env: [plan_path\nteam: 3")
    with pytest.raises(ConfigError, match=r"a\.yaml: cannot be read as YAML in UTF-8: (?s:.*)line 2"):
        Config.read(tmp_path / "a.yaml")


OWN = """
from dataclasses import dataclass
import small

@dataclass(frozen=True)
class Echo(small.Relay):
    target: int = 3
"""


@pytest.fixture
def own(tmp_path, models, monkeypatch):
    """A folder with a user's env and a config beside it, which is read from elsewhere."""
    (tmp_path / "echo_env.py").write_text(OWN)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    yield lambda **changes: write(
        tmp_path / "own.yaml", run=str(tmp_path / "run"), recipe={"name": "grpo"}, steps=1, settings={"tasks": 2},
        team={"weights": "shared", "model": str(models / "a"), "lr": 1e-3}, **changes,
    )  # fmt: skip
    sys.modules.pop("echo_env", None)


def test_an_env_of_ones_own_trains_from_its_file_and_goes_on(own, tmp_path):
    config = own(env={"name": "echo_env:Echo", "target": 4})
    assert main(["--config", str(config)]) == 0
    run = lab.load_run(tmp_path / "run")
    assert run.config["env"].items() >= {"name": "echo_env:Echo", "target": 4}.items()
    assert main(["--config", str(config), "--steps", "2"]) == 0 and run.steps == 2
    assert Config.read(own(env="echo_env.py:Echo")).env.target == 3


NO_ENVS = {
    "nowhere:Echo": "own.yaml: env: .*there is no file .*nowhere.py, and importing nowhere failed: ModuleNotFound",
    "echo_env:Ecco": "echo_env has no class 'Ecco'; its envs are: Echo",
    "broken:Echo": "importing .*broken.py failed: NameError",
}


@pytest.mark.parametrize("name", NO_ENVS)
def test_what_is_no_env_of_ones_own_is_refused_with_its_place(own, tmp_path, name):
    (tmp_path / "broken.py").write_text("oh")
    with pytest.raises(ConfigError, match=NO_ENVS[name]):
        Config.read(own(env=name))
    with pytest.raises(ConfigError, match=r"env 'echo_env:Echo' has no option aim; its options are: .*target"):
        Config.read(own(env={"name": "echo_env:Echo", "aim": 3}))


def test_a_run_that_somebody_handed_in_imports_nothing(own, tmp_path, monkeypatch):
    assert main(["--config", str(own(env="echo_env:Echo"))]) == 0
    run = tmp_path / "run"
    config = yaml.safe_load((run / "run.json").read_text())
    config["env"]["name"] = "evil:Env"
    small.recorded(run, env=config["env"])
    (tmp_path / "elsewhere" / "evil.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    path = lab.export(run, tmp_path / "run.zip")
    assert lab.load_run(path).config["env"]["name"] == "evil:Env" and lab.RolloutViewer(path)
    assert lab.load_run(run).team() and lab.AblationBoard([run]) and "evil" not in sys.modules
    with pytest.raises(ValueError, match=r"no env is named 'evil:Env'; .*pass your own env as an object"):
        lab.make_env(**config["env"])


def test_weights_in_common_and_of_their_own(tmp_path, models):
    path, model = tmp_path / "a.yaml", str(models / "a")
    shared = team_of(path, weights="shared", model=model, device="cpu", options={"train_tokens": 64})
    assert shared["planner"].shared.options.train_tokens == 64 and shared["planner"].shared.options.device == "cpu"
    assert list(shared.policies) == ["shared"] and shared["planner"].lr == 1e-6
    other = {"executor": {"model": str(models / "b"), "lr": 0.5}}
    apart = team_of(path, weights=[["executor"], ["planner"]], model=model, agents=other)
    assert list(apart.policies) == ["planner", "executor"] and apart["executor"].lr == 0.5
    assert len(apart["executor"].tokenizer) == len(apart["planner"].tokenizer) + 5


def test_adapters_share_a_base(tmp_path, models):
    own = {"executor": {"lora": 2, "lr": 1e-2, "frozen": True, "temperature": 0.5, "max_tokens": 3}}
    adapters = {"weights": "per_agent", "lora": 4, "lr": "1e-3"}
    team = team_of(tmp_path / "a.yaml", model=str(models / "a"), agents=own, **adapters)
    planner, executor = team["planner"], team["executor"]
    assert planner.shared is executor.shared and (planner.lr, executor.lr) == (1e-3, 1e-2)
    assert [planner.model.peft_config[policy.adapter].r for policy in (planner, executor)] == [4, 2]
    assert team.frozen == ("executor",)
    assert team.sampling == {"planner": lab.Sampling(), "executor": lab.Sampling(0.5, 3)}


SHARED = {"weights": "shared"}
WRONG = {
    r": stpes: unknown key; data/configs/plan_path.yaml lists all keys": {"stpes": 3},
    r": recipe: this key is missing": {"recipe": None},
    r": recipe: unknown recipe 'grpoo'; did you mean 'grpo'\? known are grpo": {"recipe": "grpoo"},
    r": env: no env is named 'plan_paht'": {"env": {"name": "plan_paht"}},
    r": settings: train: unknown setting 'taks'; known are tasks": {"settings": {"taks": 5}},
    r": steps: Input should be a valid integer.*got 'many'": {"steps": "many"},
    r": team: Input should be a valid dictionary.*got \[\]": {"team": []},
    r": team\.weights: .* each of planner, executor stands once": {"team": {"weights": [["planner"]]}},
    r": team\.lr: Input should be a valid number.*got 'fast'": {"team": SHARED | {"lr": "fast"}},
    r": team\.agents\.planner\.rank: unknown key": {
        "team": SHARED | {"agents": {"planner": {"rank": 3}}}},
    r": team\.agents\.executor\.lr: 'executor' has its weights in common with 'planner', so both .* same of lr;": {
        "team": SHARED | {"agents": {"executor": {"lr": 3}}}},
}  # fmt: skip


@pytest.mark.parametrize("words", WRONG)
def test_what_is_wrong_is_named_with_its_place(tmp_path, words):
    path = write(tmp_path / "a.yaml", **WRONG[words])
    with pytest.raises(ConfigError, match=rf"a\.yaml{words}"):
        Config.read(path)
