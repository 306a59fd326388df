# %% [markdown]
# # One GPU with Unsloth: other weights, the same four cells
#
# *Level: you ran the quickstart. Reading: 15 minutes. Compute: about half a minute on two CPU cores.*
#
# Two agents share **one frozen base model, with one LoRA adapter each**, on the one GPU that Colab or Kaggle lends. Unsloth reads the model (in 16 or 4 bits) and provides the kernels of the forward and backward pass. Everything else stays the same: `rollout`, `group`, `normalize`, `update`.
#
# | where | what this notebook does |
# |---|---|
# | Colab or Kaggle with a T4 | Unsloth, Qwen3-0.6B, float16; it samples with the model that it trains |
# | a GPU of compute capability 8.0 or more | the same in bfloat16 |
# | no GPU | the pocket model, through Unsloth's CPU form where it is installed, else through plain torch |
#
# We ran it from top to bottom in the third form, with and without Unsloth. *It is not verified on Colab, Kaggle or any GPU yet.*

# %% tags=["install"]
hosted["UNSLOTH"]

# %% tags=["parameters"]
SMOKE = False  # True: a few steps only, to see that everything runs

# %% [markdown]
# Unsloth patches transformers at import, so it has to be imported first. `import mas_lab` imports neither. The first policy imports both, in the right order. If you import transformers, TRL or PEFT yourself, write `import unsloth` above them.

# %%
import numpy as np
import pandas as pd
import torch

import mas_lab as lab
from mas_lab.backends.placement import budget
from mas_lab.widgets.live import LiveCurve

UNSLOTH = importlib.util.find_spec("unsloth") is not None and (host.name == "local" or bool(host.usable_gpus))
BACKEND = "unsloth" if UNSLOTH else "torch"
BIG = UNSLOTH and bool(host.usable_gpus)  # an instruction model and the full-size task
print(f"{BACKEND=}  {BIG=}")

# %% [markdown]
# ## What fits

# %% [markdown]
# *Predict:* Qwen3-1.7B has 1.7 billion weights. You have a T4 with about 14.5 GiB. Which of these fit: training all weights, two LoRA adapters on a 16-bit base, two adapters on a 4-bit base? What is the largest part of the last one?

# %%
table = budget(agents=2, rank=16, train_tokens=2048, sample_tokens=16384)
table.assign(fits_a_T4=table["peak"] < 14.5).round(2)

# %% [markdown]
# *Explain:* the table is in GiB, counted layer by layer from the model's config; nothing was loaded. A trained weight costs 16 bytes: the weight, its gradient and AdamW's two moments. A frozen weight costs 2 bytes, or about half a byte in 4 bits. The adapters are so small that their optimizer hardly counts. The rest depends on tokens. `sample_tokens` bounds the keys, values and logits of everything that is sampled at once. `train_tokens` bounds the activations of one micro-batch of the update (an estimate). Sampling and update take turns, so the larger one counts. Both are options of `load_base`, and neither changes what is learned.
#
# **10.1** (5 minutes, easy) The base is 1.7B in 16 bits. What is the largest power of two for `sample_tokens` that still fits a T4 (14.5 GiB)? `budget` above computes the need for any number.

# %%
### BEGIN SOLUTION
sample_tokens = 2**16
### STARTER
# sample_tokens = 2**14  # <- change this
### END SOLUTION
lab.course.check("10.1", sample_tokens)

# %% [markdown]
# ## One base, one adapter per agent
#
# Only these lines differ from the quickstart. `backend="unsloth"` could be `"torch"` or `"vllm"`. The device decides the precision: float32 on a CPU, float16 on a T4 (which has no bfloat16), and bfloat16 on newer GPUs.

# %%
env = lab.make_env("plan_path", size="full" if BIG else "pocket")
model = "unsloth/Qwen3-0.6B" if BIG else env.pocket
options = {"template": {"enable_thinking": False}, "train_tokens": 2048, "sample_tokens": 16384} if BIG else {}


def load(**more):
    return lab.load_base(model, backend=BACKEND, adapters=len(env.agents), rank=8, **options, **more)


base = load()
team = lab.Team.per_agent(base.adapter, env.agents)
pd.DataFrame(
    {
        agent: {
            "trains": f"{sum(p.numel() for p in policy.parameters.values()):,} weights of {policy.adapter}",
            "device": str(base.shared.device),
            "products in": str(base.shared.dtype),
        }
        for agent, policy in team.items()
    }
)

# %% [markdown]
# **10.2** (5 minutes, easy) An adapter of rank $r$ beside a layer of $d_{in}$ inputs and $d_{out}$ outputs is $\Delta W = B A$, with $A$ of shape $(r, d_{in})$ and $B$ of shape $(d_{out}, r)$ ([LoRA, arXiv 2106.09685](https://arxiv.org/abs/2106.09685)). How many weights does an adapter train? The check counts layers of random sizes.


# %%
def adapter_weights(layers, rank):
    """`layers`: a list of (inputs, outputs), one pair per linear layer."""
    ### BEGIN SOLUTION
    return sum(rank * (inputs + outputs) for inputs, outputs in layers)
    ### END SOLUTION


lab.course.check("10.2", adapter_weights)

# %% [markdown]
# ## The four cells, unchanged

# %% [markdown]
# *Predict:* the sampler recorded a log-probability for every token. The trainer now computes them again with other code: padded rows instead of single tokens, and with gradients. How far apart may they be?

# %%
tasks = env.tasks(2 if SMOKE or BIG else 8, split="train", seed=0)
turns = lab.rollout(env, team, tasks, plan=lab.tree(4), seed=0)
turns = lab.group(turns, by=("episode", "agent", "turn"), credit=lab.mixed(alpha=1.0), same_prompt=True)
turns = lab.normalize(turns)
stats = lab.update(team, turns, loss=lab.clipped(0.2))
stats[["policy", "agent", "turns", "tokens", "grad_norm", "entropy", "mismatch"]]

# %%
if base.shared.dtype == torch.float32:
    assert stats["mismatch"].max() < 1e-3, "sampler and trainer disagree"


# %% [markdown]
# *Explain:* `mismatch` is the largest |p_trained / p_sampled − 1| over all tokens, before the first optimizer step. In float32 it is rounding, about 1e-6. In half precision single tokens may differ by 0.2 and more (14). In float32 more means that the sampling weights are not the trained weights. Here they are the same tensors. If vLLM samples, the kit sends it the adapters after each update, and proves on a few tokens that they arrived.
#
# **10.3** (5 minutes, easy) Write it. The inputs are the log-probabilities of the same tokens, from the trainer and from the sampler.


# %%
def mismatch(trained, sampled):
    """The largest |p_trained / p_sampled - 1|; two arrays of log-probabilities (natural logarithms)."""
    ### BEGIN SOLUTION
    return abs(np.exp(trained - sampled) - 1).max()
    ### END SOLUTION


lab.course.check("10.3", mismatch)

# %% [markdown]
# ## Whose weights move

# %% [markdown]
# *Predict:* we train only on the executor's turns. Unsloth's kernels compute one adapter at a time, and the active adapter decides which weights get gradients. Does the planner's adapter move?


# %%
def total(policy):
    return sum(float(p.detach().double().abs().sum()) for p in policy.parameters.values())


before = {agent: total(team[agent]) for agent in env.agents}
# The rows are older than the update above. We only look at which weights move, so we allow them.
lab.update(team, turns[turns["agent"] == "executor"], loss=lab.clipped(0.2), off_policy=True)
moved = {agent: total(team[agent]) != before[agent] for agent in env.agents}
print(moved)
assert moved == {"planner": False, "executor": True}

# %% [markdown]
# *Explain:* it does not move at all. Each adapter has its own optimizer, and an agent without rows makes no step. So neither weight decay nor AdamW's moments move it.
#
# ## What 4 bits cost
#
# In NF4 the frozen base takes a quarter of the memory. The adapters stay in float32, and can learn to correct the rounding.

# %% [markdown]
# *Predict:* does the same untrained team, with its base rounded to 4 bits, solve fewer mazes?

# %%
held_out = env.tasks(4 if SMOKE or BIG else 64, split="test", seed=0)


def success(team):
    return lab.evaluate(env, team, held_out, k=1 if SMOKE else 2)["success"].mean()


if UNSLOTH:
    exact, rounded = (lab.Team.per_agent(load(**bits).adapter, env.agents) for bits in ({}, {"load_in_4bit": True}))
    print(f"{str(base.shared.dtype).removeprefix('torch.')}: {success(exact):.2f}   4 bits: {success(rounded):.2f}")
    del exact, rounded
else:
    print("4 bits are Unsloth's (with bitsandbytes); this run is on plain torch")

# %% [markdown]
# *Explain:* for the pocket model 4 bits are too coarse. It has only 0.3 million weights, and loses about two fifths of its success. On 64 mazes, over five seeds of the draws, it reaches 0.40 to 0.48 in float32 and 0.23 to 0.30 in 4 bits. Models a thousand times larger are said to lose little. Measure it with this cell before you train on a rounded base.

# %% [markdown]
# ## Train
#
# With `run=`, a folder keeps everything that the next step depends on: on Colab in a mounted Drive, on Kaggle under `/kaggle/working`. If you lose the session, run the notebook again, and the same line continues where it stopped. Interrupt the kernel to stop.

# %%
STEPS, TASKS = (2, 2) if SMOKE else (20, 4) if BIG else (8, 24)
team = lab.Team.per_agent(load().adapter, env.agents)
name = f"one_gpu_{BACKEND}{'_smoke' if SMOKE else ''}"
curve = LiveCurve("at_grpo, one adapter per agent")
scored = {"score_every": 4, "score_tasks": len(held_out), "score_episodes": 1 if SMOKE else 2}
for report in lab.train(env, team, "at_grpo", steps=STEPS, seed=0, tasks=TASKS, run=name, save_every=5, **scored):
    curve.take(report)

# %% [markdown]
# The curve is success on mazes that are not used in training. `train` scores them itself (`score_every`), without changing what is learned. `report.success` is something else: in training the best of eight candidates moves the state. Here is the team alone once more:

# %%
untrained = lab.Team.per_agent(load().adapter, env.agents)
print(f"held out: {success(untrained):.2f} before, {success(team):.2f} after {team['planner'].version} updates")
lab.load_run(lab.runs_dir() / name).stats.groupby("agent")[["grad_norm", "mismatch"]].max()

# %% [markdown]
# ## Take the adapters along
#
# Each adapter is a folder in PEFT's own format, which plain `peft` loads, and vLLM serves: `vllm serve Qwen/Qwen3-0.6B --enable-lora --max-loras 2 --lora-modules planner=adapters/planner executor=adapters/executor`. Load a folder by its path. Tools that take "the adapter" of a model with several adapters may take the wrong one.

# %%
for agent in env.agents:
    team[agent].save(Path("adapters") / agent)
pd.DataFrame(
    [(path.as_posix(), path.stat().st_size) for path in sorted(Path("adapters").rglob("*")) if path.is_file()],
    columns=["file", "bytes"],
)

# %% [markdown]
# *Check without mas_lab:* transformers and PEFT alone load the base and one adapter. They must give the log-probabilities that our sampler recorded.

# %%
import warnings

from peft import PeftModel
from transformers import AutoModelForCausalLM
from transformers.utils import logging

logging.disable_progress_bar()
warnings.filterwarnings("ignore", "`is_gradient_checkpointing`")  # PEFT's own use of an old name

turn = lab.rollout(env, team, tasks[:1], lab.episodes(1), seed=1).query("agent == 'executor'").iloc[0]
plain = AutoModelForCausalLM.from_pretrained(base.shared.source.location(), dtype=base.shared.dtype)
plain = PeftModel.from_pretrained(plain, "adapters/executor").to(base.shared.device).eval()
ids = torch.tensor([[*turn["prompt_ids"], *turn["completion_ids"]]], device=plain.device)
with torch.no_grad():
    logprobs = torch.log_softmax(plain(input_ids=ids).logits[0, len(turn["prompt_ids"]) - 1 : -1].float(), -1)
theirs = logprobs.gather(1, ids[0, len(turn["prompt_ids"]) :, None])[:, 0].cpu()
apart = float((theirs - torch.tensor(turn["logprobs"])).abs().max())
print(f"{turn['completion']!r}: at most {apart:.1e} apart")
assert apart < (1e-3 if base.shared.dtype == torch.float32 else 0.3)

# %% [markdown]
# ## Where one GPU ends
#
# - **A T4 and vLLM:** today's vLLM wheels do not fit Colab's torch, and reports about Turing cards conflict. So here the trained model also samples.
# - **Kaggle's two T4s:** one agent per GPU, in the next notebook.
# - **A P100:** torch sees it and fails at the first product. The install cell says so; choose the T4s.
# - **Exact attribution of a gradient** (notebook 5) needs a derivative that Unsloth's GPU kernels do not have: load the saved adapters with `backend="torch"`.
#
# **To remember.** There is one frozen base, and one adapter and one optimizer per agent. `mismatch` says whether the sampling weights are the trained weights. Keep the run in a folder, because hosted sessions end.
#
# Next: `11_many_gpus_vllm`.
