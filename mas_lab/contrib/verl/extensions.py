"""Three extensions of verl, all named "mas_lab": an agent loop, an advantage estimator and a trainer.

The loop plays an env of the kit, and the estimator applies a recipe of the kit. The trainer puts the rows beside the
batch; verl's own code runs unchanged in it. Rewards do not use verl's columns: if an agent loop returns several rows,
verl writes the last row's reward over all of them. Padding rows are left out of the recipe and get 0. Requires verl
(written for 0.9.1). Leaves out: verl's settings (`verl_settings`).
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
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
from mas_lab.contrib.verl.settings import NAME
from mas_lab.policy import Completion, Request
from mas_lab.runs.scores import episode_returns

ROW = "mas_lab"
"""Key of a row's JSON in the extra fields."""
_connected: list[VerlFolder] = []
_rows: ContextVar[Sequence[Mapping[str, Any] | None] | None] = ContextVar("the batch's rows, None for padding")


def connect(folder: str | Path) -> VerlFolder:
    """Use this folder for all rows of this process."""
    _connected[:] = [VerlFolder(folder)]
    return _connected[0]


def connected() -> VerlFolder:
    """Return the folder in use, or raise HandOverError if there is none."""
    if not _connected:
        raise HandOverError("no folder is connected in this process: set VERL_USE_EXTERNAL_MODULES=mas_lab_bridge for "
                            "every worker, with the folder on PYTHONPATH")  # fmt: skip
    return _connected[0]


@contextmanager
def beside(rows: Sequence[Mapping[str, Any] | None]) -> Iterator[None]:
    """Let the estimator read `rows`, one for each row of verl's batch, `None` for padding."""
    token = _rows.set(rows)
    try:
        yield
    finally:
        _rows.reset(token)


@register_adv_est(NAME)
def estimate(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, config: Any = None, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the recipe's advantages at each row's own tokens, twice: as advantages and as returns.

    Both have the shape (bs, T). Raises HandOverError if there are no rows, or if rewards include a KL penalty.
    """
    rows = _rows.get(None)
    if rows is None:
        raise HandOverError("the estimator has no rows: only trainer.v1.trainer_mode=mas_lab hands them on")
    if config is not None and config.get("use_kl_in_reward", False):
        raise HandOverError("algorithm.use_kl_in_reward changes rewards that the recipe does not read: use_kl_loss")
    real = [number for number, row in enumerate(rows) if row is not None]
    found = connected().advantages([rows[number] for number in real])["advantage"].tolist()
    advantages = torch.zeros(len(rows), 1, dtype=torch.float32, device=response_mask.device)
    advantages[real, 0] = torch.as_tensor(found, dtype=torch.float32, device=response_mask.device)
    spread = advantages * response_mask
    return spread, spread


def check() -> str:
    """Run verl's `compute_advantage` on the recorded batch of the connected folder, with a row of padding.

    Raises HandOverError if an advantage differs from the recorded one.
    """
    rows: list[dict | None] = [*recorded_rows(connected().batch()), None]
    ones = torch.ones(len(rows), 1)
    tensors = {"token_level_rewards": torch.zeros_like(ones), "response_mask": ones}
    batch = DataProto.from_dict(tensors=tensors, non_tensors={"uid": ["0"] * len(rows)})
    with beside(rows):
        batch = compute_advantage(batch, adv_estimator=NAME, config={"use_kl_in_reward": False})
    return connected().compare(batch.batch["advantages"][:-1, 0].tolist())


@register(NAME)
class Loop(AgentLoopBase):
    """Agent loop that plays one instance of a task, with an output for each model call."""

    async def run(self, sampling_params: dict[str, Any], **fields: Any) -> list[AgentLoopOutput]:
        folder, rollout, versions = connected(), self.rollout_config, []
        ends = {"vllm": "include_stop_str_in_output", "sglang": "no_stop_trim"}.get(rollout.get("name", "vllm"))
        lengths = (rollout.get(f"{part}_length", 2**30) for part in ("prompt", "response"))
        context = rollout.get("max_model_len") or sum(lengths)

        async def speak(request: Request) -> Completion:
            stops = {"stop": list(request.stop), ends: True} if request.stop else {}
            params = {**sampling_params, "max_tokens": request.max_tokens, **stops}
            if rollout.get("full_determinism", False):  # verl's single seed would make the candidates of a node equal
                params["seed"] = request.seed % 2**31
            ids = list(request.prompt_ids)
            answer = await self.server_manager.generate(request_id=uuid4().hex, prompt_ids=ids, sampling_params=params)
            if answer.log_probs is None:
                raise HandOverError("verl's server gave no log-probabilities: set rollout.calculate_log_probs=true")
            versions.extend(answer.extra_fields.get(f"{end}_global_steps") for end in ("min", "max"))
            return completion(answer.token_ids, answer.log_probs, request, self.tokenizer)

        task, session, occasion = fields["extra_info"]["task"], fields.get("session_id", 0), str(fields["uid"])
        rows = await folder.play(task, session, occasion, speak, self.tokenizer, context)
        total = float(episode_returns(pd.DataFrame(rows)).iloc[0])  # for verl's charts alone
        known = [one for one in versions if one is not None]
        span = {"min_global_steps": min(known), "max_global_steps": max(known)} if known else {}
        return [
            AgentLoopOutput(
                prompt_ids=row["prompt_ids"], response_ids=row["completion_ids"],
                response_mask=[int(folder.learns(row))] * len(row["completion_ids"]),
                response_logprobs=row["logprobs"], reward_score=total, num_turns=2, metrics={},
                extra_fields={ROW: json.dumps(plain_row(row, without=("logprobs",))), "reward_extra_info": {}, **span},
            )
            for row in rows
        ]  # fmt: skip


def rows_of(extra_fields: Sequence[Mapping[str, Any]], tags: Sequence[Mapping[str, Any]]) -> list[dict | None]:
    """Return the rows from the agent loops' outputs, in the batch's order; `None` for padding."""
    found: list[dict | None] = []
    for number, (fields, tag) in enumerate(zip(extra_fields, tags, strict=True)):
        fields = getattr(fields, "data", fields)  # a dict or, with some queue back ends, its wrapper
        is_padding = tag.get("is_padding", False)
        if not is_padding and ROW not in fields:
            raise HandOverError(f"row {number} of the batch has no row of mas_lab; did another agent loop play it?")
        found.append(None if is_padding else json.loads(fields[ROW]))
    return found


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
        with beside(rows_of(list(fields["extra_fields"]), batch.tags)):
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
        actor, n = self.config.actor_rollout_ref.actor, self.config.actor_rollout_ref.rollout.n
        parts, usual = connected().minibatches, actor.ppo_mini_batch_size
        with open_dict(actor):
            actor.ppo_mini_batch_size = len(batch) // (n * parts)
            try:
                return super()._update_actor(batch, metrics)
            finally:
                actor.ppo_mini_batch_size = usual
