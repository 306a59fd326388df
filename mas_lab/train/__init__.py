"""The loop over the four cells: `train` as a generator, and `python -m mas_lab.train --config run.yaml` headless."""

from mas_lab.train.loop import Report, describe, step_seed, success_rate, train
from mas_lab.train.settings import SCHEDULES, Settings

__all__ = ["SCHEDULES", "Report", "Settings", "describe", "step_seed", "success_rate", "train"]
