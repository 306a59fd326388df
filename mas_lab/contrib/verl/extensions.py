"""Three extensions of verl, all named "mas_lab": an agent loop, an advantage estimator and a trainer.

verl imports this module, by VERL_USE_EXTERNAL_MODULES, and MAS_LAB_FOLDER names the folder of the run. The loop plays
an env of the kit, and the estimator applies a recipe of the kit. The trainer puts the rows beside the batch; verl's own
code runs unchanged in it. Rewards do not use verl's columns: if an agent loop returns several rows, verl writes the
last row's reward over all of them. Padding rows are left out of the recipe and get 0. Requires verl (written for
0.9.1). Leaves out: verl's settings (`settings`).
"""

import json
import math
import os
from functools import cache
from typing import Any
from uuid import uuid4

import pandas as pd
import torch
import transfer_queue as tq
from omegaconf import open_dict
from transfer_queue import KVBatchMeta
from verl import DataProto
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, register
from verl.trainer.ppo.core_algos import register_adv_est
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from mas_lab.contrib.verl.reader import HandOverError, VerlFolder, completion, plain_row, recorded_rows
from mas_lab.contrib.verl.settings import FOLDER, NAME
from mas_lab.policy import Completion, Request
from mas_lab.runs.scores import episode_returns


@cache
def connected() -> VerlFolder:
    """Return the folder of this process, which verl.yaml names to every worker."""
    return VerlFolder(os.environ[FOLDER])


@register_adv_est(NAME)
def estimate(token_level_rewards: Any, response_mask: torch.Tensor, config: Any = None, **_: Any) -> tuple:
    """Return the recipe's advantages at each row's own tokens, twice: as advantages and as returns.

    Both have the shape (bs, T). Raises HandOverError if there are no rows, or if rewards include a KL penalty.
    """
    folder = connected()
    rows, folder.rows = folder.rows, None
    if rows is None:
        raise HandOverError("the estimator has no rows: only trainer.v1.trainer_mode=mas_lab hands them on")
    if config is not None and config.get("use_kl_in_reward", False):
        raise HandOverError("algorithm.use_kl_in_reward changes rewards that the recipe does not read: use_kl_loss")
    found = iter(folder.advantages([row for row in rows if row is not None])["advantage"])
    advantages = response_mask.new_tensor([0.0 if row is None else next(found) for row in rows], dtype=torch.float32)
    spread = advantages[:, None] * response_mask
    return spread, spread


def check() -> str:
    """Run verl's `compute_advantage` on the recorded batch of the connected folder, with a row of padding.

    Raises HandOverError if an advantage differs from the recorded one.
    """
    folder = connected()
    rows = [*recorded_rows(folder.batch()), None]
    tensors = dict.fromkeys(("token_level_rewards", "response_mask"), torch.ones(len(rows), 1))
    batch = DataProto.from_dict(tensors=tensors, non_tensors={"uid": ["0"] * len(rows)})
    folder.rows = rows
    batch = compute_advantage(batch, adv_estimator=NAME, config={"use_kl_in_reward": False})
    return folder.compare(batch.batch["advantages"][:-1, 0].tolist())


@register(NAME)
class Loop(AgentLoopBase):
    """Agent loop that plays one instance of a task, with an output for each model call."""

    async def run(self, sampling_params: dict[str, Any], **fields: Any) -> list[AgentLoopOutput]:
        folder, rollout, versions = connected(), self.rollout_config, set()
        ends = {"vllm": "include_stop_str_in_output", "sglang": "no_stop_trim"}.get(rollout.get("name", "vllm"))
        longest = rollout.get("prompt_length", 2**30) + rollout.get("response_length", 0)

        async def speak(request: Request) -> Completion:
            params = {**sampling_params, "max_tokens": request.max_tokens}
            params |= {"stop": list(request.stop), ends: True} if request.stop else {}
            if rollout.get("full_determinism", False):  # verl's single seed would make the candidates of a node equal
                params["seed"] = request.seed % 2**31
            ids = list(request.prompt_ids)
            answer = await self.server_manager.generate(request_id=uuid4().hex, prompt_ids=ids, sampling_params=params)
            if answer.log_probs is None:
                raise HandOverError("verl's server gave no log-probabilities: set rollout.calculate_log_probs=true")
            versions.update(answer.extra_fields[f"{end}_global_steps"] for end in ("min", "max"))
            return completion(answer.token_ids, answer.log_probs, request, self.tokenizer)

        task, session, occasion = fields["extra_info"]["task"], fields.get("session_id", 0), str(fields["uid"])
        context = rollout.get("max_model_len") or longest
        rows = await folder.play(task, session, occasion, speak, self.tokenizer, context)
        total = float(episode_returns(pd.DataFrame(rows)).iloc[0])  # for verl's charts alone
        shared = {"reward_extra_info": {}, "min_global_steps": min(versions), "max_global_steps": max(versions)}
        return [
            AgentLoopOutput(
                prompt_ids=row["prompt_ids"], response_ids=row["completion_ids"],
                response_mask=[int(folder.learns(row))] * len(row["completion_ids"]),
                response_logprobs=row["logprobs"], reward_score=total, num_turns=2, metrics={},
                extra_fields={NAME: json.dumps(plain_row(row, without=("logprobs",))), **shared},
            )
            for row in rows
        ]  # fmt: skip


@register_trainer(NAME)
class Trainer(PPOTrainerSync):
    """Synchronous trainer that passes the rows of a batch to the estimator."""

    @property
    def trainer_mode(self) -> str:
        """Return "sync", since verl compares the mode with it in many places."""
        return "sync"

    @trainer_mode.setter
    def trainer_mode(self, name: str) -> None:
        """Ignore the name under which the trainer was chosen."""

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        fields = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
        held = [getattr(one, "data", one) for one in fields["extra_fields"]]  # some queue back ends wrap the dicts
        padding = [tag.get("is_padding", False) for tag in batch.tags]
        rows = [None if one else json.loads(row[NAME]) for row, one in zip(held, padding, strict=True)]
        connected().rows = rows
        return super()._compute_advantage(batch, metrics)

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        """Return the multiple to which a batch is padded.

        Each part that `_update_actor` cuts is then divisible by the number of devices.
        """
        return math.lcm(dp_size, self.config.actor_rollout_ref.rollout.n) * connected().minibatches

    def _update_actor(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """Take as many optimizer steps as the run did, for any number of rows per episode.

        verl cuts a batch into parts of `ppo_mini_batch_size` times `n` rows.
        """
        config = self.config.actor_rollout_ref
        with open_dict(config.actor):
            config.actor.ppo_mini_batch_size = len(batch) // (config.rollout.n * connected().minibatches)
        return super()._update_actor(batch, metrics)
