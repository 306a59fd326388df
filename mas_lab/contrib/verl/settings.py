"""A run's recipe and settings in the terms of verl, the reasons for refusals, and the texts of the folder.

Leaves out: the folder around them (`export`).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mas_lab.contrib.verl.reader import BRIDGE, CLOSE
from mas_lab.losses import Loss, clipped, reinforce
from mas_lab.recipes import Recipe
from mas_lab.train.settings import Settings

NAME = "mas_lab"
"""Name under which our extensions are registered in verl."""
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

    @property
    def model(self) -> str:
        """Return the hub id of the weights; empty if they are not from the hub."""
        source = self.policy["source"]
        return source["name"] if source["kind"] == "hub" and HUB_ID.fullmatch(source["name"]) else ""


def refusals(facts: RunFacts) -> Iterator[str]:
    """Yield the reasons against handing the run over, a sentence each."""
    recipe, rounds = facts.recipe, facts.settings.rounds
    if facts.curriculum is not None:
        yield "its tasks are drawn by a curriculum, and a folder holds them drawn"
    if len(facts.policies) > 1:
        yield f"its team has {len(facts.policies)} policies ({', '.join(facts.policies)}), and verl trains one"
    if len({one["temperature"] for one in facts.sampling.values()}) > 1:
        yield "its agents sample at different temperatures, and verl takes log-probabilities at one"
    for place in ("plan", "credit", "center", "select"):
        if hasattr(getattr(recipe, place), "after"):
            yield f"its {place}, {getattr(recipe, place)!r}, learns from step to step, which verl does not keep"
    for place in ("credit", "center", "scale"):
        if getattr(getattr(recipe, place), "needs_team", False):
            yield f"its {place}, {getattr(recipe, place)!r}, needs the team, which verl does not show"
    if facts.settings.learn is not None:
        yield f"learn={facts.settings.learn!r} trains agents in stages, and verl trains one policy all the time"
    if rounds > 1:
        yield f"rounds={rounds} draws more tasks until enough rows are selected; verl draws its tasks once"
    if type(recipe.loss) not in (clipped, reinforce):
        yield f"its loss, {type(recipe.loss).__name__}, is none that verl has"
    elif getattr(recipe.loss, "ratio", "token") == "action":
        yield "clipped(ratio='action') takes one ratio per action, by the sum of its tokens, which verl has not"
    if recipe.select is not None:
        yield f"select={recipe.select!r}: verl keeps every row in its means, trained on or not"
    if recipe.aggregate not in AGGREGATES:
        yield f"aggregate={recipe.aggregate!r}: verl knows no agents; take one of {', '.join(AGGREGATES)}"


def verl_settings(facts: RunFacts) -> dict[str, Any]:
    """Return the content of verl.yaml, which stands on top of verl's own defaults."""
    recipe, settings = facts.recipe, facts.settings
    environment = {"VERL_USE_EXTERNAL_MODULES": BRIDGE, "PYTHONPATH": "${oc.env:PYTHONPATH}"}
    adapter, correction = {}, {}
    if lora := facts.policy["lora"]:
        alpha = facts.policy["options"].get("alpha", 2.0)
        adapter = {"lora_rank": lora["rank"], "lora_alpha": alpha * lora["rank"]}
    if recipe.loss.tis is not None:
        correction = {"rollout_correction": {"rollout_is": "token", "rollout_is_threshold": recipe.loss.tis}}
    return {
        "hydra": {"searchpath": ["pkg://verl.trainer.config"]},
        "defaults": ["ppo_trainer", "_self_"],
        "trainer": {"use_v1": True, "v1": {"trainer_mode": NAME}},
        # A recipe reads the env's rewards as they are, without a KL penalty in them.
        "algorithm": {"adv_estimator": NAME, "use_kl_in_reward": False, **correction},
        "ray_kwargs": {"ray_init": {"runtime_env": {"env_vars": environment}}},
        "data": {
            "train_files": "${oc.env:MAS_LAB_FOLDER}/train.parquet",
            "val_files": "${oc.env:MAS_LAB_FOLDER}/test.parquet",
            "train_batch_size": settings.tasks,
            "shuffle": False,  # in the order in which they were drawn
            "filter_overlong_prompts": False,  # the first prompt is not the longest
            "max_prompt_length": facts.prompt,
            "max_response_length": facts.answer,
        },
        "actor_rollout_ref": {
            "model": {"path": facts.model or "${oc.env:MAS_LAB_MODEL}", **adapter},
            "rollout": {
                "agent": {"default_agent_loop": NAME},
                "n": recipe.plan.instances,
                "temperature": next(iter(facts.sampling.values()))["temperature"],
                "calculate_log_probs": True,
            },
            "actor": {
                "ppo_mini_batch_size": max(1, settings.tasks // settings.minibatches),  # our trainer sets it by batch
                "ppo_epochs": settings.epochs,
                "shuffle": False,
                "optim": {"lr": facts.policy["lr"]},
                "grad_clip": settings.max_norm or NEVER,
                "loss_agg_mode": AGGREGATES[recipe.aggregate],
                **_loss(recipe.loss),
            },
        },
    }


def _loss(loss: Loss) -> dict[str, Any]:
    shared = {"use_kl_loss": bool(loss.kl), "entropy_coeff": loss.entropy}
    if loss.kl:
        shared |= {"kl_loss_coef": loss.kl, "kl_loss_type": "low_var_kl"}  # verl's name of k3
    if not isinstance(loss, clipped):
        return {"policy_loss": {"loss_mode": "gpg"}, **shared}
    return {
        "policy_loss": {"loss_mode": "gspo" if loss.ratio == "sequence" else "vanilla"},
        "clip_ratio": loss.low,
        "clip_ratio_low": loss.low,
        "clip_ratio_high": loss.low if loss.high is None else loss.high,
        "clip_ratio_c": loss.dual or NEVER,
        **shared,
    }


BRIDGE_FILE = '''"""What verl imports: the env and the recipe of this folder, in mas_lab's own code."""

from pathlib import Path

from mas_lab.contrib.verl import extensions

extensions.connect(Path(__file__).parent)  # VERL_USE_EXTERNAL_MODULES has every worker do so
check = extensions.check
'''


def readme(facts: RunFacts, env: str, rows: int, steps: int) -> str:
    """Return the README: the files, the commands, and the differences from the run.

    `env` is the name of the env, `rows` the size of the recorded batch, and `steps` the number of steps of the run.
    """
    own = f", and so is the module of the env `{env}`" if ":" in env else ""
    return f"""# A run of mas_lab, for verl

Recipe `{facts.recipe.name}`, written against verl 0.9.1. Model: {facts.model or "the run's, in Hugging Face format"}.

It holds the tasks of {steps} steps, and the {rows} rows of the last one, for which verl must give the recorded
advantages to {CLOSE:g}. mas_lab is to be installed beside verl{own}.

```sh
export MAS_LAB_FOLDER="$PWD" MAS_LAB_MODEL=/path/to/model PYTHONPATH="$PWD:$PYTHONPATH"
export VERL_USE_EXTERNAL_MODULES={BRIDGE}
python -c "import {BRIDGE}; print({BRIDGE}.check())"     # first: the advantages are those of the run
python -m verl.trainer.main_ppo --config-path "$PWD" --config-name verl trainer.n_gpus_per_node=8
```

The draws and the optimizer's other settings are verl's own. The learning rate is constant there; the run's schedule was
{facts.settings.schedule!r}. docs/hand_over.md of mas_lab says what else is not the same, and what was tried.
"""
