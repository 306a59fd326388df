"""The recipes are the rows of the published table, and each of them is data that reads back as itself."""

import json
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
import small

import mas_lab as lab
from mas_lab.cells.centers import group_mean, shrunken_mean
from mas_lab.cells.credits import difference_return
from mas_lab.cells.plans import without
from mas_lab.describe import describe
from mas_lab.recipes import Recipe, find, from_data, stateful_parts

TASK, ROLE, TURN, NODE = ("task",), ("task", "agent"), ("episode", "agent", "turn"), ("node", "agent")
RETURN, TO_GO = lab.episode_return(), lab.return_to_go()
PLAYED, SIBLINGS, TOGETHER = lab.episodes(8), lab.tree(8, pick=lab.mixed(1.0)), lab.joint(8)
CLIPPED, PLAIN = lab.clipped(0.2), lab.reinforce()

# name: plan, group by, credit, once per (center, scale), center, scale, loss, how tokens are averaged
TABLE = {
    "grpo": (PLAYED, TASK, RETURN, ("episode", "episode"), None, None, CLIPPED, "token"),
    "grpo_masked": (PLAYED, TASK, RETURN, ("episode", "episode"), None, None, CLIPPED, "token"),
    "grpo_turns": (PLAYED, TASK, RETURN, (None, None), None, None, CLIPPED, "token"),
    "dr_mas": (PLAYED, ROLE, RETURN, (None, None), None, None, CLIPPED, "token"),
    "dr_mas_released": (PLAYED, ROLE, RETURN, (None, None), None, None, lab.clipped(0.2, dual=3.0), "token"),
    "dr_mas_mean": (PLAYED, ROLE, RETURN, (None, "episode"), ROLE, TASK, CLIPPED, "token"),
    "dr_mas_std": (PLAYED, ROLE, RETURN, ("episode", None), TASK, ROLE, CLIPPED, "token"),
    "dr_mas_episodes": (PLAYED, ROLE, RETURN, ("episode", "episode"), None, None, CLIPPED, "token"),
    "own_pooled": (PLAYED, ROLE, RETURN, (None, None), None, ("agent",), CLIPPED, "token"),
    "own_robust": (PLAYED, ROLE, RETURN, (None, None), shrunken_mean(), ("agent",), CLIPPED, "token"),
    "c3": (lab.tree(4, follow=2), TURN, lab.counterfactual(), (None, None), "loo", "none", PLAIN, "token"),
    "ccpo": (without(8), ROLE, difference_return(), (None, None), None, None, CLIPPED, "token"),
    "marshal": (PLAYED, ("agent",), lab.own_return(to_go=True), (None, None), None, None, CLIPPED, "token"),
    "max_rl": (PLAYED, TASK, RETURN, (None, None), None, group_mean(), CLIPPED, "token"),
    "at_grpo": (SIBLINGS, TURN, lab.mixed(1.0), (None, None), None, None, CLIPPED, "token"),
    "grpo_mixed": (PLAYED, TASK, lab.episode_return(own=1.0), (None, None), None, None, CLIPPED, "token"),
    "magrpo": (TOGETHER, NODE, TO_GO, (None, None), None, "none", PLAIN, "sum"),
    "mareinforce": (TOGETHER, NODE, TO_GO, (None, None), "none", "none", PLAIN, "sum"),
    "marloo": (TOGETHER, NODE, TO_GO, (None, None), "loo", "none", PLAIN, "sum"),
    "maremax": (TOGETHER, NODE, TO_GO, (None, None), "max", "none", PLAIN, "sum"),
}


def row_of(recipe: Recipe) -> tuple:
    once = recipe.once_per
    twice = (once.get("center"), once.get("scale")) if isinstance(once, dict) else (once, once)
    return (recipe.plan, recipe.by, recipe.credit, twice, recipe.center, recipe.scale, recipe.loss, recipe.aggregate)


def test_each_recipe_is_its_row_and_reads_back_from_json():
    assert set(lab.RECIPES) == set(TABLE)
    for name, expected in TABLE.items():
        assert row_of(lab.RECIPES[name]) == expected and lab.RECIPES[name].name == name
        assert lab.RECIPES[name].same_prompt == (name in ("at_grpo", "c3"))
        rules = {"dr_mas_released": (1, "reward"), "grpo_masked": (0, ROLE), "own_robust": (0, ROLE)}
        assert (lab.RECIPES[name].ddof, lab.RECIPES[name].lone) == rules.get(name, (0, "zero"))
        text = json.dumps(describe(lab.RECIPES[name]))
        assert from_data(json.loads(text)) == lab.RECIPES[name]
        assert json.dumps(describe(from_data(json.loads(text)))) == text


@pytest.mark.parametrize("changes", [
    {"plan": lab.tree(3, pick=lab.counterfactual(), follow=2), "credit": lab.counterfactual()},
    {"plan": lab.joint(2, mode="cross", limit=17), "credit": lab.episode_return(invalid=0.1, own=0.5)},
    {"loss": lab.clipped(0.2, high=0.28, dual=3.0, kl=0.01, entropy=0.001), "ddof": 1, "eps": 0.0, "lone": "lend"},
    {"once_per": {"center": "episode", "scale": None}, "center": ("task", "turn"), "scale": "none"},
    {"by": ("task", "agent"), "credit": lab.mixed(np.float32(0.5)), "loss": lab.reinforce(kl=0.1)},
    {"center": lab.running_mean(("agent", "turn"), 0.9), "scale": "none", "select": lab.not_flat()},
    {"scale": lab.pooled_deviation(("agent", "turn")), "lone": ("agent",)},
])  # fmt: skip
def test_changed_recipes_read_back_and_print_as_the_code_that_makes_them(changes):
    before = describe(lab.RECIPES["at_grpo"])
    recipe = lab.RECIPES["at_grpo"].replace(**changes)
    assert from_data(json.loads(json.dumps(describe(recipe)))) == recipe != lab.RECIPES["at_grpo"]
    assert eval(repr(recipe), {"Recipe": Recipe, **vars(lab), "np": np}) == recipe
    assert describe(lab.RECIPES["at_grpo"]) == before


PURE = dict(lab.RECIPES) | {
    f"{place} {part().__class__.__name__}": lab.RECIPES["dr_mas"].replace(**{place: part()})
    for place, part in (("center", lab.running_mean), ("scale", group_mean), ("scale", lab.pooled_deviation))
}
SMALLER = {lab.episodes: {"n": 2}, without: {"n": 2}, lab.tree: {"k": 2}, lab.joint: {"g": 2}}


def states(recipe):
    return {place: part.state for place, part in stateful_parts(vars(recipe)).items()}


@pytest.mark.parametrize("name", PURE)
def test_the_same_table_has_the_same_advantages_in_every_call(name, models):
    plan = replace(PURE[name].plan, **SMALLER[type(PURE[name].plan)])
    recipe, team = PURE[name].replace(plan=plan), small.make_team("per_agent", models)
    env = small.Relay(together=isinstance(plan, lab.joint))
    turns = lab.rollout(env, team, env.tasks(2, "train", 0), plan, seed=0)
    before = turns.copy()
    for one in (recipe, recipe.after(recipe.advantages(turns, team), team)):
        first, second = one.advantages(turns, team), one.advantages(turns, team)
        pd.testing.assert_frame_equal(first, second, check_exact=True)
        assert states(one.after(first, team)) == states(one.after(second, team))
    pd.testing.assert_frame_equal(turns, before, check_exact=True)


def test_unknown_names_list_the_known():
    with pytest.raises(ValueError, match=r"'grop'.*grpo, grpo_turns, .*dr_mas.*maremax"):
        find("grop")
    with pytest.raises(ValueError, match=r"'drmas'; did you mean 'dr_mas'\? known are grpo, "):
        find("drmas")
    with pytest.raises(KeyError, match=r"'drmas' is not known; did you mean 'dr_mas'\? known are grpo, "):
        lab.RECIPES["drmas"]
    assert "drmas" not in lab.RECIPES and find("grpo") is find(lab.RECIPES["grpo"]) is lab.RECIPES["grpo"]


@dataclass(frozen=True)
class episodes:
    """Called like a plan of the kit."""

    n: int = 2


def a_function(turns):
    return turns["team_reward"]


@pytest.mark.parametrize(("part", "name"), [(episodes(), "episodes"), (a_function, "a_func")])
def test_a_part_of_ones_own_is_named_when_it_cannot_be_read_back(part, name):
    data = json.loads(json.dumps(describe(lab.RECIPES["grpo"].replace(plan=part))))
    assert name in data["plan"]["is"] and data["plan"]["is"] != "episodes"
    with pytest.raises(ValueError, match=f"{name}.*not part of mas_lab.*your own code"):
        from_data(data)
