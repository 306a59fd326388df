"""Define what a study compares: arms on tasks over seeds. Each cell is the config of one training.

A design is plain data, besides parts that a notebook defines: an env, a credit, a loss. Leaves out: training the cells
(`runner`), and the training of one cell (`cell`).
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from mas_lab.describe import describe, source_of
from mas_lab.env import Env, spec
from mas_lab.recipes import Recipe
from mas_lab.train.config import Config, ConfigError, read_env, read_yaml
from mas_lab.train.settings import Settings

OPTIONS = ("env", "team", "recipe", "settings", "budget", "quiz")
"""Keys that may be set for all cells, for a task, or for an arm. The later overrides the earlier."""
OF_TASK = (*OPTIONS, "arms", "seeds", "sweep", "rates")
OF_ALL = ("name", *OPTIONS, "tasks", "arms", "seeds", "sweep", "differ", "score", "codes")
SCORE_EVERY, UNSCORED = 0.25, 10**9
"""Default of `score_every`, which draws a curve, and the value in the digests of cells, since scores along the way
change no training and no final score."""


@dataclass(frozen=True)
class Cell:
    """One training of a study."""

    task: str
    arm: str
    seed: int
    lr: float | None
    """The learning rate that the sweep tries or has chosen; `None` if nothing was swept."""
    phase: str
    """Either "sweep" or "compare"."""
    config: Mapping[str, Any] = field(hash=False)
    """The training, in the form that `train.config` reads."""
    path: Path = field(default=Path(), compare=False)
    """The file that holds the design."""

    @property
    def called(self) -> dict[str, Any]:
        """Return the columns that name the cell in every table of a study."""
        return {name: getattr(self, name) for name in ("task", "arm", "phase", "lr", "seed")}

    @cached_property
    def digest(self) -> str:
        """Return a digest of the whole config; cells with equal configs have equal digests.

        It is computed once: playing may change an env that was passed as an object.
        """
        config = _scored(self.config, UNSCORED)
        return sha256(json.dumps(config, sort_keys=True, default=describe_with_source).encode()).hexdigest()[:10]

    @property
    def name(self) -> str:
        """Return the name of its run's folder."""
        words = re.sub(r"[^A-Za-z0-9.]+", "_", f"{self.task} {self.arm}").strip("_.")[:80]
        return f"{words}-{self.seed}-{self.digest}"

    def __str__(self) -> str:
        rate = "" if self.lr is None else f", lr {self.lr:g}"
        return f"{self.task}, {self.arm}{rate}, seed {self.seed}"

    def training(self) -> Config:
        return Config.of(_without_quiz(_scored(self.config, SCORE_EVERY)), self.path, self.task, self.arm)

    def quiz(self) -> Env | None:
        """Return the env that scores the team before and after training, or `None`, see `Study.agents`."""
        return read_env(self.config["quiz"], self.path.parent) if self.config.get("quiz") else None


def describe_with_source(part: Any) -> Any:
    """Return an env, a recipe, or a part of one as plain data, with the source of what a notebook or script defines.

    So a cell is trained anew after a change of the code.
    """
    parts = [part, *(vars(part).values() if isinstance(part, Recipe) else ())]
    kinds = [one if hasattr(one, "__qualname__") else type(one) for one in parts]
    own = [base for kind in kinds for base in getattr(kind, "__mro__", (kind,)) if base.__module__ == "__main__"]
    data = spec(part) if hasattr(part, "step") else describe(part)
    return {**data, "source": list(map(source_of, own))} if own else data


@dataclass(frozen=True)
class Design:
    """Arms on tasks over seeds; `Design.of` reads it from data, `Design.read` from a YAML file."""

    name: str
    tasks: Mapping[str, Mapping[str, Any]]
    """The options of each task, with its `arms`, `seeds` and `sweep`, or the design's."""
    arms: Mapping[str, Mapping[str, Any]]
    path: Path
    """The file that holds the design."""
    data: Mapping[str, Any]
    """The whole design as it was written."""

    @classmethod
    def read(cls, path: str | Path) -> "Design":
        return cls.of(read_yaml(Path(path)), Path(path))

    @classmethod
    def of(cls, data: Any, path: Path = Path("study"), sure: bool = True) -> "Design":
        """Return the design in `data`, or raise ConfigError, which names the place of an unknown or missing key.

        With `sure`, it also raises ConfigError for a cell that gives no training, and for an option in which arms
        differ although `differ` does not name it.
        """
        _check_keys(str(path), data, OF_ALL, ("name", "arms", "seeds"))
        if data.get("score", "success") not in ("success", "return"):
            raise ConfigError(f"{path}: score: {data['score']!r}; known are success, return")
        env = data.get("env")
        alone = env.get("name", "task") if isinstance(env, Mapping) else getattr(env, "name", env or "task")
        _check_keys(f"{path}: arms", data["arms"], tuple(data["arms"]))
        arms = {str(arm): own or {} for arm, own in data["arms"].items()}
        tasks = {str(task): own or {} for task, own in (data.get("tasks") or {alone: {}}).items()}
        for kind, parts, known in (("arms", arms, OPTIONS), ("tasks", tasks, OF_TASK)):
            for name, own in parts.items():
                _check_keys(f"{path}: {kind}.{name}", own, known)
        usual = {"arms": list(arms), "seeds": data["seeds"], "sweep": data.get("sweep")}
        tasks = {task: usual | own for task, own in tasks.items()}
        design = cls(str(data["name"]), tasks, arms, path, data)
        for task in design.tasks if sure else ():
            design._check(task)
        return design

    @property
    def score(self) -> str:
        """Return the score that is compared on held-out tasks: "success" or "return"."""
        return self.data.get("score", "success")

    def seeds_of(self, task: str) -> list[int]:
        return _seeds(self.tasks[task]["seeds"])

    def sweeps(self) -> list[Cell]:
        """Return the cells from which learning rates are chosen."""
        return [
            self._cell(task, arm, seed, "sweep", lr)
            for task, own in self.tasks.items() if self._rates_of(task) == task
            for arm in own["arms"] for lr in dict.fromkeys(map(float, own["sweep"]["lr"]))
            for seed in _seeds(own["sweep"]["seeds"])
        ]  # fmt: skip

    def comparisons(self, rates: Mapping[tuple[str, str], float]) -> list[Cell]:
        """Return the compared cells, earlier seeds first; `rates` maps each swept (task, arm) to its best rate."""
        return [
            self._cell(task, arm, seed, "compare", rates.get((swept, arm)))
            for task, own in self.tasks.items() for swept in [self._rates_of(task)]
            for seed in self.seeds_of(task) for arm in own["arms"] if swept is None or (swept, arm) in rates
        ]  # fmt: skip

    def _rates_of(self, task: str) -> str | None:
        """Return the task whose sweep gives a task its learning rates; `None` if nothing is swept."""
        own = self.tasks[task]
        return own.get("rates") or (task if own["sweep"] else None)

    def budget_of(self, task: str) -> Mapping[str, int]:
        """Return the budget of every arm on a task."""
        return self.options_of(task, self.tasks[task]["arms"][0])["budget"]

    def differences(self, task: str) -> dict[str, dict[str, Any]]:
        """Return options in which a task's arms differ, {dotted name: {arm: value}}, without name and swept rates."""
        options = {arm: dict(flat(self._resolved(task, arm))) for arm in self.tasks[task]["arms"]}
        names = dict.fromkeys(name for one in options.values() for name in one if name != "recipe.name")
        differ = {name: {arm: one.get(name) for arm, one in options.items()} for name in names}
        return {name: by_arm for name, by_arm in differ.items() if len(set(map(repr, by_arm.values()))) > 1}

    def options_of(self, task: str, arm: str) -> dict[str, Any]:
        """Return the config of an arm's trainings on a task, with `{seed}` as it was written."""
        options: dict[str, Any] = {"settings": {}}
        for one in (self.data, self.tasks.get(task, {}), self.arms[arm]):
            options = _merged(options, {key: one[key] for key in OPTIONS if key in one})
        return options

    def _resolved(self, task: str, arm: str) -> dict[str, Any]:
        """Return these options without the quiz, and with every field of the recipe and the settings."""
        options = _without_quiz(self.options_of(task, arm))
        made = Config.of(options, self.path, task, arm)
        return options | {"recipe": describe(made.recipe, "recipe"), "settings": asdict(Settings.of(made.settings))}

    def _cell(self, task: str, arm: str, seed: int, phase: str, lr: float | None) -> Cell:
        config = self.options_of(task, arm)
        team = json.dumps(config["team"] | ({} if lr is None else {"lr": lr})).replace("{seed}", str(seed))
        config |= {"team": json.loads(team), "seed": seed}
        return Cell(task, arm, seed, lr, phase, _without_quiz(config) if phase == "sweep" else config, self.path)

    def _check(self, task: str) -> None:
        """Raise ConfigError, with the place, if the task's cells give no trainings or no fair comparison."""
        own, allowed = self.tasks[task], self.data.get("differ")
        place = f"{self.path}: tasks.{task}"
        if strangers := set(own["arms"]) - set(self.arms):
            raise ConfigError(f"{place}.arms: there is no arm {strangers.pop()!r}; there are {', '.join(self.arms)}")
        if own["sweep"] and set(self.seeds_of(task)) & set(_seeds(own["sweep"]["seeds"])):
            raise ConfigError(f"{place}.sweep: it has a seed of the comparison, where the luckiest rate would look "
                              "better than it is; sweep over other seeds")  # fmt: skip
        for name, by_arm in self.differences(task).items():
            if allowed is not None and not any(f"{name}.".startswith(f"{one}.") for one in allowed):
                values = ", ".join(f"{arm}: {value!r}" for arm, value in by_arm.items())
                raise ConfigError(f"{place}: its arms differ in {name} too ({values}), and 'differ' names "
                                  f"{', '.join(allowed)} alone; make it equal, or name it there")  # fmt: skip


def _check_keys(place: str, data: Any, known: Sequence[str], needed: Sequence[str] = ()) -> None:
    """Raise ConfigError, naming the place, if a part of a design is no mapping of known keys with all needed ones."""
    if not isinstance(data, Mapping):
        raise ConfigError(f"{place}: {data!r}; give a mapping, whose keys may be {', '.join(known)}")
    wrong = [f"{key} is unknown" for key in data if key not in known]
    if wrong := wrong + [f"{key} is missing" for key in needed if key not in data]:
        raise ConfigError(f"{place}: {', '.join(wrong)}; known keys are {', '.join(known)}")


def _seeds(value: Any) -> list[int]:
    """Return the seeds 0 to n - 1 for a number n, or the seeds of a list."""
    return list(dict.fromkeys(range(value) if isinstance(value, int) else value))


def _without_quiz(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key != "quiz"}


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return `above` merged over `below`; another `name`, and any budget, replaces the old mapping as a whole."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        if key in ("env", "recipe", "quiz"):
            old, value = ({"name": one} if isinstance(one, str) else one for one in (old, value))
        joins = isinstance(old, Mapping) and isinstance(value, Mapping) and key != "budget"
        joins = joins and value.get("name", old.get("name")) == old.get("name")
        merged[key] = _merged(old, value) if joins else value
    return merged


def _scored(config: Mapping[str, Any], every: float) -> Mapping[str, Any]:
    """Return a config whose `score_every` is `every`, unless it says when to score."""
    settings = config["settings"]
    return config if settings.get("score_at") else {**config, "settings": {"score_every": every} | settings}


def flat(data: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the options in nested mappings by dotted names."""
    if isinstance(data, Mapping) and data:
        for key, value in data.items():
            yield from flat(value, f"{name}.{key}" if name else str(key))
    else:
        yield name, data
