"""Handing a run over to another trainer, slime or verl, as a folder.

The folder holds the recipe, the env, the tasks, a configuration, and a bridge file that imports this kit. It also holds
one recorded step, whose advantages the trainer must reproduce. A run that the trainer cannot continue in the same way
is refused, with the reason. Leaves out: the trainer's settings (`trainers`), and how the folder is used there
(`handed`).
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from mas_lab.backends.runner import max_tokens, with_max_turns
from mas_lab.bridges import hand_over_texts as texts
from mas_lab.bridges.export_reader import BATCH, BRIDGE, FILE, Handed, HandOverError, recorded_rows
from mas_lab.bridges.program import ProgramEnv
from mas_lab.bridges.trainers import WORDS, Asked, refusals
from mas_lab.env import Env, Task, spec
from mas_lab.runs.disk import dumps, whole_folder, write_bytes, write_json, write_table
from mas_lab.runs.export import export as export_file
from mas_lab.runs.run import Run, load_run
from mas_lab.table import ROLLOUT
from mas_lab.tasks import ENVS, make_env
from mas_lab.train.drawing import drawn, step_seed, tasks_of
from mas_lab.train.held_out import SPLIT
from mas_lab.train.settings import Settings

CONFIGS = {"slime": "flags.sh", "verl": "verl.yaml"}
OWN = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
"""Name of a user-defined env that a bridge file can import, `module:Class`."""


def export(run: Run | str | Path, path: str | Path, to: str | None = None, env: Env | None = None) -> Path:
    """Write a run as one file to hand in, or as a folder for another trainer.

    By default, the file is a zip with the run's tables and description, without weights. It also holds the records of a
    `SpikeWatch` and the text of every sampled token, for the instruments.

    With `to`, the result is a folder from which that trainer continues by the same recipe. Its README.md has the
    commands.

    Args:
        run: A `Run`, or the path of a run's folder or zip.
        path: The file or the new folder to write.
        to: "slime" or "verl" for a folder. `None`: a zip.
        env: The run's env, needed with `to` if it is your own class. `None`: an env of the kit, made by its name.

    Returns:
        The path of the file or folder.

    Raises:
        HandOverError: The trainer cannot do what the run does (the message has the reasons), or the folder has files.
        RunError: The run cannot be read, or the disk cannot be written.
        ValueError: `to` is unknown, or `env` is given for a zip.
    """
    if to is None:
        if env is not None:
            raise ValueError("export: env= is for to='slime' or to='verl'; a zip holds no env")
        return export_file(run, path)
    if to not in CONFIGS:
        raise ValueError(f"export: to={to!r}; known are {', '.join(CONFIGS)}, or leave it out for a zip")
    return hand_over(run if isinstance(run, Run) else load_run(run), Path(path), to, env)


def hand_over(run: Run, folder: Path, to: str, env: Env | None = None) -> Path:
    """Write the folder; raise HandOverError and write nothing if the run is refused or `folder` has files."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise HandOverError(f"export: {folder} is there already; name a new folder")
    config = run.config
    env = _env_of(config, env)
    turns = run.step_turns(run.steps - 1) if run.steps else None
    if turns is None:
        raise HandOverError(f"export: {run.folder} has made no step yet, so that there is none to compare with")
    asked = _asked(run, config, env, turns)
    if reasons := [*_refused_here(config, env), *refusals(asked, to)]:
        lines = "".join(f"\n- {reason}" for reason in reasons)
        raise HandOverError(f"export: {run.folder} cannot be handed over to {to}:{lines}")
    with whole_folder(folder) as staged:
        _write(staged, config, asked, env, turns, run.steps, to)
    return folder


def _write(
    folder: Path, config: Mapping[str, Any], asked: Asked, env: Env, turns: pd.DataFrame, steps: int, to: str
) -> None:
    _write_data(folder, config, asked, turns)
    _write_tasks(folder, config, env, steps, to)
    own = ":" in config["env"]["name"]
    handed = Handed(folder, env if own else None)
    handed.compare(handed.advantages(recorded_rows(handed.batch()))["advantage"].tolist())
    settings = WORDS[to](asked)
    files = {
        f"{BRIDGE}.py": texts.bridge(to, config["env"] if own else None),
        "check.py": texts.CHECK,
        CONFIGS[to]: texts.HEADS[to] + (texts.flags(settings) if to == "slime" else texts.commented(settings)),
        "README.md": texts.readme(to, asked, len(turns), steps),
    }
    for name, text in files.items():
        write_bytes(folder / name, text.encode())


def _env_of(config: Mapping[str, Any], env: Env | None) -> Env:
    said = config["env"]
    name = said.get("name", "")
    if name == ProgramEnv.name or hasattr(env, "played"):
        raise HandOverError("export: the run's env is a program, which plays itself; the trainer would have to run it")
    if ":" not in name and name not in ENVS:
        raise HandOverError(f"export: the run's env, {name!r}, is none that a bridge file can make: give it a class")
    if env is None and ":" in name:
        raise HandOverError(f"export: the run's env, {name!r}, is your own: give it, as env=")
    env = make_env(**said) if env is None else env
    if spec(env) != said:
        raise HandOverError(f"export: the run was made on {said}, and this env is {spec(env)}")
    return with_max_turns(env, Settings.of(config["settings"]).max_turns)


def _asked(run: Run, config: Mapping[str, Any], env: Env, turns: pd.DataFrame) -> Asked:
    try:
        recipe = run.recipe
    except ValueError as error:  # the recipe has a user-defined part
        raise HandOverError(f"export: {run.folder}: {error}") from error
    try:
        team, chosen = config["team"], Settings.of(config["settings"])
        answers = [team["sampling"][agent]["max_tokens"] or max_tokens(env, agent) for agent in env.agents]
        return Asked(
            recipe, asdict(chosen), team["policies"], {agent: team["sampling"][agent] for agent in env.agents},
            prompt=2 * int(turns["prompt_ids"].map(len).max()), answer=max(answers),
        )  # fmt: skip
    except (KeyError, TypeError, AttributeError) as error:
        raise HandOverError(f"export: {run.folder}: run.json does not say what its team was ({error!r})") from error


def _refused_here(config: Mapping[str, Any], env: Env) -> list[str]:
    reasons = []
    if config.get("curriculum") is not None:
        reasons.append("its tasks are drawn by a curriculum, and a folder holds them drawn")
    name, options = config["env"]["name"], {key: one for key, one in config["env"].items() if key != "name"}
    if ":" in name and not OWN.fullmatch(name):
        reasons.append(f"its env, {name!r}, has no name that a file can import; let it stand in a module")
    elif ":" in name and (strange := [key for key, one in options.items() if not _is_plain(env, key, one)]):
        reasons.append(f"its env's {strange[0]!r} is no plain data, so that a file cannot hold it")
    return reasons


def _is_plain(env: Env, name: str, value: Any) -> bool:
    """Return whether an option of the env equals its description after a round trip through JSON."""
    try:
        return json.loads(json.dumps(getattr(env, name))) == value
    except (AttributeError, TypeError, ValueError):
        return False


def _write_data(folder: Path, config: Mapping[str, Any], asked: Asked, turns: pd.DataFrame) -> None:
    said = {
        "env": config["env"], "recipe": config["recipe"], "sampling": asked.sampling, "seed": config["seed"],
        "frozen": config["team"]["frozen"], "template": asked.policy.get("template", {}),
        "max_turns": asked.settings.get("max_turns"), "minibatches": asked.settings.get("minibatches", 1),
        "made_by": config.get("versions", {}).get("mas-lab"),
    }  # fmt: skip
    write_json(folder / FILE, said)
    columns = [name for name in ROLLOUT if name in turns.columns]
    kept = turns[columns].assign(advantage=turns["advantage"])
    learns = ~kept["agent"].isin(said["frozen"]) & ~kept["probe"].astype(bool)
    if "selected" in turns.columns:
        learns &= turns["selected"].astype(bool)
    write_table(folder / BATCH, kept.assign(advantage=kept["advantage"].where(learns, 0.0)))


def _write_tasks(folder: Path, config: Mapping[str, Any], env: Env, steps: int, to: str) -> None:
    """Write the tasks of the run's steps, in their order, and the tasks that it is scored on."""
    chosen, seed = Settings.of(config["settings"]), config["seed"]
    trained = [
        task
        for step in range(steps)
        for task in drawn(env, None, chosen.tasks, chosen.split, step_seed(seed, step))
    ]  # fmt: skip
    held = tasks_of(env, chosen.score_tasks, SPLIT, seed if chosen.score_seed is None else chosen.score_seed)
    for name, tasks in (("train", trained), ("test", held)):
        rows = [_task_row(env, task, number, to) for number, task in enumerate(tasks)]
        write_table(folder / f"{name}.parquet", pd.DataFrame(rows))


def _task_row(env: Env, task: Task, number: int, to: str) -> dict[str, Any]:
    state = env.start(task)
    heard = env.observe(state, env.acting(state)[0])
    prompt = [{"role": one["role"], "content": one["content"] or ""} for one in heard]
    written = dumps({"id": task.id, "data": task.data}, Path(f"task {task.id!r}"))
    if to == "slime":
        return {"prompt": prompt, "metadata": {"task": written}}
    truth = {"style": "rule", "ground_truth": ""}  # verl requires the column; the env computes rewards
    return {"data_source": getattr(env, "name", type(env).__name__), "prompt": prompt, "reward_model": truth,
            "extra_info": {"index": number, "task": written}}  # fmt: skip
