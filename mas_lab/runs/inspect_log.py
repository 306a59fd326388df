"""Write a run as a log of Inspect (UK AISI), which `inspect view` opens.

There is a sample for each episode, and a model event for each call. The log is a zip of JSON files, as Inspect's own
recorder of `.eval` logs writes it (version 2, inspect-ai 0.3.285). It is written without that package, whose pinned
requirements may conflict with this environment. Leaves out: token ids.
"""

import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from mas_lab.display.escape import escape_control_chars
from mas_lab.runs.episodes import episodes, path, title, turns_of
from mas_lab.runs.run import Run

SCORES = ("success", "return", "advantage", "telling")
ABOUT = ("turn", "candidate", "kept", "valid", "team_reward", "local_reward", "credit", "group", "center", "scale",
         "advantage", "logprob", "surprise")  # fmt: skip
STOPS = {"length": "max_tokens"}
"""Inspect's names for the end of a completion; any other end is "stop"."""


def write_log(run: Run, archive: zipfile.ZipFile, traces: int | None = None) -> None:
    """Write every episode of a run, or the `traces` most telling of each step, a step at a time."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    summaries: list[dict[str, Any]] = []
    for step in range(run.steps):
        turns = run.step_turns(step)
        for place, told in enumerate(episodes(turns.assign(step=step), traces, "export")):
            sample = _sample(told, place, now)
            _write(archive, f"samples/{sample['id']}_epoch_{sample['epoch']}.json", sample)
            short = ("id", "epoch", "input", "target", "metadata", "scores", "model_usage")
            count = {"completed": True, "message_count": len(sample["messages"])}
            summaries.append({name: sample[name] for name in short} | count)
    header = _header(run, summaries, now)
    _write(archive, "_journal/start.json", {name: header[name] for name in ("version", "eval", "plan")})
    _write(archive, "summaries.json", summaries)
    _write(archive, "header.json", header)


def _write(archive: zipfile.ZipFile, name: str, data: Any) -> None:
    archive.writestr(name, json.dumps(data, ensure_ascii=False, allow_nan=False))


def _sample(told: dict[str, Any], place: int, now: str) -> dict[str, Any]:
    """Return an episode as a sample; its answer is the last completion on the path that was played."""
    calls, messages = told["calls"], path(told["calls"])
    kept = [call for call in calls if call["kept"]]
    answer = kept[-1]["said"] if kept else ""
    usage = Counter()
    for call in calls:
        usage.update(_usage(call))
    about = {name: value for name, value in told.items() if name not in (*SCORES, "calls", "run") and value is not None}
    scores = {name: float(told[name]) for name in SCORES if told.get(name) is not None}
    name = re.sub(r"[^\w .#+=-]", "_", told["episode"])[:80]  # it names a file in the zip
    return {
        "id": f"{told['step']:04d}.{place:03d} {name}", "epoch": 1, "input": kept[0]["heard"] if kept else "",
        "target": "", "messages": [
            {"id": f"message-{place}", "role": one["role"], "content": one["content"]}
            for place, one in enumerate(messages)
        ],
        "output": _output(kept[-1]) if kept else {"model": "", "choices": []},
        "scores": {score: {"value": value, "answer": answer, "history": []} for score, value in scores.items()},
        "metadata": about, "store": {}, "events": list(_events(calls, now)),
        "model_usage": {"/".join(sorted({call["policy"] for call in calls})): dict(usage)}, "attachments": {},
    }  # fmt: skip


def _events(calls: list[dict[str, Any]], now: str) -> Iterator[dict[str, Any]]:
    """Yield a span per turn, and in it one per candidate, in acting order; all have the time of the export."""
    for place, (turn, drawn) in enumerate(turns_of(calls)):
        node = f"turn-{place}"
        yield _event("span_begin", f"{node}-begin", now, node, id=node, name=turn)
        for call in drawn:
            own = f"{node}-{call['candidate']}"
            about = {name: call[name] for name in ABOUT if call.get(name) is not None}
            yield _event("span_begin", f"{own}-begin", now, own, id=own, parent_id=node, name=title(call))
            yield _event(
                "model", own, now, own, model=call["policy"], role=call["agent"], tools=[], tool_choice="auto",
                input=[{"id": f"{own}-heard", "role": "user", "content": call["heard"]}], config={},
                output=_output(call), metadata=about,
            )  # fmt: skip
            yield _event("span_end", f"{own}-end", now, own, id=own)
        yield _event("span_end", f"{node}-end", now, node, id=node)


def _event(kind: str, uuid: str, now: str, span: str, **more: Any) -> dict[str, Any]:
    return {"event": kind, "uuid": uuid, "timestamp": now, "working_start": 0.0, "span_id": span} | more


def _output(call: dict[str, Any]) -> dict[str, Any]:
    said = {"role": "assistant", "content": call["said"], "model": call["policy"]}
    choice = {"message": said, "stop_reason": STOPS.get(call["finish"], "stop")}
    return {"model": call["policy"], "choices": [choice], "completion": call["said"], "usage": _usage(call)}


def _usage(call: dict[str, Any]) -> dict[str, int]:
    heard, said = call["prompt_tokens"], call["tokens"]
    return {"input_tokens": heard, "output_tokens": said, "total_tokens": heard + said}


def _header(run: Run, summaries: list[dict[str, Any]], now: str) -> dict[str, Any]:
    env = escape_control_chars(str(run.config.get("env", {}).get("name", "")))
    recipe, count = escape_control_chars(run.recipe_name), len(summaries)
    scores = []
    for name in SCORES:
        values = [one["scores"][name]["value"] for one in summaries if name in one["scores"]]
        if values:
            mean = {"name": "mean", "value": sum(values) / len(values), "params": {}}
            scores.append({"name": name, "scorer": name, "params": {}, "metrics": {"mean": mean}})
    spec = {
        "eval_id": f"mas_lab-{re.sub(r'[^A-Za-z0-9]', '-', now)}", "run_id": str(run.config.get("seed", "")),
        "created": now, "task": env, "task_id": env, "task_version": 0, "task_attribs": {}, "task_args": {},
        "dataset": {"name": env, "samples": count}, "model": f"mas_lab/{recipe}", "config": {}, "model_args": {},
        "packages": {}, "metadata": {"recipe": recipe, "steps": run.steps, "seed": run.config.get("seed")},
    }  # fmt: skip
    return {
        "version": 2, "status": "success", "eval": spec, "plan": {"name": "plan", "steps": [], "config": {}},
        "results": {"total_samples": count, "completed_samples": count, "scores": scores},
        "stats": {"started_at": now, "completed_at": now, "model_usage": {}}, "invalidated": False,
    }  # fmt: skip
