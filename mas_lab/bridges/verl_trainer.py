"""The classes that verl finds by the name "mas_lab": an agent loop, and its synchronous trainer with the rows beside
the batch.

Leaves out: what they do with a row (`verl_rows`).
"""

import math
from typing import Any

import transfer_queue as tq
from omegaconf import open_dict
from transfer_queue import KVBatchMeta
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, register
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from mas_lab.bridges.verl_rows import NAME, beside, handed, played, rows_of


@register(NAME)
class Loop(AgentLoopBase):
    """One instance of a task: an output for each model call."""

    async def run(self, sampling_params: dict[str, Any], **fields: Any) -> list[AgentLoopOutput]:
        rows = await played(sampling_params, fields, self.server_manager, self.tokenizer, self.rollout_config)
        return [AgentLoopOutput(**row) for row in rows]


@register_trainer(NAME)
class Trainer(PPOTrainerSync):
    """The synchronous trainer, whose estimator is told whose rows it sees."""

    @property
    def trainer_mode(self) -> str:
        """verl asks in many places whether this is "sync", and it is."""
        return "sync"

    @trainer_mode.setter
    def trainer_mode(self, name: str) -> None:
        """The name it was chosen by."""

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        held = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
        with beside(rows_of(list(held["extra_fields"]), batch.tags)):
            return super()._compute_advantage(batch, metrics)

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        """What a batch is padded to: parts as `_update_actor` cuts them, each of them whole on every device."""
        return math.lcm(dp_size, self.config.actor_rollout_ref.rollout.n) * handed().minibatches

    def _update_actor(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """As many optimizer steps as the run took, however many rows an episode has: verl cuts a batch into parts of
        `ppo_mini_batch_size` times `n` rows."""
        actor, n = self.config.actor_rollout_ref.actor, self.config.actor_rollout_ref.rollout.n
        parts, usual = handed().minibatches, actor.ppo_mini_batch_size
        with open_dict(actor):
            actor.ppo_mini_batch_size = len(batch) // (n * parts)
            try:
                return super()._update_actor(batch, metrics)
            finally:
                actor.ppo_mini_batch_size = usual
