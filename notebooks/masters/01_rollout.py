# %% [markdown]
# # Rollout: who said what, and what it earned
#
# *Level: you have run the quickstart. Reading: 25 minutes. Compute: about half a minute on two CPU cores.*
#
# Everything that a team learns, it learns from a table of model calls. This notebook looks at that table before anybody is compared with anybody. Afterwards you can
#
# - recompute a log-probability of the table from the model's logits, at any temperature,
# - say which calls a plan makes, what each agent saw when it spoke, and what an episode earned,
# - tell what a team can do from what a rollout shows of it.

# %% tags=["install"]

# %% tags=["parameters"]
SMOKE = False  # True: a few mazes only, to see that everything runs

# %%
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from tokenizers import Tokenizer, decoders, models

import mas_lab as lab
from mas_lab import plain
from mas_lab.widgets.figures import dialogue, mazes

pd.set_option("display.max_colwidth", 160)
NUMBER = 4 if SMOKE else 32  # of mazes, where something is counted


def meaning(*columns):
    """What these columns hold, as the package declares it."""
    return lab.schema().set_index("column").loc[list(columns), ["meaning"]]


# %% [markdown]
# ## The world: five pure functions
#
# An environment is `tasks`, `start`, `acting`, `observe` and `step`. None of them changes anything: a state goes in, a new state comes out. In `plan_path` a planner proposes up to four moves, the executor sees the proposal and commits moves. A move is the name of the cell that it leads to.

# %%
env = lab.make_env("plan_path")
[drawn] = env.tasks(1, split="train", seed=0)
task = lab.Task("maze0", drawn.data)  # renamed, so that the tables below can be read

state = env.start(task)
print("acts: ", env.acting(state))
print("reads:", env.observe(state, "planner"))
proposed = env.step(state, {"planner": "c3 b3 b2 b1"})
print("earns:", proposed.team_reward, proposed.local_rewards)
print("acts: ", env.acting(proposed.state))
print("reads:", env.observe(proposed.state, "executor"))

# %%
team = lab.Team.shared(lab.load_policy(env.pocket), env.agents)
turns = lab.rollout(env, team, [task], plan=lab.episodes(1), seed=0)
mazes(env, task, {"an episode of the untrained team": turns})

# %% [markdown]
# A proposal moves nobody, so it earns the *team* nothing; it is judged by its `local_reward`, as if it had been carried out. What the executor commits earns the team
#
# $$ r = \frac{d_{\text{before}} - d_{\text{after}}}{d_{\text{start}}} + [\text{at the goal}], \qquad\qquad \ell = \frac{\text{moves on a shortest path}}{\max(\text{moves said},\ \min(4, d_{\text{before}}))}, $$
#
# with *d* the length of the shortest path to the goal, *r* the `team_reward` and *ℓ* the `local_reward` (the rule stands in the docstring of `PlanPath`, `mas_lab/tasks/plan_path.py`). Over an episode the first term adds up to at most 1, however the way is cut into turns: dawdling pays nothing.
#
# *By hand.* From c4 the shortest way to a1 is c3, b3, b2, b1, a1, so *d* = 5 at the start. Said `c3 b3 b2 b1`: one step is left, r = (5 − 1)/5 = 0.8, and all four moves were good, ℓ = 1. Said `c3 b3`: r = 2/5 = 0.4, but only two of the four moves that were asked for, ℓ = 2/4.

# %% [markdown]
# *Predict:* three more answers from the same state: `c3 c4 c3 b3` (there, back, and there again), `b4 b3` (b4 is a wall) and `go north`. What do *r* and *ℓ* come to, and which of them is *invalid*?

# %%
said = ["c3 b3 b2 b1", "c3 b3", "c3 c4 c3 b3", "b4 b3", "go north"]
steps = [env.step(proposed.state, {"executor": answer}) for answer in said]  # each from the same state
rows = [(one.team_reward, one.local_rewards["executor"], one.valid["executor"]) for one in steps]
pd.DataFrame(rows, index=said, columns=["team_reward", "local_reward", "valid"]).round(2)

# %% [markdown]
# *Explain.* Going there and back is paid by where it ends (3 steps from the goal: 0.4), and three of its four moves were on a shortest path from where they were made. A wall stops the moves; that is a bad answer, not an unreadable one. `go north` holds a word that is no move: invalid, and nothing moves.
#
# The five answers were tried from one state, which none of them changed. So a plan may try eight candidates at a decision without copying the world, and steps may run in threads.
#
# ## One row is one model call
#
# `rollout` lets a team play tasks, and writes a row for each call of a model. The first call of the episode above:

# %%
policy, call = team["planner"], turns.iloc[0]
texts, sampling = ["prompt", "completion"], ["prompt_ids", "completion_ids", "logprobs", "temperature", "finish"]
call[["agent", *texts, *sampling]].to_frame("the first call")

# %%
meaning(*sampling)

# %% [markdown]
# The last sampled id is the token `<eos>`: stopping is a decision of the agent like any other, with a log-probability of its own.
#
# ## A log-probability by hand
#
# A model gives each token *v* of its vocabulary a logit $z_v$. Sampling at temperature *T* draws token *a* with log-probability
#
# $$ \log \pi_T(a \mid \text{prompt}, \text{tokens before}) = \frac{z_a}{T} - \log \sum_v \exp\frac{z_v}{T} $$
#
# (Hinton et al., arXiv 1503.02531, equation 1). *By hand:* five words, whose weights $\exp z$ are 8, 4, 2, 1 and 1. They sum to 16, so at T = 1 the probabilities are 1/2, 1/4, 1/8, 1/16, 1/16. At T = 1/2 each weight is squared: 64, 16, 4, 1, 1 of 86. At T = 2 each becomes its square root.

# %%
z = np.log([8, 4, 2, 1, 1])
five = {f"T = {T}": np.exp(z / T) / np.exp(z / T).sum() for T in (0.5, 1, 2)}
pd.DataFrame(five, index=["c3", "d4", "c5", "b4", "a1"]).rename_axis("word").round(3)

# %% [markdown]
# Now the real thing. `model(ids).logits[t]` is what the model expects *after* position t: the logits for the first sampled token stand at the last position of the prompt. Shift by one, divide by T, take the log-softmax, pick the sampled token.


# %%
def by_hand(row):
    """The log-probability of each sampled token, from the model's logits at the row's own temperature."""
    start, sampled = len(row["prompt_ids"]), torch.tensor(row["completion_ids"])
    with torch.no_grad():
        logits = policy.model(torch.tensor([row["prompt_ids"] + row["completion_ids"]])).logits[0]
    logits = logits[start - 1 : -1] / row["temperature"]
    return torch.log_softmax(logits, dim=-1)[torch.arange(len(sampled)), sampled].numpy()


words = policy.tokenizer.convert_ids_to_tokens(call["completion_ids"])
pd.DataFrame({"by hand": by_hand(call), "in the table": call["logprobs"]}, index=words).T.round(4)

# %% [markdown]
# *Predict:* two teams with the same weights and the same seed, one sampling at T = 1, the other at T = 3. Will the completions of the hot one have higher or lower log-probabilities? How many of its answers will the environment understand?


# %%
def sampling_at(temperature):
    return team.with_sampling(lab.Sampling(temperature=temperature))


four = [lab.Task(f"maze{place}", one.data) for place, one in enumerate(env.tasks(4, "train", seed=0))]
hot = lab.rollout(env, sampling_at(3.0), four, lab.episodes(8), seed=0)
usual = lab.rollout(env, team, four, lab.episodes(8), seed=0)
off = max(abs(by_hand(row) - row["logprobs"]).max() for _, row in hot.head(20).iterrows())
print(f"by hand and in the table: the same to {off:.0e}")
rows = [(np.concatenate(table["logprobs"]).mean(), table["valid"].mean()) for table in (usual, hot)]
pd.DataFrame(rows, index=["T = 1", "T = 3"], columns=["mean log p of a token", "share understood"]).round(2)

# %% [markdown]
# *Explain.* A flatter distribution gives whatever is drawn a lower probability, and draws more nonsense. Both tables hold the log-probabilities of the distribution that was *really sampled from*, T included: `update` will form the ratio of new to old probability, and an old one at T = 1 of a token that was drawn at T = 3 would be that of another policy.
#
# ## Text is not what was sampled
#
# The column `completion` is for people. Training reads `completion_ids`, and never encodes the text again. Why not?

# %% [markdown]
# *Predict:* encode the texts of the hot team again. In how many rows do the very same ids come back, if we are generous and leave out a final `<eos>`? One word is one token here, so what could go wrong?

# %%
eos = policy.tokenizer.eos_token_id
encoded = hot["completion"].map(lambda text: policy.tokenizer.encode(text, add_special_tokens=False))
sampled = hot["completion_ids"].map(lambda ids: ids[:-1] if ids[-1] == eos else ids)
other = hot[encoded != sampled]
print(f"{len(other)} of {len(hot)} texts do not give the sampled ids back. The first three:")
tokens = other["completion_ids"].map(policy.tokenizer.convert_ids_to_tokens)
shown = {"completion": other["completion"], "sampled": tokens, "encoded again": encoded[other.index]}
pd.DataFrame(shown).head(3)

# %% [markdown]
# *Explain.* A hot model now and then says `<pad>`, and decoding drops it. The text looks like a plain answer of three moves; four tokens were sampled, and one of them would never be trained on. And whether the agent *stopped* or was cut off (`finish`) cannot be seen in any text.
#
# With the tokenizers of real models it is worse, since one text has many spellings in tokens. A byte-pair tokenizer merges what it can. A *model* may say `lo` and then `w`:

# %%
vocabulary = {"l": 0, "o": 1, "w": 2, "lo": 3, "low": 4}
bpe = Tokenizer(models.BPE(vocab=vocabulary, merges=[("l", "o"), ("lo", "w")]))
bpe.decoder = decoders.Fuse()
sampled = [3, 2]
text = bpe.decode(sampled)
print("sampled:", sampled, "->", repr(text), "-> encoded again:", bpe.encode(text).ids)

# %% [markdown]
# Two tokens became one. A trainer that encodes the text again raises the probability of a token that was not sampled, against a log-probability that belongs to another one. Trainers have done so: see [TRL 5224](https://github.com/huggingface/trl/issues/5224). The rule is *tokens in, tokens out*.
#
# ## Who saw what
#
# `observe(state, agent)` is all that an agent knows. In `math` a solver works and answers, a verifier approves or rejects.

# %% [markdown]
# *Predict:* the solver writes its running values and then its answer. What of that does the verifier read? And in `tldr`, where a short and a detailed summary of one text are written: what does the second writer know of the first one's summary?

# %%
math = lab.make_env("math")
solvers = lab.Team.shared(lab.load_policy(math.pocket), math.agents)
worked = lab.rollout(math, solvers, math.tasks(4, "train", seed=0), lab.episodes(4), seed=0)
longest = worked.loc[worked["completion"].str.len().idxmax(), "episode"]
dialogue(worked, longest)[["turn", "agent", "hears", "says", "team_reward"]]

# %%
tldr = lab.make_env("tldr")
writers = lab.Team.shared(lab.load_policy(tldr.pocket), tldr.agents)
text = [lab.Task("text0", tldr.tasks(1, "train", seed=0)[0].data)]
written = lab.rollout(tldr, writers, text, lab.episodes(8), seed=0)
best = written[written["team_reward"] == written["team_reward"].max()].head(2)
print(best["prompt"].str.cat(sep="\n"))
best[["node", "depth", "agent", "completion", "team_reward"]]

# %% [markdown]
# *Explain.* The verifier reads the answer and the problem, not the working: that is how this task is made, and one line of `observe` would change it. The two writers act *together*: they stand at one `node`, at the same `depth`, each answers the text alone, and one joint reward is paid for both, which both rows carry. It was earned once.
#
# ## Three plans
#
# A plan says how a task is explored. On the same maze, cut to one round (`max_turns=1`), with two of everything:
#
# ```
# episodes(2)                    tree(2)                         joint(2)
# start ─ planner ─ executor     start ┬ planner 0 ┬ executor 0  start ┬ planner 0 ┬ executor 0
# start ─ planner ─ executor           │  (kept)   └ executor 1        │           └ executor 1
#                                      └ planner 1    (kept)           └ planner 1 ┬ executor 0
#                                                                                  └ executor 1
# ```
#
# `episodes(n)` plays n times, independently (GRPO, Dr. MAS). `tree(k)` draws k candidates at each decision; the best one by `pick` (ties to the first) is *kept* and moves the state, the others are rows and lead nowhere (AT-GRPO, arXiv 2510.11062, algorithm 1). `joint(g)` draws g joint actions at each node and follows *all* of them (MAGRPO, arXiv 2508.04652, section 4).

# %%
short = lab.make_env("plan_path", max_turns=1)
plans = {"episodes(2)": lab.episodes(2), "tree(2)": lab.tree(2), "joint(2)": lab.joint(2)}
played = {name: lab.rollout(short, team, [task], plan, seed=0) for name, plan in plans.items()}
place = ["node", "parent", "turn", "depth", "agent", "candidate", "kept"]
pd.concat(played, names=["plan", "row"])[[*place, "completion", "team_reward", "local_reward"]]

# %%
meaning(*place)

# %% [markdown]
# Read `tree(2)`: both executors answer the same kept proposal, which their `parent` names. In `joint(2)` every proposal has executors of its own, and the nodes' names say by which branch they were reached (`~0`, `~1`).
#
# What the calls of one task come to, if *L* decisions lie one behind the other, each of one agent, and nothing ends early:
#
# $$ \text{episodes}(n):\ n L \qquad\quad \text{tree}(k):\ k L \qquad\quad \text{joint}(g):\ \sum_{l=1}^{L} g^l $$
#
# Agents who act together share one of the *L* levels; each joint action then takes a call of each of them. A joint tree grows as a power, so the kit refuses one that may grow too big:

# %%
try:
    lab.rollout(env, team, [task], lab.joint(8), seed=0)
except ValueError as error:
    print(error)

# %% [markdown]
# ## The same draw, whatever else is in the batch
#
# Every completion is drawn from a seed of its own, a hash of (seed, step, node, agent, candidate).

# %% [markdown]
# *Predict:* we play the same four mazes in reverse order, then only two of them, then with `tree(4)` in place of `tree(2)`. Which completions stay the same?


# %%
def same(one, two):
    """How many calls stand in both tables, and the share of them with the same ids."""
    both = one.merge(two, on=["node", "agent", "candidate", "prompt"])
    return len(both), (both["completion_ids_x"].map(tuple) == both["completion_ids_y"].map(tuple)).mean()


first = lab.rollout(env, team, four, lab.tree(2), seed=0)
others = {
    "reversed": lab.rollout(env, team, four[::-1], lab.tree(2), seed=0),
    "two mazes": lab.rollout(env, team, four[:2], lab.tree(2), seed=0),
    "tree(4)": lab.rollout(env, team, four, lab.tree(4), seed=0),
    "another seed": lab.rollout(env, team, four, lab.tree(2), seed=1),
}
print(len(first), "calls with tree(2)")
found = [same(first, two) for two in others.values()]
pd.DataFrame(found, index=list(others), columns=["of these in both", "share with the same ids"]).round(2)

# %% [markdown]
# *Explain.* A call is in both tables if it stands at the same node, is asked of the same agent as the same candidate, and answers the same prompt. Wherever it does, the same ids were drawn, whatever else was asked for beside it. (With `tree(4)` the kept candidate may be another, and then the paths part: fewer calls are in both.) Another seed draws anew; where ids agree even then, the model was sure enough to say the same twice. So a run can be resumed, a row replayed, and two recipes compared on the same draws.
#
# ## What a plan costs

# %% [markdown]
# *Predict:* an episode under `tree(8)` draws eight candidates at every decision. Does it sample eight times as many tokens as a plain episode? More? Fewer?


# %%
def per_episode(turns):
    prompts = turns["prompt_ids"].map(tuple)
    cost = {
        "calls": len(turns),
        "tokens sampled": turns["completion_ids"].map(len).sum(),
        "tokens read": prompts.map(len).sum(),
        "read, each prompt once": sum(map(len, set(prompts))),
    }
    return pd.Series(cost) / turns.loc[~turns["probe"], "episode"].nunique()


many = env.tasks(NUMBER, "test", seed=0)
plans = {"episodes(8)": lab.episodes(8), "tree(8)": lab.tree(8), "tree(8, follow=1)": lab.tree(8, follow=1)}
explored = {name: lab.rollout(env, team, many, plan, seed=0) for name, plan in plans.items()}
pd.DataFrame({name: per_episode(turns) for name, turns in explored.items()}).T.round(1)

# %%
plans = {"episodes(4)": lab.episodes(4), "tree(4)": lab.tree(4), "joint(4)": lab.joint(4)}
short_mazes = short.tasks(NUMBER, "test", seed=0)
once = {name: lab.rollout(short, team, short_mazes, plan, seed=0) for name, plan in plans.items()}
pd.DataFrame({f"{name}, one round": per_episode(turns) for name, turns in once.items()}).T.round(1)

# %% [markdown]
# *Explain.* Over the 32 mazes a plain episode samples 32 tokens and a tree of eight 126: four times as many, not eight, because the best of eight arrives sooner (29 calls are less than four decisions; a plain episode takes seven calls). Reading is cheap where candidates share a prompt: each distinct prompt goes through the model once, so a tree reads fewer tokens for an episode (55) than a plain one does (67). With `follow=1` every candidate is also played on to the end, once, which `counterfactual()` needs: 608 sampled tokens. One round of `joint(4)` takes 20 calls, 4 + 16; a tree takes 8.
#
# "An episode" is thus no unit of cost. Studies hold sampled tokens equal, and say so.
#
# ## The best of K is not success
#
# A tree keeps the candidate that earned most. How good does that make the team look?

# %% [markdown]
# *Predict:* alone, one draw a decision, the team solves about half of the mazes. In how many does a tree of 2, 4, 8 candidates arrive? And in how many if the pick is not the best, but whichever was drawn *first*?


# %%
def arrived(turns):
    """The share of episodes that end at the goal on the path that was played."""
    return turns[turns["kept"]].groupby("episode")["success"].any().mean()


def drawn_first(turns):
    return -1.0 * turns["candidate"]


alone = lab.evaluate(env, team, many, k=8, seed=0).drop_duplicates("task")
print(f"alone, 8 episodes a maze: {alone['success'].mean():.2f}")
print(f"at least one of the 8:    {alone['pass@8'].mean():.2f}")
picks = {"drawn first": drawn_first, "earned most": lab.mixed()}
seen = pd.DataFrame(index=list(picks), columns=["K = 1", "K = 2", "K = 4", "K = 8"], dtype=float)
for name, pick in picks.items():
    for k in (1, 2, 4, 8):
        turns = lab.rollout(env, team, many, lab.tree(k, pick=pick), seed=0)
        seen.loc[name, f"K = {k}"] = arrived(turns)
seen.round(2)

# %% [markdown]
# *Explain.* It is one team with one set of weights in every cell of the table. Drawn first: 0.47 for every K, to the digit, because candidate 0 is always the same draw; the others are rows to be compared, and move nothing. Earned most: 0.78, 0.94 and 1.00. Over five seeds, 0.97 to 1.00 at K = 8, where the team alone solves 0.45 to 0.57.
#
# If one draw solves a maze with probability *p*, at least one of K does with
#
# $$ 1 - (1 - p)^K , $$
#
# pass@K (Chen et al., arXiv 2107.03374, equation 1, gives its unbiased estimate, which `lab.evaluate` uses): 0.94 for eight whole episodes here. The tree does better still, since it picks at every turn, and by a reward that knows the way: `local_reward` is computed from the maze's solution. No team has that at hand when it is on its own.
#
# So the success that a *training* rollout shows is that of the team *and its pick*. Where success is reported, in this kit, `lab.evaluate` has let the team play alone.
#
# ## Walk through it
#
# The viewer opens on an *index* of episodes, the most telling first: failures, large advantages, answers cut off or not understood. Click on a row, and each decision shows all its candidates, which one was kept, what each earned, and each token's surprise −log p. The box above the index filters: try `agent:executor invalid`. Keys go through it: `f` to the next failure, `j` and `k` along the index, → and ← along the path, `c` through the candidates, `g` through those that a row was compared with; `?` lists them.

# %%
lab.RolloutViewer(explored["tree(8)"], team=team)

# %% [markdown]
# ## The same in plain code
#
# `mas_lab/plain.py` is the whole method of this course in one file of 177 lines. It imports torch and pandas, and nothing of the kit. It samples one prompt at a time and writes no error messages, so it is slower, and every line of it is method. Here is its rollout; `candidates=8` makes it the tree above.

# %%
source = Path(lab.__file__).with_name("plain.py").read_text(encoding="utf-8")
print(source[source.index("def rollout") : source.index("# Cell 2")])

# %%
world = lab.make_env("plan_path")
pocket = lab.load_policy(world.pocket)
player = plain.Policy(pocket.model, pocket.tokenizer, optimizer=None)  # nothing is trained here
players, rng = dict.fromkeys(world.agents, player), torch.Generator().manual_seed(0)
by_hand = plain.rollout(world, players, world.tasks(NUMBER, "train", seed=0), rng, candidates=8)
by_hand[["task", "depth", "turn", "agent", "candidate", "kept", "completion", "team_reward", "local_reward"]].head(8)

# %% [markdown]
# The table has the columns that you know. `plain.py` takes its random numbers from one generator, in the order of the calls, so its draws differ from those of `lab.rollout`. The cell gives each call a seed of its own. That costs a few lines, and it is why a draw there does not depend on the rest of the batch.
#
# ## Your turn
#
# **01.1** Count model calls, for one task. Three agents speak one after the other, for two rounds, and nothing ends early: `episodes(8)`? `tree(8)`? `joint(2)`? And `joint(8)` where three agents act together, once?

# %%
### BEGIN SOLUTION
calls = [48, 48, 126, 24]
### STARTER
# calls = [..., ..., ..., ...]
### END SOLUTION
lab.course.check("01.1", calls)


# %% [markdown]
# **01.2** One log-probability, in numpy: `logits` holds a number for each token of the vocabulary. It is tried on random logits, some of them large.


# %%
def logprob(logits, token, temperature):
    ### BEGIN SOLUTION
    scaled = logits / temperature
    scaled = scaled - scaled.max()
    return scaled[token] - np.log(np.exp(scaled).sum())
    ### STARTER
    # pass  # your code here
    ### END SOLUTION


lab.course.check("01.2", logprob)


# %% [markdown]
# **01.3** What did each episode earn? Return a number per episode (a Series indexed by `episode`) from a table of any plan but `joint`: the sum of `team_reward` over the steps that the episode really took. Two traps: some candidates moved nothing, and agents who act together (same `episode` and `depth`) earn their reward once, though each row carries it.


# %%
def episode_returns(turns):
    ### BEGIN SOLUTION
    steps = turns[turns["kept"]].drop_duplicates(["episode", "depth"])
    return steps.groupby("episode")["team_reward"].sum()
    ### STARTER
    # pass  # your code here
    ### END SOLUTION


lab.course.check("01.3", episode_returns)


# %% [markdown]
# **01.4** A pick that needs no reward. `pick` gets a table of candidates and gives a number for each; the highest is kept. Write one that keeps the candidate of which the *model itself* is surest: the mean log-probability of its tokens. (The mean and not the sum: a sum prefers whoever says least.)


# %%
def surest(turns):
    ### BEGIN SOLUTION
    return turns["logprobs"].map(np.mean)
    ### STARTER
    # pass  # your code here
    ### END SOLUTION


lab.course.check("01.4", surest)

# %%
if surest(first) is not None:
    picks = {"drawn first": drawn_first, "the model is surest": surest, "earned most": lab.mixed()}
    for name, pick in picks.items():
        turns = lab.rollout(env, team, many, lab.tree(8, pick=pick), seed=0)
        print(f"{name}: {arrived(turns):.2f}")

# %% [markdown]
# A question to take further: with the surest of eight the team arrives in 0.81 to 0.94 of the mazes (five seeds), far above its own half, and this pick *can* be used without knowing the way. Is it anything but a lower temperature? `lab.evaluate(env, team, many, k=8, sampling=lab.Sampling(temperature=0.3))` is one way to find out.

# %%
lab.course.progress("01")

# %% [markdown]
# ## To remember
#
# - A row is one call: the ids that were sampled, and their log-probabilities at the temperature they were sampled at. Text is for people.
# - A plan decides which calls are made, and which of them move the state. `node`, `parent`, `candidate` and `kept` say so in every row.
# - What the best of K reaches is not what the team can do.
#
# Papers: AT-GRPO, [arXiv 2510.11062](https://arxiv.org/abs/2510.11062), algorithm 1; MAGRPO, [arXiv 2508.04652](https://arxiv.org/abs/2508.04652), section 4; pass@k, [arXiv 2107.03374](https://arxiv.org/abs/2107.03374), equation 1; temperature, [arXiv 1503.02531](https://arxiv.org/abs/1503.02531), equation 1. The numbers over five seeds: `data/results/plans/`.
#
# Next: `02_grouping`, where rows are compared with each other.
