# %% [markdown]
# # Dr. MAS: paid help, math, search, and teams of unlike models
#
# *Level: notebooks 00 to 05. Reading: 35 minutes. Compute: 2 to 3 minutes on two CPU cores.*
#
# A team earns one reward, but its agents do not speak equally often. A fixer speaks only after a rejection. A search agent speaks only when something is missing. A helper speaks only where the solver was wrong. Dr. MAS ([arXiv 2602.08847](https://arxiv.org/abs/2602.08847)) normalizes each agent's advantages by the mean and the deviation of *its own* rewards. Notebook 03 showed on paper what that does to an advantage. This notebook is for you if you have a team to train. It shows what to ask before training, what to expect, and where the method changes nothing.
#
# Afterwards you can
#
# - say, with a pencil or with `RewardInspector`, how much of an agent's advantages is signal, and why this does not tell who will learn more;
# - explain why a low learning rate hides the harm of a global mean, and what happens at a higher rate;
# - measure with `lab.uphill` which recipe's gradient points uphill, and predict with it who will learn more;
# - report what the recorded studies found on math and search, the tasks of the paper;
# - build a team with different models, learning rates and sampling, and say which agent may be small.

# %% tags=["install"]

# %% tags=["parameters"]
SMOKE = False  # True: a few steps only, to see that everything runs

# %%
import pandas as pd

import mas_lab as lab
from mas_lab.paths import data_dir
from mas_lab.study.record import Recorded
from mas_lab.widgets.figures import uphill_dots

STUDIES = data_dir() / "results" / "studies"
STEPS = 2 if SMOKE else 30

# %% [markdown]
# ## By hand: how large, and how much of it is signal?
#
# Recall notebook 03. Agent $k$ has the rows $Y_k$ in a task, with mean $\mu_k$ and deviation $\sigma_k$. Its advantage is (equations 4 to 6 of the paper)
#
# $$ A_{i,k} = \frac{R_i - \mu_k}{\sigma_k + \varepsilon}, $$
#
# GRPO uses the mean μ and the deviation σ of the task's episodes instead. The paper asks how *large* the agent's squared advantages then are. On average they are
#
# $$ F_k = \frac{\sigma_k^2 + (\mu_k - \mu)^2}{\sigma^2}, $$
#
# where its own mean and deviation give 1. But a global mean adds the offset $\mu_k - \mu$ to each advantage of the agent, whatever it said. Only the rest differs between its answers. Its share of the squared advantage is
#
# $$ \text{signal}_k = \frac{\sigma_k^2}{\sigma_k^2 + (\mu_k - \mu)^2}. $$
#
# Now take a task with three episodes. A solver answers. Where it is wrong, a second agent is called, which is right in one of two calls. In the **first** team the second agent mends the answer, and a mended answer is worth 1. In the **second** team it is paid help, and a right answer with help is worth 0.2:
#
# | row | episode | agent | R, mended | R, paid help |
# |---|---|---|---|---|
# | 0 | 0 | solver | 1 | 1 |
# | 1 | 1 | solver | 1 | 0.2 |
# | 2 | 1 | second | 1 | 0.2 |
# | 3 | 2 | solver | 0 | 0 |
# | 4 | 2 | second | 0 | 0 |
#
# *By hand, the first team.* The episodes have μ = 2/3 and σ² = 2/9. The second agent has μ_k = 1/2 and σ_k = 1/2. So the offset is −1/6, F is (1/4 + 1/36) / (2/9) = 1.25, and the signal is (1/4) / (1/4 + 1/36) = 0.9.

# %% [markdown]
# *Predict:* the second team differs in one number. Compute offset, F and signal with a pencil. Which of the two teams has the larger advantages, and which the larger share of noise?

# %%
said = {
    "task": "sum",
    "episode": ["e0", "e1", "e1", "e2", "e2"],
    "agent": ["solver", "solver", "second", "solver", "second"],
}
teams = {"mended": [1, 1, 1, 0, 0], "paid help": [1, 0.2, 0.2, 0, 0]}
by_hand = [
    lab.inflation(pd.DataFrame(said | {"credit": credits})).assign(team=name).query("agent == 'second'")
    for name, credits in teams.items()
]
pd.concat(by_hand).set_index("team")[["n_k", "mu", "sigma", "mu_k", "sigma_k", "F_k", "signal"]].round(3)

# %% [markdown]
# *Explain:* μ = 0.4 and μ_k = σ_k = 0.1, so the offset is −0.3. F is 0.10 / 0.187 = 0.54, and the signal is 0.01 / 0.10 = 0.1. Both agents are called on the same condition. How far this condition shifts their rewards, measured in *their own* deviation, decides the share of noise. The size F does not show it: the advantages of paid help are smaller, and nine tenths of them are noise.
#
# **07.1** (5 minutes, easy) Write `F`. The check compares it with `lab.inflation` on random tables.


# %%
def F(mu, sigma, mu_k, sigma_k):
    ### BEGIN SOLUTION
    return (sigma_k**2 + (mu_k - mu) ** 2) / sigma**2
    ### END SOLUTION


lab.course.check("07.1", F)

# %% [markdown]
# `RewardInspector` states such facts for each agent of a rollout. Besides `signal`, its table counts the rows that are alone or among equal credits (`peerless`): an own mean learns nothing from them. Here are the facts of `paid_help` on the untrained pocket model, with 16 tasks of 8 episodes. The solver is frozen, so only the helper can change. Both answer a chain of digits. The rule of chains: from left to right, and only the last digit of each step counts. So `3 + 4 * 2` is 7, then 14, so 4: `7 4 answer 4` is right. `8 1 answer 1`, which multiplies first, is wrong.


# %%
def team_of(env, lr=3e-4):
    """Weights of its own for each agent; the solver keeps what it has."""
    return lab.Team.per_agent(lambda agent: lab.load_policy(env.pocket, lr=lr), env.agents, frozen="solver")


env = lab.make_env("paid_help", pay=0.2)
turns = lab.rollout(env, team_of(env), env.tasks(16, "train", seed=0), lab.episodes(8), seed=0)
turns = lab.RECIPES["grpo"].advantages(turns)
facts = lab.RewardInspector(turns)
facts.table[["agent", "spoke", "rows", "peerless", "signal"]].round(2)

# %% [markdown]
# *Whose mean?* The two menus judge the same rows by another mean, or by another deviation. Which of the two menus takes the helper's advantage off the wrong way?

# %%
print(lab.verdict(turns))
facts

# %% [markdown]
# These facts recommend nothing: rewards do not tell whether an own mean pays. What comes of such an offset in training?
#
# ## How much harm? It depends on the rate
#
# In notebook 03 both baselines trained at one learning rate, 3e-4. Small steps average a noisy gradient, so the rate decides how much the noise harms. Here are three arms: `grpo` and `dr_mas` at pay 0.2, and `grpo` at pay 1.0. At pay 1.0 help is worth as much as solving, and three quarters of the helper's squared advantages are signal. (`dr_mas` at pay 1.0 needs no run. If you multiply all rewards of an agent by 5, none of its advantages changes.)
#
# **What to expect.** Nine trainings of 30 steps take 5 to 9 seconds each. Before training, the helper is right in about half of its calls. The team is right in 0.75 of the sums, since the solver alone is right about half of the time. The team cannot reach 1 while the helper misses a few.


# %%
def learn(pay, recipe, lr):
    """One training; how often team and helper are right after it, and what the helper says."""
    env = lab.make_env("paid_help", pay=pay)
    team, norms, tables = team_of(env, lr), [], []
    for report in lab.train(env, team, recipe, steps=STEPS, seed=0, tasks=16):
        norms += list(report.stats["grad_norm"])
        tables.append(report.turns.assign(step=report.step))
    played = lab.rollout(env, team, env.tasks(8 if SMOKE else 64, "test", seed=0), lab.episodes(4), seed=1)
    helper = played[played["agent"] == "helper"]
    told = {"helper": helper["success"].mean(), "team": played.groupby("episode")["success"].last().mean()}
    told |= {"unreadable": 1 - helper["valid"].mean(), "norm": pd.Series(norms).median()}
    told |= {"says": helper["completion"].iloc[0], "verdict": lab.verdict(pd.concat(tables))}
    return {"rate": lr, "arm": f"{recipe}, pay {pay}"} | told


# %% [markdown]
# *Predict:* what is the helper's share of right answers after training, at the rates 1e-4, 3e-4 and 1e-3, for each of the three arms? Where will it be *below* its start?

# %%
ARMS = ((0.2, "grpo"), (0.2, "dr_mas"), (1.0, "grpo"))
results = pd.DataFrame([learn(pay, recipe, lr) for pay, recipe in ARMS for lr in (1e-4, 3e-4, 1e-3)])
shown = results.pivot(index="arm", columns="rate", values=["helper", "team", "norm"])
shown.loc[results["arm"].unique()].round(2)

# %% [markdown]
# `helper` and `team` are shares of right answers. `norm` is the median of the helper's gradient norm over the run, before clipping at 1. What does the helper say after the highest rate? The table shows its answer to the same sum, and the share of its answers that cannot be read:

# %%
results.query("rate == 0.001")[["arm", "says", "unreadable"]].round(2)

# %% [markdown]
# `lab.verdict` says in a sentence or two what stands out in a training. It compares the recorded advantages with each agent's own reward, without a gradient. (`lab.train` printed the same lines above, with recipe, rate and seed in front.)

# %%
for one in results.itertuples():
    print(f"{one.arm}, rate {one.rate:g}: {one.verdict}")

# %% [markdown]
# *Explain.* At 1e-4 the global baseline is somewhat behind, at 3e-4 it is far behind. At 1e-3 the helper **unlearns** what it knew. It is blamed for whatever it says, so it no longer uses the words of an answer. Hardly any of its answers can be read. Its own baseline learns at all three rates. `grpo` learns at all rates too if the pay is 1.0 (at 1e-3 by 0.1 in our run, which the verdict does not count as clear). Its norms are then the *largest* of the three. So the norms do not announce the collapse. The verdict does: in our run it names the helper at 3e-4, and at 1e-3 it says that success and the helper's own reward fell. At 1e-4 nothing stands out, although the global baseline is behind. So the verdict sees large effects only.
#
# One seed could be luck. A recorded study tried each baseline at four rates over three seeds, with different first weights. Here is the team's success at the end:

# %%
sweep = Recorded(STUDIES / "paid_help").table.query("phase == 'sweep' and arm in ['global', 'own']")
sweep = sweep[sweep["task"].isin(["pay 0.2", "pay 1.0"])]
sweep.pivot_table(index=["task", "arm"], columns="lr", values="final", aggfunc=["min", "max"]).round(2)

# %% [markdown]
# `global` is `grpo`, `own` is `dr_mas`. The table shows the lowest and the highest of three seeds; before training they were at 0.68 to 0.75. At the rate of notebook 03, 3e-4, the global baseline ended at 0.72, 0.89 and 0.78, and the own one at 0.96, 0.99 and 0.94. At 1e-3 the global baseline ended at 0.50 in all three. **A sweep hides harm.** At its best rate, 1e-4, the global baseline ended at 0.82 over ten seeds, and the own one at 0.89. The difference seed by seed is +0.06 (95 % interval 0.05 to 0.07), and it is positive in all ten. If you report this rate alone, you report less than half of the harm. If you report 1e-3 alone, you attack a straw man. Report both.
#
# **07.2** (15 minutes, medium) Find the pay at which half of the helper's squared advantages is signal *on this batch*, to within 0.02. Rewards do not change the completions, so keep them as they are. A right answer of the helper earns the new pay; everything else earns what it did.

# %%
### BEGIN SOLUTION
signals = {}
for percent in range(20, 101):
    paid = turns["team_reward"].mask((turns["agent"] == "helper") & turns["success"], percent / 100)
    fresh = turns.drop(columns=["credit", "group", "center", "scale", "advantage"]).assign(team_reward=paid)
    facts = lab.RewardInspector(lab.group(fresh, by="task", credit=lab.episode_return())).table.set_index("agent")
    signals[percent / 100] = facts.loc["helper", "signal"]
pay = min(signals, key=lambda one: abs(signals[one] - 0.5))
### STARTER
# pay = ...
### END SOLUTION
lab.course.check("07.2", turns, pay)

# %% [markdown]
# Does the harm end at this pay? No, it ends earlier. In the recorded study the own baseline ends higher by 0.06 at pay 0.2, and by 0.02, 0.01 and 0.00 at 0.4, 0.6 and 0.8 (three seeds each). At 0.4 only 0.20 of the helper's squared advantages is signal. Signal says how noisy the gradient is. How much that harms depends on the rate and on how easy the rest is to learn.
#
# ## The ladder, in one cell
#
# In `paid_help` the harm does not show in the norms. On the `ladder` (notebooks 03 and 05) it does. There, stage *j* + 1 of eight is reached only if stage *j* was right. Here are ten recorded seeds:

# %%
ladder = Recorded(STUDIES / "ladder").agents.query("task == '8 agents' and arm in ['global', 'own']")
start = ladder.query("window == 'start' and arm == 'global'").groupby("agent", sort=False)[["spoke", "signal"]].median()
end = ladder.query("window == 'end'").pivot_table(
    index="agent", columns="arm", values=["own_after", "largest_norm"], aggfunc="median"
)
end.columns = [f"{what.replace('own_after', 'right')}, {arm}" for what, arm in end.columns]
start.join(end[sorted(end.columns, reverse=True)]).round(2)

# %% [markdown]
# Each row is a stage, with medians over seeds. `spoke` says how often the stage was reached in the first five steps, where `signal` was measured too. The other columns show, for each baseline, how often the stage was right at the end, and its largest gradient norm. The harm begins at `stage_5`, where the signal is 0.04 and the calls are few. The last stages were hardly ever reached in two episodes of one task, so not even an own mean can learn there *yet*. It can later, when more episodes reach them. (Notebook 03 separates the mean from the deviation.)

# %% [markdown]
# ## Where it changes nothing: math and search
#
# Dr. MAS reports its gains on `math` and `search`. In `math` a verifier sends a solver's answer back, up to three times. In `search` a verifier calls a search agent or an answer agent. The kit has both tasks. It also has a `math` with a **fixer**, which is called only after a rejection.

# %% [markdown]
# *Predict:* which agents of these three teams have a low signal before training, and which have many rows without a peer? Think of who is called on a condition, and of how much that condition says about the reward.

# %%
asked = []
for name, options in {"math": {}, "math with a fixer": {"fixer": True}, "search": {}}.items():
    env = lab.make_env(name.split()[0], **options)
    team = lab.Team.per_agent(lambda agent, env=env: lab.load_policy(env.pocket), env.agents)
    first = lab.rollout(env, team, env.tasks(8 if SMOKE else 48, "train", seed=0), lab.episodes(8), seed=0)
    asked.append(lab.RewardInspector(lab.group(first, by="task", credit=lab.episode_return())).table.assign(team=name))
pd.concat(asked)[["team", "agent", "spoke", "rows", "peerless", "signal"]].round(2)

# %% [markdown]
# *Explain:* solvers, verifiers, searchers and answerers speak in nearly every episode. So their mean *is* everybody's mean, and `signal` is near 1. The fixer is the interesting agent. Its signal is low, like the helper's. But three quarters of its rows are alone or all earned the same (`peerless`). So its own mean has little to compare.
#
# What did training bring, after 3,840 episodes each? The paper has an ablation on `search` with a 7B model. It scored 28.0 with (μ, σ), which is `grpo`; 39.1 with the own mean alone; 42.9 with the own deviation alone; and 43.8 with both, which is `dr_mas`.

# %% [markdown]
# *Predict:* the recorded study of the pocket `search` has the same four arms. In which order do they end, and how far apart?

# %%
pieces = []
for study in ("math", "search"):
    board = lab.AblationBoard(STUDIES / study)
    ends = board.table.pivot(index="env", columns="recipe", values="final")
    against = board.differences.query("recipe == 'own'").set_index("env")[["pairs", "final_low", "final_high"]]
    pieces.append(ends.join(against))
pd.concat(pieces)[["global", "own mean", "own scale", "own", "pairs", "final_low", "final_high"]].round(2)

# %% [markdown]
# *Explain:* all four end at 0.96. The first columns hold the success at the end, as the interquartile mean of the runs; `math` has two arms. `pairs` counts seeds with both baselines. `final_low` and `final_high` bound the 95 % interval of own minus global, seed by seed. All three intervals contain 0, and they are a few hundredths wide. So ten and five seeds show no difference, and they would have shown one of a tenth. The paper's first number is a run that collapsed. Here nothing collapsed. The paper's team learned under GRPO to avoid the search agent. This team does not, under either baseline: it goes from 1.6 searches per episode to 1.7, which is what the questions need. Two results that disagree are two results, from two sizes of model.
#
# ## Which way does the gradient point?
#
# Signal and noise take for granted that the gradient points uphill. It need not. In `stakes` (notebook 03) a solver and a clerk are frozen, and a helper learns. In most tasks its reward differs only by a small cost per word. Here are the facts of the untrained team:

# %%
stakes = lab.make_env("stakes")
helped = lab.Team.per_agent(lambda agent: lab.load_policy(stakes.pocket), stakes.agents, frozen=("solver", "clerk"))
first = lab.rollout(stakes, helped, stakes.tasks(16, "train", seed=0), lab.episodes(8), seed=0)
first = lab.group(first, by="task", credit=lab.episode_return())
deviations = lab.inflation(first).query("agent == 'helper' and n_k >= 3 and not flat_k")["sigma_k"]
print("the helper's own deviation, by task:", *deviations.quantile([0.1, 0.9]).round(3))
lab.RewardInspector(first).table[["agent", "spoke", "rows", "peerless", "signal"]].round(2)

# %% [markdown]
# *Predict:* the helper's signal is low. `dr_mas` takes the helper's own mean, and also divides by its own deviation in each task. This deviation differs between tasks by a factor of 20. `own_pooled` takes the same mean, and one deviation over the whole batch. Which of the three gradients, `grpo`, `dr_mas` or `own_pooled`, points towards more right answers of the helper?
#
# `lab.uphill` measures it. It plays twelve rollouts, and takes each recipe's gradient of each rollout. Then it asks how well that agrees with the gradient of the helper's own reward on the *other* rollouts. No step is made.

# %%
found = lab.uphill(helped, stakes, ["grpo", "dr_mas", "own_pooled"], rollouts=2 if SMOKE else 12)
found.round(2)

# %%
uphill_dots(found)

# %% [markdown]
# *Explain:* `dr_mas` points **downhill**: its cosine is −0.4. Divided by its deviation, a word's cost weighs as much as a right answer, so the helper is pushed towards short answers, which are wrong. `own_pooled` points uphill, at +0.5. `grpo` points hardly anywhere: nearly all of its gradient is the offset. Training agrees (notebook 03, and `data/results/studies/baselines`): the helper's right answers went from 0.35 to 0.42 under `grpo`, to 0.19 under `dr_mas`, and to 0.63 under `own_pooled`. This is one setting, and it was known before the instrument was written.
#
# So `uphill` had to pass a test that was fixed before its trainings (`benchmarks/uphill`): forty teams drawn at random, six seeds. Over 153 agents, the difference of two cosines, `own_robust` minus `grpo`, has a rank correlation of 0.46 (95 % interval 0.23 to 0.62) with the later difference of the agents' own rewards. Where it speaks, 33 of 40 signs are right. Only 12 of these differences are sure over six seeds, and they come from six teams. A rule from rewards alone, the *gain* of an own mean in signal-to-noise ratio, failed twice: −0.09 (−0.30 to +0.13) in this test, +0.20 (−0.14 to +0.51) in an earlier one.
#
# **07.3** (8 minutes, medium) Predict as the test did. Here are two of its teams, measured before training. `grpo` and `own_robust` are the cosines with each agent's own reward; every agent has more than ten rows. Which agents will learn more under `own_robust`? Name those whose cosine is higher by 0.1 or more.

# %%
TESTED = data_dir() / "results" / "uphill"
measured = pd.read_csv(TESTED / "predictions.csv").query("team in [114, 127] and recipe in ['grpo', 'own_robust']")
measured = measured.assign(agent=measured["team"].astype(str) + " " + measured["agent"])
measured.pivot(index="agent", columns="recipe", values="cos_own").round(2)

# %%
### BEGIN SOLUTION
higher = ["114 agent_1", "114 agent_2", "114 agent_6", "127 agent_1", "127 agent_3"]
### STARTER
# higher = ["114 agent_1", ...]
### END SOLUTION
lab.course.check("07.3", higher)

# %% [markdown]
# *Predict:* of these five, how many came out higher under `own_robust`? And what of the three whose cosine is lower by 0.1 or more?

# %%
came = pd.read_csv(TESTED / "agents.csv").query("team in [114, 127] and contrast == 'own_robust - grpo'")
came.assign(agent=came["team"].astype(str) + " " + came["agent"]).set_index("agent")[["cos_own", "own", "p"]].round(3)

# %% [markdown]
# *Explain:* (`cos_own`: the difference of the cosines; `own`: the difference of own rewards after training, the mean of six seeds; `p`: of a paired t test.) Four of the five came out higher, one lower. Of the three others two came out lower, and one did not move. A rank correlation of 0.46 is like that: much better than nothing, and no certainty.
#
# ## What an invalid answer costs
#
# Dr. MAS subtracts a penalty from an answer that cannot be read: 0.1 on math, 0.01 on search. The penalty belongs to the *row* that earned it:
#
# $$ R_{i,k,t} = R_i - \lambda\,\mathbb 1[\text{the answer of agent } k \text{ at turn } t \text{ cannot be read}]. $$

# %% [markdown]
# *Predict:* all of four episodes are right, but one verdict cannot be read. Let λ = 0.1. Under `dr_mas`, what is the advantage of that verdict, of the other verdicts, and of the solvers? What should it be for the solvers?

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
# *Explain:* under `dr_mas` the verdict gets −1.73, the others get +0.58, and the solvers get 0. All solvers did the same, so there is nothing to learn about them. Under `grpo` the solvers are reinforced for another agent's error, since one episode's mean credit is lower. `lab.RECIPES["dr_mas"].replace(credit=lab.episode_return(invalid=0.1))` is the published setting.
#
# **07.4** (20 minutes, hard) Write `own(turns)`. It gets a table with `task`, `episode`, `agent` and `credit`, and returns the advantages of Dr. MAS with one change. An *episode* enters an agent's mean and deviation once, with the mean of the agent's credits in it. This is `once_per="episode"`, the recipe `dr_mas_episodes`. Use the population deviation and ε = 1e-6. The advantage is 0 if the agent spoke in only one episode of the task, or if all its episodes count the same.


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
# The four cells do not ask whether agents share weights, a size or a learning rate. Only the `Team` knows. Here the verifier is a smaller model (0.10 million weights) with a different tokenizer, learning rate and temperature:

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
# `success` is the team's. The other columns are per agent and episode; `cost` is PRICE × tokens. `mismatch` is nearly 0, so the log-probabilities respect each agent's temperature.
#
# Look at `turns` and `cost`. In our run they rose to three rounds per episode, the maximum. The verifier had learned to send back nearly everything. The outcome does not punish it, since only the last answer counts. Success does not show this, but the cost does.

# %% [markdown]
# *Predict:* a recorded study has four teams with five seeds each: both large, a small verifier, a small solver, both small. All agents learn at 3e-4. Both large end at 0.96. Which agent may be small?

# %%
sizes = lab.AblationBoard(STUDIES / "sizes")
sizes.table.set_index("recipe")[["final", "final_low", "final_high"]].round(2)

# %% [markdown]
# *Explain:* the verifier. A small one costs a third as much per token, and five seeds show no loss (0.94 against 0.96). A small solver loses a third of the successes. The agent that does the work needs the weights.
#
# **07.5** (10 minutes, medium) Design a team for `math` **with a fixer**, in which only the fixer learns. Solver and fixer are large, the verifier is small. Solver and verifier are frozen. The fixer has *weights of its own*, so that the solver does not move with it. Its learning rate is 1e-4, its temperature 1, and it says at most 7 tokens. The verifier samples at temperature 0.5.

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
# 1. A global mean adds the same offset to all advantages of an agent that is called on a condition. The offset is noise. The agent's own *mean* removes it; its own deviation does not. `dr_mas` also leaves out rows that have no peer.
# 2. Norms do not show it. `RewardInspector` states how much is signal in a first rollout. Such facts do not foretell which agents learn more.
# 3. `lab.uphill(team, env)` measures before training, recipe by recipe, which way the gradient points. In a test that was fixed beforehand, this did foretell it.
# 4. We found differences for agents with separate weights that are called rarely, on a condition that shifts the rewards. Elsewhere we could not detect one.
#
# Papers: Dr. MAS, [arXiv 2602.08847](https://arxiv.org/abs/2602.08847), equations 4 to 6 (the advantages); GRPO, [arXiv 2402.03300](https://arxiv.org/abs/2402.03300), equation 3. `data/results/studies` has all runs, and says what would change the answer.
#
# Next: in `08_magrpo` agents act at the same time, unseen by each other, for one joint reward.
