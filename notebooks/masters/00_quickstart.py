# %% [markdown]
# # Quickstart: one table, four cells
#
# *Level: you know what a policy gradient is. Reading: 10 minutes. Compute: about 2 minutes on two CPU cores.*
#
# A **planner** and an **executor** share one small language model (0.3 million parameters) and walk through mazes. The planner proposes moves, the executor sees the proposal and commits moves. Both learn from reward alone.
#
# The whole method is one table that flows through four cells. Each cell only adds columns:
#
# | cell | adds |
# |---|---|
# | `rollout` | who said what, and what it earned |
# | `group` | who is compared with whom, on which number |
# | `normalize` | the advantage |
# | `update` | nothing: it steps the optimizer and reports |
#
# We run each cell once and look at the table after it. Then we let the loop run.

# %% tags=["install"]

# %% tags=["parameters"]
SMOKE = False  # True: a few steps only, to see that everything runs

# %%
import pandas as pd

import mas_lab as lab
from mas_lab import demo
from mas_lab.widgets.figures import dialogue, mazes
from mas_lab.widgets.live import LiveCurve

pd.set_option("display.max_colwidth", 48)
STEPS = 2 if SMOKE else demo.STEPS

# %% [markdown]
# ## The nouns: an environment, a team, some tasks
#
# An environment says who acts, what each agent sees, and what an action earns. A team says which policy plays which role; here one set of weights plays both.

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
# ## Cell 1: rollout
#
# `tree(4)` is AT-GRPO's plan: at every turn the agent whose turn it is draws 4 candidates for the *same* prompt. Each is scored, the best one moves the state, and the next agent sees the moved state. **One row is one model call.**

# %%
turns = lab.rollout(env, team, tasks, plan=lab.tree(4), seed=0)
print(len(turns), "model calls")
turns[["episode", "agent", "turn", "candidate", "kept", "prompt", "completion", "team_reward", "local_reward"]].head(8)

# %% [markdown]
# Every column has one meaning, declared once:

# %%
lab.schema()

# %% [markdown]
# ## Cell 2: group
#
# *Predict:* the first four rows answer the same prompt, the next four another one (a hint has been added). Who should be compared with whom?
#
# AT-GRPO compares the candidates of one agent at one turn: the group is `(episode, agent, turn)`. The number that is compared, the *credit*, is `alpha * team_reward + local_reward`.

# %%
turns = lab.group(turns, by=("episode", "agent", "turn"), credit=lab.mixed(alpha=1.0), same_prompt=True)
turns[["agent", "turn", "candidate", "completion", "team_reward", "local_reward", "credit", "group"]].head(8)

# %% [markdown]
# `same_prompt=True` is a promise that is checked: had two rows of a group answered different prompts, the cell would have refused and named the task, the agent and the turn.
#
# ## Cell 3: normalize
#
# *By hand first.* Four candidates earned the credits 0.25, 0.25, 0.75 and 0.75. Their mean is 0.5, their standard deviation 0.25, so the advantages are −1, −1, +1, +1. And if all four had earned the same? Then there is nothing to learn from the group, and the advantage is 0, not the raw reward.

# %%
turns = lab.normalize(turns)
turns[["agent", "turn", "candidate", "completion", "credit", "center", "scale", "advantage"]].head(8)

# %%
stats = lab.group_stats(turns)
print(f"{len(stats)} groups, {stats['flat'].mean():.0%} of them flat: their rows teach nothing in this step")
stats.head()

# %%
# The same by hand, for the first group that is not flat.
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
# The optimizer steps. The cell returns a row per agent: the norm of *its* part of the gradient (also when the weights are shared), before and after clipping, and how far the log-probabilities of the sampled tokens are from those the trainer computes (`mismatch`, which should be next to nothing).

# %%
stats = lab.update(team, turns, loss=lab.clipped(0.2))
stats[["policy", "agent", "turns", "tokens", "grad_norm", "grad_norm_clipped", "entropy", "clip_fraction", "mismatch"]]

# %% [markdown]
# ## The loop
#
# `lab.train` is these four cells in a loop, as a generator that yields a report per step. A recipe is a row of a table: the arguments of the cells. The curve shows success on mazes that training never shows: in training, the best of 8 candidates moves the state, which makes the team look better than it is alone.

# %%
lab.RECIPES["at_grpo"]

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
# Stop at any time by interrupting the kernel. With `run="quickstart"` the loop keeps its tables and checkpoints in a folder, and the same call goes on where it stopped, bit for bit.
#
# ## Who earned what
#
# The credits of the last step, agent by agent, and below them the advantages that two baselines would make of them: one global mean, or each agent's own. `flat` is the share of an agent's rows whose group all earned the same: as a team gets better, more candidates do equally well, and fewer rows teach.

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
# Every episode of a step can be walked like this, with the candidates that were not chosen and what each one earned:

# %%
lab.RolloutViewer(report)

# %% [markdown]
# ## Your turn
#
# Three exercises. `lab.course.check` says whether an answer is right or where it is not yet; `lab.course.hint("00.1")` helps.
#
# **00.1** Five candidates of one group earned the credits 0.2, 0.2, 0.2, 0.6 and 0.8. Their advantages, by hand, to two decimals?

# %%
### BEGIN SOLUTION
advantages = [-0.79, -0.79, -0.79, 0.79, 1.58]
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
# *Explain:* an executor's candidates earn `team_reward` on top of `local_reward`, a planner's do not. Under one global baseline most planner rows sit below the mean, whatever they said. Who is judged by whose rewards is what the next notebooks are about.
#
# Next: `01_rollout`. `lab.RECIPES` holds the published methods and their ablations; `lab.train(env, team, "grpo", ...)` swaps one for another. `python -m mas_lab demo --compare` trains this team by three recipes over three seeds and writes a report.
