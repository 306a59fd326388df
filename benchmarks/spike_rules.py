"""Writes `data/results/spike_rules/`: which rule finds the tall gradient norms of a training, and which cries wolf.

    MAS_LAB_THREADS=1 .venv/bin/python benchmarks/spike_rules.py

It makes the trainings that `norms.csv` lacks, one after the other, about 20 s of processor time each, and keeps every
agent's gradient norm at each step. Then it compares rules on these norms, and on those of `data/results/ladder_spikes`
and `data/results/gradient_spikes`, which are older.

What a rule should find was fixed on the older norms, before the new trainings were made:

- A **true spike** is a norm above 5 times the median of all norms in its whole training. This looks at later steps too,
  so no rule that judges a step at once can use it.
- A **miss** is a true spike that the rule does not mark. A **false alarm** is a norm that it marks and that is none.
- A second measure takes for true what is tall for its agent: above 3 times the median of the agent's own norms.

The rule was chosen on the older norms, and the new ones test it. It marked one norm in twelve of a ladder under `grpo`,
too many to open. So now a norm must also be a **peak**, taller than all norms of the window. A rule of peaks is not
meant to find every true spike: it should mark few norms, and the tallest of a training (`marked`, `tallest`).

A rule knows only the norms before the one that it judges. Leaves out: what a spike is made of (`gradient_spikes.py`).
"""

import json
import math
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median

import pandas as pd

import mas_lab as lab

RESULTS = Path(__file__).resolve().parents[1] / "data" / "results"
OUT = RESULTS / "spike_rules"
KEY = ["env", "recipe", "seed"]
TALL, TALL_OWN = 5, 3
"""What makes a true spike, by the first and by the second measure."""


@dataclass(frozen=True)
class Form:
    """A training, without its recipe and seed."""

    env: str
    lr: float
    recipes: dict[str, int]
    """Number of seeds of each recipe."""
    shared: bool = False
    steps: int = 30
    tasks: int = 16


FORMS = (
    Form("ladder", 3e-4, {"grpo": 9, "dr_mas": 2, "own_robust": 2}),
    Form("math", 1e-4, {"grpo": 1, "dr_mas": 1}),
    Form("sudoku", 4e-4, {"grpo": 1, "at_grpo": 1}, shared=True),
)
FIRST_SEED = 3
"""The older norms are of seeds 0 to 2."""


@dataclass(frozen=True)
class Rule:
    """A norm is a spike if it is far above the median of the `window` norms before it, once there were `warmup`."""

    past: str
    """Whose norms came before: "own" of the agent, or those of the whole "team"."""
    unit: str
    """What `threshold` counts: "times" the median; or robust standard "deviations" of the logarithm, each 1.4826 times
    the median absolute deviation, and at least 0.05."""
    threshold: float
    warmup: int
    window: int = 50
    peak: bool = False
    """Whether a spike must be taller than all norms of the window."""

    def __str__(self) -> str:
        told = f"{self.threshold:g} {self.unit}, {self.past} past, warm-up {self.warmup}, window {self.window}"
        return f"{told}, peaks" if self.peak else told

    def marks(self, norms: pd.DataFrame) -> pd.Series:
        """Return which norms of one training are spikes; rows are in order of time."""
        before: dict[str, list[float]] = {}
        found = []
        for agent, norm in zip(norms["agent"], norms["norm"], strict=True):
            past = before.setdefault(agent if self.past == "own" else "", [])
            known, window = len(past) >= self.warmup, past[-self.window :]
            found.append(norm > 0 and known and self._is_far(window, norm) and (not self.peak or norm > max(window)))
            past += [norm] * (norm > 0)
        return pd.Series(found, index=norms.index)

    def _is_far(self, past: list[float], norm: float) -> bool:
        if self.unit == "times":
            return norm > self.threshold * median(past)
        logs = [math.log(one) for one in past]
        spread = max(1.4826 * median(abs(one - median(logs)) for one in logs), 0.05)
        return math.log(norm) - median(logs) > self.threshold * spread


RULES = (
    Rule("own", "deviations", 4, 10),  # the default until this comparison
    Rule("own", "deviations", 4, 2),
    Rule("own", "deviations", 2.5, 2),
    Rule("own", "times", 3, 10),
    Rule("own", "times", 3, 2),
    Rule("team", "deviations", 4, 4),
    Rule("team", "deviations", 2.5, 4),
    Rule("team", "times", 3, 4),
    Rule("team", "times", 4, 4),  # the default until peaks
    Rule("team", "times", 4, 4, peak=True),  # the default
    Rule("team", "times", 5, 4, peak=True),
    Rule("team", "times", 4, 4, 200, peak=True),
    Rule("team", "times", 5, 4),
    Rule("team", "times", 4, 16),
    Rule("team", "times", 4, 4, 200),
    Rule("team", "times", 8, 4),
)


def learn(form: Form, recipe: str, seed: int) -> pd.DataFrame:
    """Train, and return a row per step and agent with its norm before clipping."""
    env = lab.make_env(form.env)

    def load(agent: str = ""):
        return lab.load_policy(env.pocket, lr=form.lr)

    team = lab.Team.shared(load(), env.agents) if form.shared else lab.Team.per_agent(load, env.agents)
    reports = list(lab.train(env, team, recipe, form.steps, seed=seed, tasks=form.tasks))
    stats = pd.concat([report.stats.assign(step=report.step) for report in reports])
    named = {"env": form.env, "recipe": recipe, "seed": seed}
    return stats.rename(columns={"grad_norm": "norm"})[["step", "agent", "norm"]].assign(**named)


def made(path: Path) -> pd.DataFrame:
    """Return the norms of all trainings. Those that `path` lacks are made, and added to it one by one."""
    known = set(pd.read_csv(path)[KEY].itertuples(index=False, name=None)) if path.is_file() else set()
    for form in FORMS:
        for recipe, seeds in form.recipes.items():
            for seed in range(FIRST_SEED, FIRST_SEED + seeds):
                if (form.env, recipe, seed) not in known:
                    own = learn(form, recipe, seed)[[*KEY, "step", "agent", "norm"]]
                    own.to_csv(path, mode="a", header=not path.is_file(), index=False, float_format="%.4g")
                    print(f"{form.env} {recipe} {seed}: largest norm {own['norm'].max():.1f}", flush=True)
    return pd.read_csv(path)


def older() -> pd.DataFrame:
    """Return the norms of `gradient_spikes.py`: each run's under the baseline of its own recipe."""
    names = {"ladder_spikes": {"ladder": "ladder"}, "gradient_spikes": {"fixer": "math with a fixer", "pair": "math"}}
    parts = [pd.read_csv(RESULTS / name / "norms.csv").assign(env=lambda t, of=of: t["form"].map(of))
             for name, of in names.items()]  # fmt: skip
    norms = pd.concat(parts, ignore_index=True)
    own = norms["norm_global"].where(norms["recipe"] == "grpo", norms["norm_agent"])
    return norms.assign(norm=own)[[*KEY, "step", "agent", "norm"]]


def compare(norms: pd.DataFrame) -> pd.DataFrame:
    """Return for each rule, env and recipe: `trainings`, the norms `marked`, the trainings whose `tallest` norm is
    marked, true spikes, and how many are missed or falsely marked."""
    rows = []
    for (env, recipe, _), own in norms.groupby(KEY, sort=False):
        spoke = own[own["norm"] > 0]
        tall = own["norm"] > TALL * spoke["norm"].median()
        tall_own = own["norm"] > TALL_OWN * own["agent"].map(spoke.groupby("agent")["norm"].median())
        for rule in RULES:
            marks = rule.marks(own)
            rows.append({
                "env": env, "recipe": recipe, "rule": str(rule), "trainings": 1, "norms": len(spoke),
                "marked": marks.sum(), "tallest": bool(marks[own["norm"].idxmax()]),
                "true": tall.sum(), "missed": (tall & ~marks).sum(), "false": (marks & ~tall).sum(),
                "found nothing": bool(tall.any() and not (tall & marks).any()), "true, own": tall_own.sum(),
                "missed, own": (tall_own & ~marks).sum(), "false, own": (marks & ~tall_own).sum(),
            })  # fmt: skip
    return pd.DataFrame(rows).groupby(["rule", "env", "recipe"], sort=False).sum().reset_index()


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    tables = {"older": older(), "new": made(OUT / "norms.csv")}
    found = pd.concat([compare(norms).assign(norms_of=name) for name, norms in tables.items()], ignore_index=True)
    found.to_csv(OUT / "rules.csv", index=False)
    kinds = {True: "ladder, grpo", False: "calm"}
    is_ladder = (found["env"] == "ladder") & (found["recipe"] == "grpo")
    shown = found[found["env"] != "math with a fixer"].assign(kind=is_ladder.map(kinds))
    print(shown.groupby(["norms_of", "kind", "rule"], sort=False).sum(numeric_only=True).to_string())
    provenance = {
        "command": "MAS_LAB_THREADS=1 python benchmarks/spike_rules.py",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "settings": [asdict(form) for form in FORMS],
        "true_spike": {"times_the_median_of_all": TALL, "times_the_median_of_the_agent": TALL_OWN},
        "versions": {name: version(name) for name in ("torch", "transformers", "pandas")}
        | {"python": platform.python_version()},
    }
    (OUT / "provenance.json").write_text(json.dumps(provenance, indent=1) + "\n")


if __name__ == "__main__":
    main()
