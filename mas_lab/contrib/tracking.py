"""Training reports for TensorBoard, trackio, Weights & Biases or another tracker, through accelerate's own classes.

This is a wrapper around the loop, because the loop needs none of it. Leaves out: the run on disk (`run`), which is
complete without a tracker.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pandas as pd

from mas_lab.display.escape import escape_control_chars
from mas_lab.explain.index import index_of_turns
from mas_lab.runs.run import runs_dir
from mas_lab.runs.scores import mean_scores
from mas_lab.table import trained
from mas_lab.train import Report

OF_AGENT = ("reward_mean", "reward_std", "advantage_rms", "grad_norm", "grad_norm_clipped", "entropy", "kl",
            "clip_fraction", "truncated")  # fmt: skip
OF_POLICY = ("policy_norm", "policy_norm_clipped", "lr")
OF_CALL = ("agent", "policy", "turn", "candidate", "kept", "valid", "finish", "tokens", "team_reward", "local_reward",
           "credit", "group", "center", "scale", "advantage", "logprob")  # fmt: skip


class TrackingError(RuntimeError):
    """Error of a tracker that is not available; it says what to install, or which trackers there are."""


def track(
    reports: Iterable[Report],
    to: Any = "tensorboard",
    project: str = "mas_lab",
    folder: str | Path | None = None,
    config: Mapping[str, Any] | None = None,
    traces: int = 0,
    **options: Any,
) -> Iterator[Report]:
    """Log the numbers of each report and pass the report on: `for report in track(train(...), to="tensorboard"): ...`.

    Args:
        reports: The reports of `train`.
        to: A name that accelerate knows ("tensorboard", "trackio", "wandb", "mlflow", ...), or an object of a subclass
            of accelerate's `GeneralTracker`. You install the library yourself.
        project: The tracker's run or project name.
        folder: Folder for a tracker that writes files. `None`: `tracking` under `runs_dir()`.
        config: Plain values to keep with the run. `None`: no values.
        traces: Number of episodes of each step that are logged as traces of trackio (0.43 or later), the most
            informative first. Prompts and completions are messages, and every model call is a span.
        **options: Arguments of the tracker's class.

    Returns:
        A generator of the same reports. Closing it closes `reports`, which then leaves its checkpoint.

    Raises:
        TrackingError: The tracker is unknown or not installed, or it takes no `traces` or `options`.

    `numbers` in this module lists the names that are logged, by training step.
    """
    if traces and (name := str(getattr(to, "name", to))) != "trackio":
        raise TrackingError(f"track: {name!r} takes numbers; traces go to trackio alone (to='trackio')")
    return _tracked(reports, _tracker(to, project, folder, options), dict(config or {}), traces)


def _tracked(reports: Iterable[Report], tracker: Any, config: dict[str, Any], traces: int) -> Iterator[Report]:
    with ExitStack() as at_end:
        if hasattr(reports, "close"):
            at_end.callback(reports.close)
        tracker.start()
        at_end.callback(tracker.finish)
        if config:
            tracker.store_init_configuration(config)
        for report in reports:
            tracker.log(numbers(report) | _traces(report, traces), step=report.step)
            yield report


def numbers(report: Report) -> dict[str, float]:
    """Return one step as a flat mapping from name to number.

    - `team/success`, `team/return`, `team/tokens`: scores of the step's episodes.
    - `held_out/success`, `held_out/return`: scores on held-out tasks, if the step has them.
    - `agent/<name>/grad_norm` and others: means over the step's optimizer steps.
    - `policy/<name>/policy_norm` and others: means over the step's optimizer steps.
    - `seconds/rollout` and others: the time of each part.
    """
    found = {f"team/{name}": value for name, value in report.scored.items()}
    if report.held_out is not None:
        newest = mean_scores(report.held_out).iloc[-1]
        found |= {f"held_out/{name}": newest[name] for name in ("success", "return")}
    for by, names in (("agent", OF_AGENT), ("policy", OF_POLICY)):
        means = report.stats.groupby(by)[list(names)].mean()
        found |= {f"{by}/{who}/{name}": value for who, row in means.iterrows() for name, value in row.dropna().items()}
    found |= {f"seconds/{part}": seconds for part, seconds in report.profile.items()}
    return {name: float(value) for name, value in found.items()}


def _tracker(to: Any, project: str, folder: str | Path | None, options: Mapping[str, Any]) -> Any:
    from accelerate import PartialState
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker, get_available_trackers

    PartialState()  # accelerate's trackers log through it
    if isinstance(to, GeneralTracker):
        if options:
            raise TrackingError(f"track: {', '.join(options)} go to a tracker named by `to`; yours is already made")
        return to
    known = {str(name): made for name, made in LOGGER_TYPE_TO_CLASS.items()}
    if str(to) not in known:
        raise TrackingError(f"track: to={to!r}; known are {', '.join(known)}, or a GeneralTracker of your own")
    if str(to) not in map(str, get_available_trackers()):
        raise TrackingError(f"track: the library of {to!r} is not installed here; pip install {to}")
    where = [str(folder or runs_dir() / "tracking")] if known[str(to)].requires_logging_directory else []
    return known[str(to)](project, *where, **options)


def _traces(report: Report, n: int) -> dict[str, Any]:
    """Return the `n` most informative episodes of a step under the name by which trackio files them."""
    if not n:
        return {}
    import trackio

    return {"episodes": [trackio.Trace(**one) for one in traces(report.turns, n)]}


def traces(turns: pd.DataFrame, n: int) -> Iterator[dict[str, Any]]:
    """Yield the arguments of `trackio.Trace` for the `n` most informative episodes of a step.

    The messages are the path that was played; each names its agent, since viewers do not show `name`. The spans are the
    model calls in acting order, candidates included. Times are not recorded, so none are given.
    """
    rows = turns[trained(turns)]
    rows = rows.assign(
        tokens=rows["completion_ids"].map(len), prompt_tokens=rows["prompt_ids"].map(len),
        logprob=rows["logprobs"].map(sum), prompt=rows["prompt"].str.removeprefix("user: ").map(escape_control_chars),
        completion=rows["completion"].map(escape_control_chars),
    )  # fmt: skip
    for about in _plain(index_of_turns(rows).head(n)):
        own = rows[rows["episode"] == about["episode"]].sort_values(["depth", "node"], kind="stable")
        calls = _plain(own[["prompt", "completion", "prompt_tokens", *OF_CALL]])
        messages = [
            {"role": role, "name": call["agent"], "content": f"{call['agent']}: {call[text]}"}
            for call in calls if call["kept"] for role, text in (("user", "prompt"), ("assistant", "completion"))
        ]  # fmt: skip
        spans = [_span(number, call) for number, call in enumerate(calls)]
        status = "success" if about["success"] else "failed"
        yield {"messages": messages, "metadata": about | {"status": status}, "spans": spans}


def _plain(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows as JSON data; a number that is not finite becomes `None`."""
    return json.loads(table.to_json(orient="records"))


def _span(number: int, call: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": f"call-{number}", "kind": "generation", "model": call["policy"],
        "name": f"{call['agent']}, turn {call['turn']}, #{call['candidate']}" + (" kept" if call["kept"] else ""),
        "input": call["prompt"], "output": call["completion"],
        "usage": {"input_tokens": call["prompt_tokens"], "output_tokens": call["tokens"]},
        "metadata": {name: call[name] for name in OF_CALL},
    }  # fmt: skip
