"""What parts that are no dataclass hold: told, compared by name when a run goes on, or said to be untold."""

import functools
import re
import warnings
from dataclasses import dataclass
from functools import partial

import pytest
import small

import mas_lab as lab
from mas_lab.env import spec
from mas_lab.fingerprint import comparable, untold
from mas_lab.recipes import to_data


def bonus(turns, per_word=0.0, words=()):
    return turns["team_reward"] + per_word


def closure(per_word):
    def credit(turns):
        return turns["team_reward"] + per_word

    return credit


@dataclass(frozen=True)
class Judge:
    strict: bool = True

    def score(self, turns):
        return turns["team_reward"]


class Own:
    """An env that is no dataclass."""

    def __init__(self, size=5, _cache=None, rows=None):
        self.size, self._cache, self.rows, self.inner = size, _cache, rows, small.Relay()

    def __getattr__(self, name):
        if name == "name" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)


@dataclass(frozen=True)
class Scored(small.Relay):
    by: object = None


class First:
    """A curriculum."""

    def __init__(self, easy=True):
        self.easy = easy

    def __call__(self, env, n, split, seed):
        return env.tasks(n, split, seed)


class sharp(lab.clipped):
    """A loss that is no dataclass of its own."""

    def __init__(self, beta):
        super().__init__(0.2)
        object.__setattr__(self, "beta", beta)


def given(**part):
    return {"recipe": small.RECIPE.replace(**part)}


def started(models, run, env=None, recipe=small.RECIPE, **asked) -> None:
    """A training of no steps: what was asked is kept, or compared with what was kept."""
    team = small.make_team("shared", models)
    list(lab.train(env or small.Relay(), team, recipe, 0, run=run, **small.SETTINGS | asked))


CHANGED = {
    "env.holds.attributes.size differs: the run has 5, this call has 7": ({"env": Own()}, {"env": Own(7)}),
    "curriculum.holds.attributes.easy differs: the run has true": [{"curriculum": First(one)} for one in (True, False)],
    "recipe.loss.holds.attributes.beta differs: the run has 1, this call has 2": [given(loss=sharp(b)) for b in (1, 2)],
} | {f"recipe.credit.holds.{words}": [given(credit=part) for part in parts] for words, parts in {
    "keywords.per_word differs: the run has 0.5, this call has 1": [partial(bonus, per_word=one) for one in (0.5, 1)],
    "captured.per_word differs: the run has 1, this call has 2": [closure(1), closure(2)],
    "defaults.by differs": [lambda turns, by=1: turns["team_reward"], lambda turns, by=2: turns["team_reward"]],
    "of.strict differs: the run has true, this call has false": [Judge().score, Judge(False).score],
}.items()}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*its code")
@pytest.mark.parametrize("words", CHANGED)
def test_a_part_that_holds_something_else_is_refused_by_name(models, tmp_path, words):
    first, other = CHANGED[words]
    for _ in range(2):
        started(models, tmp_path / "run", **first)
    with pytest.raises(lab.RunError, match=re.escape(words)):
        started(models, tmp_path / "run", **other)


UNTOLD = {
    "env (tests:Own): _cache": ({"env": Own(_cache={})}, {"env": Own(_cache={"a": 1})}),
    "env (tests:Own): rows, _cache": ({"env": Own(rows="row " * 999)}, {"env": Own(rows="other " * 999)}),
    "recipe.credit (tests.<lambda>): its code": [
        given(credit=part) for part in (lambda turns: turns["team_reward"], lambda turns: turns["local_reward"])],
}  # fmt: skip


@pytest.mark.parametrize("words", UNTOLD)
def test_what_cannot_be_told_is_said_and_does_not_hold_the_run_up(models, tmp_path, words):
    for asked in UNTOLD[words]:
        with pytest.warns(UserWarning, match=r"run\.json does not tell .*frozen dataclass.* compared whole") as said:
            started(models, tmp_path / "run", **asked)
        [line] = {str(one.message) for one in said if "does not tell" in str(one.message)}
        assert words.replace("tests", __name__) in line
    assert lab.load_run(tmp_path / "run").config["untold"] == [words.replace("tests", __name__)]
    with warnings.catch_warnings():  # dataclasses and functions say nothing
        warnings.simplefilter("error", UserWarning)
        started(models, tmp_path / "told", env=Scored(by=bonus), **given(credit=bonus))
    assert lab.load_run(tmp_path / "told").config["untold"] == []


def test_parts_are_described_by_what_they_hold():
    held = {"is": "functools.partial", "holds": {"of": {"is": f"{__name__}.bonus"}, "keywords": {"words": [1]}}}
    assert to_data(partial(bonus, words=(1,))) == held
    assert spec(Own(3)) == {"name": f"{__name__}:Own", "holds": {"attributes": {
        "size": 3, "rows": None, "inner": {"is": "small:Relay", "together": False, "max_turns": 2, "broken": ""}},
        "untold": ["_cache"]}}  # fmt: skip
    cached = functools.cache(partial(bonus, per_word=2))
    assert to_data(cached)["holds"]["of"]["holds"]["keywords"] == {"per_word": 2}
    assert to_data(closure({3, 1}))["holds"] == {"captured": {"per_word": ["1", "3"]}}


def test_what_holds_itself_or_breaks_when_it_is_told_is_untold():
    def again(turns):
        return again(turns)

    class Odd:
        def __init__(self):
            self.me, self.bad, self.one = self, Unprintable(), 1

    class Unprintable:
        __slots__ = ()

        def __repr__(self):
            raise RuntimeError

    assert "what it holds" in untold({"credit": to_data(again)})[0]
    assert to_data(Odd())["holds"]["attributes"]["one"] == 1 and to_data(Odd())["holds"]["untold"] == ["bad"]


def test_only_what_both_sides_tell_is_compared():
    there = {"is": "x", "holds": {"attributes": {"a": 1, "gone": 2, "late": 3}, "keywords": {"k": 1}}}
    here = {"is": "x", "holds": {"attributes": {"a": 4, "new": 5}, "keywords": {}, "untold": ["late"]}}
    first, second = comparable(there, here)
    assert (first["holds"]["attributes"], second["holds"]["attributes"]) == ({"a": 1}, {"a": 4})
    assert (first["holds"]["keywords"], second["holds"]["keywords"]) == ({"k": 1}, {})
