"""The golden batches: they are what their script works out, mas_lab gives their numbers, and the page is up to date."""

import importlib
import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks" / "conformance"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="benchmarks/ is part of the checkout alone")
FILES = sorted((FOLDER / "cases").glob("*.json"))
PARTS = ("golden", "make", "page", "run", "table_model", "with_mas_lab")


@pytest.fixture(scope="module")
def parts():
    """The modules of the folder, by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        yield {name: importlib.import_module(name) for name in PARTS}
    for name in PARTS:
        sys.modules.pop(name, None)


def test_the_script_works_out_the_recorded_files_and_sees_a_changed_number(parts):
    assert parts["make"].stale() == [] and len(FILES) >= 30
    case, other = (json.loads(FILES[0].read_text()) for _ in range(2))
    other["expected"]["advantages"][1] += 1e-6
    assert parts["make"].differences(case, other) == ["/expected/advantages/1"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_mas_lab_gives_the_expected_numbers(parts, path):
    case = json.loads(path.read_text())
    answer = parts["run"].judge(case, parts["with_mas_lab"])
    assert answer["verdict"] == "pass", answer
    wanted = set(case["expected"]) - {"refused"}
    assert answer["compared"] == ["refused"] or wanted - set(answer["compared"]) <= {"logprobs", "token_losses"}


def numbered(rows, size):
    """Return the rows with their place in the batch as task: `size` rows each."""
    return [{**row, "task": number // size} for number, row in enumerate(rows)]


MISTAKES = {
    "mean_and_population_deviation": lambda rows, c, s: (rows, c, {**s, "ddof": 1}),
    "mean_and_sample_deviation": lambda rows, c, s: (rows, c, {**s, "ddof": 0}),
    "mean_without_deviation": lambda rows, c, s: (rows, c, {"by": ["task"], "ddof": 0, "eps": 0.0}),
    "deviation_of_the_batch": lambda rows, c, s: (rows, c, {**s, "by": ["task"]}),
    "lone_row": lambda rows, c, s: (rows, {**c, "by": []}, {**s, "by": []}),
    "shuffled_batch": lambda rows, c, s: (numbered(rows, 4), c, s),
    "uneven_groups": lambda rows, c, s: (rows, {**c, "by": []}, s),
    "group_cut_by_micro_batches": lambda rows, c, s: (numbered(rows, 2), c, s),
    "equal_prompts_of_two_tasks": lambda rows, c, s: (rows, {**c, "by": []}, {**s, "by": []}),
    **dict.fromkeys(("leave_one_out", "leave_one_out_with_deviation", "best_of_the_others", "no_baseline"),
                    lambda rows, c, s: (rows, {**c, "statistic": "mean"}, s)),
    "own_mean_and_deviation": lambda rows, c, s: (rows, {**c, "by": ["task"]}, s),
    "global_mean_and_deviation": lambda rows, c, s: (rows, {**c, "by": ["task", "agent"]}, s),
    "long_episode_counts_once": lambda rows, c, s: (rows, {**c, "once_per": None}, s),
    "every_turn_counts": lambda rows, c, s: (rows, {**c, "once_per": "episode"}, s),
    "tree_groups": lambda rows, c, s: (rows, {**c, "by": ["agent"]}, s),
    **dict.fromkeys(("excluded_row_is_no_peer", "invalid_output_is_penalised", "kl_in_the_reward",
                     "rounding_is_not_a_signal"), lambda *asked: asked),
    "normalised_once": lambda rows, c, s: (rows, c, {**s, "by": []}),
}  # fmt: skip
"""Case of advantages -> the rows, center and scale of the mistake that it is about."""
OTHER = {
    "mean_over_tokens": {"aggregate": "row"}, "mean_over_rows": {"aggregate": "token"},
    "sum_over_tokens": {"aggregate": "token"}, "mean_over_agents": {"aggregate": "row"},
    "truncated_row_is_not_counted": {"trained": True}, "zero_advantage_is_counted": {"without": 1},
    "prompt_is_not_trained": {"longer": True}, "padding_is_not_trained": {"padded": True},
    "logits_of_the_token_before": {"shifted": True}, "end_of_sequence_is_trained": {"shorter": True},
    "temperature_of_sampling": {"temperature": 1.0}, "repeated_row": {"trained": True},
    "clip_of_a_positive_advantage": {"clip_high": 9.0}, "clip_of_a_negative_advantage": {"clip_low": 0.9},
    "asymmetric_clip": {"clip_high": 0.2}, "dual_clip_of_a_negative_advantage": {"dual": None},
    "ratio_of_each_token": {"ratio": "sequence"}, "ratio_of_a_sequence": {"ratio": "token"},
    "clipped_ratio_of_a_sequence": {"clip_high": 0.2}, "ratio_of_an_action": {"ratio": "sequence"},
    "ratio_to_the_weights_that_sampled": {"tis": 1.0}, "kl_k1_in_the_loss": {"kl": ("k3", 0.1)},
    "kl_k2_in_the_loss": {"kl": ("k3", 0.1)}, "kl_k3_in_the_loss": {"kl": ("k2", 0.1)},
    "kl_k3_times_the_ratio": {"kl": ("k3", 0.1)}, "kl_k3_with_the_gradient_of_k2": {"kl": ("k3", 0.1)},
    "kl_without_advantage": {"kl": ("k3", 0.0)}, "truncated_importance_weights": {"tis": 9.0},
    "sampler_differs_without_correction": {"tis": 9.0}, "entropy_is_rewarded": {"entropy": -0.1},
}  # fmt: skip
"""Case of a loss -> the setting, or the change of the rows, of the mistake that it is about."""


def changed(rows, settings, change):
    """Return the rows and settings of a mistake."""
    [(key, value)] = change.items()
    rows = [dict(row) for row in rows]
    for row in rows:
        ids = row["completion_ids"]
        if key in ("trained", "temperature"):
            row[key] = value
        if key == "longer":  # the last token of the prompt is trained on
            row["prompt_ids"], row["completion_ids"] = row["prompt_ids"][:-1], [row["prompt_ids"][-1], *ids]
        if key == "padded":
            row["completion_ids"] = [*ids, *[0] * (8 - len(ids))]
        if key == "shifted":
            row["prompt_ids"], row["completion_ids"] = [ids[0]], ids[1:]
        if key == "shorter":
            row["completion_ids"] = ids[:-1]
    if key == "without":
        del rows[value]
    if key == "kl":
        value = {"estimator": value[0], "weight": value[1]}
    return rows, {**settings, key: value}


@pytest.mark.parametrize("name", ["unequal_micro_batches", "unequal_micro_batches_of_rows"])
def test_a_mean_of_means_is_beyond_the_tolerance(parts, name):
    [case] = [case for case in parts["run"].cases() if case["name"] == name]
    settings, rows = case["inputs"]["settings"], case["inputs"]["rows"]
    parted = [parts["make"].work_out([rows[i] for i in part], settings) for part in settings["micro_batches"]]
    assert abs(sum(one["loss"] for one in parted) / len(parted) - case["expected"]["loss"]) > 0.01


def test_each_mistake_is_beyond_the_tolerance(parts):
    """A case can fail: the mistake that it is about gives other numbers."""
    for path in FILES:
        case = json.loads(path.read_text())
        settings, rows, name = case["inputs"]["settings"], case["inputs"]["rows"], case["name"]
        if name in MISTAKES:
            found = parts["make"].advantages(*MISTAKES[name](rows, settings["center"], settings["scale"]))
            gap, _, _ = parts["run"].furthest(case["expected"]["advantages"], found)
        elif name in OTHER:
            found = parts["make"].work_out(*changed(rows, settings, OTHER[name]))["gradient"]
            gap, _, _ = parts["run"].furthest(case["expected"]["gradient"], found)
        else:
            continue
        assert gap > 10 * case["tolerance"]["absolute"], (name, gap)


@pytest.mark.parametrize("found, verdict", [
    ([1.0, -0.9], "pass"),
    ([1.0, -0.5], "fail: -0.5 against -1 (advantages)"),
    ([1.0, math.nan], "fail: nan against -1 (advantages)"),
])  # fmt: skip
def test_a_number_beyond_the_tolerance_fails(parts, found, verdict):
    case = {"name": "one", "kind": "advantages", "expected": {"advantages": [1.0, -1.0]},
            "tolerance": {"absolute": 0.2}}  # fmt: skip
    trainer = SimpleNamespace(DESIGN={}, NOTES={}, advantages=lambda case: {"advantages": found})
    assert parts["run"].judge(case, trainer)["verdict"] == verdict


def test_the_page_holds_the_recorded_answers(parts, tmp_path):
    run, page = parts["run"], tmp_path / "conformance.md"
    parts["page"].write_page(page, run.cases(), run.RESULTS, run.TRAINERS)
    assert page.read_text() == (ROOT / "docs" / "conformance.md").read_text()
