"""What a study asks for, cell by cell, and what is refused of it before anything is trained.

Also the learning rate of each arm, chosen by one rule.
"""

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tiny_study import TINY

from mas_lab.recipes import RECIPES
from mas_lab.study.design import Design
from mas_lab.study.runner import best_rate, chosen
from mas_lab.train.config import ConfigError


def design(**changes):
    told = {**TINY, **changes}
    return Design.of({key: value for key, value in told.items() if value is not None}, Path("a.yaml"))


def configs(made, rates=None):
    return {(cell.task, cell.arm, cell.seed): cell.config for cell in made.comparisons(rates or {})}


def test_an_arm_overrides_a_task_and_a_task_overrides_the_design():
    made = design(
        tasks={"two": {}, "three": {"env": {"n_agents": 3}, "settings": {"max_norm": 0.1}, "seeds": [7]}},
        arms={"global": {"recipe": "grpo"}, "steep": {"recipe": {"name": "grpo", "eps": 0.1}, "team": {"lr": 1e-3}}},
    )
    found = configs(made)
    assert list(found) == [("two", "global", 0), ("two", "steep", 0), ("two", "global", 1), ("two", "steep", 1),
                           ("three", "global", 7), ("three", "steep", 7)]  # fmt: skip
    two, three = found["two", "global", 0], found["three", "steep", 7]
    assert two["env"] == {"name": "ladder", "n_agents": 2} and three["env"] == {"name": "ladder", "n_agents": 3}
    assert three["settings"] == {"tasks": 2, "max_norm": 0.1}
    assert (two["team"]["lr"], three["team"]["lr"]) == (3e-4, 1e-3)
    assert made.comparisons({})[-1].training().recipe == RECIPES["grpo"].replace(eps=0.1)


def test_a_task_replaces_the_env_and_the_budget_and_seeds_have_weights_of_their_own():
    config = configs(design(tasks={"help": {"env": "paid_help", "budget": {"tokens": 100}}}))["help", "own", 0]
    assert config["env"] == {"name": "paid_help"} and config["budget"] == {"tokens": 100}
    made = design(team={"weights": "per_agent", "agents": {"stage_1": {"model": "made/{seed}"}}}).comparisons({})
    assert [one.config["team"]["agents"]["stage_1"]["model"] for one in made[::2]] == ["made/0", "made/1"]


def test_a_sweep_tries_every_rate_of_every_arm_and_the_comparison_takes_the_best():
    made = design(
        sweep={"lr": [1e-4, 1e-3], "seeds": [5, 6, 7]},
        tasks={"two": {}, "three": {"env": {"n_agents": 3}, "rates": "two", "arms": ["own"]}},
    )
    sweeps = made.sweeps()
    assert {cell.task for cell in sweeps} == {"two"} and len(sweeps) == 2 * 2 * 3
    assert {cell.seed for cell in sweeps} == {5, 6, 7} and sweeps[0].config["team"]["lr"] == 1e-4
    assert made.comparisons({}) == [], "no rate is known yet"
    compared = made.comparisons({("two", "global"): 1e-4, ("two", "own"): 1e-3})
    rates = {(cell.task, cell.arm): cell.config["team"]["lr"] for cell in compared}
    assert rates == {("two", "global"): 1e-4, ("two", "own"): 1e-3, ("three", "own"): 1e-3}


def test_equal_configs_have_one_digest_and_any_other_has_another():
    first, second = (design().comparisons({}) for _ in range(2))
    assert [cell.digest for cell in first] == [cell.digest for cell in second]
    assert len({cell.digest for cell in first}) == 4 and len({cell.name for cell in first}) == 4
    changed = [design(budget={"episodes": 64}), design(settings={"tasks": 3}), design(team=TINY["team"] | {"lr": 1e-4})]
    assert all(one.comparisons({})[0].digest != first[0].digest for one in changed)
    cell = first[0]  # it names no scores, and has the digest that it had when it was scored at the ends alone
    [ends, *_] = design(settings=TINY["settings"] | {"score_every": 10**9}).comparisons({})
    assert cell.digest == ends.digest == "3244c0346e"
    assert cell.training().settings["score_every"] == 0.25 and ends.training().settings["score_every"] == 10**9
    [named, *_] = design(settings=TINY["settings"] | {"score_at": [100]}).comparisons({})
    assert "score_every" not in named.training().settings and named.digest != cell.digest


UNLIKE = {"global": {"recipe": "grpo"}, "own": {"recipe": "dr_mas", "settings": {"max_norm": None}}}


@pytest.mark.parametrize(("changes", "words"), [
    ({"arm": {}}, r"a\.yaml: arm is unknown; known keys are name, .*"), ({"arms": None}, "arms is missing; "),
    ({"arms": ["grpo"]}, r"arms: \['grpo'\]; give a mapping"),
    ({"arms": {"a": "grpo"}}, r"arms\.a: 'grpo'; give a mapping, whose keys may be env, "),
    ({"tasks": {"two": {"differ": ["lr"]}}}, r"a\.yaml: tasks\.two: differ is unknown; known keys are env, "),
    ({"budget": {"hours": 3}}, r"a\.yaml: .*budget: budget={'hours': 3}"),
    ({"arms": {"a": {}}}, r"a\.yaml: .*a\.recipe: this key is missing"),
    ({"tasks": {"two": {"arms": ["ours"]}}}, r"tasks\.two\.arms: there is no arm 'ours'"),
    ({"sweep": {"lr": [1e-3], "seeds": [1, 2, 3]}}, r"sweep: it has a seed of the comparison"),
    ({"differ": ["recipe"], "arms": UNLIKE}, r"differ in settings\.max_norm too .*own: None.* names recipe alone"),
])  # fmt: skip
def test_a_design_of_no_study_is_refused_with_its_place(changes, words):
    with pytest.raises(ConfigError, match=words):
        design(**changes)


def test_arms_may_differ_in_what_the_design_names():
    assert design(differ=["recipe", "settings.max_norm"], arms=UNLIKE).seeds_of("ladder") == [0, 1]
    differ = design().differences("ladder")
    assert list(differ) == ["recipe.by", "recipe.once_per"]
    assert differ["recipe.by"] == {"global": ["task"], "own": ["task", "agent"]}
    assert not design(arms={"a": {"recipe": "grpo"}, "b": {"recipe": "grpo"}}).differences("ladder")


def sweep(finals):
    """`{(task, arm): {lr: (a score per seed)}}` as a table."""
    rows = [(*cell, lr, seed, score) for cell, tried in finals.items() for lr, scores in tried.items()
            for seed, score in enumerate(scores)]  # fmt: skip
    return pd.DataFrame(rows, columns=["task", "arm", "lr", "seed", "final"])


TRIED = sweep({
    ("ladder", "mean"): {1e-3: (0.1, 0.2, 0.3), 3e-3: (0.5, 0.5, 0.8), 1e-2: (0.9, 0.1, 0.2)},
    ("ladder", "own"): {3e-3: (0.1, 0.2, 0.3), 1e-2: (0.3, 0.2, 0.1), 3e-2: (0.0, 0.0, 0.0)},
    ("search", "own"): {1e-3: (0.0, 0.0, 0.1), 1e-2: (0.2, 0.2, 0.2), 1e-1: (0.2, 0.2, 0.3)},
})  # fmt: skip


def test_the_highest_mean_is_chosen_and_of_two_the_smaller_rate():
    found = best_rate(TRIED)
    best = found[found["chosen"]].set_index(["task", "arm"])
    assert best["lr"].to_dict() == {("ladder", "mean"): 3e-3, ("ladder", "own"): 3e-3, ("search", "own"): 1e-1}
    assert chosen(found) == best["lr"].to_dict() and chosen(pd.DataFrame()) == {}
    assert best["edge"].tolist() == [False, True, True]  # the least, and the highest, of those tried
    assert best["mean"].tolist() == pytest.approx([0.6, 0.2, 0.7 / 3])
    assert len(found) == 9 and found["seeds"].tolist() == [3] * 9 and not found.loc[~found["chosen"], "edge"].any()
    [dropped] = found[(found["arm"] == "mean") & (found["lr"] == 1e-2)].itertuples()
    assert (dropped.mean, dropped.least, dropped.most) == (pytest.approx(0.4), 0.1, 0.9)


def test_the_order_of_the_runs_does_not_matter_and_a_failed_run_makes_its_rate_the_worst():
    """0.1 + 0.2 + 0.3 is another number than 0.3 + 0.2 + 0.1, and their mean must tie all the same."""
    for order in itertools.permutations((0.1, 0.2, 0.3)):
        assert chosen(best_rate(sweep({("t", "a"): {1e-3: order, 1e-2: (0.1, 0.2, 0.3)}}))) == {("t", "a"): 1e-3}
    mixed = best_rate(TRIED.sample(frac=1, random_state=0)).sort_values(["task", "arm", "lr"])
    pd.testing.assert_frame_equal(mixed.reset_index(drop=True), best_rate(TRIED))
    found = best_rate(sweep({("t", "a"): {1e-3: (0.0, 0.1, 0.1), 1e-2: (0.9, 0.9, -np.inf)}}))
    assert found.set_index("lr")["mean"].to_dict() == pytest.approx({1e-3: 0.2 / 3, 1e-2: -np.inf})
    assert chosen(found) == {("t", "a"): 1e-3}
