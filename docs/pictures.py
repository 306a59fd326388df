"""Draws the README's pictures: `python docs/pictures.py`.

The curves come from the recorded runs in `data/results/quickstart/`; the maze from one training of about half a minute.
Needs a Chrome or Chromium for plotly's kaleido (BROWSER_PATH names it where it is not found).
"""

from pathlib import Path

import pandas as pd

from mas_lab import demo
from mas_lab.backends import set_threads
from mas_lab.paths import data_dir
from mas_lab.tasks import make_env
from mas_lab.widgets.figures import learning_curves, mazes

HERE = Path(__file__).parent


def main() -> None:
    set_threads(1)
    curves = pd.read_csv(data_dir() / "results" / "quickstart" / "curves.csv")
    learning_curves(curves).write_image(HERE / "quickstart_curves.png", width=760, height=380, scale=2)
    env = make_env(demo.ENV)
    task, before, after = demo.before_and_after(env, demo.learn(demo.METHOD, seed=0, steps=demo.STEPS).team)
    figure = mazes(env, task, {"before": before, "after": after})
    figure.write_image(HERE / "quickstart_maze.png", width=700, height=380, scale=2)


if __name__ == "__main__":
    main()
