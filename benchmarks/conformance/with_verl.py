"""Answer the cases with the functions of verl's `core_algos`, on padded tensors as its workers make them.

The model is the case's table of logits. Log-probabilities and entropies come from verl's `torch_functional`, advantages
from the estimators that it registers, losses from the policy losses that it registers. Rewards stand on the last token
and are float32, as its reward managers write them. Log-probabilities are float64.
"""

import numpy as np
import torch
from golden import padded, require, varies
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_weights
from verl.utils import torch_functional
from verl.workers.config import ActorConfig

PACKAGES = ("verl", "torch", "tensordict")
DESIGN = {
    "lone_row": "a group of a single row has mean 0 and deviation 1, so that its raw reward is its advantage.",
}
NOTES = {
    "rounding_is_not_a_signal": "The deviation of the rounding, 3e-8, stands above an epsilon of 1e-6.",
    "reward_is_missing": "A NaN enters the mean of its group. Reward functions have to give a number.",
}
MODES = {"token": "token-mean", "row": "seq-mean-token-mean", "sum": "seq-mean-token-sum"}


def masks(lengths, longest=None):
    return torch.tensor(padded([[1.0] * length for length in lengths], longest))


def advantages(case):
    """Return the advantage of each row by the estimator that the settings name."""
    settings, rows = case["inputs"]["settings"], case["inputs"]["rows"]
    center, scale = settings["center"], settings["scale"]
    credit = settings.get("credit", "")
    require(not any(row.get("excluded") for row in rows), "an estimator compares all rows of the batch")
    require(credit != "return_to_go", "there are no joint actions")
    require(not credit.startswith("reward - 0.1"), "the reward functions are the user's")
    require("once_per" not in center, "every row counts")
    require(not scale or scale["ddof"] == 1 or not varies(rows), "the deviation divides by n - 1")
    require(not scale or scale["by"] == center["by"], "mean and deviation are those of one group")
    require(center["statistic"] in ("mean", "others"), "baselines are the mean (grpo) or that of the others (rloo)")
    loo = center["statistic"] == "others"
    require(not (loo and scale), "rloo does not divide")
    rewards = torch.zeros(len(rows), 2)
    rewards[:, -1] = torch.tensor([float("nan") if row["reward"] is None else row["reward"] for row in rows])
    if credit.startswith("reward - 0.4"):
        old, reference = (torch.tensor([row[name] for row in rows]) for name in ("old_logprobs", "reference_logprobs"))
        rewards = rewards - 0.4 * core_algos.kl_penalty(old, reference, "k1")
    groups = np.array([" ".join(str(row[name]) for name in center["by"]) for row in rows], dtype=object)
    mask = masks([2] * len(rows))
    if loo:
        found, _ = core_algos.compute_rloo_outcome_advantage(rewards, mask, groups)
    else:
        eps = scale["eps"] if scale else 1e-6
        found, _ = core_algos.compute_grpo_outcome_advantage(rewards, mask, groups, eps, bool(scale))
    return {"advantages": found[:, 0].tolist()}


def loss(case):
    """Return the loss and its gradient."""
    settings, rows = case["inputs"]["settings"], case["inputs"]["rows"]
    require(settings.get("ratio", "token") != "action", "a ratio is per token or the geometric mean of the sequence")
    require(settings["aggregate"] in MODES, "there are no agents to average over")
    require("times_ratio" not in settings.get("kl", {}), "a penalty of the loss has no ratio")
    require("repeated" not in case["name"], "the loss gets rows without identity")
    table = torch.tensor(case["inputs"]["logits"], dtype=torch.float64, requires_grad=True)
    completions = [row["completion_ids"] for row in rows]
    longest = settings.get("pad_completions_to")
    mask = masks([len(ids) * row.get("trained", True) for ids, row in zip(completions, rows, strict=True)],
                 longest or max(map(len, completions))).double()  # fmt: skip
    ids = torch.tensor(padded(completions, longest, 0))
    before = torch.tensor(padded([[row["prompt_ids"][-1], *row["completion_ids"][:-1]] for row in rows], longest, 0))
    temperature = torch.tensor([row["temperature"] for row in rows], dtype=torch.float64)[:, None, None]
    logits = table[before] / temperature
    logprobs = torch_functional.logprobs_from_logits_naive(logits, ids)
    old = torch.tensor(padded([row["old_logprobs"] for row in rows], longest), dtype=torch.float64)
    advantage = torch.tensor([row["advantage"] for row in rows], dtype=torch.float64)[:, None].expand(mask.shape)
    weights = None
    if settings.get("tis"):
        gaps = (logprobs.detach() - old) * mask
        weights, _ = compute_rollout_correction_weights(gaps, mask, "token", settings["tis"])
        old = logprobs.detach()
    config = ActorConfig(
        strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, clip_ratio=settings.get("clip_low", 0.2),
        clip_ratio_low=settings.get("clip_low", 0.2), clip_ratio_high=settings.get("clip_high", 0.2),
        clip_ratio_c=settings.get("dual") or 1e9,
    )  # fmt: skip
    mode = MODES[settings["aggregate"]]
    sizes = {"batch_num_tokens": mask.sum(), "global_batch_size": len(rows), "dp_size": 1}
    if any(row.get("trained") is False for row in rows):
        sizes.pop("global_batch_size")
    function = core_algos.get_policy_loss_fn("gspo" if settings.get("ratio") == "sequence" else "vanilla")
    if settings["loss"] == "policy_gradient":
        function = core_algos.compute_policy_loss_reinforce
    total = 0.0
    for part in settings.get("micro_batches", [list(range(len(rows)))]):
        config.global_batch_info.clear()
        config.global_batch_info.update(sizes)
        arguments = {"response_mask": mask[part], "loss_agg_mode": mode, "config": config,
                     "rollout_is_weights": None if weights is None else weights[part]}  # fmt: skip
        own, _ = function(old[part], logprobs[part], advantage[part], **arguments)
        if "kl" in settings:
            reference = torch.tensor(padded([row["reference_logprobs"] for row in rows], longest), dtype=torch.float64)
            estimator = settings["kl"]["estimator"] + "+" * ("gradient_of" in settings["kl"])
            penalty = core_algos.kl_penalty(logprobs[part], reference[part], estimator)
            own = own + settings["kl"]["weight"] * core_algos.agg_loss(penalty, mask[part], mode, **sizes)
        if "entropy" in settings:
            entropies = torch_functional.entropy_from_logits(logits[part])
            own = own - settings["entropy"] * core_algos.agg_loss(entropies, mask[part], mode, **sizes)
        own.backward(retain_graph=True)
        total += own.item()
    lengths = [len(ids) for ids in completions]
    found = {"logprobs": [own[:n].tolist() for own, n in zip(logprobs, lengths, strict=True)]}
    found["gradient"] = table.grad.tolist()
    return found if settings["loss"] == "policy_gradient" else {**found, "loss": total}
