"""Model card of a team: a README.md in the form of the Hugging Face hub.

Names and texts of a run stand only in code spans or JSON blocks. There they cannot act as links, HTML or YAML. Leaves
out: the files beside the card (`save_team`).
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from huggingface_hub import ModelCard, ModelCardData

from mas_lab.bridges.team_folder import HUB_ID
from mas_lab.runs.run import Run
from mas_lab.runs.scores import kept_scores, run_curve

POCKET_LICENSE = "apache-2.0"
"""License of this kit, which includes the pocket models."""
LONGEST = 200
METHOD = ("recipe", "env", "settings", "seed")
PROVENANCE = ("versions", "code", "threads", "device", "ranks", "continued")
"""Keys of a run's description that the card shows."""


def card(run: Run, team: Mapping[str, Any]) -> ModelCard:
    """Return the model card: a YAML header for the hub, then text for people.

    `team` is the content of `team.json`.
    """
    config, agents, policies = run.config, team["agents"], list(team["policies"].values())
    header, first = _header(policies, config["env"].get("data")), policies[0]
    needed = any(one["kind"] == "adapter" and one["base"]["kind"] != "pocket" for one in policies)
    base = f", base={header.base_model or '[...]'}" if needed else ""
    bare = "AutoModelForCausalLM.from_pretrained(" if first["kind"] == "full" else "PeftModel.from_pretrained(base, "
    untold = ", ".join(map(code, config.get("untold") or ())) or "nothing"
    weights = [{key: one[key] for key in ("folder", "kind", "base", "lora", "lr") if key in one} for one in policies]
    return ModelCard(f"""---
{header.to_yaml().strip()}
---

# A team of {len(agents)}: {", ".join(map(code, agents))}

Trained with mas_lab by the recipe {code(run.recipe_name)} on the task {code(config["env"].get("name"))}; this is the
team after step {team["step"]}.

## Load it

```python
import mas_lab as lab

team = lab.load_team("<owner/name>", revision="<commit>"{base})
```

A folder works in the place of the id. Without mas_lab: `{bare}"<owner/name>", subfolder="{first["folder"]}")`.

{block({key: team[key] for key in ("agents", "sampling", "frozen")} | {"weights": weights})}

## How it was trained

{block({key: config.get(key) for key in METHOD})}

Parts of the method that cannot be told: {untold}.

## What it came to

{_scores(run, team["step"])}

## Provenance

{block({key: config.get(key) for key in PROVENANCE} | {"forked_after_step": config.get("forked", {}).get("step")})}

The sha256 of every file stands in `team.json`.

## Limits

It was trained for this task and this reward, and nothing else of it was measured: not how it answers other prompts, nor
how safe its answers are. A pocket model knows the words of its own task alone.
""")


def code(value: Any) -> str:
    """Return `value` as one Markdown code span.

    The text is printable, on one line, and cut at 200 characters.
    """
    text = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in str(value))
    text = (text[:LONGEST] + "…" if len(text) > LONGEST else text) or " "
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def block(data: Any) -> str:
    """Return plain data as JSON, in a code fence that the data cannot close."""
    text = json.dumps(data, indent=1)  # escapes non-ASCII characters and line breaks
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}json\n{text}\n{fence}"


def _header(policies: Sequence[Mapping[str, Any]], data: Any) -> ModelCardData:
    bases = [one["base"] for one in policies]
    named = {base["name"] for base in bases if base["kind"] == "hub" and HUB_ID.fullmatch(base.get("name", ""))}
    peft = ["peft"] if any(one["kind"] == "adapter" for one in policies) else []
    return ModelCardData(
        base_model=sorted(named) or None,
        license=POCKET_LICENSE if all(base["kind"] == "pocket" for base in bases) else None,
        datasets=[data] if isinstance(data, str) and HUB_ID.fullmatch(data) else None,
        library_name="mas_lab",
        tags=["mas_lab", "multi-agent", "reinforcement-learning", *peft],
    )


def _scores(run: Run, step: int) -> str:
    """Return the number of sampled tokens, and the held-out scores at the first and the last scored step."""
    curve = run_curve(run) if run.steps else pd.DataFrame({"step": [], "tokens": []})
    tokens = int(curve.loc[curve["step"] < step, "tokens"].max()) if step else 0
    scores = kept_scores(run, curve)
    scores = scores[scores["step"] <= step]
    text = f"{step} training steps, seed {code(run.config['seed'])}, {tokens:,} sampled tokens.\n\n"
    if scores.empty:
        return text + "Held-out scores: unknown; none were kept with the run."
    lines = ["Means over the held-out tasks:\n", "| | success | return |", "|---|---|---|"]
    for one in scores.iloc[[0, -1]].drop_duplicates("step").to_dict("records"):
        when = f"after step {one['step']:.0f}" if one["step"] else "before training"
        lines.append(f"| {when} | {one['success']:.3f} | {one['return']:.3f} |")
    return text + "\n".join(lines) + "\n\nOne training, one seed: another seed may come to other numbers."
