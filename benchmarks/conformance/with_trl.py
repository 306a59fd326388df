"""Answer the cases with TRL's `GRPOTrainer` and `RLOOTrainer` on a CPU.

The trainers are whole; only their sampling (`_generate`) is replaced, by the tokens of the case. Their own
`_generate_and_score_completions` pads, masks and computes advantages, and their own `_compute_loss` the loss. In cases
of a loss, the advantages and the old log-probabilities of the case take the place of the computed ones.
"""

import json
import tempfile
from functools import cache

import torch
from datasets import Dataset
from golden import padded, require, varies
from table_model import load_table, make_tokenizer, reference_table, save_model, table_gradient
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

PACKAGES = ("trl", "torch", "transformers")
DESIGN = {
    "huge_rewards": "rewards are float32, and the squares of such rewards exceed its largest number; all advantages "
    "are 0.",
}
NOTES = {}
LOSSES = {"token": "dapo", "row": "grpo", "sum": "luspo"}
LOGITS = [[0.0] * 8] * 8
REWARDS = []
"""What the reward function returns: one number, or None, per row."""


def rewards(completions, **_):
    return REWARDS


@cache
def folder_of(logits):
    return save_model(tempfile.mkdtemp(prefix="conformance"), json.loads(logits))


def trainer_of(kind, logits, rows, generations, reference=None, **options):
    """Return a trainer whose sampler answers the prompts with the completions of `rows`.

    `reference` is the table that it was loaded with, and `logits` the table that it has now.
    """
    settings = (GRPOConfig if kind is GRPOTrainer else RLOOConfig)(
        output_dir=tempfile.mkdtemp(prefix="conformance"), num_generations=generations, use_cpu=True, bf16=False,
        report_to="none", save_strategy="no", gradient_checkpointing=False, max_completion_length=16,
        model_init_kwargs={"dtype": "float32"},
        **{"per_device_train_batch_size": len(rows), "gradient_accumulation_steps": 1, "beta": 0.0, **options},
    )  # fmt: skip
    made = kind(
        model=str(folder_of(json.dumps(reference or logits))), reward_funcs=rewards, args=settings,
        processing_class=make_tokenizer(len(logits)),
        train_dataset=Dataset.from_list([{"prompt": "t1"}] * len(rows)),
    )  # fmt: skip
    load_table(made.model, logits)
    sampled = [row.get("old_logprobs") for row in rows]
    texts = ["" for _ in rows]
    prompts, completions = ([row[name] for row in rows] for name in ("prompt_ids", "completion_ids"))
    if kind is RLOOTrainer:
        made._generate = lambda _: (prompts, completions, texts)
    else:
        logprobs = None if None in sampled else sampled
        made._generate = lambda _: (prompts, completions, None, texts, logprobs, {}, None, None)
    made.current_gradient_accumulation_steps = settings.gradient_accumulation_steps
    made.model.train()
    return made


def advantages(case):
    """Return the advantages that the trainer computes from the rewards."""
    settings, rows = case["inputs"]["settings"], case["inputs"]["rows"]
    center, scale = settings["center"], settings["scale"]
    require(len({row["agent"] for row in rows}) == 1, "a trainer has one policy, and rows have no agent")
    require("credit" not in settings, "the reward functions are the user's, and GRPO has no penalty in the reward")
    require(center["by"] == ["task"] and "once_per" not in center, "every completion counts once in its prompt's group")
    tasks = [row["task"] for row in rows]
    sizes = {tasks.count(task) for task in tasks}
    require(len({row["episode"] for row in rows}) == len(rows), "an episode has one row, a whole completion")
    require(len(sizes) == 1, "all groups have `num_generations` rows")
    require(tasks == sorted(tasks), "a group is `num_generations` rows that stand side by side")
    require(center["statistic"] in ("mean", "others"), "baselines are the mean (GRPO) or that of the others (RLOO)")
    require(not scale or scale["ddof"] == 1 or not varies(rows), "the deviation divides by n - 1")
    loo = center["statistic"] == "others"
    require(not (loo and scale), "RLOO divides by the deviation of the batch, or not at all")
    REWARDS[:] = [None if row.get("excluded") else row["reward"] for row in rows]
    table = [{"prompt_ids": row.get("prompt_ids", [1]), "completion_ids": [2, 0]} for row in rows]
    options = {}
    if not loo:
        options["scale_rewards"] = ("group" if scale["by"] else "batch") if scale else "none"
    if "micro_batches" in settings:
        options |= {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
    made = trainer_of(RLOOTrainer if loo else GRPOTrainer, LOGITS, table, sizes.pop(), **options)
    answer = made._generate_and_score_completions([{"prompt": "t1"} for _ in rows])
    return {"advantages": answer["advantages"].tolist()}


def loss(case):
    """Return the loss and its gradient."""
    settings, rows, logits = (case["inputs"][name] for name in ("settings", "rows", "logits"))
    require(settings.get("ratio", "token") != "action", "a ratio is per token or the geometric mean of the sequence")
    require(settings["aggregate"] in LOSSES, "there are no agents to average over")
    kl = settings.get("kl", {"estimator": "k3", "weight": 0.0})
    plain = kl["estimator"] == "k3" and "gradient_of" not in kl
    require(plain, "the penalty of the loss is k3, by itself or times the ratio")
    require("repeated" not in case["name"], "rows have no identity: a completion that was drawn twice counts twice")
    micro = settings.get("micro_batches", [list(range(len(rows)))])
    require(len({len(part) for part in micro}) == 1, "micro-batches have equal numbers of rows")
    temperatures = {row["temperature"] for row in rows}
    options = {
        "loss_type": LOSSES[settings["aggregate"]], "temperature": temperatures.pop(),
        "importance_sampling_level": settings.get("ratio", "token"), "delta": settings.get("dual"),
        "epsilon": settings.get("clip_low", 0.2), "epsilon_high": settings.get("clip_high", 0.2),
        "beta": kl["weight"], "use_bias_correction_kl": kl.get("times_ratio", False),
        "entropy_coef": settings.get("entropy", 0.0),
        "mask_truncated_completions": any(row.get("trained") is False for row in rows),
        "pad_to_multiple_of": settings.get("pad_completions_to"),
        "per_device_train_batch_size": len(micro[0]), "gradient_accumulation_steps": len(micro),
    }  # fmt: skip
    tis = settings.get("tis")
    if tis:
        options |= {"vllm_importance_sampling_mode": "token_truncate", "vllm_importance_sampling_clip_max": tis}
    REWARDS[:] = [0.0] * len(rows)
    reference = reference_table(case) if "kl" in settings else None
    made = trainer_of(GRPOTrainer, logits, rows, len(rows), reference, **options)
    made.use_vllm = bool(tis)  # the correction of the sampler's log-probabilities; nothing is sampled here
    batch = made._generate_and_score_completions([{"prompt": "t1"} for _ in rows])
    length = batch["completion_ids"].shape[1]
    batch["advantages"] = torch.tensor([row["advantage"] for row in rows])
    if settings["loss"] == "policy_gradient":
        batch.pop("old_per_token_logps", None)  # its first step: the ratio is 1, and its slope that of log p
    elif not tis:
        batch["old_per_token_logps"] = torch.tensor(padded([row["old_logprobs"] for row in rows], length))
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    logprobs, _, _ = made._get_per_token_logps_and_entropies(made.model, ids, mask, length)
    total = 0.0
    for part in micro:
        # As `_prepare_inputs` splits a batch, without its shuffling.
        inputs = {key: value[part] if value.dim() else value for key, value in batch.items()}
        own = made._compute_loss(made.model, inputs)
        own.backward()
        total += own.item()
    found = {"gradient": table_gradient(made.model)}
    if all(row.get("trained", True) for row in rows):
        lengths = [len(row["completion_ids"]) for row in rows]
        found["logprobs"] = [own[:n].tolist() for own, n in zip(logprobs, lengths, strict=True)]
    return found if settings["loss"] == "policy_gradient" else {**found, "loss": total}
