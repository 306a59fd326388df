"""Classes that verl finds by the name "mas_lab": an agent loop and a synchronous trainer.

The trainer puts the rows beside the batch. Leaves out: the use of a row (`verl_rows`).
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
    """Agent loop that plays one instance of a task, with an output for each model call."""

    async def run(self, sampling_params: dict[str, Any], **fields: Any) -> list[AgentLoopOutput]:
        rows = await played(sampling_params, fields, self.server_manager, self.tokenizer, self.rollout_config)
        return [AgentLoopOutput(**row) for row in rows]


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
        held = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
        with beside(rows_of(list(held["extra_fields"]), batch.tags)):
            return super()._compute_advantage(batch, metrics)

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        """Return the multiple to which a batch is padded.

        Each part that `_update_actor` cuts is then divisible by the number of devices.
        """
        return math.lcm(dp_size, self.config.actor_rollout_ref.rollout.n) * handed().minibatches

    def _update_actor(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """Take as many optimizer steps as the run did, for any number of rows per episode.

        verl cuts a batch into parts of `ppo_mini_batch_size` times `n` rows.
        """
        actor, n = self.config.actor_rollout_ref.actor, self.config.actor_rollout_ref.rollout.n
        parts, usual = handed().minibatches, actor.ppo_mini_batch_size
        with open_dict(actor):
            actor.ppo_mini_batch_size = len(batch) // (n * parts)
            try:
                return super()._update_actor(batch, metrics)
            finally:
                actor.ppo_mini_batch_size = usual
