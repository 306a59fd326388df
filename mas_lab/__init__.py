"""mas_lab: one table flows through four cells, and each cell only adds columns."""

from mas_lab import course
from mas_lab.backends import load_base, load_policy, probe_threads, set_threads
from mas_lab.backends.placement import Placement, PlacementError
from mas_lab.backends.wish import Wish
from mas_lab.bridges.episode import Earned
from mas_lab.bridges.giving import save_team
from mas_lab.bridges.hand_over import export
from mas_lab.bridges.program import ProgramEnv, play
from mas_lab.bridges.taking import load_team
from mas_lab.cells.centers import pooled_deviation, running_mean
from mas_lab.cells.credits import counterfactual, episode_return, mixed, own_return, return_to_go
from mas_lab.cells.game import Act, Said, Say, Score
from mas_lab.cells.grouping import group
from mas_lab.cells.losses import Loss, clipped, reinforce, row_mean, row_sum
from mas_lab.cells.normalization import group_stats, normalize
from mas_lab.cells.plans import episodes, joint, tree
from mas_lab.cells.rollout import RolloutError, rollout
from mas_lab.cells.selection import not_flat, select
from mas_lab.cells.update import UpdateError, update
from mas_lab.check import check_env
from mas_lab.doctor import doctor
from mas_lab.env import Env, EnvError, Step, Task
from mas_lab.explain.advice import advise
from mas_lab.explain.controlled import controlled, controlled_inflation
from mas_lab.explain.diagnostics import attribute, baseline_ratio, norms_without, shares_by
from mas_lab.explain.entropy import entropies
from mas_lab.explain.moments import inflation
from mas_lab.explain.paired_watch import PairedWatch
from mas_lab.explain.spike_rule import SpikeWatch, spike_scores, spikes
from mas_lab.pocket.own import make_pocket
from mas_lab.policy import PolicyError
from mas_lab.recipes import RECIPES, Recipe
from mas_lab.runs.run import RunError, load_run, runs_dir
from mas_lab.runs.scores import keep_scores
from mas_lab.study.runner import Study, study
from mas_lab.table import SCHEMA, TableError, schema
from mas_lab.tasks import ENVS, make_env, sandbox
from mas_lab.tasks.pettingzoo import from_pettingzoo
from mas_lab.tasks.textarena import from_textarena
from mas_lab.team import Sampling, Team
from mas_lab.train import Report, Settings, train
from mas_lab.train.evaluate import evaluate, pass_at, summary
from mas_lab.train.tracking import track
from mas_lab.widgets.ablation import AblationBoard
from mas_lab.widgets.dashboard import LiveDashboard
from mas_lab.widgets.play import play_as
from mas_lab.widgets.rewards import RewardInspector
from mas_lab.widgets.rollouts import RolloutViewer
from mas_lab.widgets.spikes import SpikeInspector

__all__ = [
    "ENVS",
    "RECIPES",
    "SCHEMA",
    "AblationBoard",
    "Act",
    "Earned",
    "Env",
    "EnvError",
    "LiveDashboard",
    "Loss",
    "PairedWatch",
    "Placement",
    "PlacementError",
    "PolicyError",
    "ProgramEnv",
    "Recipe",
    "Report",
    "RewardInspector",
    "RolloutError",
    "RolloutViewer",
    "RunError",
    "Said",
    "Sampling",
    "Say",
    "Score",
    "Settings",
    "SpikeInspector",
    "SpikeWatch",
    "Step",
    "Study",
    "TableError",
    "Task",
    "Team",
    "UpdateError",
    "Wish",
    "advise",
    "attribute",
    "baseline_ratio",
    "check_env",
    "clipped",
    "controlled",
    "controlled_inflation",
    "counterfactual",
    "course",
    "doctor",
    "entropies",
    "episode_return",
    "episodes",
    "evaluate",
    "export",
    "from_pettingzoo",
    "from_textarena",
    "group",
    "group_stats",
    "inflation",
    "joint",
    "keep_scores",
    "load_base",
    "load_policy",
    "load_run",
    "load_team",
    "make_env",
    "make_pocket",
    "mixed",
    "normalize",
    "norms_without",
    "not_flat",
    "own_return",
    "pass_at",
    "play",
    "play_as",
    "pooled_deviation",
    "probe_threads",
    "reinforce",
    "return_to_go",
    "rollout",
    "row_mean",
    "row_sum",
    "running_mean",
    "runs_dir",
    "sandbox",
    "save_team",
    "schema",
    "select",
    "set_threads",
    "shares_by",
    "spike_scores",
    "spikes",
    "study",
    "summary",
    "track",
    "train",
    "tree",
    "update",
]
