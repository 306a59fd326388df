# %% [markdown]
# # The study and the board: is it better, or was it luck?
#
# *Level: you have trained teams in earlier notebooks, and know mean and standard deviation. Reading: 25 minutes. Compute: 1 to 2 minutes on two CPU cores.*
#
# Two curves differ. Is one method better? Or was it the seed, the learning rate, or the number of sampled tokens? Afterwards you can
#
# - compute an interquartile mean and its bootstrap interval by hand, and explain why three runs have no interval;
# - say what a comparison holds equal, and what it does not;
# - run a study with `lab.study`, read it with `lab.AblationBoard`, and compare the runs of a whole class.

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
# Eight agents climb a ladder, each with its own weights. `global` compares all of them with one mean, `own` compares each with its own mean. Here is the success on held-out ladders after 30 steps, for the first five seeds of a recorded study:
#
# | seed | 0 | 1 | 2 | 3 | 4 |
# |---|---|---|---|---|---|
# | `global` | 0.01 | 0.09 | 0.00 | 0.49 | 0.04 |
# | `own` | 0.46 | 0.41 | 0.00 | 0.59 | 0.36 |
#
# With seed 2 alone you would report that both fail. With seed 3 alone you would report that both work. One run answers nothing.
#
# *By hand.* What is the middle of `own`? Its mean is 0.36, pulled down by one bad seed. The **interquartile mean** (IQM) drops the lowest and the highest quarter, and takes the mean of the rest. Of five numbers it drops one on either side: (0.36 + 0.41 + 0.46) / 3 = 0.41. Let $x_{(1)} \le \dots \le x_{(n)}$ be the sorted scores of n runs. Then (Agarwal et al., arXiv 2108.13264, section 4.3)
#
# $$\mathrm{IQM}(x) = \frac{1}{n - 2c} \sum_{i = c + 1}^{n - c} x_{(i)}, \qquad c = \lfloor n / 4 \rfloor .$$
#
# How far could it be from the IQM of a thousand seeds? The **bootstrap** uses only the five numbers. Draw five of them *with replacement*, say 0.41, 0.41, 0.00, 0.59, 0.46, and take their IQM: 0.43. Do this 5,000 times. The middle 95 % of the results is the interval.

# %% [markdown]
# *Predict:* write down an interval that contains the IQM of a thousand seeds of `own`, so that you would bet on it 19 to 1.

# %%
own, other = np.array([0.46, 0.41, 0.00, 0.59, 0.36]), np.array([0.01, 0.09, 0.00, 0.49, 0.04])
drawn = iqm(np.random.default_rng(0).choice(own, size=(5000, 5)))
print(f"IQM of own {iqm(own):.2f}; of its draws, the quantiles:")
pd.Series(drawn).quantile([0.025, 0.25, 0.5, 0.75, 0.975]).round(2).to_frame("IQM of a draw").T

# %% [markdown]
# *Explain:* the first and the last column are the ends of the 95 % interval: 0.12 to 0.53. That is wide but honest. One draw in four contains the 0.00 twice or more, and the IQM drops it only once. Five runs show that `own` learns. They do not show whether it reaches 0.2 or 0.5.
#
# **12.1** (10 minutes, medium) Write it as a function. `scores` is an array, `samples` the number of draws, and `rng` a NumPy generator. Return `(low, high)`.


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
# The bootstrap works on three numbers as well. But does it keep its promise? A 95 % interval should contain the truth in 95 of 100 studies. Here is a world in which we know the truth: scores are normally distributed around 0.

# %% [markdown]
# *Predict:* of 100 studies with three runs each, how many have an interval that contains the truth? And with five runs, or ten?


# %%
def holds_the_truth(runs, studies=100 if SMOKE else 2000):
    """In which share of studies of so many runs the interval holds 0, the true middle."""
    scores = np.random.default_rng(runs).normal(size=(studies, runs))
    ends = [bootstrap_interval([one], samples=2000) for one in scores]
    return np.mean([low <= 0 <= high for low, high in ends])


pd.Series({runs: holds_the_truth(runs) for runs in (3, 5, 10)}).round(2).rename_axis("runs").to_frame("holds the truth")

# %% [markdown]
# *Explain:* about 0.75, 0.91 and 0.93, where 0.95 was promised. The reason is simple. Draws from three numbers never leave the range of the three. All three lie on the *same side* of the truth in 2 · (1/2)³ = 1/4 of all studies. With five runs it is 1/16, with ten 1/512.
#
# So the board shows **dots below five seeds, and no interval**. An interval would look like knowledge. For the same reason, three differences with the same sign are no result: chance produces them once in four times.

# %% [markdown]
# ## Pairs
#
# Under one seed all arms of a study have the same training tasks, held-out tasks and random draws. Here they also start from the same weights. So compare seed by seed:
#
# | seed | 0 | 1 | 2 | 3 | 4 |
# |---|---|---|---|---|---|
# | `own` minus `global` | +0.45 | +0.32 | 0.00 | +0.10 | +0.32 |
#
# *By hand:* the mean of the differences is (0.45 + 0.32 + 0.00 + 0.10 + 0.32) / 5 = 0.24. It is not the difference of the two IQMs, 0.41 − 0.05. The first says what a change does to a team, the second compares two populations.
#
# The study has ten seeds. `AblationBoard` takes a study, the folder of a recorded study, runs, or a table of curves. In its tables `recipe` is the arm, and `final` is the IQM of its final scores. `final_low` and `final_high` bound the 95 % interval. `seeds` and `pairs` are counts.

# %% [markdown]
# *Predict:* with ten seeds, will the intervals of `global` and `own` overlap? Will the interval of their differences contain 0?


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
# *Explain:* the arms' intervals overlap: 0.00 to 0.12 and 0.07 to 0.52. The paired difference is still clear: +0.23, 95 % interval +0.07 to +0.39, with nine seeds higher and none lower. Seeds differ far more than arms do. Four of the ten sets of first weights hardly learn under either arm. A pair removes this. So overlapping intervals of arms say nothing about a paired difference. (The board takes the mean of the pairs, with the interval of a paired t test, which keeps its promise at five.)
#
# (Two details: `final` is the mean of the last tenth of the budget, so a seed may differ by 0.03 from the table above. And an IQM of ten numbers drops two on either side.)
#
# **How often is a run better?** The probability of improvement compares every run of X with every run of Y. (See section 4.3 of the same paper; it is the Mann-Whitney statistic divided by the number of pairs.)
#
# $$P(X > Y) = \frac{1}{N M} \sum_{i=1}^{N} \sum_{j=1}^{M} \left( \big[x_i > y_j\big] + \tfrac12 \big[x_i = y_j\big] \right) .$$
#
# *By hand,* compare `own` with `global`. Its 0.46 beats four of five, and 0.41 beats four. 0.00 beats none and ties with one. 0.59 beats all five, and 0.36 beats four. Together this is (4 + 4 + ½ + 5 + 4) / 25 = 0.70.
#
# **12.2** (8 minutes, medium) Write it for arrays `x` and `y`, which may have different lengths.


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
# *Explain:* it is 0.71, and the 95 % interval, 0.46 to 0.92, contains one half. This number ignores pairs: a weak seed of `own` loses to a strong one of `global`. It answers "I draw a seed, you draw another: who is better?" The paired difference answers "what would it do for *my* team?" Say which one you report.
#
# **All runs at once.** The board shows ten seeds on two tasks: the ladder, and `paid_help` at a pay of 0.2. Every dot is a run.

# %%
helped = Recorded(STUDIES / "paid_help")
curves = pd.concat([ladder.curves.query("task == '8 agents'"), helped.curves.query("task == 'pay 0.2'")])
both = curves[curves["arm"].isin(["global", "own"])].rename(columns={"task": "env", "arm": "recipe"})
lab.AblationBoard(both, over="episodes").figure()

# %% [markdown]
# Look at the dots before you believe a mean: do the arms' runs overlap, and is one run far from the others?

# %% [markdown]
# ## Equal what?
#
# In the maze we compare three arms: `grpo` on the team's return, `grpo` on each row's own reward, and AT-GRPO's tree on the outcome alone. The recorded study gave each of them 60,000 sampled tokens. What else did they spend? The table shows `episodes`, `optimizer_steps`, and `seconds` of processor time, as medians of ten seeds.

# %%
maze, arms = Recorded(STUDIES / "at_grpo"), ["team return", "own reward", "tree, outcome only"]
spent = maze.table.query("task == 'maze' and phase == 'compare' and arm in @arms")
spent.groupby("arm", sort=False)[["tokens", "episodes", "optimizer_steps", "seconds"]].median().round(0)

# %% [markdown]
# *Predict:* compare the same runs at equal tokens, at equal episodes, and at equal optimizer steps. By how much is each arm better than `team return` in each case?

# %%
read = [
    board_of(maze, ["maze"], arms, over=over, baseline="team return").differences.assign(equal=over)
    for over in ("tokens", "episodes", "optimizer_steps")
]
read = pd.concat(read)[["equal", "recipe", "final", "final_low", "final_high"]].round(2)
read.sort_values("recipe", kind="stable").reset_index(drop=True)

# %% [markdown]
# *Explain:* `own reward` is better whatever is held equal. The tree with the outcome alone gains +0.08 at equal tokens and +0.26 at equal episodes. At equal optimizer steps it gains +0.02, and the interval contains 0. It plays few episodes, samples K candidates in each, and makes more optimizer steps from them. None of the three comparisons is *the* fair one:
#
# - use **episodes** if the environment is expensive (people, robots, a slow simulator);
# - use **sampled tokens** if sampling is expensive, as with language models;
# - use **optimizer steps** if you ask what one step is worth.
#
# A fair sentence names one of them and reports the others. `lab.study` prints them all. (At other budgets, a curve is interpolated linearly between its scores. `board.cautions` says how far that reaches.)
#
# **12.3** (8 minutes, medium) Here is a made-up report of two runs. Which rows differ in a way that could make B look better? Leave out the row that is compared, and the rows that are results.
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
# A learning rate suits one arm better than another. A study with one fixed rate compares "A at B's rate" with B. So each arm takes the best of the same rates, by a rule that is stated before: the highest mean over seeds that the comparison does *not* use. `rates` lists all rates: the `mean` over the sweep's seeds, and whether it was `chosen`. `edge` marks a best rate that is the first or the last one tried, so a better rate may lie beyond.

# %%
tried = pd.concat([ladder.rates.query("task == '8 agents'"), helped.rates.query("task == 'pay 0.2'")])
tried = tried[tried["arm"].isin(["global", "own"])]
tried.pivot(index=["task", "arm"], columns="lr", values="mean").round(2)

# %% [markdown]
# *Predict:* one paper ran both arms of `paid_help` at 3e-4, another ran both at 1e-3. What difference does each report? What difference remains if each arm has its best rate?

# %%
paid = tried[tried["task"] == "pay 0.2"].pivot(index="lr", columns="arm", values="mean")
best = tried[(tried["task"] == "pay 0.2") & tried["chosen"]].set_index("arm")["mean"]
print((paid["own"] - paid["global"]).rename("own minus global").round(2).to_string())
print(f"each at its best: {best['own'] - best['global']:+.2f}")

# %% [markdown]
# *Explain:* +0.16 at 3e-4, and +0.38 at 1e-3, where the global arm *unlearns* (0.50 from 0.71). With each arm at its best rate it is +0.08, and +0.06 over ten fresh seeds. A fixed rate can show any difference you like. On the ladder at 1e-3 it shows none at all: both are at 0.00. The best of several is partly luck. So the comparison uses other seeds, and its result is lower.

# %% [markdown]
# ## Stopping early
#
# Suppose two arms are *equal*. You compare after five pairs and find nothing. You run a sixth and a seventh, and stop as soon as the interval excludes 0, or after 20 pairs.

# %% [markdown]
# *Predict:* how often do you "find" a difference that does not exist?


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
# *Explain:* about once in fifteen times with one look, and about three times in ten with sixteen looks. Each look is another ticket in the same lottery, and so is each further arm, task, or metric. Fix the number of seeds before you start. If you look early, report how often. If you raise `seeds`, `lab.study` trains only what is missing. That makes early looks easy, but not honest.

# %% [markdown]
# ## A study of your own
#
# A study is plain data: arms, tasks and seeds. Here it is a dict; it can be a YAML file for `python -m mas_lab study FILE` (this one is `benchmarks/studies/first_study.yaml`). `budget` is what all arms get in equal amounts. `differ` names the only options in which arms may differ; any other difference is refused by name. The cell below has six agents, 15 steps, three seeds and two arms. So it makes six trainings, one per core at a time, each in its own process.

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
# *Predict:* what can you say from three seeds if all three differences have the same sign?

# %%
study = lab.study(design, folder / "study")
print(study)

# %% [markdown]
# Read the second line first. It says what was held equal, and in what the arms differ. Here `own` sampled more tokens in the same number of episodes, because a team that gets further up the ladder speaks more. `study.table` has a row per training, with what it spent, and its success at the `start` and the `final` one.

# %%
study.table[["arm", "seed", "tokens", "optimizer_steps", "start", "final"]].round(2)

# %%
lab.AblationBoard(study)

# %% [markdown]
# *Explain:* these are the recorded results (`data/results/studies/first_study`; yours may differ in a digit). All runs start at 0.00 to 0.02. `global` reaches 0.24, 0.06 and 0.07, and `own` reaches 0.47, 0.53 and 0.52. All three differences have the same sign, and they are large. Still there are dots and no interval. Chance produces equal signs once in four times, and all runs start from the same shipped weights, so even their spread is too narrow. No arm is near 1, because the runs have only half of the steps, and six stages at 0.9 each make 0.53. What would you do next? Take more seeds with different first weights, and a sweep of rates: that is `benchmarks/studies/ladder.yaml`. (You can also fork a run, `lab.train(..., fork=run)`, with one setting changed. That answers "what if, from here on?", but it is no second seed.)

# %% [markdown]
# ## Where an own baseline does not help
#
# Here are four recorded comparisons of the same two arms. Two use the ladder of eight, with separate weights and with one set for all agents. One uses `math` with a fixer that is called only after a rejection. One uses `search`, where a verifier calls two other agents.

# %% [markdown]
# *Predict:* in which of the four does an own baseline help?

# %%
asked = {"ladder": ["8 agents", "8 agents, one set of weights"], "math": ["with a fixer"], "search": ["search"]}
boards = [board_of(Recorded(STUDIES / name), tasks) for name, tasks in asked.items()]
differences = pd.concat([board.differences for board in boards])
differences[["env", "pairs", "higher", "lower", "final", "final_low", "final_high"]].round(2)

# %% [markdown]
# *Explain:* only in the first. With one set of weights for all stages, three seeds differ by +0.04 on average, all with the same sign. On `math` and `search`, ten and five seeds show no difference from 0. An own baseline helps agents with *separate weights that are called rarely, on a condition that shifts the rewards*. A negative result with its interval says how large a hidden effect could still be: on `math` at most 0.03.
#
# **Which half helps, the mean or the scale?** An ablation changes one part at a time. In $A = (R - m)/s$, m is a mean and s a deviation. The study on the ladder of eight has all four combinations: (μ, σ) is `global`, (μ_k, σ) is `own mean`, (μ, σ_k) is `own scale`, and (μ_k, σ_k) is `own`.

# %%
cells = ["global", "own mean", "own scale", "own"]
ablation = board_of(ladder, ["8 agents"], cells)
ablation.differences[["recipe", "higher", "lower", "final", "final_low", "final_high"]].round(2)

# %% [markdown]
# *Explain:* the arm "own mean" gains as much as both together (+0.23), and "own scale" gains three quarters of it (+0.17). If flat groups take the scale of all rows instead, it gains +0.01, which is not distinguishable from 0. Dr. MAS (arXiv 2602.08847) reports the scale as the better half. But these arms also change a third thing. A row without a peer is in a lone or flat group. Under an own mean or scale it gets advantage 0; under `global` it is trained on. **A control was missing.** The study `baselines` has it: `grpo_masked` is `grpo` without these rows (ten seeds, with separate first weights and sweeps).

# %% [markdown]
# *Predict:* `dr_mas` beats `grpo` there. How much of the difference remains if you compare it with `grpo_masked`?

# %%
control = board_of(Recorded(STUDIES / "baselines"), ["ladder of 8"], ["grpo", "grpo_masked", "dr_mas"])
control.differences[["recipe", "higher", "lower", "won", "final", "final_low", "final_high", "p_holm"]].round(3)

# %% [markdown]
# *Explain:* `grpo_masked` gains +0.14 of the +0.21 of `dr_mas`. (`won` is `higher` as a share of the pairs that differ. `p_holm` is from a paired t test, adjusted for the rows of this table.) An earlier version of this page said that the mean does all of it. The numbers were right, but the sentence was wrong, because nobody had run the arm that could refute it. Look for the control that would explain your effect away, and run it before you claim anything.

# %% [markdown]
# ## Handing in, and a board over a class
#
# `lab.export` (or `python -m mas_lab export RUN ZIP`) makes one zip of a run, with its tables and its configuration but no weights. A teacher puts the zips of a class into one folder. `AblationBoard(folder)` compares them as they are. The board names the settings in which they differ. (With a folder of notebooks and zips per student, `python notebooks/tools grade FOLDER` in a checkout writes one page with exercises, runs and the board.)

# %%
zips = folder / "class"
zips.mkdir()
for run in study.table.itertuples():
    lab.export(run.run, zips / f"{run.arm}-{run.seed}.zip")
lab.AblationBoard(zips).table[["recipe", "seeds", "start", "final"]].round(2)

# %% [markdown]
# ## Your turn: a design
#
# **12.4** (20 minutes, hard) On a ladder of four agents with separate weights: *does an agent's own scale add anything if it already has its own mean?* Write the study that answers this question, at equal sampled tokens. Each arm uses the best of three or more learning rates, chosen on two or more seeds that are not compared. Use enough seeds for an interval. Nothing is trained; the check reads the plan.

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
# `lab.study(mine)` would run it: 22 trainings, two to three minutes on two cores. Before you run it, write down what you will conclude from each of the three possible results.
#
# ## To remember
#
# - Seeds are pairs: compare seed by seed, and report how many. Show dots below five. Fix the number before you look.
# - "Equal" needs a noun: tokens, episodes or optimizer steps. Each arm gets its best rate, chosen on other seeds.
# - A negative result with its interval is a result.
#
# Agarwal et al., *Deep RL at the edge of the statistical precipice*, [arXiv 2108.13264](https://arxiv.org/abs/2108.13264), sections 4.1 to 4.3; Henderson et al., *Deep RL that matters*, [arXiv 1709.06560](https://arxiv.org/abs/1709.06560); Dr. MAS, [arXiv 2602.08847](https://arxiv.org/abs/2602.08847).
#
# Next: `13_broken_on_purpose`.
