# %% [markdown]
# # Quickstart: one table, four cells
#
# *Level: you know PyTorch and softmax, and no reinforcement learning. Reading: 15 minutes. Compute: about 1 minute on two CPU cores.*
#
# A **planner** and an **executor** share one small language model (0.3 million parameters) and walk through mazes. The planner proposes moves. The executor sees the proposal and commits moves. Nobody shows them right answers: both learn from reward alone.
#
# In this notebook you run one training step by hand, watch a team learn from 0.5 to about 0.9, and change one argument of a published algorithm.
#
# The whole method is one table that flows through four cells. Each cell only adds columns; a drawing follows below.
#
# | word | here |
# |---|---|
# | policy | a language model: it gives each possible next token a probability, and one token is drawn |
# | agent | a role with its own prompt; several agents may share one policy |
# | environment | the rules: who acts, what each agent sees, what an action earns |
# | episode | one task played to its end |
# | reward, return | what an action earned; the sum of rewards over an episode |
# | baseline | the number that is subtracted from a reward; a reward above it is reinforced |
#
# `lab.course.glossary()` explains all words of the course.

# %% tags=["install"]

# %% tags=["parameters"]
SMOKE = False  # True: a few steps only, to see that everything runs

# %%
import pandas as pd

import mas_lab as lab
from mas_lab.demo import trials as demo
from mas_lab.widgets.figures import dialogue, mazes

STEPS = 2 if SMOKE else demo.STEPS
lab.course.loop()

# %% [markdown]
# ## The nouns: an environment, a team, some tasks
#
# An environment says who acts, what each agent sees, and what an action earns. A team says which policy plays which role. Here one set of weights plays both roles. The model speaks in squares of the maze: `b3 c3` means "go to b3, then to c3".

# %%
env = lab.make_env("plan_path")
team = lab.Team.shared(lab.load_policy(env.pocket, lr=demo.LR), env.agents)
tasks = env.tasks(4, split="train", seed=1)

state = env.start(tasks[0])
print(f"{env.agents=}  {env.max_turns=}  {env.max_return=}")
print("the planner sees: ", env.observe(state, "planner")[0]["content"])

# %%
mazes(env, tasks[0], {"one episode of the untrained team": lab.rollout(env, team, tasks[:1], lab.episodes(1))})

# %% [markdown]
# The maze keeps rewards exact and training short. The same cells train teams that speak words, such as two writers who summarise one text, a short and a detailed one:

# %%
writers = lab.make_env("tldr")
pair = lab.Team.shared(lab.load_policy(writers.pocket), writers.agents)
told = lab.rollout(writers, pair, writers.tasks(1, split="train", seed=0), lab.episodes(1))
dialogue(told, told["episode"].iloc[0])

# %% [markdown]
# **What is rewarded.** In the maze, let $d(s)$ be the length of the shortest path from $s$ to the goal. Moves that lead from $s$ to $s'$ earn the team
#
# $$ r_{\text{team}} = \frac{d(s) - d(s')}{d(s_0)} + \mathbb{1}[s' \text{ is the goal}]. $$
#
# The progress of an episode adds up to at most 1, however it is cut into turns. The goal adds 1 more, and no detour pays. Each agent also earns its own `local_reward`: the share of its moves that lie on a shortest path. A proposal is scored as if it had been walked.
#
# ## Cell 1: rollout
#
# `tree(4)` is AT-GRPO's plan. At every turn, the acting agent draws 4 candidates for the *same* prompt, and each candidate is scored. The best one moves the state, and the next agent sees the new state. **One row is one model call.**

# %% [markdown]
# *Predict:* 4 mazes, at most 4 turns per agent, 4 candidates per turn. How many rows will the table have at most, and at least?

# %%
turns = lab.rollout(env, team, tasks, plan=lab.tree(4), seed=0)
print(len(turns), "model calls")
turns[["episode", "agent", "turn", "candidate", "kept", "prompt", "completion", "team_reward", "local_reward"]].head(8)

# %% [markdown]
# *Explain:* there are at most 4 × 4 × 2 × 4 = 128 rows. There are at least 32, if every maze is solved in the first round. The first four rows answer one prompt, the planner's, and one of them is `kept`. A proposal moves nobody, so its `team_reward` is 0. The next four rows are the executor's. Its prompt also contains the proposal that was kept.
#
# Every column has one meaning, declared once. These are the columns above; `lab.schema()` has all:

# %%
meaning = lab.schema()
meaning[meaning["column"].isin(["episode", "turn", "candidate", "kept", "team_reward", "local_reward"])]

# %% [markdown]
# ## Cell 2: group
#
# A reward alone says little: 0.5 may be much in a hard maze and little in an easy one. So an answer is compared with other answers. Which ones?

# %% [markdown]
# *Predict:* the first four rows answer the same prompt. The next four answer another prompt, which also contains a proposal. Who should be compared with whom, and on which number?

# %%
turns = lab.group(turns, by=("episode", "agent", "turn"), credit=lab.mixed(alpha=1.0), same_prompt=True)
turns[["agent", "turn", "candidate", "completion", "team_reward", "local_reward", "credit", "group"]].head(8)

# %% [markdown]
# *Explain:* AT-GRPO ([arXiv 2510.11062](https://arxiv.org/abs/2510.11062)) compares the candidates of one agent at one turn. Two rows are in one `group` if they agree in all columns of `by`. The compared number is the `credit`. Here it is $\alpha\, r_{\text{team}} + r_{\text{local}}$ with $\alpha = 1$.
#
# `same_prompt=True` makes the cell check this. If two rows of a group answer different prompts, it raises an error that names the task, the agent and the turn.
#
# ## Cell 3: normalize
#
# *By hand first.* Four candidates earned the credits 0.25, 0.25, 0.75 and 0.75. Their mean is 0.5. Their standard deviation, which divides by the number of rows (4, not 3), is 0.25. So the **advantages** are −1, −1, +1, +1. In general, for row $i$ of group $g$ with mean $\mu_g$ and standard deviation $\sigma_g$,
#
# $$ A_i = \frac{c_i - \mu_g}{\sigma_g + \varepsilon}. $$
#
# The group's mean is the baseline. $\varepsilon = 10^{-6}$ avoids a division by 0. No network has to estimate how good a state is, because the other candidates show it. That is the idea of GRPO ([arXiv 2402.03300](https://arxiv.org/abs/2402.03300)).

# %% [markdown]
# *Predict:* four candidates all earned 0.75. What is their advantage? What should the policy learn from them?

# %%
turns = lab.normalize(turns)
turns[["agent", "turn", "candidate", "completion", "credit", "center", "scale", "advantage"]].head(8)

# %%
stats = lab.group_stats(turns)
print(f"{len(stats)} groups, {stats['flat'].mean():.0%} of them flat: their rows teach nothing in this step")
stats.head()

# %% [markdown]
# *Explain:* `center` and `scale` are the group's mean and standard deviation. In a *flat* group, all rows earned the same, so no row is better than another. Their advantage is 0, not the raw reward, and not 0/0.
#
# Here is the same by hand, for the first group that is not flat:

# %%
name = stats.loc[~stats["flat"], "group"].iloc[0]
credit = turns.loc[turns["group"] == name, "credit"].to_numpy()
by_hand = (credit - credit.mean()) / (credit.std() + 1e-6)
assert abs(by_hand - turns.loc[turns["group"] == name, "advantage"]).max() < 1e-9
pd.DataFrame(
    {"credit": credit, "by hand": by_hand, "cell 3": turns.loc[turns["group"] == name, "advantage"].to_numpy()}
)

# %% [markdown]
# ## Cell 4: update
#
# The update makes an answer more likely if it was better than its comparison, and less likely if it was worse. Each sampled token has a probability under the weights that learn, and another under the weights that drew it. Let $\rho = p_{\text{now}} / p_{\text{sampled}}$ be their ratio. The loss of a token is
#
# $$ -\min\big(\rho\,A,\ \mathrm{clip}(\rho,\, 1-0.2,\, 1+0.2)\,A\big) $$
#
# (PPO, [arXiv 1707.06347](https://arxiv.org/abs/1707.06347), eq. 7). Its gradient pushes a token's log-probability in the direction of $A$. It stops once the ratio has moved by a fifth, because later minibatches would use rewards of an older policy (see notebook 04).
#
# The cell returns a row per agent:
#
# - `grad_norm` and `grad_norm_clipped`: the norm of *its* part of the gradient before and after clipping, also with shared weights.
# - `entropy`: the mean over its tokens, in nats.
# - `clip_fraction`: the share of tokens whose loss was clipped.
# - `mismatch`: how far the sampler's token probabilities are from the trainer's. It should be close to 0.

# %%
stats = lab.update(team, turns, loss=lab.clipped(0.2))
stats[["policy", "agent", "turns", "tokens", "grad_norm", "grad_norm_clipped", "entropy", "clip_fraction", "mismatch"]]

# %% [markdown]
# ## The loop
#
# `lab.train` runs these four cells in a loop. It is a generator that yields a report per step; `lab.LiveDashboard` runs it for you and shows the curves. A recipe is a row of a table: the arguments of the cells.

# %%
lab.RECIPES["at_grpo"]

# %% [markdown]
# **What to expect.** Twenty steps of 32 mazes take about half a minute. Success is measured on mazes that training never shows. In training, the best of 8 candidates moves the state, so the team looks better than it is alone. Success starts near 0.5, because the pocket model was warmed up on imperfect play. It climbs fast for ten steps, then slowly. Over three recorded seeds it went from 0.48 to 0.93, 0.93 and 0.95.

# %% [markdown]
# *Predict:* draw the curve of success over training steps. After which part of the training is half of the gain made?

# %%
team = demo.make_team(env)
before = demo.held_out(env, team)
live = lab.LiveDashboard(env, team, "at_grpo", steps=STEPS, seed=0, score_every=demo.SCORE_EVERY, **demo.SETTINGS)
live

# %%
live.wait()
after = demo.held_out(env, team)
print(f"success on {demo.HELD_OUT} mazes that training never showed: {before:.2f} before, {after:.2f} after")

# %% [markdown]
# *Explain:* more than half of the gain comes in the first five steps. Later, more candidates earn the same, more groups are flat, and fewer rows teach. A point of the curve is 64 mazes × 4 episodes. So chance alone may move it by about 0.03.
#
# **Why 0.93 and not 1?** One possible reason: tokens are drawn at random, and sometimes an unlikely one is drawn.

# %% [markdown]
# *Predict:* let the trained team play at a lower temperature, until it nearly always says the likeliest token. Will it solve more mazes? Will there be mazes that it never solves?

# %%
played = {}
for temperature in (1.0, 0.5, 0.01):
    sampling = dict.fromkeys(env.agents, lab.Sampling(temperature=temperature))
    scores = lab.evaluate(env, team, env.tasks(8 if SMOKE else demo.HELD_OUT, "test", seed=0), k=4, sampling=sampling)
    by_maze = scores.groupby("task")["success"].mean()
    played[temperature] = {"success": by_maze.mean(), "mazes never solved in 4 episodes": (by_maze == 0).mean()}
pd.DataFrame(played).T.rename_axis("temperature").round(3)

# %% [markdown]
# *Explain:* it solves hardly more. In our runs success is the same at temperature 0.01, but now a few mazes in a hundred are *never* solved. So the remaining failures are not bad luck. In these mazes the small model believes that a wrong turn is right, and only a random draw sometimes saves it.
#
# You can interrupt the kernel at any time. With `run="quickstart"` the loop keeps its tables and checkpoints in a folder. The same call then continues where it stopped, bit for bit.
#
# ## Who earned what
#
# `RewardInspector` begins with the *verdict*: one or two sentences about what stands out in the training, or "Nothing stands out." A panel per agent follows, with its own reward and the share of its wrong answers that were reinforced, over training. Below are the first step's credits, and the advantages that two baselines make of them: one mean for all agents, or a mean for each agent. Notebook 03 explains the difference. All numbers unfold.

# %%
lab.RewardInspector(live, step=0)

# %% [markdown]
# `lab.verdict(run)` says the same without figures, and `lab.train` prints it at its end. When something stands out, it names the agent and what to compare it with.

# %% [markdown]
# ## What changed, in one episode
#
# Both teams play a maze that the untrained team fails.

# %%
task, untrained, trained = demo.before_and_after(env, demo.make_team(env), team)
mazes(env, task, {"before": untrained, "after": trained})

# %%
dialogue(untrained, untrained["episode"].iloc[0])

# %%
dialogue(trained, trained["episode"].iloc[0])

# %% [markdown]
# The viewer shows every episode of a step like this, with the other candidates and what each one earned. The list begins with the most telling episodes, failures first. Click on one, or press `f` for the next failure:

# %%
lab.RolloutViewer(live)

# %% [markdown]
# ## Your turn
#
# `lab.course.check` says whether an answer is right, or where it is not right yet. `lab.course.hint("00.1")` helps.
#
# **00.1** (4 minutes, easy) Five candidates of one group earned the credits 0.2, 0.2, 0.2, 0.6 and 0.8. Compute their advantages by hand, to two decimals. (The standard deviation divides by 5.)

# %%
### BEGIN SOLUTION
advantages = [-0.79, -0.79, -0.79, 0.79, 1.58]
### STARTER
# advantages = ...
### END SOLUTION
lab.course.check("00.1", advantages)

# %% [markdown]
# **00.2** (3 minutes, easy) Read a number from the table `fresh`: how many of the executor's candidates did *not* move the state? One line of pandas is enough.

# %%
fresh = lab.rollout(env, team, tasks, plan=lab.tree(4), seed=0)
### BEGIN SOLUTION
number = int(((fresh["agent"] == "executor") & ~fresh["kept"]).sum())
### STARTER
# number = ...
### END SOLUTION
lab.course.check("00.2", fresh, number)

# %% [markdown]
# **00.3** (5 minutes, easy) An ablation changes one argument. Now compare all rows of a task: every agent and every turn share one global baseline. Change `by` only: the credit stays, team plus own reward. Look at the size of the groups.

# %%
### BEGIN SOLUTION
by = ("task",)
### STARTER
# by = ("episode", "agent", "turn")  # <- change this line
### END SOLUTION

yours = lab.normalize(lab.group(fresh, by=by, credit=lab.mixed(alpha=1.0)))
print(f"{yours['group'].nunique()} groups of {yours.groupby('group').size().mean():.0f} rows on average")
lab.course.check("00.3", yours)

# %% [markdown]
# **00.4** (15 minutes, medium) *Build it.* Write one training step of AT-GRPO from the four cells. Draw 4 candidates per turn with the given seed, compare the candidates of one agent at one turn on team plus own reward, and update with the clipped loss. Return the table of the update. The check trains two equal teams, one with your step and one with ours, and compares the gradient norms.


# %%
def my_step(env, team, tasks, seed):
    ### BEGIN SOLUTION
    turns = lab.rollout(env, team, tasks, plan=lab.tree(4), seed=seed)
    turns = lab.group(turns, by=("episode", "agent", "turn"), credit=lab.mixed(alpha=1.0))
    return lab.update(team, lab.normalize(turns), loss=lab.clipped(0.2))
    ### STARTER
    # pass  # your code here
    ### END SOLUTION


lab.course.check("00.4", my_step)

# %% [markdown]
# *Why it matters:* an executor's candidates earn `team_reward` on top of `local_reward`; a planner's candidates do not. Under one global baseline most planner rows are below the mean, whatever they said. This course asks by whose rewards an agent is judged.
#
# **To remember.** A row is a model call. A group says which rows are compared. An advantage is a credit minus its group's mean, in units of its standard deviation. In a flat group it is 0.
#
# Next: `01_rollout`. `lab.RECIPES` holds the published methods and their ablations. `lab.train(env, team, "grpo", ...)` trains with another one. `12_the_study` compares recipes over seeds, at equal tokens.
