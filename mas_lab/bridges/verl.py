"""Three extensions of verl, all named "mas_lab": an agent loop, an advantage estimator and a trainer.

The loop plays an env of the kit, and the estimator applies a recipe of the kit. The trainer puts the rows beside the
batch; verl's own code runs unchanged in it. Requires verl (written for 0.9.1). Leaves out: verl's settings
(`trainers`).
"""

from pathlib import Path

import torch
from verl import DataProto
from verl.trainer.ppo.ray_trainer import compute_advantage

from mas_lab.bridges.export_reader import Handed, HandOverError, recorded_rows
from mas_lab.bridges.verl_rows import NAME, beside, handed, take_up
from mas_lab.bridges.verl_trainer import Loop, Trainer
from mas_lab.env import Env

__all__ = ["Loop", "Trainer", "check", "connect"]


def connect(folder: str | Path, env: Env | None = None) -> Handed:
    """Use a folder in this process. `env` is needed if the env is your own class."""
    take_up(Handed(folder, env))
    return handed()


def check() -> str:
    """Run verl's `compute_advantage` on the recorded batch of the connected folder, with a row of padding.

    Raises HandOverError if an advantage differs from the recorded one.
    """
    rows: list[dict | None] = recorded_rows(handed().batch())
    lengths = torch.tensor([len(row["completion_ids"]) for row in rows] + [0])
    mask = (torch.arange(int(lengths.max()))[None] < lengths[:, None]).long()
    batch = DataProto.from_dict(
        tensors={"token_level_rewards": torch.zeros(mask.shape), "response_mask": mask},
        non_tensors={"uid": [str(row["task"]) for row in rows] + ["padding"]},
    )
    with beside([*rows, None]):
        batch = compute_advantage(batch, adv_estimator=NAME, config={"use_kl_in_reward": False})
    found = batch.batch["advantages"]
    if (found != found[:, :1] * mask).any() or found[-1].any():
        raise HandOverError("verl has put advantages where no token of the row stands")
    return handed().compare(found[:-1, 0].tolist())
