"""The loop over the four cells: `train` as a generator, and `python -m mas_lab.train --config run.yaml`."""

from mas_lab.train.loop import train
from mas_lab.train.progress import Curriculum, step_seed
from mas_lab.train.report import Report
from mas_lab.train.settings import Settings

__all__ = ["Curriculum", "Report", "Settings", "step_seed", "train"]
