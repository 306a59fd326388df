# %% [markdown]
# # Normalization: whose mean?
#
# *Level: you have done 00 to 02: you know a row, a credit and a group. Reading: 35 minutes. Compute: about 2 minutes on two CPU cores, nearly all of it in the second half.*
#
# A team earns a reward. Was it good? Compared with what? This notebook is about that one number, the *center*, and the one it is divided by, the *scale*. Afterwards you can
#
# - compute the advantages of GRPO, of Dr. MAS and of the two cells between them, on paper;
# - say how much of an agent's advantages is signal and how much is noise, from rewards alone;
# - estimate before training which agent may need a baseline of its own.
#
# The first half is tables: it needs no model, no GPU and no torch. The second half trains eight small teams and checks what the tables said.

# %% tags=["install"]

# %% tags=["parameters"]
SMOKE = False  # True: a few steps only, to see that everything runs

# %%
import inspect

import numpy as np
import pandas as pd
from IPython.display import display
from plotly import express as px

import mas_lab as lab
from mas_lab.display.progress import front_end
from mas_lab.paths import data_dir
from mas_lab.study.record import Recorded
from mas_lab.widgets.figures import LAYOUT, learning_curves, norm_lines
from mas_lab.widgets.recipe_colors import recipe_colors
from mas_lab.widgets.rewards import two_baselines
from mas_lab.widgets.sliders import interact

RECORDS = data_dir() / "results"

# %% [markdown]
# ## Center and scale
#
# An advantage is a credit, compared:
#
# $$A_i = \frac{R_i - c_i}{s_i + \varepsilon}$$
#
# $R_i$ is the credit of row $i$ (here the episode's return), $c_i$ the center, $s_i$ the scale, $\varepsilon = 10^{-6}$ a guard against division by 0. GRPO (arXiv 2402.03300, section 4.1) takes mean and standard deviation of all episodes of the task. Dr. MAS (arXiv 2602.08847, equations 4 to 6) takes those of the agent's *own* rows in the task. A row whose own group has nothing to compare gets advantage 0 there. The section "Mean, scale, or which rows?" separates these three changes.
#
# **By hand first.** A solver answers; where it is wrong, a helper is called. A right answer of the solver earns the team 1, a right answer of the helper 0.2. One task, three episodes, five rows:

# %%
columns = ["task", "episode", "depth", "agent", "team_reward"]
turns = pd.DataFrame(
    [
        ("t", "e0", 0, "solver", 1.0),  # right
        ("t", "e1", 0, "solver", 0.0),  # wrong, so the helper is called
        ("t", "e1", 1, "helper", 0.2),  #   and is right
        ("t", "e2", 0, "solver", 0.0),  # wrong
        ("t", "e2", 1, "helper", 0.0),  #   and so is the helper
    ],
    columns=columns,
)
turns

# %% [markdown]
# The three returns are 1, 0.2 and 0. Their mean is 0.4, their standard deviation 0.43. The helper's own two rows have mean 0.1 and standard deviation 0.1. Take a pencil now: four advantages, the helper's two under each baseline.

# %% [markdown]
# *Predict:* the helper was right in `e1`. Which sign does that row's advantage have under GRPO, and which under Dr. MAS? What will the helper say more often under either?

# %%
shown = ["episode", "agent", "credit", "center", "scale", "advantage"]
for recipe in ("grpo", "dr_mas"):
    print(recipe)
    display(lab.RECIPES[recipe].advantages(turns)[shown].round(2))

# %% [markdown]
# *Explain:* (`credit`: the episode's return; `center`, `scale`: $c_i$, $s_i$; `advantage`: $A_i$.) Under GRPO the helper's right answer has advantage −0.46 and its wrong one −0.93. **Both are discouraged.** The helper is compared with episodes in which it was not needed; all it can earn lies below their mean, so that it is blamed whatever it says. Under Dr. MAS the same two rows get +1 and −1. The solver speaks in every episode: for it the two baselines are the same.
#
# GRPO still prefers the right answer: −0.46 is more than −0.93. What is lost is not the difference between the two, which is all that the helper can learn from. What is added is an offset, −0.69 on both. Whether an offset does harm is the question of this notebook.

# %% [markdown]
# ## Who counts how often: `once_per`
#
# A global mean over *what*? Episode `e0` has one row here, `e1` and `e2` have two each. GRPO was made for one agent that answers once, so that its paper need not say. `normalize(once_per="episode")` lets each episode enter the statistics once, however many rows it has. Without it, each row does.

# %% [markdown]
# *Predict:* count every row once instead of every episode. Does the mean of the five rows lie above or below 0.4? Who gains by that, the helper or the solver?

# %%
by_rows = lab.RECIPES["grpo"].replace(once_per=None)  # the recipe `grpo_turns` is just this
by_rows.advantages(turns)[shown].round(2)

# %% [markdown]
# *Explain:* 0.28. An episode that went badly has more rows, so counted by rows it has more votes, and everybody's baseline falls. A failing episode of six turns would weigh six times one that succeeded at once. The kit's `grpo` counts episodes. An agent's *own* mean counts its rows, as in Dr. MAS: if it was called three times in an episode, that episode counts three times for it (`dr_mas_episodes` counts it once).

# %% [markdown]
# ## Four cells
#
# Center and scale need not come from the same rows. Two choices for each make four methods:
#
# | | scale of all, $\sigma$ | own scale, $\sigma_k$ |
# |---|---|---|
# | **mean of all**, $\mu$ | `grpo` | `dr_mas_std` |
# | **own mean**, $\mu_k$ | `dr_mas_mean` | `dr_mas` |
#
# Dr. MAS calls the own scale the better half of its method (its ablation on search: 28.0 for $\mu, \sigma$, 39.1 for $\mu_k, \sigma$, 42.9 for $\mu, \sigma_k$, 43.8 for both).

# %% [markdown]
# *Predict:* of the two changes, own mean and own scale, only one can turn the sign of an advantage. Which? And what does the other do to the helper's −0.46 and −0.93?

# %%
cells = {name: lab.RECIPES[name].advantages(turns) for name in ("grpo", "dr_mas_mean", "dr_mas_std", "dr_mas")}
four = turns[["episode", "agent"]].assign(**{name: table["advantage"] for name, table in cells.items()})
four[four["agent"] == "helper"].round(2)

# %% [markdown]
# *Explain:* a scale is a positive number and cannot turn a sign. It makes −0.46 and −0.93 into −2 and −4: the same blame, four times as loud, because the helper's rewards differ little among themselves and are divided by that little. The own mean takes the offset away: ±0.23. Then the own scale makes ±1 of it.
#
# One consequence is worth keeping. Under $(\mu_k, \sigma_k)$, multiplying all rewards of an agent by a number, or adding one to them, changes nothing: `dr_mas` does not know what help is *worth*, only which help was better. We will meet this again as a training run.

# %% [markdown]
# ## Where there is nothing to compare: lone and flat groups
#
# An agent that is called rarely has few rows in a task. With one row it is compared with itself (*lone*); with several that earned the same there is no difference to learn from (*flat*). Three tasks of eight episodes: in the first four helpers earn 0.2, 0, 0 and 0, in the second they all earn 0, in the third a single one is called, and is right.


# %%
def task(name, help_earned, episodes=8):
    """A solver that is right in all episodes but those in which the helper is called."""
    rows = []
    for number in range(episodes):
        rows.append((name, f"{name}{number}", 0, "solver", float(number >= len(help_earned))))
        if number < len(help_earned):
            rows.append((name, f"{name}{number}", 1, "helper", help_earned[number]))
    return pd.DataFrame(rows, columns=columns)


rare = pd.concat([task("a", [0.2, 0, 0, 0]), task("b", [0.0, 0, 0, 0]), task("c", [0.2])], ignore_index=True)
lab.group_stats(lab.RECIPES["dr_mas"].advantages(rare)).query("agent == 'helper'").round(2)

# %% [markdown]
# (`size`, `mean`, `std` of the agent's credits in the task; `lone`: a single row; `flat`: all alike.)
#
# *Remember for the next cell:* a row whose group is lone or flat gets advantage 0 here. Some published code gives a lone row its raw reward as advantage: a number on another scale, always praise.

# %% [markdown]
# *Predict:* the helper's nine rows under the four cells. Which rows get 0 under which method? One method of the four now has a bias that cannot be repaired by training longer. Which, and in what direction?

# %%
four = {name: lab.RECIPES[name].advantages(rare)["advantage"] for name in cells}
four["dr_mas_std, lent"] = lab.RECIPES["dr_mas_std"].replace(flat="center").advantages(rare)["advantage"]
helped = rare[["task", "agent"]].assign(**four).query("agent == 'helper'")
helped.assign(earned=rare["team_reward"]).round(2)

# %% [markdown]
# *Explain:* under an own mean, tasks b and c teach the helper nothing. That is the price of an own baseline: fewer rows speak. Under `dr_mas_std` task a gives −3.75 and three times −6.06, task b gives 0. So only tasks in which the helper was right *at least once* are learned from, and there everything is discouraged, the right answer included. What never worked is left in peace. `flat="center"` (last column) lends flat and lone rows the scale of everybody, which removes the silence and leaves the blame.
#
# **Two small print items.** `ddof`: the population deviation divides by $n$ (`ddof=0`, here the default), the sample deviation by $n - 1$ (published code of Dr. MAS). With eight rows advantages shrink by 6 %, with two rows by 29 %, so it is the rare agent who notices. `eps` matters only where a deviation is as small as $10^{-6}$; it does not save you from a group that is *almost* flat, whose tiny differences become advantages of ±1.

# %% [markdown]
# ## Other centers: `loo`, `max`, `none`
#
# A baseline need not be the mean. `loo`, the mean of the *others* (RLOO, arXiv 2402.14740), does not contain the row itself; `max` praises nobody; `none` praises whatever earned more than 0. They come with `scale="none"`; notebook 08 uses them.

# %%
five = pd.DataFrame({"credit": [0.2, 0.2, 0.2, 0.6, 0.8], "group": "g"})
centers = {"mean": None, "loo": "loo", "max": "max", "none": "none"}
five.assign(**{name: lab.normalize(five, center, "none")["advantage"] for name, center in centers.items()}).round(2)

# %% [markdown]
# With five rows `loo` is the mean's column times 5/4: $R_i - \frac{1}{n-1}\sum_{j \ne i} R_j = \frac{n}{n-1}(R_i - \mu)$. Nothing else changes, and after a division by the standard deviation nothing at all. The mean's column shrinks what a row says about itself by $1 - 1/n$, since the row is part of its own baseline. Keep that factor: it is what an own mean costs.

# %% [markdown]
# ## Size and signal
#
# Take one agent $k$ of one task: $n_k$ rows with mean $\mu_k$ and deviation $\sigma_k$; all $N$ episodes: $\mu$ and $\sigma$. Under the global baseline its advantages are
#
# $$\frac{R_i - \mu}{\sigma} = \frac{\overbrace{(R_i - \mu_k)}^{\text{differs by what it said}} + \overbrace{(\mu_k - \mu)}^{\text{the same in all rows}}}{\sigma}.$$
#
# How *large* are they? Dr. MAS (its lemma on gradient norms) answers with the mean square
#
# $$F_k = v_k + b_k^2, \qquad v_k = \frac{\sigma_k^2}{\sigma^2}, \qquad b_k = \frac{\mu_k - \mu}{\sigma},$$
#
# and shows that the expected squared gradient norm grows with it; under the own baseline $F_k$ is 1. But large is not harmful: clipping and AdamW divide size out again. What they cannot divide out is the share of the second term. So this kit looks at
#
# $$\text{signal}_k = \frac{\sigma_k^2}{\sigma_k^2 + (\mu_k - \mu)^2}.$$
#
# Why is the offset noise? The gradient is a sum of $A_i z_i$, where $z_i = \nabla \log \pi$ of what was said, and over what a policy says $z$ averages to 0. A constant times $z$ therefore points nowhere on average. In a batch of few rows it does not average out, and pushes the weights at random.
#
# On the five rows: helper $\mu_k = 0.1$, $\sigma_k = 0.1$, $\mu = 0.4$. So $(\mu_k - \mu)^2 = 0.09$ beside $\sigma_k^2 = 0.01$: signal = 0.1. And $F_k = (0.01 + 0.09) / 0.187 = 0.54$.

# %%
credits = lab.group(turns, by="task", credit=lab.episode_return())
lab.inflation(credits)[["agent", "n_k", "mu_k", "sigma_k", "mu", "sigma", "b_k", "v_k", "F_k", "signal"]].round(2)

# %% [markdown]
# `F_k` below 1: this helper's gradient is *smaller* under the global baseline than under its own. Nine tenths of it are noise.
#
# ### When does an own mean pay?
#
# It takes the offset away, and shrinks the rest by $1 - 1/n_k$. In squared signal-to-noise ratio of the agent's gradient, for $N$ large:
#
# $$\frac{\mathrm{SNR}^2_\text{own}}{\mathrm{SNR}^2_\text{global}} \approx \left(1 - \frac{1}{n_k}\right)\left(1 + \frac{(\mu_k - \mu)^2}{\sigma_k^2}\right) \quad\Rightarrow\quad \text{own pays if}\quad \underbrace{\frac{(\mu_k - \mu)^2}{\sigma_k^2}}_{\texttt{offset}} > \underbrace{\frac{1}{n_k - 1}}_{\texttt{threshold}}.$$
#
# The global mean contains the agent's own rows too, so that the exact threshold is a little lower: $(1 - n_k/N)/(n_k - 1)$. `lab.advise` computes that, with lone and flat groups, for every agent of a rollout, and calls the ratio `gain`: above 1.25 an own mean "may pay", below 0.8 it "may cost".
#
# ### A team of coins
#
# To see it on more than five rows without a model, let coins play: solver and helper are right half of the time, whatever they say. Only the rewards are needed.


# %%
def coin_help(pay, tasks=64, episodes=8, seed=0):
    """The rewards of solver and helper, each right half of the time; a right answer with help earns `pay`."""
    rng, rows = np.random.default_rng(seed), []
    for episode in (f"{task}.{number}" for task in range(tasks) for number in range(episodes)):
        solved, helped = rng.random(2) < 0.5
        rows.append((episode.split(".")[0], episode, 0, "solver", float(solved)))
        if not solved:
            rows.append((episode.split(".")[0], episode, 1, "helper", pay * helped))
    return lab.RECIPES["grpo"].advantages(pd.DataFrame(rows, columns=columns))


def numbers(turns, agents):
    """Size and signal of these agents, and what `advise` says."""
    size = lab.inflation(turns).assign(F=lambda table: table["F_k"].fillna(0) * table["n_k"]).groupby("agent")
    F = (size["F"].sum() / size["n_k"].sum()).rename("F")
    said = lab.advise(turns).set_index("agent").join(F)
    return said.loc[list(agents), ["spoke", "n_k", "F", "signal", "offset", "threshold", "gain", "own"]]


# %% [markdown]
# *Predict:* `pay` goes from 0.1 to 1. For the helper: does F rise or fall? Does signal? At about which pay does its own mean stop paying? (It has some 4.5 rows in a task of 8 episodes.)

# %%
pays = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
pd.concat({pay: numbers(coin_help(pay), ["helper"]) for pay in pays}, names=["pay"]).droplevel("agent").round(2)

# %% [markdown]
# *Explain:* (`spoke`: in which share of the episodes; `n_k`: rows in a task, as far as they can be compared; `offset` and `threshold` as above; `own`: the advice.) F hardly moves and says nothing: 0.8 at a pay of 0.2, where 5 % of the helper's squared advantages are signal, and 1.2 at a pay of 1, where 80 % are. The gain falls from 66 to 1, and is past caring at about 0.8. One number of the task switches the need for an own baseline on and off.
#
# Below, the same as histograms. Above, credits, with the helper's own mean and everybody's; below, the advantages under either baseline. Move `pay` and watch where the hollow bars stand.


# %%
def look(pay):
    turns = coin_help(pay)
    helper = numbers(turns, ["helper"]).iloc[0]
    print(f"pay {pay}: signal of the helper {helper['signal']:.2f}, gain {helper['gain']:.1f}")
    display(two_baselines(turns, ("solver", "helper")))


if front_end() in ("jupyter", "vscode", "kaggle"):
    import ipywidgets

    interact(look, pay=ipywidgets.SelectionSlider(options=pays, value=0.2, continuous_update=False))
else:  # no live widgets here: two values instead of the slider
    look(0.2)
    look(1.0)

# %% [markdown]
# ### A ladder of coins
#
# Now more agents. Stage $j + 1$ is reached only if stage $j$ was right, each is right seven times in ten, and when it ends the team earns the share of stages passed.


# %%
def coin_ladder(agents, right=0.7, tasks=64, episodes=8, seed=0):
    """The rewards of a ladder of coins."""
    rng, rows = np.random.default_rng(seed), []
    for episode in (f"{task}.{number}" for task in range(tasks) for number in range(episodes)):
        passed = int(np.cumprod(rng.random(agents) < right).sum())
        for stage in range(min(passed + 1, agents)):
            last = stage == min(passed, agents - 1)
            earned = passed / agents if last else 0.0
            rows.append((episode.split(".")[0], episode, stage, f"stage_{stage + 1}", earned))
    return lab.RECIPES["grpo"].advantages(pd.DataFrame(rows, columns=columns))


# %% [markdown]
# *Predict:* who stands high is reached only in episodes that went well. Which sign has its offset? Does signal rise or fall with the stage, and what happens to the rows in a task that an own mean would have?

# %%
numbers(coin_ladder(8), [f"stage_{number + 1}" for number in range(8)]).round(2)

# %% [markdown]
# *Explain:* this offset is praise. Stage 8 is compared with episodes that ended on stage 2, so that it lies far above the mean even when it fails, and is told "more of that" whatever it said. Signal falls from 1 to almost 0, F rises to 3.4: here size and signal tell the same story. At the same time `n_k` falls towards 1: half of stage 8's rows are alone in their task, and an own mean has nothing to say about them. The gain counts both, and is high all the same: being told little is better than being told noise.
#
# With two agents (`coin_ladder(2)`) stage 2 has a gain of 2.4, too. Whether that much is felt in training, the tables cannot say.


# %%
def climb(agents):
    top = f"stage_{agents}"
    turns = coin_ladder(agents)
    print(f"{agents} agents: signal of {top} is {numbers(turns, [top])['signal'].item():.3f}")
    display(two_baselines(turns, dict.fromkeys(["stage_1", f"stage_{agents // 2 + 1}", top])))


if front_end() in ("jupyter", "vscode", "kaggle"):
    interact(climb, agents=ipywidgets.IntSlider(value=8, min=2, max=8, continuous_update=False))
else:
    climb(8)

# %% [markdown]
# ## Your turn, before anything is trained
#
# **03.1** Write Dr. MAS's advantage: mean and standard deviation (dividing by $n$) of the agent's own rows in the task, 0 where its rows are lone or flat. Pandas only: `groupby(...).transform(...)`. The check compares with the cell on random tables.


# %%
def own_advantage(turns):
    """`turns` has the columns task, episode, agent, turn, credit; returns an advantage per row."""
    ### BEGIN SOLUTION
    credit = turns.groupby(["task", "agent"])["credit"]
    center, scale = credit.transform("mean"), credit.transform("std", ddof=0)
    return ((turns["credit"] - center) / (scale + 1e-6)).where(scale > 1e-9, 0.0)
    ### END SOLUTION


lab.course.check("03.1", own_advantage)

# %% [markdown]
# **03.2** The signal of one agent, from a table that holds one task. Mind who counts once in $\mu$.


# %%
def signal(turns, agent):
    """`turns`: the rows of one task, with episode, agent, credit; returns a number from 0 to 1."""
    ### BEGIN SOLUTION
    mu = turns.groupby("episode")["credit"].mean().mean()
    own = turns.loc[turns["agent"] == agent, "credit"]
    return own.var(ddof=0) / (own.var(ddof=0) + (own.mean() - mu) ** 2)
    ### END SOLUTION


lab.course.check("03.2", signal)

# %% [markdown]
# **03.3** Nothing was run yet. Five agents of teams with eight episodes a task; `b` is $\mu_k - \mu$, `sigma_k` the deviation of its own credits. Whose own mean pays? A pencil is enough.

# %%
candidates = pd.DataFrame(
    [("planner", 8.0, 0.0, 0.43), ("critic", 2.0, 0.2, 0.25), ("tester", 6.0, 0.2, 0.25), ("closer", 3.0, -0.3, 0.08),
     ("auditor", 1.2, -0.3, 0.15)],
    columns=["agent", "n_k", "b", "sigma_k"],
)  # fmt: skip
display(candidates)
### BEGIN SOLUTION
pays_for = ["tester", "closer"]
### STARTER
# pays_for = ...
### END SOLUTION
lab.course.check("03.3", candidates, pays_for)

# %% [markdown]
# ## Does it happen to real policies?
#
# From here on real tokens, log-probabilities and gradients. First `paid_help`: chains of digits to be worked out by a pocket model of 0.3 million weights. The solver is frozen, so that only the helper learns, and only the baseline differs. The rule of the reward:
#
# $$R = \begin{cases} 1 & \text{solver right} \\ \texttt{pay} & \text{solver wrong, helper right} \\ 0 & \text{both wrong} \end{cases}$$
#
# Before training, ask the first rollout. `RewardInspector` shows what you have just worked out for coins: credits, advantages under both baselines, the numbers per agent, and `lab.advise` in words.

# %%
env = lab.make_env("paid_help", pay=0.2)
team = lab.Team.per_agent(lambda agent: lab.load_policy(env.pocket, lr=3e-4), env.agents, frozen=("solver",))
first = lab.rollout(env, team, env.tasks(8 if SMOKE else 64, "train", seed=0), lab.episodes(8), seed=0)
lab.RewardInspector(lab.RECIPES["grpo"].advantages(first))

# %% [markdown]
# (Folded below the figures are all numbers. `mean` to `75 %`: of the agent's credits; `valid`: answers that could be read; `lone`, `flat`: shares of rows by the groups in the table, here whole tasks, where the advice below counts the agent's own; `b`, `v`, `F`, `signal`: as above, over all tasks.) The pocket model plays much as the coins did.

# %% [markdown]
# ### The same in plain code
#
# `mas_lab/plain.py`, the whole method in one file, does cell 3 in ten lines. On the same table it gives the same advantages.

# %%
from mas_lab import plain  # it imports torch, which the first half does without

for name, once_per in (("grpo", "episode"), ("dr_mas", None)):
    recipe = lab.RECIPES[name]
    by_hand = plain.normalize(plain.group(first, recipe.by, plain.episode_return), once_per)["advantage"]
    apart = (by_hand - recipe.advantages(first)["advantage"]).abs().max()
    print(f"{name}: by {recipe.by}, once per {once_per}: largest difference {apart:.0e}")

print(inspect.getsource(plain.normalize))

# %% [markdown]
# ### Do two halves of a batch agree?
#
# "Noise" is a strong word for something that was computed from rewards alone. Here is a test on real gradients. Cut a batch in two, other tasks in each half, and compute the helper's gradient of either. What a gradient knows, its signal $s$, is the same in both halves; its noise $n$ is not. So the angle between the two says how much of them is signal:
#
# $$\cos(g_1, g_2) \approx \frac{|s|^2}{|s|^2 + \mathbb E|n|^2}.$$
#
# All pays judge the *same completions*: nobody tells the helper what help is worth.

# %% [markdown]
# *Predict:* 0 means that the two halves have nothing in common, 1 that they say the same. What will it be under `grpo` at a pay of 0.1, and at 1.0? What under `dr_mas`? And the gradient's norm?

# %%
import torch


def helper_gradient(rows):
    """The helper's gradient on these rows, as one vector. No step is made: notebook 04 has the details."""
    kept = []

    def keep(policy_name, norms, batch):
        kept.append(torch.cat([part.flatten() for _, part in batch.policy.gradients()]))

    lab.update(team, rows, lr_scale=0.0, watch=keep)
    return kept[0]


half = first["task"].isin(first["task"].unique()[::2])
agreement = {}
for pay in pays:
    paid = first.assign(team_reward=first["team_reward"].replace(0.2, pay))
    for recipe in ("grpo", "dr_mas"):
        rows = lab.RECIPES[recipe].advantages(paid)
        one, other = helper_gradient(rows[half]), helper_gradient(rows[~half])
        agreement[pay, recipe] = {"cosine": one @ other / (one.norm() * other.norm()), "norm": (one + other).norm() / 2}
pd.DataFrame(agreement).T.astype(float).unstack().round(2)

# %% [markdown]
# *Explain:* under `grpo` at a pay of 0.1 the two halves have nothing in common: whoever follows such a gradient walks at random. At a pay of 1 they agree as well as under `dr_mas`, for which nothing depends on the pay. And look at the norms: the gradient that is all noise is the *shortest* of them.
#
# Ten recorded batches. `told`: the gain that `advise` expects of an own mean, from rewards alone. `measured`: the ratio of $\cos / (1 - \cos)$, which is the squared signal-to-noise ratio of half a batch, of `dr_mas_mean` over `grpo`; of the cosines' means over the batches.

# %%
halves = pd.read_csv(RECORDS / "whose_mean" / "halves.csv")
cosine = halves.pivot_table(index="pay", columns="recipe", values="cosine")
odds = cosine / (1 - cosine)
expected = halves.groupby("pay")["gain"].mean()
cosine.assign(told=expected, measured=odds["dr_mas_mean"] / odds["grpo"]).round(2)

# %% [markdown]
# The cosine under `grpo` rises from 0.02 at a pay of 0.1 to 0.71 at 1.0; under `dr_mas` it stands at 0.74 whatever the pay. And what `advise` told without looking at a single gradient is what the gradients have: 17.9 told, 13.7 measured at a pay of 0.2; 4.3 told, 4.0 measured at a pay of 0.4.
#
# ### Does that show in training?

# %%
STEPS, TASKS, HELD_OUT = (2, 4, 8) if SMOKE else (30, 16, 64)


def learn(env, recipe, frozen=()):
    """One training, weights of its own for each agent: its curve, its norms, and how often each agent is right."""
    team = lab.Team.per_agent(lambda agent: lab.load_policy(env.pocket, lr=3e-4), env.agents, frozen=frozen)
    held_out, tokens, norms = env.tasks(HELD_OUT, "test", seed=0), 0, []
    scores = lab.evaluate(env, team, held_out, k=4)
    curve = [(0, scores["success"].mean())]
    for report in lab.train(env, team, recipe, STEPS, seed=0, tasks=TASKS):
        tokens += report.tokens
        norms.append(report.stats[["agent", "grad_norm", "entropy"]].assign(step=report.step))
        if report.step % 10 == 9 or report.step == STEPS - 1:
            scores = lab.evaluate(env, team, held_out, k=4)
            curve.append((tokens, scores["success"].mean()))
    spoken = scores.groupby("agent", sort=False)[["own_return", "turns"]].sum()
    right = (spoken["own_return"] / spoken["turns"]).rename("right")
    return pd.DataFrame(curve, columns=["tokens", "success"]), pd.concat(norms), right


# %% [markdown]
# *Predict:* four trainings of 30 steps: `grpo` and `dr_mas`, at a pay of 0.2 and of 1.0. In which is the helper right most often in the end, in which least often? (It starts at 0.44.) What will `pay` change for `dr_mas`? And whose gradient norms will be the largest?

# %%
runs = {}
for pay in (0.2, 1.0):
    for recipe in ("grpo", "dr_mas"):
        runs[f"{recipe}, pay {pay}"] = learn(lab.make_env("paid_help", pay=pay), recipe, frozen=("solver",))
learning_curves(pd.concat(curve.assign(recipe=name, seed=0) for name, (curve, _, _) in runs.items()))

# %%
ends = {
    name: {
        "success": curve["success"].iloc[-1],
        "helper right": right["helper"],
        "largest norm": norms["grad_norm"].max(),
        "entropy": norms["entropy"].iloc[-5:].mean(),
    }
    for name, (curve, norms, right) in runs.items()
}
pd.DataFrame(ends).T.round(2)

# %% [markdown]
# *Explain:* (`helper right`: how often in a turn; `largest norm`: of the helper's gradient in any step, before clipping; `entropy`: of its tokens, in nats, over the last five steps.)
#
# - Under `grpo` at a pay of 0.2 the helper learns little of what there is to learn. Told "less of that" after every answer, right or wrong, it cannot commit: its entropy stays about three times as high.
# - **No norm tells.** The largest are those of `grpo` at a pay of 1.0, which learns well.
# - The two `dr_mas` runs are the same run, token by token. Own mean and own scale do not see what help is worth, only which help was better.
# - Success starts at 0.75, since the solver is right in about half of the tasks without help. And it does not end at 1: sampling says an unlikely digit now and then.
#
# One seed could be luck. The same four over five seeds, recorded (`benchmarks/whose_mean.py`):

# %%
recorded = pd.read_csv(RECORDS / "whose_mean" / "curves.csv").query("step == 30")


def dots(task):
    """Every recorded run a dot."""
    runs = recorded[recorded["setting"].str.startswith(task)]
    shades = recipe_colors(["grpo", "dr_mas"])
    orders = {"recipe": list(shades)}
    figure = px.strip(runs, "setting", "success", "recipe", color_discrete_map=shades, category_orders=orders)
    figure.update_layout(**LAYOUT, height=360, yaxis_range=[0, 1], yaxis_title="success after 30 steps", xaxis_title="")
    return figure


dots("paid_help")

# %% [markdown]
# At a pay of 0.2, `grpo` ends between 0.77 and 0.84 and `dr_mas` between 0.95 and 0.98; at 1.0, between 0.94 and 0.96, and between 0.95 and 0.98.
#
# **The fair comparison.** All of these ran at one learning rate, 3e-4. A noisy gradient wants a lower one. So in the study behind `docs/findings.md` each arm first got the best of four rates, and then ten seeds with first weights of their own (`global` is `grpo`, `own` is `dr_mas`; pays other than 0.2 and 1.0 explore, with three seeds):

# %%
study = RECORDS / "studies" / "paid_help"
helper = Recorded(study).agents.query("agent == 'helper' and window == 'start' and arm == 'global'")
board = lab.AblationBoard(study)
finals = board.table.pivot(index="env", columns="recipe", values="final")[["global", "own"]]
paired = board.differences.query("recipe == 'own'").set_index("env")["final"].rename("own - global, by seed")
told = helper.groupby("task")[["F", "signal", "gain"]].median()
told.join([finals, paired]).loc[[f"pay {pay}" for pay in pays]].round(2)

# %% [markdown]
# *Explain:* (`F`, `signal`, `gain`: of the first five steps, before much was learned; `global`, `own`: success in the end, the mean of the middle half of the seeds.) At its own best rate, 1e-4, the global baseline loses 0.06 at a pay of 0.2 (95 % interval 0.05 to 0.07, ten seeds), not 0.15: patience hides more than half of the harm. From a gain of about 4 downwards three seeds see next to nothing. And signal foretells the order where F, between 0.9 and 1.3, says that nothing is going on.

# %% [markdown]
# ## The ladder
#
# Now each agent has a chain of digits of its own, weights of its own, and stage $j + 1$ is reached only where stage $j$ was right. When it ends, the team earns
#
# $$R = \frac{\text{stages passed}}{\text{stages}}.$$

# %% [markdown]
# *Predict:* two agents and eight, `grpo` and `dr_mas`. Which of the four teams climb? At which stage will the largest norm stand, and how large will it be where the usual one is about 0.5? Success is *all* stages right: what does a team of eight reach if each of them is right 95 times in 100?

# %%
climbs = {}
for agents in (2, 8):
    for recipe in ("grpo", "dr_mas"):
        climbs[f"{recipe}, {agents} agents"] = learn(lab.make_env("ladder", n_agents=agents), recipe)
learning_curves(pd.concat(curve.assign(recipe=name, seed=0) for name, (curve, _, _) in climbs.items()))

# %%
tallest = [
    norms.groupby("step", as_index=False)["grad_norm"].max().assign(recipe=name, seed=0)
    for name, (_, norms, _) in climbs.items()
]
norm_lines(pd.concat(tallest), y="grad_norm")

# %%
stages = {}
for name in ("grpo, 8 agents", "dr_mas, 8 agents"):
    _, norms, right = climbs[name]
    stages[name] = pd.DataFrame({"right": right, "largest norm": norms.groupby("agent")["grad_norm"].max()})
pd.concat(stages, axis=1).round(2)

# %% [markdown]
# *Explain:* (`right`: how often that stage answers right in the end, where it is reached.) Two agents learn under either baseline, a gain of 2.4 notwithstanding: with five rows in every task there is signal enough. Of eight, `dr_mas` climbs and `grpo` does not.
#
# Read the table from the top. The low stages learn under both. Further up the global baseline praises whoever gets there for getting there; the norms rise from stage to stage, and the top stage unlearns what it could. Why so tall, and why mostly in the first half of the training? There the high stages are hardly ever reached: their gradient is a mean over a handful of rows, in which nothing averages out, each with an advantage of up to $\sqrt 7 \approx 2.6$. Their own baseline says nothing about a lone row, and waits until there are two to compare. Notebook 05 opens such a norm to its tokens.
#
# Is the norm the cause? Clip at 0.1, or do not clip at all, or take SGD: the recorded teams of eight fail alike under the global baseline and climb under their own. The norm is a symptom. In `paid_help` the harm comes without it; on `math` (05) the norm comes without the harm. **Little signal is what the two harmed teams have in common.**
#
# The recorded seeds:

# %%
dots("ladder")

# %% [markdown]
# Two agents end between 0.83 and 0.89 under either. Eight end between 0.51 and 0.60 under `dr_mas`, between 0.01 and 0.13 under `grpo`; the largest norm of a run is 1.6 to 2.7 under `dr_mas`, 13 to 22 under `grpo`. Not 1: if each of eight stages is right with 0.95, all are with $0.95^8 = 0.66$. Held equal: episodes and optimizer steps. Not equal: tokens, since a team that gets further says more (some 130,000 against 100,000 to 115,000).

# %% [markdown]
# ## Mean, scale, or which rows?
#
# Between `grpo` and `dr_mas` three things change at once: the mean, the scale, and which rows are trained on. The third is easy to miss. Under `dr_mas` a row whose own group is lone or flat gets advantage 0; `grpo` trains on it. Such a row has no *peer*: nobody to be compared with. A comparison of means needs a control for this. `grpo_masked` is `grpo` with exactly these rows at 0 (`normalize(peers=("task", "agent"))`).
#
# The scale need not be that of a task either. `own_pooled` takes the agent's own mean per task, and one standard deviation of all its credits in the batch.
#
# The study `baselines` has seven arms in six settings: ten seeds with first weights of their own, each arm at the best of four learning rates.

# %% [markdown]
# *Predict:* sort the arms by the success of a ladder of eight: `grpo`, `grpo_masked`, own mean, own scale, own scale lent, `dr_mas`, `own_pooled`. How much of the way from `grpo` to `dr_mas` does leaving out rows go by itself?

# %%
baselines = Recorded(RECORDS / "studies" / "baselines")
board = lab.AblationBoard(baselines)
ladder = board.table[board.table["env"] == "ladder of 8"].set_index("recipe")
ladder[["seeds", "final", "final_low", "final_high"]].round(2)

# %% [markdown]
# *Explain:* (`final`: the mean of the middle half of the seeds, `final_low` to `final_high` its 95 % interval.) `grpo` ends at 0.03, `grpo_masked` at 0.19, `dr_mas` at 0.27. Seed by seed, leaving out rows without a peer gains +0.12 (95 % interval +0.01 to +0.26), own mean and own scale together +0.19 (+0.03 to +0.36). So more than half of what looked like the mean's effect is not the mean's. The own scale gains +0.12, just what leaving out rows does: its flat groups have no scale, so they drop out. Lent the task's scale, they are trained on again, and +0.08 is left. Given an own mean, the scale hardly matters here: own mean +0.19, `own_pooled` +0.18. The intervals are wide because the ten seeds have first weights of unlike strength. Four of them do not reach the top under any arm.
#
# ### A scale that ruins an agent
#
# In `stakes` a helper is called where a solver was wrong. In about three tasks of ten a right answer earns it 0.3. In all others it earns 0.5, right or wrong. Every word costs it 0.004.

# %% [markdown]
# *Predict:* in most tasks the helper's rewards differ by the cost of a few words and by nothing else. `dr_mas` divides them by their own deviation. What will the helper learn? And under `own_pooled`, where one deviation divides all of its rewards?

# %%
helper = baselines.agents.query("task == 'stakes' and agent == 'helper' and window == 'end'")
helper.groupby("arm", sort=False)[["quiz_before", "quiz_after"]].mean().round(2)

# %% [markdown]
# *Explain:* (`quiz_before`, `quiz_after`: how often the helper is right before and after training, asked 64 problems outside of any episode; means of ten seeds.) Under `dr_mas` it *falls*, from 0.35 to 0.19. In most tasks the shortest answer earns the most, and after the division this counts as much as being right does in the others. The helper stops working things out. Each arm had its best of four learning rates; for `dr_mas` that was the smallest, since any training harms. `grpo` comes to 0.42, the own mean with the task's scale to 0.52, and `own_pooled`, the same own mean with one scale, to 0.63.
#
# ### What would change the answer
#
# - **One set of weights for all eight**: then `grpo` climbs as well (three seeds: 0.71, 0.62 and 0.13, own 0.73, 0.65 and 0.19). What stage 1 learns serves stage 8, and offsets of low and high stages meet in one gradient.
# - **Agents that speak about equally often** (solver and verifier of `math`, the three of `search`): ten seeds do not detect a difference.
# - So an own mean is for *separate* policies that are called *rarely* and *on a condition that shifts their rewards*. `lab.advise(turns)` looks at the rewards alone. It says nothing about the scale, about rows without a peer, or about an agent that is good already, so take its verdict as a question. `docs/findings.md` lists every agent it was tried on.
#
# ## Your turn, once more
#
# **03.4** A design. Eight episodes; `rewards` from 0 to 1, and in which of them (`called`, at least three, from 0 to 7) a critic speaks. Make a team whose norms look healthy, F between 0.9 and 1.1, and which teaches its critic next to nothing: signal below 0.1. The critic's own rewards must not be all the same.

# %%
### BEGIN SOLUTION
rewards = [1, 1, 1, 1, 0.1, 0, 0.1, 0]
called = [4, 5, 6, 7]
### STARTER
# rewards = [1, 1, 1, 1, 0, 0, 0, 0]  # <- change both
# called = [2, 3, 4, 5]
### END SOLUTION
lab.course.check("03.4", rewards, called)

# %%
lab.course.progress("03")

# %% [markdown]
# Can you think of a team that you would build, in which an agent's rewards come out like this? It is a good question to ask of one's own system, and costs one rollout.
#
# ## What to remember
#
# - A baseline says who is compared with whom. A global one adds the same number to all advantages of an agent: praise or blame for *being called*, whatever was said.
# - Look at `signal`, not at the norm: an own mean pays where $(\mu_k - \mu)^2 / \sigma_k^2 > 1/(n_k - 1)$. This is about the mean alone: the scale and the rows without a peer matter as well.
# - An own baseline costs: fewer rows, lone and flat groups. Where nobody is called rarely, it changes nothing.
#
# GRPO: arXiv 2402.03300, section 4.1. Dr. MAS: arXiv 2602.08847, equations 4 to 6. RLOO: arXiv 2402.14740. All runs and intervals: `docs/findings.md`.
#
# Next: `04_update`, from an advantage to a step of the optimizer.
