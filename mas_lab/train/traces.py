"""The most informative episodes of a step as traces of trackio: an episode is a trace, a model call a span of it.

Leaves out: the choice of episodes (`runs.episodes`), and the tracker (`tracking`).
"""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from mas_lab.runs.episodes import episodes, path, title, turns_of

ABOUT = ("agent", "policy", "turn", "candidate", "kept", "valid", "finish", "tokens", "team_reward", "local_reward",
         "credit", "group", "center", "scale", "advantage", "logprob", "surprise")  # fmt: skip


def traces(turns: pd.DataFrame, n: int) -> list[Any]:
    """Return the `n` most informative episodes of one step's table as `trackio.Trace` objects."""
    import trackio

    return [trackio.Trace(**trace(episode)) for episode in episodes(turns, n, "track(traces=...)")]


def takes_spans() -> bool:
    """Return True if the installed trackio knows traces with spans."""
    import trackio

    try:
        trackio.Trace([], spans=[])
    except (AttributeError, TypeError):
        return False
    return True


def trace(episode: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `trackio.Trace` for one episode.

    The messages are the path that was played. The spans are its turns, with their candidates inside. Times are not
    recorded, so none are given, and the spans stand in acting order.
    """
    about = {name: value for name, value in episode.items() if name not in ("calls", "run") and value is not None}
    told = {True: "success", False: "failed"}.get(episode.get("success"))
    return {
        "messages": path(episode["calls"]),
        "metadata": about | ({"status": told} if told else {}),
        "spans": list(_spans(episode["calls"])),
    }


def _spans(calls: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for place, (turn, drawn) in enumerate(turns_of(calls)):
        node = f"turn-{place}"
        said = [call["said"] for call in drawn if call["kept"]]
        yield {"id": node, "name": turn, "kind": "span", "input": drawn[0]["heard"], "output": "\n".join(said)}
        for call in drawn:
            yield {
                "id": f"{node}-{call['candidate']}", "parent_id": node, "name": title(call), "kind": "generation",
                "model": call["policy"], "input": call["heard"], "output": call["said"],
                "usage": {"input_tokens": call["prompt_tokens"], "output_tokens": call["tokens"]},
                "metadata": {name: call[name] for name in ABOUT if call.get(name) is not None},
            }  # fmt: skip
