"""Training reports for TensorBoard, trackio, Weights & Biases or another tracker, through accelerate's own classes.

This is a wrapper around the loop, because the loop needs none of it. Leaves out: the run on disk (`run`), which is
complete without a tracker.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from mas_lab.runs.run import runs_dir
from mas_lab.runs.scores import mean_scores
from mas_lab.train import Report
from mas_lab.train.traces import takes_spans
from mas_lab.train.traces import traces as traces_of

OF_AGENT = ("reward_mean", "reward_std", "advantage_rms", "grad_norm", "grad_norm_clipped", "entropy", "kl",
            "clip_fraction", "truncated")  # fmt: skip
OF_POLICY = ("policy_norm", "policy_norm_clipped", "lr")
TRACES = "episodes"
"""The name under which trackio files the traces."""


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
        traces: Number of episodes of each step that are logged as trackio's traces, the most informative first. Prompts
            and completions are messages, and every model call is a span.
        **options: Arguments of the tracker's class.

    Returns:
        A generator of the same reports. Closing it closes `reports`, which then leaves its checkpoint.

    Raises:
        TrackingError: The tracker is unknown or not installed, or it cannot take `traces` or `options`.

    `numbers` in this module lists the names that are logged, by training step.
    """
    _require_traces(to, traces)
    tracker = _tracker(to, project, folder, options)
    if traces and not takes_spans():
        raise TrackingError("track: this trackio knows no traces with spans, 0.43 does; pip install -U trackio")
    return _tracked(reports, tracker, dict(config or {}), traces)


def _tracked(reports: Iterable[Report], tracker: Any, config: dict[str, Any], traces: int) -> Iterator[Report]:
    try:
        tracker.start()
        if config:
            tracker.store_init_configuration(config)
        for report in reports:
            told = {TRACES: traces_of(report.turns, traces)} if traces else {}
            tracker.log(numbers(report) | told, step=report.step)
            yield report
    finally:
        if hasattr(reports, "close"):
            reports.close()
        tracker.finish()


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
    if str(to) not in {str(name) for name in get_available_trackers()}:
        raise TrackingError(f"track: the library of {to!r} is not installed here; pip install {to}")
    made = known[str(to)]
    if not made.requires_logging_directory:
        return made(project, **options)
    return made(project, str(folder if folder is not None else runs_dir() / "tracking"), **options)


def _require_traces(to: Any, traces: int) -> None:
    if not isinstance(traces, int) or isinstance(traces, bool) or traces < 0:
        raise TrackingError(f"track: traces={traces!r}; say how many episodes of each step, 0 or more")
    name = str(getattr(to, "name", to))
    if traces and name != "trackio":
        raise TrackingError(f"track: {name!r} takes numbers; traces go to trackio alone (to='trackio')")
