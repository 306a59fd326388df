"""Model card of a team: a README.md in the form of the Hugging Face hub.

Names and texts of a run stand only in JSON blocks. There they cannot act as links, HTML or YAML. Leaves out: the files
beside the card (`save_team`).
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from huggingface_hub import ModelCard, ModelCardData

from mas_lab.bridges.load_team import HUB_ID
from mas_lab.runs.run import Run
from mas_lab.runs.scores import kept_scores, run_curve

POCKET_LICENSE = "apache-2.0"
"""License of this kit, which includes the pocket models."""
METHOD = ("recipe", "env", "settings", "seed", "untold")
PROVENANCE = ("versions", "code", "threads", "device", "ranks", "continued")
"""Keys of a run's description that the card shows."""


def card(run: Run, team: Mapping[str, Any]) -> ModelCard:
    """Return the model card: a YAML header for the hub, then text for people.

    `team` is the content of `team.json`.
    """
    config, policies, step = run.config, list(team["policies"].values()), team["step"]
    weights = [{key: one[key] for key in ("folder", "kind", "base", "lora", "lr") if key in one} for one in policies]
    header = _header([one["base"] for one in policies], any(one["kind"] == "adapter" for one in policies))
    return ModelCard(f"""---
{header.to_yaml().strip()}
---

# A team of {len(team["agents"])} agents, trained with mas_lab

```python
import mas_lab as lab

team = lab.load_team("<owner/name>", revision="<commit>")   # or a folder; base=... for adapters of other models
```

{block({key: team[key] for key in ("agents", "sampling", "frozen")} | {"weights": weights})}

Without mas_lab, transformers or PEFT load each policy from its folder, `subfolder=...`. The sha256 of every file stands
in `team.json`.

## How it was trained

{block({key: config.get(key) for key in METHOD})}

## What it came to

{block(_results(run, step))}

Scores are means over held-out tasks after that many steps; the list is empty if none were kept with the run. This is
one training with one seed: another seed may come to other numbers.

## Provenance

{block({key: config.get(key) for key in PROVENANCE} | {"forked_after_step": config.get("forked", {}).get("step")})}

## Limits

It was trained for this task and this reward, and nothing else of it was measured: not how it answers other prompts, nor
how safe its answers are. A pocket model knows the words of its own task alone.
""")


def block(data: Any) -> str:
    """Return plain data as JSON, in a code fence that the data cannot close."""
    text = json.dumps(data, indent=1)  # escapes non-ASCII characters and line breaks
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}json\n{text}\n{fence}"


def _header(bases: Sequence[Mapping[str, Any]], peft: bool) -> ModelCardData:
    named = {base["name"] for base in bases if base["kind"] == "hub" and HUB_ID.fullmatch(base.get("name", ""))}
    return ModelCardData(
        base_model=sorted(named) or None,
        license=POCKET_LICENSE if all(base["kind"] == "pocket" for base in bases) else None,
        library_name="mas_lab",
        tags=["mas_lab", "multi-agent", "reinforcement-learning", *["peft"] * peft],
    )


def _results(run: Run, step: int) -> dict[str, Any]:
    """Return the number of sampled tokens, and the held-out scores at the first and the last scored step."""
    curve = run_curve(run) if run.steps else pd.DataFrame({"step": [], "tokens": []})
    scores = kept_scores(run, curve)[["step", "success", "return"]].query("step <= @step")
    ends = pd.concat([scores.head(1), scores.tail(1)]).drop_duplicates("step").round(3)
    tokens = int(curve.loc[curve["step"] < step, "tokens"].max()) if step else 0
    return {"steps": step, "sampled_tokens": tokens, "held_out_scores": ends.to_dict("records")}
