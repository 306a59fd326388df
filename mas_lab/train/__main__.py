"""Training without a notebook, `python -m mas_lab.train --config run.yaml`; it prints one line per step.

Under `accelerate launch -m mas_lab.train --config run.yaml` all processes train as one. The same command resumes a run
that was stopped. Leaves out: the keys of the file (`config`).
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from mas_lab.runs.run import load_run, run_folder
from mas_lab.runs.scores import mean_scores
from mas_lab.train.config import Config
from mas_lab.train.report import Report


def main(argv: Sequence[str] | None = None) -> int:
    """Train as the file says and return the exit status; an error of the package is printed on one line."""
    about = "Train a team as a YAML file says; the same command goes on with a run that was stopped."
    options = argparse.ArgumentParser(prog="python -m mas_lab.train", description=about)
    options.add_argument("--config", type=Path, required=True, help="the file, such as data/configs/plan_path.yaml")
    options.add_argument("--steps", type=int, help="training steps in all, in place of the file's")
    arguments = options.parse_args(argv)
    try:
        config = Config.read(arguments.config)
        steps = config.steps if arguments.steps is None else arguments.steps
        for report in config.train(config.make_team(), steps):
            print(line(report, steps), flush=True)
    except KeyboardInterrupt:
        print("stopped; the same command goes on from the newest checkpoint", file=sys.stderr)
        return 130
    except Exception as error:
        if not type(error).__module__.startswith("mas_lab."):
            raise
        print(f"mas_lab.train: {error}", file=sys.stderr, flush=True)
        return 1
    if config.run and os.environ.get("RANK", "0") == "0":
        print(f"{load_run(config.run).steps} steps in {run_folder(config.run)}")
    return 0


def line(report: Report, steps: int | None) -> str:
    """Return one step as a line of text.

    It has the share of successful episodes, each agent's mean credit and gradient norm, and the score on held-out tasks
    if the step has one.
    """
    norms = report.stats.groupby("agent")["grad_norm"].max()
    credits = report.turns.groupby("agent", sort=False)["credit"].mean()
    agents = [f"{agent} {credit:.3f} (norm {norms.get(agent, 0.0):.2g})" for agent, credit in credits.items()]
    done = "" if steps is None else f" ({report.step + 1} of {steps} done)"
    parts = [f"step {report.step}{done}", f"success {report.success:.3f}", *agents]
    if report.held_out is not None:
        parts.append(f"held out {mean_scores(report.held_out)['success'].iloc[-1]:.3f}")
    parts += [f"{report.tokens} tokens", f"{sum(report.profile.values()):.1f} s", *report.notes]
    return "  ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
