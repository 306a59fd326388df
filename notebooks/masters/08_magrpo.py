# %% [markdown]
# # MAGRPO: two writers, one reward
#
# *Level: you have done 00 to 04. Reading: 30 minutes. Compute: about 1 minute on two CPU cores.*
#
# So far agents took turns: the second saw what the first had said. Here they act **at the same time, unseen by each other**. Two writers summarize one text, one briefly and one in detail. Two programmers write two functions, and one function should call the other. Both agents earn one common reward.
#
# MAGRPO (arXiv 2508.04652) learns from that number alone. At the end you will be able to compute its advantages by hand, at one turn and over two. You will know what crossing the agents' candidates costs and brings. You will train a pair of writers, and break a reward.

# %% tags=["install"]

# %% tags=["parameters"]
SMOKE = False  # True: a few steps only, to see that everything runs

# %%
import itertools

import pandas as pd

import mas_lab as lab
from mas_lab.paths import data_dir
from mas_lab.widgets.figures import dialogue, learning_curves
from mas_lab.widgets.live import LiveCurve

pd.set_option("display.max_colwidth", None)

# %% [markdown]
# ## The setting: a Dec-POMDP, in plain words
#
# A *decentralized partially observable Markov decision process* is a long name for three facts:
#
# - **decentralized**: all agents act at once, each by its own policy;
# - **partially observable**: each agent knows its own *history* (its prompts and answers), but not the others' answers at this turn;
# - **one reward**: the agents' *joint action* $(a_1, \dots, a_n)$ earns the team one number $r(s, a_1, \dots, a_n)$.
#
# Training may look at everything that happened, and compares joint actions. This is the *centralized* part. Playing needs only each agent's own prompt. This is *decentralized execution*.

# %%
env = lab.make_env("tldr")
team = lab.Team.shared(lab.load_policy(env.pocket), env.agents)
[task] = env.tasks(1, "train", seed=0)
state = env.start(task)
print("acting together:", env.acting(state))
for agent in env.agents:
    print(f"{agent:>9} is told: {env.observe(state, agent)[0]['content']}")

# %% [markdown]
# The prompt has four plain sentences. Its last word says which of the two agents is asked. (With `size="full"` the same task has posts of a forum and instructions in English.)
#
# ## What is paid
#
# Let $\rho$ be the length of the detailed text divided by the length of the short one, in words. Let $u$ be the same ratio for *different* words. The reward of a pair is at most 3:
#
# $$ r = f \cdot \left( \underbrace{\tfrac12\,\mathbb 1[\text{both have 4 to 32 words}]}_{\texttt{lengths}} + \underbrace{\operatorname{ramp}(\rho;\, 1.1,\, 1.6,\, 3.2,\, 5.0)}_{\texttt{ratio}} + \underbrace{\tfrac12 \operatorname{ramp}(u;\, 1.3,\, 2.0)}_{\texttt{unique}} + \underbrace{0.4\, t + 0.6\, \tfrac{\min(J,\, 0.2)}{0.2}}_{\texttt{style}} \right). $$
#
# - $\operatorname{ramp}(x; a, b, c, d)$ is 1 from $b$ to $c$, and falls linearly to 0 at $a$ and $d$. Outside of these it closes a gate: the terms to its right pay nothing.
# - $t$ pays transitions such as *but* or *then* in the detailed text: 0.4 for the first of twelve kinds and 0.05 for each further kind, if a word of the source follows.
# - $J$ is the Jaccard overlap of the two texts' content words; only words of the source count.
# - $f$, `faithful`, is from 0 to 1. It is the share of a text's content words that stand in the source, each counted once. The less faithful text decides. More than 60 % filler words lower it.
#
# The four terms are those of MAGRPO's code. Its thresholds for posts of a forum are in `lab.make_env("tldr", size="full")`. The factor $f$ is this kit's own: the published rule never reads the text that is summarized. At the end you will see why that matters.


# %%
def paid(short, detailed):
    """What a pair of texts earns, term by term."""
    step = env.step(state, {"short": short, "detailed": detailed})
    return dict(step.info) | {"reward": step.team_reward}


one, two, *_ = (sentence.strip() for sentence in task.data["source"].split(" ."))
PAIRS = {
    "A: a sentence, and the same sentence": (one, one),
    "B: a sentence, and two with a transition": (one, f"{one} then {two}"),
    "C: B, with one invented word": (one, f"{one} then {two} violin"),
    "D: B, each for the other": (f"{one} then {two}", one),
}

# %% [markdown]
# *Predict:* order the four pairs A, B, C and D by what they earn.

# %%
pd.DataFrame({name: paid(*pair) for name, pair in PAIRS.items()}).T.round(2)

# %% [markdown]
# *Explain:* both lengths fit everywhere, but A and D fail at the ratio, which closes the gate. B gets almost everything. C has one more word, which the source does not contain. `faithful` multiplies the *sum*, so a single word costs a tenth of everything. Note what no column says: which writer of pair A is to blame. A longer detailed text or a shorter short text would both have been fine.
#
# ## Joint actions and their advantages
#
# `lab.joint(4)` asks each agent for 4 candidates at the same *node* (decision point). It joins the first with the first, the second with the second, and so on. Each of these 4 joint actions is played and paid. MAGRPO compares the returns of a node's joint actions with each other (section 4):
#
# $$ A^{(g)} = R^{(g)} - \frac1G \sum_{j=1}^{G} R^{(j)}, \qquad \mathcal L_i = -\frac1G \sum_{g=1}^{G} A^{(g)} \sum_{\text{tokens}} \log \pi_i\big(a_i^{(g)} \mid h_i\big), $$
#
# Here $R^{(g)}$ is the return of joint action $g$, $\pi_i$ the policy of agent $i$, $a_i^{(g)}$ its answer and $h_i$ its history. The same $A^{(g)}$ stands in every agent's loss (equation 4). There is no ratio and no clip. The loss *sums* over tokens, and nothing is divided by a standard deviation.
#
# *By hand.* Four joint actions of a node earned these:
#
# | joint action | short said | detailed said | return | advantage |
# |---|---|---|---|---|
# | 0 | `x` | `p` | 2.5 | +1.0 |
# | 1 | `y` | `q` | 1.0 | −0.5 |
# | 2 | `x` | `r` | 0.5 | −1.0 |
# | 3 | `z` | `p` | 2.0 | +0.5 |

# %% [markdown]
# *Predict:* the short writer said `x` twice, the detailed one said `p` twice. What does each of them learn about this text from this node?

# %%
said = {"short": ["x", "y", "x", "z"], "detailed": ["p", "q", "r", "p"]}
hand = pd.DataFrame(
    {"episode": "e", "node": "e/0", "agent": agent, "candidate": g, "completion": text, "team_reward": reward}
    for agent in said
    for g, (text, reward) in enumerate(zip(said[agent], [2.5, 1.0, 0.5, 2.0], strict=True))
)
hand = lab.group(hand, by=("node", "agent"), credit=lab.return_to_go())
hand = lab.normalize(hand, scale="none")
hand[["agent", "candidate", "completion", "team_reward", "credit", "center", "advantage"]]

# %% [markdown]
# *Explain:* `credit` is the return, `center` the mean of the node's four returns, and `advantage` their difference. For `x`, the short writer gets an advantage of +1 once and −1 once. This node says nothing about `x`, because the partner was good once and bad once. For `p` the detailed writer is reinforced twice. A joint reward is honest but noisy. It never says *which agent* earned it; only the average over many partners does.
#
# **Why no standard deviation?** Division by it gives every node the same weight. A node whose pairs earned 2.60, 2.61, 2.60 and 2.61 would pull as hard as one with 0.5 and 2.5. Here all returns have the same unit, and the mean removes only the offset. So a larger difference may count more. (`lab.RECIPES["grpo"]` divides; notebook 03 asks what that is good for.)
#
# **08.1** (3 minutes, easy) Four other joint actions of the short and the detailed writer earned 2.4, 0.4, 1.2 and 2.0. Compute each agent's advantages by hand.

# %%
### BEGIN SOLUTION
advantages = {"short": [0.9, -1.1, -0.3, 0.5], "detailed": [0.9, -1.1, -0.3, 0.5]}
### STARTER
# advantages = {"short": [...], "detailed": [...]}
### END SOLUTION
lab.course.check("08.1", advantages)

# %% [markdown]
# ## The siblings: one changed argument
#
# The code of the same paper has three more recipes. They differ in what is subtracted from $R^{(g)}$:
#
# | recipe | `center` | $A^{(g)}$ |
# |---|---|---|
# | `magrpo` | the group | $R^{(g)} - \text{mean}$ |
# | `marloo` | `"loo"` | $R^{(g)} - \text{mean of the others}$ (leave one out, as in RLOO, arXiv 2402.14740) |
# | `mareinforce` | `"none"` | $R^{(g)}$ |
# | `maremax` | `"max"` | $R^{(g)} - \text{max}$ |

# %%
lab.RECIPES["magrpo"]

# %% [markdown]
# *Predict:* compute the advantages of the four joint actions above under each recipe. Which two recipes have the same sign on every row, and which one is never positive?

# %%
centers = {"magrpo": None, "marloo": "loo", "mareinforce": "none", "maremax": "max"}
bare = hand.query("agent == 'short'").drop(columns=["center", "scale", "advantage"])
pd.DataFrame(
    {
        name: lab.normalize(bare, center=center, scale="none").set_index("candidate")["advantage"].round(2)
        for name, center in centers.items()
    }
)

# %% [markdown]
# *Explain:* with G rows in a group, leaving one out only stretches the advantage: $A_{\text{loo}} = \frac{G}{G-1} A$, here by 4/3. AdamW divides by the size of recent gradients, so this is hardly another algorithm. `mareinforce` reinforces every row, the better ones more. `maremax` makes every row but the best less likely. On average over many draws, all but `maremax` have the same expected gradient, of which `magrpo` takes the share $1 - 1/G$. The reason is that a baseline which does not depend on the row's own action adds nothing to it. The baseline only changes the noise.
#
# Does that matter? A recorded study trained `tldr` under all four, to 100,000 sampled tokens, with five seeds, each at the best of three learning rates (`benchmarks/studies/siblings.yaml`).

# %% [markdown]
# *Predict:* the best return is 3, and before training it is 0.90. `magrpo` ends at 2.23. Where do the other three end?

# %%
board = lab.AblationBoard(data_dir() / "results" / "studies" / "siblings")
board.figure()

# %%
board.table[["recipe", "seeds", "final", "final_low", "final_high"]].round(2)

# %% [markdown]
# *Explain:* in the figure a dot is a run. A diamond is the interquartile mean with its 95 % interval: `final`, `final_low` and `final_high` in the table. On the right are the differences to `magrpo`, seed by seed. `marloo` ends where `magrpo` does, in two of the five seeds to the last digit. `maremax` ends 0.27 lower and `mareinforce` 0.49 lower, in every seed. Without a baseline all advantages are positive, and most of each advantage is the same number for all rows. This noise makes median gradient norms four to five times as large. `mareinforce` chose the lowest rate that was tried, so a lower one might serve it better. At the highest rate it fell below its start. The lesson is that of notebook 03, on joint actions: what a baseline removes was no information.
#
# **08.2** (10 minutes, medium) Write `marloo`'s advantage as a function of a table with the columns `credit` and `group`. It is each row's credit minus the mean of the *others* in its group, and 0 for a row without others.


# %%
def marloo(table):
    ### BEGIN SOLUTION
    total = table.groupby("group")["credit"].transform("sum")
    size = table.groupby("group")["credit"].transform("size")
    others = (total - table["credit"]) / (size - 1).clip(lower=1)
    return (table["credit"] - others).where(size > 1, 0.0)
    ### END SOLUTION


lab.course.check("08.2", marloo)

# %% [markdown]
# ## Aligned or crossed
#
# We need not join the first with the first. `lab.joint(g, mode="cross")` plays *every* combination of the candidates. A completion then stands in several joint actions, and its credit is the mean over them. So the short writer's `x` is judged with every text of the partner, and the partner's luck averages out.

# %% [markdown]
# *Predict:* two agents, 4 candidates each, one turn. How many completions and how many joint actions, aligned and crossed? In which of the two tables will the credits of one agent's candidates lie closer together?

# %%
joined = {mode: lab.rollout(env, team, [task], lab.joint(4, mode=mode), seed=0) for mode in ("aligned", "cross")}
for mode, turns in joined.items():
    print(
        f"{mode:>7}: {len(turns)} completions; actions such as {', '.join(turns['action'].str.split('.').str[1][:2])}"
    )
turns = pd.concat([turns.assign(mode=mode) for mode, turns in joined.items()])
turns.pivot(index="candidate", columns=["agent", "mode"], values="team_reward").round(2)

# %% [markdown]
# *Explain:* both modes sample the same 8 completions, and play 4 or 16 joint actions. The column `action` names them: `1-1` is candidate 1 of both, and `1-*` is candidate 1 of the short writer with every partner. The table shows `team_reward` by candidate. Aligned, both agents have the same four numbers. Crossed, each agent has its own numbers, which are means of four rewards. They lie closer together, since only this writer's own part remains. The cost is steps of the environment: $G^n$ per turn for $n$ agents. That is cheap here, and expensive where a step runs tests or asks a judge.
#
# In the recorded study (`data/results/studies/magrpo`, five seeds, 100,000 tokens) `joint(4, mode="cross")` ended at 2.35 and aligned `joint(8)` at 2.10 of 3. The difference of +0.26 (−0.10 to +0.62) is positive in four of five pairs, but the interval contains 0. Optimizer steps were not held equal: at equal tokens the crossed arm made twice as many. Half of the difference may come from the learning rate. There `joint` had 0.003, the best of three in its sweep. At 0.001, as in the study of the siblings above, it ended at 2.23 on the same seeds. The best of a short sweep is partly luck.
#
# Over several turns every joint action leads to a node of its own. So the tree grows as $G^{T}$, or $G^{nT}$ if crossed. A plan that could exceed its limit is refused before anything is sampled:

# %%
longer = lab.make_env("arxiv_intro", max_turns=2)
authors = lab.Team.shared(lab.load_policy(longer.pocket), longer.agents)
try:
    lab.rollout(longer, authors, longer.tasks(1, "train", seed=0), lab.joint(8, mode="cross"))
except ValueError as error:
    print(error)

# %% [markdown]
# **08.3** (10 minutes, medium) Count before you run. Each of `agents` agents has `g` candidates in each of `turns` turns, and no branch ends early. How many completions are sampled, and how many joint actions are played?


# %%
def cost(g, agents, turns, mode):
    """(completions, joint actions) of one task; `mode` is "aligned" or "cross"."""
    ### BEGIN SOLUTION
    branches = g if mode == "aligned" else g**agents
    nodes = sum(branches**turn for turn in range(turns))
    return agents * g * nodes, branches * nodes
    ### END SOLUTION


lab.course.check("08.3", cost)

# %% [markdown]
# ## Training the two writers
#
# **What to expect.** 40 steps of 32 texts, with 8 joint actions each, take less than a minute. The score is the mean return of held-out texts as a share of 3. It starts near 0.30. Three recorded seeds reached 0.66 to 0.69 after 10 steps, and 0.79, 0.80 and 0.80 after 40. After 80 steps, the end of those runs, they reached 0.87, 0.87 and 0.89 (`data/results/tldr`).

# %% [markdown]
# *Predict:* which of `lengths`, `ratio`, `unique`, `style` and `faithful` is learned first? Which is still below its best value after 40 steps?

# %%
STEPS, SCORED = (2, 4) if SMOKE else (40, 64)
team = lab.Team.shared(lab.load_policy(env.pocket, lr=1e-3), env.agents)
held_out, parts = env.tasks(SCORED, "test", seed=0), {}


def score(steps):
    """The share of the best return on held-out texts; keeps the mean of each term of the reward."""
    turns = lab.rollout(env, team, held_out, lab.episodes(4), seed=1)
    told = turns.drop_duplicates("episode")
    parts[f"after {steps} steps"] = pd.DataFrame(told["info"].tolist()).mean()
    return told["team_reward"].mean() / env.max_return


curve, tokens, start = LiveCurve("magrpo", y_title="share of the best return, held-out texts"), 0, score(0)
curve.add(tokens, start)
for report in lab.train(env, team, "magrpo", steps=STEPS, seed=0, tasks=4 if SMOKE else 32):
    tokens += report.tokens
    if (report.step + 1) % 10 == 0 or report.step + 1 == STEPS:
        curve.add(tokens, score(report.step + 1))

# %%
pd.DataFrame(parts).T.round(2)

# %% [markdown]
# *Explain:* each column is the mean of a term. The largest values are 0.5, 1, 0.5, 1, and 1 for `faithful`. The lengths were nearly right from the start. The two writers can reach the ratio, and the terms behind its gate, only *together*. That happens in the first ten steps: the short text gets shorter, and the detailed one longer. This is the collaboration, though neither agent is told what the other does.
#
# **Why 0.8 and not 1?** Two things are missing. First, `style` hardly passes 0.76. The first kind of transition pays 0.4 · 0.4 = 0.16 beside the overlap's 0.6. Each further kind pays 0.02, which eight candidates cannot separate from luck. Second, everything is multiplied by `faithful`, where the less faithful text decides. A text has about a dozen content words, drawn token by token. A single word that is invented or repeated costs a twelfth of everything.
#
# Here is one held-out text, summarized by the untrained pair and by the trained one:

# %%
fresh = lab.Team.shared(lab.load_policy(env.pocket), env.agents)
for name, writers in (("untrained", fresh), ("trained", team)):
    played = lab.rollout(env, writers, held_out[1:2], lab.episodes(1), seed=2)
    print(f"\n{name}: {played['team_reward'].iloc[0]:.2f} of 3")
    for row in played.itertuples():
        print(f"{row.agent:>9}: {row.completion}")
print("\n   source:", held_out[1].data["source"])

# %% [markdown]
# What did each agent earn in the last step of training? Both agents have the same rewards, because the reward is joint. So the two rows of the table look alike.

# %%
lab.RewardInspector(report)

# %% [markdown]
# **Does the joint reward cause this?** The recorded study on `tldr` has four arms with five seeds each. The best return is 3, and it is 0.90 before training. Writers that are paid only for their own length end at 1.33. With the joint reward they end at 2.10, and with both at 2.22; five seeds cannot separate these two. And *one* agent that writes both texts ends at 2.35. So on texts two agents do nothing better, at either rate. On code they do, as you will see.
#
# ## Two turns, and a word from outside
#
# `code_pair` is the paper's other collaboration. `helper` writes a function `aux`. At the same time `main` writes the requested function `f`, which should call `aux`. A pocket problem is a chain of three operations on a list of digits. The models' code runs in `lab.sandbox`, in a worker process without files, network or child processes. Limits on instructions and memory stop code that does not end. The clock stops it only where these limits cannot, so a busy machine hardly ever changes a reward.
#
# The worth of the drafts is at most 4:
#
# $$ w = 0.4\,[\texttt{aux}] + 0.6\,[\texttt{f}] + 0.5\,[\text{both parse}] + p + p\,\big(0.5\,[\texttt{f}\text{ uses }\texttt{aux}] + 1.0\,[\text{and does work of its own}]\big), $$
#
# Here $p$ is the share of hidden tests passed, and $[\cdot]$ is 1 if the condition holds, else 0. If `aux` is called without need, $-0.5\,p$ replaces the last bracket. Over two turns, the reward of a turn is what the drafts *gained* in worth: $r_t = w_t - w_{t-1}$. So the rewards sum to the worth of the last drafts.

# %%
two_turns = lab.make_env("code_pair", max_turns=2)
coders = lab.Team.shared(lab.load_policy(two_turns.pocket), two_turns.agents)
[problem] = two_turns.tasks(1, "train", seed=1)
tree = lab.rollout(two_turns, coders, [problem], lab.joint(2), seed=1)
mains = tree[tree["agent"] == "main"]
names = {column: mains[column].str.partition("/")[2] for column in ("node", "parent", "action")}  # without the task's
mains[["turn"]].assign(**names, team_reward=mains["team_reward"].round(2), says=mains["completion"])

# %% [markdown]
# Each row is one joint action, shown by main's half. `node` is where it was sampled, `action` is its name, and `parent` is the action that led to the node. Each first draft has two second drafts below it, so the tree has $2 + 4$ joint actions. A branch ends early if its drafts are worth 3.8 or more. `team_reward` is what the drafts gained. A second draft can lose what the first one earned.
#
# Between the turns each agent sees its own draft and *external feedback*. The feedback comes from a parser and the problem's own examples, never from the hidden tests that pay. `feedback="plain"` reports the first error, and `"level"` also says how far the draft got. In pocket size these are a word and a number:

# %%
drafts = {"helper": "def aux ( x ) : x = sorted ( x ) ; return x", "main": "def f ( x ) : x = aux ( x ) ; return x"}
for feedback in ("plain", "level"):
    told = lab.make_env("code_pair", max_turns=2, feedback=feedback)
    after = told.step(told.start(problem), drafts).state
    print(f"{feedback:>5}: {told.observe(after, 'main')[0]['content']}")

# %% [markdown]
# ### Return to go
#
# A first draft is worth what it earns plus what it makes possible. MAGRPO's credit of a joint action is (section 4)
#
# $$ R = r + \gamma \cdot \operatorname{mean}(\text{returns of the joint actions that follow}), $$
#
# It is compared with the credits of its siblings: first drafts with each other, and second drafts *below the same first draft* with each other. $\gamma$ (from 0 to 1) says how much the future counts. The kit's recipe uses 1, the authors' code 0.9.
#
# *By hand:* the first draft `a` earned 1.0. Its two second drafts earned 2.0 and 0.0. With $\gamma = 0.5$: $R(a) = 1.0 + 0.5 \cdot (2.0 + 0.0)/2 = 1.5$.

# %% [markdown]
# *Predict:* with $\gamma = 0$, what would the team learn at the first turn, and what at the second?

# %%
credits = {f"gamma {gamma}": lab.return_to_go(gamma)(tree)[mains.index] for gamma in (0.0, 0.5, 1.0)}
mains[["turn"]].assign(**names, team_reward=mains["team_reward"], **credits).round(2)

# %% [markdown]
# *Explain:* at $\gamma = 0$ a credit is the turn's own reward. The first turn learns to write the best draft at once, and the second turn learns to gain what is left. At $\gamma = 1$ the first turn's credit is the *mean final worth* of the drafts below it. In this tree, the first draft that earned less could be repaired. So the order of the two first drafts is reversed. The last turn's credits are the same under all three values.
#
# **08.4** (5 minutes, easy) Two first drafts, `a` and `b`, earned 1.0 and 1.6. Below `a` two second drafts earned 2.0 and 0.0, below `b` they earned 0.5 and −0.1. Give the returns of all six, at $\gamma = 0.5$ and at $\gamma = 1$.

# %%
### BEGIN SOLUTION
leaves = {"a0": 2.0, "a1": 0.0, "b0": 0.5, "b1": -0.1}
returns = {0.5: {"a": 1.5, "b": 1.7, **leaves}, 1.0: {"a": 2.0, "b": 1.8, **leaves}}
### STARTER
# returns = {
#     0.5: {"a": ..., "b": ..., "a0": ..., "a1": ..., "b0": ..., "b1": ...},
#     1.0: {"a": ..., "b": ..., "a0": ..., "a1": ..., "b0": ..., "b1": ...},
# }
### END SOLUTION
lab.course.check("08.4", returns)

# %% [markdown]
# ### Ten steps on code
#
# **What to expect.** With one turn, 10 steps of 16 problems take some 20 seconds. The return rises from about 1.9 of 4 to about 3.3. Three recorded seeds had 3.25, 3.41 and 3.49 after ten steps, and 3.56, 3.53 and 3.75 after forty (`data/results/code_pair`).

# %%
code = lab.make_env("code_pair")
coders = lab.Team.shared(lab.load_policy(code.pocket, lr=1e-3), code.agents)
problems = code.tasks(4 if SMOKE else 64, "test", seed=0)


def worth():
    return lab.evaluate(code, coders, problems, k=4)["return"].mean()


before = worth()
*_, report = lab.train(code, coders, "magrpo", steps=1 if SMOKE else 10, seed=0, tasks=4 if SMOKE else 16)
print(f"return {before:.2f} before, {worth():.2f} after, of {code.max_return:g}")

# %%
best = report.turns.loc[report.turns["team_reward"].idxmax()]
chosen = report.turns[report.turns["candidate"] == best["candidate"]]
dialogue(chosen, best["episode"])[["agent", "hears", "says", "team_reward"]]

# %% [markdown]
# Do two turns pay? Here are recorded runs of the same task with one turn (`magrpo`, 1e-3, 16 problems a step), and with two turns and level feedback (3e-4, 8 problems). Learning rate and problems per step are not held equal.

# %%
runs = {"one turn": "code_pair", "two turns, with feedback": "code_pair_reviewed"}
recorded = pd.concat(
    pd.read_csv(data_dir() / "results" / folder / "curves.csv").assign(recipe=name) for name, folder in runs.items()
)
recorded["share"] = recorded["return"] / 4
learning_curves(recorded, y="share", y_title="share of the best return, held-out problems")

# %% [markdown]
# Two turns start lower, since the untrained pair loses more than it gains by rewriting its drafts. At equal tokens they stay behind. An equal comparison exists on `arxiv_intro`, with three seeds at 100,000 tokens: 1.98, 2.00 and 2.05 with one turn, and 1.77, 1.81 and 1.76 with two. A tree over two turns spends most of its tokens on second drafts. The paper reports a gain from two turns with real models. Here two turns do not pay within this budget.
#
# **Who needs two agents?** `teamwork` changes what each agent sees, and `single_agent=True` gives both functions to one agent:
#
# | `code_pair` | main is told | recorded return, three seeds |
# |---|---|---|
# | `"together"` | that there will be an `aux` | 3.35, 3.59, 3.44 |
# | `"concatenated"` | of no `aux`; the two texts are joined | 2.05, 3.46, 2.96 |
# | `"in_turn"` | helper's text of this turn | not recorded |
# | `single_agent=True` | it writes both | 2.86, 2.68, 3.21 |
#
# The joint team is above the single agent in each of the three seeds. It is also above the pair whose main does not know of a partner. So on code it helps to divide the work if both agents know about it. Three seeds explore; they prove nothing.

# %% [markdown]
# ## Game the reward
#
# A team learns what a reward pays for, not what it was meant for. It is better if you find the difference first.
#
# **08.5** (10 minutes, medium) The published rule (`rewards="published"`) counts words and never reads the source. Write a short and a detailed text that use *no content word* of this story and earn at least 2.5 of 3. In this rule, lengths and ratio are in characters, $J$ counts all content words, a transition needs no word behind it, and $f = 1$.

# %%
game = lab.make_env("tldr", rewards="published")
[story] = game.tasks(1, "test", seed=0)
print(story.data["source"])

### BEGIN SOLUTION
pair = ("red blue pink gray", "red blue pink gray also one two three four")
### STARTER
# pair = ("a short text", "a detailed text")
### END SOLUTION
print(game.step(game.start(story), dict(zip(game.agents, pair, strict=True))).info)
lab.course.check("08.5", pair)

# %% [markdown]
# **08.6** (15 minutes, hard) Our rule asks for the story's own words, which closes that hole. What does it still not see? Write a pair that earns at least 2.4 by *our* rule and says nothing. Two words that are neighbours in the story may not be neighbours in your texts.

# %%
### BEGIN SOLUTION
pair = (
    "hunter sailor singer soldier clock basket",
    "then singer soldier clock basket but chair boat bridge village so beach forest",
)
### STARTER
# pair = ("a short text", "a detailed text")
### END SOLUTION
print(env.step(env.start(story), dict(zip(env.agents, pair, strict=True))).info)
lab.course.check("08.6", pair)

# %% [markdown]
# Would a team find that hole by itself? Take all pairs of neighbouring words in a text, and count the share that are neighbours in the source too. It is 1 if whole sentences were copied, and near 0 for a bag of words.

# %% [markdown]
# *Predict:* the reward pays nothing for it. In the untrained team's texts the share is about 0.4. Is it higher, equal or lower in the trained team's texts?


# %%
def neighbours(writers):
    """The share of a text's neighbouring words that are neighbours in its source, by agent."""
    turns = lab.rollout(env, writers, held_out, lab.episodes(4), seed=3)
    sources = {task.id: task.data["source"].split() for task in held_out}
    shares = []
    for row in turns.itertuples():
        told, source = row.completion.split(), sources[row.task]
        known = set(itertools.pairwise(source))
        shares.append(pd.Series([two in known for two in itertools.pairwise(told)], dtype=float).mean())
    return turns.assign(share=shares).groupby("agent")["share"].mean()


pd.DataFrame({"untrained": neighbours(fresh), "trained": neighbours(team)}).round(2)

# %% [markdown]
# *Explain:* it is a little higher, about one half. Copying a sentence is the easiest way to use the source's words, so some order remains. But half of what the trained pair says happened to somebody else: look at its text above. The team did not have to find the hole. It started there, and nothing paid it to leave. What would you count to close the hole, and what would *your* count not see?
#
# **To remember.** Agents that act at once are compared by joint action. They share one advantage: the return minus the node's mean. Crossing candidates removes the partner's luck, and costs $G^n$ steps of the environment. A reward says what is counted, never what was meant.
#
# *Papers:* MAGRPO, arXiv 2508.04652 (section 4, equation 4); RLOO, arXiv 2402.14740. The docstrings of `lab.ENVS["tldr"]` and `lab.ENVS["code_pair"]` say how the rewards differ from the published ones. The recorded studies are in `data/results/studies/magrpo`.
#
# Next: `09_your_own_team`, with a task, a plan, a credit and a loss of your own.
