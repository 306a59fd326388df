# %% [markdown]
# # Dr. MAS: paid help, math, search, and teams of unlike models
#
# *Level: notebooks 00 to 05. Reading: 30 minutes. Compute: 1 to 2 minutes on two CPU cores.*
#
# A team earns one reward, and its agents are not called alike: a fixer only after a rejection, a search agent only when something is missing, a helper only where the solver was wrong. Dr. MAS ([arXiv 2602.08847](https://arxiv.org/abs/2602.08847)) judges each agent by the mean and the deviation of *its own* rewards. Notebook 03 showed on paper what that does to an advantage. This one is for somebody who has a team to train: what to ask before, what to expect, and where it changes nothing.
#
# Afterwards you can
#
# - estimate with a pencil, or with `lab.advise`, whether an agent of a new team may need its own mean, and say how far to trust that;
# - say why a lower learning rate hides the harm of a global one, and what happens at a higher rate;
# - say what the record has on math and search, the tasks of the paper;
# - put together a team of different models, learning rates and sampling, and say who may be small.

# %% tags=["install"]

# %% tags=["parameters"]
SMOKE = False  # True: a few steps only, to see that everything runs

# %%
import pandas as pd

import mas_lab as lab
from mas_lab.paths import data_dir
from mas_lab.study.record import Recorded

STUDIES = data_dir() / "results" / "studies"
STEPS = 2 if SMOKE else 30

# %% [markdown]
# ## By hand: does it pay?
#
# From notebook 03: for agent $k$, with mean $\mu_k$ and deviation $\sigma_k$ over $Y_k$, all of its rows in a task (equations 4 to 6 of the paper),
#
# $$ A_{i,k} = \frac{R_i - \mu_k}{\sigma_k + \varepsilon}, $$
#
# where GRPO has the mean μ and the deviation σ of the task's episodes. A global mean adds the offset $\mu_k - \mu$ to each of the agent's advantages, whatever it said. What differs between its answers is
#
# $$ \text{signal}_k = \frac{\sigma_k^2}{\sigma_k^2 + (\mu_k - \mu)^2} $$
#
# of the square. Its own mean takes the offset away, and costs something too: a row's own credit is in the mean that it is compared with, so that with $n_k$ rows a part $1/n_k$ of the signal is lost, where the task's $N$ episodes lose $1/N$. Together, in squared signal-to-noise ratio of the gradient,
#
# $$ \text{gain} = \frac{\mathrm{SNR}^2(\text{own})}{\mathrm{SNR}^2(\text{global})} = \left(\frac{1 - 1/n_k}{1 - 1/N}\right)^{2} \frac{1}{\text{signal}_k}. $$
#
# (The kit's own criterion, `lab.advise`; the paper has none.) Now a task with three episodes. A solver answers; where it is wrong, a second agent is called, who is right in one of two calls. In the **first** team that one mends the answer, and a mended answer is worth 1. In the **second** it is paid help, and a right answer with help is worth 0.2:
#
# | row | episode | agent | R, mended | R, paid help |
# |---|---|---|---|---|
# | 0 | 0 | solver | 1 | 1 |
# | 1 | 1 | solver | 1 | 0.2 |
# | 2 | 1 | second | 1 | 0.2 |
# | 3 | 2 | solver | 0 | 0 |
# | 4 | 2 | second | 0 | 0 |
#
# *By hand, the first team.* Episodes: μ = 2/3. The second agent: μ_k = 1/2, σ_k = 1/2, so the offset is −1/6 and signal = (1/4) / (1/4 + 1/36) = 0.9. With n_k = 2 and N = 3 the bracket is (1/2)/(2/3) = 3/4, and the gain 9/16 / 0.9 = 0.63: its own mean would *cost*.

# %% [markdown]
# *Predict:* the second team differs in one number. Do the same with a pencil: offset, signal, gain. Would its own mean pay?

# %%
said = {
    "task": "sum",
    "episode": ["e0", "e1", "e1", "e2", "e2"],
    "agent": ["solver", "solver", "second", "solver", "second"],
}
teams = {"mended": [1, 1, 1, 0, 0], "paid help": [1, 0.2, 0.2, 0, 0]}
by_hand = [
    lab.advise(pd.DataFrame(said | {"credit": credits})).assign(team=name).query("agent == 'second'")
    for name, credits in teams.items()
]
pd.concat(by_hand).set_index("team")[["n_k", "N", "signal", "gain", "own"]].round(3)

# %% [markdown]
# *Explain:* μ = 0.4 and μ_k = σ_k = 0.1, so the offset is −0.3: signal = 0.01 / 0.10 = 0.1, and the gain 5.6. Both are called on the same condition; what decides is how far that condition shifts their rewards, measured in *their own* deviation. A verdict is another matter (`own`): five rows are too few for one.
#
# **07.1** Write `gain`. It is compared with `lab.advise` on random tables.


# %%
def gain(n_k, N, signal):
    ### BEGIN SOLUTION
    return ((1 - 1 / n_k) / (1 - 1 / N)) ** 2 / signal
    ### END SOLUTION


lab.course.check("07.1", gain)

# %% [markdown]
# `lab.advise` gives this number per agent with a verdict: an own mean "may pay" above 1.25, "may cost" below 0.8, and "hardly matters" between. An agent most of whose rows are alone or among equals it calls "mostly without a peer". **Roll out once, and ask before training.** Here for `paid_help` on the untrained pocket model, 16 tasks of 8 episodes. The solver is frozen, so that all that can change is the helper.


# %%
def team_of(env, lr=3e-4):
    """Weights of its own for each agent; the solver keeps what it has."""
    return lab.Team.per_agent(lambda agent: lab.load_policy(env.pocket, lr=lr), env.agents, frozen="solver")


env = lab.make_env("paid_help", pay=0.2)
turns = lab.rollout(env, team_of(env), env.tasks(16, "train", seed=0), lab.episodes(8), seed=0)
turns = lab.RECIPES["grpo"].advantages(turns)
advice = lab.advise(turns)
print(*advice["why"], sep="\n\n")
advice[["agent", "own", "spoke", "n_k", "lone", "flat", "signal", "gain"]].round(2)

# %% [markdown]
# From rows that are `lone` or `flat` an own mean learns nothing; they are in the gain.
#
# ## How much harm? It depends on the rate
#
# In notebook 03 both baselines trained at one learning rate, 3e-4. A noisy gradient can be averaged by going slowly, so a rate decides how much of the noise is seen. Here are three: `grpo` and `dr_mas` at pay 0.2, and `grpo` at pay 1.0, where help is worth what solving is and the gain is about 1. (`dr_mas` at pay 1.0 needs no run: multiply all of an agent's rewards by 5 and no advantage of it changes.)
#
# **What to expect.** Nine trainings of 30 steps, 5 seconds each. The helper starts right in about half of its calls, the team in 0.75 of the sums, since the solver alone is right about half of the time. The team cannot come to 1 while the helper leaves a few.


# %%
def learn(pay, recipe, lr):
    """One training; how often team and helper are right after it, and what the helper says."""
    env = lab.make_env("paid_help", pay=pay)
    team, norms = team_of(env, lr), []
    for report in lab.train(env, team, recipe, steps=STEPS, seed=0, tasks=16):
        norms += list(report.stats["grad_norm"])
    played = lab.rollout(env, team, env.tasks(8 if SMOKE else 64, "test", seed=0), lab.episodes(4), seed=1)
    helper = played[played["agent"] == "helper"]
    told = {"helper": helper["success"].mean(), "team": played.groupby("episode")["success"].last().mean()}
    told |= {"unreadable": 1 - helper["valid"].mean(), "norm": pd.Series(norms).median()}
    return {"rate": lr, "arm": f"{recipe}, pay {pay}"} | told | {"says": helper["completion"].iloc[0]}


# %% [markdown]
# *Predict:* fill in nine numbers, the helper's share of right answers after training: rates 1e-4, 3e-4, 1e-3 for each of the three. Where will it be *below* where it started?

# %%
ARMS = ((0.2, "grpo"), (0.2, "dr_mas"), (1.0, "grpo"))
results = pd.DataFrame([learn(pay, recipe, lr) for pay, recipe in ARMS for lr in (1e-4, 3e-4, 1e-3)])
shown = results.pivot(index="arm", columns="rate", values=["helper", "team", "norm"])
shown.loc[results["arm"].unique()].round(2)

# %% [markdown]
# (`helper`, `team`: shares of right answers; `norm`: the median of the helper's gradient norm over the run, before clipping at 1.) What does the helper say after the highest rate? Its answer to one and the same sum, and the share of its answers that cannot be read:

# %%
results.query("rate == 0.001")[["arm", "says", "unreadable"]].round(2)

# %% [markdown]
# *Explain.* At 1e-4 the global baseline is only somewhat behind, at 3e-4 far. At 1e-3 the helper **unlearns** what it knew: blamed for whatever it says, it has left the words of an answer altogether, and hardly anything that it says can be read. Its own baseline learns at all three rates. So does `grpo` at pay 1.0, by one number of the environment, though its norms are the *largest* of the three: a collapse, and no norm announces it.
#
# One seed could be luck. The record, in which each baseline was tried at four rates over three seeds with first weights of their own, success of the team in the end:

# %%
sweep = Recorded(STUDIES / "paid_help").table.query("phase == 'sweep' and arm in ['global', 'own']")
sweep = sweep[sweep["task"].isin(["pay 0.2", "pay 1.0"])]
sweep.pivot_table(index=["task", "arm"], columns="lr", values="final", aggfunc=["min", "max"]).round(2)

# %% [markdown]
# (`global` is `grpo`, `own` is `dr_mas`; the lowest and the highest of three seeds, from 0.68 to 0.75 before training.) At the rate of notebook 03, 3e-4, they ended at 0.72, 0.89 and 0.78 under the global baseline and at 0.96, 0.99 and 0.94 under their own; at 1e-3 the global one is at 0.50 in all three. **A sweep hides harm:** given its best rate, 1e-4, the global baseline ends at 0.82 over ten seeds against 0.89, +0.06 seed by seed for the own one (95 % interval 0.05 to 0.07), higher in all ten. Whoever reports that alone reports less than half of it; whoever reports 1e-3 alone reports a straw man. Report both.
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
# Sixteen tasks are few. The record, from five steps and in the median of ten seeds, has a gain of 1.04 at pay 1.0; on this batch it is down to 1 sooner. That is why `advise` says "hardly matters" of everything between 0.8 and 1.25.
#
# ## The ladder, in one cell
#
# In `paid_help` harm comes without norms. On the `ladder` (notebooks 03 and 05), where stage *j* + 1 of eight is reached only if stage *j* was right, they come together. Ten recorded seeds:

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
# A row per stage, medians over seeds: how often it was reached in the first five steps, its `signal` and `gain` there; then how often it was right at the end and its largest gradient norm, under either baseline. The harm begins at `stage_5`, where the gain is above 3 and the calls are few; the highest were hardly ever reached in two episodes of a task, so that their gain is 0: not even an own mean can learn there *yet*. Later, when more episodes come through, it can. (Whether it is the mean or the deviation that does it: notebook 03.)
#
# **07.3** Five steps of one of these runs, as numbers. Of which stages would `lab.advise` say that their own mean may pay? Name them, before you compute anything. (`rows`: how often the stage spoke in them.)

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
# *Predict:* ask before training. Of which agents in these three teams will `lab.advise` say "may pay"? Think of who is called on a condition, and of how much that condition says about the reward.

# %%
asked = []
for name, options in {"math": {}, "math with a fixer": {"fixer": True}, "search": {}}.items():
    env = lab.make_env(name.split()[0], **options)
    team = lab.Team.per_agent(lambda agent, env=env: lab.load_policy(env.pocket), env.agents)
    first = lab.rollout(env, team, env.tasks(8 if SMOKE else 48, "train", seed=0), lab.episodes(8), seed=0)
    asked.append(lab.advise(lab.group(first, by="task", credit=lab.episode_return())).assign(team=name))
pd.concat(asked)[["team", "agent", "own", "spoke", "n_k", "lone", "flat", "signal", "gain"]].round(2)

# %% [markdown]
# *Explain:* of solvers, verifiers, searchers and answerers it says "hardly matters": they speak in nearly every episode, so their mean *is* everybody's and `signal` is near 1. The fixer is the interesting one. Its signal is low, as the helper's is; but it has few rows in a task, and most of them are alone there or all earned the same (`lone`, `flat`), so that its own mean has little to compare: it is "mostly without a peer". Its gain hangs on the batch: on ours 1.4; over the ten seeds of the record, by the gain alone, "may cost" four times, "may pay" and "hardly matters" three times each.
#
# What came of it, after 3,840 episodes each? The paper took its method apart on `search`, with a 7B model: 28.0 for (μ, σ), which is `grpo`, 39.1 with its own mean alone, 42.9 with its own deviation alone, 43.8 with both, which is `dr_mas`.

# %% [markdown]
# *Predict:* the same four cells in the record of the pocket `search`: in which order do they end, and how far apart?

# %%
pieces = []
for study in ("math", "search"):
    board = lab.AblationBoard(STUDIES / study)
    ends = board.table.pivot(index="env", columns="recipe", values="final")
    against = board.differences.query("recipe == 'own'").set_index("env")[["pairs", "final_low", "final_high"]]
    pieces.append(ends.join(against))
pd.concat(pieces)[["global", "own mean", "own scale", "own", "pairs", "final_low", "final_high"]].round(2)

# %% [markdown]
# *Explain:* all four at 0.96, as `advise` said. (Columns: success in the end, the interquartile mean of the runs; on `math` two arms were made. `pairs`: seeds under both baselines; `final_low` to `final_high`: the 95 % interval of own minus global, seed by seed.) None of the three intervals lies on one side of 0, and they are a few hundredths wide: ten and five seeds tell nothing, and would have told a difference of a tenth. The paper's first number is a run that collapsed; there was no collapse here to be kept from. Its team learned under GRPO to avoid the search agent; this one does not, under either baseline: from 1.6 searches an episode it goes to 1.7, which is what the questions want. Two results that disagree are two results, of two sizes of model.
#
# ## Would you have foretold it?
#
# In all settings above somebody expected the effect. So the criterion was tried on settings that nobody had built for it. Its numbers, its bounds and the analysis were fixed before anything was trained (`benchmarks/foretold`). Here are two agents of that test, as three rollouts of the untrained team show them (medians). Both belong to teams that were drawn at random. *Agent 2* of `drawn 3` is called after a wrong answer. *Agent 3* of `drawn 5` is called only if every answer before it was right. `gain` looks at credits alone. `weighted_gain` also weighs each row by how much it moves the weights. `progress` is what remains of it where the signal is high already.

# %%
FORETOLD = data_dir() / "results" / "foretold"
tested = pd.read_csv(FORETOLD / "agents.csv").set_index(["setting", "agent"])
two = tested.loc[[("drawn 3", "agent_2"), ("drawn 5", "agent_3")]]
two[["rows", "spoke", "signal", "gain", "weighted_gain", "snr", "progress"]].round(2)

# %% [markdown]
# *Predict:* both were trained under `grpo` and under `dr_mas`, over eight seeds, each at the better of two rates. Did `dr_mas` raise the agent's own reward by more than 0.03, change nothing, or lower it? Say it for both agents, once by `gain` and once by `weighted_gain`.

# %%
two[["dr_mas - grpo", "dr_mas - grpo, came"]].round(3)

# %% [markdown]
# *Explain:* by both gains an own mean may pay for both agents. Agent 2 came out better: a hit. Agent 3 did not move at all: a miss. Its gain was the larger one. One hit and one miss say nothing, so look at all agents that are called on a condition:

# %%
hits = pd.read_csv(FORETOLD / "hits.csv").query("agents == 'called on a condition'").set_index("predictor")
predictors = ["gain", "weighted_gain", "progress", "F", "norm_ratio", "constant"]
hits.loc[predictors, ["hit", "miss", "untold", "share", "rank", "rank_low", "rank_high"]].round(2)

# %% [markdown]
# The shares of hits of the gains are near that of a rule which always says "hardly matters" (`constant`), and the intervals of their rank correlations contain 0. So the criterion failed its test. What it measures is real: the noise that a global mean adds to a gradient. But what an agent learns in the end also depends on the learning rate, on how much signal there was, and on what its team mates learn. So take "may pay" as a reason to train both and to compare.
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
# 1. A global mean adds the same offset to all advantages of an agent that is called on a condition. The offset is noise; its own *mean* takes it away. Its own deviation does not. `dr_mas` also leaves out rows that have no peer.
# 2. Norms do not show it. `lab.advise(turns)` measures it in the rewards of a first rollout. In a test that was fixed beforehand, its verdicts did not foretell who learned more.
# 3. Differences were found for separate weights, called rarely, on a condition that shifts the rewards. Elsewhere we could not detect one.
#
# Papers: Dr. MAS, [arXiv 2602.08847](https://arxiv.org/abs/2602.08847), equations 4 to 6 (the advantages); GRPO, [arXiv 2402.03300](https://arxiv.org/abs/2402.03300), equation 3. All runs and what would change the answer: `docs/findings.md`.
#
# Next: `08_magrpo`, where agents act at the same time, unseen by each other, for one joint reward.
