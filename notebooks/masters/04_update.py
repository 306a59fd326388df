# %% [markdown]
# # Update: from advantages to one optimizer step
#
# *Level: you know PyTorch, and what an advantage is (03). Reading: 35 minutes. Compute: 1 to 2 minutes on two CPU cores.*
#
# Cell 4 turns a table of advantages into a gradient and takes a step. Afterwards you can
#
# - write the two losses of the course, `reinforce` and `clipped`, in three lines each, and say which tokens get no gradient from them;
# - say how much a long completion counts if you average over tokens, rows or agents, or take the sum;
# - read every number that `lab.update` reports, and say which one means that something is broken;
# - say when a large gradient norm matters, and when it does not.

# %% tags=["install"]

# %% tags=["parameters"]
SMOKE = False  # True: a few steps only, to see that everything runs

# %%
import inspect

import numpy as np
import pandas as pd
import torch
from IPython.display import display
from plotly import express as px

import mas_lab as lab
from mas_lab import plain
from mas_lab.widgets.figures import LAYOUT, PALETTE

COLORS = {"color_discrete_sequence": PALETTE}
pd.set_option("display.max_colwidth", 60)

# %%
lab.course.loop("update")

# %% [markdown]
# ## The policy gradient, for people who know cross-entropy
#
# A language model that is trained on text minimises $-\log \pi(\text{token})$, so the words of the text become more probable. Reinforcement learning trains on text that the model has just sampled itself. It multiplies each row's term by its advantage (REINFORCE, Williams 1992):
#
# $$L = -A \, \log \pi_\theta(a \mid s), \qquad \mathbb E_{a \sim \pi_\theta}\big[\nabla_\theta L\big] = -\nabla_\theta \, \mathbb E_{a \sim \pi_\theta}[R].$$
#
# Here $s$ is what the model has read, $a$ the token that it sampled, and $A$ the advantage of its row. With a positive advantage, this is cross-entropy on the model's own words. A negative advantage makes these words less likely. The second equation says that a step against this gradient raises the expected reward. It holds for $A = R$. It also holds for $R$ minus a baseline, which is anything that does not depend on $a$.
#
# Classical methods learn that baseline with a second network, the value network or critic. Here it is the mean of a group of answers to the same task (03). "No value network" means only this.
#
# **By hand first.** The smallest policy has two tokens, `a` and `b`. Its logits are $\theta = (0, 0)$, so both have probability ½. It said `a`, and $A = 1$. The derivative of $-A \log \mathrm{softmax}(\theta)_a$ by the logits is
#
# $$\frac{\partial L}{\partial \theta_j} = -A \, (\mathbb 1[j = a] - \pi_j).$$
#
# So by hand we get $(-\tfrac12, +\tfrac12)$, and a step against it makes `a` more probable. Autograd agrees:


# %%
def two_tokens(probability, advantage):
    """A policy that says `a` with this probability, and has just said it: loss, and gradient by the two logits."""
    logits = torch.tensor([probability, 1 - probability]).log().requires_grad_()
    loss = -advantage * logits.log_softmax(0)[0]
    loss.backward()
    return loss.item(), logits.grad.tolist()


loss, gradient = two_tokens(0.5, 1.0)
print(f"loss {loss:.3f}, gradient {gradient}")

# %% [markdown]
# *Predict:* the policy said `a` once at probability 0.9 and once at 0.1, each time with advantage 1. Where is the gradient larger, and by how much? What changes with advantage −1?

# %%
said = [(p, A, *two_tokens(p, A)) for A in (1.0, -1.0) for p in (0.9, 0.5, 0.1)]
table = pd.DataFrame(said, columns=["probability of a", "advantage", "loss", "gradient"])
table["by the logit of a"] = table.pop("gradient").str[0]
table.round(3)

# %% [markdown]
# *Explain:* the gradient by the sampled token's logit is $-A(1 - \pi)$. It is 0.1 for a token that was nearly certain, and 0.9 for one that was not. **Unlikely tokens make large gradients**, whatever the sign. A negative advantage only turns the direction around. The column `loss` follows the advantages and does not measure quality: a falling loss means nothing here.

# %% [markdown]
# ## One row of a real policy
#
# Do the same for a pocket model with 0.3 million weights. In `math`, a solver works out a chain of digits, and a verifier approves it or sends it back. One set of weights plays both. The rule of chains: from left to right, and only the last digit of each step counts. So `3 + 4 * 2` is 7, then 14, so 4: `7 4 answer 4` is right. `8 1 answer 1`, which multiplies first, is wrong.

# %%
env = lab.make_env("math")


def fresh_team(**options):
    return lab.Team.shared(lab.load_policy(env.pocket, **options), env.agents)


team = fresh_team()
turns = lab.rollout(env, team, env.tasks(4 if SMOKE else 16, "train", seed=0), lab.episodes(8), seed=0)
turns = lab.RECIPES["grpo"].advantages(turns)
turns[["agent", "prompt", "completion", "completion_ids", "logprobs", "advantage"]].head(3)

# %% [markdown]
# (`completion_ids`: the tokens that were sampled; `logprobs`: the log-probability of each at that moment.) A completion of seven tokens has seven log-probabilities and *one* advantage, which all tokens get. Now compute the loss of the first row with an advantage of 1, once in plain PyTorch and once by the cell. `lr_scale=0.0` computes and reports everything, but leaves the weights as they are.

# %%
one = turns.head(1).assign(advantage=1.0)
[policy], [row] = team.policies.values(), one.to_dict("records")

ids = torch.tensor([[*row["prompt_ids"], *row["completion_ids"]]])
logits = policy.model(ids).logits[0, len(row["prompt_ids"]) - 1 : -1]  # position i predicts token i + 1
logprobs = logits.log_softmax(-1).gather(1, torch.tensor(row["completion_ids"])[:, None])[:, 0]
gradients = torch.autograd.grad(-(row["advantage"] * logprobs).mean(), list(policy.model.parameters()))
norm = torch.cat([part.flatten() for part in gradients]).norm().item()

stats = lab.update(team, one, loss=lab.reinforce(), lr_scale=0.0)
print(f"gradient norm: {norm:.4f} in plain PyTorch, {stats['grad_norm'].item():.4f} by the cell")

# %% [markdown]
# The cell hides nothing: prompt tokens have no loss, there is no padding, and the mean is over the completion's tokens.
#
# ## Ratio and clip
#
# Sampling is expensive, so we would like to take several steps on one sample. After the first step the weights are no longer those that drew the sample. PPO (arXiv 1707.06347) corrects for this with the ratio of a token's probability now to its probability then:
#
# $$\rho = \frac{\pi_\theta(a \mid s)}{\pi_\text{old}(a \mid s)} = \exp(\log \pi_\theta - \log \pi_\text{old}) .$$
#
# Its loss gives no gradient to a token whose ratio has already moved far in the direction of its advantage (equation 7):
#
# $$L = -\min\big(\rho A,\; \mathrm{clip}(\rho, 1 - \varepsilon, 1 + \varepsilon)\, A\big), \qquad \varepsilon = 0.2.$$
#
# The `logprobs` of the table are $\log \pi_\text{old}$. The sampler recorded them when it drew the token.

# %% [markdown]
# *Predict:* draw $L$ over $\rho$ from 0 to 2 on paper before you run the cell, once for $A = 1$, once for $A = -1$. Where is each curve flat? Flat means that the token gets no gradient.

# %%
ratio = np.linspace(0.01, 2, 200)
logprobs_N, old_N, row_N = torch.tensor(np.log(ratio)), torch.zeros(200), torch.zeros(200, dtype=torch.long)
drawn = [
    pd.DataFrame({"ratio": ratio, "loss": lab.clipped(0.2)(logprobs_N, old_N, torch.full((200,), A), row_N), "A": f"{A:+g}"})
    for A in (1.0, -1.0)
]  # fmt: skip
px.line(pd.concat(drawn), x="ratio", y="loss", color="A", **COLORS).update_layout(**LAYOUT, height=360)

# %% [markdown]
# *Explain:* a curve is flat where a step would go *further* in the direction in which the token has already moved. With a positive advantage this is above 1.2, with a negative one below 0.8. On the other side nothing is clipped. A token with a positive advantage that has become less probable is pulled back with full force. For a token with a negative advantage that has become ten times as probable, this force is very large; `dual=3.0` bounds it (arXiv 1912.09729).
#
# The clip does not limit how far a step goes. It looks at where tokens are *before* the step, and one step can move them anywhere.

# %% [markdown]
# *Predict:* take the first optimizer step after a rollout, on all rows. Which share of the tokens is clipped (`clip_fraction`), and what is the largest ratio (`max_ratio`)? What are they in the second, third and fourth step on the same rows (`epochs=4`)?

# %%
stats = lab.update(fresh_team(lr=1e-3), turns, loss=lab.clipped(0.2), epochs=4)
stats[["agent", "optimizer_step", "clip_fraction", "max_ratio", "policy_norm"]].round(3)

# %% [markdown]
# *Explain:* in the first step $\pi_\theta$ *is* $\pi_\text{old}$, so every ratio is 1 and nothing is clipped. `clipped` then has exactly the gradient of `reinforce`, because the derivative of $\rho$ at 1 is that of $\log \pi$. From the second step on, about a tenth to a fifth of the tokens are clipped. Single tokens have become ten times as probable and more. With one step for each rollout (`epochs=1, minibatches=1`, as in most runs here) the clip never does anything.
#
# `minibatches=4` takes one step on each quarter of the rows. Only the first quarter meets the weights that sampled it. This gives more steps for the same tokens, on older data. 00 trained with two minibatches.

# %% [markdown]
# ## Averages: what a long completion weighs
#
# The losses of all tokens must become one number. Row $i$ has $T_i$ tokens. The policy has $n$ rows in the batch, of $K$ agents, and $n_k$ of them are of agent $k$. The four choices of `aggregate` differ in the weight of one token of row $i$:
#
# | `aggregate` | weight of a token | used by |
# |---|---|---|
# | `"token"` | $1 / \sum_j T_j$ | DAPO (arXiv 2503.14476, section 3.3), and the published code of Dr. MAS and AT-GRPO |
# | `"turn"` | $1 / (n \, T_i)$ | GRPO (arXiv 2402.03300, equation 3): all rows have equal weight |
# | `"agent"` | $1 / (K \, n_k T_i)$ | all agents have equal weight, however rarely they speak |
# | `"sum"` | $1 / n$ | MAGRPO (arXiv 2508.04652, equation 4): the log-probability of the whole text |
#
# **By hand.** One agent has two rows, of 2 tokens and of 8 tokens. Under `"token"` each token weighs 1/10, so the long row weighs 8/10 of the whole. Under `"turn"` the short row's tokens weigh ¼ and the long row's 1/16. Under `"sum"` all tokens weigh ½.

# %% [markdown]
# *Predict:* a policy is always wrong, sometimes in short and sometimes in long answers, all with $A = -1$. Under `"turn"`, will its answers grow longer or shorter? Which of the four will have the largest norm?

# %%
lengths = turns["completion_ids"].map(len)
pair = turns.loc[[lengths.idxmin(), lengths.idxmax()]].assign(advantage=-1.0)
weights = {}


def keep(batch):
    """`watch` is called between backward pass and optimizer step."""
    weights[aggregate] = [*batch.rows["weight"], batch.norm]


for aggregate in ("token", "turn", "agent", "sum"):
    lab.update(team, pair, aggregate=aggregate, lr_scale=0.0, watch=keep)
named = pair["agent"] + ", " + lengths[pair.index].astype(str) + " tokens"
pd.DataFrame(weights, index=[*named, "gradient norm"]).T.round(3)

# %% [markdown]
# *Explain:* (the first two columns: the weight of each token of that row.) Under `"turn"` and `"agent"` a long row spreads its advantage over many tokens. So a wrong answer costs less per token the longer it is, and a right answer earns more per token the shorter it is. Dr. GRPO (arXiv 2503.20783) finds exactly this: wrong answers grow longer. Under `"token"` and `"sum"` all tokens have the same weight, and long rows dominate the gradient. `"sum"` is larger by the mean length, so it needs another learning rate.
#
# `"agent"` has a second effect. An agent that spoke three times weighs as much as one that spoke three hundred times, and three rows are mostly noise.
#
# ## Rows side by side: packed or padded
#
# The layout of rows in memory must not matter. Usually rows are padded to one length. But eight episodes of one task begin with the same prompt. So this kit packs rows into trees in which every common beginning occurs once. Is the gradient the same? We measure it on the whole batch:

# %%
found = {}


def gradient_of(packing):
    def keep(batch):
        found[packing] = torch.cat([part.flatten() for _, part in batch.policy.gradients()])

    lab.update(fresh_team(packing=packing), turns, lr_scale=0.0, watch=keep)


gradient_of("packed")
gradient_of("padded")
whole = [(*prompt, *said) for prompt, said in zip(turns["prompt_ids"], turns["completion_ids"], strict=True)]
nodes = {ids[:end] for ids in whole for end in range(1, len(ids) + 1)}
print(f"{len(whole)} rows: {len(whole) * max(map(len, whole))} positions padded, {len(nodes)} as one tree")
packed, padded = found["packed"], found["padded"]
print(f"norms {packed.norm():.4f} and {padded.norm():.4f}")
print(f"relative difference {(packed - padded).norm() / padded.norm():.0e}")

# %% [markdown]
# The gradients agree up to rounding. Your own loop should avoid two classical mistakes. One is to train on what follows the end of a completion. The other is to drop the end token itself; then a model forgets to stop.
#
# ## One set of weights, several agents: norms
#
# Solver and verifier share their weights, so there is one gradient, the sum of their parts. `update` reports the norm of each part and of the sum.

# %%
stats = lab.update(team, turns, max_norm=0.5, lr_scale=0.0)
stats[["agent", "turns", "tokens", "grad_norm", "grad_norm_clipped", "policy_norm", "policy_norm_clipped"]].round(3)

# %% [markdown]
# (`grad_norm`: the norm of this agent's part; `policy_norm`: the norm of the sum; `_clipped`: the norm after clipping at `max_norm`.)
#
# Norms do not add up: 0.67 and 0.27 make 0.76, not 0.94. Two vectors $g_1, g_2$ obey $\|g_1 + g_2\|^2 = \|g_1\|^2 + \|g_2\|^2 + 2\, g_1 \cdot g_2$. So the three norms give the angle between the gradients of the two agents. Here $\cos = 0.18$: they are nearly at right angles. At 1 both agents would want the same, and at −1 they would undo each other. Clipping multiplies the whole gradient by $\min(1, m / \|g_1 + g_2\|)$, where $m$ is `max_norm`. It shortens the gradient, and never turns it.

# %%
solver, verifier = stats["grad_norm"]
print(f"cos = {(stats['policy_norm'][0] ** 2 - solver**2 - verifier**2) / (2 * solver * verifier):.2f}")

# %% [markdown]
# The kit runs each agent's rows alone through the model and back, takes the norm, and adds up the parts. `mas_lab/plain.py` has the whole method in one file. Here is its update, and its norms of the same table.

# %%
fresh = lab.load_policy(env.pocket)
still = torch.optim.SGD(fresh.model.parameters(), lr=0.0)  # the weights stay as they are
player = plain.Policy(fresh.model, fresh.tokenizer, still)
print(plain.update(dict.fromkeys(env.agents, player), turns))
print(inspect.getsource(plain.update))

# %% [markdown]
# ## When is a large norm a problem?
#
# SGD moves by the learning rate times the gradient. AdamW (arXiv 1711.05101) divides each weight's gradient, averaged over recent steps, by the root of its average square:
#
# $$\Delta\theta_t = -\eta \, \frac{\hat m_t}{\sqrt{\hat v_t} + \epsilon}, \qquad m_t = \beta_1 m_{t-1} + (1 - \beta_1) g_t, \quad v_t = \beta_2 v_{t-1} + (1 - \beta_2) g_t^2 .$$
#
# $g_t$ is the gradient, $\eta$ the learning rate, $\beta_1 = 0.9$, $\beta_2 = 0.999$. The hats correct the first steps, in which the averages are still short.

# %% [markdown]
# *Predict:* multiply all advantages by 10, without clipping, and take one step. How much further do the weights move under SGD, and how much under AdamW?


# %%
def moved(optimizer, factor, lr):
    """How far one step moves the weights, and the norm of its gradient."""
    team = fresh_team(optimizer=optimizer, lr=lr)
    [policy] = team.policies.values()
    before = [weight.detach().clone() for weight in policy.model.parameters()]
    stats = lab.update(team, turns.assign(advantage=factor * turns["advantage"]), max_norm=None)
    after = policy.model.parameters()
    way = torch.cat([(now - then).flatten() for now, then in zip(after, before, strict=True)]).norm().item()
    return {"optimizer": optimizer, "advantages": f"x {factor}", "norm": stats["policy_norm"][0], "way": way}


pd.DataFrame(
    [moved(*asked) for asked in (("sgd", 1, 0.1), ("sgd", 10, 0.1), ("adamw", 1, 1e-4), ("adamw", 10, 1e-4))]
).round(4)

# %% [markdown]
# *Explain:* they move ten times as far under SGD, and exactly the same distance under AdamW. With AdamW, an agent whose gradient is ten times as large *in every step* learns as usual. AdamW does react to a norm that is large *once*. Here is one weight with gradients of 1, and with a gradient of 10 in step 20:

# %%
streams = {"always 1": [1.0] * 40, "always 10": [10.0] * 40, "1, once 10": [1.0] * 20 + [10.0] + [1.0] * 19}
ways = []
for name, gradients in streams.items():
    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.AdamW([weight], lr=1.0, weight_decay=0.0)
    for step, gradient in enumerate(gradients):
        before, weight.grad = weight.item(), torch.tensor([gradient])
        optimizer.step()
        ways.append({"gradients": name, "step": step, "way": before - weight.item()})
figure = px.line(pd.DataFrame(ways), x="step", y="way", color="gradients", **COLORS)
figure.update_layout(**LAYOUT, height=360)

# %% [markdown]
# The two constant streams give the same curve. The spike is no giant step either: $v$ grows at once, and the weight moves 0.84 instead of 1. The damage comes after it. $m$ decides the direction, and for some ten steps it is mostly the spike's. For some thousand steps $v$ remembers its size, so the weight moves at 0.6 of its speed. Clipping (`max_norm=1.0` by default) makes the spike a step like any other.
#
# This applies to F of 03, which says how large the global baseline makes an agent's advantages. A gradient that is *always* twice as large costs nothing under AdamW. But an optimizer cannot divide out the *composition* of the gradient: how much of it is signal. That is why `paid_help` was harmed although its norms were similar. It is also why the ladder fails under SGD and without clipping just as it does with AdamW. Notebook 05 looks into norms that are large once.
#
# ## The gauges: entropy and mismatch
#
# `entropy` is the mean of $-\log \pi$ over the sampled tokens, in nats. It falls as a policy becomes more certain. At 0 every sample of a task is the same and all groups are flat. Then learning is over. So look at entropy *together* with success.
#
# `mismatch` is the largest $|\pi_\text{trained}/\pi_\text{sampled} - 1|$ over the tokens, before the first step. Sampler and trainer are two programs that should compute the same number. In float32 on a CPU it should be about $10^{-6}$. bfloat16 keeps two to three digits, so expect about $10^{-2}$ with an engine in half precision. In float32, `update` refuses rows with more than $10^{-2}$. So if you run `lab.update(team, turns)` twice on the same rows, the second call raises an error. `off_policy=True` says that this is intended. We now cause a mismatch in two ways.

# %%
healthy = lab.update(team, turns, lr_scale=0.0)
# Drawn at temperature 1.0, trained as if at 0.7.
temperature = lab.update(team, turns.assign(temperature=0.7), lr_scale=0.0, off_policy=True)
# Drawn by weights that are one step old.
moved_on = fresh_team(lr=1e-3)
lab.update(moved_on, turns)
stale = lab.update(moved_on, turns, lr_scale=0.0, off_policy=True)
told = {"healthy": healthy, "wrong temperature": temperature, "stale weights": stale}
pd.concat(told, names=["defect"]).droplevel(1)[["agent", "mismatch", "max_ratio", "clip_fraction"]]

# %% [markdown]
# It goes from $10^{-6}$ to above 0.9. No loss is NaN, and the gradient looks like any other. Without the check, only this column shows the error. Typical causes are:
#
# - sampling at one temperature and training at another,
# - an engine that still holds old weights,
# - text that was decoded and tokenised again,
# - a `top_p` that the trainer does not know.
#
# Sometimes the difference cannot be removed (two engines, two precisions). Then `lab.clipped(0.2, tis=2.0)` weights each token by it.
#
# ## A training, seen from the optimizer
#
# In this training of `math`, solver and verifier have their own weights. A step has 32 tasks of 8 episodes, with AdamW at 3e-4, and the training takes about half a minute. Success goes from about 0.5 to 0.98 or 0.99 in 40 steps (three recorded seeds: 0.53, 0.50, 0.52 before, 0.98, 0.99, 0.99 after). It does not reach 1, because sampling at temperature 1 sometimes draws an unlikely digit.

# %%
STEPS = 2 if SMOKE else 40
team = lab.Team.per_agent(lambda agent: lab.load_policy(env.pocket, lr=3e-4), env.agents)
held_out = env.tasks(8 if SMOKE else 128, "test", seed=0)
before, seen = lab.evaluate(env, team, held_out, k=4)["success"].mean(), []
for report in lab.train(env, team, "dr_mas", STEPS, seed=0, tasks=4 if SMOKE else 32):
    seen.append(report.stats.assign(step=report.step))
after = lab.evaluate(env, team, held_out, k=4)["success"].mean()
seen = pd.concat(seen, ignore_index=True)
print(f"held-out success {before:.2f} -> {after:.2f}; largest mismatch of any step {seen['mismatch'].max():.0e}")

# %%
gauges = seen.melt(["step", "agent"], ["entropy", "grad_norm", "advantage_rms"], "gauge", "value")
figure = px.line(gauges, x="step", y="value", color="agent", facet_col="gauge", facet_col_spacing=0.07, **COLORS)
figure.for_each_annotation(lambda title: title.update(text=title.text.removeprefix("gauge=")))
figure.update_yaxes(matches=None, showticklabels=True).update_layout(**LAYOUT, height=380, legend_y=1.1)

# %% [markdown]
# (`advantage_rms`: the root of the mean squared advantage; 1 where no group is flat. Both agents speak equally often for the same return, so their curves are the same.) All three curves fall. Entropy falls because the policies become more certain. `advantage_rms` falls because more and more tasks are solved in all eight episodes, so their groups are flat. The norm falls because a flat group adds nothing to it. A quiet end is normal. Only success says whether the training was good.

# %% [markdown]
# ## When the rows are old
#
# In an asynchronous training, rollouts do not wait for updates: engines that sample and engines that learn work at the same time. The price is age. Under `lab.train(..., staleness=s)`, weights of version $\max(0, k - s)$ sample the rows of step $k$ (`docs/gpus.md`). The version of weights is the number of training steps whose updates they have. Each row has it in the column `policy_version`. Its `logprobs` are those of this version. So the ratio is not 1 even in the first optimizer step.
#
# There are two ways to deal with such a token:
#
# - `clipped(0.2)` gives it no gradient if it has already moved by more than 20 % in the direction of its advantage.
# - `clipped(0.2, tis=2.0)` measures ratios from the weights just before the update. It multiplies the token's advantage by the importance weight $\min(\pi_\text{before the update} / \pi_\text{sampled},\, 2)$ (truncated importance sampling).


# %%
def train_late(staleness, loss, seed=0, lr=5e-4):
    """Train on rows that are `staleness` steps old."""
    team, recipe = fresh_team(lr=lr), lab.RECIPES["grpo"].replace(loss=loss)
    steps, tasks = (2, 4) if SMOKE else (10, 16)
    training = lab.train(env, team, recipe, steps, seed=seed, tasks=tasks, staleness=staleness)
    stats = pd.concat([report.stats for report in training])
    return {
        "staleness": staleness,
        "tis": loss.tis or "off",
        "mean age": stats["age"].mean(),
        "largest ratio": stats["max_ratio"].max(),
        "clipped tokens": stats["clip_fraction"].mean(),
        "mismatch": stats["mismatch"].max(),
        "held-out success": lab.evaluate(env, team, held_out, k=4)["success"].mean(),
    }


# %% [markdown]
# *Predict:* the first weights sample the first rollouts, so the first step has the age 0. What is the mean age over ten steps at staleness 1, 2 and 4? Will more tokens be clipped at staleness 4 than at 1? With `tis`, what are the largest ratio and the share of clipped tokens?

# %%
losses = lab.clipped(0.2), lab.clipped(0.2, tis=2.0)
pd.DataFrame([train_late(staleness, loss) for staleness in (1, 2, 4) for loss in losses]).round(3)

# %% [markdown]
# *Explain:* the age of step $k$ is $\min(k, s)$, so its mean over ten steps is 0.9, 1.7 and 3.0. Without `tis`, about 2 % of the tokens are clipped at staleness 1, and about three times as many at 4. Some tokens have become several times as probable since they were sampled. With a negative advantage such a token is not clipped, and its ratio multiplies its gradient. With `tis` its weight is at most 2. The ratio is 1 there and nothing is clipped, because each rollout has only one optimizer step. `mismatch` shows the distance under both losses. `update` raises no error: it compares old rows with the weights of the version that they name.
#
# The last column has one dot for each setting: ten steps, one seed, one learning rate. It can show that a training has broken. It cannot show which loss is better, or how much a step of age costs. Which order of your dots is left under `seed=1`, and which under `lr=1e-3`, where each step of age is a longer way? Notebook 12 has what a claim needs: more seeds, and intervals. In a study with ten seeds (`docs/gpus.md`) on a ladder of four agents, clipping alone cost nothing that could be detected up to staleness 2. At 8 it ended lower than `tis`. Without any correction the first step of age did harm.
#
# ## Your turn
#
# **04.1** (4 minutes, easy) `lab.update(..., epochs=2, minibatches=4)` makes eight optimizer steps. In how many of them is `clip_fraction` 0 *for certain*? And what is `max_ratio` in the first?

# %%
### BEGIN SOLUTION
steps_without_clip, first_ratio = 1, 1.0
### STARTER
# steps_without_clip, first_ratio = ..., ...
### END SOLUTION
lab.course.check("04.1", steps_without_clip, first_ratio)

# %% [markdown]
# **04.2** (5 minutes, easy) Here are eight tokens, with $\varepsilon = 0.2$. Which of them have *no* gradient under `clipped`? Give their places, from 0.

# %%
tokens = pd.DataFrame(
    {"ratio": [1.0, 1.3, 1.3, 0.7, 0.7, 1.1, 0.1, 5.0], "advantage": [1.0, 1.0, -1.0, 1.0, -1.0, -2.0, 0.5, -0.1]}
)
display(tokens.T)
### BEGIN SOLUTION
no_gradient = [1, 4]
### STARTER
# no_gradient = ...
### END SOLUTION
lab.course.check("04.2", tokens, no_gradient)

# %% [markdown]
# **04.3** (5 minutes, easy) Write REINFORCE as a loss per token. `logprobs` and `advantages` are tensors of the same length. The check compares values and gradients with `lab.reinforce()` on random tensors.


# %%
def my_reinforce(logprobs, advantages):
    """The loss of each token."""
    ### BEGIN SOLUTION
    return -advantages * logprobs
    ### END SOLUTION


lab.course.check("04.3", my_reinforce)

# %% [markdown]
# **04.4** (10 minutes, medium) Write the clipped loss per token, with $\varepsilon = 0.2$. `logprobs` are now, `old` when sampled. The check compares values and gradients with `lab.clipped(0.2)`.


# %%
def my_clipped(logprobs, old, advantages):
    """The loss of each token."""
    ### BEGIN SOLUTION
    ratio = (logprobs - old).exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    ### END SOLUTION


lab.course.check("04.4", my_clipped)

# %% [markdown]
# **04.5** (12 minutes, hard) Write a new loss. The clip removes the gradient of the tokens that moved most. Those are often the rare tokens that decide an answer. CISPO (MiniMax-M1, arXiv 2506.13585, equations 4 and 5) keeps their gradient. It bounds the ratio from above, $\rho \le 1 + \texttt{high}$, and uses it only as a *weight*: no gradient flows through it. The gradient flows through $\log \pi$:
#
# $$L = -\,\mathrm{stopgrad}\big(\min(\rho, 1 + \texttt{high})\big)\, A \, \log \pi_\theta .$$
#
# Fill in the call. In torch, `x.detach()` stops the gradient.

# %%
from dataclasses import dataclass


@dataclass(frozen=True)
class cispo(lab.Loss):
    high: float = 0.2

    def __call__(self, logprobs_N, old_N, advantages_N, row_N, entropy_N=None, reference_N=None):
        """The loss of each of N tokens."""
        ### BEGIN SOLUTION
        weight_N = (logprobs_N - old_N).exp().clamp(max=1 + self.high).detach()
        return -weight_N * advantages_N * logprobs_N
        ### END SOLUTION


lab.course.check("04.5", cispo())


# %% [markdown]
# **04.6** (25 minutes, hard) *Build it.* Write cell 4 for one policy: one optimizer step on all rows. A row has `prompt_ids`, `completion_ids`, the `logprobs` when it was sampled, and `advantage`. The loss is the clipped one with $\varepsilon = 0.2$, averaged over all tokens of the table. The gradient is clipped to norm 1. Return its norm before that. The check compares the norm and the new weights with `plain.update`.


# %%
def my_update(model, optimizer, turns):
    ### BEGIN SOLUTION
    optimizer.zero_grad()
    count = turns["completion_ids"].map(len).sum()
    for row in turns.itertuples():
        ids = torch.tensor([[*row.prompt_ids, *row.completion_ids]])
        logits = model(ids).logits[0, len(row.prompt_ids) - 1 : -1].float()
        now = logits.log_softmax(-1)[range(len(row.completion_ids)), row.completion_ids]
        ratio = (now - torch.tensor(row.logprobs)).exp()
        loss = -torch.minimum(ratio * row.advantage, ratio.clamp(0.8, 1.2) * row.advantage)
        (loss.sum() / count).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return norm.item()
    ### STARTER
    # pass  # your code here
    ### END SOLUTION


lab.course.check("04.6", my_update)

# %% [markdown]
# If it is right, you can use it everywhere in the kit. `lab.update(team, turns, loss=cispo())` trains with it, and `lab.RECIPES["grpo"].replace(loss=cispo())` is a recipe. A question for an afternoon: with `epochs=4` on `math`, does it learn faster than `clipped`, and what happens to `max_ratio`? Notebook 12 shows how to answer it with seeds and intervals.

# %% [markdown]
# **04.7** (8 minutes, medium) Here are six tokens of an asynchronous training, each of a row of its own. `sampled` is the log-probability when the token was sampled, `now` that before the update. Give for each token (a) the age of its row, and (b) the advantage with which `clipped(0.2, tis=2.0)` computes its loss.

# %%
tokens = pd.DataFrame({
    "step": [0, 3, 3, 7, 7, 8], "policy_version": [0, 2, 3, 3, 5, 4], "advantage": [1.0, 1.0, -2.0, -1.0, 0.5, -0.5],
    "sampled": np.log([0.5, 0.2, 0.4, 0.1, 0.8, 0.3]), "now": np.log([0.5, 0.3, 0.4, 0.7, 0.2, 0.15]),
})  # fmt: skip
display(tokens.T.round(2))
### BEGIN SOLUTION
age = tokens["step"] - tokens["policy_version"]
used = tokens["advantage"] * np.exp(tokens["now"] - tokens["sampled"]).clip(upper=2.0)
### STARTER
# age, used = ..., ...
### END SOLUTION
lab.course.check("04.7", tokens, age, used)

# %%
lab.course.progress("04")

# %% [markdown]
# ## What to remember
#
# - The loss is cross-entropy on the model's own tokens, times the advantage. In the first step on fresh samples the clip does nothing.
# - The rows of an asynchronous training are old. There the ratio is not 1 in the first step either; `mismatch` shows how far it has moved, and `tis` bounds the weight of a token.
# - The average over tokens decides what length costs. The layout of rows must change nothing, and `mismatch` shows whether it does.
# - A norm that is always large is harmless under AdamW; noise in the gradient is not.
#
# PPO: arXiv 1707.06347, equation 7. GRPO: 2402.03300, equation 3. DAPO: 2503.14476, section 3.3. Dr. GRPO: 2503.20783. MAGRPO: 2508.04652, equation 4. AdamW: 1711.05101. CISPO: 2506.13585, equations 4 and 5. Dr. MAS: 2602.08847. Its equation 3 has one ratio for a whole completion, `lab.clipped(ratio="action")`.
#
# Next: `05_gradient_spikes` traces a norm back to the tokens that made it.
