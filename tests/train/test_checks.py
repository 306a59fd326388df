"""Arguments of `train` that make no training are refused before the run begins."""

import pytest
import small

import mas_lab as lab


@pytest.fixture
def team(models):
    return small.make_team("shared", models)


def refuse(error, match, tmp_path, env=None, team=None, recipe=small.RECIPE, steps=1, **settings):
    with pytest.raises(error, match=match):
        lab.train(env or small.Relay(), team, recipe, steps, run=tmp_path / "run", **settings)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("error", "words", "asked"), [
    (ValueError, r"unknown recipe 'at_gpr'; did you mean 'at_grpo'\? known are grpo, .*at_grpo", {"recipe": "at_gpr"}),
    (TypeError, r"unknown setting 'task'; known are tasks, split, rounds, epochs", {"task": 3}),
    (ValueError, r"schedule='warmup'; known are constant, linear, cosine", {"schedule": "warmup"}),
    (ValueError, r"needs horizon=", {"schedule": "linear"}),
    (ValueError, r"learn=.*; say who learns from step 0 on", {"learn": {3: ["asker"]}}),
    (ValueError, r"learn has \[\] from step 4 on; name at least one agent", {"learn": {0: ["asker"], 4: []}}),
    (ValueError, r"learn has \['boss'\] from step 0 on; .* \['asker', 'doer'\]", {"learn": {0: ["boss"]}}),
    (ValueError, r"nonfinite='ignore'; known are raise, skip", {"nonfinite": "ignore"}),
    (ValueError, r"score_at=.*whole numbers of 1 or more", {"score_at": [0]}),
    (ValueError, r"aggregate='mean'; known are token, turn", {"recipe": small.RECIPE.replace(aggregate="mean")}),
    (TypeError, r"give steps=, how many to make, or budget=", {"steps": None}),
    (TypeError, r"score_every=0\.5 is a share of a budget; give budget=, or whole steps", {"score_every": 0.5}),
    (ValueError, r"score_every=2\.5 is no number of steps", {"score_every": 2.5}),
    (ValueError, r"score_every=inf is no number of steps", {"score_every": float("inf")}),
    (ValueError, r"K = 1", {"recipe": lab.RECIPES["grpo"].replace(plan=lab.episodes(1))}),
    (ValueError, r"K = 1", {"recipe": lab.RECIPES["magrpo"].replace(plan=lab.joint(1))}),
])  # fmt: skip
def test_what_makes_no_sense_is_refused_before_the_run_begins(team, tmp_path, error, words, asked):
    refuse(error, words, tmp_path, team=team, **asked)


def test_a_team_without_one_of_the_agents_is_refused(team, models, tmp_path):
    alone = lab.Team({"asker": team["asker"]})
    refuse(ValueError, r"agent 'doer' has no policy; the env plays .*the team \['asker'\]", tmp_path, team=alone)
    with pytest.raises(ValueError, match=r"two policies would have one name among \['a\+b', 'a\+b'\]"):
        lab.Team({"a": team["asker"], "b": team["asker"], "a+b": lab.load_policy(models / "a")})
    with pytest.raises(ValueError, match=r"frozen names agent 'boss'; the team has \['asker', 'doer'\]"):
        lab.Team(dict(team), frozen=("boss",))


COUNTS = ["tasks", "rounds", "epochs", "minibatches", "save_every", "horizon", "max_turns", "workers", "score_every",
          "score_tasks", "score_episodes", "steps", "seed"]  # fmt: skip


def test_numbers_that_make_no_sense_are_named(team, tmp_path):
    for setting in COUNTS:
        refuse(ValueError, rf"{setting}=-1", tmp_path, team=team, **{setting: -1})
        if setting not in ("steps", "seed"):
            refuse(ValueError, rf"{setting}=0 .* \(1 or more\)", tmp_path, team=team, **{setting: 0})


def test_an_impure_env_and_a_nan_reward_are_found_before_the_run_begins(team, tmp_path):
    impure, nan = small.Relay(broken="impure"), small.Relay(broken="nan")
    two_answers = r"env 'relay', task 'train-\d+', agent 'asker', turn 0, text '.*': step gave two answers"
    refuse(lab.EnvError, two_answers, tmp_path, team=team, env=impure)
    refuse(lab.EnvError, r"task 'train-\d+', agent 'asker', turn 0", tmp_path, team=team, env=nan)


def train(team, recipe, **options):
    return lab.train(small.Relay(), team, recipe, 1, check=False, **options)


class mutable:
    """A credit and curriculum in the former protocol."""

    def __call__(self, turns):
        return turns["local_reward"]

    def load_state(self, state): ...

    def see(self, report): ...


class stateless(mutable):
    load_state = property()

    def after(self, turns):
        return self


def test_a_part_that_learns_otherwise_is_told_what_to_write(team):
    words = r"must learn as an immutable value\. .* field `state` .* method after\({}\) .* without {}\(\)"
    for part in (mutable(), stateless()):
        with pytest.raises(TypeError, match=r"train: credit=.*" + words.format("turns", "load_state")):
            train(team, small.RECIPE.replace(credit=part))
        with pytest.raises(TypeError, match=r"train: curriculum=.*" + words.format("report", "see")):
            train(team, small.RECIPE, curriculum=part)


class rewritten(lab.Recipe):
    def advantages(self, turns, team=None):
        return super().advantages(turns, team)


def test_a_recipe_that_overrides_advantages_is_told_what_to_override(team):
    with pytest.raises(TypeError, match=r"train: rewritten overrides advantages\(\), .* override normalize\(self"):
        train(team, rewritten(**vars(small.RECIPE)))
