"""What was equal between runs, what was not, and what nobody can tell: by hand, of runs, and of recorded studies."""

import json
import shutil

import pandas as pd
import pytest
from small import RECIPE, SETTINGS, Relay, make_team, recorded

import mas_lab as lab
from mas_lab.paths import data_dir
from mas_lab.study.entries import Entry
from mas_lab.study.equality import BETWEEN, EQUAL, UNKNOWN, WITHIN, equality, not_equal

STUDIES = data_dir() / "results" / "studies"


def judged(*runs):
    """Each run: its recipe, and what it says of itself; two steps of ten tokens."""
    curve = pd.DataFrame({"step": [0, 2], "tokens": [0, 10], "success": [0.0, 1.0]})
    found = [Entry(f"run {i}", "env", recipe, i, curve, described=said) for i, (recipe, said) in enumerate(runs)]
    return equality(found)


def states(told):
    return told.set_index("what")["state"]


def test_a_difference_is_between_recipes_or_within_one_and_what_is_not_recorded_is_unknown():
    told = judged(("a", {"threads": 1, "code": "x", "env.size": 5, "settings.tasks": 8}),
                  ("a", {"threads": 2, "code": "x", "env.size": 5, "settings.tasks": 8}),
                  ("b", {"threads": 1, "code": "y", "env.size": 5}),
                  ("b", {"threads": 2, "code": "y", "env.size": 5}))  # fmt: skip
    found = states(told)
    assert found[["threads", "code", "env.size", "settings.tasks"]].tolist() == [WITHIN, BETWEEN, EQUAL, UNKNOWN]
    second, first = not_equal(told)
    assert first.startswith("env: recipes differ in more than the recipe: code (a: x; b: y).")
    assert second == "env: runs of one recipe differ in: threads (a: 1 or 2; b: 1 or 2)."
    assert told.set_index("what").loc["settings.tasks", "told"] == "2 of 4 runs do not say it; the others: 8"
    told = judged(("a", {"env.text": "x" * 90 + "a"}), ("b", {"env.text": "x" * 90 + "b"}))
    assert states(told)["env.text"] == BETWEEN and all(len(one) < 200 for one in told["told"]), "long values stay apart"
    told = judged(("a", {}), ("b", {}))
    assert set(states(told)) == {UNKNOWN} and not_equal(told) == []
    assert {"env", "settings", "team", "curriculum", "code", "versions", "device"} <= set(told["what"])


@pytest.fixture(scope="module")
def two_runs(models, tmp_path_factory):
    """grpo with one set of weights, at_grpo with one for each agent and other settings."""
    root = tmp_path_factory.mktemp("unlike")
    asked = {"grpo": ("shared", "grpo", {"tasks": 2, "max_norm": 0.5}), "tree": ("per_agent", RECIPE, {})}
    for name, (kind, recipe, changes) in asked.items():
        list(lab.train(Relay(), make_team(kind, models), recipe, 1, run=root / name, **SETTINGS | changes))
    return root


def test_runs_say_what_they_were_made_of(two_runs, tmp_path):
    told = lab.AblationBoard(two_runs, over="step").equality.set_index("what")
    assert told.loc["settings.max_norm", ["state", "told"]].tolist() == [BETWEEN, "grpo: 0.5; at_grpo: 1.0"]
    assert told.loc["team.asker.weights", "state"] == BETWEEN
    same = ["settings.tasks", "team.asker.lr", "team.doer.source.digest", "code", "threads", "ranks", "device",
            "versions.torch", "env.max_turns"]  # fmt: skip
    assert (told.loc[same, "state"] == EQUAL).all()
    assert not any(name.startswith(("recipe", "settings.workers")) for name in told.index)
    runs = shutil.copytree(two_runs, tmp_path / "runs")
    recorded(runs / "grpo", without="threads", code="abc")
    config = json.loads((runs / "tree" / "run.json").read_text(encoding="utf-8"))
    board = lab.AblationBoard(runs, over="step")
    told = board.equality.set_index("what")
    silent = f"1 of 2 runs do not say it; the others: {config['threads']}"
    assert told.loc["threads", ["state", "told"]].tolist() == [UNKNOWN, silent], "an old run does not record it"
    assert told.loc["code", "state"] == BETWEEN and "code (grpo: abc; at_grpo: " in " ".join(board.cautions)
