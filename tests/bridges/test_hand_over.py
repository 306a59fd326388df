"""A run handed over: what stands in the folder, what is refused, and an episode that another engine samples."""

import ast
import asyncio
import errno
import importlib.util
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
from mas_lab.bridges.export import CONFIGS
from mas_lab.bridges.export_reader import Handed, HandOverError, recorded_rows
from mas_lab.bridges.external_rollout import Speaker, completion, play
from mas_lab.bridges.trainers import AGGREGATES, WORDS, Asked, refusals
from mas_lab.policy import PolicyError
from mas_lab.recipes import to_data

RECIPE = lab.RECIPES["dr_mas"].replace(plan=lab.episodes(3), loss=lab.clipped(0.2, high=0.3, dual=4.0, kl=0.01))


@pytest.fixture(scope="module")
def run(models, tmp_path_factory):
    return trained(models, tmp_path_factory.mktemp("handed") / "run", RECIPE, steps=2)


@pytest.fixture(scope="module")
def folders(run, tmp_path_factory):
    root = tmp_path_factory.mktemp("out")
    return {to: lab.export(run, root / to, to=to, env=Relay()) for to in CONFIGS}


@pytest.mark.parametrize("to", CONFIGS)
def test_the_folder_holds_the_run(folders, run, to):
    folder, whole = folders[to], lab.load_run(run)
    names = {"hand_over.json", "batch.parquet", "train.parquet", "test.parquet", "mas_lab_bridge.py", "check.py"}
    assert {path.name for path in folder.iterdir()} == names | {"README.md", CONFIGS[to]}
    said = json.loads((folder / "hand_over.json").read_text(encoding="utf-8"))
    assert said["recipe"] == to_data(RECIPE) and said["env"] == whole.config["env"]
    assert lab.recipes.from_data(said["recipe"]) == RECIPE
    held = pd.read_parquet(folder / "train.parquet")
    place = {"slime": "metadata", "verl": "extra_info"}[to]
    ids = [json.loads(cell["task"])["id"] for cell in held[place]]
    assert ids == [task for _, own in whole.turns.groupby("step") for task in own["task"].unique()]
    assert all(prompt[0]["content"].startswith("asker now") for prompt in held["prompt"])
    assert len(pd.read_parquet(folder / "test.parquet")) == lab.Settings().score_tasks
    batch = Handed(folder, Relay()).batch()
    assert batch["advantage"].tolist() == whole.step_turns(1)["advantage"].tolist() and batch["advantage"].abs().max()


@pytest.mark.parametrize("to", CONFIGS)
def test_the_bridge_file_imports_and_defines_nothing(folders, to):
    tree = ast.parse((folders[to] / "mas_lab_bridge.py").read_text(encoding="utf-8"))
    assert len(ast.unparse(tree).splitlines()) <= 20
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported == {"pathlib", "small", {"slime": "mas_lab.bridges.slime", "verl": "mas_lab.bridges"}[to]}


def test_slimes_flags_say_the_recipe(folders):
    lines = (folders["slime"] / "flags.sh").read_text(encoding="utf-8").splitlines()
    said = dict(re.fullmatch(r"  (--[a-z-]+)(?: (\S+))?  # .+", line).groups() for line in lines[2:-1])
    assert said["--custom-generate-function-path"] == "mas_lab_bridge.generate"
    assert (said["--eps-clip"], said["--eps-clip-high"], said["--eps-clip-c"]) == ("0.2", "0.3", "4.0")
    assert (said["--n-samples-per-prompt"], said["--rollout-batch-size"], said["--kl-loss-coef"]) == ("3", "2", "0.01")
    assert said["--lr"] == "0.01" and said["--rollout-max-response-len"] == "3"
    assert said["--calculate-per-token-loss"] is None and "--use-tis" not in said


def test_verls_configuration_says_the_recipe(folders):
    said = yaml.safe_load((folders["verl"] / "verl.yaml").read_text(encoding="utf-8"))
    actor = said["actor_rollout_ref"]["actor"]
    assert said["algorithm"] == {"adv_estimator": "mas_lab", "use_kl_in_reward": False}
    assert (actor["clip_ratio_low"], actor["clip_ratio_high"], actor["clip_ratio_c"]) == (0.2, 0.3, 4.0)
    assert actor["loss_agg_mode"] == AGGREGATES["token"] and actor["use_kl_loss"] is True
    assert said["actor_rollout_ref"]["rollout"]["n"] == 3 and said["data"]["train_batch_size"] == 2
    assert said["actor_rollout_ref"]["model"]["path"] == "${oc.env:MAS_LAB_MODEL}"


def test_another_batch_is_told(folders):
    handed = Handed(folders["verl"], Relay())
    found = handed.advantages(recorded_rows(handed.batch()))["advantage"].to_numpy(float).copy()
    assert "the largest difference is 0.0e+00" in handed.compare(found)
    found[4] += 1e-5
    with pytest.raises(HandOverError, match=r"row 4 \(task 'train-\d+', agent '.+'\) has the advantage"):
        handed.compare(found)


def test_a_task_that_is_drawn_twice_is_two_groups(folders):
    handed = Handed(folders["slime"], Relay())
    rows = recorded_rows(handed.batch())
    again = [{**row, "episode": f"{row['episode']}+", "node": f"{row['node']}+", "team_reward": 1.0} for row in rows]
    told = [{**row, "occasion": "0"} for row in rows] + [{**row, "occasion": "1"} for row in again]
    found = handed.advantages(told)
    assert found["group"].nunique() == 2 * handed.advantages(rows)["group"].nunique()
    assert found["advantage"][: len(rows)].tolist() == handed.advantages(rows)["advantage"].tolist()


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
        tasks = env.tasks(2, "train", seed=0)
        sampling = dict.fromkeys(AGENTS, lab.Sampling())
        speakers = [Speaker(one, policy.tokenizer, {}, 64) for one in (broken, speaking(policy))]
        plays = [play(env, *told, lab.episodes(1), one, sampling) for told, one in
                 zip([(task, task.id) for task in tasks], speakers, strict=True)]  # fmt: skip
        return await asyncio.gather(*plays, return_exceptions=True)

    first, second = asyncio.run(both())
    assert isinstance(first, lab.RolloutError) and "gone" in str(first) and len(second) >= 2


def test_tokens_without_log_probabilities_are_refused(models):
    policy = make_team("shared", models)["asker"]
    request = lab.policy.Request((5, 6), 3, 1.0, 0, ("w1",))
    with pytest.raises(ValueError, match="3 tokens with 2 log-probabilities"):
        completion([5, 6, 7], [-1.0, -1.0], request, policy.tokenizer)
    eos, word = policy.tokenizer.eos_token_id, policy.tokenizer.convert_tokens_to_ids("w1")
    assert completion([word], [-1.0], request, policy.tokenizer).finish == "stop"
    assert completion([7, 7, eos], [-1.0] * 3, request, policy.tokenizer).finish == "eos"
    assert completion([7, 7, 7], [-1.0] * 3, request, policy.tokenizer).finish == "length"
    pad = policy.tokenizer.pad_token_id
    assert completion([7, pad], [-1.0] * 2, request, policy.tokenizer).finish == "eos"  # another end mark
    assert completion([7, 7], [-1.0] * 2, request, policy.tokenizer).finish == "length"  # the engine's context is full


def changed(run, tmp_path, **recipe):
    """The run, as if it had been asked for with another recipe."""
    copy = shutil.copytree(run, tmp_path / "copy")
    recorded(copy, recipe=to_data(RECIPE.replace(**recipe)))
    return copy


REFUSED = {
    "remembers": (("slime", "verl"), {"center": lab.running_mean()}, r"its center, .* remembers from step to step"),
    "action": (("slime", "verl"), {"loss": lab.clipped(ratio="action"), "aggregate": "turn"}, "one ratio per action"),
    "agent": (("slime", "verl"), {"aggregate": "agent"}, "aggregate='agent'"),
    "turn": (("slime",), {"aggregate": "turn"}, "slime averages over all tokens"),
    "select": (("verl",), {"select": lab.not_flat()}, "verl keeps every row in its means"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_the_trainer_cannot_do_is_refused_with_the_reason(run, tmp_path, why):
    targets, recipe, reason = REFUSED[why]
    other = changed(run, tmp_path, **recipe)
    for to in targets:
        with pytest.raises(HandOverError, match=reason):
            lab.export(other, tmp_path / to, to=to, env=Relay())
        assert not (tmp_path / to).exists()


def test_so_is_a_team_of_two_policies_or_temperatures(models, tmp_path):
    run = trained(models, tmp_path / "run", RECIPE, team=make_team("unlike", models))
    with pytest.raises(HandOverError, match=r"has 2 policies \(asker, doer\)(.|\n)*different temperatures"):
        lab.export(run, tmp_path / "out", to="slime", env=Relay())


def test_another_recipe_than_the_recorded_one_is_no_hand_over(run, tmp_path):
    with pytest.raises(HandOverError, match="do not train"):
        lab.export(changed(run, tmp_path, scale="none"), tmp_path / "out", to="verl", env=Relay())
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


POLICY = {"lr": 1e-5, "lora": None, "source": {"kind": "hub", "name": "a/b"}, "options": {"alpha": 2.0}}


def asked(to, recipe=None, policy=None, **settings):
    """(why it is refused, its settings)."""
    told = {"tasks": 4, **settings}
    sampling = {"doer": {"temperature": 0.8}}
    one = Asked(RECIPE.replace(**(recipe or {})), told, {"shared": {**POLICY, **(policy or {})}}, sampling, 20, 5)
    return refusals(one, to), {name: value for name, value, _ in WORDS[to](one)}


def test_what_the_settings_ask_for_is_refused_or_said():
    assert asked("slime")[0] == asked("verl")[0] == []
    assert asked("slime")[1]["--rollout-temperature"] == 0.8
    assert asked("verl")[1]["actor_rollout_ref.model.path"] == "a/b"
    hostile = {"source": {"kind": "hub", "name": "${oc.env:HOME}"}}
    assert asked("verl", policy=hostile)[1]["actor_rollout_ref.model.path"] == "${oc.env:MAS_LAB_MODEL}"
    for to in WORDS:
        [why] = asked(to, rounds=3)[0]
        assert "rounds=3 draws more tasks" in why
    [why] = asked("slime", epochs=2)[0]
    assert "slime passes over a batch once" in why
    assert asked("verl", epochs=2)[1]["actor_rollout_ref.actor.ppo_epochs"] == 2
    [why] = asked("slime", {"loss": lab.reinforce()}, minibatches=2)[0]
    assert "which is 1 in the first step alone" in why
    assert asked("verl", {"loss": lab.reinforce()})[1]["actor_rollout_ref.actor.policy_loss.loss_mode"] == "gpg"
    [why] = asked("slime", policy={"lora": {"rank": 8}})[0]
    assert "slime trains all weights" in why
    refused, said = asked("verl", policy={"lora": {"rank": 8}})
    assert not refused and said["actor_rollout_ref.model.lora_rank"] == 8
    assert said["actor_rollout_ref.model.lora_alpha"] == 16
    [why] = asked("slime", {"loss": lab.clipped(ratio="sequence")})[0]
    assert "mean over rows" in why
    assert asked("slime", {"loss": lab.clipped(tis=2.0, entropy=0.1)})[1]["--tis-clip"] == 2.0


@dataclass(frozen=True)
class Own(lab.Loss):
    """A loss of somebody's own."""


def test_a_loss_of_ones_own_is_refused():
    for to in WORDS:
        one = Asked(RECIPE.replace(loss=Own()), {"tasks": 4}, {"shared": POLICY}, {"doer": {"temperature": 1.0}}, 9, 5)
        assert "its loss, Own, is none that the trainer has" in refusals(one, to)[0]


def imported(folder, name):
    """The bridge file, as the trainer imports it."""
    made = importlib.util.spec_from_file_location(name, folder / "mas_lab_bridge.py")
    module = importlib.util.module_from_spec(made)
    made.loader.exec_module(module)
    return module


def test_a_task_of_the_kit_is_made_by_its_name(tmp_path):
    """And the bridge file works as it is written."""
    env = lab.make_env("plan_path", size=3)
    team = lab.Team.shared(lab.load_policy(env.pocket), env.agents)
    recipe = lab.RECIPES["at_grpo"].replace(plan=lab.tree(2))
    list(lab.train(env, team, recipe, 1, run=tmp_path / "run", tasks=2, check=False, max_turns=2))
    bridge = imported(lab.export(tmp_path / "run", tmp_path / "out", to="slime"), "bridge_of_the_kits")
    assert "advantages are those that were recorded" in bridge.check()
    assert bridge.generate.__self__.handed.env == lab.make_env("plan_path", size=3, max_turns=2)
    assert "max_turns" in json.loads((tmp_path / "out" / "hand_over.json").read_text(encoding="utf-8"))


def test_so_is_ones_own_by_its_module(folders):
    assert "advantages are those that were recorded" in imported(folders["slime"], "bridge_of_ones_own").check()


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        ({"name": "program", "agents": []}, "is a program, which plays itself"),
        ({"name": "textarena"}, "is none that a bridge file can make"),
    ],
)
def test_an_env_that_no_file_can_make_is_refused(run, tmp_path, env, sentence):
    copy = shutil.copytree(run, tmp_path / "copy")
    recorded(copy, env=env)
    with pytest.raises(HandOverError, match=sentence):
        lab.export(copy, tmp_path / "out", to="slime")


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"to": "trl"}, "known are slime, verl"),
        ({"to": "verl"}, "is your own: give it, as env="),
        ({"to": "verl", "env": Relay(together=True)}, "the run was made on"),
        ({"env": Relay()}, "a zip holds no env"),
        ({"to": "verl", "env": Relay(), "traces": 3}, "is for a log"),
    ],
)
def test_what_is_asked_wrongly_is_said(run, tmp_path, asked, sentence):
    with pytest.raises(ValueError, match=sentence):
        lab.export(run, tmp_path / "out", **asked)


def test_a_credit_of_ones_own_cannot_travel_as_data(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "copy")
    recorded(copy, recipe={**to_data(RECIPE), "credit": {"is": "my_file.my_credit"}})
    with pytest.raises(HandOverError, match=r"my_file.my_credit.*cannot be made from data"):
        lab.export(copy, tmp_path / "out", to="verl", env=Relay())


def test_a_full_disk_is_named_and_leaves_nothing(run, tmp_path, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "out.tmp").mkdir()  # somebody's own
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(lab.RunError, match=r"cannot be written .*No space left"):
        lab.export(run, tmp_path / "out", to="slime", env=Relay())
    assert [path.name for path in tmp_path.iterdir()] == ["out.tmp"]


def test_nothing_is_written_over(run, tmp_path):
    (tmp_path / "mine.txt").write_text("kept", encoding="utf-8")
    with pytest.raises(HandOverError, match="is there already"):
        lab.export(run, tmp_path, to="slime", env=Relay())


def test_the_command_writes_either(run, tmp_path, capsys):
    assert cli.main(["export", str(run), str(tmp_path / "run.zip")]) == 0 and (tmp_path / "run.zip").is_file()
    assert cli.main(["export", str(run), "--to", "slime", "--out", str(tmp_path / "s"), "--env", "small:Relay"]) == 0
    assert (tmp_path / "s" / "check.py").is_file()
    with pytest.raises(SystemExit, match="RUN --to slime"):
        cli.main(["export", str(run), "--to", "slime"])
    capsys.readouterr()
    assert cli.main(["export", str(run), "--to", "slime", "--out", str(tmp_path / "t")]) == 1
    assert "your own" in capsys.readouterr().err


def test_what_an_instance_earned_is_the_mean_over_its_paths(folders):
    handed, row = Handed(folders["slime"], Relay()), {"kept": True, "probe": False}
    path = [{**row, "action": "e/0.0", "parent": "", "team_reward": 0.25}]
    path += [{**row, "action": "e/1.0-0", "parent": "e/0.0", "team_reward": 0.5}] * 2  # two agents at once
    left_out = [{**row, "kept": False, "action": "e/0.1", "parent": "", "team_reward": 9.0}]
    valued = [{**row, "probe": True, "action": "e/1+0.0", "parent": "e/1.0-0", "team_reward": 9.0}]
    assert handed.earned(path + left_out + valued) == 0.75
    branch = [{**row, "action": "e/1.1-1", "parent": "e/0.0", "team_reward": 0.0}]
    assert handed.earned(path + branch) == 0.5


def test_a_frozen_agents_rows_are_compared_and_not_trained_on(models, tmp_path):
    policy = lab.load_policy(models / "a", lr=1e-2)
    team = lab.Team.shared(policy, AGENTS, frozen=("asker",))
    run = trained(models, tmp_path / "run", lab.RECIPES["grpo"].replace(plan=lab.episodes(3)), team=team)
    handed = Handed(lab.export(run, tmp_path / "out", to="slime", env=Relay()), Relay())
    rows = recorded_rows(handed.batch())
    found = handed.advantages(rows)
    asked = found["agent"] == "asker"
    assert not found.loc[asked, "advantage"].any() and not found.loc[asked, "selected"].any()
    assert np.array_equal(found.loc[~asked, "advantage"], lab.load_run(run).step_turns(0)["advantage"][~asked])
    assert [handed.learns(row) for row in rows] == (~asked).tolist()
