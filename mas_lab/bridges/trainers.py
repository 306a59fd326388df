"""A run's recipe and settings in the terms of slime and verl, and the reasons for refusals.

A setting is (name, value, comment), in the order in which it is written. Leaves out: the folder around them
(`hand_over`).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mas_lab.bridges.export_reader import BRIDGE
from mas_lab.cells.losses import Loss, clipped, reinforce
from mas_lab.recipes import Recipe

Setting = tuple[str, Any, str]
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
NEVER = 1e9
"""Bound that never acts, such as a dual clip, since verl has no value that means none."""
AGGREGATES = {"token": "token-mean", "turn": "seq-mean-token-mean", "sum": "seq-mean-token-sum"}
"""Values of `aggregate`, with verl's names for the same means."""


@dataclass(frozen=True)
class Asked:
    """Facts about a run that a trainer needs. `prompt` and `answer` are maximal numbers of tokens."""

    recipe: Recipe
    settings: Mapping[str, Any]
    policies: Mapping[str, Mapping[str, Any]]
    sampling: Mapping[str, Mapping[str, Any]]
    prompt: int
    answer: int

    @property
    def policy(self) -> Mapping[str, Any]:
        return next(iter(self.policies.values()))

    @property
    def temperature(self) -> float:
        return next(iter(self.sampling.values()))["temperature"]

    @property
    def model(self) -> str:
        """Return the hub id of the weights; empty if they are not from the hub."""
        source = self.policy["source"]
        return source["name"] if source["kind"] == "hub" and HUB_ID.fullmatch(source["name"]) else ""


def refusals(asked: Asked, to: str) -> list[str]:
    """Return the reasons against handing the run over, a sentence each; empty if there are none."""
    return [*_refused_anywhere(asked), *{"slime": _refused_by_slime, "verl": _refused_by_verl}[to](asked)]


def _refused_anywhere(asked: Asked) -> Iterator[str]:
    recipe, settings = asked.recipe, asked.settings
    if len(asked.policies) > 1:
        yield (f"its team has {len(asked.policies)} policies ({', '.join(asked.policies)}), and the trainer moves the "
               "weights of one; train a Team.shared")  # fmt: skip
    if len({one["temperature"] for one in asked.sampling.values()}) > 1:
        yield "its agents sample at different temperatures, and the trainer takes log-probabilities at one"
    for place in ("plan", "credit", "center", "select"):
        if callable(getattr(getattr(recipe, place), "load_state", None)):
            yield (f"its {place}, {getattr(recipe, place)!r}, remembers from step to step, and what it remembers is "
                   "kept with this kit's checkpoints alone")  # fmt: skip
    if settings.get("rounds", 1) > 1:
        yield f"rounds={settings['rounds']} draws more tasks until enough rows are selected, which is the trainer's own"
    if type(recipe.loss) not in (clipped, reinforce):
        yield f"its loss, {type(recipe.loss).__name__}, is none that the trainer has"
    elif getattr(recipe.loss, "ratio", "token") == "action":
        yield "clipped(ratio='action') takes one ratio per action, by the sum of its tokens, which the trainer has not"


def _refused_by_slime(asked: Asked) -> Iterator[str]:
    recipe, settings = asked.recipe, asked.settings
    if recipe.aggregate != "token":
        yield (f"aggregate={recipe.aggregate!r}: slime averages over all tokens, or over an episode's tokens; take "
               "aggregate='token'")  # fmt: skip
    if getattr(recipe.loss, "ratio", "token") == "sequence":
        yield "clipped(ratio='sequence') goes with a mean over rows, and slime's is over tokens"
    if settings.get("epochs", 1) > 1:
        yield f"epochs={settings['epochs']}: slime passes over a batch once"
    if isinstance(recipe.loss, reinforce) and settings.get("minibatches", 1) > 1:
        yield "reinforce() with minibatches: slime always weighs by a clipped ratio, which is 1 in the first step alone"
    if asked.policy["lora"]:
        yield "its weights are an adapter, and slime trains all weights"


def _refused_by_verl(asked: Asked) -> Iterator[str]:
    recipe = asked.recipe
    if recipe.select is not None:
        yield f"select={recipe.select!r}: verl keeps every row in its means, trained on or not"
    if recipe.aggregate not in AGGREGATES:
        yield f"aggregate={recipe.aggregate!r}: verl knows no agents; take one of {', '.join(AGGREGATES)}"


def slime_settings(asked: Asked) -> list[Setting]:
    """Return the flags for slime; True stands for a flag without a value."""
    recipe, settings, loss = asked.recipe, asked.settings, asked.recipe.loss
    n, parts = recipe.plan.instances, settings.get("minibatches", 1)
    return [
        ("--custom-generate-function-path", f"{BRIDGE}.generate", "plays an instance of the env"),
        ("--custom-reward-post-process-path", f"{BRIDGE}.rewards", "the recipe's advantages"),
        ("--advantage-estimator", "grpo", "gives every token of a row the number that the line above returns"),
        ("--prompt-data", "$MAS_LAB_FOLDER/train.parquet", "the tasks, step by step"),
        ("--input-key", "prompt", "what the first agent hears, for slime's log"),
        ("--metadata-key", "metadata", "the task itself"),
        ("--rollout-batch-size", settings["tasks"], "tasks of a step"),
        ("--n-samples-per-prompt", n, f"instances of a task, by {recipe.plan!r}"),
        ("--num-steps-per-rollout", parts, "optimizer steps of a step (minibatches)"),
        ("--rollout-temperature", asked.temperature, "of every agent"),
        ("--rollout-max-response-len", asked.answer, "tokens of one answer, at most; the env asks for fewer"),
        ("--calculate-per-token-loss", True, "the mean over all tokens (aggregate='token')"),
        *_slime_loss(loss),
        ("--lr", asked.policy["lr"], "learning rate"),
        ("--lr-decay-style", "constant", f"the run's was {settings.get('schedule', 'constant')!r}"),
        ("--clip-grad", settings.get("max_norm", 1.0) or 0.0, "the gradient's norm (max_norm; 0: not clipped)"),
    ]  # fmt: skip


def _slime_loss(loss: Loss) -> Iterator[Setting]:
    if isinstance(loss, clipped):
        yield "--eps-clip", loss.low, "clipped(low)"
        yield "--eps-clip-high", loss.low if loss.high is None else loss.high, "clipped(high)"
        if loss.dual is not None:
            yield "--eps-clip-c", loss.dual, "clipped(dual)"
    else:
        yield "--eps-clip", NEVER, "reinforce(): at one optimizer step the ratio is 1, and its gradient the same"
    if loss.kl:
        yield "--use-kl-loss", True, "clipped(kl)"
        yield "--kl-loss-coef", loss.kl, "its weight"
        yield "--kl-loss-type", "k3", "its estimate"
    if loss.entropy:
        yield "--entropy-coef", loss.entropy, "clipped(entropy)"
    if loss.tis is not None:
        yield "--use-tis", True, "clipped(tis)"
        yield "--tis-clip", loss.tis, "its bound"


def verl_settings(asked: Asked) -> list[Setting]:
    """Return the configuration for verl, with dotted names."""
    recipe, settings = asked.recipe, asked.settings
    actor, rollout, parts = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", settings.get("minibatches", 1)
    folder = "${oc.env:MAS_LAB_FOLDER}"
    return [
        ("trainer.use_v1", True, "the trainer that hands rows on"),
        ("trainer.v1.trainer_mode", "mas_lab", "synchronous, with the rows beside the batch"),
        ("algorithm.adv_estimator", "mas_lab", "the recipe's advantages"),
        ("algorithm.use_kl_in_reward", False, "a recipe reads the env's rewards as they are"),
        (f"{rollout}.agent.default_agent_loop", "mas_lab", "plays an instance of the env"),
        ("ray_kwargs.ray_init.runtime_env.env_vars.VERL_USE_EXTERNAL_MODULES", BRIDGE, "for every worker"),
        ("ray_kwargs.ray_init.runtime_env.env_vars.PYTHONPATH", "${oc.env:PYTHONPATH}", "where the bridge file is"),
        ("data.train_files", f"{folder}/train.parquet", "the tasks, step by step"),
        ("data.val_files", f"{folder}/test.parquet", "held-out tasks"),
        ("data.train_batch_size", settings["tasks"], "tasks of a step"),
        ("data.shuffle", False, "in the order in which they were drawn"),
        ("data.filter_overlong_prompts", False, "the first prompt is not the longest"),
        ("data.max_prompt_length", asked.prompt, "tokens; twice the longest of the recorded step"),
        ("data.max_response_length", asked.answer, "tokens of one answer, at most; the env asks for fewer"),
        (f"{rollout}.n", recipe.plan.instances, f"instances of a task, by {recipe.plan!r}"),
        (f"{rollout}.temperature", asked.temperature, "of every agent"),
        (f"{rollout}.calculate_log_probs", True, "a row holds the sampled log-probabilities"),
        *_verl_model(asked),
        (f"{actor}.ppo_mini_batch_size", max(1, settings["tasks"] // parts), "the trainer takes it from the batch"),
        (f"{actor}.ppo_epochs", settings.get("epochs", 1), "passes over the batch"),
        (f"{actor}.shuffle", False, "rows stay where they are"),
        (f"{actor}.optim.lr", asked.policy["lr"], "learning rate"),
        (f"{actor}.grad_clip", settings.get("max_norm", 1.0) or NEVER, "the gradient's norm (max_norm)"),
        (f"{actor}.loss_agg_mode", AGGREGATES[recipe.aggregate], f"aggregate={recipe.aggregate!r}"),
        *((f"{actor}.{name}", value, what) for name, value, what in _verl_loss(recipe.loss)),
        *_verl_correction(recipe.loss),
    ]  # fmt: skip


def _verl_model(asked: Asked) -> Iterator[Setting]:
    path = asked.model or "${oc.env:MAS_LAB_MODEL}"
    yield "actor_rollout_ref.model.path", path, "the model that the run began with"
    if asked.policy["lora"]:
        rank = asked.policy["lora"]["rank"]
        yield "actor_rollout_ref.model.lora_rank", rank, "of the adapter"
        yield (
            "actor_rollout_ref.model.lora_alpha",
            asked.policy["options"].get("alpha", 1.0) * rank,
            "its scale, times r",
        )


def _verl_loss(loss: Loss) -> Iterator[Setting]:
    if isinstance(loss, clipped):
        yield "policy_loss.loss_mode", {"token": "vanilla", "sequence": "gspo"}[loss.ratio], f"ratio={loss.ratio!r}"
        yield "clip_ratio", loss.low, "clipped(low)"
        yield "clip_ratio_low", loss.low, "the same"
        yield "clip_ratio_high", loss.low if loss.high is None else loss.high, "clipped(high)"
        yield "clip_ratio_c", loss.dual or NEVER, "clipped(dual); this high, it never acts"
    else:
        yield "policy_loss.loss_mode", "gpg", "reinforce()"
    yield "use_kl_loss", bool(loss.kl), "kl"
    if loss.kl:
        yield "kl_loss_coef", loss.kl, "its weight"
        yield "kl_loss_type", "low_var_kl", "its estimate, k3"
    yield "entropy_coeff", loss.entropy, "entropy"


def _verl_correction(loss: Loss) -> Iterator[Setting]:
    if loss.tis is not None:
        yield "algorithm.rollout_correction.rollout_is", "token", "tis"
        yield "algorithm.rollout_correction.rollout_is_threshold", loss.tis, "its bound"


WORDS: Mapping[str, Callable[[Asked], list[Setting]]] = {"slime": slime_settings, "verl": verl_settings}
