"""Work out the golden batches of `cases/`: tiny batches with the numbers that a trainer of language models should give.

    python benchmarks/conformance/make.py          # writes the files
    python benchmarks/conformance/make.py --check  # compares them with what it works out now

Each case comes from a published bug or a published equation, its `source`. Everything here is plain Python and torch in
float64; nothing is imported from a trainer, so that anybody can check a number. README.md describes the files.

The model of all losses is a table: the logits of the next token after each token. So the log-probability of a token
depends on the token before it alone, and the gradient of the loss is a table of the same shape.
"""

import argparse
import json
import math
from pathlib import Path

import torch

HERE = Path(__file__).parent
V = 8
"""Tokens. 0 ends a completion, and is also used for padding."""
LOGITS = [[((3 * last + 5 * token) % 11 - 5) / 4 for token in range(V)] for last in range(V)]
CASES = {}


# Advantages


def mean(values):
    return math.fsum(values) / len(values)


def deviation(values, ddof):
    return math.sqrt(math.fsum((value - mean(values)) ** 2 for value in values) / (len(values) - ddof))


def members(rows, row, by, once_per=None):
    """Return the numbers that are compared with `row`: one per row, or the mean of each `once_per`."""
    units = {}
    for number, other in enumerate(rows):
        if all(other[name] == row[name] for name in by):
            units.setdefault(other[once_per] if once_per else number, []).append(other["reward"])
    return [mean(values) for values in units.values()]


def advantages(rows, center, scale=None):
    """Return (reward - center) / (deviation + eps), with 0 where nothing is compared."""
    found = []
    for row in rows:
        group = members(rows, row, center["by"], center.get("once_per"))
        if center["statistic"] == "none":
            value = row["reward"]
        elif len(group) < 2:
            value = 0.0
        elif center["statistic"] == "others":
            value = row["reward"] - (math.fsum(group) - row["reward"]) / (len(group) - 1)
        else:
            value = row["reward"] - (max(group) if center["statistic"] == "max" else mean(group))
        if scale:
            spread = members(rows, row, scale["by"], scale.get("once_per"))
            flat = len(spread) < 2 or max(spread) == min(spread)
            value = 0.0 if flat else value / (deviation(spread, scale["ddof"]) + scale["eps"])
        found.append(value)
    return found


# Losses


def token_logprobs(table, row):
    """Return the log-probability of each completion token and the entropy of its distribution, (T,) each."""
    before = [row["prompt_ids"][-1], *row["completion_ids"][:-1]]
    logprobs = (table[before] / row["temperature"]).log_softmax(-1)
    entropies = -(logprobs.exp() * logprobs).sum(-1)
    return logprobs[torch.arange(len(before)), torch.tensor(row["completion_ids"])], entropies


def penalty(estimator, gap):
    """Return an estimate of KL(policy || reference); gap = log p - log p of the reference (Schulman 2020)."""
    return {"k1": gap, "k2": gap**2 / 2, "k3": torch.exp(-gap) - 1 + gap}[estimator]


def row_losses(table, row, settings):
    """Return the loss of each token of a row, (T,). Weights of importance sampling carry no gradient."""
    logprobs, entropies = token_logprobs(table, row)
    advantage = row["advantage"]
    if settings["loss"] == "policy_gradient":
        losses = -advantage * logprobs
    else:
        old = torch.tensor(row["old_logprobs"], dtype=torch.float64)
        weight = 1.0
        if settings.get("tis"):
            old, weight = logprobs.detach(), (logprobs.detach() - old).exp().clamp(max=settings["tis"])
        gaps = logprobs - old
        if settings.get("ratio", "token") != "token":
            whole = gaps.mean() if settings["ratio"] == "sequence" else gaps.sum()
            gaps = whole.expand(len(gaps))
        ratio = gaps.exp()
        low, high = 1 - settings["clip_low"], 1 + settings["clip_high"]
        gain = torch.minimum(ratio * advantage, ratio.clamp(low, high) * advantage)
        if settings.get("dual") and advantage < 0:
            gain = torch.maximum(gain, torch.full_like(gain, settings["dual"] * advantage))
        losses = -weight * gain
    if "kl" in settings:
        kl, gap = settings["kl"], logprobs - torch.tensor(row["reference_logprobs"], dtype=torch.float64)
        extra = penalty(kl["estimator"], gap)
        if kl.get("gradient_of"):
            other = penalty(kl["gradient_of"], gap)
            extra = other - other.detach() + extra.detach()
        if kl.get("times_ratio"):
            extra = extra * (logprobs - torch.tensor(row["old_logprobs"], dtype=torch.float64)).exp()
        losses = losses + kl["weight"] * extra
    return losses - settings.get("entropy", 0.0) * entropies


def aggregate(losses, agents, how):
    """Return the mean over token losses: a list of (T,) tensors, one per row."""
    if how == "token":
        return torch.cat(losses).mean()
    if how == "sum":
        return torch.stack([own.sum() for own in losses]).mean()
    rows = [own.mean() for own in losses]
    if how == "row":
        return torch.stack(rows).mean()
    own = {name: [r for r, agent in zip(rows, agents, strict=True) if agent == name] for name in agents}
    return torch.stack([torch.stack(values).mean() for values in own.values()]).mean()


def work_out(rows, settings):
    """Return what a trainer should compute. Rows with "trained": false do not count at all."""
    table = torch.tensor(LOGITS, dtype=torch.float64, requires_grad=True)
    used = [row for row in rows if row.get("trained", True)]
    losses = [row_losses(table, row, settings) for row in used]
    loss = aggregate(losses, [row.get("agent", "a") for row in used], settings["aggregate"])
    loss.backward()
    answer = {"logprobs": [token_logprobs(table, row)[0].tolist() for row in rows], "gradient": table.grad.tolist()}
    if settings["loss"] == "policy_gradient":
        return answer
    return {**answer, "token_losses": [own.tolist() for own in losses], "loss": loss.item()}


# Writing cases


def add(name, source, what, rows, settings, expected, absolute, **inputs):
    kind = "advantages" if "center" in settings else "loss"
    CASES[name] = {
        "name": name, "kind": kind, "source": source, "what": what,
        "inputs": {**inputs, "settings": settings, "rows": rows}, "expected": expected,
        "tolerance": {"absolute": absolute},
    }  # fmt: skip


def table(rewards, **columns):
    """Return a row per reward: task "t", agent "a" and an episode of its own, unless `columns` says otherwise."""
    plain = {"task": ["t"] * len(rewards), "agent": ["a"] * len(rewards), "turn": [0] * len(rewards),
             "episode": [f"e{i}" for i in range(len(rewards))], **columns}  # fmt: skip
    return [{**{name: values[i] for name, values in plain.items()}, "reward": reward}
            for i, reward in enumerate(rewards)]  # fmt: skip


def group(statistic="mean", by=("task",), **options):
    return {"by": list(by), "statistic": statistic, **options}


def std(ddof=1, by=("task",), eps=1e-6, **options):
    return {"by": list(by), "ddof": ddof, "eps": eps, **options}


def compare(name, source, what, rows, center, scale=None, expected=None, absolute=None, **settings):
    """Add a case of advantages. The tolerance with a scale covers an eps of 1e-4, which some trainers add."""
    found = advantages(rows, center, scale) if expected is None else expected
    found = found if isinstance(found, dict) else {"advantages": found}
    settings = {"center": center, "scale": scale, **settings}
    add(name, source, what, rows, settings, found, absolute or (5e-4 if scale else 1e-6))


def said(completion, advantage=1.0, prompt=(1, 2), ratios=None, temperature=1.0, reference=None, **columns):
    """Return a row of a loss. `ratios` are p / p_old, and `reference` are p / p_reference, a number per token."""
    row = {"prompt_ids": list(prompt), "completion_ids": list(completion), "temperature": temperature,
           "advantage": advantage, **columns}  # fmt: skip
    now = token_logprobs(torch.tensor(LOGITS, dtype=torch.float64), row)[0].tolist()
    row["old_logprobs"] = [p - math.log(r) for p, r in zip(now, ratios or [1.0] * len(now), strict=True)]
    if reference:
        row["reference_logprobs"] = [p - math.log(r) for p, r in zip(now, reference, strict=True)]
    return row


def learn(name, source, what, rows, expected=None, absolute=2e-5, **settings):
    """Add a case of a loss."""
    defaults = {"loss": "clipped", "aggregate": "token"}
    if settings.get("loss", "clipped") == "clipped":
        defaults |= {"clip_low": 0.2, "clip_high": 0.2, "ratio": "token"}
    settings = {**defaults, **settings}
    add(name, source, what, rows, settings, expected or work_out(rows, settings), absolute, logits=LOGITS)


GRPO = "arXiv 2402.03300 (GRPO)"
DR_MAS = "arXiv 2602.08847 (Dr. MAS)"
KL = "J. Schulman, Approximating KL divergence, 2020 (joschu.net/blog/kl-approx.html)"


# fmt: off
def who_is_compared():
    """Add the cases about groups."""
    compare("mean_and_population_deviation", f"{GRPO}, section 4.1.2",
            "An advantage is (reward - group mean) / group deviation. Here the deviation divides by n.",
            table([1.0, 0.0, 0.0, 3.0]), group(), std(0))
    compare("mean_and_sample_deviation", "pytorch/pytorch issue 50010; " + f"{GRPO}, section 4.1.2",
            "The same with the deviation that divides by n - 1. Libraries differ in their default.",
            table([1.0, 0.0, 0.0, 3.0]), group(), std(1))
    compare("mean_without_deviation",
            "arXiv 2503.20783 (Dr. GRPO), section 3.2; thinking-machines-lab/tinker-cookbook issue 579",
            "Without division, tasks of little spread are not magnified.",
            table([1.0, 0.0, 0.0, 3.0, 0.5, 0.5, 0.5, 0.75], task=["t"] * 4 + ["u"] * 4), group())
    compare("deviation_of_the_batch", "areal-project/AReaL pull request 303; huggingface/trl `scale_rewards=\"batch\"`",
            "The mean is that of the task, and the deviation is that of all rewards of the batch.",
            table([1.0, 0.0, 0.0, 3.0, 4.0, 0.0, 2.0, 2.0], task=["t"] * 4 + ["u"] * 4), group(), std(1, by=()))
    compare("lone_row", "rllm-org/rllm pull request 776",
            "A group of a single row has no baseline. Its advantage is 0; mean 0 and deviation 1 would train on the "
            "raw reward.",
            table([1.0, 0.0, 2.0], task=["t", "t", "u"]), group(), std(1))
    compare("flat_group", "OpenRLHF/OpenRLHF issue 1270 and pull request 1272; arXiv 2503.14476 (DAPO), section 3.2",
            "All rewards of a group are equal. Nothing is compared, and every advantage is 0.",
            table([0.7] * 4 + [0.1] * 4, task=["t"] * 4 + ["u"] * 4), group(), std(1))
    compare("shuffled_batch", "THUDM/slime pull request 2062",
            "Rows of two tasks alternate. A group is defined by its task, not by its place in the batch.",
            table([1.0, 5.0, 0.0, 5.0, 0.0, 8.0, 3.0, 2.0], task=["t", "u"] * 4), group(), std(1))
    compare("uneven_groups", "THUDM/slime pull requests 1918 and 2204",
            "Two rows of one task and four of another. No baseline may mix the tasks.",
            table([1.0, 0.0, 10.0, 12.0, 10.0, 12.0], task=["t"] * 2 + ["u"] * 4), group(), std(1))
    compare("group_cut_by_micro_batches", "tenstorrent/tt-metal pull request 46548",
            "Micro-batches of two rows cut a group of four. The baseline is still that of the four.",
            table([1.0, 0.0, 0.0, 3.0]), group(), std(1), micro_batches=[[0, 1], [2, 3]])
    prompts = [[1, 2, 3]] * 4
    compare("equal_prompts_of_two_tasks", "NVIDIA-NeMo/RL pull request 3882",
            "Two tasks share the tokens of their prompt. Each is flat, so every advantage is 0.",
            table([0.0, 0.0, 1.0, 1.0], task=["t", "t", "u", "u"], prompt_ids=prompts), group(), std(1))
    compare("leave_one_out", "arXiv 2402.14740 (RLOO)",
            "The baseline of a row is the mean of the other rows of its group.",
            table([1.0, 0.0, 0.0, 3.0]), group("others"))
    compare("leave_one_out_with_deviation", "NVIDIA-NeMo/RL issue 1518",
            "The other three rewards of the first row are equal. Dividing by their deviation would give a million; the "
            "deviation of the whole group is used.",
            table([1.0, 0.0, 0.0, 0.0]), group("others"), std(1))
    compare("best_of_the_others", "CoMLRL 1.4.3, `MAReMaxTrainer`",
            "The baseline is the largest return of the group.",
            table([1.0, 0.0, 0.0, 3.0]), group("max"))
    compare("no_baseline", "CoMLRL 1.4.3, `MAREINFORCETrainer`", "REINFORCE: the advantage is the return itself.",
            table([1.0, 0.0, -0.5, 3.0]), group("none"))
    team = {"agent": ["s", "v"] * 4, "episode": [f"e{i // 2}" for i in range(8)]}
    mixed = [1.0, 0.9, 0.0, 0.7, 0.0, 0.4, 1.0, 0.6]
    compare("own_mean_and_deviation", f"{DR_MAS}, equations 4-6",
            "Each agent is compared with its own rows of the task.",
            table(mixed, **team), group(by=("task", "agent")), std(1, by=("task", "agent")))
    compare("global_mean_and_deviation", f"{DR_MAS}, section 3: the baseline that it replaces",
            "All agents share one mean and one deviation of the task.",
            table(mixed, **team), group(), std(1))
    long = {"episode": ["e0"] * 3 + ["e1"], "turn": [0, 1, 2, 0]}
    compare("long_episode_counts_once",
            "THUDM/slime pull request 2302, which has these rewards; radixark/miles issue 2378",
            "An episode of three rows and one of a single row. Each episode enters the statistics once.",
            table([1.0, 1.0, 1.0, 0.0], **long), group(once_per="episode"), std(0, once_per="episode"))
    compare("every_turn_counts", "THUDM/slime pull request 2302: the rule that it replaces",
            "The same rows, all counted: a long episode pulls the mean towards its own reward.",
            table([1.0, 1.0, 1.0, 0.0], **long), group(), std(1))
    tree = {"agent": ["s"] * 4 + ["v"] * 4, "turn": [0, 0, 1, 1] * 2, "episode": ["e"] * 8}
    compare("tree_groups", "arXiv 2510.11062 (AT-GRPO), equation 3",
            "Candidates of one agent at one turn form a group, because they answer the same prompt.",
            table([1.0, 0.0, 3.0, 2.0, 0.5, 0.0, 0.25, 0.75], **tree),
            group(by=("episode", "agent", "turn")), std(1, by=("episode", "agent", "turn")))
    cut = table([1.0, 1.0, 0.0, 0.0])
    for number, row in enumerate(cut):
        row["excluded"] = number == 1
    kept = advantages([row for row in cut if not row["excluded"]], group(), std(1))
    compare("excluded_row_is_no_peer", "NVIDIA-NeMo/RL issue 4061 and pull request 3467, which has these numbers",
            "The second row is left out. It must not change the mean and the deviation of its siblings.",
            cut, group(), std(1), [kept[0], 0.0, *kept[1:]])


def which_number():
    """Add the cases about rewards."""
    one = [{"node": "n", "parent": "", "parent_action": 0}] * 3
    two = [{"node": f"n{i}", "parent": "n", "parent_action": i} for i in range(3) for _ in range(3)]
    first, then = [1.0, 0.0, 2.0], [[0.0, 3.0, 0.0], [6.0, 0.0, 0.0], [1.0, 1.0, 1.0]]
    rows = []
    for agent in ("s", "v"):
        places = [*one, *two]
        rewards = [*first, *[r for own in then for r in own]]
        rows += [{"task": "t", "agent": agent, "episode": "e", "turn": int(bool(p["parent"])), **p,
                  "candidate": i % 3, "reward": r} for i, (p, r) in enumerate(zip(places, rewards, strict=True))]
    returns = [r + mean(own) for r, own in zip(first, then, strict=True)]
    found = [r - mean(returns) for r in returns] + [r - mean(own) for own in then for r in own]
    compare("joint_actions", "arXiv 2508.04652 (MAGRPO), section 4",
            "Two agents act at once, three joint actions at a node, and each is played on. The return of a joint "
            "action is its reward plus the mean return of the joint actions that follow; it is compared with its "
            "siblings.",
            rows, group(by=("node", "agent")), None, found * 2, credit="return_to_go", gamma=1.0)
    returns = [r + 0.5 * mean(own) for r, own in zip(first, then, strict=True)]
    found = [r - mean(returns) for r in returns] + [r - mean(own) for own in then for r in own]
    compare("discounted_joint_actions", "arXiv 2508.04652 (MAGRPO), section 4",
            "The same with a discount of 0.5: returns of the first turn are r + 0.5 times what follows on average.",
            rows, group(by=("node", "agent")), None, found * 2, credit="return_to_go", gamma=0.5)
    bad = table([1.0, 1.0, 0.0, 0.0], valid=[True, False, True, False])
    for row in bad:
        row["reward"] -= 0.0 if row["valid"] else 0.1
    found = advantages(bad, group(), std(0))
    for row in bad:
        row["reward"] = round(row["reward"] + (0.0 if row["valid"] else 0.1))
    compare("invalid_output_is_penalised", f"{DR_MAS}: a penalty of 0.1 for invalid outputs in math",
            "A row that the environment could not read loses 0.1 before rows are compared. Other rows lose nothing.",
            bad, group(), std(0), found, credit="reward - 0.1 if not valid")
    shaped = table([1.0, 0.0, 0.0, 1.0])
    kl = [[0.5, -0.25], [0.0, 0.0], [0.25, 0.25], [1.0, 0.0]]
    for row, own in zip(shaped, kl, strict=True):
        row |= {"old_logprobs": [-1.0, -2.0], "reference_logprobs": [-1.0 - own[0], -2.0 - own[1]]}
    lowered = [{**row, "reward": row["reward"] - 0.4 * math.fsum(own)} for row, own in zip(shaped, kl, strict=True)]
    compare("kl_in_the_reward", "THUDM/slime issue 397; arXiv 2402.03300, section 4.1.1",
            "A penalty in the reward is 0.4 times the sum of log p - log p_reference of the sampled tokens (k1). It "
            "lowers the reward before rows are compared.",
            shaped, group(), std(1), advantages(lowered, group(), std(1)), credit="reward - 0.4 * sum of k1")
    near = [float(torch.tensor(0.3, dtype=torch.float32)), 0.3, 0.3, 0.3 + 2**-25]
    compare("rounding_is_not_a_signal", "NVIDIA-NeMo/RL pull requests 4158 and 4161",
            "Rewards that differ by the rounding of float32 alone are equal, and every advantage is 0.",
            table(near), group(), std(1), [0.0] * 4, 1e-3)
    compare("rewards_far_from_zero", "NVIDIA-NeMo/RL pull request 4161",
            "Rewards of one million that differ by 1. A variance as mean square minus squared mean would lose the "
            "difference in float32.",
            table([1e6 + 1, 1e6 + 2, 1e6 + 3, 1e6 + 4]), group(), std(1))
    compare("huge_rewards", f"{GRPO}, section 4.1.2: advantages do not depend on the unit of the rewards",
            "Rewards of the size 1e20. Their squares exceed float32, and the advantages are those of 1, 0, 0, 3.",
            table([1e20, 0.0, 0.0, 3e20]), group(), std(1))
    broken = table([1.0, 0.0, None, 0.0])
    kept = advantages([row for row in broken if row["reward"] is not None], group())
    compare("reward_is_missing", "modelscope/ms-swift issue 8123; huggingface/trl pull request 5773",
            "One reward is NaN (null in this file). Either an error names it, or the row gets 0 and is no peer of the "
            "others. No advantage becomes NaN.",
            broken, group(), None, {"refused": True, "advantages": [kept[0], kept[1], 0.0, kept[2]]})
    scaled = table([1.0, 0.0, 0.0, 3.0, 10.0, 0.0, 0.0, 30.0], task=["t"] * 4 + ["u"] * 4)
    compare("normalised_once", "axon-rl/gem issue 113",
            "A task with ten times the rewards has the same advantages. A second division, by the deviation of the "
            "batch, would change them.",
            scaled, group(), std(1))


SHORT, LONG = (3, 0), (4, 5, 6, 1, 0)


def which_tokens():
    """Add the cases about masks, shifts and means."""
    pair = [said(SHORT, 1.0), said(LONG, -0.5)]
    learn("mean_over_tokens", "verl-project/verl issue 593; arXiv 2503.14476 (DAPO), section 3.3",
          "Two rows of two and five tokens. The loss is the mean over all seven tokens.", pair)
    learn("mean_over_rows", f"verl-project/verl issue 593; {GRPO}, equation 3",
          "The same rows. The loss is the mean over rows of the mean over each row's tokens.", pair, aggregate="row")
    learn("sum_over_tokens", "arXiv 2508.04652 (MAGRPO), equation 4; arXiv 2503.20783 (Dr. GRPO), section 3.2",
          "The same rows. The loss is the mean over rows of the sum over each row's tokens.", pair, aggregate="sum")
    three = [said(SHORT, 1.0, agent="s"), said(LONG, -0.5, agent="v"), said((2, 0), 0.75, agent="v")]
    learn("mean_over_agents", f"{DR_MAS}, equation 3",
          "One agent has one row, the other has two. The mean over rows is taken within each agent, then over agents.",
          three, aggregate="agent")
    learn("padding_is_not_counted", "NovaSky-AI/SkyRL pull request 462; PrimeIntellect-ai/prime-rl pull request 674",
          "Completions are padded to eight tokens. Padding enters neither the sum nor the number of tokens.",
          pair, pad_completions_to=8)
    cut = [said((3, 0), 1.0), said((4, 5, 6), -1.0, trained=False), said((7, 1, 0), 0.5)]
    learn("truncated_row_is_not_counted", "huggingface/trl issue 6369 and pull request 6439",
          "The second completion was cut off and is masked. Its tokens enter neither the sum nor the number of tokens.",
          cut)
    zero = [said(SHORT, 1.0), said((4, 5, 6, 1), 0.0)]
    learn("zero_advantage_is_counted", f"{GRPO}, equation 3; huggingface/trl pull request 6365",
          "A row with advantage 0 adds nothing to the sum. Its tokens still count in the mean.", zero)
    learn("unequal_micro_batches", "verl-project/verl pull request 906; huggingface/transformers pull request 34191",
          "Four rows in micro-batches of equal rows and unequal tokens. Accumulated gradients are those of the whole "
          "batch; a mean of the micro-batches' means is not.",
          [said(SHORT, 1.0), said((2, 0), -0.25), said(LONG, -0.5), said((6, 6, 3, 0), 0.75)],
          micro_batches=[[0, 1], [2, 3]])
    learn("unequal_micro_batches_of_rows", "verl-project/verl pull request 906",
          "A micro-batch of one row and one of two. Under a mean over rows each row has a third of the weight.",
          [said(SHORT, 1.0), said(LONG, -0.5), said((2, 0), 0.75)], aggregate="row", micro_batches=[[0], [1, 2]])
    gradient = {"loss": "policy_gradient", "aggregate": "sum"}
    learn("prompt_is_not_trained",
          "asuzukosi/post-training-experiments issue 19; modelscope/ms-swift pull request 7838",
          "Prompts of two and four tokens before completions of two. No token of a prompt has a loss.",
          [said((3, 0), 1.0, (1, 2)), said((5, 0), -0.5, (7, 6, 4, 5))], **gradient)
    learn("padding_is_not_trained", "huggingface/trl pull request 2708; Tencent-Hunyuan/UniRL pull request 409",
          "Completions of two and five tokens, padded to eight. What stands behind the token that ends a completion "
          "has no loss.", [said(SHORT, 1.0), said(LONG, -0.5)], pad_completions_to=8, **gradient)
    learn("logits_of_the_token_before",
          "lucidrains/PaLM-rlhf-pytorch issue 31; PrimeIntellect-ai/prime-rl pull request 1525",
          "A token is predicted by the logits of the token before it. The first one of a completion is predicted by "
          "the last one of the prompt.",
          [said((3, 6, 1), 1.0, (2,)), said((4, 4, 7), -0.5, (5, 3))], **gradient)
    learn("end_of_sequence_is_trained", "rasbt/reasoning-from-scratch pull request 185; karpathy/nanochat issue 810",
          "The token that ends a completion was sampled, so it has a loss. A completion that ends and one that "
          "was cut off.",
          [said((3, 0), 1.0), said((3, 5), -1.0)], **gradient)
    learn("temperature_of_sampling", "huggingface/trl pull request 3029; OpenRLHF/OpenRLHF pull request 853",
          "Tokens were sampled at temperature 0.5. Their log-probabilities are those of the logits divided by 0.5.",
          [said((3, 0), 1.0, temperature=0.5), said((4, 0), -0.5, temperature=0.5)], **gradient)
    twice = [said((3, 0), 1.0, episode="e0", agent="a", turn=0, task="t", candidate=0),
             said((4, 0), -1.0, episode="e1", agent="a", turn=0, task="t", candidate=0)]
    twice.append(dict(twice[1]))
    settings = {"loss": "policy_gradient", "aggregate": "sum"}
    learn("repeated_row", "verl-project/verl-omni pull request 602; NVIDIA-NeMo/Megatron-Bridge pull request 4943",
          "The third row is a copy of the second: the same episode, agent and turn. Either an error says so, or it "
          "counts once.", twice, {"refused": True, **work_out(twice[:2], settings)}, **settings)


def which_ratio():
    """Add the cases about ratios, clips, penalties and bonuses."""
    steps = [0.5, 0.9, 1.1, 1.5, 4.0]
    up, down = ([said(LONG, a, ratios=steps), said(SHORT, -0.5 * a)] for a in (1.0, -1.0))
    learn("clip_of_a_positive_advantage", "arXiv 1707.06347 (PPO), equation 7",
          "Ratios from 0.5 to 4 under A = 1. Only ratios above 1.2 lose their gradient.", up)
    learn("clip_of_a_negative_advantage", "openai/spinningup issue 255; arXiv 1707.06347 (PPO), equation 7",
          "The same ratios under A = -1. Only ratios below 0.8 lose their gradient; a ratio of 4 costs 4.", down)
    learn("asymmetric_clip", "arXiv 2503.14476 (DAPO), section 3.1",
          "Ratios up to 1.28 and down to 0.8 keep their gradient.",
          [said((4, 5, 6, 0), 1.0, ratios=[0.7, 1.25, 1.3, 1.0]), said((3, 2, 0), -1.0, ratios=[0.75, 1.4, 0.85])],
          clip_high=0.28)
    learn("dual_clip_of_a_negative_advantage",
          "arXiv 1912.09729 (dual clip), equation 5; verl-project/verl pull request 784",
          "Under A = -1 a token costs at most 3, so that a ratio of 4 loses its gradient.", down, dual=3.0)
    learn("dual_clip_leaves_positive_advantages", "thu-ml/tianshou issue 433",
          "The second clip is for negative advantages alone. Under A = 1 it changes nothing.", up, dual=3.0)
    halves = [said((4, 5, 0), 1.0, ratios=[1.1, 0.9, 1.5]), said((3, 0), -0.5, ratios=[0.7, 1.1])]
    learn("ratio_of_each_token", f"walkinglabs/hands-on-modern-rl issue 75; {GRPO}, equation 3",
          "One ratio and one clip for each token: 1.1, 0.9 and 1.5. Only the third is clipped.",
          halves, aggregate="row")
    learn("ratio_of_a_sequence", "arXiv 2507.18071 (GSPO), equations 5-7",
          "The ratio of a row is the geometric mean of its tokens' ratios.", halves, ratio="sequence", aggregate="row")
    learn("clipped_ratio_of_a_sequence", "arXiv 2507.18071 (GSPO), equations 5-7",
          "The first row's geometric mean, 1.14, is above 1.05: the whole row loses its gradient.", halves,
          ratio="sequence", aggregate="row", clip_low=0.05, clip_high=0.05)
    learn("ratio_of_an_action", f"{DR_MAS}, equation 3",
          "The ratio of an answer is the product of its tokens' ratios, 1.485 and 0.77: the first is clipped.",
          [{**row, "agent": agent} for row, agent in zip(halves, "sv", strict=True)], ratio="action", aggregate="agent")
    learn("ratio_to_the_weights_that_sampled", "tensorforce/tensorforce issue 312; thu-ml/tianshou issue 745",
          "In the second optimizer step of a batch the weights have moved: p / p_old is not 1.",
          [said((3, 0), 1.0, ratios=[1.15, 1.05]), said((4, 0), -1.0, ratios=[0.9, 0.95])])
    kinds = {"k1": "gap", "k2": "gap squared, over 2", "k3": "exp(-gap) - 1 + gap"}
    away = [said((3, 5, 0), 0.5, reference=[1.6, 0.5, 1.0]), said((4, 0), -0.5, reference=[2.0, 0.8])]
    for name, equation in kinds.items():
        sources = {"k1": KL, "k2": f"{KL}; arXiv 2510.01555", "k3": f"{GRPO}, equation 4; huggingface/trl issue 2854"}
        learn(f"kl_{name}_in_the_loss", sources[name],
              f"The penalty of a token is 0.1 times {name}, {equation}, with gap = log p - log p_reference. The "
              "policy's side carries the gradient, the reference has none.", away,
              kl={"estimator": name, "weight": 0.1})
    learn("kl_k3_times_the_ratio", "arXiv 2512.02556 (DeepSeek-V3.2); huggingface/trl pull request 4638",
          "The penalty is 0.1 times k3 times p / p_old. The ratio has a gradient, too, so that the expected gradient "
          "is that of the KL divergence.", away, kl={"estimator": "k3", "weight": 0.1, "times_ratio": True})
    learn("kl_k3_with_the_gradient_of_k2", "verl 0.9.1, `kl_penalty` \"k3+\"; arXiv 2510.01555",
          "The penalty has the value of k3 and the gradient of k2, whose expectation is that of the KL divergence.",
          away, kl={"estimator": "k3", "weight": 0.1, "gradient_of": "k2"})
    still = [{**row, "advantage": 0.0} for row in away]
    learn("kl_without_advantage", "huggingface/trl issue 5588 and pull request 7068",
          "All advantages are 0. The penalty (k3) still has a gradient.", still, kl={"estimator": "k3", "weight": 0.1})
    learn("truncated_importance_weights",
          "verl-project/verl pull request 2953; F. Yao et al. 2025 (fengyao.notion.site/off-policy-rl)",
          "`old_logprobs` are the sampler's. The trainer computes others for the same weights, a factor of 0.5 to 4. A "
          "token's loss is multiplied by this factor, at most 2, without gradient; the ratio is 1.",
          [said((4, 5, 6, 0), 1.0, ratios=[0.5, 0.9, 1.5, 4.0]), said((3, 0), -1.0, ratios=[3.0, 1.0])], tis=2.0)
    learn("sampler_differs_without_correction", "huggingface/trl pull request 3867",
          "The same rows without weights: the ratio is relative to the sampler, and the clip acts on it.",
          [said((4, 5, 6, 0), 1.0, ratios=[0.5, 0.9, 1.5, 4.0]), said((3, 0), -1.0, ratios=[3.0, 1.0])])
    learn("entropy_is_rewarded", "DLR-RM/stable-baselines3 issue 127; ray-project/ray issue 4369",
          "A bonus of 0.1 per nat of the mean entropy. The loss falls when the entropy rises.",
          [said(SHORT, 1.0), said(LONG, -0.5)],
          entropy=0.1)
# fmt: on


def make():
    """Return file name -> case."""
    CASES.clear()
    for chapter in (who_is_compared, which_number, which_tokens, which_ratio):
        chapter()
        for one in CASES.values():
            one.setdefault("chapter", chapter.__name__.replace("_", " "))
    return {f"{number:02d}_{name}.json": one for number, (name, one) in enumerate(CASES.items(), 1)}


def differences(a, b, where=""):
    """Return the places where two cases differ by more than rounding."""
    if isinstance(a, dict) and isinstance(b, dict) and set(a) == set(b):
        return [place for key in a for place in differences(a[key], b[key], f"{where}/{key}")]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [place for i in range(len(a)) for place in differences(a[i], b[i], f"{where}/{i}")]
    if isinstance(a, float) and isinstance(b, float):
        return [] if math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12) else [where]
    return [] if a == b else [where]


def stale():
    """Return what differs between the files and what is worked out now."""
    made, found = make(), {path.name: json.loads(path.read_text()) for path in sorted((HERE / "cases").glob("*.json"))}
    return [f"{name} is missing or left over" for name in sorted(set(made) ^ set(found))] + [
        name + place for name in sorted(set(made) & set(found)) for place in differences(made[name], found[name])
    ]


def written(value, indent=""):
    """Return JSON with a line per row and per list of numbers."""
    deeper = indent + "  "
    if isinstance(value, dict) and indent.count("  ") < 2:
        lines = [f"{deeper}{json.dumps(key)}: {written(item, deeper)}" for key, item in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list) and value and isinstance(value[0], dict | list):
        return "[\n" + ",\n".join(f"{deeper}{json.dumps(item)}" for item in value) + f"\n{indent}]"
    return json.dumps(value)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare the files instead of writing them")
    if parser.parse_args().check:
        found = stale()
        print("\n".join(found) or "all files are as worked out")
        return 1 if found else 0
    (HERE / "cases").mkdir(exist_ok=True)
    made = make()
    for path in (HERE / "cases").glob("*.json"):
        if path.name not in made:
            path.unlink()
    for name, one in made.items():
        (HERE / "cases" / name).write_text(written(one) + "\n")
    print(f"{len(made)} cases")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
