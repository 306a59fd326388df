"""The names that outside checks call are there, with those arguments; importing them pulls in nothing heavy."""

import inspect
import re
import subprocess
import sys
from importlib import metadata

import pytest

import mas_lab as lab
from mas_lab import contrib
from mas_lab.contrib import programs, tinker, verl  # noqa: F401 - `named` finds them

# name: the arguments in their order, with the defaults that are promised; `...`: a default that is not
SIGNATURES = {
    "make_env": "name size='pocket' rewards='ours' single_agent=False n_agents=None **task_options",
    "imitate": "team env tasks steps batch=32 lr=None max_norm=1.0 seed=0",
    "make_pocket": "env out steps=... seed=0",
    "load_policy": "name backend='torch' lora=None lr=... template=... seed=0",
    "load_base": "name backend='torch' adapters=...",
    "Team.shared": "policy agents",
    "Team.per_agent": "make agents",
    "Team": "policies sampling=... frozen=()",
    "rollout": "env team tasks plan=... seed=0 max_turns=None workers=None",
    "episodes": "n",
    "tree": "k pick=... follow=0",
    "joint": "g mode=... limit=256 stop=...",
    "Generate": "at agent candidate=0",
    "StepEnv": "at said",
    "Score": "rows credit",
    "group": "turns by credit same_prompt=False",
    "normalize": "turns center=None scale=None once_per=None ddof=0 eps=1e-06 lone='zero'",
    "select": "turns selector",
    "running_mean": "by=('agent',) decay=0.95",
    "group_stats": "turns",
    "entropies": "team turns",
    "episode_return": "invalid=0.0 own=0.0",
    "mixed": "alpha=... local=1.0",
    "return_to_go": "gamma=...",
    "clipped": "low=0.2",
    "update": "team turns loss=... aggregate='token' watch=None",
    "train": "env team recipe steps=None seed=... run=None watch=None curriculum=None budget=None fork=None",
    "load_run": "path",
    "read": "path format=None columns=None",
    "export": "run path",
    "evaluate": "env team tasks k=1 swap=None seed=0 sampling=None",
    "check_env": "env",
    "LiveDashboard": "env team recipe steps seed=0 run=None",
    "LiveDashboard.fork": "self run=None lr=None team=None",
    **dict.fromkeys(("counterfactual", "doctor", "not_flat", "own_return", "reinforce"), ""),
    **dict.fromkeys(("row_mean", "row_sum"), "values_N row_N"),
    **dict.fromkeys(("AblationBoard", "RewardInspector", "RolloutViewer", "SpikeInspector"), "x"),
}
CONTRIB = {
    "programs.play": "program team tasks n=1 seed=0 **options",
    "programs.ProgramEnv": "program agents train=() test=()",
    "programs.EpisodeResult": "team=0.0 agents=... success=None info=...",
    "verl.export": "run path env=None",
    "tinker.TinkerOptions": "url=... api_key=None model=None",
}
"""Names of `mas_lab.contrib`."""
# What may stand between the promised ones: they are passed by name.
BY_NAME = ("update", "load_base")


def named(path: str):
    found = lab if path in SIGNATURES else contrib
    for part in path.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("path", [*SIGNATURES, *CONTRIB])
def test_the_names_and_arguments_that_outside_checks_call(path):
    parameters = inspect.signature(named(path)).parameters
    promised = (SIGNATURES | CONTRIB)[path].split()
    order = [one.strip("*").partition("=")[0] for one in promised]
    there = list(parameters) if path not in BY_NAME else [name for name in parameters if name in order]
    assert there[: len(order)] == order
    for one, name in zip(promised, order, strict=True):
        if one.startswith("**"):
            assert parameters[name].kind is inspect.Parameter.VAR_KEYWORD
        elif "=" not in one:
            assert parameters[name].default is inspect.Parameter.empty
        elif not one.endswith("=..."):
            assert repr(parameters[name].default) == one.partition("=")[2]
        else:
            assert parameters[name].default is not inspect.Parameter.empty


def test_everything_public_exists_and_is_listed_once():
    assert inspect.signature(lab.update).parameters["loss"].default == lab.clipped(0.2)
    assert len(lab.__all__) == len(set(lab.__all__))
    assert all(getattr(lab, name).__doc__ for name in lab.__all__)
    assert {"ENVS", "RECIPES", *(path.partition(".")[0] for path in SIGNATURES)} <= set(lab.__all__)


@pytest.mark.parametrize("line", ["import mas_lab.__main__; mas_lab.rollout",
                                  "from mas_lab.contrib import programs, tinker, verl"])  # fmt: skip
def test_an_import_pulls_in_what_tables_need_and_nothing_else(line):
    """Of what the package or one of its extras asks for; torch and its company are imported where they are used."""
    code = f"{line}; import sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    owners = metadata.packages_distributions()
    asked = {re.match(r"[\w.-]+", line)[0] for line in metadata.requires("mas-lab")}
    assert {"torch", "plotly", "trl", "pytest"} <= asked
    found = {owner for name in loaded for owner in owners.get(name, ()) if owner in asked}
    more = {"filelock", "psutil"} if "contrib" in line else set()  # of loading a policy, and as small
    assert found <= {"numpy", "pandas", "pyarrow", "pydantic", "tqdm", *more}


def test_an_env_imports_its_own_task_and_a_name_may_be_that_of_a_module_which_nobody_has_imported_yet():
    code = "import sys, mas_lab as lab; lab.sandbox; lab.course; lab.make_env('plan_path'); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, encoding="utf-8", check=True)
    assert [name for name in lab.ENVS if f"mas_lab.tasks.{name}" in loaded.stdout.split()] == ["plan_path"]
