# %% [markdown]
# # Normalization: whose mean?
#
# *Level: you have done 00 to 02: you know a row, a credit and a group. Reading: 35 minutes. Compute: 2 to 3 minutes on two CPU cores, nearly all of it in the second half.*
#
# A team earns a reward. Was it good? Compared with what? This notebook is about the *center*, which is subtracted, and the *scale*, which divides. Afterwards you can
#
# - compute the advantages of GRPO, of Dr. MAS and of the two methods between them, on paper;
# - say how much of an agent's advantages is signal and how much is noise, from rewards alone;
# - name the facts that rewards show before training, and what they do not tell.
#
# The first half uses tables. It needs no model, no GPU and no torch. The second half trains eight small teams.

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
from mas_lab.widgets.figures import LAYOUT, learning_curves, norm_lines, recipe_colors
from mas_lab.widgets.live import interact
from mas_lab.widgets.rewards import two_baselines

RECORDS = data_dir() / "results"

# %%
lab.course.loop("normalize")

# %% [markdown]
# ## Center and scale
#
# An advantage is a credit that was compared:
#
# $$A_i = \frac{R_i - c_i}{s_i + \varepsilon}$$
#
# $R_i$ is the credit of row $i$ (here the episode's return). $c_i$ is the center, $s_i$ the scale, and $\varepsilon = 10^{-6}$ avoids a division by 0. GRPO (arXiv 2402.03300, section 4.1) takes the mean and standard deviation of all episodes of the task. Dr. MAS (arXiv 2602.08847, equations 4 to 6) takes those of the agent's *own* rows in the task. There, a row whose own group has nothing to compare gets advantage 0. The section "Mean, scale, or which rows?" separates these three changes.
#
# **By hand first.** A solver answers; if it is wrong, a helper is called. A right answer of the solver earns the team 1, and a right answer of the helper earns 0.2. There is one task with three episodes and five rows:

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
# The three returns are 1, 0.2 and 0. Their mean is 0.4, and their standard deviation is 0.43. The helper's own two rows have mean 0.1 and standard deviation 0.1. Compute four advantages on paper: the helper's two rows under each baseline.

# %% [markdown]
# *Predict:* the helper was right in `e1`. Which sign does the advantage of that row have under GRPO, and which under Dr. MAS? What will the helper say more often under each of them?

# %%
shown = ["episode", "agent", "credit", "center", "scale", "advantage"]
for recipe in ("grpo", "dr_mas"):
    print(recipe)
    display(lab.RECIPES[recipe].advantages(turns)[shown].round(2))

# %% [markdown]
# *Explain:* (`credit`: the episode's return; `center`, `scale`: $c_i$, $s_i$; `advantage`: $A_i$.) Under GRPO the helper's right answer has advantage −0.46, and its wrong answer has −0.93. **Both are discouraged.** The helper is compared with episodes in which it was not needed. All that it can earn is below their mean, so it is punished whatever it says. Under Dr. MAS the same two rows get +1 and −1. The solver speaks in every episode, so for the solver the two baselines are the same.
#
# GRPO still prefers the right answer: −0.46 is more than −0.93. The helper learns from this difference, and it is not lost. But GRPO adds an offset, −0.69 on both rows. Does such an offset do harm?

# %% [markdown]
# ## Who counts how often: `once_per`
#
# What does a global mean count? Here episode `e0` has one row, and `e1` and `e2` have two each. GRPO was made for one agent that answers once, so its paper need not say. With `normalize(once_per="episode")` each episode enters the statistics once, however many rows it has. Without it, each row counts.

# %% [markdown]
# *Predict:* count every row once instead of every episode. Is the mean of the five rows above or below 0.4? Does this help the helper or the solver?

# %%
by_rows = lab.RECIPES["grpo"].replace(once_per=None)  # the recipe `grpo_turns` is just this
by_rows.advantages(turns)[shown].round(2)

# %% [markdown]
# *Explain:* 0.28. An episode that went badly has more rows. Counted by rows, it has more weight, and every agent's baseline falls. A failed episode of six turns would count six times. The kit's `grpo` counts episodes. An agent's *own* mean counts its rows, as in Dr. MAS. If it was called three times in an episode, that episode counts three times for it. `dr_mas_episodes` counts the episode once.

# %% [markdown]
# ## Four methods
#
# Center and scale need not come from the same rows. Each has two choices, so there are four methods:
#
# | | scale of all, $\sigma$ | own scale, $\sigma_k$ |
# |---|---|---|
# | **mean of all**, $\mu$ | `grpo` | `dr_mas_std` |
# | **own mean**, $\mu_k$ | `dr_mas_mean` | `dr_mas` |
#
# Dr. MAS calls the own scale the better half of its method. Its ablation on search scores 28.0 for $\mu, \sigma$, 39.1 for $\mu_k, \sigma$, 42.9 for $\mu, \sigma_k$, and 43.8 for both.

# %% [markdown]
# *Predict:* only one of the two changes, own mean and own scale, can turn the sign of an advantage. Which one? What does the other change do to the helper's −0.46 and −0.93?

# %%
methods = {name: lab.RECIPES[name].advantages(turns) for name in ("grpo", "dr_mas_mean", "dr_mas_std", "dr_mas")}
four = turns[["episode", "agent"]].assign(**{name: table["advantage"] for name, table in methods.items()})
four[four["agent"] == "helper"].round(2)

# %% [markdown]
# *Explain:* a scale is a positive number and cannot turn a sign. It makes −0.46 and −0.93 into −2 and −4. The helper's rewards differ little among themselves, so they are divided by a small number. The sign stays, and the size is four times as large. The own mean removes the offset: ±0.23. The own scale then makes ±1 of it.
#
# Under $(\mu_k, \sigma_k)$, nothing changes if you multiply all rewards of an agent by a number, or add a number. `dr_mas` does not know what help is *worth*, only which help was better. A training run below will show it.

# %% [markdown]
# ## Where there is nothing to compare: lone and flat groups
#
# An agent that is called rarely has few rows in a task. A single row is compared only with itself (*lone*). Several rows that earned the same show no difference to learn from (*flat*). Here are three tasks of eight episodes. In the first, four helpers earn 0.2, 0, 0 and 0. In the second they all earn 0. In the third a single helper is called, and it is right.


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
# (`size`, `mean`, `std` of the agent's credits in the task; `lone`: a single row; `flat`: all credits are equal.)
#
# *Remember for the next cell:* here a row of a lone or flat group gets advantage 0. Some published code gives a lone row its raw reward as advantage. That number has another scale, and it always reinforces.

# %% [markdown]
# *Predict:* which of the helper's nine rows get 0 under which of the four methods? One method now has a bias that longer training cannot repair. Which one, and in which direction?

# %%
four = {name: lab.RECIPES[name].advantages(rare)["advantage"] for name in methods}
four["dr_mas_std, lent"] = lab.RECIPES["dr_mas_std"].replace(lone="lend").advantages(rare)["advantage"]
helped = rare[["task", "agent"]].assign(**four).query("agent == 'helper'")
helped.assign(earned=rare["team_reward"]).round(2)

# %% [markdown]
# *Explain:* under an own mean, tasks b and c teach the helper nothing. An own baseline has this price: fewer rows teach. Under `dr_mas_std` task a gives −3.75 once and −6.06 three times, and task b gives 0. So the helper learns only from tasks in which it was right *at least once*. There everything is discouraged, even the right answer. Answers that never worked are not discouraged. `lone="lend"` (last column) gives flat and lone rows the scale of all rows. Then these rows teach again, but the offset stays.
#
# **Two details.** `ddof`: the population deviation divides by $n$ (`ddof=0`, the default here). The sample deviation divides by $n - 1$ (published code of Dr. MAS). With eight rows it makes advantages 6 % smaller, with two rows 29 %. So it matters most for an agent that is called rarely. `eps` matters only if a deviation is as small as $10^{-6}$. It does not help with a group that is *almost* flat: its tiny differences become advantages of ±1.

# %% [markdown]
# ## Other centers: `loo`, `max`, `none`
#
# A baseline need not be the mean. `loo` is the mean of the *other* rows (RLOO, arXiv 2402.14740); it does not contain the row itself. `max` gives no positive advantage. `none` reinforces every row that earned more than 0. All three come with `scale="none"`; notebook 08 uses them.

# %%
five = pd.DataFrame({"credit": [0.2, 0.2, 0.2, 0.6, 0.8], "group": "g"})
centers = {"mean": None, "loo": "loo", "max": "max", "none": "none"}
five.assign(**{name: lab.normalize(five, center, "none")["advantage"] for name, center in centers.items()}).round(2)

# %% [markdown]
# With five rows, `loo` is the mean's column times 5/4: $R_i - \frac{1}{n-1}\sum_{j \ne i} R_j = \frac{n}{n-1}(R_i - \mu)$. After a division by the standard deviation nothing changes at all. A row is part of its own mean, so the mean's column shrinks the row's advantage by $1 - 1/n$. Remember this factor: it is the cost of an own mean.

# %% [markdown]
# ## Size and signal
#
# Take one agent $k$ of one task. It has $n_k$ rows with mean $\mu_k$ and deviation $\sigma_k$. All $N$ episodes have mean $\mu$ and deviation $\sigma$. Under the global baseline the agent's advantages are
#
# $$\frac{R_i - \mu}{\sigma} = \frac{\overbrace{(R_i - \mu_k)}^{\text{differs by what it said}} + \overbrace{(\mu_k - \mu)}^{\text{the same in all rows}}}{\sigma}.$$
#
# How *large* are they? Dr. MAS (its lemma on gradient norms) uses the mean square
#
# $$F_k = v_k + b_k^2, \qquad v_k = \frac{\sigma_k^2}{\sigma^2}, \qquad b_k = \frac{\mu_k - \mu}{\sigma},$$
#
# and shows that the expected squared gradient norm grows with it. Under the own baseline $F_k$ is 1. But large is not the same as harmful, because clipping and AdamW divide the size out again. They cannot divide out the share of the second term. So this kit looks at
#
# $$\text{signal}_k = \frac{\sigma_k^2}{\sigma_k^2 + (\mu_k - \mu)^2}.$$
#
# Why is the offset noise? The gradient is a sum of $A_i z_i$, where $z_i = \nabla \log \pi$ of the answer. Over the answers of a policy, $z$ averages to 0, and so does a constant times $z$. In a batch of few rows it does not average out, and pushes the weights at random.
#
# On the five rows the helper has $\mu_k = 0.1$, $\sigma_k = 0.1$, $\mu = 0.4$. So $(\mu_k - \mu)^2 = 0.09$ and $\sigma_k^2 = 0.01$: signal = 0.1. And $F_k = (0.01 + 0.09) / 0.187 = 0.54$.

# %%
credits = lab.group(turns, by="task", credit=lab.episode_return())
lab.inflation(credits)[["agent", "n_k", "mu_k", "sigma_k", "mu", "sigma", "b_k", "v_k", "F_k", "signal"]].round(2)

# %% [markdown]
# `F_k` is below 1, so this helper's gradient is *smaller* under the global baseline than under its own. But nine tenths of it are noise.
#
# ### What does an own mean give and take?
#
# An own mean removes the offset. It also shrinks the rest by $1 - 1/n_k$, and teaches nothing from lone and flat rows. The table of `RewardInspector` states both sides for every agent of a rollout: `signal`, and `peerless`, the share of its rows that are lone or flat. These are facts about rewards. **They do not tell which agent will learn more.** A rule made of them was tested twice on settings that were not built for it, and foretold nothing. Notebook 07 has an instrument that did: it looks at gradients.
#
# ### A team of coins
#
# Coins instead of a model give more than five rows. Solver and helper are right half of the time, whatever they say. Only the rewards are needed.


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
    """Size and signal of these agents, and what else their rewards show."""
    told = lab.RewardInspector(turns).table.set_index("agent")
    return told.loc[list(agents), ["spoke", "rows", "peerless", "F", "signal"]]


# %% [markdown]
# *Predict:* `pay` goes from 0.1 to 1. For the helper, does F rise or fall? Does signal rise or fall? At about which pay is half of its squared advantages signal?

# %%
pays = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
pd.concat({pay: numbers(coin_help(pay), ["helper"]) for pay in pays}, names=["pay"]).droplevel("agent").round(2)

# %% [markdown]
# *Explain:* (`spoke`: the share of the episodes in which the agent spoke; `rows`: how often in all; `peerless`: as above.) F hardly changes. It is 0.8 at a pay of 0.2, where 5 % of the helper's squared advantages are signal. It is 1.2 at a pay of 1, where 80 % are. Half are signal at a pay between 0.6 and 0.8. So one number of the task decides how much of this agent's advantages is noise.
#
# The histograms show the same: above the credits, with the helper's own mean and the mean of all; below the advantages under each baseline. Move `pay` and watch the hollow bars.


# %%
def look(pay):
    turns = coin_help(pay)
    helper = numbers(turns, ["helper"]).iloc[0]
    print(f"pay {pay}: F of the helper {helper['F']:.2f}, signal {helper['signal']:.2f}")
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
# Now there are more agents. Stage $j + 1$ is reached only if stage $j$ was right. Each stage is right seven times in ten. At the end the team earns the share of stages passed.


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
# *Predict:* a high stage is reached only in episodes that went well. Which sign does its offset have? Does signal rise or fall with the stage? What happens to the share of rows that an own mean cannot use?

# %%
numbers(coin_ladder(8), [f"stage_{number + 1}" for number in range(8)]).round(2)

# %% [markdown]
# *Explain:* this offset is positive. Stage 8 is compared with episodes that ended on stage 2. So it is far above the mean even when it fails, and is always reinforced. Signal falls from 1 to almost 0, and F rises to 3.4: here size and signal agree. At the same time `peerless` rises: 70 % of stage 8's rows are alone or among equals in their task, and an own mean cannot use them. Which of the two matters more? The tables cannot say.
#
# With two agents (`coin_ladder(2)`) only a third of stage 2's squared advantages is signal, too. Training will show whether this harms.


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
# **03.1** (10 minutes, medium) Write Dr. MAS's advantage. Use the mean and the standard deviation (dividing by $n$) of the agent's own rows in the task. The advantage is 0 where its rows are lone or flat. Use pandas only: `groupby(...).transform(...)`. The check compares your answer with the cell on random tables.


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
# **03.2** (8 minutes, medium) Compute the signal of one agent, from a table that holds one task. Note which rows count once in $\mu$.


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
# **03.3** (8 minutes, medium) A pencil is enough. Here are five agents of teams with eight episodes a task. `b` is $\mu_k - \mu$, and `sigma_k` is the deviation of the agent's own credits. For which agents is more than half of the squared advantages under the mean of all an offset? Of these, leave out those with fewer than two rows in a task: an own mean has hardly anything to compare there.

# %%
candidates = pd.DataFrame(
    [("planner", 8.0, 0.0, 0.43), ("critic", 2.0, 0.2, 0.25), ("tester", 6.0, 0.3, 0.25), ("closer", 3.0, -0.3, 0.08),
     ("auditor", 1.2, -0.3, 0.15)],
    columns=["agent", "n_k", "b", "sigma_k"],
)  # fmt: skip
display(candidates)
### BEGIN SOLUTION
mostly_offset = ["tester", "closer"]
### STARTER
# mostly_offset = ...
### END SOLUTION
lab.course.check("03.3", candidates, mostly_offset)

# %% [markdown]
# ## Does it happen to real policies?
#
# From here on we use real tokens, log-probabilities and gradients. In `paid_help`, solver and helper are pocket models of 0.3 million weights that answer *chains* of digits. **The rule of chains: compute from left to right, and keep only the last digit of each step. Below 0, add 10.** There is no other precedence:
#
# | chain | right answer | a wrong answer |
# |---|---|---|
# | `3 + 4 * 2 - 9 + 6` | `7 4 5 1 answer 1` | `8 1 2 8 answer 8` |
#
# The right answer: 3 + 4 = 7; 7 * 2 = 14, so 4; 4 - 9 = -5, so 5; 5 + 6 = 11, so 1. The wrong one multiplies first. An answer may also leave out the steps (`answer 1`). A helper reads the solver's wrong answer as well, in words such as `tried 8`.
#
# The solver is frozen, so only the helper learns. Only the baseline differs between runs. The reward is:
#
# $$R = \begin{cases} 1 & \text{solver right} \\ \texttt{pay} & \text{solver wrong, helper right} \\ 0 & \text{both wrong} \end{cases}$$
#
# Here is an answer of each kind from the first rollout. `local_reward` is 1 for a right answer and 0 for a wrong one:

# %%
env = lab.make_env("paid_help", pay=0.2)
team = lab.Team.per_agent(lambda agent: lab.load_policy(env.pocket, lr=3e-4), env.agents, frozen=("solver",))
first = lab.rollout(env, team, env.tasks(8 if SMOKE else 64, "train", seed=0), lab.episodes(8), seed=0)
first.drop_duplicates(["agent", "local_reward"])[["agent", "prompt", "completion", "local_reward", "team_reward"]]

# %% [markdown]
# For this rollout, `RewardInspector` shows what you have computed for coins. It begins with the *verdict*, one or two sentences about what stands out; `lab.verdict` returns it for any table or run. Credits, advantages under both baselines and numbers per agent follow.

# %%
judged = lab.RECIPES["grpo"].advantages(first)
print(lab.verdict(judged))
lab.RewardInspector(judged)

# %% [markdown]
# *Whose mean?* Move this menu to "the task", and leave the deviation. The sentence below says whose rows change most, and the table has both sides and their difference.

# %% [markdown]
# (All numbers are folded below the figures. `mean` to `75 %`: of the agent's credits; `valid`: answers that could be read; `b`, `v`, `F`, `signal`: as above, over all tasks. `lone`, `flat`: shares of rows by the groups in the table, which are whole tasks here.) The pocket model plays much like the coins.

# %% [markdown]
# ### The same in plain code
#
# `mas_lab/plain.py`, the whole method in one file, has eight lines for cell 3. On the same table it gives the same advantages.

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
# We called the offset "noise" after looking at rewards alone. To test it on real gradients, cut a batch in two, with other tasks in each half. Compute the helper's gradient of each half. The signal $s$ of a gradient is the same in both halves; its noise $n$ is not. So the angle between the two gradients says how much of them is signal:
#
# $$\cos(g_1, g_2) \approx \frac{|s|^2}{|s|^2 + \mathbb E|n|^2}.$$
#
# All pays judge the *same completions*: the helper does not know what help is worth.

# %% [markdown]
# *Predict:* 0 means that the two halves have nothing in common; 1 means that they agree. What will the cosine be under `grpo` at a pay of 0.1, and at 1.0? What will it be under `dr_mas`? And what about the gradient's norm?

# %%
import torch


def helper_gradient(rows):
    """The helper's gradient on these rows, as one vector. No step is made: notebook 04 has the details."""
    kept = []

    def keep(batch):
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
# *Explain:* under `grpo` at a pay of 0.1 the two halves have nothing in common. Steps along such a gradient are a random walk. At a pay of 1 the halves agree as well as under `dr_mas`, where nothing depends on the pay. Now look at the norms: the gradient that is all noise is the *shortest* one.
#
# The next table has the mean cosines of ten recorded batches, and the signal in the helper's rewards:

# %%
halves = pd.read_csv(RECORDS / "whose_mean" / "halves.csv")
cosine = halves.pivot_table(index="pay", columns="recipe", values="cosine")
cosine.assign(signal=halves.groupby("pay")["signal"].mean()).round(2)

# %% [markdown]
# The cosine under `grpo` rises from 0.02 at a pay of 0.1 to 0.71 at 1.0. Under `dr_mas` it is 0.74 whatever the pay. So `signal` is right about the noise of the gradient, though it looks at rewards alone.
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
# *Predict:* four trainings take 30 steps: `grpo` and `dr_mas`, at a pay of 0.2 and of 1.0. In which is the helper right most often in the end, and in which least often? (It starts at 0.44.) What will `pay` change for `dr_mas`? Which run will have the largest gradient norms?

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
# - `lab.train` prints a verdict at the end of each training, after recipe, learning rate and seed. In our run it names the helper under `grpo` at a pay of 0.2: most of its advantage rewarded wrong answers or punished right ones. In the other three runs nothing stands out. (The printed recipe `own_robust` is another form of an own mean; `docs/recipes.md` has it.)
# - Under `grpo` at a pay of 0.2 the helper learns little. Every answer is made less likely, right or wrong. So the helper cannot settle on an answer: its entropy stays about three times as high.
# - **The norms do not show it.** The largest norms are those of `grpo` at a pay of 1.0, which learns well.
# - The two `dr_mas` runs are the same run, token by token. Own mean and own scale do not see what help is worth, only which help was better.
# - Success starts at 0.75, because the solver is right in about half of the tasks without help. It does not end at 1, because sampling sometimes draws an unlikely digit.
#
# One seed could be luck. These are five recorded seeds of the same trainings (`benchmarks/whose_mean.py`):

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
# At a pay of 0.2, `grpo` ends between 0.77 and 0.84 and `dr_mas` between 0.95 and 0.98. At 1.0, `grpo` ends between 0.94 and 0.96 and `dr_mas` between 0.95 and 0.98.
#
# **The fair comparison.** All of these ran at one learning rate, 3e-4. A noisy gradient needs a lower one. So the study in `data/results/studies/baselines` first gave each arm the best of four rates. Then it ran ten seeds, each with its own first weights. `global` is `grpo`, and `own` is `dr_mas`. Pays other than 0.2 and 1.0 explore, with three seeds:

# %%
study = RECORDS / "studies" / "paid_help"
helper = Recorded(study).agents.query("agent == 'helper' and window == 'start' and arm == 'global'")
board = lab.AblationBoard(study)
finals = board.table.pivot(index="env", columns="recipe", values="final")[["global", "own"]]
paired = board.differences.query("recipe == 'own'").set_index("env")["final"].rename("own - global, by seed")
told = helper.groupby("task")[["F", "signal"]].median()
told.join([finals, paired]).loc[[f"pay {pay}" for pay in pays]].round(2)

# %% [markdown]
# *Explain:* (`F`, `signal`: of the first five steps, before much was learned; `global`, `own`: success in the end, the mean of the middle half of the seeds.) At its own best rate, 1e-4, the global baseline loses 0.06 at a pay of 0.2 (95 % interval 0.05 to 0.07, ten seeds). It is not 0.15: a lower rate hides more than half of the harm. At a pay of 0.4 only a fifth of the squared advantages is signal, and yet three seeds show almost no difference. So noise in the gradient is one thing, and harm another. F is between 0.9 and 1.3 and shows nothing.

# %% [markdown]
# ## The ladder
#
# Now each agent has its own chain of digits and its own weights. Stage $j + 1$ is reached only if stage $j$ was right. At the end the team earns
#
# $$R = \frac{\text{stages passed}}{\text{stages}}.$$

# %% [markdown]
# *Predict:* take two agents and eight, `grpo` and `dr_mas`. Which of the four teams climb? The usual norm is about 0.5. Which stage will have the largest norm, and how large will it be? Success means that *all* stages are right. What does a team of eight reach if each stage is right 95 times in 100?

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
# *Explain:* (`right`: how often that stage answers right in the end, where it is reached.) Two agents learn under either baseline, although most of stage 2's squared advantages is offset. With eight agents, `dr_mas` climbs and `grpo` does not. The verdict of that run names a high stage, and of the other three says that nothing stands out.
#
# Read the table from the top. The low stages learn under both baselines. Higher stages only speak in episodes that already go well, and the global baseline reinforces whatever they say. The norms rise from stage to stage, and the top stage learns nothing. Why are they so large, and mostly in the first half of the training? There the high stages are reached very rarely. Their gradient is a mean over a few rows, in which nothing averages out. Each row has an advantage of up to $\sqrt 7 \approx 2.6$. Their own baseline gives a lone row advantage 0. Notebook 05 opens such a norm to its tokens.
#
# Is the norm the cause? Clip at 0.1, do not clip at all, or use SGD. In all three cases the recorded teams of eight fail under the global baseline and climb under their own. So the norm is a symptom. In `paid_help` the harm comes without a large norm. On `math` (05) the large norm comes without harm. **The two harmed teams have one thing in common: little signal.**
#
# Here are the recorded seeds:

# %%
dots("ladder")

# %% [markdown]
# Two agents end between 0.83 and 0.89 under either. Eight end between 0.51 and 0.60 under `dr_mas`, between 0.01 and 0.13 under `grpo`. The largest norm of a run is 1.6 to 2.7 under `dr_mas`, 13 to 22 under `grpo`. Eight agents do not reach 1. If each of eight stages is right with 0.95, all are right with $0.95^8 = 0.66$. The runs have equal episodes and optimizer steps. Their tokens are not equal, because a team that gets further says more (some 130,000 against 100,000 to 115,000).

# %% [markdown]
# ## Mean, scale, or which rows?
#
# Between `grpo` and `dr_mas` three things change at once: the mean, the scale, and which rows are trained on. The third is easy to miss. Under `dr_mas` a row whose own group is lone or flat gets advantage 0; `grpo` trains on it. Such a row has no *peer*: no row that it can be compared with. A comparison of means needs a control for this. `grpo_masked` is `grpo` with exactly these rows at 0 (`normalize(lone=("task", "agent"))`).
#
# The scale may also come from more than one task. `own_pooled` takes the agent's own mean per task, and one standard deviation of all its credits in the batch.
#
# The study `baselines` has seven arms in six settings. It has ten seeds with different first weights, and each arm uses the best of four learning rates.

# %% [markdown]
# *Predict:* sort the arms by the success of a ladder of eight: `grpo`, `grpo_masked`, own mean, own scale, own scale lent, `dr_mas`, `own_pooled`. How much of the gain from `grpo` to `dr_mas` comes from leaving out rows alone?

# %%
baselines = Recorded(RECORDS / "studies" / "baselines")
board = lab.AblationBoard(baselines)
ladder = board.table[board.table["env"] == "ladder of 8"].set_index("recipe")
ladder[["seeds", "final", "final_low", "final_high"]].round(2)

# %% [markdown]
# *Explain:* (`final`: the mean of the middle half of the seeds, `final_low` to `final_high` its 95 % interval.) `grpo` ends at 0.03, `grpo_masked` at 0.19, `dr_mas` at 0.27.
#
# Compare the arms seed by seed. Leaving out rows without a peer gains +0.14 (95 % interval +0.03 to +0.25). Own mean and own scale gain together +0.21 (+0.07 to +0.34). So more than half of what looked like the mean's effect is not the mean's.
#
# The own scale gains +0.13, as much as leaving out rows does. Its flat groups have no scale, so they drop out. With the task's scale ("lent") they are trained on again, and +0.10 is left. If the mean is the agent's own, the scale hardly matters here: own mean +0.20, `own_pooled` +0.20. The intervals are wide because the ten seeds have first weights of different strength. Four of them do not reach the top under any arm.
#
# ### A scale that ruins an agent
#
# In `stakes` a helper is called where a solver was wrong. In about three tasks of ten a right answer earns it 0.3. In all other tasks it earns 0.5, right or wrong. Every word costs it 0.004.

# %% [markdown]
# *Predict:* in most tasks the helper's rewards differ only by the cost of a few words. `dr_mas` divides them by their own deviation. What will the helper learn? And what will it learn under `own_pooled`, where one deviation divides all of its rewards?

# %%
helper = baselines.agents.query("task == 'stakes' and agent == 'helper' and window == 'end'")
helper.groupby("arm", sort=False)[["quiz_before", "quiz_after"]].mean().round(2)

# %% [markdown]
# *Explain:* (`quiz_before`, `quiz_after`: how often the helper is right before and after training, on 64 problems outside of any episode; means of ten seeds.) Under `dr_mas` it *falls*, from 0.35 to 0.19. In most tasks the shortest answer earns the most. After the division this counts as much as a right answer does in the other tasks. So the helper stops working out its answers. Each arm had its best of four learning rates. For `dr_mas` that was the smallest, because any training harms. `grpo` comes to 0.42, the own mean with the task's scale to 0.52, and `own_pooled`, the same own mean with one scale, to 0.63.
#
# ### What would change the answer
#
# - **One set of weights for all eight**: then `grpo` climbs as well (three seeds: 0.71, 0.62 and 0.13, own 0.73, 0.65 and 0.19). What stage 1 learns also helps stage 8, and one gradient contains the offsets of low and high stages.
# - **Agents that speak about equally often** (solver and verifier of `math`, the three agents of `search`): with ten seeds we could not detect a difference.
# - So an own mean is for *separate* policies that are called *rarely* and *on a condition that shifts their rewards*. Rewards alone do not tell which agents these are: `data/results/foretold` lists every agent on which such a rule was tried. `lab.uphill` (notebook 07) measures gradients before training, and passed its test.
#
# ## Your turn, once more
#
# **03.4** (15 minutes, hard) Design an example with eight episodes. `rewards` are from 0 to 1. `called` lists the episodes in which a critic speaks: at least three, from 0 to 7. The team's norms must look healthy: F between 0.9 and 1.1. But the critic must learn almost nothing: signal below 0.1. The critic's own rewards must not be all the same.

# %%
### BEGIN SOLUTION
rewards = [1, 1, 1, 1, 0.1, 0, 0.1, 0]
called = [4, 5, 6, 7]
### STARTER
# rewards = [1, 1, 1, 1, 0, 0, 0, 0]  # <- change both
# called = [2, 3, 4, 5]
### END SOLUTION
lab.course.check("03.4", rewards, called)

# %% [markdown]
# **03.5** (25 minutes, hard) *Build it.* Write cell 3: the advantage (credit − mean) / (deviation + 1e-6) of each row within its `group`. With `once_per="episode"`, each episode counts once in the mean and in the deviation, with the mean of its credits. With `divide=False`, only the mean is subtracted. A row gets 0 if its group has one row (or one episode, with `once_per`), or if it would be divided by a deviation of 0. Return a number per row. `plain.normalize` does the same; look there last.


# %%
def my_normalize(turns, once_per=None, divide=True):
    ### BEGIN SOLUTION
    unit = turns[once_per] if once_per else turns.index
    units = turns.groupby(["group", unit])["credit"].mean().groupby(level="group")
    size, mean, deviation = (turns["group"].map(one) for one in (units.size(), units.mean(), units.std(ddof=0)))
    advantage = (turns["credit"] - mean) / (deviation + 1e-6 if divide else 1)
    return advantage.mask((size < 2) | (divide & (deviation < 1e-12)), 0.0)
    ### STARTER
    # pass  # your code here
    ### END SOLUTION


lab.course.check("03.5", my_normalize)

# %%
lab.course.progress("03")

# %% [markdown]
# Does an agent's reward look like this in a team of yours? The answer costs one rollout.
#
# ## What to remember
#
# - A baseline decides who is compared with whom. A global baseline adds the same number to all advantages of an agent. The agent is rewarded or punished for *being called*, whatever it says.
# - Look at `signal`, not at the norm: it says how much of the advantages is noise. It does not tell who will learn more. The scale and the rows without a peer matter as well.
# - An own baseline has a cost: fewer rows, and lone and flat groups. If no agent is called rarely, it changes nothing.
#
# GRPO: arXiv 2402.03300, section 4.1. Dr. MAS: arXiv 2602.08847, equations 4 to 6. RLOO: arXiv 2402.14740. `data/results/studies/baselines` has all runs and intervals.
#
# Next: `04_update` goes from an advantage to an optimizer step.
