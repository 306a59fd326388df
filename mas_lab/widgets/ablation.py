"""AblationBoard: compare recipes over seeds, with every run as a dot and with confidence intervals.

The board also says what these runs cannot show. This module leaves out reading and scoring the runs (`study.entries`,
`study.budget`), comparing them (`study.comparison`) and the figures (`board`).
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from plotly.graph_objects import Figure

from mas_lab.study import comparison
from mas_lab.study.budget import run_scores
from mas_lab.study.entries import Entry, entries
from mas_lab.study.equality import equality, not_equal
from mas_lab.widgets.board import PANEL, SIDE, board_figure, curve_figure, many, profile_figure
from mas_lab.widgets.document import FIGURES, beside, document, escape, figure_html, folded, table_html, write


class AblationBoard:
    """Compare recipes over paired seeds: final score and area under the learning curve.

    Each recipe gets its interquartile mean (IQM), from five seeds on with a 95 % bootstrap interval. Differences to the
    baseline are taken seed by seed. Scores count up to a common budget: the least that any run of the env reached.

    A notebook shows the board as it is. Use `.figure()`, `.to_html(path)`, and the tables `.table`, `.runs`, `.pairs`,
    `.differences`, `.improvements` and `.equality`. `.cautions` lists in sentences what these runs cannot show. With
    several tasks there are also `.profile_figure()`, `.profiles` and `.envs`.

    Args:
        x: The runs to compare. Pass a folder of runs or of exported zips, one run, or a list of either. Also accepted
            are `{label: runs}`, a `lab.study`, its folder or that of its record, and a table of curves. A table has the
            columns `recipe`, `seed`, `step` or `tokens`, and scores. A folder of runs must contain nothing else.
        score: Name of the score, "success" or "return". `None` takes the score that a study names, else "success".
        over: Unit of the common budget: "tokens" (sampled tokens) or "step". For a study it may also be the quantity
            that all arms were given equally. `None` takes the unit that a study names, else "tokens".
        held_out: True compares scores of held-out tasks, False scores of training episodes. `None` takes held-out tasks
            if every run kept such scores (`train(..., score_every=10)`, or `keep_scores`).
        baseline: The recipe that the others are compared with. `None` takes the first recipe.

    Raises:
        ValueError: If every run failed, or if `baseline` is not one of the recipes.
        RunError: If a folder contains something other than runs, or a run cannot be read. The message names it.
        TableError: If a run or a table lacks the scores that are compared.
        TypeError: If `x` is none of the above.
    """

    def __init__(
        self,
        x: Any,
        score: str | None = None,
        over: str | None = None,
        held_out: bool | None = None,
        baseline: str | None = None,
    ):
        found = entries(x)
        score, over = score or _common(found, "score", "success"), over or _common(found, "over", "tokens")
        recipes = list(dict.fromkeys(entry.recipe for entry in found))
        everything, found = found, [entry for entry in found if not entry.error]
        if not found:
            raise ValueError(f"AblationBoard: every run failed; the first: {everything[0].file}: {everything[0].error}")
        self.held_out = all(len(entry.held_out) for entry in found) if held_out is None else held_out
        self.score, self.over, self.baseline = score, over, recipes[0] if baseline is None else baseline
        if self.baseline not in recipes:
            raise ValueError(f"AblationBoard: baseline={baseline!r} is none of the recipes: {', '.join(recipes)}")
        self.runs = run_scores(found, score, over, self.held_out, LAST)
        """One row per run: `start`, `final` and `area` within the `budget`, see `budget.run_scores`."""
        self._curves = pd.concat(
            [(entry.held_out if self.held_out else entry.curve)[[self.over, self.score]].assign(
                env=entry.env, recipe=entry.recipe, seed=number) for number, entry in enumerate(found)]
        )  # fmt: skip
        self.table = comparison.compared(comparison.on_common_seeds(self.runs))
        """One row per env and recipe, see `comparison.compared`. `failed` counts its failed runs, if any run failed."""
        if failed := Counter((entry.env, entry.recipe) for entry in everything if entry.error):
            self.table["failed"] = [failed[row.env, row.recipe] for row in self.table.itertuples()]
        self.pairs = comparison.paired(self.runs, self.baseline)
        """One row per recipe and seed that also ran under the baseline: the differences of the scores."""
        self.differences = comparison.compared_pairs(self.pairs)
        """One row per env and recipe: the mean or IQM of those differences, with its interval, see `compared_pairs`."""
        self.improvements = comparison.improvements(self.runs, self.baseline)
        """One row per env and recipe: the probability that a run of it is better than a run of the baseline."""
        several = self.runs["env"].nunique() > 1
        self.envs = comparison.over_envs(comparison.on_common_seeds(self.runs)) if several else None
        """One row per recipe over all envs; each env is a stratum of the bootstrap. `None` for a single env."""
        self.profiles = comparison.profiles(comparison.on_common_seeds(self.runs)) if several else None
        """Share of each recipe's runs above each final score, see `comparison.profiles`. `None` for a single env."""
        self.equality = equality(found, self.runs, over, self.held_out)
        """Settings that were equal between these runs, that differed, or that are unknown, see `study.equality`."""
        self.not_equal = not_equal(self.equality)
        """Sentences that describe the differences."""
        self.cautions = [*comparison.cautions(everything, self.runs, self.pairs, self.baseline), *self.not_equal]
        """Sentences on what these runs cannot show, with those of `not_equal`."""
        self._of_runs = any(entry.config for entry in found)
        if not self.held_out and self._of_runs:
            self.cautions.append(TRAINING.format(sum(len(entry.held_out) > 0 for entry in found), len(found)))

    def __repr__(self) -> str:
        return f"AblationBoard({self.counted()})"

    def counted(self) -> str:
        """Count the runs and seeds, and name the budget at which they are compared.

        Returns:
            One line of text.
        """
        parts = []
        for env, own in self.table.groupby("env", sort=False):
            cells = (f"{row.recipe} {many(row.runs, 'run')} of {many(row.seeds, 'seed')}" for row in own.itertuples())
            parts.append((f"{env}: " if len(own) < len(self.table) else "") + "; ".join(cells))
        budgets = ", ".join(f"{budget:,.0f}" for budget in self.runs["budget"].unique())
        return f"{self.score} on {self._whose}, up to {budgets} {self._unit}. {'. '.join(parts)}"

    @property
    def _unit(self) -> str:
        return {"tokens": "sampled tokens", "step": "steps"}.get(self.over, self.over.replace("_", " "))

    @property
    def _whose(self) -> str:
        return "held-out tasks" if self.held_out else "training episodes" if self._of_runs else "the curves given"

    def _counts(self) -> str:
        """Return HTML: what was compared, with a row per task."""
        table = self.table.assign(cell=[
            f"{row.start:.2f}\N{NO-BREAK SPACE}→\N{NO-BREAK SPACE}{row.final:.2f}\n{many(row.seeds, 'seed')}"
            + f", {row.runs} runs" * (row.runs != row.seeds) for row in self.table.itertuples()
        ])  # fmt: skip
        wide = table.pivot(index="env", columns="recipe", values="cell").fillna("–")
        wide = wide.loc[list(dict.fromkeys(table["env"])), list(dict.fromkeys(table["recipe"]))]
        budget = self.runs.groupby("env")["budget"].first().map("{:,.0f}".format)
        wide.insert(0, self.over.replace("_", " "), budget)
        caption = f"{self.score} on {self._whose}: budget, and from the start to the end"
        return table_html(wide.rename_axis("task").reset_index(), caption)

    def figure(self) -> Figure:
        """Draw every run as a dot, with the IQM and interval of each recipe.

        Returns:
            Plotly figure with one row per env: the final scores, and beside them their differences by seed.
        """
        return board_figure(self.runs, self.table, self.pairs, self.differences, self.score, self.baseline)

    def profile_figure(self) -> Figure:
        """Draw a performance profile of each recipe over several tasks.

        Returns:
            Plotly figure with the share of each recipe's runs above each final score, see `comparison.profiles`.

        Raises:
            ValueError: If there is only one task, or if no recipe was run on every task.
        """
        if self.profiles is None or self.profiles.empty:
            raise ValueError("AblationBoard: a performance profile is of several tasks, and of recipes run on each")
        return profile_figure(self.profiles, self.score, list(dict.fromkeys(self.runs["recipe"])))

    def _figures(self) -> list[tuple[Figure, str, pd.DataFrame, int]]:
        """Return each figure with a sentence that describes it, its numbers and its minimum width."""
        wide = SIDE + PANEL * (1 if self.pairs.empty else 2)
        drawn = [(self.figure(), BOARD.format(self.score), self.runs, wide)]
        if self._curves["seed"].value_counts().max() > 2 and (self.held_out or not self._of_runs):
            curves, least = curve_figure(self._curves, self.over, self.score, self._unit), 560 * (self.envs is not None)
            drawn.append((curves, CURVES.format(self.score.capitalize()), self._curves, least))
        if self.profiles is not None and len(self.profiles):
            drawn.append((self.profile_figure(), PROFILES.format(self.score), self.profiles, 0))
        return drawn

    def _below(self) -> str:
        """Return HTML: what was not equal, what these runs cannot show, all tables, and how the numbers are made."""
        others = [caution for caution in self.cautions if caution not in self.not_equal]
        settings = table_html(self.equality, "Settings that were equal, not equal or unknown")
        parts = [_listed("What was not equal", self.not_equal), _listed("What these runs cannot show", others),
                 folded("Settings that were equal, and that were not", settings)]  # fmt: skip
        tables = {
            "Recipes over their runs": self.table, f"Differences to {self.baseline} by seed": self.differences,
            IMPROVED.format(self.baseline): self.improvements,
            "Over all tasks, each a stratum of the bootstrap": self.envs,
        }  # fmt: skip
        for caption, table in tables.items():
            if table is not None and len(table):
                parts.append(folded(escape(caption), table_html(table.loc[:, (table != "").any()], caption)))
        return "".join([*parts, folded("How the numbers are made", NOTE)])

    def to_html(self, path: str | Path) -> Path:
        """Write one standalone HTML file that works offline.

        Args:
            path: The file to write. Missing parent folders are created.

        Returns:
            The path of the file.
        """
        parts = [self._counts(), *(figure_html(*one) for one in self._figures()), self._below()]
        return write(path, document("Recipes side by side", "".join(parts), scripts=FIGURES))

    def _ipython_display_(self) -> None:
        from IPython.display import HTML, display

        display(HTML(beside(self._counts())))
        for figure, *_ in self._figures():
            display(figure)
        display(HTML(beside(self._below())))


def _common(found: Sequence[Entry], name: str, usual: str) -> str:
    """Return the value of `name` that all entries share, or `usual` if they differ."""
    values = {getattr(entry, name) for entry in found}
    return values.pop() if len(values) == 1 else usual


def _listed(heading: str, lines: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<h2>{heading}</h2><ul>{items}</ul>" if items else ""


LAST = 0.1
"""Share of the budget whose mean score is the final score of a run."""
BOARD = (
    "Final {} of every run, per task and recipe, and beside it the differences by seed. A dot is a run. "
    f"From {comparison.FEW} seeds on, a diamond is the interquartile mean (IQM) with its 95 % interval. "
    "Below ten pairs, the diamond of the differences is their mean."
)
CURVES = "{} of every run over its training, a thin line with a dot per score, and the mean of each recipe's runs."
NOTE = (
    "<p>The interquartile mean (IQM) is the mean of the middle half of a recipe's runs. Of fewer than four runs it is "
    "their mean. Intervals are percentile bootstrap intervals over runs (Agarwal et al. 2021). Below ten pairs, the "
    "difference is their mean with the interval of a paired t test. From ten pairs on it is an IQM with a bootstrap "
    "interval.</p><p><b>won</b> is the share of decided pairs with a higher final score, with its exact interval. "
    "<b>p</b> is from a paired t test. <b>p_holm</b> is adjusted for the number of comparisons in the table (Holm). "
    "Runs count up to the budget that all of them reached.</p>"
)
IMPROVED = (
    "Probability of improvement: how often a run of a recipe is better than a run of {} on the same task, "
    "ties counted half"
)
PROFILES = (
    "Performance profiles over all tasks: the share of a recipe's runs whose final {} lies above each height, averaged "
    "over tasks. From five seeds on it has a 95 % band at each height. Only recipes that ran on every task are shown."
)
TRAINING = (
    "These are scores of training episodes. Under tree() the best of K candidates moves each episode on, so the team "
    "looks better than it is. Compare only recipes with the same plan, or keep held-out scores, as train(..., "
    "score_every=10) does ({} of these {} runs have some)."
)
