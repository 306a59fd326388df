"""Arguments of `train` that make no training are refused before the run begins."""

import pytest
import small
import torch

import mas_lab as lab


@pytest.fixture
def team(models):
    return small.make_team("shared", models)


def refuse(error, match, tmp_path, env=None, team=None, recipe=small.RECIPE, steps=1, **settings):
    with pytest.raises(error, match=match):
        lab.train(env or small.Relay(), team, recipe, steps, run=tmp_path / "run", **settings)
    assert list(tmp_path.iterdir()) == []


def two(turns, more):
    return turns["valid"]


@pytest.mark.parametrize(("error", "words", "asked"), [
    (ValueError, r"unknown recipe 'at_gpr'; did you mean 'at_grpo'\? known are grpo, .*at_grpo", {"recipe": "at_gpr"}),
    (TypeError, r"unknown setting 'task'; known are tasks, rounds, epochs", {"task": 3}),
    (ValueError, r"learn=.*; say who learns from step 0 on", {"learn": {3: ["asker"]}}),
    (ValueError, r"learn has \[\] from step 4 on; name at least one agent", {"learn": {0: ["asker"], 4: []}}),
    (ValueError, r"learn has \['boss'\] from step 0 on; .* \['asker', 'doer'\]", {"learn": {0: ["boss"]}}),
    (ValueError, r"score_at=.*whole numbers of 1 or more", {"score_at": [0]}),
    (ValueError, r"aggregate='mean'; known are token, turn", {"recipe": small.RECIPE.replace(aggregate="mean")}),
    (TypeError, r"give steps=, how many to make, or budget=", {"steps": None}),
    (TypeError, r"score_every=0\.5 is a share of a budget; give budget=, or whole steps", {"score_every": 0.5}),
    (ValueError, r"score_every=2\.5 is no number of steps", {"score_every": 2.5}),
    (ValueError, r"tasks=1000000 in one step; give at most 100000", {"tasks": 10**6}),
    (TypeError, r"select .*two cannot be called as select\(turns\)", {"recipe": small.RECIPE.replace(select=two)}),
    (ValueError, r"K = 1", {"recipe": lab.RECIPES["grpo"].replace(plan=lab.episodes(1))}),
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


def test_a_team_that_samples_without_chance_is_refused(team, tmp_path):
    greedy = team.with_sampling(lab.Sampling(temperature=0))
    refuse(ValueError, "agent 'asker' samples with .*temperature=0.*to learn it needs", tmp_path, team=greedy)


def test_a_training_that_nobody_loops_over_says_so(team):
    with pytest.warns(UserWarning, match=r"nobody looped over its result, .*for report in lab\.train"):
        lab.train(small.Relay(), team, small.RECIPE, 1, tasks=2, check=False)


def test_a_rate_and_an_optimizer_may_be_functions(models):
    policy = lab.load_policy(models / "a", lr=0.5, optimizer=torch.optim.SGD)
    loop = lab.train(small.Relay(), lab.Team.shared(policy, small.AGENTS), small.RECIPE, 2, tasks=2, check=False,
                     schedule=lambda step: 0.5**step)  # fmt: skip
    assert [report.stats["lr"].unique().tolist() for report in loop] == [[0.5], [0.25]]
    assert isinstance(policy.optimizer, torch.optim.SGD)


def test_numbers_that_make_no_sense_are_named(team, tmp_path):
    for setting in ("steps", "seed"):
        refuse(ValueError, rf"{setting}=-1", tmp_path, team=team, **{setting: -1})
    for setting in ("tasks", "rounds", "epochs", "minibatches", "save_every", "schedule", "max_turns", "workers",
                    "score_every", "score_tasks", "score_episodes"):  # fmt: skip
        refuse(ValueError, rf"{setting}=0 .* \(1 or more\)", tmp_path, team=team, **{setting: 0})


class mutable:
    def __call__(self, turns):
        return turns["local_reward"]

    def after(self, turns): ...


def test_a_part_that_learns_otherwise_is_told_what_to_write(team, tmp_path):
    words = r"train: credit=.*must learn as an immutable value\. .* method after\(turns\) that"
    refuse(TypeError, words, tmp_path, team=team, recipe=small.RECIPE.replace(credit=mutable()))
