"""Hand a run over to verl, as a folder from which verl continues by the same recipe.

The folder holds the recipe, the env, the tasks and a configuration. It also holds one recorded step, whose advantages
verl must reproduce. A run that verl cannot continue in the same way is refused, with the reason. Leaves out: verl's
settings (`settings`), and how the folder is used there (`reader`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from mas_lab.arguments import check_arguments
from mas_lab.contrib.verl.reader import BATCH, FILE, HandOverError, VerlFolder, recorded_rows
from mas_lab.contrib.verl.settings import RunFacts, readme, refusals, verl_settings
from mas_lab.env import Env, Task, max_tokens, spec, with_max_turns
from mas_lab.runs.disk import atomic, dumps, write_bytes, write_json, write_table
from mas_lab.runs.run import Run, load_run
from mas_lab.table import ROLLOUT
from mas_lab.tasks import make_env
from mas_lab.train.hooks import SPLIT
from mas_lab.train.progress import drawn, step_seed, tasks_of
from mas_lab.train.settings import Settings


def export(run: Run | str | Path, path: str | Path, env: Env | None = None) -> Path:
    """Write a run as a folder from which verl continues by the same recipe; its README.md has the commands.

    Args:
        run: A `Run`, or the path of a run's folder or zip.
        path: The new folder to write.
        env: The run's env, needed if it is your own class. `None`: an env of the kit, made by its name.

    Returns:
        The path of the folder.

    Raises:
        HandOverError: verl cannot do what the run does (the message has the reasons), or the folder has files.
        RunError: The run cannot be read, or the disk cannot be written.
        ValueError: A part of the recipe is your own.
    """
    check_arguments(export, locals())
    run, folder = run if isinstance(run, Run) else load_run(run), Path(path)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise HandOverError(f"export: {folder} is there already; name a new folder")
    if not run.steps:
        raise HandOverError(f"export: {run.folder} has made no step yet, so that there is none to compare with")
    config, turns = run.config, run.step_turns(run.steps - 1)
    settings, team = Settings.of(config["settings"]), config["team"]
    env = with_max_turns(_env_of(config["env"], env), settings.max_turns)
    sampling = {agent: team["sampling"][agent] for agent in env.agents}
    prompt = 2 * int(turns["prompt_ids"].map(len).max())
    answer = max(sampling[agent]["max_tokens"] or max_tokens(env, agent) for agent in env.agents)
    facts = RunFacts(run.recipe, settings, team["policies"], sampling, prompt, answer, config.get("curriculum"))
    if reasons := refusals(facts):
        raise HandOverError("\n- ".join([f"export: {run.folder} cannot be handed over to verl:", *reasons]))
    with atomic(folder, is_folder=True) as staged:
        _write_data(staged, config, facts, turns)
        _write_tasks(staged, config["seed"], settings, env, run.steps)
        written = VerlFolder(staged)  # read back: what a file cannot hold, such as an env of a notebook, ends here
        written.compare(written.advantages(recorded_rows(written.batch()))["advantage"].tolist())
        write_bytes(staged / "verl.yaml", yaml.safe_dump(verl_settings(facts), sort_keys=False).encode())
        write_bytes(staged / "README.md", readme(facts, config["env"]["name"], len(turns)).encode())
    return folder


def _env_of(description: Mapping[str, Any], env: Env | None) -> Env:
    if env is None and ":" in description["name"]:
        raise HandOverError(f"export: the run's env, {description['name']!r}, is your own: give it, as env=")
    env = make_env(**description) if env is None else env
    if spec(env) != description:
        raise HandOverError(f"export: the run was made on {description}, and this env is {spec(env)}")
    return env


def _write_data(folder: Path, config: Mapping[str, Any], facts: RunFacts, turns: pd.DataFrame) -> None:
    """Write the description of the run, and its last step with the advantages that it was trained on."""
    description = {
        "env": config["env"], "recipe": config["recipe"], "sampling": facts.sampling, "seed": config["seed"],
        "frozen": config["team"]["frozen"], "template": facts.policy.get("template", {}),
        "max_turns": facts.settings.max_turns, "minibatches": facts.settings.minibatches,
    }  # fmt: skip
    write_json(folder / FILE, description)
    learns = ~turns["agent"].isin(description["frozen"]) & ~turns["probe"].astype(bool)
    columns = [name for name in ROLLOUT if name in turns.columns]
    write_table(folder / BATCH, turns[columns].assign(advantage=turns["advantage"].where(learns, 0.0)))


def _write_tasks(folder: Path, seed: int, settings: Settings, env: Env, steps: int) -> None:
    """Write the tasks of the run's steps, in their order, and the tasks that it is scored on."""
    seeds = [step_seed(seed, step) for step in range(steps)]
    trained = [task for one in seeds for task in drawn(env, None, settings.tasks, "train", one)]
    scored = tasks_of(env, settings.score_tasks, SPLIT, seed)
    for name, tasks in (("train", trained), ("test", scored)):
        rows = [_task_row(env, task, number) for number, task in enumerate(tasks)]
        write_table(folder / f"{name}.parquet", pd.DataFrame(rows))


def _task_row(env: Env, task: Task, number: int) -> dict[str, Any]:
    state = env.start(task)
    heard = env.observe(state, env.acting(state)[0])
    written = dumps({"id": task.id, "data": task.data}, Path(f"task {task.id!r}"))
    return {
        "data_source": getattr(env, "name", type(env).__name__),
        "prompt": [{"role": one["role"], "content": one["content"] or ""} for one in heard],
        "reward_model": {"style": "rule", "ground_truth": ""},  # verl requires it; the env computes rewards
        "extra_info": {"index": number, "task": written},
    }
