"""A part as plain data: equal for equal parts, other for others, and refused where nobody can tell."""

import functools
import linecache
import re
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
import small
from own_parts import written_in

import mas_lab as lab
from mas_lab.describe import describe, differences, differing, sources, without_modules
from mas_lab.env import spec


def bonus(turns, per_word=0.0, words=()):
    return turns["team_reward"] + per_word


def test_parts_of_one_source_are_the_same_without_their_modules():
    spaces = [written_in(*where) for where in (("__main__",), ("parts",), ("__main__", 1.0))]
    first, moved, changed = (lab.RECIPES["grpo"].replace(center=space["center"], credit=space["credit"](0.1))
                             for space in spaces)  # fmt: skip
    told = [without_modules(describe(one), sources(one)) for one in (first, moved, changed)]
    assert describe(first) != describe(moved) and told[0] == told[1] != told[2]
    assert "@" in str(told[0]) and "__main__" not in str(told[0])


def test_a_source_that_is_not_known_is_no_identity():
    space = written_in("__main__", 2.0)
    linecache.cache.pop("<__main__ 2.0>")
    own = lab.RECIPES["grpo"].replace(center=space["center"], credit=space["credit"]())
    assert sources(own) == {} and without_modules(describe(own), {}) == describe(own)
    assert sources(lab.RECIPES["at_grpo"].replace(center=len)) == {}, "the kit and Python have a version"
    text = "class part({number}):\n    def __call__(self, turns): return turns"
    one, other = (sources(lab.RECIPES["grpo"].replace(center=written_in("parts", base, text)["part"]()))
                  for base in ("dict", "list"))  # fmt: skip
    assert one.keys() == other.keys() and one != other, "other bases"


def closure(per_word):
    def credit(turns):
        return turns["team_reward"] + per_word

    return credit


@dataclass(frozen=True)
class Judge:
    strict: bool = True
    calls: list = field(default_factory=list, init=False)

    def score(self, turns):
        return turns["team_reward"]


class Easy:
    """A curriculum with an attribute."""

    def __init__(self):
        self.easy = False

    def __call__(self, env, n, split, seed):
        return env.tasks(n, split, seed)


class Own:
    """An env that is no dataclass."""

    def __init__(self, size=5):
        self.size, self.inner = size, small.Relay()

    def __getattr__(self, name):
        if name == "name" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)


@dataclass(frozen=True)
class Scored(small.Relay):
    by: object = None


class sharp(lab.clipped):
    """A loss that is no dataclass of its own."""

    def __init__(self, beta):
        super().__init__(0.2)
        object.__setattr__(self, "beta", beta)


def with_part(**part):
    return {"recipe": small.RECIPE.replace(**part)}


def start(models, run, env=None, recipe=small.RECIPE, **settings) -> None:
    """A training of no steps: its description is kept, or compared with the one that was kept."""
    team = small.make_team("shared", models)
    list(lab.train(env or small.Relay(), team, recipe, 0, run=run, **small.SETTINGS | settings))


CHANGED = {
    "env.by differs": [{"env": Scored(by=by)} for by in (bonus, closure)],
    "recipe.credit.holds.keywords.per_word differs: the run has 0.5, this call has 1": [
        with_part(credit=partial(bonus, per_word=one)) for one in (0.5, 1)],
    "recipe.credit.holds.of.strict differs: the run has true, this call has false": [
        with_part(credit=Judge(strict).score) for strict in (True, False)],
}  # fmt: skip


@pytest.mark.parametrize("words", CHANGED)
def test_a_run_goes_on_with_equal_parts_and_refuses_others_by_name(models, tmp_path, words, monkeypatch):
    monkeypatch.setattr(Judge, "__call__", Judge.score, raising=False)
    first, other = CHANGED[words]
    for _ in range(2):
        start(models, tmp_path / "run", **first)
    with pytest.raises(lab.RunError, match=re.escape(words)):
        start(models, tmp_path / "run", **other)


REFUSED = {
    r"recipe\.credit \(tests\.test_describe\.closure\.<locals>\.credit": with_part(credit=closure(1)),
    r"recipe\.loss \(tests\.test_describe\.sharp": with_part(loss=sharp(1)),
    r"curriculum \(tests\.test_describe\.Easy": {"curriculum": Easy()},
    r"env \(tests\.test_describe\.Own": {"env": Own()},
}


@pytest.mark.parametrize("words", REFUSED)
def test_a_part_that_no_run_can_record_is_refused_with_the_remedy(models, tmp_path, words):
    start(models, None, **REFUSED[words])  # without a run it is fine
    remedy = r"\) has content that run\.json cannot record; with run=, write a function of a module .* frozen dataclass"
    with pytest.raises(TypeError, match=words + remedy):
        start(models, tmp_path / "run", **REFUSED[words])
    assert not (tmp_path / "run").exists()


def test_parts_are_described_by_name_and_options():
    assert describe(lab.mixed(0.5)) == {"is": "mixed", "alpha": 0.5, "local": 1.0}
    assert describe(Judge()) == {"is": f"{__name__}.Judge", "strict": True}
    assert describe(bonus) == describe(functools.cache(bonus)) == {"is": f"{__name__}.bonus"}
    bound = {"is": "functools.partial", "holds": {"of": {"is": f"{__name__}.bonus"}, "keywords": {"words": [1]}}}
    assert describe(partial(bonus, words=(1,))) == bound
    assert describe({"a": {3, 1}, "b": Path("c")}) == {"a": [1, 3], "b": repr(Path("c"))}
    assert spec(Scored(by=bonus))["by"] == f"{__name__}:bonus"
    assert spec(Scored(by=Judge()))["by"] == {"is": f"{__name__}:Judge", "strict": True}


def test_differences_name_the_option_and_both_values():
    there = {"plan": {"is": "tree", "k": 3}, "loss": {"is": "clipped", "low": 0.2}, "seed": 1}
    here = {"plan": {"is": "tree", "k": 2}, "loss": {"is": "reinforce"}, "seed": 1, "more": 0}
    assert list(differing(there, here)) == [
        ("plan.k", 3, 2), ("loss", there["loss"], here["loss"]), ("more", None, 0),
    ]  # fmt: skip
    assert differences(there, {**there, "seed": 2}) == "seed differs: the run has 1, this call has 2"
    assert differences(there, there) == ""
