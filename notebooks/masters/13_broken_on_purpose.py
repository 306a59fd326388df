# %% [markdown]
# # Broken on purpose: five silent defects
#
# *Level: you have seen notebooks 00 to 05. Reading: 15 minutes. Compute: 1 to 2 minutes on two CPU cores.*
#
# None of the five trainings below raises an error. Each draws a curve, and each has a defect that somebody's published code once had. You get the tables and statistics of every step, and the instruments. Find out what is wrong, and *show* it with a row, a step or a number.
#
# The suspects, in alphabetical order:
#
# | name | defect |
# |---|---|
# | `"best of K"` | the reported success is that of the best of K candidates |
# | `"group key"` | unrelated rows are compared |
# | `"lone row"` | a row that is alone in its group keeps its raw reward as its advantage |
# | `"padding"` | the loss trains on padding tokens |
# | `"stale weights"` | the sampling weights are not the trained weights |

# %% tags=["install"]

# %% tags=["parameters"]
SMOKE = False  # True: a few steps only, to see that everything runs

# %%
import pandas as pd

import mas_lab as lab
from mas_lab.widgets.figures import learning_curves

STEPS = 2 if SMOKE else None

# %% [markdown]
# ## Five curves
#
# `A`, `C` and `D` are `at_grpo` in the maze (12 steps). `B` and `E` are `dr_mas` on a ladder of six agents with separate weights (24 steps). An agent of the ladder answers a chain of digits, from left to right, and only the last digit of each step counts: `3 + 4 * 2` is 7, then 14, so `7 4 answer 4` is right and `8 1 answer 1` is wrong. Each run has a twin: the same training from the same weights on the same tasks, without the defect.

# %% [markdown]
# *Predict:* there are five pairs of curves. In how many of them is the broken one clearly lower?

# %%
runs = {letter: lab.course.broken(letter, steps=STEPS) for letter in "ABCDE"}
mended = {letter: lab.course.broken(letter, mended=True, steps=STEPS) for letter in "AB"}
twin = {"A": "A", "C": "A", "D": "A", "B": "B", "E": "B"}
ends = [
    {
        "run": letter,
        "reported before": run.curve["success"].iloc[0],
        "reported after": run.curve["success"].iloc[-1],
        "mended, after": mended[twin[letter]].curve["success"].iloc[-1],
    }
    for letter, run in runs.items()
]
pd.DataFrame(ends).round(2)

# %%
learning_curves(
    pd.concat([runs[letter].curve for letter in "ACD"] + [mended["A"].curve]), y_title="success, as reported"
)

# %%
learning_curves(
    pd.concat([runs[letter].curve for letter in "BE"] + [mended["B"].curve]), y_title="success, as reported"
)

# %% [markdown]
# *Explain:* not in all of them. One curve is far too high, one or two are lower, and some look like the correct run. Training tolerates many defects. A rising curve says that *something* is learned. It does not say that the code does what its author thinks.
#
# ## Where to look
#
# | instrument | what it shows |
# |---|---|
# | `run.turns` | the table of all steps, with `group`, `credit`, `center`, `scale`, `advantage` |
# | `run.stats` | a row per step and agent: `tokens`, `entropy`, `grad_norm`, `mismatch`, … |
# | `lab.verdict(run.turns)` | one or two sentences about what stands out |
# | `lab.group_stats(turns)` | size, mean, `lone` and `flat` of every group |
# | `lab.RewardInspector([turns, stats])` | each agent's rewards, and the baseline that they are compared with |
# | `lab.RolloutViewer([turns, stats])` | what each agent said |
# | `lab.evaluate(run.env, run.team, tasks, k=2)` | the team alone, on tasks that are not used in training |

# %% [markdown]
# The verdict comes first. It compares success, each agent's own reward and its advantages over the steps:

# %%
for name, run in (runs | {"mended A, C, D": mended["A"], "mended B, E": mended["B"]}).items():
    print(f"{name}: {lab.verdict(run.turns)}")

# %% [markdown]
# In our run nothing stands out in any of them. The verdict looks for what a team learned from its rewards: success that fell, an agent whose wrong answers were reinforced, answers that are no longer valid. It takes for granted that the code does what its author meant. So "Nothing stands out." does not mean that all is well.

# %% [markdown]
# *Predict:* which two or three numbers would you look at first in any training, before its curve?

# %%
first = [
    {
        "run": letter,
        "tokens per row": run.stats["tokens"].sum() / run.stats["turns"].sum(),
        "largest mismatch": run.stats["mismatch"].max(),
        "lone rows": lab.group_stats(run.turns)["lone"].mean(),
        "mean advantage": run.turns["advantage"].mean(),
        "entropy, first step": run.stats.query("step == 0")["entropy"].mean(),
    }
    for letter, run in (runs | {"mended A, C, D": mended["A"], "mended B, E": mended["B"]}).items()
]
pd.DataFrame(first).round(3)

# %% [markdown]
# *Explain:* `tokens per row` counts the trained tokens. `mismatch` compares the recorded probabilities of the sampled tokens with those that the trainer computes. `lone rows` counts rows that are alone in their group. The advantages of a group sum to 0, so their mean should be nearly 0. `entropy` is the mean −log p of the tokens, in nats. The same weights on the same tasks should start with the same entropy. Not every defect leaves a trace here.
#
# ## Run A
#
# *Symptom:* the gradient norms look healthy, and the held-out curve rises at first. But the rollouts do not get better, and the run stays behind its twin.

# %%
runs["A"].stats.groupby("step")[["tokens", "entropy", "policy_norm", "mismatch"]].max().round(3).head()

# %% [markdown]
# **13.1** (8 minutes, medium) What is wrong with `A`, and which is the first step that shows it?

# %%
### BEGIN SOLUTION
defect, step = "stale weights", 1
### STARTER
# defect, step = ..., ...
### END SOLUTION
lab.course.check("13.1", runs["A"], defect, step)

# %% [markdown] tags=["solution"]
# The sampling weights are a copy that is never refreshed, such as an adapter that was loaded once, or an engine that serves an old checkpoint. At step 0 both are the same. Later the ratio $p_{\text{trained}} / p_{\text{sampled}}$, which should be 1 before the first optimizer step of every batch, is wrong. `mismatch` measures by how much. Clipping hides the harm for a while, because old samples are still samples. After every update the kit's engines prove on a few tokens that fresh weights arrived.

# %% [markdown]
# ## Run B
#
# *Symptom:* the curve shows none. But some agent's advantages do not sum to 0.

# %%
mean = runs["B"].turns.query("step < 4").groupby("agent")["advantage"].agg(["mean", "size"])
mean.join(mended["B"].turns.query("step < 4").groupby("agent")["advantage"].mean().rename("mended")).round(3)

# %% [markdown]
# **13.2** (8 minutes, medium) What is wrong with `B`, and which row (by its place in `runs["B"].turns`) shows it?

# %%
table = runs["B"].turns
### BEGIN SOLUTION
alone = table.groupby("group")["group"].transform("size") == 1
defect, row = "lone row", int((alone & (table["advantage"] != 0)).to_numpy().argmax())
### STARTER
# defect, row = ..., ...
### END SOLUTION
lab.course.check("13.2", runs["B"], defect, row)

# %% [markdown] tags=["solution"]
# The standard deviation of one number is 0 or undefined, and the repair was "then do not normalise". A row that is alone in its group then keeps its raw reward, which is never negative on the ladder. So whatever it said is reinforced. Late stages are called rarely, so the lone rows are theirs. In the first steps they are reinforced merely because they were reached. Here the effect fades, since more and more stages are reached. For an agent that stays rare it does not fade. The kit gives a lone row the advantage 0.

# %% [markdown]
# ## Run C
#
# *Symptom:* it looks too good to be true. Nearly every maze is solved after a few steps, and then there is no more progress.

# %%
runs["C"].curve[["step", "tokens", "success"]].round(2)

# %% [markdown]
# **13.3** (8 minutes, medium) What is wrong with `C`, and what success does its team really reach on its own, to within 0.1? (Use `runs["C"].env` and `runs["C"].team`.)

# %%
run = runs["C"]
### BEGIN SOLUTION
defect = "best of K"
success = lab.evaluate(run.env, run.team, run.env.tasks(64, "test", seed=1), k=2)["success"].mean()
### STARTER
# defect, success = ..., ...
### END SOLUTION
lab.course.check("13.3", run, defect, success)

# %% [markdown] tags=["solution"]
# Nothing is wrong with the training, which equals its twin's to the last digit. The report shows the success of training episodes. There, at every turn, the best of eight candidates moved the state, chosen by a reward that the team alone never sees. Measure a team without the tree, on held-out tasks, with fresh draws.

# %% [markdown]
# ## Run D
#
# *Symptom:* the same weights on the same tasks start with a lower entropy and a smaller gradient than the twin. The curve shows little.

# %%
runs["D"].turns[["agent", "completion", "completion_ids", "finish"]].head(4)

# %% [markdown]
# **13.4** (8 minutes, medium) What is wrong with `D`? Name a row, and how many of its tokens should not be there.

# %%
table = runs["D"].turns
### BEGIN SOLUTION
behind = table["completion_ids"].map(lambda ids: len(ids) - ids.index(1) - 1 if 1 in ids else 0)
defect, row = "padding", int(behind.to_numpy().argmax())
tokens = int(behind.iloc[row])
### STARTER
# defect, row, tokens = ..., ..., ...
### END SOLUTION
lab.course.check("13.4", runs["D"], defect, row, tokens)

# %% [markdown] tags=["solution"]
# Completions were padded to one length, and the mask was forgotten. So the loss trains on padding, which also dilutes the mean over tokens. The recorded log-probability of padding is 0, a probability of 1. So `mismatch` is exactly 1 if the padding token is unlikely. The model learns to say padding after its end. This costs only a share of the gradient, but with long completions it is most of it.

# %% [markdown]
# ## Run E
#
# *Symptom:* it learns, but lags behind its twin. The recipe and the rewards are the same.

# %%
runs["E"].turns[["step", "task", "agent", "credit", "group", "center", "advantage"]].head(8)

# %% [markdown]
# **13.5** (8 minutes, medium) What is wrong with `E`? Name two unrelated rows that were compared.

# %%
table = runs["E"].turns
### BEGIN SOLUTION
defect, first = "group key", 0
others = table.index[(table["group"] == table["group"][0]) & (table["agent"] != table["agent"][0])]
second = int(others[0])
### STARTER
# defect, first, second = ..., ..., ...
### END SOLUTION
lab.course.check("13.5", runs["E"], defect, first, second)

# %% [markdown] tags=["solution"]
# Groups were cut by position: every eight rows of the table. That was right while the rows stood in the order of sampling. Then the rows were shuffled. A group now holds several agents and several tasks, and its mean is a poor global baseline. In the kit, the columns of `by` define a group. If you shuffle the table, no advantage changes. `same_prompt=True` would have raised an error.

# %% [markdown]
# ## An automatic check
#
# **13.6** (20 minutes, hard) Write a check that would have stopped four of the five before the first figure. It is a function of a training's tables that returns the name of the defect, or `"fine"`. It is tried on `A`, `B`, `D`, `E` and on their twins.


# %%
def guard(turns, stats):
    ### BEGIN SOLUTION
    behind = turns["completion_ids"].map(lambda ids: len(ids) - list(ids).index(1) - 1 if 1 in ids else 0)
    size = turns.groupby("group")["group"].transform("size")
    if behind.any():
        return "padding"
    if stats["mismatch"].max() > 1e-3:
        return "stale weights"
    if ((size == 1) & (turns["advantage"] != 0)).any():
        return "lone row"
    if (turns.groupby("group")[["task", "agent"]].nunique() > 1).any(axis=None):
        return "group key"
    return "fine"
    ### END SOLUTION


tried = {letter: runs[letter] for letter in "ABDE"} | {"A, mended": mended["A"], "B, mended": mended["B"]}
lab.course.check("13.6", guard, tried)

# %% [markdown]
# *Predict:* no table shows the fifth defect, `"best of K"`. What would you write in a caption, so that a reader knows which success it is?

# %%
alone = lab.evaluate(runs["C"].env, runs["C"].team, runs["C"].env.tasks(8 if SMOKE else 64, "test", seed=2), k=4)
print(f"success, sampled at temperature 1, one candidate a turn, held-out tasks: {alone['success'].mean():.2f}")

# %% [markdown]
# *Explain:* write how candidates were chosen, at which temperature, on which tasks, and with how many draws. That is one line.
#
# **To remember.** Check these before the curve. `mismatch` is nearly 0. There are as many trained tokens as sampled tokens. The advantages of a group sum to 0. No lone row has an advantage. A group has one agent and one question. And success is what the team does alone.
#
# Next: `14_a_real_model`.
