"""A run's recipe and settings in the terms of verl, the reasons for refusals, and the README of the folder.

Leaves out: the folder around them (`writer`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mas_lab.contrib.verl.reader import CLOSE
from mas_lab.losses import Loss, clipped, reinforce
from mas_lab.recipes import Recipe
from mas_lab.train.settings import Settings

NAME = "mas_lab"
"""Name under which our extensions are registered in verl."""
FOLDER, MODEL = "MAS_LAB_FOLDER", "MAS_LAB_MODEL"
"""Environment variables that name the folder and the weights."""
EXTENSIONS = "mas_lab.contrib.verl.extensions"
NEVER = 1e9
"""Bound that never acts, such as a dual clip, since verl has no value that means none."""
AGGREGATES = {"token": "token-mean", "turn": "seq-mean-token-mean", "sum": "seq-mean-token-sum"}
"""Values of `aggregate`, with verl's names for the same means."""
HUB_ID = re.compile(r"\w[\w.-]{0,95}/\w[\w.-]{0,95}", re.ASCII)


@dataclass(frozen=True)
class RunFacts:
    """Facts about a run that verl needs. `prompt` and `answer` are maximal numbers of tokens."""

    recipe: Recipe
    settings: Settings
    policies: Mapping[str, Mapping[str, Any]]
    sampling: Mapping[str, Mapping[str, Any]]
    prompt: int
    answer: int
    curriculum: Any = None

    @property
    def policy(self) -> Mapping[str, Any]:
        return next(iter(self.policies.values()))


def refusals(facts: RunFacts) -> list[str]:
    """Return the reasons against handing the run over, a sentence each."""
    recipe, settings, loss, mean = facts.recipe, facts.settings, facts.recipe.loss, facts.recipe.aggregate
    warmth = {one["temperature"] for one in facts.sampling.values()}
    told = {
        "its tasks are drawn by a curriculum, and a folder holds them drawn": facts.curriculum is not None,
        f"it has the policies {', '.join(facts.policies)}, and verl trains one": len(facts.policies) > 1,
        "its agents sample at different temperatures, and verl takes log-probabilities at one": len(warmth) > 1,
        f"learn={settings.learn!r} trains agents in stages, and verl trains one policy": settings.learn is not None,
        f"rounds={settings.rounds} draws more tasks until enough rows are selected": settings.rounds > 1,
        f"its loss, {type(loss).__name__}, is none that verl has": type(loss) not in (clipped, reinforce),
        "ratio='action' takes one ratio per action, which verl has not": getattr(loss, "ratio", "") == "action",
        f"select={recipe.select!r}: verl keeps every row in its means, trained on or not": recipe.select is not None,
        f"aggregate={mean!r}: verl knows no agents; take one of {', '.join(AGGREGATES)}": mean not in AGGREGATES,
    }
    for place, part in vars(recipe).items():
        told[f"its {place}, {part!r}, learns from step to step, which verl does not keep"] = hasattr(part, "after")
        told[f"its {place}, {part!r}, needs the team, which verl does not show"] = getattr(part, "needs_team", False)
    return [reason for reason, holds in told.items() if holds]


def verl_settings(facts: RunFacts) -> dict[str, Any]:
    """Return the content of verl.yaml, which stands on top of verl's own defaults."""
    recipe, settings, source = facts.recipe, facts.settings, facts.policy["source"]
    adapter, correction, hub = {}, {}, source["kind"] == "hub" and HUB_ID.fullmatch(source["name"])
    if lora := facts.policy["lora"]:
        alpha = facts.policy["options"].get("alpha", 2.0)
        adapter = {"lora_rank": lora["rank"], "lora_alpha": alpha * lora["rank"]}
    if recipe.loss.tis is not None:
        correction = {"rollout_correction": {"rollout_is": "token", "rollout_is_threshold": recipe.loss.tis}}
    environment = {"VERL_USE_EXTERNAL_MODULES": EXTENSIONS, FOLDER: f"${{oc.env:{FOLDER}}}",
                   "PYTHONPATH": "${oc.env:PYTHONPATH,''}"}  # fmt: skip
    return {
        "hydra": {"searchpath": ["pkg://verl.trainer.config"]},
        "defaults": ["ppo_trainer", "_self_"],
        "trainer": {"use_v1": True, "v1": {"trainer_mode": NAME}},
        # A recipe reads the env's rewards as they are, without a KL penalty in them.
        "algorithm": {"adv_estimator": NAME, "use_kl_in_reward": False, **correction},
        "ray_kwargs": {"ray_init": {"runtime_env": {"env_vars": environment}}},
        "data": {  # in the order in which tasks were drawn; the first prompt is not the longest
            "train_files": f"${{oc.env:{FOLDER}}}/train.parquet", "val_files": f"${{oc.env:{FOLDER}}}/test.parquet",
            "train_batch_size": settings.tasks, "shuffle": False, "filter_overlong_prompts": False,
            "max_prompt_length": facts.prompt, "max_response_length": facts.answer,
        },
        "actor_rollout_ref": {
            "model": {"path": source["name"] if hub else f"${{oc.env:{MODEL}}}", **adapter},
            "rollout": {
                "agent": {"default_agent_loop": NAME}, "n": recipe.plan.instances, "calculate_log_probs": True,
                "temperature": next(iter(facts.sampling.values()))["temperature"],
            },
            "actor": {  # our trainer sets the size of a minibatch by the batch
                "ppo_mini_batch_size": max(1, settings.tasks // settings.minibatches), "ppo_epochs": settings.epochs,
                "shuffle": False, "optim": {"lr": facts.policy["lr"]}, "grad_clip": settings.max_norm or NEVER,
                "loss_agg_mode": AGGREGATES[recipe.aggregate], **_loss(recipe.loss),
            },
        },
    }  # fmt: skip


def _loss(loss: Loss) -> dict[str, Any]:
    shared = {"use_kl_loss": bool(loss.kl), "entropy_coeff": loss.entropy}
    if loss.kl:
        shared |= {"kl_loss_coef": loss.kl, "kl_loss_type": "low_var_kl"}  # verl's name of k3
    if not isinstance(loss, clipped):
        return {"policy_loss": {"loss_mode": "gpg"}, **shared}
    high = loss.low if loss.high is None else loss.high
    return {"policy_loss": {"loss_mode": "gspo" if loss.ratio == "sequence" else "vanilla"}, "clip_ratio": loss.low,
            "clip_ratio_low": loss.low, "clip_ratio_high": high, "clip_ratio_c": loss.dual or NEVER,
            **shared}  # fmt: skip


def readme(facts: RunFacts, env: str, rows: int) -> str:
    """Return the README: the commands, and what to read; `rows` is the number of recorded rows."""
    return f"""# A run of mas_lab, for verl 0.9.1

Recipe `{facts.recipe.name}` on `{env}`. verl must give the {rows} recorded rows their advantages, to {CLOSE:g}.
Install mas_lab beside verl. An env of your own must be on PYTHONPATH, or its file in this folder. The learning rate is
constant there; the run's `schedule` was {facts.settings.schedule}. docs/hand_over.md of mas_lab says what else differs.

```sh
export {FOLDER}="$PWD" {MODEL}=/path/to/model VERL_USE_EXTERNAL_MODULES={EXTENSIONS}
python -c "from {EXTENSIONS} import check; print(check())"     # first: the advantages are those of the run
python -m verl.trainer.main_ppo --config-path "$PWD" --config-name verl trainer.n_gpus_per_node=8
```
"""
