"""Export of a run: one zip to hand in, or a folder from which verl continues.

The folder holds the recipe, the env, the tasks, a configuration, and a bridge file that imports this kit. It also holds
one recorded step, whose advantages verl must reproduce. A run that verl cannot continue in the same way is refused,
with the reason. Leaves out: verl's settings (`settings`), and how the folder is used there (`reader`).
"""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from mas_lab.arguments import check_arguments
from mas_lab.contrib.verl.reader import BATCH, BRIDGE, FILE, HandOverError, VerlFolder, recorded_rows
from mas_lab.contrib.verl.settings import BRIDGE_FILE, RunFacts, readme, refusals, verl_settings
from mas_lab.env import Env, Task, max_tokens, spec, with_max_turns
from mas_lab.runs.disk import RunError, Unwritten, atomic, dumps, remedy, write_bytes, write_json, write_table, writing
from mas_lab.runs.manifest import MANIFEST, Part, digest, manifest_of
from mas_lab.runs.run import TOKENS, WATCH, Run, load_run
from mas_lab.table import ROLLOUT
from mas_lab.tasks import ENVS, make_env
from mas_lab.train.drawing import drawn, step_seed, tasks_of
from mas_lab.train.held_out import SPLIT
from mas_lab.train.settings import Settings


def export(run: Run | str | Path, path: str | Path, to: str | None = None, env: Env | None = None) -> Path:
    """Write a run as one file to hand in, or as a folder for verl.

    The file is a zip with the run's tables and description, without weights. It also holds the records of a
    `SpikeWatch` and the text of every sampled token, for the instruments.

    With `to="verl"`, the result is a folder from which verl continues by the same recipe. Its README.md has the
    commands.

    Args:
        run: A `Run`, or the path of a run's folder or zip.
        path: The file or the new folder to write.
        to: "verl" for a folder. `None`: a zip.
        env: The run's env, needed with `to` if it is your own class. `None`: an env of the kit, made by its name.

    Returns:
        The path of the file or folder.

    Raises:
        HandOverError: verl cannot do what the run does (the message has the reasons), or the folder has files.
        RunError: The run cannot be read, or the disk cannot be written.
        ValueError: The arguments do not fit together, or a part of the recipe is your own.
    """
    check_arguments(export, locals())
    if to is None and env is not None:
        raise ValueError("export: env= is for to='verl'; a zip holds no env")
    if to not in (None, "verl"):
        raise ValueError(f"export: to={to!r}; known is 'verl', or leave it out for a zip")
    if to is None and Path(path).suffix != ".zip":
        raise ValueError(f"export: path={str(path)!r}; a run becomes a zip, so give a name that ends in .zip")
    run, path = run if isinstance(run, Run) else load_run(run), Path(path)
    if to == "verl":
        return _hand_over(run, path, env)
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path) as staged, zipfile.ZipFile(staged, "w", zipfile.ZIP_DEFLATED) as archive:
            _write_zip(run, archive)
    except Unwritten as error:
        raise RunError(f"{error}; the run is as it was: {remedy(error)}, or choose another place") from error
    return path


def _write_zip(run: Run, archive: zipfile.ZipFile) -> None:
    files, continued = dict(run.manifest.files), run.manifest.continued
    own = {WATCH: run.watched(), TOKENS: run.token_texts()}
    replaced = {name: dumps(data, run.folder / name).encode() for name, data in own.items() if data}
    for name, sha256 in files.items():
        if name not in replaced:
            archive.writestr(name, Part(run.folder, name, sha256).read_bytes())
    for name, data in replaced.items():
        archive.writestr(name, data)
        files[name] = digest(data)
    archive.writestr(MANIFEST, manifest_of(files, continued))


def _hand_over(run: Run, folder: Path, env: Env | None) -> Path:
    """Write the folder; raise HandOverError and write nothing if the run is refused or `folder` has files."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise HandOverError(f"export: {folder} is there already; name a new folder")
    if not run.steps:
        raise HandOverError(f"export: {run.folder} has made no step yet, so that there is none to compare with")
    config, turns = run.config, run.step_turns(run.steps - 1)
    env, settings = _env_of(config["env"], env), Settings.of(config["settings"])
    team, env = config["team"], with_max_turns(env, settings.max_turns)
    facts = RunFacts(
        run.recipe, settings, team["policies"], {agent: team["sampling"][agent] for agent in env.agents},
        prompt=2 * int(turns["prompt_ids"].map(len).max()),
        answer=max(team["sampling"][agent]["max_tokens"] or max_tokens(env, agent) for agent in env.agents),
        curriculum=config.get("curriculum"),
    )  # fmt: skip
    if reasons := list(refusals(facts)):
        raise HandOverError("\n- ".join([f"export: {run.folder} cannot be handed over to verl:", *reasons]))
    with atomic(folder, is_folder=True) as staged:
        _write_data(staged, config, facts, turns)
        _write_tasks(staged, config["seed"], settings, env, run.steps)
        written = VerlFolder(staged)  # read back: what a file cannot hold, such as an env of a notebook, ends here
        written.compare(written.advantages(recorded_rows(written.batch()))["advantage"].tolist())
        files = {
            f"{BRIDGE}.py": BRIDGE_FILE,
            "verl.yaml": yaml.safe_dump(verl_settings(facts), sort_keys=False),
            "README.md": readme(facts, config["env"]["name"], len(turns), run.steps),
        }
        for name, text in files.items():
            write_bytes(staged / name, text.encode())
    return folder


def _env_of(description: Mapping[str, Any], env: Env | None) -> Env:
    name = description["name"]
    if ":" not in name and name not in ENVS:  # a program, or an env that a function made
        raise HandOverError(f"export: the run's env, {name!r}, is none that a bridge file can make: give it a class")
    if env is None and ":" in name:
        raise HandOverError(f"export: the run's env, {name!r}, is your own: give it, as env=")
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
    trained = [task for one in seeds for task in drawn(env, None, settings.tasks, settings.split, one)]
    scored = tasks_of(env, settings.score_tasks, SPLIT, seed if settings.score_seed is None else settings.score_seed)
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
