# %% [markdown]
# # The study and the board: is it better, or was it luck?
#
# *Level: you have trained teams in the notebooks before; of statistics, mean and standard deviation. Reading: 25 minutes. Compute: about 2 minutes on two CPU cores.*
#
# Two curves lie apart. Is one method better? Or was it the seed, the learning rate, or that one team sampled more? Afterwards you can
#
# - make an interquartile mean and its bootstrap interval by hand, and say why three runs have none;
# - say what a comparison holds equal, and what it does not;
# - make a study with `lab.study`, read it with `lab.AblationBoard`, and compare the runs of a whole class.

# %% tags=["install"]

# %% tags=["parameters"]
SMOKE = False  # True: a few steps only, to see that everything runs

# %%
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import mas_lab as lab
from mas_lab.paths import data_dir
from mas_lab.study.intervals import bootstrap_interval, iqm, probability_of_improvement
from mas_lab.study.record import Recorded

STUDIES = data_dir() / "results" / "studies"
ladder = Recorded(STUDIES / "ladder")

# %% [markdown]
# ## Five numbers
#
# Eight agents climb a ladder, each with weights of its own; `global` judges all of them by one mean, `own` each by its own. Success on held-out ladders after 30 steps, of the first five seeds of a recorded study:
#
# | seed | 0 | 1 | 2 | 3 | 4 |
# |---|---|---|---|---|---|
# | `global` | 0.01 | 0.09 | 0.00 | 0.49 | 0.04 |
# | `own` | 0.46 | 0.41 | 0.00 | 0.59 | 0.36 |
#
# Whoever ran seed 2 alone reports that both fail. Whoever ran seed 3 alone reports that both work. One run answers nothing.
#
# *By hand.* What is the middle of `own`? Its mean is 0.36, pulled down by one bad seed. The **interquartile mean** (IQM) drops the lowest and the highest quarter, of five numbers one on either side, and takes the mean of the rest: (0.36 + 0.41 + 0.46) / 3 = 0.41. With $x_{(1)} \le \dots \le x_{(n)}$ the sorted scores of n runs (Agarwal et al., arXiv 2108.13264, section 4.3),
#
# $$\mathrm{IQM}(x) = \frac{1}{n - 2c} \sum_{i = c + 1}^{n - c} x_{(i)}, \qquad c = \lfloor n / 4 \rfloor .$$
#
# How far could it lie from what a thousand seeds would give? The **bootstrap** asks the five numbers themselves: draw five of them *with replacement*, say 0.41, 0.41, 0.00, 0.59, 0.46, and take the IQM of these: 0.43. Do it 5,000 times. The middle 95 % of what comes is the interval.

# %% [markdown]
# *Predict:* note an interval in which you would bet, 19 to 1, that the middle of a thousand seeds of `own` lies.

# %%
own, other = np.array([0.46, 0.41, 0.00, 0.59, 0.36]), np.array([0.01, 0.09, 0.00, 0.49, 0.04])
drawn = iqm(np.random.default_rng(0).choice(own, size=(5000, 5)))
print(f"IQM of own {iqm(own):.2f}; of its draws, the quantiles:")
pd.Series(drawn).quantile([0.025, 0.25, 0.5, 0.75, 0.975]).round(2).to_frame("IQM of a draw").T

# %% [markdown]
# *Explain:* the first and the last column are the ends of the 95 % interval: 0.12 to 0.53. That is wide, and honest: one draw in four holds the 0.00 twice or more, and the IQM drops it only once. Five runs tell that `own` learns; they do not tell whether it reaches 0.2 or 0.5.
#
# **12.1** Write it as a function: `scores` is an array, `samples` how many draws, `rng` a NumPy generator; return `(low, high)`.


# %%
def interval(scores, samples, rng):
    """The middle 95 % of the IQMs of `samples` draws."""
    ### BEGIN SOLUTION
    drawn = rng.choice(scores, size=(samples, len(scores)))
    return tuple(np.quantile(iqm(drawn), [0.025, 0.975]))
    ### END SOLUTION


lab.course.check("12.1", interval)

# %% [markdown]
# ## Why three runs have no interval
#
# The recipe works on three numbers just as well. But does it keep its word? An interval that says 95 % should hold the truth in 95 of 100 studies. Here is a world in which we know the truth: scores are normal around 0.

# %% [markdown]
# *Predict:* of 100 studies of three runs each, how many have an interval that holds the truth? Of five, of ten?


# %%
def holds_the_truth(runs, studies=100 if SMOKE else 2000):
    """In which share of studies of so many runs the interval holds 0, the true middle."""
    scores = np.random.default_rng(runs).normal(size=(studies, runs))
    ends = [bootstrap_interval([one], samples=2000) for one in scores]
    return np.mean([low <= 0 <= high for low, high in ends])


pd.Series({runs: holds_the_truth(runs) for runs in (3, 5, 10)}).round(2).rename_axis("runs").to_frame("holds the truth")

# %% [markdown]
# *Explain:* about 0.76, 0.91 and 0.94 where 0.95 was promised. The reason fits in a line. Draws from three numbers never leave the span of the three; and that all three lie on the *same side* of the truth happens in 2 · (1/2)³ = 1/4 of all studies. With five runs it is 1/16, with ten 1/512.
#
# That is why the board shows **dots below five seeds, and no interval**: an interval would look like knowledge. For the same reason three differences of one sign are no result: they come by chance once in four times.

# %% [markdown]
# ## Pairs
#
# Under one seed all arms of a study meet the same training tasks, the same held-out tasks and the same draws, and here the same first weights. So compare seed by seed:
#
# | seed | 0 | 1 | 2 | 3 | 4 |
# |---|---|---|---|---|---|
# | `own` minus `global` | +0.45 | +0.32 | 0.00 | +0.10 | +0.32 |
#
# *By hand:* the IQM of the differences is (0.10 + 0.32 + 0.32) / 3 = 0.25. It is not the difference of the two IQMs, 0.41 − 0.05: the first asks what a change does to a team, the second compares two crowds.
#
# The study has ten seeds. `AblationBoard` takes a study, the folder of a recorded one, runs or a table of curves. Its columns: `recipe` is the arm; `final` the IQM of its final scores, `final_low` and `final_high` the 95 % interval; `seeds` and `pairs` how many.

# %% [markdown]
# *Predict:* with ten seeds, will the intervals of `global` and `own` overlap? And will the interval of their differences hold 0?


# %%
def board_of(study, tasks, arms=("global", "own"), **asked):
    """The board of some tasks and arms of recorded studies."""
    curves = study.curves.query("task in @tasks and arm in @arms").rename(columns={"task": "env", "arm": "recipe"})
    return lab.AblationBoard(curves, **{"over": study.held_equal, **asked})


board = board_of(ladder, ["8 agents"])
board.table[["recipe", "seeds", "final", "final_low", "final_high"]].round(2)

# %%
board.differences[["recipe", "pairs", "higher", "lower", "final", "final_low", "final_high"]].round(2)

# %% [markdown]
# *Explain:* (below ten pairs the board takes their mean, with the interval of a paired t test, which keeps its word at five.) The arms' intervals overlap, 0.00 to 0.12 and 0.07 to 0.52, and the paired difference is still sure: +0.20, 95 % interval +0.03 to +0.40; nine seeds higher, none lower. Seeds differ far more than arms do (four of the ten sets of first weights hardly learn under either). A pair takes that out. Overlapping intervals of arms say nothing about a paired difference.
#
# (Two small things about these numbers: `final` is the mean of the last tenth of the budget, so a seed may differ by 0.03 from the table above; and an IQM of ten drops two on either side.)
#
# **How often is a run better?** The probability of improvement lets every run of X meet every run of Y (section 4.3 of the same paper; it is the statistic of Mann and Whitney over its number of pairs):
#
# $$P(X > Y) = \frac{1}{N M} \sum_{i=1}^{N} \sum_{j=1}^{M} \left( \big[x_i > y_j\big] + \tfrac12 \big[x_i = y_j\big] \right) .$$
#
# *By hand,* `own` against `global`: its 0.46 beats four of five, 0.41 four, 0.00 none and ties with one, 0.59 all five, 0.36 four. Together (4 + 4 + ½ + 5 + 4) / 25 = 0.70.
#
# **12.2** Write it for arrays `x` and `y`, which may have unequal lengths.


# %%
def better(x, y):
    """P(X > Y), ties counted half."""
    ### BEGIN SOLUTION
    return ((x[:, None] > y) + (x[:, None] == y) / 2).mean()
    ### END SOLUTION


lab.course.check("12.2", better)
print(f"the kit says {probability_of_improvement([own], [other]):.2f} of the five, and of all ten:")
board.improvements[["recipe", "final", "final_low", "final_high"]].round(2)

# %% [markdown]
# *Explain:* 0.71, 95 % interval 0.46 to 0.92: it holds one half. This number knows of no pairs: a weak seed of `own` loses to a strong one of `global`. It answers "I draw a seed, you draw another, who is better?", the paired difference answers "what would it do for *my* team?". Say which one you report.
#
# **All runs at once.** A performance profile is the share of runs that scored above τ, for every τ, the mean over tasks m with N_m runs each (section 4.2):
#
# $$\hat F(\tau) = \frac1M \sum_{m=1}^{M} \frac{1}{N_m} \sum_{n=1}^{N_m} \big[x_{mn} > \tau\big] .$$
#
# Of our five, four of `own` lie above 0.3 and one of `global`. Below: ten seeds on two tasks, the ladder and `paid_help` at a pay of 0.2.

# %%
helped = Recorded(STUDIES / "paid_help")
curves = pd.concat([ladder.curves.query("task == '8 agents'"), helped.curves.query("task == 'pay 0.2'")])
both = curves[curves["arm"].isin(["global", "own"])].rename(columns={"task": "env", "arm": "recipe"})
lab.AblationBoard(both, over="episodes").profile_figure()

# %% [markdown]
# A curve that lies above the other everywhere is better at every height, not only in the middle; the area between two curves is the difference of their means. A band is 95 % at one height, not at all of them at once.

# %% [markdown]
# ## Equal what?
#
# In the maze, three arms: `grpo` on the team's return; the same with each row's own reward; and AT-GRPO's tree, told the outcome alone. The recorded study gave each of them 60,000 sampled tokens. What else did they spend? (`episodes`, `optimizer_steps`, and `seconds` of processor time: medians of ten seeds.)

# %%
maze, arms = Recorded(STUDIES / "at_grpo"), ["team return", "own reward", "tree, outcome only"]
spent = maze.table.query("task == 'maze' and phase == 'compare' and arm in @arms")
spent.groupby("arm", sort=False)[["tokens", "episodes", "optimizer_steps", "seconds"]].median().round(0)

# %% [markdown]
# *Predict:* read the same runs at equal tokens, at equal episodes, and at equal optimizer steps. By how much is each arm better than `team return`, each time?

# %%
read = [
    board_of(maze, ["maze"], arms, over=over, baseline="team return").differences.assign(equal=over)
    for over in ("tokens", "episodes", "optimizer_steps")
]
read = pd.concat(read)[["equal", "recipe", "final", "final_low", "final_high"]].round(2)
read.sort_values("recipe", kind="stable").reset_index(drop=True)

# %% [markdown]
# *Explain:* the same runs. `own reward` is better whatever is held equal. The tree with the outcome alone gains +0.09 at equal tokens, +0.26 at equal episodes, and +0.02, an interval that holds 0, at equal optimizer steps. It plays few episodes, samples K candidates in each, and makes more optimizer steps of them. None of the three is *the* fair one:
#
# - **episodes**, where the environment is what costs (people, robots, a slow simulator);
# - **sampled tokens**, where sampling costs, as with language models;
# - **optimizer steps**, where you ask what one step is worth.
#
# "Fair" is a sentence that names one of them and reports the others. `lab.study` prints them all. (Read off at another budget than the one a run ended at, a curve is joined by straight lines between scores: `board.cautions` says how far that reaches.)
#
# **12.3** A made-up report of two runs. Which rows, by name, went in unequally and could make B look better by themselves? Leave out what is compared, and what came out.
#
# | | run A | run B |
# |---|---|---|
# | recipe | grpo | dr_mas |
# | task | ladder of 8 | ladder of 8 |
# | seeds | 0 to 4 | 0 to 4 |
# | first weights | one set a seed | one set a seed |
# | rates tried | 1 | 5 |
# | episodes | 3,840 | 3,840 |
# | optimizer steps | 30 | 30 |
# | sampled tokens | 79,100 | 105,300 |
# | held-out tasks | 64, by the seed | 64, by the seed |
# | score | after the last step | best of 6 on the way |
# | processor seconds | 14.7 | 17.2 |
# | success | 0.12 | 0.41 |

# %%
### BEGIN SOLUTION
unequal = {"rates tried", "sampled tokens", "score"}
### STARTER
# unequal = {...}
### END SOLUTION
lab.course.check("12.3", unequal)

# %% [markdown]
# ## The best rate of each arm
#
# A learning rate suits one arm better than another. A study that fixes one rate compares "A at B's rate" with B. So each arm takes the best of the same rates, by one rule that is stated before: the highest mean over seeds that the comparison does *not* use. `rates` keeps all that was tried: `mean` over the sweep's seeds, which was `chosen`, and `edge` where the best is the first or the last tried, so that a better one may lie beyond.

# %%
tried = pd.concat([ladder.rates.query("task == '8 agents'"), helped.rates.query("task == 'pay 0.2'")])
tried = tried[tried["arm"].isin(["global", "own"])]
tried.pivot(index=["task", "arm"], columns="lr", values="mean").round(2)

# %% [markdown]
# *Predict:* a paper ran both arms of `paid_help` at 3e-4, another both at 1e-3. What difference does either report, and what difference is left when each arm has its best rate?

# %%
paid = tried[tried["task"] == "pay 0.2"].pivot(index="lr", columns="arm", values="mean")
best = tried[(tried["task"] == "pay 0.2") & tried["chosen"]].set_index("arm")["mean"]
print((paid["own"] - paid["global"]).rename("own minus global").round(2).to_string())
print(f"each at its best: {best['own'] - best['global']:+.2f}")

# %% [markdown]
# *Explain:* +0.16 at 3e-4, +0.38 at 1e-3 (there the global arm *unlearns*: 0.50 from 0.71), and +0.08 with each at its best; over ten fresh seeds it is +0.06. A fixed rate can show you any difference you like, and on the ladder at 1e-3 it shows none at all: both are at 0.00. What is chosen as the best of several is partly lucky: that is why the comparison runs on other seeds, and comes out lower.

# %% [markdown]
# ## Looking again and again
#
# Two arms are *equal*. You compare after five pairs; nothing. You run a sixth, a seventh, and stop as soon as the interval leaves 0, at 20 pairs at the latest.

# %% [markdown]
# *Predict:* how often do you "find" a difference that is not there?


# %%
def looks(rng, first=5, last=20):
    """After each pair from `first` on: does the interval of the differences leave out 0, the truth?"""
    gains = rng.normal(size=last)
    ends = [bootstrap_interval([gains[:pairs]], samples=300) for pairs in range(first, last + 1)]
    return [low > 0 or high < 0 for low, high in ends]


rng = np.random.default_rng(0)
found = np.array([looks(rng) for _ in range(20 if SMOKE else 500)])
print(f"one look, at 20 pairs: {found[:, -1].mean():.2f}    a look after every pair: {found.any(axis=1).mean():.2f}")

# %% [markdown]
# *Explain:* about one in fifteen with one look, about three in ten with sixteen. Each look is another ticket in the same lottery; so is each further arm, task, or metric. Say the number of seeds before you start. If you look early, say how often. `lab.study` makes what is missing when you raise `seeds`, which makes peeking easy; it cannot make it honest.

# %% [markdown]
# ## A study of your own
#
# Arms on tasks over seeds, as plain data: a dict here, or a YAML file for `python -m mas_lab study FILE` (this one is `benchmarks/studies/first_study.yaml`). `budget` is what all arms get equally much of; `differ` names the only options in which they may differ: anything else is refused by name. Below: six agents, 15 steps, three seeds, two arms, so six trainings, one a core at a time, each in a process of its own.

# %%
design = {
    "name": "first_study",
    "env": {"name": "ladder", "n_agents": 2 if SMOKE else 6},
    "team": {"weights": "per_agent", "lr": 3e-4},
    "settings": {"tasks": 4 if SMOKE else 16, "score_tasks": 8 if SMOKE else 64, "score_episodes": 4},
    "budget": {"episodes": 32 if SMOKE else 1920},
    "seeds": 2 if SMOKE else 3,
    "differ": ["recipe.by", "recipe.once_per"],
    "arms": {"global": {"recipe": "grpo"}, "own": {"recipe": "dr_mas"}},
}
folder = Path(tempfile.mkdtemp())  # leave it out, and a stopped study goes on where it stood: runs/first_study

# %% [markdown]
# *Predict:* what will three seeds let you say, if all three differences have one sign?

# %%
study = lab.study(design, folder / "study")
print(study)

# %% [markdown]
# The second line is the one to read first: what was held equal, what the rest came to, and in what the arms differ. Here `own` sampled more tokens in as many episodes: who gets further up the ladder speaks more. `study.table` has a row per training: what it spent, success at the `start` and the `final` one.

# %%
study.table[["arm", "seed", "tokens", "optimizer_steps", "start", "final"]].round(2)

# %%
lab.AblationBoard(study)

# %% [markdown]
# *Explain:* as recorded (`data/results/studies/first_study`; yours may differ in a digit), from 0.00 to 0.02, `global` comes to 0.24, 0.06 and 0.07, `own` to 0.47, 0.53 and 0.52. All three differences lie on one side, and large. Still dots, and no interval: that happens by chance once in four times, and all runs start from the same shipped weights, so that even their spread is too narrow. Half of the steps is also why nobody is near 1: six stages at 0.9 each make 0.53. What would you do next? More seeds with first weights of their own, a sweep of rates: that is `benchmarks/studies/ladder.yaml`. (A run can also be forked in its midst, `lab.train(..., fork=run)` with one setting changed. That answers "what if from here on?", and is no second seed.)

# %% [markdown]
# ## Where an own baseline does not help
#
# Four recorded comparisons of the same two arms: the ladder of eight with weights of their own, and with one set for all; `math` with a fixer that is called only after a rejection; `search`, where a verifier calls two others.

# %% [markdown]
# *Predict:* in which of the four does an own baseline help?

# %%
asked = {"ladder": ["8 agents", "8 agents, one set of weights"], "math": ["with a fixer"], "search": ["search"]}
boards = [board_of(Recorded(STUDIES / name), tasks) for name, tasks in asked.items()]
differences = pd.concat([board.differences for board in boards])
differences[["env", "pairs", "higher", "lower", "final", "final_low", "final_high"]].round(2)

# %% [markdown]
# *Explain:* in the first alone. With one set of weights for all stages three seeds differ by +0.04 in the mean, dots that lie on one side; `math` and `search` are not told from 0 by ten and five seeds. The condition is *separate weights, called rarely, on a condition that shifts the rewards*. A negative result with its interval says how large an effect could still hide: on `math` at most 0.03.
#
# **Which half is it, the mean or the scale?** An ablation changes one part at a time. With m the mean and s the deviation in $A = (R - m)/s$, the ladder of eight has all four cells: (μ, σ) is `global`, (μ_k, σ) `own mean`, (μ, σ_k) `own scale`, (μ_k, σ_k) `own`.

# %%
cells = ["global", "own mean", "own scale", "own"]
ablation = board_of(ladder, ["8 agents"], cells)
ablation.differences[["recipe", "higher", "lower", "final", "final_low", "final_high"]].round(2)

# %% [markdown]
# *Explain:* the arm "own mean" gains as much as both together (+0.20), "own scale" two thirds (+0.13); with flat groups lent everybody's scale it gains +0.02, not told from nothing. Dr. MAS (arXiv 2602.08847) reports the scale as the better half. But an ablation shows the effect of what it changes, and these arms change a third thing: under every own mean or scale a row without a peer (a lone or flat group) gets advantage 0, and under `global` it is trained on. **A control was missing.** The study `baselines` has it: `grpo_masked` is `grpo` without these rows (ten seeds, first weights and sweeps of its own).

# %% [markdown]
# *Predict:* `dr_mas` beats `grpo` there. What will be left of the difference if you compare it with `grpo_masked`?

# %%
control = board_of(Recorded(STUDIES / "baselines"), ["ladder of 8"], ["grpo", "grpo_masked", "dr_mas"])
control.differences[["recipe", "higher", "lower", "won", "final", "final_low", "final_high", "p_holm"]].round(3)

# %% [markdown]
# *Explain:* (`won`: `higher` as a share of the pairs that differ; `p_holm`: of a paired t test, adjusted for the rows of this table.) `grpo_masked` gains +0.12 of the +0.19 of `dr_mas`. An earlier version of this page said that the mean does all of it. The numbers were right; the sentence was wrong, because the arm that could refute it had not been run. Look for the control that would explain your effect away, and run it before you claim anything.

# %% [markdown]
# ## Handing in, and a board over a class
#
# `lab.export` (or `python -m mas_lab export RUN ZIP`) makes one zip of a run: its tables and what it was asked for, no weights. A teacher puts the zips of a class into one folder. `AblationBoard(folder)` compares them as they are. `lab.study(..., sources=[folder])` is stricter: a run counts only if it was asked for just what a cell of the design asks for and made by the same code; whatever does not belong stands in `apart`, with the reason. Here the teacher's design asks for one seed less than the class handed in. (With a folder for each student, notebooks and zips in it, `python notebooks/tools grade FOLDER`, in a checkout, writes one page: exercises, runs, the board.)

# %%
zips = folder / "class"
zips.mkdir()
for run in study.table.itertuples():
    lab.export(run.run, zips / f"{run.arm}-{run.seed}.zip")
teacher = lab.study(design | {"seeds": design["seeds"] - 1}, folder / "teacher", sources=[zips], play=False)
print(teacher)
print(lab.AblationBoard(zips))

# %% [markdown]
# ## Your turn: a design
#
# **12.4** A question: *on a ladder of four agents, each with weights of its own, does an agent's own scale add anything once it has its own mean?* Write the study that answers it: at equal sampled tokens, each arm at the best of three learning rates or more (over two seeds or more, others than those compared), enough seeds for an interval. Nothing is trained; the check reads the plan.

# %%
### BEGIN SOLUTION
mine = {
    "name": "own_scale",
    "env": {"name": "ladder", "n_agents": 4},
    "team": {"weights": "per_agent"},
    "settings": {"tasks": 16},
    "budget": {"tokens": 60_000},
    "seeds": 5,
    "sweep": {"lr": [1e-4, 3e-4, 1e-3], "seeds": [10, 11]},
    "differ": ["recipe.center", "recipe.scale", "recipe.once_per"],
    "arms": {"own": {"recipe": "dr_mas"}, "own mean": {"recipe": "dr_mas_mean"}},
}
### STARTER
# mine = design | {"name": "own_scale"}  # <- change what must change, and name what is missing
### END SOLUTION
lab.course.check("12.4", mine)

# %% [markdown]
# `lab.study(mine)` would make it: 22 trainings, two to three minutes on two cores. Before you press the key, write down what you will say for each of the three ways it can come out.
#
# ## To remember
#
# - Seeds are pairs: compare seed by seed, say how many, dots below five, the number fixed before you look.
# - "Equal" needs a noun: tokens, episodes or optimizer steps; and each arm its best rate, chosen on other seeds.
# - What does not help, with its interval, is a result.
#
# Agarwal et al., *Deep RL at the edge of the statistical precipice*, [arXiv 2108.13264](https://arxiv.org/abs/2108.13264), sections 4.1 to 4.3; Henderson et al., *Deep RL that matters*, [arXiv 1709.06560](https://arxiv.org/abs/1709.06560); Dr. MAS, [arXiv 2602.08847](https://arxiv.org/abs/2602.08847).
#
# Next: `13_broken_on_purpose`.
