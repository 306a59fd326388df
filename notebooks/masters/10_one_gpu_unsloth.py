# %% [markdown]
# # One GPU with Unsloth: other weights, the same four cells
#
# *Level: you ran the quickstart. Reading: 15 minutes. Compute: about 3 minutes on two CPU cores.*
#
# Two agents, **one frozen base model, one LoRA adapter each**, on the one GPU that Colab or Kaggle lends. Unsloth reads the model (in 16 or 4 bits) and brings the kernels of the forward and backward pass; everything else stays as you know it: `rollout`, `group`, `normalize`, `update`.
#
# | where | what this notebook does |
# |---|---|
# | Colab or Kaggle with a T4 | Unsloth, Qwen3-0.6B, float16; it samples with the model that it trains |
# | a GPU of compute capability 8.0 or more | the same in bfloat16 |
# | no GPU | the pocket model, through Unsloth's CPU form where it is installed, else through plain torch |
#
# It was run from top to bottom in the third form, with Unsloth and without. *Not verified on Colab or Kaggle yet, nor on any GPU.*

# %% tags=["install"]
hosted["UNSLOTH"]

# %% tags=["parameters"]
SMOKE = False  # True: a few steps only, to see that everything runs

# %% [markdown]
# Unsloth patches transformers while that is imported, so it has to come first. `import mas_lab` imports neither: the first policy does, in the right order. If you import transformers, TRL or PEFT yourself, write `import unsloth` above them.

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
# *Predict:* Qwen3-1.7B has 1.7 billion weights. You have a T4, about 14.5 GiB. Which of these fit: training all weights; two LoRA adapters on a 16-bit base; two adapters on a 4-bit base? And what is the largest item of the last one?

# %%
table = budget(agents=2, rank=16, train_tokens=2048, sample_tokens=16384)
table.assign(fits_a_T4=table["peak"] < 14.5).round(2)

# %% [markdown]
# *Explain:* GiB, counted layer by layer from the model's config; nothing was loaded. All weights in training cost 16 bytes each: the weight, its gradient and AdamW's two moments. A frozen weight costs 2 bytes, or about half a byte in 4 bits, and the adapters are so small that their optimizer hardly shows. What is left over is tokens: keys and values of everything that is sampled at once (`sample_tokens`), and the activations of one micro-batch of the update (`train_tokens`, an estimate). The two take turns, so the larger one counts. Both are options of `load_base`, and neither changes what is learned.
#
# **10.1** The base is 1.7B in 16 bits. What is the largest power of two for `sample_tokens` that still fits a T4 (14.5 GiB)? `budget` above says what any number needs.

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
# The only lines that differ from the quickstart. `backend="unsloth"` could be `"torch"` or `"vllm"`. The precision is chosen by what the device can do: float32 on a CPU, float16 on a T4 (which has no bfloat16), bfloat16 on newer GPUs.

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
# **10.2** An adapter of rank $r$ beside a layer of $d_{in}$ inputs and $d_{out}$ outputs is $\Delta W = B A$, with $A$ of shape $(r, d_{in})$ and $B$ of shape $(d_{out}, r)$ ([LoRA, arXiv 2106.09685](https://arxiv.org/abs/2106.09685)). How many weights does an adapter train? Your count is compared with the table above.


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
# *Predict:* the sampler recorded a log-probability for every token it drew. The trainer now computes them again, with other code: padded rows instead of one token at a time, and gradients on. How far apart may they be?

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
# *Explain:* `mismatch` is the largest |p_trained / p_sampled − 1| over all tokens, before the first optimizer step. In float32 it is rounding, about 1e-6. In half precision a percent or so is normal; much more means that the weights that spoke are not the weights that are trained, and every ratio of the loss would be wrong. Here they are the same tensors. If vLLM samples, the adapters are sent to it after each update, and the kit proves on a few tokens that they arrived.
#
# **10.3** Write it: from the log-probabilities of the same tokens, by the trainer and by the sampler.


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
# *Predict:* we train on the executor's turns alone. Unsloth's kernels compute one adapter at a time, and switching adapters also switches which weights ask for gradients. Does the planner's adapter move?


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
# *Explain:* not by a bit. Each adapter has an optimizer of its own, and an agent without rows takes no step: not even AdamW's weight decay or its memory of earlier gradients moves it.
#
# ## What 4 bits cost
#
# The frozen base in NF4, a quarter of the memory. The adapters stay in float32 and learn around the rounding.

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
# *Explain:* for the pocket model it is far too coarse: with 0.3 million weights none is to spare, and about two fifths of the success is gone (on 64 mazes, over five seeds of the draws, 0.40 to 0.48 in float32 and 0.23 to 0.30 in 4 bits). Models a thousand times larger have slack, and are said to lose little. That is for you to measure, by this very cell, before you train on a rounded base.

# %% [markdown]
# ## Train
#
# With `run=` everything that the next step depends on is kept in a folder: on Colab in a mounted Drive, on Kaggle under `/kaggle/working`. When the session is taken away, run the notebook again, and the same line goes on where it stopped. Interrupt the kernel to stop.

# %%
STEPS, TASKS = (2, 2) if SMOKE else (20, 4) if BIG else (8, 24)
team = lab.Team.per_agent(load().adapter, env.agents)
name = f"one_gpu_{BACKEND}{'_smoke' if SMOKE else ''}"
curve = LiveCurve("at_grpo, one adapter per agent")
scored = {"score_every": 4, "score_tasks": len(held_out), "score_episodes": 1 if SMOKE else 2}
for report in lab.train(env, team, "at_grpo", steps=STEPS, seed=0, tasks=TASKS, run=name, save_every=5, **scored):
    curve.take(report)

# %% [markdown]
# The curve is success on mazes that training never shows, scored by `train` itself (`score_every`), without changing what is learned. `report.success` is something else: in training the best of eight candidates moves the state. The team alone, once more:

# %%
untrained = lab.Team.per_agent(load().adapter, env.agents)
print(f"held out: {success(untrained):.2f} before, {success(team):.2f} after {team['planner'].version} updates")
lab.load_run(lab.runs_dir() / name).stats.groupby("agent")[["grad_norm", "mismatch"]].max()

# %% [markdown]
# ## Take the adapters along
#
# Each adapter is a folder in PEFT's own format, which plain `peft` loads, and vLLM serves: `vllm serve Qwen/Qwen3-0.6B --enable-lora --max-loras 2 --lora-modules planner=adapters/planner executor=adapters/executor`. Load a folder by its path: tools that take "the adapter" of a model with several may take the wrong one.

# %%
for agent in env.agents:
    team[agent].save(Path("adapters") / agent)
pd.DataFrame(
    [(path.as_posix(), path.stat().st_size) for path in sorted(Path("adapters").rglob("*")) if path.is_file()],
    columns=["file", "bytes"],
)

# %% [markdown]
# *Check, without mas_lab:* the base and one adapter, by transformers and PEFT alone, must give the log-probabilities that our sampler recorded.

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
# - **A T4 and vLLM:** today's vLLM wheels do not fit Colab's torch, and reports on Turing cards conflict. Here the model that trains also samples.
# - **Kaggle's two T4s:** one agent per GPU, in the next notebook.
# - **A P100:** torch sees it and fails at the first product. The install cell says so; choose the T4s.
# - **Exact attribution of a gradient** (notebook 5) needs a derivative that Unsloth's GPU kernels do not have: load the saved adapters with `backend="torch"`.
#
# **To remember.** One frozen base, one adapter and one optimizer per agent. `mismatch` says whether the weights that spoke are those that learn. Keep the run in a folder: the session will be taken away.
#
# Next: `11_many_gpus_vllm`.
