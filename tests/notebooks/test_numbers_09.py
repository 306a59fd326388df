"""What notebook 09 says of recorded runs stands in the records, and its team is the one they were made with."""

import json
import random
import sys
import types

import forms
import pandas as pd
import pytest

import mas_lab as lab
from mas_lab.paths import data_dir, notebooks_dir

RECORDS = data_dir() / "results" / "own_team"
TEXT = (notebooks_dir() / "09_your_own_team.ipynb").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def names():
    """What the notebook's cells tagged "env" define."""
    module = types.ModuleType("notebook_09")
    sys.modules[module.__name__] = module  # where its classes are looked for
    for cell in forms.notebook(forms.masters_dir() / "09_your_own_team.py", "solution")["cells"]:
        if "env" in cell["metadata"].get("tags", []):
            exec("".join(cell["source"]), vars(module))
    yield vars(module)
    del sys.modules[module.__name__]


def listed(numbers) -> str:
    *first, last = (f"{number:.2f}" for number in numbers)
    return f"{', '.join(first)} and {last}"


def success(step, recipe="grpo"):
    curves = pd.read_csv(RECORDS / "curves.csv")
    return curves[(curves["recipe"] == recipe) & (curves["step"] == step)].set_index("seed")["success"]


def test_the_curves_are_those_of_the_text():
    assert f"starts at {success(0).mean():.2f}" in TEXT
    assert f"stood at {listed(success(10))} after 10 steps and at {listed(success(40))} after 40" in TEXT
    assert f"With an entropy bonus of 0.02 they ended at {listed(success(40, 'grpo, entropy 0.02'))}" in TEXT
    assert f"`mine` at {listed(success(40, 'mine'))}" in TEXT


def test_the_pocket_model_starts_as_the_text_says():
    told = json.loads((RECORDS / "provenance.json").read_text(encoding="utf-8"))["pocket"]
    assert 0.5 < told["{}"]["success"] < 0.6 and "somewhat more than half" in TEXT


def test_plays_written_by_hand_come_to_what_is_recorded(names):
    recorded = pd.read_csv(RECORDS / "by_hand.csv", index_col="play")["success"]
    env = names["Meeting"]()
    tasks = env.tasks(300, "test", 0)
    for play, written in (("accept or draw", names["accept_or_draw"]), ("accept or new", names["accept_or_new"])):
        again = names["by_hand"](env, written, tasks, random.Random(1))["success"]
        assert again == pytest.approx(recorded[play], abs=0.05)
    assert f"about {recorded['accept or draw']:.1f}." in TEXT and f"to about {recorded['accept or new']:.2f}" in TEXT


def test_its_env_conforms(names):
    lab.check_env(names["Meeting"](), tasks=4)
