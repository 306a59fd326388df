"""Model card of a team: a README.md in the form of the Hugging Face hub.

It says "unknown" for every fact that the run does not record. Names and texts of a run stand only in code spans or JSON
blocks. There they cannot act as links, HTML or YAML. Leaves out: the files beside the card (`giving`).
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from mas_lab.runs.disk import read_table
from mas_lab.runs.run import SCORES, Run
from mas_lab.runs.scores import mean_scores, run_curve, scored_steps

UNKNOWN = "unknown: the run does not say"
HUB = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}/[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}")
POCKET_LICENSE = "apache-2.0"
"""License of this kit, which includes the pocket models."""
LONGEST = 200
OF_AN_ENTRY = ("step", "versions")


def card(run: Run, team: Mapping[str, Any]) -> str:
    """Return the text of README.md: a YAML header for the hub, then text for people.

    `team` is the content of `team.json`.
    """
    config = run.config
    parts = [
        _header(team, config),
        f"# A team of {len(team['agents'])}: {', '.join(map(code, team['agents']))}",
        f"Trained with mas_lab by the recipe {code(run.recipe_name)} on the task "
        f"{code(config['env'].get('name', UNKNOWN))}; this is the team after step {team['step']}.",
        *_agents(team),
        *_loading(team),
        *_method(config),
        *_numbers(run, team["step"]),
        *_provenance(config, team),
        *_limits(team),
    ]
    return "\n\n".join(parts) + "\n"


def code(value: Any) -> str:
    """Return `value` as one Markdown code span.

    The text is printable, on one line, cut at 200 characters, and safe in a table cell.
    """
    text = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in str(value))
    text = (text[:LONGEST] + "…" if len(text) > LONGEST else text).replace("|", "\\|") or " "
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def block(data: Any) -> str:
    """Return plain data as JSON, in a code fence that the data cannot close."""
    text = json.dumps(data, indent=1)  # escapes non-ASCII characters and line breaks
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}json\n{text}\n{fence}"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *rows))


def _header(team: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    from huggingface_hub import ModelCardData

    bases = [one["base"] for one in team["policies"].values()]
    named = sorted({base["name"] for base in bases if base["kind"] == "hub" and HUB.fullmatch(base.get("name", ""))})
    kinds = {one["kind"] for one in team["policies"].values()}
    data = config["env"].get("data")
    told = {
        "base_model": named or None,
        "license": POCKET_LICENSE if all(base["kind"] == "pocket" for base in bases) else None,
        "datasets": [data] if isinstance(data, str) and HUB.fullmatch(data) else None,
        "library_name": "mas_lab",
        "tags": ["mas_lab", "multi-agent", "reinforcement-learning", *(["peft"] if "adapter" in kinds else [])],
    }
    return f"---\n{ModelCardData(**told).to_yaml().strip()}\n---"


def _agents(team: Mapping[str, Any]) -> list[str]:
    rows = []
    for agent, name in team["agents"].items():
        one, sampling = team["policies"][name], team["sampling"].get(agent, {})
        drawn = ", ".join(f"{key} {code(value)}" for key, value in sampling.items() if value not in (None, [], ()))
        rows.append(
            [code(agent), code(one["folder"]), _weights(one), drawn, "yes" if agent in team["frozen"] else "no"]
        )
    return ["## Who plays with what", table(["agent", "weights", "which are", "draws with", "frozen"], rows)]


def _weights(one: Mapping[str, Any]) -> str:
    base = one["base"]
    where = {"pocket": "the pocket model", "hub": "the hub's", "directory": "a model in a folder of whoever trained it"}
    named = f"{where[base['kind']]}{' ' + code(base['name']) if 'name' in base else ''}"
    pinned = f" at {code(base['digest'][:12])}" if "digest" in base else ""
    rank = f"LoRA of rank {one['lora'].get('own_rank', one['lora']['rank'])} over " if one["kind"] == "adapter" else ""
    return f"{rank or 'all weights, begun from '}{named}{pinned}"


def _loading(team: Mapping[str, Any]) -> list[str]:
    adapted = [one["base"] for one in team["policies"].values() if one["kind"] == "adapter"]
    asked = {base.get("name", "") for base in adapted if base["kind"] != "pocket"}
    only = next(iter(asked)) if len(asked) == 1 else ""
    base = f", base={only!r}" if HUB.fullmatch(only) else ", base=[...]" if asked else ""
    line = f'import mas_lab as lab\n\nteam = lab.load_team("<owner/name>", revision="<commit>"{base})'
    first = next(iter(team["policies"].values()))
    plain = (
        f'AutoModelForCausalLM.from_pretrained("<owner/name>", subfolder="{first["folder"]}")'
        if first["kind"] == "full"
        else f'PeftModel.from_pretrained(base, "<owner/name>", subfolder="{first["folder"]}")'
    )
    return [
        "## Load it",
        f"```python\n{line}\n```",
        f"A folder works in the place of the id. Without mas_lab: `{plain}`.",
    ]


def _method(config: Mapping[str, Any]) -> list[str]:
    recipe, env = config["recipe"], config["env"]
    words = [f"- {said}: {_part(recipe[key])}" for key, said in SAID.items() if recipe.get(key) is not None]
    options = {key: value for key, value in env.items() if key != "name"}
    untold = config.get("untold") or []
    secret = f"What a part of the method holds besides cannot be told: {', '.join(map(code, untold))}."
    return [
        "## How it was trained",
        "\n".join(words) or UNKNOWN,
        "The recipe as data:", block(recipe),
        f"The task {code(env.get('name', UNKNOWN))} with these options:", block(options),
        "Settings of the training:", block(config.get("settings", {})),
        *([secret] if untold else []),
    ]  # fmt: skip


SAID = {
    "plan": "Episodes are explored by", "by": "Compared are rows with the same", "credit": "The credit is",
    "center": "The baseline is", "scale": "The scale is", "select": "Trained on are the rows chosen by",
    "loss": "The loss is", "aggregate": "It is averaged by",
}  # fmt: skip
"""Parts of a recipe with their words in the card, in the order of the cells."""


def _part(value: Any) -> str:
    if isinstance(value, Mapping):
        held = ", ".join(f"{key}={_plain(one)}" for key, one in value.items() if key != "is")
        return code(f"{value.get('is', 'part')}({held})")
    return ", ".join(map(code, value)) if isinstance(value, list) else code(value)


def _plain(value: Any) -> str:
    return str(value.get("is", "...")) if isinstance(value, Mapping) else str(value)


def _numbers(run: Run, step: int) -> list[str]:
    curve = run_curve(run) if run.steps else pd.DataFrame(columns=["step", "tokens"])
    made = curve[curve["step"] < step]
    tokens = f"{int(made['tokens'].iloc[-1]):,}" if len(made) == step > 0 else UNKNOWN
    return [
        "## What it came to",
        f"{step} training steps, seed {code(run.config['seed'])}, {tokens} sampled tokens.",
        *_scores(run, step),
        *_rewards(run, step),
    ]


def _scores(run: Run, step: int) -> list[str]:
    """Report held-out scores at the first and at the last scored step up to the checkpoint."""
    steps = [one for one in scored_steps(run) if one <= step]
    if not steps:
        return ["Held-out scores: unknown; none were kept with the run."]
    parts = {part.step: part for part in run.parts(SCORES)}
    found = {one: read_table(parts[one]) for one in dict.fromkeys((steps[0], steps[-1]))}
    rows, own = [], []
    for one, scores in found.items():
        [mean] = mean_scores(scores.assign(step=one)).to_dict("records")
        rows.append(
            [_when(one, step), str(scores["task"].nunique()), f"{mean['success']:.3f}", f"{mean['return']:.3f}"]
        )
        if "own_return" in scores:
            own.append(scores.groupby("agent", sort=False)["own_return"].mean().rename(_when(one, step)))
    settings = run.config.get("settings", {})
    how = (
        "Success and return are means over the tasks of the split `test`, "
        f"{code(settings['score_episodes'])} episodes each"
        if settings.get("score_every") or settings.get("score_at")
        else "They were kept with the run by hand; on which tasks and how many episodes is unknown"
    )
    text = ["Held-out scores:", table(["", "tasks", "success", "return"], rows), f"{how}. One training, one seed: "
            "what another seed would come to is not in these numbers."]  # fmt: skip
    if own:
        told = pd.concat(own, axis=1)
        rows = [[code(agent), *(f"{value:.3f}" for value in values)] for agent, values in
                zip(told.index, told.to_numpy(), strict=True)]  # fmt: skip
        text += ["What each agent earned on them (its own return, the mean over the tasks):",
                 table(["agent", *told.columns], rows)]  # fmt: skip
    return text


def _when(one: int, step: int) -> str:
    return "before training" if one == 0 else f"after step {one}" + ("" if one == step else ", not the last")


def _rewards(run: Run, step: int) -> list[str]:
    """Report each agent's mean reward and credit in the first and in the last training step."""
    if not 0 < step <= run.steps:
        return [f"Rewards while training: {UNKNOWN}."]
    steps = sorted({0, step - 1})
    names = ["agent", "local_reward", "credit"]
    held = [run.step_turns(one).reindex(columns=names).groupby("agent", sort=False).mean() for one in steps]
    agents = dict.fromkeys(agent for one in held for agent in one.index)
    rows = [
        [code(agent), *(f"{one[name].get(agent, float('nan')):.3f}" for one in held for name in names[1:])]
        for agent in agents
    ]
    columns = [f"{said}, step {one + 1}" for one in steps for said in ("own reward", "credit")]
    return ["Means per call in the training's own episodes:", table(["agent", *columns], rows)]


def _provenance(config: Mapping[str, Any], team: Mapping[str, Any]) -> list[str]:
    versions = ", ".join(f"{code(name)} {code(version)}" for name, version in config.get("versions", {}).items())
    forked = config.get("forked")
    lines = [
        f"- Versions: {versions or UNKNOWN}",
        f"- Code digest of mas_lab: {code(config['code']) if config.get('code') else UNKNOWN}",
        f"- Threads of torch: {code(config['threads']) if config.get('threads') else UNKNOWN}",
        f"- Device: {code(config['device']) if config.get('device') else UNKNOWN}",
        f"- Ranks: {code(config['ranks']) if config.get('ranks') else UNKNOWN}",
        *(f"- {one}" for one in _continued(config)),
        *([f"- Went on from another run after its step {code(forked['step'])}"] if forked else []),
        f"- sha256 of every file: `team.json`; {len(team['policies'])} sets of weights",
    ]
    return ["## Provenance", "\n".join(lines)]


def _continued(config: Mapping[str, Any]) -> list[str]:
    """Describe each later change of code, versions or devices, with its first step."""
    lines = []
    for one in config.get("continued", ()):
        other = {name: value for name, value in {**one, **one.get("versions", {})}.items() if name not in OF_AN_ENTRY}
        told = ", ".join(f"{name} {code(value)}" for name, value in other.items())
        lines.append(f"From step {one['step']} on: {told}")
    return lines


def _limits(team: Mapping[str, Any]) -> list[str]:
    text = (
        "It was trained for this task and this reward, and nothing else of it was measured: not how it answers other "
    )
    text += "prompts, nor how safe its answers are."
    if any(one["base"]["kind"] == "pocket" for one in team["policies"].values()):
        text += " A pocket model knows the words of its own task; elsewhere it is of no use."
    return ["## Limits", text]
