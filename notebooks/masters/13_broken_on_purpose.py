# %% [markdown]
# # Broken on purpose: five silent defects
#
# *Level: you have seen notebooks 00 to 05. Reading: 15 minutes. Compute: about 2 minutes on two CPU cores.*
#
# None of the five trainings below raises an error. Each draws a curve, and each has a defect that has stood in somebody's published code. You get the tables and the statistics of every step, and the instruments. Find out what is wrong, and *show* it: a row, a step, a number.
#
# The suspects, in alphabetical order:
#
# | name | what went wrong |
# |---|---|
# | `"best of K"` | what was reported as success is that of the best of K candidates |
# | `"group key"` | rows are compared that have nothing to do with each other |
# | `"lone row"` | a row without company keeps its raw reward as its advantage |
# | `"padding"` | tokens are trained on that nobody said |
# | `"stale weights"` | those who speak are not those who learn |

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
# `A`, `C` and `D` are `at_grpo` in the maze (12 steps), `B` and `E` are `dr_mas` on a ladder of six agents with weights of their own (24 steps). Beside each, the same training from the same weights on the same tasks, without the defect.

# %% [markdown]
# *Predict:* five defects, five pairs of curves. In how many of them will the broken one be clearly lower?

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
# *Explain:* not in all of them. One curve is far too high, one or two are lower, and some can hardly be told from the mended run: weights that learn forgive a good deal. A curve that goes up says that *something* is learned. It does not say that the code does what its author thinks.
#
# ## Where to look
#
# | instrument | what it shows |
# |---|---|
# | `run.turns` | the table of all steps, with `group`, `credit`, `center`, `scale`, `advantage` |
# | `run.stats` | a row per step and agent: `tokens`, `entropy`, `grad_norm`, `mismatch`, … |
# | `lab.group_stats(turns)` | size, mean, `lone` and `flat` of every group |
# | `lab.RewardInspector([turns, stats])` | who earned what, against the baseline that judged it |
# | `lab.RolloutViewer([turns, stats])` | who said what |
# | `lab.evaluate(run.env, run.team, tasks, k=2)` | the team alone, on tasks that training never shows |

# %% [markdown]
# *Predict:* which two or three numbers would you look at first, for any training, before its curve?

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
# *Explain:* `tokens per row` is what was trained on; `mismatch` how far the probabilities of the sampled tokens are from those that the trainer computes; `lone rows` how often an agent stands alone in a group; a group's own advantages sum to 0, so their mean should be next to 0; `entropy` is the mean −log p of the tokens, in nats, and the same weights on the same tasks ought to begin with the same one. Not every defect leaves a trace here.
#
# ## Run A
#
# *Symptom:* the gradient norms are healthy and the held-out curve rises at first. But the rollouts themselves do not get any better, and it stays behind its twin.

# %%
runs["A"].stats.groupby("step")[["tokens", "entropy", "policy_norm", "mismatch"]].max().round(3).head()

# %% [markdown]
# **13.1** What is wrong with `A`, and which is the first step that shows it?

# %%
### BEGIN SOLUTION
defect, step = "stale weights", 1
### STARTER
# defect, step = ..., ...
### END SOLUTION
lab.course.check("13.1", runs["A"], defect, step)

# %% [markdown] tags=["solution"]
# The weights that sample are a copy that nobody refreshes: an adapter that was loaded once, an engine that serves yesterday's checkpoint. At step 0 both are the same. Then the ratio $p_{\text{trained}} / p_{\text{sampled}}$, which is 1 before the first optimizer step of every batch, is off, and `mismatch` says by how much. Clipping hides the harm for a while: old samples are still samples. After every update the kit's engines prove on a few tokens that fresh weights arrived.

# %% [markdown]
# ## Run B
#
# *Symptom:* none that you would see in the curve. But somebody's advantages do not sum to 0.

# %%
mean = runs["B"].turns.query("step < 4").groupby("agent")["advantage"].agg(["mean", "size"])
mean.join(mended["B"].turns.query("step < 4").groupby("agent")["advantage"].mean().rename("mended")).round(3)

# %% [markdown]
# **13.2** What is wrong with `B`, and in which row (by its place in `runs["B"].turns`) can it be seen?

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
# The standard deviation of one number is 0 or not a number, and somebody's repair was "then do not normalise". A row that is alone in its group is then pushed towards whatever it said, by its raw reward, which on the ladder is never negative. Late stages are called rarely, so theirs are the lone rows: in the first steps they are praised for having been reached. Here it washes out, since more and more stages are reached; with an agent that stays rare it does not. The kit gives a lone row the advantage 0.

# %% [markdown]
# ## Run C
#
# *Symptom:* too good to be true: nearly every maze solved after a few steps, and then no more progress.

# %%
runs["C"].curve[["step", "tokens", "success"]].round(2)

# %% [markdown]
# **13.3** What is wrong with `C`, and what success does its team really reach on its own? (to 0.1; `runs["C"].env`, `runs["C"].team`)

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
# Nothing is wrong with the training, which is its twin's to the last digit. What is reported is the success of training episodes, in which at every turn the best of eight candidates, by a reward that the team alone never sees, moved the state. Measure a team without the tree, on tasks that training never showed, with draws of their own.

# %% [markdown]
# ## Run D
#
# *Symptom:* the same weights on the same tasks begin with a lower entropy than the twin's, and with a smaller gradient. The curve says little.

# %%
runs["D"].turns[["agent", "completion", "completion_ids", "finish"]].head(4)

# %% [markdown]
# **13.4** What is wrong with `D`? Name a row, and how many of its tokens should not be there.

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
# Completions were padded to one length, and the mask was forgotten: the loss trains on tokens that nobody said, and the mean over tokens is diluted by them. Their recorded log-probability is 0, a probability of 1, so that `mismatch` stands at exactly 1 where the padding token is unlikely. The model learns to say padding after its end, which costs nothing but the share of the gradient that it takes; with long completions that is most of it.

# %% [markdown]
# ## Run E
#
# *Symptom:* it learns, and lags behind its twin. The recipe is the same, the rewards are the same.

# %%
runs["E"].turns[["step", "task", "agent", "credit", "group", "center", "advantage"]].head(8)

# %% [markdown]
# **13.5** What is wrong with `E`? Name two rows that were compared and have nothing to do with each other.

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
# Groups were cut by position: every eight rows of the table, which was right as long as the rows stood in the order in which they were drawn. Somebody shuffled them. A group now holds several agents and several tasks, and its mean is a poor man's global baseline. In the kit a group is what its rows hold in the columns of `by`: shuffle the table, and no advantage changes. `same_prompt=True` would have refused.

# %% [markdown]
# ## A guard
#
# **13.6** Write what would have stopped four of the five before the first figure: a function of a training's tables that returns the name of the defect, or `"fine"`. It is tried on `A`, `B`, `D`, `E` and on the mended ones.


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
# *Predict:* and for the fifth, `"best of K"`, which no table shows: what would you write into a paper's caption, so that a reader can tell which success it was?

# %%
alone = lab.evaluate(runs["C"].env, runs["C"].team, runs["C"].env.tasks(8 if SMOKE else 64, "test", seed=2), k=4)
print(f"success, sampled at temperature 1, one candidate a turn, held-out tasks: {alone['success'].mean():.2f}")

# %% [markdown]
# *Explain:* who chose among candidates, at which temperature, on which tasks, with how many draws. That is one line.
#
# **To remember.** Before the curve: `mismatch` next to 0, tokens as many as were said, advantages of a group sum to 0, no lone row with an advantage, one agent and one question per group. And success is what the team does alone.
