"""A run handed over: what the folder holds, what is refused, and an episode that another engine samples.

These are the tests of `writer`, `reader` and `settings`.
"""

import asyncio
import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest
import yaml
from elsewhere import speaking, trained
from small import AGENTS, Relay, make_team, recorded

import mas_lab as lab
from mas_lab import __main__ as cli
from mas_lab.contrib import verl
from mas_lab.contrib.verl.reader import HandOverError, Speaker, VerlFolder, completion, play, recorded_rows
from mas_lab.contrib.verl.settings import RunFacts, refusals, verl_settings
from mas_lab.describe import describe
from mas_lab.policy import PolicyError
from mas_lab.recipes import from_data
from mas_lab.train import Settings

RECIPE = lab.RECIPES["dr_mas"].replace(plan=lab.episodes(3), loss=lab.clipped(0.2, high=0.3, dual=4.0, kl=0.01))


@pytest.fixture(scope="module")
def run(models, tmp_path_factory):
    return trained(models, tmp_path_factory.mktemp("handed") / "run", RECIPE, steps=2)


@pytest.fixture(scope="module")
def folder(run, tmp_path_factory):
    return verl.export(run, tmp_path_factory.mktemp("out") / "verl", env=Relay())


@pytest.fixture
def handed(folder):
    return VerlFolder(folder)


def test_the_folder_holds_the_run(folder, handed, run):
    whole = lab.load_run(run)
    names = {"hand_over.json", "batch.parquet", "train.parquet", "test.parquet"}
    assert {path.name for path in folder.iterdir()} == names | {"README.md", "verl.yaml"}
    said = json.loads((folder / "hand_over.json").read_text(encoding="utf-8"))
    assert from_data(said["recipe"]) == handed.recipe == RECIPE
    assert said["env"] == whole.config["env"] and handed.env == Relay()
    held = pd.read_parquet(folder / "train.parquet")
    ids = [json.loads(cell["task"])["id"] for cell in held["extra_info"]]
    assert ids == [task for _, own in whole.turns.groupby("step") for task in own["task"].unique()]
    assert all(prompt[0]["content"].startswith("asker now") for prompt in held["prompt"])
    assert len(pd.read_parquet(folder / "test.parquet")) == Settings().score_tasks
    advantages = handed.batch()["advantage"]
    assert advantages.tolist() == whole.step_turns(1)["advantage"].tolist() and advantages.abs().max()


def test_another_batch_is_told_and_a_task_that_is_drawn_twice_is_two_groups(handed):
    rows = recorded_rows(handed.batch())
    once = handed.advantages(rows)
    found = once["advantage"].to_numpy(float).copy()
    assert "the largest difference is 0.0e+00" in handed.compare(found)
    found[4] += 1e-5
    with pytest.raises(HandOverError, match=r"row 4 \(task 'train-\d+', agent '.+'\) has the advantage"):
        handed.compare(found)
    again = [{**row, "episode": f"{row['episode']}+", "node": f"{row['node']}+", "team_reward": 1.0} for row in rows]
    twice = handed.advantages([{**row, "occasion": "0"} for row in rows] + [{**row, "occasion": "1"} for row in again])
    assert twice["group"].nunique() == 2 * once["group"].nunique()
    assert twice["advantage"][: len(rows)].tolist() == once["advantage"].tolist()


PLANS = {"episodes": lab.episodes(1), "tree": lab.tree(3, follow=1), "joint": lab.joint(2)}


@pytest.mark.parametrize("plan, together", [("episodes", False), ("tree", True), ("joint", False), ("joint", True)])
def test_an_episode_that_another_engine_samples_is_a_rollouts(models, plan, together):
    env, policy = Relay(together=together), make_team("shared", models)["asker"]
    team = lab.Team.shared(policy, AGENTS, sampling={agent: lab.Sampling(temperature=0.7) for agent in AGENTS})
    task = env.tasks(1, "train", seed=2)[0]
    expected = lab.rollout(env, team, [task], plan=PLANS[plan], seed=4)

    async def played():
        speaker = Speaker(speaking(policy), policy.tokenizer, policy.shared.template, policy.context)
        return await play(env, task, task.id, PLANS[plan], speaker, team.sampling, seed=4)

    found = pd.DataFrame(asyncio.run(played())).assign(step=0)[expected.columns]
    order = ["node", "agent", "candidate"]
    found, expected = (table.sort_values(order, ignore_index=True) for table in (found, expected))
    for one, other in zip(found.pop("logprobs"), expected.pop("logprobs"), strict=True):
        assert one == pytest.approx(other, abs=1e-5)  # other batches, other sums
    pd.testing.assert_frame_equal(found, expected, check_exact=True)


@pytest.mark.parametrize("ends", ["by an error", "by its caller"])
def test_an_episode_that_is_broken_off_ends_its_requests_and_no_other_episode(models, ends):
    policy, asked = make_team("shared", models)["asker"], []

    async def broken(request):
        asked.append(asyncio.current_task())
        if ends == "by an error" and len(asked) > 1:
            raise PolicyError("gone")
        return await (speaking(policy)(request) if ends == "by an error" else asyncio.sleep(60))

    def episode(speak, number):
        task, speaker = Relay().tasks(2, "train", seed=0)[number], Speaker(speak, policy.tokenizer, {}, 64)
        return play(Relay(), task, task.id, lab.episodes(1), speaker, dict.fromkeys(AGENTS, lab.Sampling()))

    async def both():
        first = asyncio.wait_for(episode(broken, 0), 20 if ends == "by an error" else 1)
        return await asyncio.gather(first, episode(speaking(policy), 1), return_exceptions=True)

    first, second = asyncio.run(both())
    assert isinstance(first, lab.RolloutError if ends == "by an error" else TimeoutError) and len(second) >= 2
    assert "gone" in str(first) if ends == "by an error" else all(one.cancelled() for one in asked)


def test_a_completion_says_how_it_ended(models):
    policy = make_team("shared", models)["asker"]
    eos, pad, word = policy.tokenizer.convert_tokens_to_ids(["<eos>", "<pad>", "w1"])
    request = lab.policy.Request((5, 6), 3, 1.0, 0, ("w1",))
    with pytest.raises(ValueError, match="3 tokens with 2 log-probabilities"):
        completion([5, 6, 7], [-1.0, -1.0], request, policy.tokenizer)
    # another end token; and a context of the engine that is full
    ends = {(word,): "stop", (7, 7, eos): "eos", (7, 7, 7): "length", (7, pad): "eos", (7, 7): "length"}
    for ids, finish in ends.items():
        assert completion(ids, [-1.0] * len(ids), request, policy.tokenizer).finish == finish


POLICY = {"lr": 1e-5, "lora": None, "source": {"kind": "hub", "name": "a/b"}, "options": {"alpha": 2.0}}
ONE = {"shared": POLICY}
WARM = {"doer": {"temperature": 0.8}}


def asked(recipe=None, policies=ONE, sampling=WARM, curriculum=None, **settings):
    settings = Settings(tasks=4, **settings)
    return RunFacts(RECIPE.replace(**(recipe or {})), settings, policies, sampling, 20, 5, curriculum)


@pytest.mark.parametrize(("changed", "reason"), [
    ({"recipe": {"center": lab.running_mean()}}, "its center, .* learns from step to step"),
    ({"recipe": {"loss": lab.clipped(ratio="action"), "aggregate": "turn"}}, "one ratio per action"),
    ({"recipe": {"loss": lab.Loss()}}, "its loss, Loss, is none that verl has"),
    ({"rounds": 3}, "rounds=3 draws more tasks"),
    ({"learn": {0: ["asker"]}}, "learn=.* trains agents in stages"),
    ({"curriculum": "mine"}, "drawn by a curriculum"),
    ({"policies": ONE | {"own": POLICY}}, "has the policies shared, own, and verl trains one"),
    ({"sampling": WARM | {"asker": {"temperature": 1.0}}}, "different temperatures"),
])  # fmt: skip
def test_what_verl_lacks_is_refused_with_the_reason(changed, reason):
    assert not refusals(asked())
    [why] = refusals(asked(**changed))
    assert re.search(reason, why)


def test_verls_configuration_says_recipe_and_settings(folder):
    said = yaml.safe_load((folder / "verl.yaml").read_text(encoding="utf-8"))
    actor = said["actor_rollout_ref"]["actor"]
    assert said["algorithm"] == {"adv_estimator": "mas_lab", "use_kl_in_reward": False}
    assert (actor["clip_ratio_low"], actor["clip_ratio_high"], actor["clip_ratio_c"]) == (0.2, 0.3, 4.0)
    assert actor["loss_agg_mode"] == "token-mean" and actor["use_kl_loss"] is True and actor["kl_loss_coef"] == 0.01
    assert actor["optim"] == {"lr": 0.01} and said["data"]["max_response_length"] == 3
    assert said["actor_rollout_ref"]["rollout"]["n"] == 3 and said["data"]["train_batch_size"] == 2
    assert said["actor_rollout_ref"]["model"]["path"] == "${oc.env:MAS_LAB_MODEL}"
    model = verl_settings(asked(policies={"shared": POLICY | {"lora": {"rank": 8}}}))["actor_rollout_ref"]["model"]
    assert model == {"path": "a/b", "lora_rank": 8, "lora_alpha": 16}
    said = verl_settings(asked({"loss": lab.reinforce(tis=2.0, entropy=0.1)}, epochs=2))
    actor = said["actor_rollout_ref"]["actor"]
    assert actor["ppo_epochs"] == 2 and actor["policy_loss"]["loss_mode"] == "gpg" and actor["entropy_coeff"] == 0.1
    assert said["algorithm"]["rollout_correction"]["rollout_is_threshold"] == 2.0
    assert said["actor_rollout_ref"]["rollout"]["temperature"] == 0.8


def test_a_task_of_the_kit_is_made_by_its_name(tmp_path):
    env = lab.make_env("plan_path", size=3)
    team = lab.Team.shared(lab.load_policy(env.pocket), env.agents)
    recipe = lab.RECIPES["at_grpo"].replace(plan=lab.tree(2))
    list(lab.train(env, team, recipe, 1, run=tmp_path / "run", tasks=2, check=False, max_turns=2))
    handed = VerlFolder(verl.export(tmp_path / "run", tmp_path / "out"))
    assert handed.env == lab.make_env("plan_path", size=3, max_turns=2)


BOTH = describe(RECIPE.replace(aggregate="agent", select=lab.not_flat()))


@pytest.mark.parametrize(("config", "env", "sentence"), [
    ({"recipe": {**describe(RECIPE), "credit": {"is": "my_file.my_credit"}}}, Relay(), "my_credit.*cannot be made"),
    ({"recipe": BOTH}, Relay(), r"cannot be handed over to verl:\n- select=.*\n- aggregate='agent'"),
    ({}, None, "is your own: give it, as env="),
    ({}, Relay(together=True), "the run was made on"),
])  # fmt: skip
def test_what_cannot_be_handed_over_is_said_and_nothing_written(run, tmp_path, config, env, sentence):
    copy = shutil.copytree(run, tmp_path / "copy")
    recorded(copy, **config)
    with pytest.raises(ValueError, match=sentence):
        verl.export(copy, tmp_path / "out", env=env)
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


def test_the_command_writes_either_and_nothing_over(run, tmp_path, capsys):
    given = ["export", str(run), "--to", "verl"]
    assert cli.main(["export", str(run), str(tmp_path / "run.zip")]) == 0 and (tmp_path / "run.zip").is_file()
    assert cli.main([*given, "--out", str(tmp_path / "s"), "--env", "small:Relay"]) == 0
    assert (tmp_path / "s" / "verl.yaml").is_file()
    with pytest.raises(SystemExit, match="RUN --to verl"):
        cli.main(given)
    capsys.readouterr()
    for out, sentence in (("t", "your own"), ("s", "is there already")):
        assert cli.main([*given, "--out", str(tmp_path / out)]) == 1
        assert sentence in capsys.readouterr().err


def test_a_frozen_agents_rows_are_compared_and_not_trained_on(models, tmp_path):
    team = lab.Team.shared(lab.load_policy(models / "a", lr=1e-2), AGENTS, frozen=("asker",))
    run = trained(models, tmp_path / "run", lab.RECIPES["grpo"].replace(plan=lab.episodes(3)), team=team)
    handed = VerlFolder(verl.export(run, tmp_path / "out", env=Relay()))
    rows = recorded_rows(handed.batch())
    found = handed.advantages(rows)
    frozen = found["agent"] == "asker"
    assert not found.loc[frozen, "advantage"].any() and not found.loc[frozen, "selected"].any()
    assert np.array_equal(found.loc[~frozen, "advantage"], lab.load_run(run).step_turns(0)["advantage"][~frozen])
    assert [handed.learns(row) for row in rows] == (~frozen).tolist()
