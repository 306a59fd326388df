"""A run handed over: what stands in the folder, what is refused, and an episode that another engine samples."""

import ast
import asyncio
import errno
import json
import os
import re
import shutil
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import yaml
from elsewhere import speaking, trained
from small import AGENTS, Relay, make_team, recorded

import mas_lab as lab
from mas_lab import __main__ as cli
from mas_lab.bridges.export_reader import Handed, HandOverError, recorded_rows
from mas_lab.bridges.external_rollout import Speaker, completion, play
from mas_lab.bridges.verl_settings import Asked, refusals, verl_settings
from mas_lab.policy import PolicyError
from mas_lab.recipes import from_data, to_data

RECIPE = lab.RECIPES["dr_mas"].replace(plan=lab.episodes(3), loss=lab.clipped(0.2, high=0.3, dual=4.0, kl=0.01))


@pytest.fixture(scope="module")
def run(models, tmp_path_factory):
    return trained(models, tmp_path_factory.mktemp("handed") / "run", RECIPE, steps=2)


@pytest.fixture(scope="module")
def folder(run, tmp_path_factory):
    return lab.export(run, tmp_path_factory.mktemp("out") / "verl", to="verl", env=Relay())


@pytest.fixture
def handed(folder):
    return Handed(folder)


def test_the_folder_holds_the_run(folder, handed, run):
    whole = lab.load_run(run)
    names = {"hand_over.json", "batch.parquet", "train.parquet", "test.parquet", "mas_lab_bridge.py", "check.py"}
    assert {path.name for path in folder.iterdir()} == names | {"README.md", "verl.yaml"}
    said = json.loads((folder / "hand_over.json").read_text(encoding="utf-8"))
    assert from_data(said["recipe"]) == handed.recipe == RECIPE
    assert said["env"] == whole.config["env"] and handed.env == Relay()
    held = pd.read_parquet(folder / "train.parquet")
    ids = [json.loads(cell["task"])["id"] for cell in held["extra_info"]]
    assert ids == [task for _, own in whole.turns.groupby("step") for task in own["task"].unique()]
    assert all(prompt[0]["content"].startswith("asker now") for prompt in held["prompt"])
    assert len(pd.read_parquet(folder / "test.parquet")) == lab.Settings().score_tasks
    batch = handed.batch()
    assert batch["advantage"].tolist() == whole.step_turns(1)["advantage"].tolist() and batch["advantage"].abs().max()


def test_the_bridge_file_imports_and_defines_nothing(folder):
    tree = ast.parse((folder / "mas_lab_bridge.py").read_text(encoding="utf-8"))
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported == {"pathlib", "mas_lab.bridges"}


def test_verls_configuration_says_the_recipe(folder):
    said = yaml.safe_load((folder / "verl.yaml").read_text(encoding="utf-8"))
    actor = said["actor_rollout_ref"]["actor"]
    assert said["algorithm"] == {"adv_estimator": "mas_lab", "use_kl_in_reward": False}
    assert (actor["clip_ratio_low"], actor["clip_ratio_high"], actor["clip_ratio_c"]) == (0.2, 0.3, 4.0)
    assert actor["loss_agg_mode"] == "token-mean" and actor["use_kl_loss"] is True and actor["kl_loss_coef"] == 0.01
    assert actor["optim"] == {"lr": 0.01} and said["data"]["max_response_length"] == 3
    assert said["actor_rollout_ref"]["rollout"]["n"] == 3 and said["data"]["train_batch_size"] == 2
    assert said["actor_rollout_ref"]["model"]["path"] == "${oc.env:MAS_LAB_MODEL}"


def test_another_batch_is_told(handed):
    found = handed.advantages(recorded_rows(handed.batch()))["advantage"].to_numpy(float).copy()
    assert "the largest difference is 0.0e+00" in handed.compare(found)
    found[4] += 1e-5
    with pytest.raises(HandOverError, match=r"row 4 \(task 'train-\d+', agent '.+'\) has the advantage"):
        handed.compare(found)


def test_a_task_that_is_drawn_twice_is_two_groups(handed):
    rows = recorded_rows(handed.batch())
    again = [{**row, "episode": f"{row['episode']}+", "node": f"{row['node']}+", "team_reward": 1.0} for row in rows]
    told = [{**row, "occasion": "0"} for row in rows] + [{**row, "occasion": "1"} for row in again]
    found = handed.advantages(told)
    assert found["group"].nunique() == 2 * handed.advantages(rows)["group"].nunique()
    assert found["advantage"][: len(rows)].tolist() == handed.advantages(rows)["advantage"].tolist()


def test_an_instance_of_a_handed_task_is_played_and_judged_as_by_the_cells(folder, handed, models):
    policy, rows = make_team("shared", models)["asker"], []
    for cell in pd.read_parquet(folder / "train.parquet")["extra_info"]:
        for session in range(3):
            episode = handed.play(cell["task"], session, "u", speaking(policy), policy.tokenizer, policy.context)
            rows += asyncio.run(episode)
    expected = RECIPE.advantages(pd.DataFrame(rows).assign(step=0).drop(columns="occasion"))
    assert set(expected["agent"]) == set(AGENTS) and expected["episode"].nunique() == 12
    assert handed.advantages(rows)["advantage"].tolist() == expected["advantage"].tolist()


PLANS = {"episodes": lab.episodes(1), "tree": lab.tree(3, follow=1), "joint": lab.joint(2)}


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("plan", PLANS)
def test_an_episode_that_another_engine_samples_is_a_rollouts(models, plan, together):
    env, team = Relay(together=together), make_team("shared", models)
    team = lab.Team.shared(team["asker"], AGENTS, sampling={agent: lab.Sampling(temperature=0.7) for agent in AGENTS})
    task = env.tasks(1, "train", seed=2)[0]
    expected = lab.rollout(env, team, [task], plan=PLANS[plan], seed=4)
    policy = team["asker"]
    speaker = Speaker(speaking(policy), policy.tokenizer, policy.shared.template, policy.context)
    rows = asyncio.run(play(env, task, task.id, PLANS[plan], speaker, team.sampling, seed=4))
    found = pd.DataFrame(rows).assign(step=0)[expected.columns]
    order = ["node", "agent", "candidate"]
    found, expected = (table.sort_values(order, ignore_index=True) for table in (found, expected))
    for one, other in zip(found.pop("logprobs"), expected.pop("logprobs"), strict=True):
        assert one == pytest.approx(other, abs=1e-5)  # other batches, other sums
    pd.testing.assert_frame_equal(found, expected, check_exact=True)


def test_what_a_sampler_raises_ends_the_episode_alone(models):
    env, policy, calls = Relay(), make_team("shared", models)["asker"], []

    async def broken(request):
        if len(calls) > 1:
            raise PolicyError("gone")
        return await speaking(policy, calls)(request)

    async def both():
        sampling, ask = dict.fromkeys(AGENTS, lab.Sampling()), (broken, speaking(policy))
        plays = [play(env, task, task.id, lab.episodes(1), Speaker(one, policy.tokenizer, {}, 64), sampling)
                 for task, one in zip(env.tasks(2, "train", seed=0), ask, strict=True)]  # fmt: skip
        return await asyncio.gather(*plays, return_exceptions=True)

    first, second = asyncio.run(both())
    assert isinstance(first, lab.RolloutError) and "gone" in str(first) and len(second) >= 2


def test_a_completion_says_how_it_ended(models):
    policy = make_team("shared", models)["asker"]
    eos, pad, word = policy.tokenizer.convert_tokens_to_ids(["<eos>", "<pad>", "w1"])
    request = lab.policy.Request((5, 6), 3, 1.0, 0, ("w1",))
    with pytest.raises(ValueError, match="3 tokens with 2 log-probabilities"):
        completion([5, 6, 7], [-1.0, -1.0], request, policy.tokenizer)
    ends = {(word,): "stop", (7, 7, eos): "eos", (7, 7, 7): "length", (7, pad): "eos",  # another end token
            (7, 7): "length"}  # the engine's context is full  # fmt: skip
    for ids, finish in ends.items():
        assert completion(ids, [-1.0] * len(ids), request, policy.tokenizer).finish == finish


def changed(run, tmp_path, **config):
    """A copy of the run, as if it had been asked for otherwise."""
    copy = shutil.copytree(run, tmp_path / "copy")
    recorded(copy, **config)
    return copy


def test_what_verl_cannot_do_is_refused_and_nothing_written(models, run, tmp_path):
    two = trained(models, tmp_path / "run", RECIPE, team=make_team("unlike", models))
    with pytest.raises(HandOverError, match=r"has 2 policies \(asker, doer\)(.|\n)*different temperatures"):
        lab.export(two, tmp_path / "out", to="verl", env=Relay())
    with pytest.raises(HandOverError, match="do not train"):  # another recipe than the recorded one
        other = to_data(RECIPE.replace(scale="none"))
        lab.export(changed(run, tmp_path, recipe=other), tmp_path / "out", to="verl", env=Relay())
    assert {path.name for path in tmp_path.iterdir()} == {"copy", "run"}


POLICY = {"lr": 1e-5, "lora": None, "source": {"kind": "hub", "name": "a/b"}, "options": {"alpha": 2.0}}


def asked(recipe=None, policy=None, **settings):
    one = {"shared": {**POLICY, **(policy or {})}}
    return Asked(
        RECIPE.replace(**(recipe or {})), lab.Settings(tasks=4, **settings), one, {"doer": {"temperature": 0.8}}, 20, 5
    )


@dataclass(frozen=True)
class Own(lab.Loss):
    """A loss of somebody's own."""


@pytest.mark.parametrize(
    ("recipe", "reason"),
    [
        ({"center": lab.running_mean()}, "its center, .* remembers from step to step"),
        ({"loss": lab.clipped(ratio="action"), "aggregate": "turn"}, "one ratio per action"),
        ({"loss": Own()}, "its loss, Own, is none that verl has"),
        ({"aggregate": "agent"}, "aggregate='agent'"),
        ({"select": lab.not_flat()}, "verl keeps every row in its means"),
        ({}, "rounds=3 draws more tasks"),
    ],
)
def test_what_verl_lacks_is_refused_with_the_reason(recipe, reason):
    assert not list(refusals(asked()))
    [why] = refusals(asked(recipe, rounds=1 if recipe else 3))
    assert re.search(reason, why)


def test_what_the_settings_ask_for_is_said():
    model = verl_settings(asked(policy={"lora": {"rank": 8}}))["actor_rollout_ref"]["model"]
    assert model == {"path": "a/b", "lora_rank": 8, "lora_alpha": 16}
    hostile = asked(policy={"source": {"kind": "hub", "name": "${oc.env:HOME}"}})
    assert verl_settings(hostile)["actor_rollout_ref"]["model"]["path"] == "${oc.env:MAS_LAB_MODEL}"
    said = verl_settings(asked({"loss": lab.reinforce(tis=2.0, entropy=0.1)}, epochs=2))
    actor = said["actor_rollout_ref"]["actor"]
    assert actor["ppo_epochs"] == 2 and actor["policy_loss"]["loss_mode"] == "gpg" and actor["entropy_coeff"] == 0.1
    assert said["algorithm"]["rollout_correction"]["rollout_is_threshold"] == 2.0
    assert said["actor_rollout_ref"]["rollout"]["temperature"] == 0.8
    sequence = verl_settings(asked({"loss": lab.clipped(ratio="sequence")}))["actor_rollout_ref"]["actor"]
    assert sequence["policy_loss"]["loss_mode"] == "gspo"


def test_a_task_of_the_kit_is_made_by_its_name(tmp_path):
    env = lab.make_env("plan_path", size=3)
    team = lab.Team.shared(lab.load_policy(env.pocket), env.agents)
    recipe = lab.RECIPES["at_grpo"].replace(plan=lab.tree(2))
    list(lab.train(env, team, recipe, 1, run=tmp_path / "run", tasks=2, check=False, max_turns=2))
    handed = Handed(lab.export(tmp_path / "run", tmp_path / "out", to="verl"))
    assert handed.env == lab.make_env("plan_path", size=3, max_turns=2)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"env": {"name": "program", "agents": []}}, "is a program, which plays itself"),
        ({"env": {"name": "textarena"}}, "is none that a bridge file can make"),
        ({"recipe": {**to_data(RECIPE), "credit": {"is": "my_file.my_credit"}}}, "my_credit.*cannot be made from data"),
        ({"curriculum": "mine"}, "drawn by a curriculum"),
    ],
)
def test_what_no_file_can_hold_is_refused(run, tmp_path, config, sentence):
    env = None if "env" in config else Relay()
    with pytest.raises(ValueError, match=sentence):
        lab.export(changed(run, tmp_path, **config), tmp_path / "out", to="verl", env=env)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"to": "trl"}, "known is 'verl'"),
        ({"to": "verl"}, "is your own: give it, as env="),
        ({"to": "verl", "env": Relay(together=True)}, "the run was made on"),
        ({"env": Relay()}, "a zip holds no env"),
    ],
)
def test_what_is_asked_wrongly_is_said(run, tmp_path, asked, sentence):
    with pytest.raises(ValueError, match=sentence):
        lab.export(run, tmp_path / "out", **asked)


def test_a_full_disk_is_named_and_leaves_nothing(run, tmp_path, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "out.tmp").mkdir()  # somebody's own
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(lab.RunError, match=r"cannot be written .*No space left"):
        lab.export(run, tmp_path / "out", to="verl", env=Relay())
    assert [path.name for path in tmp_path.iterdir()] == ["out.tmp"]


def test_the_command_writes_either_and_nothing_over(run, tmp_path, capsys):
    given = ["export", str(run), "--to", "verl"]
    assert cli.main(["export", str(run), str(tmp_path / "run.zip")]) == 0 and (tmp_path / "run.zip").is_file()
    assert cli.main([*given, "--out", str(tmp_path / "s"), "--env", "small:Relay"]) == 0
    assert (tmp_path / "s" / "check.py").is_file()
    with pytest.raises(SystemExit, match="RUN --to verl"):
        cli.main(given)
    capsys.readouterr()
    for out, sentence in (("t", "your own"), ("s", "is there already")):
        assert cli.main([*given, "--out", str(tmp_path / out)]) == 1
        assert sentence in capsys.readouterr().err


def test_a_frozen_agents_rows_are_compared_and_not_trained_on(models, tmp_path):
    policy = lab.load_policy(models / "a", lr=1e-2)
    team = lab.Team.shared(policy, AGENTS, frozen=("asker",))
    run = trained(models, tmp_path / "run", lab.RECIPES["grpo"].replace(plan=lab.episodes(3)), team=team)
    handed = Handed(lab.export(run, tmp_path / "out", to="verl", env=Relay()))
    rows = recorded_rows(handed.batch())
    found = handed.advantages(rows)
    frozen = found["agent"] == "asker"
    assert not found.loc[frozen, "advantage"].any() and not found.loc[frozen, "selected"].any()
    assert np.array_equal(found.loc[~frozen, "advantage"], lab.load_run(run).step_turns(0)["advantage"][~frozen])
    assert [handed.learns(row) for row in rows] == (~frozen).tolist()
