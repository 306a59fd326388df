"""Rows of the kit inside verl: episodes sampled by verl's server, and the advantage estimator.

verl passes rewards and masks to an estimator, but not the rows. The rows are therefore stored `beside` the batch, in
its order. Rewards do not use verl's columns: if an agent loop returns several rows, verl writes the last row's reward
over all of them. Padding rows are left out of the recipe and get 0. Leaves out: the trainer that stores the rows
(`verl_trainer`).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from uuid import uuid4

import torch
from verl.trainer.ppo.core_algos import register_adv_est

from mas_lab.bridges.export_reader import Handed, HandOverError, told
from mas_lab.bridges.external_rollout import completion
from mas_lab.policy import Completion, Request

NAME = ROW = "mas_lab"
"""Name under which the three extensions are registered, and key of a row's JSON in the extra fields."""
_handed: list[Handed] = []
_rows: ContextVar[Sequence[Mapping[str, Any] | None] | None] = ContextVar("the batch's rows, None for padding")


def take_up(folder: Handed) -> None:
    """Use this folder for all rows of this process."""
    _handed[:] = [folder]


def handed() -> Handed:
    """Return the folder in use, or raise HandOverError if there is none."""
    if not _handed:
        raise HandOverError("no folder is connected in this process: set VERL_USE_EXTERNAL_MODULES=mas_lab_bridge for "
                            "every worker, with the folder on PYTHONPATH")  # fmt: skip
    return _handed[0]


@contextmanager
def beside(rows: Sequence[Mapping[str, Any] | None]) -> Iterator[None]:
    """Let the estimator read `rows`, one for each row of verl's batch, `None` for padding."""
    token = _rows.set(rows)
    try:
        yield
    finally:
        _rows.reset(token)


@register_adv_est(NAME)
def estimate(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, config: Any = None, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the recipe's advantages at each row's own tokens, twice: as advantages and as returns.

    Both have the shape (bs, T). Raises HandOverError if the rows do not match the batch, or if rewards include a KL
    penalty.
    """
    rows = _rows.get(None)
    if rows is None:
        raise HandOverError("the estimator has no rows: only trainer.v1.trainer_mode=mas_lab hands them on")
    if len(rows) != len(response_mask):
        raise HandOverError(f"the batch has {len(response_mask)} rows, and {len(rows)} were told of")
    if config is not None and config.get("use_kl_in_reward", False):
        raise HandOverError("algorithm.use_kl_in_reward changes rewards that the recipe does not read: use_kl_loss")
    real = [number for number, row in enumerate(rows) if row is not None]
    found = handed().advantages([rows[number] for number in real])["advantage"].tolist()
    advantages = torch.zeros(len(rows), 1, dtype=torch.float32, device=response_mask.device)
    advantages[real, 0] = torch.as_tensor(found, dtype=torch.float32, device=response_mask.device)
    spread = advantages * response_mask
    return spread, spread


def rows_of(extra_fields: Sequence[Mapping[str, Any]], tags: Sequence[Mapping[str, Any]]) -> list[dict | None]:
    """Return the rows from the agent loops' outputs, in the batch's order; `None` for padding."""
    found: list[dict | None] = []
    for number, (fields, tag) in enumerate(zip(extra_fields, tags, strict=True)):
        fields = getattr(fields, "data", fields)  # a dict or, with some queue back ends, its wrapper
        if not tag.get("is_padding", False) and ROW not in fields:
            raise HandOverError(
                f"row {number} of the batch has no row of mas_lab; was it played by another agent loop?"
            )
        found.append(None if tag.get("is_padding", False) else json.loads(fields[ROW]))
    return found


async def played(
    sampling_params: Mapping[str, Any],
    fields: Mapping[str, Any],
    server: Any,
    tokenizer: Any,
    rollout: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Play one more instance of the task in `fields`, and return an `AgentLoopOutput`'s fields for each row.

    verl's `server` samples the tokens. `rollout` has verl's settings of the rollout.
    """
    folder = handed()
    ends = {"vllm": "include_stop_str_in_output", "sglang": "no_stop_trim"}.get(rollout.get("name", "vllm"))
    context = rollout.get("max_model_len") or sum(
        rollout.get(f"{part}_length", 2**30) for part in ("prompt", "response")
    )
    versions: list[int | None] = []

    async def speak(request: Request) -> Completion:
        stops = {"stop": list(request.stop), ends: True} if request.stop else {}
        asked = {**sampling_params, "max_tokens": request.max_tokens, **stops}
        if rollout.get("full_determinism", False):  # verl's single seed would make the candidates of a node equal
            asked["seed"] = request.seed % 2**31
        said = await server.generate(request_id=uuid4().hex, prompt_ids=list(request.prompt_ids), sampling_params=asked)
        if said.log_probs is None:
            raise HandOverError("verl's server gave no log-probabilities: set rollout.calculate_log_probs=true")
        versions.extend(said.extra_fields.get(f"{end}_global_steps") for end in ("min", "max"))
        return completion(said.token_ids, said.log_probs, request, tokenizer)

    occasion = str(fields["uid"])
    number = f"{fields.get('session_id', 0)}@{occasion}"
    rows = await folder.play(fields["extra_info"]["task"], number, speak, tokenizer, context, occasion=occasion)
    earned = folder.earned(rows)
    known = [one for one in versions if one is not None]
    span = {"min_global_steps": min(known), "max_global_steps": max(known)} if known else {}
    return [
        {
            "prompt_ids": row["prompt_ids"], "response_ids": row["completion_ids"],
            "response_mask": [int(folder.learns(row))] * len(row["completion_ids"]),
            "response_logprobs": row["logprobs"], "reward_score": earned, "num_turns": 2, "metrics": {},
            "extra_fields": {ROW: json.dumps(told(row, without=("logprobs",))), "reward_extra_info": {}, **span},
        }
        for row in rows
    ]  # fmt: skip
