# %% [markdown]
# # Rollout: who said what, and what it earned
#
# *Level: you have run the quickstart. Reading: 25 minutes. Compute: about half a minute on two CPU cores.*
#
# A team learns everything from a table of model calls. This notebook looks at that table before any row is compared with another. Afterwards you can
#
# - recompute a log-probability of the table from the model's logits, at any temperature,
# - say which calls a plan makes, what each agent saw when it spoke, and what an episode earned,
# - explain why a rollout may show more than the team can do alone.

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


# %%
lab.course.loop("rollout")

# %% [markdown]
# ## The world: five pure functions
#
# An environment is `tasks`, `start`, `acting`, `observe` and `step`. None of them changes anything: a state goes in, and a new state comes out. In `plan_path` a planner proposes up to four moves. The executor sees the proposal and commits moves. A move is the name of the cell that it leads to.

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
# A proposal moves nobody, so it earns the *team* nothing. Its `local_reward` judges it as if it had been carried out. What the executor commits earns the team
#
# $$ r = \frac{d_{\text{before}} - d_{\text{after}}}{d_{\text{start}}} + [\text{at the goal}], \qquad\qquad \ell = \frac{\text{moves on a shortest path}}{\max(\text{moves said},\ \min(4, d_{\text{before}}))}, $$
#
# where *d* is the length of the shortest path to the goal, *r* the `team_reward` and *ℓ* the `local_reward`. The docstring of `PlanPath` in `mas_lab/tasks/plan_path.py` states the rule. Over an episode the first term adds up to at most 1, however the way is cut into turns. So detours earn nothing.
#
# *By hand.* From c4 the shortest way to a1 is c3, b3, b2, b1, a1, so *d* = 5 at the start. After `c3 b3 b2 b1`, one step is left: r = (5 − 1)/5 = 0.8. All four moves were good: ℓ = 1. After `c3 b3`, r = 2/5 = 0.4. Only two of the four moves that were asked for were said: ℓ = 2/4.

# %% [markdown]
# *Predict:* three more answers from the same state are `c3 c4 c3 b3` (there, back, and there again), `b4 b3` (b4 is a wall) and `go north`. What are *r* and *ℓ* of each, and which answer is *invalid*?

# %%
said = ["c3 b3 b2 b1", "c3 b3", "c3 c4 c3 b3", "b4 b3", "go north"]
steps = [env.step(proposed.state, {"executor": answer}) for answer in said]  # each from the same state
rows = [(one.team_reward, one.local_rewards["executor"], one.valid["executor"]) for one in steps]
pd.DataFrame(rows, index=said, columns=["team_reward", "local_reward", "valid"]).round(2)

# %% [markdown]
# *Explain.* Going there and back is paid by where it ends: 3 steps from the goal, so 0.4. Three of its four moves were on a shortest path from where they were made. A wall stops the moves. That is a bad answer, but it can be read. `go north` contains a word that is no move: it is invalid, and nothing moves.
#
# All five answers were tried from one state, and none of them changed it. So a plan may try eight candidates at a decision without a copy of the world, and steps may run in threads.
#
# ## One row is one model call
#
# `rollout` lets a team play tasks, and writes one row for each model call. This is the first call of the episode above:

# %%
policy, call = team["planner"], turns.iloc[0]
texts, sampling = ["prompt", "completion"], ["prompt_ids", "completion_ids", "logprobs", "temperature", "finish"]
call[["agent", *texts, *sampling]].to_frame("the first call")

# %%
meaning(*sampling)

# %% [markdown]
# The last sampled id is the token `<eos>`. Stopping is a decision of the agent like any other, with its own log-probability.
#
# ## A log-probability by hand
#
# A model gives each token *v* of its vocabulary a logit $z_v$. Sampling at temperature *T* draws token *a* with log-probability
#
# $$ \log \pi_T(a \mid \text{prompt}, \text{tokens before}) = \frac{z_a}{T} - \log \sum_v \exp\frac{z_v}{T} $$
#
# (Hinton et al., arXiv 1503.02531, equation 1). *By hand:* the weights $\exp z$ of five words are 8, 4, 2, 1 and 1. They sum to 16, so at T = 1 the probabilities are 1/2, 1/4, 1/8, 1/16, 1/16. At T = 1/2 each weight is squared: 64, 16, 4, 1, 1 of 86. At T = 2 each weight becomes its square root.

# %%
z = np.log([8, 4, 2, 1, 1])
five = {f"T = {T}": np.exp(z / T) / np.exp(z / T).sum() for T in (0.5, 1, 2)}
pd.DataFrame(five, index=["c3", "d4", "c5", "b4", "a1"]).rename_axis("word").round(3)

# %% [markdown]
# Now we use the model. `model(ids).logits[t]` is what the model expects *after* position t. So the logits for the first sampled token are at the last position of the prompt. Shift by one, divide by T, take the log-softmax, and pick the sampled token.


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
# *Predict:* two teams have the same weights and the same seed. One samples at T = 1, the other, hot one at T = 3. Will the completions of the hot team have higher or lower log-probabilities? How many of its answers will the environment understand?


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
# *Explain.* A flatter distribution gives the drawn token a lower probability, and it draws more nonsense. Both tables hold the log-probabilities of the distribution that was *really sampled from*, at its own T. `update` will form the ratio of new to old probability. A token drawn at T = 3 needs its old probability at T = 3. At T = 1 it would be the probability of another policy.
#
# ## Text is not what was sampled
#
# The column `completion` is for people. Training reads `completion_ids`, and never encodes the text again. Why?

# %% [markdown]
# *Predict:* encode the texts of the hot team again, and ignore a final `<eos>`. In how many rows do the very same ids come back? One word is one token here, so what could go wrong?

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
# *Explain.* A hot model sometimes says `<pad>`, and decoding drops it. The text then looks like a plain answer of three moves. But four tokens were sampled, and one of them would never be trained on. The text also does not show whether the agent *stopped* or was cut off (`finish`).
#
# Real tokenizers make it worse, because one text can be split into tokens in many ways. A byte-pair tokenizer merges what it can. A *model* may say `lo` and then `w`:

# %%
vocabulary = {"l": 0, "o": 1, "w": 2, "lo": 3, "low": 4}
bpe = Tokenizer(models.BPE(vocab=vocabulary, merges=[("l", "o"), ("lo", "w")]))
bpe.decoder = decoders.Fuse()
sampled = [3, 2]
text = bpe.decode(sampled)
print("sampled:", sampled, "->", repr(text), "-> encoded again:", bpe.encode(text).ids)

# %% [markdown]
# Two tokens became one. A trainer that encodes the text again raises the probability of a token that was not sampled. It also uses the log-probability of another token. Trainers have done so: see [TRL 5224](https://github.com/huggingface/trl/issues/5224). The rule is *tokens in, tokens out*.
#
# ## Who saw what
#
# An agent knows only what `observe(state, agent)` returns. In `math` a solver works and answers, and a verifier approves or rejects.

# %% [markdown]
# *Predict:* the solver writes its running values and then its answer. Which part does the verifier read? In `tldr`, two writers write a short and a detailed summary of one text. What does the second writer know about the first summary?

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
# *Explain.* The verifier reads the problem and the answer, but not the working. One line of `observe` decides this. The two writers act *together*: they are at one `node`, at the same `depth`, and each answers the text alone. One joint reward is paid for both. Both rows carry it, but it was earned once.
#
# ## Three plans
#
# A plan says how a task is explored. Here are three plans on the same maze, cut to one round (`max_turns=1`), with two of everything:
#
# ```
# episodes(2)                    tree(2)                         joint(2)
# start ─ planner ─ executor     start ┬ planner 0 ┬ executor 0  start ┬ planner 0 ┬ executor 0
# start ─ planner ─ executor           │  (kept)   └ executor 1        │           └ executor 1
#                                      └ planner 1    (kept)           └ planner 1 ┬ executor 0
#                                                                                  └ executor 1
# ```
#
# `episodes(n)` plays n independent episodes (GRPO, Dr. MAS). `tree(k)` draws k candidates at each decision. The best one by `pick` is *kept* and moves the state; the first wins a tie. The other candidates are rows and lead nowhere (AT-GRPO, arXiv 2510.11062, algorithm 1). `joint(g)` draws g joint actions at each node and follows *all* of them (MAGRPO, arXiv 2508.04652, section 4).

# %%
short = lab.make_env("plan_path", max_turns=1)
plans = {"episodes(2)": lab.episodes(2), "tree(2)": lab.tree(2), "joint(2)": lab.joint(2)}
played = {name: lab.rollout(short, team, [task], plan, seed=0) for name, plan in plans.items()}
place = ["node", "parent", "turn", "depth", "agent", "candidate", "kept"]
pd.concat(played, names=["plan", "row"])[[*place, "completion", "team_reward", "local_reward"]]

# %%
meaning(*place)

# %% [markdown]
# In `tree(2)`, both executors answer the same kept proposal; their `parent` names it. In `joint(2)` every proposal has its own executors. The names of the nodes say by which branch they were reached (`~0`, `~1`).
#
# How many calls does one task take? Let *L* decisions follow each other, each by one agent, and let nothing end early:
#
# $$ \text{episodes}(n):\ n L \qquad\quad \text{tree}(k):\ k L \qquad\quad \text{joint}(g):\ \sum_{l=1}^{L} g^l $$
#
# Agents who act together share one of the *L* levels. Each joint action then takes one call per agent. A joint tree grows exponentially, so the kit refuses one that may become too big:

# %%
try:
    lab.rollout(env, team, [task], lab.joint(8), seed=0)
except ValueError as error:
    print(error)

# %% [markdown]
# ## The same draw, whatever else is in the batch
#
# Every completion is drawn from its own seed, a hash of (seed, step, node, agent, candidate).

# %% [markdown]
# *Predict:* we play the same four mazes in reverse order, then only two of them, then with `tree(4)` instead of `tree(2)`. Which completions stay the same?


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
# *Explain.* A call is in both tables if its node, agent, candidate number and prompt are the same. All these calls drew the same ids, whatever else was in the batch. With `tree(4)` another candidate may be kept. Then the paths part, and fewer calls are in both tables. Another seed draws anew. Ids that still agree come from a model that was sure enough to say the same twice. So you can resume a run, replay a row, and compare two recipes on the same draws.
#
# ## What a plan costs

# %% [markdown]
# *Predict:* an episode under `tree(8)` draws eight candidates at every decision. Does it sample eight times as many tokens as a plain episode, or more, or fewer?


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
# *Explain.* Over the 32 mazes a plain episode samples 32 tokens and a tree of eight 126: four times as many, not eight. The reason is that the best of eight arrives sooner. Its 29 calls are less than four decisions; a plain episode takes seven calls. Reading is cheap where candidates share a prompt, since each distinct prompt goes through the model once. So a tree reads fewer tokens for an episode (55) than a plain one does (67). With `follow=1` every candidate is also played on to the end, once, as `counterfactual()` needs: 608 sampled tokens. One round of `joint(4)` takes 20 calls, 4 + 16; a tree takes 8.
#
# So "an episode" is not a unit of cost. Our studies compare at equal sampled tokens, and say so.
#
# ## The best of K is not success
#
# A tree keeps the candidate that earned most. How good does the team then look?

# %% [markdown]
# *Predict:* alone, with one draw per decision, the team solves about half of the mazes. In how many does a tree of 2, 4 or 8 candidates arrive? And in how many if the pick is not the best candidate, but the one that was drawn *first*?


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
# *Explain.* Every cell of the table shows one team with the same weights. Drawn first: 0.47 for every K, to the digit, because candidate 0 is always the same draw. The other candidates move nothing. Earned most: 0.78, 0.94 and 1.00. Over five seeds, 0.97 to 1.00 at K = 8, where the team alone solves 0.45 to 0.57.
#
# If one draw solves a maze with probability *p*, then at least one of K draws solves it with probability
#
# $$ 1 - (1 - p)^K , $$
#
# This is pass@K. `lab.evaluate` uses its unbiased estimate (Chen et al., arXiv 2107.03374, equation 1). Here it is 0.94 for eight whole episodes. The tree does better still, because it picks at every turn. Its pick also knows the way: `local_reward` is computed from the maze's solution. No team has this solution when it plays alone.
#
# So a *training* rollout shows the success of the team *and its pick*. Wherever this kit reports success, `lab.evaluate` has let the team play alone.
#
# ## Walk through it
#
# The viewer opens on an *index* of episodes. The most telling ones come first: failures, large advantages, answers that were cut off or not understood. Click on a row to open an episode. Each decision shows all its candidates, which one was kept, what each earned, and the surprise −log p of each token. The box above the index filters: try `agent:executor invalid`. You can also use keys: `f` opens the next failure, `j` and `k` move along the index, → and ← along the path. `c` moves through the candidates, `g` through the rows of the same group. `?` lists all keys.

# %%
lab.RolloutViewer(explored["tree(8)"], team=team)

# %% [markdown]
# ## The same in plain code
#
# `mas_lab/plain.py` is the whole method of this course in one file of 179 lines. It imports torch and pandas, and nothing of the kit. It samples one prompt at a time and writes no error messages. So it is slower, but every line of it is method. Here is its rollout; `candidates=8` makes it the tree above.

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
# The table has the columns that you know. `plain.py` takes its random numbers from one generator, in the order of the calls. So its draws differ from those of `lab.rollout`, which gives each call its own seed. That costs a few lines, but then a draw does not depend on the rest of the batch.
#
# ## Your turn
#
# **01.1** (5 minutes, easy) Count model calls for one task. Three agents speak one after the other, for two rounds, and nothing ends early. How many calls do `episodes(8)`, `tree(8)` and `joint(2)` make? And how many does `joint(8)` make where three agents act together, once?

# %%
### BEGIN SOLUTION
calls = [48, 48, 126, 24]
### STARTER
# calls = [..., ..., ..., ...]
### END SOLUTION
lab.course.check("01.1", calls)


# %% [markdown]
# **01.2** (10 minutes, medium) Compute one log-probability in numpy. `logits` holds a number for each token of the vocabulary. The check uses random logits, some of them large.


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
# **01.3** (10 minutes, medium) What did each episode earn? Take a table of any plan but `joint`, and return a number per episode: a Series indexed by `episode`. It is the sum of `team_reward` over the steps that the episode really took. There are two traps. Some candidates moved nothing. And agents who act together (same `episode` and `depth`) earn their reward once, though each row carries it.


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
# **01.4** (8 minutes, medium) Write a pick that needs no reward. `pick` gets a table of candidates and returns a number for each; the highest is kept. Keep the candidate of which the *model itself* is surest: the highest mean log-probability of its tokens. Use the mean, because a sum prefers short answers.


# %%
def surest(turns):
    ### BEGIN SOLUTION
    return turns["logprobs"].map(np.mean)
    ### STARTER
    # pass  # your code here
    ### END SOLUTION


lab.course.check("01.4", surest)


# %% [markdown]
# **01.5** (25 minutes, hard) *Build it.* Draw a completion of `count` tokens from a language model, token by token, with a cache. `model(ids, past_key_values=cache, use_cache=True)` returns `logits` and `past_key_values`; at first the cache is `None`. `ids` is a tensor with one row. Return two lists: the drawn ids and their log-probabilities at the temperature. The check counts how many tokens the model reads, and compares with logits of the whole text at once. `plain.sample` does the same for several candidates; look there last.


# %%
@torch.no_grad()
def draw(model, prompt_ids, count, temperature, generator):
    ### BEGIN SOLUTION
    ids, logprobs, cache, read = [], [], None, torch.tensor([prompt_ids])
    for _ in range(count):
        out = model(read, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        spread = (out.logits[:, -1].float() / temperature).log_softmax(-1)
        read = torch.multinomial(spread.exp(), 1, generator=generator)
        ids.append(read.item())
        logprobs.append(spread[0, ids[-1]].item())
    return ids, logprobs
    ### STARTER
    # pass  # your code here; torch.multinomial(probabilities, 1, generator=generator) draws
    ### END SOLUTION


lab.course.check("01.5", draw)

# %%
if surest(first) is not None:
    picks = {"drawn first": drawn_first, "the model is surest": surest, "earned most": lab.mixed()}
    for name, pick in picks.items():
        turns = lab.rollout(env, team, many, lab.tree(8, pick=pick), seed=0)
        print(f"{name}: {arrived(turns):.2f}")

# %% [markdown]
# A question to take further: with the surest of eight the team arrives in 0.81 to 0.94 of the mazes (five seeds), far above its own half. This pick *can* be used without knowing the way. Is it more than a lower temperature? `lab.evaluate(env, team, many, k=8, sampling=lab.Sampling(temperature=0.3))` is one way to find out.

# %%
lab.course.progress("01")

# %% [markdown]
# ## To remember
#
# - A row is one call: the sampled ids, and their log-probabilities at the temperature of sampling. Text is for people.
# - A plan decides which calls are made, and which of them move the state. In every row, `node`, `parent`, `candidate` and `kept` say so.
# - The best of K reaches more than the team can do alone.
#
# Papers: AT-GRPO, [arXiv 2510.11062](https://arxiv.org/abs/2510.11062), algorithm 1; MAGRPO, [arXiv 2508.04652](https://arxiv.org/abs/2508.04652), section 4; pass@k, [arXiv 2107.03374](https://arxiv.org/abs/2107.03374), equation 1; temperature, [arXiv 1503.02531](https://arxiv.org/abs/1503.02531), equation 1. `data/results/plans/` has the numbers over five seeds.
#
# Next: `02_grouping` compares rows with each other.
