"""Texts of a handed-over folder: the bridge file, the check, the configuration, the README.

Leaves out: the facts about a run (`trainers`).
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pprint import pformat
from typing import Any

import yaml

from mas_lab.bridges.export_reader import BATCH, BRIDGE, CLOSE, FILE
from mas_lab.bridges.trainers import Asked, Setting

NAMES = {"slime": "slime 0.3.1", "verl": "verl 0.9.1"}
"""Versions that the bridges are written for."""

CHECK = f'''"""Does the trainer give the advantages that the run recorded? Run it before any training."""

from {BRIDGE} import check

print(check())
'''

HEADS = {
    "slime": "# The recipe in slime's flags; source it and add \"${MAS_LAB_ARGS[@]}\" to train.py's arguments.\n",
    "verl": "# The recipe in verl's words, on top of verl's own defaults.\nhydra:\n  searchpath: [pkg://verl.trainer.config]\n"
    "defaults: [ppo_trainer, _self_]\n\n",
}  # fmt: skip


def flags(settings: Sequence[Setting]) -> str:
    """Return the settings as a bash array, with a comment on each line."""
    lines = [f"  {name}{'' if value is True else ' ' + _quoted(value)}  # {what}" for name, value, what in settings]
    return "MAS_LAB_ARGS=(\n" + "\n".join(lines) + "\n)\n"


def _quoted(value: Any) -> str:
    text = str(value)
    return f'"{text}"' if text.startswith("$MAS_LAB_FOLDER/") else shlex.quote(text)


def nested(settings: Sequence[Setting]) -> dict[str, Any]:
    """Return settings with dotted names as nested dictionaries."""
    tree: dict[str, Any] = {}
    for name, value, _ in settings:
        *path, last = name.split(".")
        inner = tree
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return tree


def commented(settings: Sequence[Setting]) -> str:
    """Return the settings as YAML, with a comment on each value."""
    what = {name: comment for name, _, comment in settings}

    def lines(tree: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[str]:
        for key, value in tree.items():
            indent = "  " * len(path)
            if isinstance(value, dict):
                yield f"{indent}{key}:"
                yield from lines(value, (*path, key))
            else:
                yield f"{indent}{_scalar(key, value)}  # {what['.'.join((*path, key))]}"

    return "\n".join(lines(nested(settings))) + "\n"


def _scalar(key: str, value: Any) -> str:
    return yaml.safe_dump({key: value}, allow_unicode=True, width=10**6).strip()


def bridge(to: str, own: Mapping[str, Any] | None) -> str:
    """Return the text of the bridge file, which imports code and defines none.

    `own` is the description of a user-defined env; `None` for an env of the kit.
    """
    given, lines = "", ["from pathlib import Path", ""]
    if own is not None:
        module, _, kind = own["name"].partition(":")
        lines += [f"from {module} import {kind}", ""]
        options = pformat({name: value for name, value in own.items() if name != "name"}, width=100, sort_dicts=False)
        given = f", env={kind}(**OPTIONS)"
    else:
        options = ""
    lines += {
        "slime": ["from mas_lab.bridges.slime import Bridge"],
        "verl": ["from mas_lab.bridges import verl"],
    }[to]
    lines += ["", "FOLDER = Path(__file__).parent", *([f"OPTIONS = {options}"] if options else [])]
    lines += {
        "slime": [
            f"_bridge = Bridge(FOLDER{given})",
            "generate = _bridge.generate  # --custom-generate-function-path",
            "rewards = _bridge.rewards  # --custom-reward-post-process-path",
            "check = _bridge.check",
        ],
        "verl": [
            f"verl.connect(FOLDER{given})  # VERL_USE_EXTERNAL_MODULES has every worker do so",
            "check = verl.check",
        ],
    }[to]  # fmt: skip
    head = f'"""What {to} imports: the env and the recipe of this folder, in mas_lab\'s own code."""'
    return "\n".join([head, "", *lines]) + "\n"


def readme(to: str, asked: Asked, rows: int, steps: int) -> str:
    """Return the README: the files, the commands, and the differences from the run."""
    about, model = COMMANDS[to], asked.model or "the run's model, in Hugging Face format"
    config = {"slime": "flags.sh", "verl": "verl.yaml"}[to]
    notes = "\n".join(f"- {note}" for note in [*_notes(asked), *NOTES[to]])
    return f"""# A run of mas_lab, for {to}

Recipe `{asked.recipe.name}`, written against {NAMES[to]}. Model: {model}.

| file | what it is |
|---|---|
| `{FILE}` | the recipe as data, the env's options, sampling, frozen agents |
| `train.parquet`, `test.parquet` | the tasks of the run's {steps} steps, in their order, and those it is scored on |
| `{BRIDGE}.py` | what {to} imports; it imports mas_lab, which is to be installed beside {to} |
| `{config}` | the settings, a comment on each line |
| `{BATCH}`, `check.py` | the run's last step, {rows} rows with their advantages: {to} must give the same to {CLOSE:g} |

```sh
{about}```

## What is not the same there

{notes}
"""


def _notes(asked: Asked) -> list[str]:
    notes = [
        "The draws: tokens come from the trainer's engine, whose random numbers are its own.",
        "The optimizer's other settings (betas, weight decay, warm-up, precision) are the trainer's defaults.",
    ]
    schedule = asked.settings.get("schedule", "constant")
    if schedule != "constant":
        notes.append(f"The learning rate is constant; the run's schedule, {schedule!r}, is not handed over.")
    if asked.settings.get("minibatches", 1) > 1:
        notes.append("Minibatches are cut by the trainer: a node's candidates may fall into different ones.")
    return notes


COMMANDS = {
    "slime": """export MAS_LAB_FOLDER="$PWD" PYTHONPATH="$PWD:$PYTHONPATH"
python check.py                              # first: the advantages are those of the run
source flags.sh                              # MAS_LAB_ARGS; MODEL_ARGS are slime's own, of your model and cluster
python /path/to/slime/train.py "${MODEL_ARGS[@]}" "${MAS_LAB_ARGS[@]}"
""",
    "verl": """export MAS_LAB_FOLDER="$PWD" MAS_LAB_MODEL=/path/to/model PYTHONPATH="$PWD:$PYTHONPATH"
export VERL_USE_EXTERNAL_MODULES=mas_lab_bridge
python check.py                              # first: the advantages are those of the run
python -m verl.trainer.main_ppo --config-path "$PWD" --config-name verl trainer.n_gpus_per_node=8
""",
}

NOTES = {
    "slime": [
        "Leave `--partial-rollout`, `--normalize-advantages`, `--kl-coef` and `--group-rm` out: each would change rows "
        "or advantages after they are judged.",
        "slime counts an episode as one of its rollouts, and cuts a batch by these.",
        "A row that the recipe does not train on is sent with `remove_sample`, so that it is in no mean.",
    ],
    "verl": [
        "verl writes the last row's reward over all rows of an episode. The recipe reads each row's own reward from "
        "`extra_fields`, so that this changes verl's charts and nothing else.",
        "Padding rows join the batch before advantages. They are left out of the recipe and get 0; in means over rows "
        "(`seq-mean-...`) verl counts them.",
        "Leave `algorithm.use_kl_in_reward`, `algorithm.filter_groups` and the asynchronous trainers out.",
        "The trainer, its agent loop and its optimizer steps were not run on GPUs by those who wrote this.",
    ],
}
