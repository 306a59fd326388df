"""verl's own code over our rows, on a CPU: its advantage function, its trainer's step around it, its post-processing of
agent loops, its configuration. Skipped where verl is not installed.

The transfer queue is stood in for by a dict: the real one is a service of Ray's.
"""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from elsewhere import ASKED, trained
from small import AGENTS, Relay

import mas_lab as lab
from mas_lab.contrib import verl
from mas_lab.contrib.verl.reader import CLOSE, HandOverError, recorded_rows
from mas_lab.contrib.verl.settings import AGGREGATES, RunFacts, verl_settings
from mas_lab.train import Settings

pytest.importorskip("verl", reason="verl is not installed; make test-verl installs it")
pytestmark = [
    pytest.mark.engines,
    pytest.mark.filterwarnings("ignore"),  # of a hundred packages, none of them ours
]

RECIPES = {
    "dr_mas": lab.RECIPES["dr_mas"].replace(plan=lab.episodes(3)),
    "at_grpo": lab.RECIPES["at_grpo"].replace(plan=lab.tree(3)),
    "magrpo": lab.RECIPES["magrpo"].replace(plan=lab.joint(2)),
}


@pytest.fixture(scope="module")
def made(models, tmp_path_factory):
    """Recipe -> the folder, and the policy that the run ended with."""
    root = tmp_path_factory.mktemp("verl")
    runs = {name: trained(models, root / name, recipe) for name, recipe in RECIPES.items()}
    return {
        name: (verl.export(run, root / f"{name}_out", env=Relay()), lab.load_run(run).team()["asker"])
        for name, run in runs.items()
    }


@pytest.fixture
def connect(made, monkeypatch):
    """A function from a recipe to our extensions, connected with its folder as verl's workers are."""
    from mas_lab.contrib.verl import extensions

    def connected(recipe):
        monkeypatch.setenv("MAS_LAB_FOLDER", str(made[recipe][0]))
        monkeypatch.setenv("MAS_LAB_MODEL", "/model")
        extensions.connected.cache_clear()
        return extensions

    return connected


class Queue:
    """A dict in the place of TransferQueue, with the functions of it that verl calls here."""

    def __init__(self):
        self.rows: dict[str, dict] = {}
        self.tags: dict[str, dict] = {}

    def kv_batch_put(self, keys, partition_id, fields=None, tags=None):
        from transfer_queue import KVBatchMeta

        for number, key in enumerate(keys):
            row = self.rows.setdefault(key, {})
            for name in fields.keys() if fields is not None else ():
                listed = hasattr(fields[name], "tolist") and not isinstance(fields[name], torch.Tensor)
                row[name] = (fields[name].tolist() if listed else fields[name])[number]
            self.tags.setdefault(key, {}).update(tags[number] if tags else {})
        return KVBatchMeta(keys=keys, tags=[self.tags[key] for key in keys], partition_id=partition_id)

    async def async_kv_batch_put(self, **told):
        return self.kv_batch_put(**told)

    def kv_batch_get(self, keys, partition_id, select_fields=None):
        from verl.utils.tensordict_utils import list_of_dict_to_tensordict

        names = [name for name in select_fields or self.rows[keys[0]] if name in self.rows[keys[0]]]
        return list_of_dict_to_tensordict([{name: self.rows[key][name] for name in names} for key in keys])


class Server:
    """verl's LLM server, with a policy of ours as its engine."""

    def __init__(self, policy):
        self.policy, self.asked = policy, []

    async def generate(self, request_id, *, prompt_ids, sampling_params):
        from verl.workers.rollout.replica import TokenOutput

        self.asked.append(sampling_params)
        seed = sampling_params.get("seed", len(self.asked))
        limit, temperature = sampling_params["max_tokens"], sampling_params["temperature"]
        request = lab.policy.Request(tuple(prompt_ids), limit, temperature, seed)
        [said] = self.policy.sample([request])
        return TokenOutput(
            token_ids=list(said.ids), log_probs=list(said.logprobs),
            extra_fields={"min_global_steps": len(self.asked) % 2, "max_global_steps": 1},
        )  # fmt: skip


@pytest.fixture
def queue(monkeypatch):
    from verl.trainer.ppo import padding_utils
    from verl.trainer.ppo.v1 import agent_loop_tq, trainer_base

    from mas_lab.contrib.verl import extensions

    made = Queue()
    for module in (padding_utils, agent_loop_tq, trainer_base, extensions):
        monkeypatch.setattr(module, "tq", made)
    return made


def loop_of(policy, rollout):
    """Our agent loop on a server that is this policy."""
    from mas_lab.contrib.verl.extensions import Loop

    loop = object.__new__(Loop)
    loop.server_manager, loop.tokenizer, loop.rollout_config = Server(policy), policy.tokenizer, rollout
    return loop


def filled(queue, folder, policy, n):
    """What verl's workers leave in the queue: our loop, then their own post-processing; then their own padding."""
    from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

    worker = AgentLoopWorkerTQ.__ray_metadata__.modified_class

    async def nothing(*_, **__):
        pass

    stub = SimpleNamespace(
        reward_loop_worker_handles=None, _compute_teacher_logprobs=nothing,
        _compute_multi_modal_inputs=lambda *_: {},
        _compute_position_ids=lambda ids, mask, _: torch.arange(ids.shape[1])[None],
    )  # fmt: skip
    stub._compute_score = lambda outputs, kwargs: worker._compute_score(stub, outputs, kwargs=kwargs)
    loop = loop_of(policy, {"name": "vllm"})
    held = pd.read_parquet(folder / "train.parquet")

    async def play():
        for uid, row in enumerate(held.to_dict("records")):
            for session in range(n):
                fields = {"uid": f"u{uid}", "session_id": session, "extra_info": row["extra_info"], "global_steps": 1}
                outputs = await loop.run({"temperature": 1.0, "top_p": 1.0, "logprobs": True}, **fields)
                await worker._agent_loop_postprocess(stub, outputs, False, **fields)

    asyncio.run(play())
    real = list(queue.rows)
    batch = queue.kv_batch_put(real, "train")
    padded = upsample_batch_to_divisible_size(batch, 7, policy.tokenizer.eos_token_id)
    for row in queue.rows.values():  # on one machine the trained weights agree with the sampler
        row["old_log_probs"] = row["rollout_log_probs"]
    return loop.server_manager, real, padded


def configured(folder: Path):
    """verl's own configuration, with ours on top as its command line has it."""
    from hydra import compose, initialize_config_dir

    with initialize_config_dir(str(folder), version_base=None):
        return compose("verl")


@pytest.mark.parametrize("recipe", RECIPES)
def test_verls_function_and_trainer_give_each_row_the_recipes_advantage(made, connect, queue, recipe):
    (folder, policy), bridge = made[recipe], connect(recipe)
    assert "advantages are those that were recorded" in bridge.check()
    n = RECIPES[recipe].plan.instances
    server, real, batch = filled(queue, folder, policy, n)
    for key in real:
        held = queue.rows[key]
        row = json.loads(held["extra_fields"]["mas_lab"])
        assert held["responses"].tolist() == row["completion_ids"] and held["prompts"].tolist() == row["prompt_ids"]
        sample = lab.policy.Sample(row["prompt_ids"], row["completion_ids"], [], 1.0, 0.0, 1.0)
        assert np.allclose(held["rollout_log_probs"], policy.logprobs([sample])[0].detach(), atol=1e-4)
    trainer = object.__new__(bridge.Trainer)
    trainer.config = configured(folder)
    assert len(batch) % 7 == 0 and len(batch) > len(real)
    batch.reorder(list(np.random.default_rng(0).permutation(len(batch))))  # as verl balances its devices
    found = trainer._compute_advantage(batch, {})
    rows = [json.loads(queue.rows[key]["extra_fields"]["mas_lab"]) for key in real]
    turns = pd.DataFrame(rows).assign(step=0).drop(columns="occasion")
    assert set(turns["agent"]) == set(AGENTS)
    expected = RECIPES[recipe].advantages(turns)["advantage"]
    assert len(found) == len(batch) and expected.abs().max() > 0
    for key, advantage in zip(real, expected, strict=True):
        given = queue.rows[key]["advantages"]
        assert len(given) == len(queue.rows[key]["responses"])
        assert np.allclose(given.numpy(), advantage, rtol=CLOSE, atol=CLOSE)
    for key in set(batch.keys) - set(real):
        assert not queue.rows[key]["advantages"].any()
    own = turns.groupby("episode")["team_reward"].nunique().max()
    scores = pd.Series([float(queue.rows[key]["rm_scores"][-1]) for key in real]).groupby(turns["episode"]).nunique()
    assert own > 1 and (scores == 1).all()  # verl's column says one number for all rows of an episode
    assert all(asked["max_tokens"] == 3 for asked in server.asked)
    assert all(tag["min_global_steps"] == 0 and tag["max_global_steps"] == 1 for tag in batch.tags)


def test_candidates_differ_under_full_determinism_and_a_frozen_agents_tokens_are_masked(made, connect):
    (folder, policy), bridge = made["at_grpo"], connect("at_grpo")
    bridge.connected().frozen = ("asker",)

    def played(**rollout):
        loop, task = loop_of(policy, rollout), pd.read_parquet(folder / "train.parquet")["extra_info"][0]
        outputs = asyncio.run(loop.run({"temperature": 1.0}, uid="u0", session_id=0, extra_info=task))
        return outputs, [asked["seed"] for asked in loop.server_manager.asked if "seed" in asked]

    (outputs, seeds), (again, _) = (played(full_determinism=True) for _ in range(2))
    assert len(set(seeds)) == len(seeds) == len(outputs) and not played()[1]
    assert [one.response_ids for one in outputs] == [one.response_ids for one in again]
    for one in outputs:
        frozen = json.loads(one.extra_fields["mas_lab"])["agent"] == "asker"
        assert one.response_mask == [int(not frozen)] * len(one.response_ids)
    assert len({one.response_mask[0] for one in outputs}) == 2


def test_without_the_rows_of_its_batch_the_estimator_refuses_to_guess(connect):
    from verl import DataProto
    from verl.trainer.ppo.ray_trainer import compute_advantage

    folder = connect("dr_mas").connected()
    rows = recorded_rows(folder.batch())
    data = DataProto.from_dict(
        tensors={"token_level_rewards": torch.zeros(len(rows), 3), "response_mask": torch.ones(len(rows), 3)},
        non_tensors={"uid": ["0"] * len(rows)},
    )
    with pytest.raises(HandOverError, match="trainer_mode=mas_lab"):
        compute_advantage(data, "mas_lab", config={})
    folder.rows = rows
    with pytest.raises(HandOverError, match="use_kl_in_reward"):
        compute_advantage(data, "mas_lab", config={"use_kl_in_reward": True})


@pytest.mark.parametrize("minibatches", [1, 2])
def test_the_actor_takes_the_runs_optimizer_steps_whatever_the_rows(made, connect, monkeypatch, minibatches):
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    bridge = connect("dr_mas")
    bridge.connected().minibatches = minibatches
    trainer = object.__new__(bridge.Trainer)
    trainer.config, seen = configured(made["dr_mas"][0]), []

    def step(self, batch, metrics):
        seen.append(self.config.actor_rollout_ref.actor.ppo_mini_batch_size * self.config.actor_rollout_ref.rollout.n)
        return batch

    monkeypatch.setattr(PPOTrainerSync, "_update_actor", step)
    for devices in (1, 2, 8):
        multiple = trainer._get_required_batch_multiple(devices)
        for rows in (multiple, 5 * multiple):
            trainer._update_actor([None] * rows, {})
            assert rows / seen[-1] == minibatches and seen[-1] % devices == 0


def test_verl_finds_all_three_by_name_and_the_trainer_is_the_synchronous_one(connect):
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn
    from verl.trainer.ppo.v1 import get_trainer_cls

    bridge = connect("dr_mas")
    assert get_trainer_cls("mas_lab") is bridge.Trainer and get_adv_estimator_fn("mas_lab")
    assert _agent_loop_registry["mas_lab"]["_target_"].rpartition(".")[2] == "Loop"
    trainer = object.__new__(bridge.Trainer)
    trainer.trainer_mode = "mas_lab"
    assert trainer.trainer_mode == "sync"


def written(tree, path=()):
    """Dotted name and value of each line of verl.yaml whose value stands there as it is."""
    for key, value in tree.items():
        if isinstance(value, dict) and key != "hydra":
            yield from written(value, (*path, key))
        elif key not in ("hydra", "defaults") and not str(value).startswith("${"):
            yield ".".join((*path, key)), value


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_configuration_composes_and_names_nothing_that_verl_lacks(made, connect, recipe):
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf

    connect(recipe)
    whole = configured(made[recipe][0])
    with initialize_config_module("verl.trainer.config", version_base=None):
        plain = compose("ppo_trainer")
    for name, value in written(yaml.safe_load((made[recipe][0] / "verl.yaml").read_text(encoding="utf-8"))):
        assert OmegaConf.select(whole, name) == value
        if "env_vars" not in name:  # a mapping for anything
            assert OmegaConf.select(plain, name, default="none") != "none", name
    assert (
        whole.data.train_files == f"{made[recipe][0]}/train.parquet" and whole.actor_rollout_ref.model.path == "/model"
    )


def test_verls_data_set_reads_the_tasks(made, connect, tmp_path):
    from omegaconf import open_dict
    from verl.utils.dataset.rl_dataset import RLHFDataset

    (folder, policy), env = made["dr_mas"], connect("dr_mas").connected().env
    config = configured(folder).data
    with open_dict(config):
        config.cache_dir = str(tmp_path)
    data = RLHFDataset(str(folder / "train.parquet"), policy.tokenizer, config)
    for number in range(len(data)):
        row = data[number]
        task = lab.Task(**json.loads(row["extra_info"]["task"]))
        assert row["raw_prompt"] == env.observe(env.start(task), "asker") and row["index"] == number
    assert len(data) == ASKED["tasks"]


def test_our_kl_and_our_bound_on_importance_weights_are_verls():
    from verl import DataProto
    from verl.trainer.config.algorithm import RolloutCorrectionConfig
    from verl.trainer.ppo.core_algos import kl_penalty
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch

    from mas_lab.losses import k3

    torch.manual_seed(0)
    trained, sampled, mask = -torch.rand(4, 5), -torch.rand(4, 5) - 0.5, torch.ones(4, 5)
    assert torch.allclose(kl_penalty(trained, sampled, "low_var_kl"), k3(trained, sampled), atol=1e-6)
    data = DataProto.from_dict(
        tensors={"old_log_probs": trained, "rollout_log_probs": sampled, "response_mask": mask.clone()}
    )
    asked = RolloutCorrectionConfig(rollout_is="token", rollout_is_threshold=1.5)
    data, _ = compute_rollout_correction_and_add_to_batch(data, asked)
    assert torch.allclose(data.batch["rollout_is_weights"], (trained - sampled).exp().clamp(max=1.5))


def test_our_clip_is_verls():
    """The loss and its gradient, token by token, as `update` has them; in the words of verl.yaml."""
    from verl.trainer.ppo.core_algos import agg_loss, get_policy_loss_fn
    from verl.workers.config import FSDPActorConfig

    torch.manual_seed(0)
    old, advantages, mask = torch.randn(4, 5), torch.randn(4, 5), torch.ones(4, 5)
    row = torch.arange(4).repeat_interleave(5)
    policy = {"lr": 1e-5, "lora": None, "source": {"kind": "hub", "name": "a/b"}, "options": {}}
    losses = lab.clipped(0.1, high=0.3), lab.clipped(0.2, dual=2.0), lab.clipped(0.2, ratio="sequence"), lab.reinforce()
    for loss in losses:
        recipe, sampling = RECIPES["dr_mas"].replace(loss=loss), {"a": {"temperature": 1.0}}
        asked = RunFacts(recipe, Settings(), {"shared": policy}, sampling, 8, 3)
        actor = verl_settings(asked)["actor_rollout_ref"]["actor"]
        mode, more = actor["policy_loss"]["loss_mode"], {k: v for k, v in actor.items() if k.startswith("clip_ratio_")}
        config = FSDPActorConfig(strategy="fsdp", rollout_n=1, use_dynamic_bsz=True, **more)
        ours, theirs = ((old + 0.5 * torch.sin(old)).requires_grad_() for _ in range(2))
        loss(ours.flatten(), old.flatten(), advantages.flatten(), row).mean().backward()
        value, _ = get_policy_loss_fn(mode)(old, theirs, advantages, mask, "token-mean", config)
        value.backward()
        assert torch.allclose(ours.grad, theirs.grad, atol=1e-6), mode
    for mode in AGGREGATES.values():
        assert agg_loss(torch.ones(2, 3), torch.ones(2, 3), mode).isfinite()
