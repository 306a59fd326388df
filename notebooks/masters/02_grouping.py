# %% [markdown]
# # Grouping: who is compared with whom, and on which number
#
# *Level: you have done 01_rollout. Reading: 25 minutes. Compute: a few seconds, no torch and no model.*
#
# An advantage is a comparison. Two choices decide what it means. The *group* is the set of rows that a row is compared with. The *credit* is the number that is compared. The four methods of this course differ in little else. Afterwards you can
#
# - read from a method's description which columns name its groups, and write these columns down,
# - compute five credits by hand, and write a credit of your own,
# - find rows that were compared with the wrong rows, although no error says so.

# %% tags=["install"]

# %% tags=["parameters"]
SMOKE = False  # True changes nothing here: everything is short

# %%
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

import mas_lab as lab
from mas_lab.paths import data_dir

pd.set_option("display.max_colwidth", 90)


def recorded(name):
    """A small rollout of an untrained team, as text (`data/results/grouping/`)."""
    return pd.read_csv(data_dir() / "results" / "grouping" / f"{name}.csv", keep_default_na=False)


# %%
lab.course.loop("group")

# %% [markdown]
# ## By hand: five rows
#
# In one task with two episodes, a solver answers; a verifier ends the episode or calls a fixer. The first episode ends well. The second goes on to the fixer, and ends badly. `team_reward` is what a call earned the team. `depth` is the place of the call in its episode.

# %%
rows = [
    ("t", "e0", 0, "solver", 0.0),
    ("t", "e0", 1, "verifier", 1.0),
    ("t", "e1", 0, "solver", 0.0),
    ("t", "e1", 1, "verifier", 0.0),
    ("t", "e1", 2, "fixer", 0.0),
]
five = pd.DataFrame(rows, columns=["task", "episode", "depth", "agent", "team_reward"]).assign(turn=0)
five

# %% [markdown]
# `group(turns, by, credit)` puts two rows in one group if they agree in the columns `by`. Nothing else matters:
#
# $$ G(i) = \{\, j : \mathrm{by}(j) = \mathrm{by}(i) \,\} $$
#
# It also gives every row *i* its credit $R_i$. Notebook 03 turns credits into advantages: $A_i = (R_i - \operatorname{mean}_{G(i)} R) / \operatorname{std}_{G(i)} R$ (arXiv 2402.03300, section 4.1). Here the credit is `episode_return()`: a row is worth what its whole episode earned.

# %% [markdown]
# *Predict:* what are the credits of the five rows? How many groups are there, and of which sizes, by `("task",)`, by `("task", "agent")`, by `("episode",)`? Which row has no other row to be compared with? In which grouping can nothing be learned at all?

# %%
for by in (("task",), ("task", "agent"), ("episode",)):
    grouped = lab.normalize(lab.group(five, by=by, credit=lab.episode_return()))
    display(grouped[["episode", "agent", "team_reward", "credit", "group", "advantage"]].round(2))

# %% [markdown]
# *Explain.* The credits are 1, 1, 0, 0, 0: solver and verifier of the first episode share its reward. By task, all five rows are compared, with mean 0.4. By task and agent there are groups of 2, 2 and 1. The fixer is *lone*, and a lone row gets advantage 0, never its raw reward. By episode, the credits in each group are equal. Such a group is *flat*, and all its advantages are 0. The rows of a group must be able to earn different credits.
#
# ## A group is columns, never a position
#
# Here is a real rollout: an untrained team, two mazes, `tree(4)`. Four candidates answer each prompt, so the rows come in fours.

# %%
tree = recorded("tree")
shown = ["episode", "agent", "turn", "candidate", "kept", "completion", "team_reward", "local_reward"]
tree[shown].head(8)

# %%
TURN = ("episode", "agent", "turn")
right = lab.normalize(lab.group(tree, by=TURN, credit=lab.mixed(alpha=1.0)))
shuffled = tree.sample(frac=1, random_state=0)
again = lab.normalize(lab.group(shuffled, by=TURN, credit=lab.mixed(alpha=1.0)))
off = (again["advantage"] - right["advantage"]).abs().max()  # pandas matches the rows by their index
print("largest difference in advantage after shuffling the rows:", off)

# %% [markdown]
# Many trainers hold a batch as arrays in which *the position says whose row it is*. Every four rows are a group: `rewards.view(-1, 4)`. On this table that gives the same groups. Now one call is lost, for example because the environment ran out of time on row 5. 31 rows are left.

# %% [markdown]
# *Predict:* take every four of the 31 rows for a group. How many rows get a wrong advantage? Will anything look wrong?

# %%
left = tree.drop(index=5).reset_index(drop=True)
grouped = lab.group(left, by=TURN, credit=lab.mixed(alpha=1.0))
by_columns = lab.normalize(grouped)
by_place = lab.normalize(grouped.assign(group=np.arange(len(left)) // 4))
off = (by_place["advantage"] - by_columns["advantage"]).abs() > 1e-6
turned = np.sign(by_place["advantage"]) * np.sign(by_columns["advantage"]) < 0
print(f"{off.sum()} of {len(left)} rows have another advantage, {turned.sum()} of them another sign")
for name, table in {"by columns": by_columns, "by place": by_place}.items():
    print(f"standard deviation of the advantages {name}: {table['advantage'].std():.2f}")
compared = by_columns[["agent", "turn", "completion", "credit", "group", "advantage"]]
strange = {"group by place": by_place["group"], "advantage by place": by_place["advantage"]}
compared.assign(**strange)[3:12].round(2)

# %% [markdown]
# *Explain.* 18 of 31. From the lost row on, each group contains a row that does not belong there. Executors are compared with a planner of the next turn, and one maze with the other. Rows 8 and 10 are planners who said the one right move (`a1`). They go from +0.58 to −0.06. Nothing crashes. The advantages have mean 0 and their usual standard deviation, and the loss looks normal. So the kit never counts rows, and `group` refuses a call that occurs twice, such as a padding row.
#
# ## The prompt's text is no name either
#
# "Rows that answer the same prompt" sounds like a group that needs no bookkeeping. In the second maze the executor walked back to where it came from. So the planner reads the very same words at turn 0 and at turn 1:

# %%
by_text = lab.group(tree, by=("prompt",), credit=lab.mixed(alpha=1.0))
by_text.groupby("group", sort=False).agg(rows=("credit", "size"), turns=("turn", "unique")).tail(3)

# %% [markdown]
# One group of eight compares candidates of two decisions, although these decisions had different numbers of turns left. The opposite also happens. If the prompt contains something that belongs to one episode alone, such as a folder or the time, every row is lone:

# %%
stamped = tree.assign(prompt="run " + tree.index.astype(str) + ": " + tree["prompt"])
stats = lab.group_stats(lab.group(stamped, by=("prompt",), credit=lab.mixed(alpha=1.0)))
print(f"{len(stats)} groups, {stats['lone'].mean():.0%} of them lone")

# %% [markdown]
# Widely used code names groups, or named them, in such ways:
#
# - By position in the batch: AT-GRPO's own release uses `env_idx // sample_num`. This is right as long as nothing is dropped.
# - By the prompt's tokens: [NeMo RL, pull request 4013](https://github.com/NVIDIA-NeMo/RL/pull/4013).
# - By an id that each trajectory has for itself, as reported: [rllm 605](https://github.com/rllm-org/rllm/issues/605).
#
# ## A promise that is checked
#
# AT-GRPO *means* to compare candidates for one prompt. `same_prompt=True` states this, and the cell checks it. Columns still name the groups, but a group whose rows answer different prompts is an error.

# %% [markdown]
# *Predict:* the same two mazes were also played as four whole episodes each, without a tree. `by=("task", "agent", "turn")` compares the four planners at turn 0, then the four executors at turn 0. Do all planners answer one prompt? Do all executors?

# %%
whole = recorded("whole")
candidates = lab.group(tree, TURN, lab.mixed(), same_prompt=True)
print("the tree:", candidates["group"].nunique(), "groups")
for agent in ("planner", "executor"):
    at_turn_0 = whole[(whole["agent"] == agent) & (whole["turn"] == 0)]
    try:
        compared = lab.group(at_turn_0, ("task", "agent", "turn"), lab.mixed(), same_prompt=True)
        print(f"whole episodes, {agent}: {compared['group'].nunique()} groups")
    except lab.TableError as error:
        print(f"whole episodes, {agent}: {error}")

# %% [markdown]
# *Explain.* At turn 0 all planners of a maze are at its start: one prompt. Each executor then reads what *its own* planner proposed, so four executors answer four prompts. An executor would be reinforced because its planner was lucky. AT-GRPO's tree prevents this. Without a tree you may still compare them, but then you say so: `same_prompt=False`.
#
# ## On which number: five credits
#
# A writer drafts and a critic comments. In `e0` the writer writes again. `team_reward` is what a call earned the team. `local_reward` is what it earned its own agent.

# %%
rows = [
    ("e0", 0, "writer", 0, 0.0, 0.5),
    ("e0", 1, "critic", 0, 0.0, 1.0),
    ("e0", 2, "writer", 1, 1.0, 1.0),
    ("e1", 0, "writer", 0, 0.0, 0.5),
    ("e1", 1, "critic", 0, 0.5, 0.0),
]
columns = ["episode", "depth", "agent", "turn", "team_reward", "local_reward"]
five = pd.DataFrame(rows, columns=columns).assign(task="t")
five[columns]

# %% [markdown]
# Let $r_i$ be the team's reward of row *i*, $\ell_i$ its local reward, and $e$ the row's episode:
#
# | credit | formula | used by |
# |---|---|---|
# | `episode_return(invalid=p)` | $R_i = \sum_{j \in e} r_j \;-\; p\,[\,i \text{ could not be read}\,]$ | GRPO, Dr. MAS (arXiv 2602.08847; p = 0.1 for math) |
# | `mixed(alpha)` | $R_i = \alpha\, r_i + \ell_i$ | AT-GRPO (arXiv 2510.11062, section 4.2) |
# | `return_to_go(gamma)` | $R_i = r_i + \gamma \cdot \operatorname{mean}$ of the $R$ that follow | MAGRPO (arXiv 2508.04652, section 4) |
# | `own_return()` | $R_i = \sum \ell_j$ over the row's own agent in $e$ | games without a team |
# | `counterfactual()` | $R_i = r_i + \frac1m \sum_{c=1}^{m}$ (return of continuation $c$) | this kit; needs `tree(k, follow=m)` |
#
# `episode_return` counts only steps that were really taken, and a joint step once. The first four credits apply to our five rows.

# %% [markdown]
# *Predict:* what is in the four columns? Compute them in your head, with γ = 0.5 and α = 1.

# %%
credits = [lab.episode_return(), lab.mixed(alpha=1.0), lab.return_to_go(gamma=0.5), lab.own_return()]
five[["episode", "agent", "turn"]].assign(**{type(credit).__name__: credit(five) for credit in credits})

# %% [markdown]
# *Explain.* Look at the row of the critic in `e0`: its comment led to a better draft.
#
# - `episode_return` gives it all of the episode's 1.
# - `return_to_go` gives it half of this, because the reward came one step later.
# - `mixed` gives it its local 1. It gives nothing of the team's reward, because the critic's own call did not earn it.
# - `own_return` gives it the same 1, the critic's local rewards.
#
# In `e1` the critic spoke last. Under `mixed`, the 0.5 that came then counts as its own.
#
# None of these credits is "the" right one. The return is unbiased, but it says little about which agent caused the reward. `mixed` says much, but only as much as somebody wrote into the local reward. A third way asks the environment: what would have happened if *this* candidate had been kept? In the six rows below, two proposals at one decision are each played on to the end twice. `probe` marks rows that only value a candidate. Training never uses them.

# %%
rows = [
    ("m", "m/0", "", 0, "planner", 0, False, 0.0),
    ("m", "m/0", "", 0, "planner", 1, False, 0.0),
    ("m/0.0+0", "m/0.0+0/1", "m/0.0", 1, "executor", 0, True, 1.0),
    ("m/0.0+1", "m/0.0+1/1", "m/0.0", 1, "executor", 0, True, 0.5),
    ("m/0.1+0", "m/0.1+0/1", "m/0.1", 1, "executor", 0, True, 0.5),
    ("m/0.1+1", "m/0.1+1/1", "m/0.1", 1, "executor", 0, True, 0.0),
]
columns = ["episode", "node", "parent", "depth", "agent", "candidate", "probe", "team_reward"]
followed = pd.DataFrame(rows, columns=columns).assign(turn=0)
followed = followed.assign(mixed=lab.mixed()(followed), counterfactual=lab.counterfactual()(followed))
followed[["episode", "parent", "agent", "candidate", "probe", "team_reward", "mixed", "counterfactual"]]

# %% [markdown]
# A proposal moves nobody, so `mixed` without local rewards sees 0 and 0. Each continuation names in `parent` the candidate that it follows. Played on, the first proposal is worth (1 + 0.5)/2 = 0.75, and the second (0.5 + 0)/2 = 0.25. `counterfactual` is the only one of the five that costs model calls. In the kit's own study they did not pay. At 60,000 sampled tokens, continuations included, a maze team ended at 0.53 with it and at 0.64 with the plain return (ten seeds, `data/results/studies/credit`).
#
# ## What each method compares
#
# A recipe is a row of a table: the arguments of the four cells. These three arguments explore and group:

# %%
methods = ("grpo", "dr_mas", "at_grpo", "magrpo")
told = {name: lab.RECIPES[name] for name in methods}
pd.DataFrame({name: {"plan": one.plan, "by": one.by, "credit": one.credit} for name, one in told.items()}).T

# %% [markdown]
# | | compares | on | source |
# |---|---|---|---|
# | `grpo` | all calls of a task by any agent (in the mean, each episode once) | what the episode earned | arXiv 2402.03300; as Dr. MAS describes it for teams |
# | `dr_mas` | all calls of *one agent* in a task | the same | arXiv 2602.08847, equations 4-6 |
# | `at_grpo` | the candidates of one agent at one turn of one episode | what this candidate earned | arXiv 2510.11062, equation 3 |
# | `magrpo` | one agent's parts of the joint actions at one node | what the joint action earned, and what followed | arXiv 2508.04652, section 4 |
#
# We group recorded rollouts. Each has the plan of its method, with 4 candidates. `fixer` has 8 episodes of six problems of `math`: solver, verifier, and a fixer who is called after a rejection.

# %%
fixer, joint = recorded("fixer"), recorded("joint")
played = {"grpo": fixer, "dr_mas": fixer, "at_grpo": tree, "magrpo": joint}
grouped = {name: lab.group(turns, told[name].by, told[name].credit) for name, turns in played.items()}
sizes = {name: turns.groupby("group").size() for name, turns in grouped.items()}
rows = [(len(played[name]), len(size), size.min(), size.max()) for name, size in sizes.items()]
pd.DataFrame(rows, index=list(sizes), columns=["rows", "groups", "smallest", "largest"])

# %% [markdown]
# ## Groups of unlike size, lone and flat
#
# Each decision has the same number of candidates. In whole episodes, the team itself decides how often each agent speaks. `group_stats` has a row for each group and agent: `size`, and the mean and standard deviation of its credits. `lone` means one row; `flat` means equal credits, so a lone row is flat too. In a lone or flat group every advantage is 0.

# %% [markdown]
# *Predict:* six problems, eight episodes each, under `dr_mas`. Which agent's groups all have size 8? Which agent's groups are larger, and which smaller? How many of the fixer's groups teach anything?

# %%
stats = lab.group_stats(grouped["dr_mas"])
each = stats.groupby("agent", sort=False)
each.agg(
    groups=("size", "count"),
    rows=("size", "sum"),
    smallest=("size", "min"),
    largest=("size", "max"),
    lone=("lone", "sum"),
    flat=("flat", "sum"),
)

# %%
stats[stats["agent"] == "fixer"][["group", "size", "mean", "std", "lone", "flat"]].round(2)

# %% [markdown]
# *Explain.* The solver speaks exactly once in an episode, so its groups have 8 rows. The verifier judges again after each fix. So an episode in which it spoke three times counts three times in its mean. (`once_per="episode"` in `normalize` would count it once.) The fixer is called in 13 of the turns, on five of the six problems: twice alone, once in a group that always failed. Two groups with 7 rows are left to teach it something. `RewardInspector` shows this for any table, run or report: credits, and the share of an agent's rows in lone and flat groups. (Notebooks 03 and 05 explain F, signal and the advice.)

# %%
lab.RewardInspector(grouped["dr_mas"])

# %% [markdown]
# Under `grpo` none of this is visible. Its six groups are large, and every fixer row is compared with solvers and verifiers. More rows get an advantage, but from a mean that is not the fixer's. Notebook 03 asks which is better.
#
# ## The same in plain code
#
# `mas_lab/plain.py` is the whole method of this course in one file of 179 lines. Below is its second cell: three credits, and a group in one line. The kit adds other credits, other plans, and the errors that you met above.

# %%
source = Path(lab.__file__).with_name("plain.py").read_text(encoding="utf-8")
print(source[source.index("# Cell 2") : source.index("# Cell 3")])

# %% [markdown]
# ## Your turn
#
# **02.1** (4 minutes, easy) Somebody labelled the groups of these rows by hand, and meant `by=("task", "agent")`. Which two rows are in a wrong group? Give a list of two row numbers.

# %%
said = ["solver", "verifier", "fixer", "solver", "verifier", "solver", "verifier"]
said += ["solver", "verifier", "fixer", "verifier", "solver", "verifier"]
labelled = pd.DataFrame({"task": ["t0"] * 5 + ["t1"] * 8, "agent": said, "group": list("ABCABDBDEFFDE")})
labelled.insert(1, "episode", ["e0", "e0", "e0", "e1", "e1", "e2", "e2", "e3", "e3", "e3", "e3", "e4", "e4"])
labelled

# %%
### BEGIN SOLUTION
usual = labelled.groupby(["task", "agent"])["group"].transform(lambda labels: labels.mode()[0])
wrong = list(labelled.index[labelled["group"] != usual])
### STARTER
# wrong = [..., ...]
### END SOLUTION
lab.course.check("02.1", labelled, wrong)

# %% [markdown]
# **02.2** (6 minutes, easy) Write `by` for five methods from their descriptions. Choose from these columns: `task`, `episode`, `node`, `agent`, `policy` (whose weights spoke), `turn`, `depth`, `candidate`.
#
# - `everyone`: all that any agent said about a task.
# - `role`: a role is compared with itself, over all episodes of a task and all its turns.
# - `moment`: a role is compared with itself at the same turn, over all episodes of a task.
# - `weights`: calls that train the same weights, over all episodes of a task.
# - `decision`: the candidates that one agent drew at one point of one episode, and no others.

# %%
### BEGIN SOLUTION
by = {
    "everyone": ("task",),
    "role": ("task", "agent"),
    "moment": ("task", "agent", "turn"),
    "weights": ("task", "policy"),
    "decision": ("node", "agent"),
}
### STARTER
# by = {
#     "everyone": ("task",),
#     "role": ...,
#     "moment": ...,
#     "weights": ...,
#     "decision": ...,
# }
### END SOLUTION
lab.course.check("02.2", by)


# %% [markdown]
# **02.3** (10 minutes, medium) Write a credit that makes each call cost something. `thrifty(cost)` is the episode's return, minus `cost` for each call that the row's *own agent* made in that *episode*. A credit is a frozen dataclass. Its call takes the table and returns a number per row. `lab.episode_return()(turns)` does half of the work.


# %%
@dataclass(frozen=True)
class thrifty:
    cost: float = 0.1

    def __call__(self, turns):
        ### BEGIN SOLUTION
        calls = turns.groupby(["episode", "agent"])["agent"].transform("size")
        return lab.episode_return()(turns) - self.cost * calls
        ### STARTER
        # pass  # your code here
        ### END SOLUTION


lab.course.check("02.3", thrifty)

# %% [markdown]
# A frozen dataclass prints, compares and saves by its values. So `lab.RECIPES["dr_mas"].replace(credit=thrifty(0.05))` is a recipe that `lab.train` runs. (A verifier is called as often as the solver errs. What would this credit teach it? Which agent causes a call?)
#
# **02.4** (12 minutes, hard) Design an example. In one task the solver speaks in each of six episodes, and a helper speaks in some. Choose what the episodes earn (from 0 to 1), and in which of them the helper is called. One call of the helper must have an advantage above +0.3 when all rows of the task are compared. The same call must have an advantage below −0.3 when each agent is compared with itself.

# %%
### BEGIN SOLUTION
rewards = [1.0, 0.8, 1.0, 0.0, 0.0, 0.0]
called = [0, 1, 2]
### STARTER
# rewards = [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]  # what each episode earned
# called = [0, 3]  # the episodes in which the helper spoke
### END SOLUTION
lab.course.check("02.4", rewards, called)

# %% [markdown]
# **02.5** (15 minutes, medium) *Build it.* Write cell 2. Return the table with two more columns: `credit`, which is `credit(turns)`, and `group`, a label. Two rows have one label exactly if they agree in all columns of `by`. With `same_prompt=True`, raise a `ValueError` that names the group if two of its rows have another `prompt`.


# %%
def my_group(turns, by, credit, same_prompt=False):
    ### BEGIN SOLUTION
    label = turns.groupby(list(by), sort=False).ngroup()
    prompts = turns.groupby(label)["prompt"].nunique()
    if same_prompt and (prompts > 1).any():
        raise ValueError(f"group {prompts.idxmax()} has {prompts.max()} prompts")
    return turns.assign(credit=credit(turns), group=label)
    ### STARTER
    # pass  # your code here
    ### END SOLUTION


lab.course.check("02.5", my_group)

# %%
lab.course.progress("02")

# %% [markdown]
# ## To remember
#
# - The values of columns define a group. A row's position or its text does not say which rows it may be compared with.
# - The group says what counts as luck, and the credit says what counts as merit. Methods differ here first.
# - Lone and flat groups teach nothing. Only `group_stats` says how many there are.
#
# Papers: GRPO, [arXiv 2402.03300](https://arxiv.org/abs/2402.03300), section 4.1; Dr. MAS, [arXiv 2602.08847](https://arxiv.org/abs/2602.08847), equations 4-6; AT-GRPO, [arXiv 2510.11062](https://arxiv.org/abs/2510.11062), equation 3; MAGRPO, [arXiv 2508.04652](https://arxiv.org/abs/2508.04652), section 4. `data/results/grouping/` has the recorded rollouts.
#
# Next: `03_normalization` asks whose mean to use.
