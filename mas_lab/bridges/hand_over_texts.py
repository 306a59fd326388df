"""Texts of a handed-over folder: the bridge file, the check and the README.

Leaves out: the facts about a run (`verl_settings`).
"""

from collections.abc import Iterator

from mas_lab.bridges.export_reader import BATCH, BRIDGE, CLOSE, FILE
from mas_lab.bridges.verl_settings import Asked

BRIDGE_FILE = '''"""What verl imports: the env and the recipe of this folder, in mas_lab's own code."""

from pathlib import Path

from mas_lab.bridges import verl

verl.connect(Path(__file__).parent)  # VERL_USE_EXTERNAL_MODULES has every worker do so
check = verl.check
'''

CHECK = f'''"""Does verl give the advantages that the run recorded? Run it before any training."""

from {BRIDGE} import check

print(check())
'''


def readme(asked: Asked, env: str, rows: int, steps: int) -> str:
    """Return the README: the files, the commands, and the differences from the run.

    `env` is the name of the env, `rows` the size of the recorded batch, and `steps` the number of steps of the run.
    """
    model = asked.model or "the run's model, in Hugging Face format"
    own = f", and so is the module of the env `{env}`" if ":" in env else ""
    notes = "\n".join(f"- {note}" for note in _notes(asked))
    return f"""# A run of mas_lab, for verl

Recipe `{asked.recipe.name}`, written against verl 0.9.1. Model: {model}.

| file | what it is |
|---|---|
| `{FILE}` | the recipe as data, the env's options, sampling, frozen agents |
| `train.parquet`, `test.parquet` | the tasks of the run's {steps} steps, in their order, and those it is scored on |
| `{BRIDGE}.py` | what verl imports; mas_lab is to be installed beside verl{own} |
| `verl.yaml` | the settings, on top of verl's own |
| `{BATCH}`, `check.py` | the run's last step, {rows} rows with their advantages: verl must give the same to {CLOSE:g} |

```sh
export MAS_LAB_FOLDER="$PWD" MAS_LAB_MODEL=/path/to/model PYTHONPATH="$PWD:$PYTHONPATH"
export VERL_USE_EXTERNAL_MODULES={BRIDGE}
python check.py                              # first: the advantages are those of the run
python -m verl.trainer.main_ppo --config-path "$PWD" --config-name verl trainer.n_gpus_per_node=8
```

## What is not the same there

{notes}
"""


def _notes(asked: Asked) -> Iterator[str]:
    settings = asked.settings
    yield "The draws: tokens come from verl's engine, whose random numbers are its own."
    yield "The optimizer's other settings (betas, weight decay, warm-up, precision) are verl's defaults."
    if settings.schedule != "constant":
        yield f"The learning rate is constant; the run's schedule, {settings.schedule!r}, is not handed over."
    if settings.minibatches > 1:
        yield "Minibatches are cut by verl: a node's candidates may fall into different ones."
    yield "Leave `algorithm.use_kl_in_reward`, `algorithm.filter_groups` and the asynchronous trainers out."
    yield "docs/hand_over.md of mas_lab says how a row gets to the recipe, and what was tried: nothing on GPUs."
