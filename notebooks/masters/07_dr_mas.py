# %% [markdown]
# # Dr. MAS: an agent judged by its own rewards, and when that matters
#
# *Level: notebooks 00 to 05. Reading: 30 minutes. Compute: 1 to 2 minutes on two CPU cores.*
#
# A team earns one reward, and its agents are not called alike: a fixer only after a rejection, a search agent only when something is missing, a helper only where the solver was wrong. Dr. MAS ([arXiv 2602.08847](https://arxiv.org/abs/2602.08847)) judges each agent by the mean and the deviation of *its own* rewards. Sometimes that decides whether an agent learns, and often it changes nothing. This notebook is about telling the two apart *before* training.
#
# Afterwards you can
#
# - take the method apart into its four cells, and say which half of it does the work;
# - tell from the rewards of a first rollout whether an agent needs its own mean, and say why gradient norms do not tell it;
# - switch the harm of a global baseline on and off with one number;
# - put together a team of different models, learning rates and sampling, and say who may be small.

# %% tags=["install"]

# %% tags=["parameters"]
SMOKE = False  # True: a few steps only, to see that everything runs

# %%
import numpy as np
import pandas as pd

import mas_lab as lab
from mas_lab.paths import data_dir
from mas_lab.study.record import Recorded
from mas_lab.widgets.rewards import two_baselines

STUDIES = data_dir() / "results" / "studies"
STEPS = 2 if SMOKE else 30

# %% [markdown]
# ## By hand: five rows
#
# **Paid help.** A solver answers a sum. Only where it is wrong, a helper is called, hears what was tried, and answers too. The team earns
#
# $$ R = \begin{cases} 1 & \text{the solver was right} \\ \text{pay} & \text{the helper was right} \\ 0 & \text{nobody was} \end{cases} $$
#
# with pay = 0.2. Three episodes of one task: the solver right; the helper right; nobody right.
#
# | row | episode | agent | R |
# |---|---|---|---|
# | 0 | 0 | solver | 1 |
# | 1 | 1 | solver | 0.2 |
# | 2 | 1 | helper | 0.2 |
# | 3 | 2 | solver | 0 |
# | 4 | 2 | helper | 0 |
#
# GRPO judges everybody by the mean μ and deviation σ of the task's episodes. Dr. MAS takes, for agent $k$, the mean $\mu_k$ and deviation $\sigma_k$ over $Y_k$, all of its rows in the task (equations 4 to 6 of the paper):
#
# $$ A_{i,k} = \frac{R_i - \mu_k}{\sigma_k + \varepsilon}. $$
#
# Each half may be taken alone, which makes four cells: (μ, σ) is `grpo`, (μ_k, σ) `dr_mas_mean`, (μ, σ_k) `dr_mas_std`, (μ_k, σ_k) `dr_mas`.
#
# *By hand.* The episodes: μ = 0.4, σ ≈ 0.43. The helper: μ_k = 0.1, σ_k = 0.1. So under `dr_mas` its right answer gets (0.2 − 0.1)/0.1 = +1, its wrong one −1.

# %% [markdown]
# *Predict:* under `grpo`, is the helper's right answer praised or blamed? And in the two mixed cells?

# %%
rows = pd.DataFrame(
    {
        "task": "sum",
        "episode": ["e0", "e1", "e1", "e2", "e2"],
        "agent": ["solver", "solver", "helper", "solver", "helper"],
        "depth": [0, 0, 1, 0, 1],
        "turn": 0,
        "team_reward": [1, 0, 0.2, 0, 0],
    }
)
CELLS = {
    "grpo": "(mu, sigma)",
    "dr_mas_mean": "(mu_k, sigma)",
    "dr_mas_std": "(mu, sigma_k)",
    "dr_mas": "(mu_k, sigma_k)",
}
advantages = {
    f"{cell} {name}": lab.RECIPES[name].advantages(rows)["advantage"].round(2) for name, cell in CELLS.items()
}
rows[["episode", "agent"]].assign(R=lab.episode_return()(rows), **advantages)

# %% [markdown]
# *Explain:* blamed, with −0.46: it lies below a mean that the solver's successes made. Whatever the helper says is blamed, the wrong answer more. Dividing by its own small deviation, (μ, σ_k), makes the blame larger and no better. Only with its own *mean* is a right answer praised. The offset μ_k − μ = −0.3 is the same in both of its rows: it says that the helper was called, and nothing about what it said.
#
# ## The same on a real batch
#
# 16 tasks, 8 episodes each, on the untrained pocket model. The solver is frozen, so that all that can change is the helper.


# %%
def team_of(env):
    """Weights of its own for each agent; the solver keeps what it has."""
    return lab.Team.per_agent(lambda agent: lab.load_policy(env.pocket, lr=3e-4), env.agents, frozen="solver")


env = lab.make_env("paid_help", pay=0.2)
turns = lab.rollout(env, team_of(env), env.tasks(16, "train", seed=0), lab.episodes(8), seed=0)
turns = lab.RECIPES["grpo"].advantages(turns)
two_baselines(turns, env.agents)

# %% [markdown]
# Above: the credits of each agent, with its own mean (solid) and everybody's (dashed). Below: the advantages that either baseline makes of them. (`lab.RewardInspector(turns)` has this picture, with a table.)
#
# Notebook 05 looked at what a global baseline does to the *size* of a gradient. Here it does not look dangerous:

# %% [markdown]
# *Predict:* the helper's gradient on this batch, under the global baseline and under its own: which norm is larger? Then: which share of its squared advantages, under the global one, is information?

# %%
ratio = lab.baseline_ratio(team_of(env), turns, rows=64)
signal = lab.advise(turns).set_index("agent").loc[["helper"], ["signal"]].reset_index(drop=True)
ratio[["agent", "n", "F", "norm_global", "norm_agent"]].join(signal).round(2)

# %% [markdown]
# *Explain:* the norm is *smaller* under the global baseline. `n` are the helper's rows, `F` is the mean of its squared global advantages (Dr. MAS's $F_k$, near 1 here). But only 4 % of them is `signal`,
#
# $$ \text{signal}_k = \frac{\sigma_k^2}{\sigma_k^2 + (\mu_k - \mu)^2}, $$
#
# the part that differs between its right and its wrong answers; the rest is the offset. A gradient is a sum of advantage × ∇ log π over rows. The offset adds the same number to all of them, which averages out over very many rows and is noise over a few. Its own mean takes the noise away, and costs something too: a row's own credit is in the mean that it is compared with, so that with $n_k$ rows a part $1/n_k$ of the signal is lost, where the task's $N$ episodes lose $1/N$. Together, in squared signal-to-noise ratio,
#
# $$ \text{gain} = \frac{\mathrm{SNR}^2(\text{own})}{\mathrm{SNR}^2(\text{global})} = \left(\frac{1 - 1/n_k}{1 - 1/N}\right)^{2} \frac{1}{\text{signal}_k}. $$
#
# (The kit's own criterion, `lab.advise`; the paper has none. AdamW and clipping divide the size of a gradient out again; its signal-to-noise ratio they cannot mend.)
#
# **07.1** Write `gain`. It is compared with `lab.advise` on random tables.


# %%
def gain(n_k, N, signal):
    ### BEGIN SOLUTION
    return ((1 - 1 / n_k) / (1 - 1 / N)) ** 2 / signal
    ### END SOLUTION


lab.course.check("07.1", gain)

# %% [markdown]
# `lab.advise` gives this number per agent with a verdict: an own mean "pays" above 1.25, "costs" below 0.8, "hardly matters" between. The rule for practice: **roll out once and ask before training.**

# %%
advice = lab.advise(turns)
print(*advice["why"], sep="\n\n")
advice[["agent", "own", "spoke", "n_k", "lone", "flat", "signal", "gain"]].round(2)

# %% [markdown]
# `spoke`: share of the episodes in which the agent did; `n_k`: its rows to compare in a task; `lone`, `flat`: the share of its rows that are alone there, or all earned the same, of which an own mean learns nothing.
#
# ## Training it: pay 0.2
#
# 30 steps of 16 tasks × 8 episodes, one seed, each run about 10 seconds. The score is on 64 held-out sums: success of the team, and how often the helper is right *when it is called*.
#
# **What to expect.** The team starts at 0.75, since the solver alone is right about half of the time and the helper mends half of the rest. At this learning rate, three seeds of the recorded study (with first weights of their own, 0.72, 0.75 and 0.68 at the start) ended at 0.72, 0.89 and 0.78 under the global baseline and at 0.96, 0.99 and 0.94 under their own. Not 1, because a helper that is right in 93 of 100 calls leaves a few.


# %%
def learn(pay, recipe):
    """One training: the team's success, the helper's, and its median norm."""
    env = lab.make_env("paid_help", pay=pay)
    team, norms, sums = team_of(env), [], env.tasks(8 if SMOKE else 64, "test", seed=0)

    def score():
        told = lab.evaluate(env, team, sums, k=4).query("agent == 'helper'")
        return told["success"].mean(), told["own_return"].sum() / told["turns"].sum()

    before = score()
    for report in lab.train(env, team, recipe, steps=STEPS, seed=0, tasks=16):
        norms += list(report.stats["grad_norm"])
    after = score()
    told = {"pay": pay, "baseline": recipe, "team before": before[0], "team after": after[0]}
    return told | {"helper before": before[1], "helper after": after[1], "median norm": np.median(norms)}


# %% [markdown]
# *Predict:* the helper is right in 0.48 of its calls before training. After it, under the global baseline, and under its own? And whose norms are higher?

# %%
results = [learn(0.2, recipe) for recipe in ("grpo", "dr_mas")]
pd.DataFrame(results).round(2)

# %% [markdown]
# *Explain:* under its own baseline the helper comes to about 0.9, under the global one it hardly learns. Nothing in its norms says so: they stay below 1, where clipping begins, and the first batch had the smaller one under the global baseline. **Harm without norms**: its direction was mostly noise. In the recorded study each baseline had the learning rate that suits it best, and the global one then takes a lower one, which hides more than half of the harm: 0.82 against 0.89 over ten seeds, +0.06 seed by seed (95 % interval 0.05 to 0.07), higher in all ten. At 1e-3, the highest rate tried, the global baseline makes the helper *unlearn*: the team ends at 0.50 in all three seeds, below where it began; with its own it still learns, to 0.85, 0.87 and 0.90.
#
# ## One number switches it off
#
# With pay = 1 help is worth what solving is.

# %% [markdown]
# *Predict:* `grpo` and `dr_mas` once more, at pay 1.0. Which of them changes, and by how much? (Look at the formula of `dr_mas` before you answer for it.)

# %%
results += [learn(1.0, recipe) for recipe in ("grpo", "dr_mas")]
pd.DataFrame(results).round(2)

# %% [markdown]
# *Explain:* `grpo` now teaches the helper, too. And `dr_mas` made the *same run* as before: multiply all of an agent's rewards by 5, and its mean and deviation grow fivefold with them, so no advantage changes. Its own baseline is blind to what help is worth; the global one is not, and confuses it with how well the helper did. Mind the norms: under the global baseline they are *higher* at pay 1.0, where it does no harm.
#
# Between the two ends, from the record: what was told at the start (`gain`, of the first five steps under the global baseline) and what came of it, each baseline at its best rate.

# %%
agents = Recorded(STUDIES / "paid_help").agents.query("agent == 'helper' and arm in ['global', 'own']")
agents = agents[agents["task"].str.fullmatch(r"pay 0\.[12468]|pay 1\.0")]
told = agents.query("window == 'start' and arm == 'global'").groupby("task")["gain"].median()
right = agents.query("window == 'end'").pivot_table(index="task", columns="arm", values="own_after")
seeds = agents.groupby("task")["seed"].nunique().rename("seeds")
by_pay = pd.DataFrame({"gain": told, "helper, global": right["global"], "helper, own": right["own"]})
by_pay.assign(difference=by_pay["helper, own"] - by_pay["helper, global"]).join(seeds).round(2)

# %% [markdown]
# (Ten seeds at 0.2 and 1.0, three elsewhere: the difference falls with the gain, and near a gain of 1 there is none.)
#
# **07.2** Find the pay at which the gain of the helper is 1 *on this batch*, to 0.03: an own mean then costs exactly what it brings. Rewards do not change what was said, so you may take the completions as they are: a right answer of the helper earns the new pay, everything else earns what it did.

# %%
### BEGIN SOLUTION
gains = {}
for percent in range(20, 101):
    paid = turns["team_reward"].mask((turns["agent"] == "helper") & turns["success"], percent / 100)
    fresh = turns.drop(columns=["credit", "group", "center", "scale", "advantage"]).assign(team_reward=paid)
    advised = lab.advise(lab.group(fresh, by="task", credit=lab.episode_return())).set_index("agent")
    gains[percent / 100] = advised.loc["helper", "gain"]
pay = min(gains, key=lambda one: abs(gains[one] - 1))
### STARTER
# pay = ...
### END SOLUTION
lab.course.check("07.2", turns, pay)

# %% [markdown]
# Sixteen tasks are few. The table above has a gain of 1.04 at pay 1.0, from five steps and ten seeds; on this batch it is down to 1 sooner. That is why `advise` says "hardly matters" of everything between 0.8 and 1.25.
#
# ## Which half of it?

# %% [markdown]
# *Predict:* from the table by hand: which of the mixed cells comes close to `dr_mas`, the one with its own mean or the one with its own deviation? The paper, on search with a 7B model, has 28.0 for (μ, σ), 39.1 for (μ_k, σ), 42.9 for (μ, σ_k) and 43.8 for (μ_k, σ_k).

# %%
halves = {}
for study, task in (("paid_help", "pay 0.2"), ("ladder", "8 agents")):
    table = lab.AblationBoard(STUDIES / study).table.query("env == @task").set_index("recipe")
    halves[f"{study}, {task}"] = table["final"].reindex(["global", "own mean", "own scale", "own"])
pd.DataFrame(halves).round(2)

# %% [markdown]
# *Explain:* here the **mean** does it: 0.87 of 0.89 in `paid_help`, all of it on the ladder. Its own deviation about everybody's mean leaves the offset where it was: 0.83, and nothing that ten seeds tell. On the ladder it keeps two thirds, but not by its scale: what helps is that it leaves out flat groups. Lent everybody's deviation there (`flat="center"`), it ends at 0.05. The paper found the opposite order, on another task with real models; its first number is a run that collapsed. Two results that disagree are two results.
#
# On the `ladder` (notebook 05) eight agents climb, and stage *j* + 1 is reached only where stage *j* was right. There norms and harm come together. Ten seeds, 3,840 episodes each:

# %%
ladder = Recorded(STUDIES / "ladder").agents.query("task == '8 agents' and arm in ['global', 'own']")
start = (
    ladder.query("window == 'start' and arm == 'global'")
    .groupby("agent", sort=False)[["spoke", "signal", "gain"]]
    .median()
)
end = ladder.query("window == 'end'").pivot_table(
    index="agent", columns="arm", values=["own_after", "largest_norm"], aggfunc="median"
)
end.columns = [f"{what.replace('own_after', 'right')}, {arm}" for what, arm in end.columns]
start.join(end[sorted(end.columns, reverse=True)]).round(2)

# %% [markdown]
# A row per stage, medians over seeds: how often it was reached in the first five steps, its `signal` and `gain` there; then how often it was right at the end and its largest gradient norm, under either baseline. The harm begins at `stage_5`, where the gain is above 3 and the calls are few; at the top nobody was reached in two episodes of a task, so that its gain is 0: not even an own mean could learn there *yet*. Later, when more episodes come through, it can.
#
# **07.3** Five steps of one of these runs, as numbers. Of which stages would `lab.advise` say that their own mean pays? Name them, before you compute anything.

# %%
five = Recorded(STUDIES / "ladder").agents.query(
    "task == '8 agents' and arm == 'global' and window == 'start' and seed == 2"
)
five[["agent", "rows", "n_k", "N", "lone", "signal"]].round(3).reset_index(drop=True)

# %%
### BEGIN SOLUTION
pays = ["stage_2", "stage_3", "stage_4", "stage_5"]
### STARTER
# pays = ["stage_1", ...]
### END SOLUTION
lab.course.check("07.3", pays)

# %% [markdown]
# ## Where it changes nothing: math and search
#
# Dr. MAS reports its gains on `math` (solver → verifier, sent back up to three times) and `search` (a verifier calls a search agent or an answer agent). Both stand in the kit, and so does a `math` with a **fixer**, who is called only after a rejection.

# %% [markdown]
# *Predict:* ask before training. Of which agents in these three teams will `lab.advise` say "pays"? Think of who is called on a condition, and of how much that condition says about the reward.

# %%
asked = []
for name, options in {"math": {}, "math with a fixer": {"fixer": True}, "search": {}}.items():
    env = lab.make_env(name.split()[0], **options)
    team = lab.Team.per_agent(lambda agent, env=env: lab.load_policy(env.pocket), env.agents)
    first = lab.rollout(env, team, env.tasks(8 if SMOKE else 48, "train", seed=0), lab.episodes(8), seed=0)
    asked.append(lab.advise(lab.group(first, by="task", credit=lab.episode_return())).assign(team=name))
pd.concat(asked)[["team", "agent", "own", "spoke", "n_k", "lone", "flat", "signal", "gain"]].round(2)

# %% [markdown]
# *Explain:* of solvers, verifiers, searchers and answerers it says "hardly matters": they speak in nearly every episode, so their mean *is* everybody's and `signal` is near 1. The fixer is the interesting one. Its signal is low, as the helper's is; but it has few rows in a task, and most of them are alone there or all earned the same (`lone`, `flat`), so that its own mean has little to compare. Its verdict hangs on the batch: on ours a gain of 1.4; over the ten seeds of the record "costs" four times, "pays" and "hardly matters" three times each. And so it came, after 3,840 episodes each:

# %%
pieces = []
for study in ("math", "search"):
    board = lab.AblationBoard(STUDIES / study)
    table = board.table.query("recipe in ['global', 'own']").pivot(index="env", columns="recipe", values="final")
    own = board.differences.query("recipe == 'own'").set_index("env")[["pairs", "final_low", "final_high"]]
    pieces.append(table.join(own))
pd.concat(pieces).round(2)

# %% [markdown]
# `global`, `own`: success at the end (interquartile mean); `pairs`: seeds that ran under both; `final_low` to `final_high`: the 95 % interval of own minus global, seed by seed. All three hold 0: ten or five seeds tell no difference, and the record could have shown one of a few hundredths. The paper's team under GRPO learned to avoid its search agent; this one does not, under either baseline: from 1.6 searches an episode it goes to 1.7, which is what the questions want (`data/results/README.md`). Nothing here speaks for answering early.
#
# ## What an invalid answer costs
#
# Dr. MAS subtracts a penalty from an answer that cannot be read (0.1 on math, 0.01 on search). It belongs to the *row* that earned it:
#
# $$ R_{i,k,t} = R_i - \lambda\,\mathbb 1[\text{the answer of agent } k \text{ at turn } t \text{ cannot be read}]. $$

# %% [markdown]
# *Predict:* four episodes, all of them right; one verdict could not be read. With λ = 0.1, what is the advantage of that verdict, of the other verdicts, and of the solvers, under `dr_mas`? What should it be for the solvers?

# %%
verdicts = pd.DataFrame(
    [
        {"task": "sum", "episode": f"e{e}", "agent": agent, "depth": depth, "turn": 0, "team_reward": float(depth)}
        | {"valid": not (e == 0 and agent == "verifier")}
        for e in range(4)
        for depth, agent in enumerate(("solver", "verifier"))
    ]
)
fined = lab.episode_return(invalid=0.1)
judged = {name: lab.RECIPES[name].replace(credit=fined).advantages(verdicts) for name in ("grpo", "dr_mas")}
verdicts[["episode", "agent", "valid"]].assign(
    credit=judged["dr_mas"]["credit"], **{name: table["advantage"].round(2) for name, table in judged.items()}
)

# %% [markdown]
# *Explain:* under `dr_mas` the verdict gets −1.73, the others +0.58, and the solvers 0: they all did the same, so nothing is to be learned about them. Under `grpo` the solvers are praised for a stranger's slip, since one episode's mean credit went down. `lab.RECIPES["dr_mas"].replace(credit=lab.episode_return(invalid=0.1))` is the published setting.
#
# **07.4** Now by yourself. `own(turns)` gets a table with `task`, `episode`, `agent` and `credit`, and returns the advantages of Dr. MAS with one change: an *episode* enters an agent's mean and deviation once, with the mean of the agent's credits in it, however often the agent spoke (`once_per="episode"`, the recipe `dr_mas_episodes`). Population deviation, ε = 1e-6; where the agent spoke in one episode of the task alone, or its episodes all count the same, the advantage is 0.


# %%
def own(turns):
    ### BEGIN SOLUTION
    episodes = turns.groupby(["task", "agent", "episode"])["credit"].mean()
    units = episodes.groupby(["task", "agent"]).agg(
        mean="mean", std=lambda one: one.std(ddof=0), size="size", spread=lambda one: one.max() - one.min()
    )
    row = turns[["task", "agent"]].merge(units, left_on=["task", "agent"], right_index=True, how="left")
    advantage = (turns["credit"] - row["mean"]) / (row["std"] + 1e-6)
    return advantage.mask((row["size"] < 2) | (row["spread"] < 1e-12), 0.0)
    ### END SOLUTION


lab.course.check("07.4", own)

# %% [markdown]
# ## A team of different models
#
# Nothing in the four cells asks whether agents share weights, are of one size, or learn at one rate: that stands in the `Team` alone. Here the verifier is a smaller model (0.10 million weights, a tokenizer of its own), at a learning rate and a temperature of its own:

# %%
env = lab.make_env("math")
team = lab.Team(
    {"solver": lab.load_policy("math", lr=3e-4), "verifier": lab.load_policy("math_small", lr=1e-3)},
    sampling={"verifier": lab.Sampling(temperature=0.8)},
)
PRICE = {"solver": (0.335, 0.335), "verifier": (0.100, 0.100)}  # of a token read, of a token said: millions of weights
sums = env.tasks(8 if SMOKE else 64, "test", seed=0)
COLUMNS = ["success", "turns", "tokens", "cost"]
scores = {"before": lab.summary(lab.evaluate(env, team, sums, k=4, price=PRICE)).set_index("agent")[COLUMNS]}
*_, report = lab.train(env, team, "dr_mas", steps=2 if SMOKE else 20, seed=0, tasks=16)
scores["after"] = lab.summary(lab.evaluate(env, team, sums, k=4, price=PRICE)).set_index("agent")[COLUMNS]
pd.concat(scores).round(2)

# %%
report.stats[["policy", "turns", "tokens", "lr", "entropy", "grad_norm", "mismatch"]]

# %% [markdown]
# `success` is the team's; the rest are each agent's own, per episode, `cost` in PRICE × tokens. `mismatch` next to nothing says that the log-probabilities respect each agent's temperature.
#
# Look at `turns` and `cost`. In our run they rose to three rounds an episode, the most there is: the verifier had learned to send back nearly everything. The outcome does not punish it, since the last answer counts. Success says nothing of that; the bill does.

# %% [markdown]
# *Predict:* five seeds each, from the record (both learn at 3e-4): both large, a small verifier, a small solver, both small. 0.96 for both large. Who may be small?

# %%
sizes = lab.AblationBoard(STUDIES / "sizes")
sizes.table.set_index("recipe")[["final", "final_low", "final_high"]].round(2)

# %% [markdown]
# *Explain:* the verifier. A small one costs a third as much a token and loses nothing that five seeds tell (0.94 against 0.96); a small solver loses a third of the successes. Who does the work needs the weights.
#
# **07.5** Design a team for `math` **with a fixer**, in which only the fixer learns: solver and fixer large, the verifier small; solver and verifier frozen; the fixer with *weights of its own* (the solver's must not move with it), at a learning rate of 1e-4, sampled at temperature 1 with at most 7 tokens; the verifier at temperature 0.5. What would `lab.advise` say of its fixer?

# %%
### BEGIN SOLUTION
yours = lab.Team(
    {
        "solver": lab.load_policy("math"),
        "verifier": lab.load_policy("math_small"),
        "fixer": lab.load_policy("math", lr=1e-4),
    },
    sampling={
        "verifier": lab.Sampling(temperature=0.5),
        "fixer": lab.Sampling(temperature=1.0, max_tokens=7),
    },
    frozen=("solver", "verifier"),
)
### STARTER
# yours = ...
### END SOLUTION
lab.course.check("07.5", yours)
lab.course.progress("07")

# %% [markdown]
# ## What to remember
#
# 1. A global mean adds the same offset to all advantages of an agent that is called on a condition. The offset is noise; its own *mean* takes it away. Its own deviation does not.
# 2. Norms do not tell it, `lab.advise(turns)` largely does, from the rewards of a first rollout: high offset and enough rows to compare, "pays"; who speaks in every episode, or always alone, "hardly matters".
# 3. So: separate weights, called rarely, on a condition that shifts the rewards. Elsewhere `grpo` and `dr_mas` come to the same.
#
# Papers: Dr. MAS, [arXiv 2602.08847](https://arxiv.org/abs/2602.08847), equations 4 to 6 (the advantages); GRPO, [arXiv 2402.03300](https://arxiv.org/abs/2402.03300), equation 3. All runs and what would change the answer: `docs/findings.md`.
#
# Next: `08_magrpo`, where agents act at the same time, unseen by each other, for one joint reward.
