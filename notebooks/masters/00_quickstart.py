# %% [markdown]
# # Quickstart: one table, four cells
#
# *Level: you know PyTorch and softmax, and no reinforcement learning. Reading: 15 minutes. Compute: about 2 minutes on two CPU cores.*
#
# A **planner** and an **executor** share one small language model (0.3 million parameters) and walk through mazes. The planner proposes moves, the executor sees the proposal and commits moves. Nobody shows them right answers: both learn from reward alone.
#
# At the end you will have run one training step by hand, watched a team learn from 0.5 to about 0.9, and changed one argument of a published algorithm.
#
# The whole method is one table that flows through four cells. Each cell only adds columns:
#
# | cell | adds |
# |---|---|
# | `rollout` | who said what, and what it earned |
# | `group` | who is compared with whom, on which number |
# | `normalize` | the advantage: how much better than its comparison was this answer? |
# | `update` | nothing: it steps the optimizer and reports |
#
# | word | here |
# |---|---|
# | policy | a language model: it gives every next token a probability, and one is drawn |
# | agent | a role with a prompt of its own; several agents may share one policy |
# | environment | the rules: who acts, what each agent sees, what an action earns |
# | episode | one task played to its end |
# | reward, return | what an action earned; the sum of it over an episode |
# | baseline | what is subtracted from a reward before it is praise or blame |
#
# All words of the course: `lab.course.glossary()`.

# %% tags=["install"]

# %% tags=["parameters"]
SMOKE = False  # True: a few steps only, to see that everything runs

# %%
import pandas as pd

import mas_lab as lab
from mas_lab.demo import trials as demo
from mas_lab.widgets.figures import dialogue, mazes
from mas_lab.widgets.live import LiveCurve

STEPS = 2 if SMOKE else demo.STEPS

# %% [markdown]
# ## The nouns: an environment, a team, some tasks
#
# An environment says who acts, what each agent sees, and what an action earns. A team says which policy plays which role; here one set of weights plays both. The model speaks in cells: `b3 c3` means "go to b3, then to c3".

# %%
env = lab.make_env("plan_path")
team = lab.Team.shared(lab.load_policy(env.pocket, lr=demo.LR), env.agents)
tasks = env.tasks(4, split="train", seed=0)

state = env.start(tasks[0])
print(f"{env.agents=}  {env.max_turns=}  {env.max_return=}")
print("the planner sees: ", env.observe(state, "planner")[0]["content"])

# %%
mazes(env, tasks[0], {"one episode of the untrained team": lab.rollout(env, team, tasks[:1], lab.episodes(1))})

# %% [markdown]
# **What is rewarded.** Let $d(s)$ be the length of the shortest path from $s$ to the goal. Moves that lead from $s$ to $s'$ earn the team
#
# $$ r_{\text{team}} = \frac{d(s) - d(s')}{d(s_0)} + \mathbb{1}[s' \text{ is the goal}], $$
#
# so the progress of an episode adds up to 1 however it is cut into turns, the goal is 1 more, and no detour pays. Besides, each agent earns a `local_reward` of its own: the share of its moves that lie on a shortest path, a proposal's as if it had been walked.
#
# ## Cell 1: rollout
#
# `tree(4)` is AT-GRPO's plan: at every turn the agent whose turn it is draws 4 candidates for the *same* prompt. Each is scored, the best one moves the state, and the next agent sees the moved state. **One row is one model call.**

# %% [markdown]
# *Predict:* 4 mazes, at most 4 turns of each agent, 4 candidates a turn. How many rows will the table have at most, and at least?

# %%
turns = lab.rollout(env, team, tasks, plan=lab.tree(4), seed=0)
print(len(turns), "model calls")
turns[["episode", "agent", "turn", "candidate", "kept", "prompt", "completion", "team_reward", "local_reward"]].head(8)

# %% [markdown]
# *Explain:* at most 4 × 4 × 2 × 4 = 128; at least 32, if every maze were solved in the first round. The first four rows answer one prompt, the planner's; one of them is `kept`. A proposal moves nobody, so its `team_reward` is 0. The next four rows are the executor's, whose prompt has grown by the proposal that was kept.
#
# Every column has one meaning, declared once (these are the ones above; `lab.schema()` has all):

# %%
meaning = lab.schema()
meaning[meaning["column"].isin(["episode", "turn", "candidate", "kept", "team_reward", "local_reward"])]

# %% [markdown]
# ## Cell 2: group
#
# A reward alone says little: 0.5 may be much in a hard maze and little in an easy one. So an answer is compared with others. With which?

# %% [markdown]
# *Predict:* the first four rows answer the same prompt, the next four another one (a proposal has been added). Who should be compared with whom, and on which number?

# %%
turns = lab.group(turns, by=("episode", "agent", "turn"), credit=lab.mixed(alpha=1.0), same_prompt=True)
turns[["agent", "turn", "candidate", "completion", "team_reward", "local_reward", "credit", "group"]].head(8)

# %% [markdown]
# *Explain:* AT-GRPO ([arXiv 2510.11062](https://arxiv.org/abs/2510.11062)) compares the candidates of one agent at one turn. Two rows are in one `group` if they agree in all columns of `by`. The number that is compared is the `credit`, here $\alpha\, r_{\text{team}} + r_{\text{local}}$ with $\alpha = 1$.
#
# `same_prompt=True` is a promise that is checked: had two rows of a group answered different prompts, the cell would have refused and named the task, the agent and the turn.
#
# ## Cell 3: normalize
#
# *By hand first.* Four candidates earned the credits 0.25, 0.25, 0.75 and 0.75. Their mean is 0.5, their standard deviation 0.25, so the **advantages** are −1, −1, +1, +1. In general, for row $i$ of group $g$ with mean $\mu_g$ and standard deviation $\sigma_g$,
#
# $$ A_i = \frac{c_i - \mu_g}{\sigma_g + \varepsilon}. $$
#
# The group's mean is the baseline: no network has to guess how good a state is, its other candidates say it. That is the idea of GRPO ([arXiv 2402.03300](https://arxiv.org/abs/2402.03300)).

# %% [markdown]
# *Predict:* what is the advantage of four candidates that all earned 0.75? And what should one learn from them?

# %%
turns = lab.normalize(turns)
turns[["agent", "turn", "candidate", "completion", "credit", "center", "scale", "advantage"]].head(8)

# %%
stats = lab.group_stats(turns)
print(f"{len(stats)} groups, {stats['flat'].mean():.0%} of them flat: their rows teach nothing in this step")
stats.head()

# %% [markdown]
# *Explain:* `center` and `scale` are the group's mean and deviation. In a *flat* group, where all earned the same, nothing was better than anything else: the advantage is 0, not the raw reward, and not 0/0.
#
# The same by hand, for the first group that is not flat:

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
# Make what was better than its comparison more likely, and what was worse less likely. For every sampled token let $\rho = p_{\text{now}} / p_{\text{sampled}}$ be the ratio of its probability under the weights that learn to that under the weights that drew it. The loss of a token is
#
# $$ -\min\big(\rho\,A,\ \mathrm{clip}(\rho,\, 1-0.2,\, 1+0.2)\,A\big) $$
#
# (PPO, [arXiv 1707.06347](https://arxiv.org/abs/1707.06347), eq. 7): its gradient pushes a token's log-probability in the direction of $A$, and stops once the ratio has moved by a fifth, because beyond that the rewards were earned by a policy that is no more. Notebook 04 takes it apart.
#
# The cell returns a row per agent: the norm of *its* part of the gradient (also when the weights are shared), before and after clipping; the mean `entropy` of its tokens, in nats; the share of tokens at which the loss was clipped; and how far the probabilities of the sampled tokens are from those that the trainer computes (`mismatch`, which should be next to nothing).

# %%
stats = lab.update(team, turns, loss=lab.clipped(0.2))
stats[["policy", "agent", "turns", "tokens", "grad_norm", "grad_norm_clipped", "entropy", "clip_fraction", "mismatch"]]

# %% [markdown]
# ## The loop
#
# `lab.train` is these four cells in a loop, as a generator that yields a report per step. A recipe is a row of a table: the arguments of the cells.

# %%
lab.RECIPES["at_grpo"]

# %% [markdown]
# **What to expect.** Twenty steps of 32 mazes take about a minute. Success is measured on mazes that training never shows: in training the best of 8 candidates moves the state, which makes the team look better than it is alone. It starts near 0.5, since the pocket model was warmed up on imperfect play, and climbs fast for ten steps, then slowly. Over three recorded seeds it went from 0.48 to 0.93, 0.93 and 0.95.

# %% [markdown]
# *Predict:* draw the curve: success over sampled tokens. Where is half of the gain made?

# %%
team = demo.make_team(env)
before = demo.held_out(env, team)
curve, tokens = LiveCurve("at_grpo"), 0
curve.add(tokens, before)
for report in lab.train(env, team, "at_grpo", steps=STEPS, seed=0, **demo.SETTINGS):
    tokens += report.tokens
    if (report.step + 1) % demo.SCORE_EVERY == 0:
        curve.add(tokens, demo.held_out(env, team, tasks=demo.HELD_OUT // 2))
after = demo.held_out(env, team)
print(f"success on {demo.HELD_OUT} mazes that training never showed: {before:.2f} before, {after:.2f} after")

# %% [markdown]
# *Explain:* more than half of the gain comes in the first five steps. Then more and more candidates earn the same, groups go flat, and fewer rows teach. A point of the curve is 64 mazes × 4 episodes, so it may be off by about 0.03 by chance alone.
#
# **Why 0.93 and not 1?** Perhaps because tokens are drawn by chance, and now and then an unlikely one comes up.

# %% [markdown]
# *Predict:* let the trained team play at a lower temperature, down to nearly always the likeliest token. Will it solve more mazes, and will there be mazes that it never solves?

# %%
played = {}
for temperature in (1.0, 0.5, 0.01):
    sampling = dict.fromkeys(env.agents, lab.Sampling(temperature=temperature))
    scores = lab.evaluate(env, team, env.tasks(8 if SMOKE else demo.HELD_OUT, "test", seed=0), k=4, sampling=sampling)
    by_maze = scores.groupby("task")["success"].mean()
    played[temperature] = {"success": by_maze.mean(), "mazes never solved in 4 episodes": (by_maze == 0).mean()}
pd.DataFrame(played).T.rename_axis("temperature").round(3)

# %% [markdown]
# *Explain:* hardly more. In our runs success is the same at temperature 0.01, but now a few mazes in a hundred are *never* solved: what is left is not bad luck but mazes in which this small model takes a wrong turn for the right one, and chance sometimes saves it.
#
# Stop at any time by interrupting the kernel. With `run="quickstart"` the loop keeps its tables and checkpoints in a folder, and the same call goes on where it stopped, bit for bit.
#
# ## Who earned what
#
# The last step, agent by agent: what it earned and how often it spoke; below, its credits, and the advantages that two baselines would make of them: one global mean, or each agent's own. `flat` is the share of an agent's rows whose group all earned the same. (Signal and the advice are matters of notebook 03.)

# %%
lab.RewardInspector(report)

# %% [markdown]
# ## What changed, in one episode
#
# A maze that the untrained team fails, played by both.

# %%
task, untrained, trained = demo.before_and_after(env, team)
mazes(env, task, {"before": untrained, "after": trained})

# %%
dialogue(untrained, untrained["episode"].iloc[0])

# %%
dialogue(trained, trained["episode"].iloc[0])

# %% [markdown]
# Every episode of a step can be walked like this, with the candidates that were not chosen and what each one earned. The list begins with those that tell most, failures first of all; click on one, or press `f` for the next failure:

# %%
lab.RolloutViewer(report)

# %% [markdown]
# ## Your turn
#
# Three exercises. `lab.course.check` says whether an answer is right, or where it is not yet; `lab.course.hint("00.1")` helps.
#
# **00.1** Five candidates of one group earned the credits 0.2, 0.2, 0.2, 0.6 and 0.8. Their advantages, by hand, to two decimals?

# %%
### BEGIN SOLUTION
advantages = [-0.79, -0.79, -0.79, 0.79, 1.58]
### STARTER
# advantages = ...
### END SOLUTION
lab.course.check("00.1", advantages)

# %% [markdown]
# **00.2** Read it off the table: in `fresh`, how many of the executor's candidates did *not* move the state? One line of pandas.

# %%
fresh = lab.rollout(env, team, tasks, plan=lab.tree(4), seed=0)
### BEGIN SOLUTION
number = int(((fresh["agent"] == "executor") & ~fresh["kept"]).sum())
### STARTER
# number = ...
### END SOLUTION
lab.course.check("00.2", fresh, number)

# %% [markdown]
# **00.3** An ablation changes one argument. Compare all rows of a task instead: every agent and turn against one global baseline. Change `by`, keep the credit, and look at the size of the groups.

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
# *Why it matters:* an executor's candidates earn `team_reward` on top of `local_reward`, a planner's do not. Under one global baseline most planner rows sit below the mean, whatever they said. Who is judged by whose rewards is what this course is about.
#
# **To remember.** A row is a model call. A group says who is compared. An advantage is a credit minus its group's mean, in units of its deviation, and 0 where the group is flat.
#
# Next: `01_rollout`. `lab.RECIPES` holds the published methods and their ablations; `lab.train(env, team, "grpo", ...)` swaps one for another. `python -m mas_lab demo --compare` trains this team by three recipes over three seeds and writes a report.
