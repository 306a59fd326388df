# %% [markdown]
# # MAGRPO: two writers, one reward
#
# *Level: you have done 00 to 04. Reading: 30 minutes. Compute: about 2 minutes on two CPU cores.*
#
# So far agents took turns: the second saw what the first had said. Here they act **at the same time, unseen by each other**: two writers summarize one text, one briefly and one in detail; two programmers write two functions, one of which is to call the other. What they make is paid together, by one number.
#
# MAGRPO (arXiv 2508.04652) learns from that number alone. At the end you will be able to compute its advantages by hand, at one turn and over two, say what crossing the agents' candidates costs and buys, train a pair of writers, and break a reward.

# %% tags=["install"]

# %% tags=["parameters"]
SMOKE = False  # True: a few steps only, to see that everything runs

# %%
import itertools
import warnings

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
# - **partially observable**: each knows its own *history* (what it was told, what it said), and nothing of the others' answers at this turn;
# - **one reward**: what the agents did together, the *joint action* $(a_1, \dots, a_n)$, earns the team one number $r(s, a_1, \dots, a_n)$.
#
# Training may look at everything that happened, and compares joint actions; that is the *centralized* part. Playing needs no more than each agent's own prompt: that is *decentralized execution*.

# %%
env = lab.make_env("tldr")
team = lab.Team.shared(lab.load_policy(env.pocket), env.agents)
[task] = env.tasks(1, "train", seed=0)
state = env.start(task)
print("acting together:", env.acting(state))
for agent in env.agents:
    print(f"{agent:>9} is told: {env.observe(state, agent)[0]['content']}")

# %% [markdown]
# Four plain sentences, and a last word that says which of the two is asked. (With `size="full"` the same task has posts of a forum and instructions in English.)
#
# ## What is paid
#
# Let $\rho$ be the length of the detailed text over that of the short one, in words, and $u$ the same of *different* words. The reward of a pair, at most 3, is
#
# $$ r = f \cdot \left( \underbrace{\tfrac12\,\mathbb 1[\text{both have 4 to 32 words}]}_{\texttt{lengths}} + \underbrace{\operatorname{ramp}(\rho;\, 1.1,\, 1.6,\, 3.2,\, 5.0)}_{\texttt{ratio}} + \underbrace{\tfrac12 \operatorname{ramp}(u;\, 1.3,\, 2.0)}_{\texttt{unique}} + \underbrace{0.4\, t + 0.6\, \tfrac{\min(J,\, 0.2)}{0.2}}_{\texttt{style}} \right). $$
#
# - $\operatorname{ramp}(x; a, b, c, d)$ is 1 from $b$ to $c$, falls linearly to 0 at $a$ and $d$, and outside of these it shuts the gate: the terms to its right pay nothing.
# - $t$: transitions such as *but* or *then* in the detailed text; 0.4 for the first of twelve kinds and 0.05 for each more, if a word of the source follows.
# - $J$: the Jaccard overlap of the two texts' content words, those of the source alone.
# - $f$, `faithful`, 0 to 1, is that of the less faithful text: the share of its content words that stand in the source, each counted once (and less where more than 60 % of its words are filler).
#
# The four terms are MAGRPO's (their tasks' code; its thresholds for posts of a forum are in `lab.make_env("tldr", size="full")`). The factor $f$ is this kit's: the published rule never reads the text that is summarized. You will see at the end what that is good for.


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
# *Explain:* both lengths fit everywhere, but A and D fail at the ratio, and the gate is shut behind it. B gets almost everything. C has one word more that the source does not know, and as `faithful` multiplies the *sum*, a single word costs a tenth of all. And look at what no column says: whether A's detailed writer is to blame, or its short one. Had the other been longer, or this one shorter, it would have been fine.
#
# ## Joint actions and their advantages
#
# `lab.joint(4)` asks each agent for 4 candidates at the same *node* (decision point) and joins the first with the first, the second with the second, ...: 4 joint actions, each of which is played and paid. MAGRPO compares the returns of a node's joint actions with each other (section 4):
#
# $$ A^{(g)} = R^{(g)} - \frac1G \sum_{j=1}^{G} R^{(j)}, \qquad \mathcal L_i = -\frac1G \sum_{g=1}^{G} A^{(g)} \sum_{\text{tokens}} \log \pi_i\big(a_i^{(g)} \mid h_i\big), $$
#
# $R^{(g)}$ the return of joint action $g$, $\pi_i$ the policy of agent $i$, $a_i^{(g)}$ what it said and $h_i$ its history. The same $A^{(g)}$ stands in every agent's loss (equation 4). No ratio, no clip, a *sum* over tokens, and no division by a standard deviation.
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
# *Predict:* the short writer said `x` twice, the detailed one `p` twice. What does each of them learn about that text from this node?

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
# *Explain:* `credit` is the return, `center` the mean of the node's four, `advantage` their difference. The short writer is praised for `x` by 1 and blamed for it by 1: whatever `x` is worth, this node says nothing about it, because its partner was good once and bad once. For `p` the detailed writer is praised twice. A joint reward is honest and noisy: it never says *whose* doing it was, and only the average over many partners does.
#
# **Why no standard deviation?** Dividing by it gives every node the same weight: one whose four pairs earned 2.60, 2.61, 2.60, 2.61 would pull as hard as one with 0.5 and 2.5. Here returns have one unit everywhere, and the mean takes nothing away but the offset, so the larger difference may speak louder. (`lab.RECIPES["grpo"]` does divide, and notebook 03 asks what that is good for.)
#
# **08.1** Four other joint actions of the short and the detailed writer earned 2.4, 0.4, 1.2 and 2.0. Each agent's advantages, by hand.

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
# The same paper's code has three more, which differ in what is subtracted from $R^{(g)}$:
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
# *Predict:* the advantages of the four joint actions above, under each of the four. Which two recipes push in the same direction on every row, and which one never praises anybody?

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
# *Explain:* with G rows in a group, leaving one out only stretches: $A_{\text{loo}} = \frac{G}{G-1} A$, here by 4/3. Under AdamW, which divides by the size of recent gradients, that is hardly another algorithm. `mareinforce` praises everybody, the better ones more; `maremax` blames everybody but the best. On average over many draws all but `maremax` push the same way, since a baseline that does not depend on the row's own action adds nothing to the expected gradient. What it adds or takes is noise.
#
# Does that matter? A recorded study trained `tldr` under all four, to 100,000 sampled tokens, each at the best of three learning rates, five seeds (`benchmarks/studies/siblings.yaml`).

# %% [markdown]
# *Predict:* returns are of 3 at most and 0.90 before training; `magrpo` ends at 2.23. Where do the other three end?

# %%
board = lab.AblationBoard(data_dir() / "results" / "studies" / "siblings")
board.figure()

# %%
board.table[["recipe", "seeds", "final", "final_low", "final_high"]].round(2)

# %% [markdown]
# *Explain:* in the figure a dot is a run, a diamond the interquartile mean with its 95 % interval, the table's `final`, `final_low` and `final_high`; below, the area under the curve, and the differences to `magrpo`, seed by seed. `marloo` ends where `magrpo` does, in two of the five seeds to the last digit. `maremax` ends 0.27 lower and `mareinforce` 0.49, in every seed: without a baseline all advantages are positive, most of each is the same number for all, and this noise makes median gradient norms four to five times as large. `mareinforce` also took the lowest of the rates that were tried, so that a lower one might serve it better; at the highest it fell below where it had begun. It is the same lesson as in notebook 03, on joint actions: what a baseline takes away was no information.
#
# **08.2** Write `marloo`'s advantage as a function of a table with the columns `credit` and `group`: each row's credit less the mean of the *others* in its group, and 0 for a row that has none.


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
# Nothing forces us to join the first with the first. `lab.joint(g, mode="cross")` plays *every* combination of the candidates; a completion then stands in several joint actions, and its credit is the mean over them. So the short writer's `x` is judged with every partner's text, and luck with the partner averages out.

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
# *Explain:* 8 completions either way, the same ones; 4 joint actions or 16. The column `action` names them: `1-1` is candidate 1 of both, `1-*` candidate 1 of the short writer with every partner. In the table, `team_reward` by candidate: aligned, both agents have the same four numbers, and crossed each has its own, means of four rewards. They lie closer together, since what remains is this writer's own part. What it costs are steps of the environment, $G^n$ a turn for $n$ agents: next to nothing here, dear where a step runs tests or asks a judge.
#
# In the recorded study (`data/results/studies/magrpo`, five seeds, 100,000 tokens) `joint(4, mode="cross")` ended at 2.35 and aligned `joint(8)` at 2.10 of 3, a difference of +0.26 (−0.10 to +0.62): better in four of five pairs, but the interval holds 0. Not held equal: at equal tokens the crossed arm made twice the optimizer steps. And half of it may be the learning rate: there `joint` had 0.003, the best of three in its sweep, and at 0.001, as in the study of the siblings above, it ended at 2.23 on the same seeds. The best of a short sweep is partly luck.
#
# Over several turns every joint action opens a node of its own, and the tree grows as $G^{T}$, or $G^{nT}$. A plan that could exceed its limit is refused before anything is sampled:

# %%
longer = lab.make_env("arxiv_intro", max_turns=2)
authors = lab.Team.shared(lab.load_policy(longer.pocket), longer.agents)
try:
    lab.rollout(longer, authors, longer.tasks(1, "train", seed=0), lab.joint(8, mode="cross"))
except ValueError as error:
    print(error)

# %% [markdown]
# **08.3** Count before you run. For `g` candidates of each of `agents` agents over `turns` turns, with no branch ending early: how many completions are sampled, and how many joint actions are played?


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
# **What to expect.** 40 steps of 32 texts, 8 joint actions each, about a minute. Scores are the mean return of held-out texts as a share of 3. It starts near 0.30. Three recorded seeds stood at 0.66 to 0.69 after 10 steps and at 0.79, 0.80 and 0.80 after 40; after 80 steps, the end of those runs, at 0.87, 0.87 and 0.89 (`data/results/tldr`).

# %% [markdown]
# *Predict:* which of `lengths`, `ratio`, `unique`, `style` and `faithful` is learned first, and which is still short of its best after 40 steps?

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
# *Explain:* each column is a term's mean; the most that it can be is 0.5, 1, 0.5, 1, and 1 for `faithful`. The lengths were nearly right from the start. What two writers can only reach *together*, the ratio and with it whatever its gate shuts off, comes in the first ten steps: the short one gets shorter, the detailed one longer. That is the collaboration, and nobody told either of them what the other does.
#
# **Why 0.8 and not 1?** Two things are left. `style` hardly passes 0.76: the first kind of transition pays 0.4 · 0.4 = 0.16 beside the overlap's 0.6, each further kind 0.02, which no eight candidates can tell from luck. And all is multiplied by `faithful`, where the less faithful of two texts decides: at a dozen content words, drawn token by token, a single one that is invented or said twice costs a twelfth of everything.
#
# One held-out text, told by the untrained pair and by the trained one:

# %%
fresh = lab.Team.shared(lab.load_policy(env.pocket), env.agents)
for name, writers in (("untrained", fresh), ("trained", team)):
    played = lab.rollout(env, writers, held_out[1:2], lab.episodes(1), seed=2)
    print(f"\n{name}: {played['team_reward'].iloc[0]:.2f} of 3")
    for row in played.itertuples():
        print(f"{row.agent:>9}: {row.completion}")
print("\n   source:", held_out[1].data["source"])

# %% [markdown]
# Who earned what in the last step of training? Both agents' rewards are the same numbers, by construction: that is what "joint" means, and why the two rows of the table look alike.

# %%
lab.RewardInspector(report)

# %% [markdown]
# **Is it the joint reward that does it?** Four arms of the recorded study on `tldr`, five seeds each, returns of 3 at most, 0.90 before training: paid for its own length alone a writer ends at 1.33; by the joint reward at 2.10; by both at 2.22, a difference that five seeds do not tell from nothing. And told straight: *one* agent that writes both texts ends at 2.35, so on texts there is nothing that two agents do better, at either rate. On code there is, as you will see.
#
# ## Two turns, and a word from outside
#
# `code_pair` is the paper's other collaboration: `helper` writes a function `aux`, `main` the function `f` that was asked for and that is to call `aux`, both at once. A pocket problem is a chain of three operations on a list of digits. What models write is run in `lab.sandbox`, a library's sandbox in a worker process without files, network or processes of its own. What does not end by itself is ended by limits on instructions and memory, and by the clock only where these cannot tell, so that a busy machine hardly ever changes a reward.
#
# Drafts are worth up to 4, level by level:
#
# $$ w = 0.4\,[\texttt{aux}] + 0.6\,[\texttt{f}] + 0.5\,[\text{both parse}] + p + p\,\big(0.5\,[\texttt{f}\text{ uses }\texttt{aux}] + 1.0\,[\text{and does work of its own}]\big), $$
#
# $p$ the share of hidden tests passed, $[\cdot]$ 1 where it holds and else 0 (and $-0.5\,p$ in place of the bracket where `aux` is called for nothing). Over two turns the reward of a turn is what the drafts *gained* in worth: $r_t = w_t - w_{t-1}$, so that they sum to the worth of the last ones.

# %%
two_turns = lab.make_env("code_pair", max_turns=2)
coders = lab.Team.shared(lab.load_policy(two_turns.pocket), two_turns.agents)
[problem] = two_turns.tasks(1, "train", seed=1)
tree = lab.rollout(two_turns, coders, [problem], lab.joint(2), seed=1)
mains = tree[tree["agent"] == "main"]
names = {column: mains[column].str.partition("/")[2] for column in ("node", "parent", "action")}  # without the task's
mains[["turn"]].assign(**names, team_reward=mains["team_reward"].round(2), says=mains["completion"])

# %% [markdown]
# One row is one joint action here (main's half of it). `node` is where it was drawn, `action` its name, `parent` the action that led to the node: each first draft has two second drafts below it, in a tree of $2 + 4$ joint actions. A branch ends early where its drafts are worth 3.8 or more. `team_reward` is what the drafts gained; a second draft can lose what the first had earned.
#
# Between the turns each agent sees its own draft and *external feedback*, from a parser and the problem's own examples; never the hidden tests that pay. `feedback="plain"` says the first thing amiss, `"level"` also how far it got. In pocket size that is a word, and a number:

# %%
drafts = {"helper": "def aux ( x ) : x = sorted ( x ) ; return x", "main": "def f ( x ) : x = aux ( x ) ; return x"}
for feedback in ("plain", "level"):
    told = lab.make_env("code_pair", max_turns=2, feedback=feedback)
    after = told.step(told.start(problem), drafts).state
    print(f"{feedback:>5}: {told.observe(after, 'main')[0]['content']}")

# %% [markdown]
# ### Return to go
#
# A first draft is worth what it earns, and what it makes possible. MAGRPO credits a joint action with (section 4)
#
# $$ R = r + \gamma \cdot \operatorname{mean}(\text{returns of the joint actions that follow}), $$
#
# and compares it with its siblings: the first drafts with each other, and the second drafts *below the same first one* with each other. $\gamma$ (from 0 to 1) says how much the future counts; the kit's recipe has 1, the authors' code 0.9.
#
# *By hand:* the first draft `a` earned 1.0, and then its two second drafts earned 2.0 and 0.0. With $\gamma = 0.5$: $R(a) = 1.0 + 0.5 \cdot (2.0 + 0.0)/2 = 1.5$.

# %% [markdown]
# *Predict:* with $\gamma = 0$, what would the team learn to do at the first turn, and what at the second?

# %%
credits = {f"gamma {gamma}": lab.return_to_go(gamma)(tree)[mains.index] for gamma in (0.0, 0.5, 1.0)}
mains[["turn"]].assign(**names, team_reward=mains["team_reward"], **credits).round(2)

# %% [markdown]
# *Explain:* at $\gamma = 0$ a credit is the turn's own reward: the first turn learns to hand in the best draft at once, and the second to gain whatever is left to gain. At $\gamma = 1$ the first turn's credit is the *mean worth in the end* of what was made of it: in this tree the first draft that earned less is the one that could be repaired, and the order of the two turns around. The last turn's credits are the same under all three.
#
# **08.4** Two first drafts earned `a` 1.0 and `b` 1.6. Below `a` two second drafts earned 2.0 and 0.0, below `b` they earned 0.5 and −0.1. The returns of all six, at $\gamma = 0.5$ and at $\gamma = 1$.

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
# **What to expect.** One turn, 10 steps of 16 problems, some 20 seconds. (A program that uses what this machine's sandbox lacks counts as neither right nor wrong; the warning that says so is switched off here.) The return goes from about 1.9 of 4 to about 3.3: three recorded seeds had 3.25, 3.41 and 3.49 after ten steps, and 3.56, 3.53 and 3.75 after forty (`data/results/code_pair`).

# %%
warnings.filterwarnings("ignore", "code_pair: .* lacks")
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
# Do two turns pay? Recorded runs of the same task, one turn (`magrpo`, 1e-3, 16 problems a step) and two turns with level feedback (3e-4, 8 problems). Not held equal: learning rate and problems a step.

# %%
runs = {"one turn": "code_pair", "two turns, with feedback": "code_pair_reviewed"}
recorded = pd.concat(
    pd.read_csv(data_dir() / "results" / folder / "curves.csv").assign(recipe=name) for name, folder in runs.items()
)
recorded["share"] = recorded["return"] / 4
learning_curves(recorded, y="share", y_title="share of the best return, held-out problems")

# %% [markdown]
# A second turn starts lower, since the untrained pair loses more by rewriting its drafts than it gains, and at equal tokens it stays behind. The equal comparison is on `arxiv_intro`, three seeds at 100,000 tokens: 1.98, 2.00 and 2.05 at one turn, 1.77, 1.81 and 1.76 over two. A tree over two turns spends most of its tokens on second drafts. The paper reports a gain from two turns with real models; here it has not paid by then.
#
# **Who needs two agents?** `teamwork` changes who sees what, `single_agent=True` gives both functions to one:
#
# | `code_pair` | main is told | recorded return, three seeds |
# |---|---|---|
# | `"together"` | that there will be an `aux` | 3.35, 3.59, 3.44 |
# | `"concatenated"` | of no `aux`; the two texts are joined | 2.05, 3.46, 2.96 |
# | `"in_turn"` | helper's text of this turn | not recorded |
# | `single_agent=True` | it writes both | 2.86, 2.68, 3.21 |
#
# The joint team is above the single agent in each of the three seeds, and above the pair whose main knows of no partner: on code a division of the work that both know of is worth something. Three seeds explore, and say no more.

# %% [markdown]
# ## Game the reward
#
# A team that learns finds what a reward pays for, and not what it was meant for. Better that you find it first.
#
# **08.5** The published rule (`rewards="published"`) counts and never reads the source. Write a short and a detailed text that use *no content word* of this story and earn at least 2.5 of 3. Its lengths and their ratio are in characters, $J$ counts all content words, a transition needs nothing behind it, and $f = 1$.

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
# **08.6** Ours asks for the story's own words, and closes that hole. What does it still not see? Write a pair that earns at least 2.4 by *our* rule and tells nothing: no two words that stand side by side in the story may stand side by side in your texts.

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
# Would a team find that hole by itself? Of two words that stand side by side in a text, count how often they do so in the source: 1 where whole sentences were copied, near 0 in a bag of words.

# %% [markdown]
# *Predict:* the reward pays nothing for it. Of the untrained team about 0.4 of the neighbours stand in the source like that. Of the trained team: more, as many, or fewer?


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
# *Explain:* a little more, and no more than half or so. Copying a sentence is the easiest way to use the source's words, so some order comes along; but half of what the trained pair says happened to somebody else: look at who did what in its text above. It did not have to find the hole: it began in it, and nothing paid it to leave. What would you count to close it, and what would *your* count not see?
#
# **To remember.** Agents that act at once are compared by joint action, and share one advantage: the return less the node's mean. Crossing candidates takes the partner's luck out and costs $G^n$ steps of the environment. A reward says what is counted, and never what was meant.
#
# *Papers:* MAGRPO, arXiv 2508.04652 (section 4, equation 4); RLOO, arXiv 2402.14740; how the tasks' rewards differ from the published ones stands in the docstrings of `lab.ENVS["tldr"]` and `lab.ENVS["code_pair"]`; the recorded studies in `docs/findings.md`.
#
# Next: `09_your_own_team`: a task, a plan, a credit and a loss of your own.
