"""A training as a YAML file: env, team, recipe and number of steps; the few lines of a notebook as a file.

Every key is known or refused, with its place in the file. `data/configs/plan_path.yaml` shows all keys. Leaves out: the
loop (`loop`) and its printed lines (`__main__`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from mas_lab.env import Env
from mas_lab.policy import Policy
from mas_lab.recipes import Recipe, find, from_data
from mas_lab.tasks import make_env
from mas_lab.tasks.own import own_env
from mas_lab.team import Sampling, Team
from mas_lab.train.budget import Budget
from mas_lab.train.settings import Settings

WEIGHTS = ("model", "backend", "lora", "lr", "template", "device", "options")
"""Keys of a policy: for the whole team, or for an agent with weights of its own."""
SPEAKING = ("temperature", "max_tokens", "stop")
"""Keys of sampling: for the whole team, or for an agent."""


class ConfigError(ValueError):
    """Error of a file that describes no training; it names the file and the place in it."""


@dataclass(frozen=True)
class Config:
    """The content of the file. The env is made already; `make_team` loads the models."""

    env: Env
    team: Mapping[str, Any]
    recipe: Recipe
    steps: int | None = None
    budget: Budget | None = None
    """Budget at which the training ends, if that is before `steps`."""
    seed: int = 0
    run: str | None = None
    fork: str | None = None
    """The run from which this one starts, see `train`."""
    threads: int | None = None
    """Number of torch threads. `None`: the number that the first policy on a CPU finds best; a resumed run keeps its
    number."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The fields of `Settings`."""
    path: Path = Path()

    @classmethod
    def read(cls, path: str | Path, env: str | None = None) -> "Config":
        """Read the file, optionally with another `env`.

        The file of such an env is searched from the working folder, not from beside the YAML file. Raises ConfigError
        with the key that is unknown, missing or unusable.
        """
        path = Path(path)
        return cls.of(read_yaml(path), Place(path), env)

    @classmethod
    def of(cls, data: Any, place: "Place", env: str | None = None) -> "Config":
        """Check the data found at `place`, as `read` does."""
        data = place.mapping(data, [f.name for f in fields(cls) if f.name != "path"])
        place.mapping(data, needed=("env", "team", "recipe", *([] if data.get("budget") else ["steps"])))
        with place.naming("env"):
            where = (place.to("env"), data["env"], place.path.parent) if env is None else (place, env, Path())
            made = read_env(*where)
        with place.naming("recipe"):
            recipe = _recipe(place.to("recipe"), data["recipe"])
        with place.naming("settings"):
            settings = place.to("settings").mapping(data.get("settings") or {}, [f.name for f in fields(Settings)])
            Settings(**settings)
        for name in ("steps", "seed", "threads"):
            if data.get(name) is not None and (not isinstance(data[name], int) or data[name] < 0):
                raise ConfigError(f"{place.to(name)}: {data[name]!r} is no whole number of 0 or more")
        with place.naming("budget"):
            budget = None if data.get("budget") is None else Budget.of(data["budget"])
        team = _team(place.to("team"), data["team"], made.agents)
        made = {"env": made, "team": team, "recipe": recipe, "settings": settings, "budget": budget}
        return cls(**data | made | {"path": place.path})

    def make_team(self) -> Team:
        """Load the models; agents whose weights are adapters of one base share it."""
        policies: dict[str, Policy] = {}
        groups = {group: self._weights(group) for group in _groups(self.team["weights"], self.env.agents)}
        bases = _bases(groups.values(), self.seed)
        for group, weights in groups.items():
            policies |= dict.fromkeys(group, _policy(group, weights, bases, self.seed))
        sampling, frozen = {}, []
        for agent, own in self.team["agents"].items():
            said = {key: value for key, value in (self.team | own).items() if key in SPEAKING}
            sampling[agent] = Sampling(**said)
            frozen += [agent] if own.get("frozen") else []
        return Team({agent: policies[agent] for agent in self.env.agents}, sampling, frozen)

    def _weights(self, group: tuple[str, ...]) -> dict[str, Any]:
        """Return the settings of the weights that these agents share."""
        own = {key: value for key, value in self.team["agents"][group[0]].items() if key in WEIGHTS}
        return {"model": self.env.pocket, "backend": "torch"} | _only(self.team, WEIGHTS) | own


@dataclass(frozen=True)
class Place:
    """A place in a file."""

    path: Path
    keys: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.path}: {'.'.join(self.keys)}" if self.keys else str(self.path)

    def to(self, key: str) -> "Place":
        return Place(self.path, (*self.keys, key))

    def mapping(self, data: Any, known: Sequence[str] | None = None, needed: Sequence[str] = ()) -> dict[str, Any]:
        """Return `data`, which must be a mapping of `known` keys (any keys, if `None`) with all `needed` ones."""
        if not isinstance(data, Mapping):
            raise ConfigError(f"{self}: {data!r} is no mapping of keys to values")
        for key in data:
            if known is not None and key not in known:
                raise ConfigError(f"{self}: unknown key {key!r}; known are {', '.join(known)}")
        for key in needed:
            if key not in data:
                raise ConfigError(f"{self}: {key!r} is missing")
        return dict(data)

    def naming(self, key: str) -> "_Naming":
        return _Naming(self.to(key))


@dataclass(frozen=True)
class _Naming:
    """A context that adds its place in the file to an error."""

    place: Place

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if isinstance(error, (ValueError, TypeError)) and not isinstance(error, ConfigError):
            raise ConfigError(f"{self.place}: {error}") from error


def read_yaml(path: Path) -> Any:
    import yaml

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {error}") from None


def read_env(place: Place, data: Any, folder: Path) -> Env:
    """Return an env: itself, by its name, or from `{name: ..., and its options}`.

    `my_file:MyEnv` is an env of your own; `my_file` is searched in `folder`.
    """
    if hasattr(data, "step"):
        return data
    options = {"name": data} if isinstance(data, str) else place.mapping(data, needed=("name",))
    if ":" in (name := str(options.pop("name"))):
        return own_env(name, folder, **options)
    return make_env(name, **options)


def _recipe(place: Place, data: Any) -> Recipe:
    """Return a recipe: itself, by its name, or from `{name: ..., field: change}` in the form of `recipes.to_data`."""
    if isinstance(data, str | Recipe):
        return find(data)
    changes = place.mapping(data, [f.name for f in fields(Recipe)], needed=("name",))
    return find(changes.pop("name")).replace(**{key: from_data(value) for key, value in changes.items()})


def _team(place: Place, data: Any, agents: Sequence[str]) -> dict[str, Any]:
    """Return the part `team`, checked: learning rates are numbers, and agents with common weights agree on them."""
    team = place.mapping(data, ["weights", "agents", *WEIGHTS, *SPEAKING], needed=("weights",))
    by_agent = place.to("agents").mapping(team.get("agents") or {}, agents)
    known = ["frozen", *WEIGHTS, *SPEAKING]
    team["agents"] = {agent: place.to("agents").to(agent).mapping(by_agent.get(agent) or {}, known) for agent in agents}
    for part in (team, *team["agents"].values()):
        if "lr" in part:
            part["lr"] = _number(place, part["lr"])
    for group in _groups(team["weights"], agents, place):
        said = [_only(team["agents"][agent], WEIGHTS) for agent in group]
        for agent, one in zip(group, said, strict=True):
            if one != said[0]:
                raise ConfigError(
                    f"{place.to('agents').to(agent)}: {agent!r} has its weights in common with {group[0]!r}, so both "
                    f"must say the same of {', '.join(sorted(set(one) ^ set(said[0])) or one)}; or give each its own"
                )
    return team


def _number(place: Place, value: Any) -> float:
    """Return a learning rate as a float; YAML 1.1 reads 1e-3 as a word."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{place}: lr: {value!r} is no number") from None


def _groups(weights: Any, agents: Sequence[str], place: Place | None = None) -> list[tuple[str, ...]]:
    """Return the groups of agents that share weights: one group, a group per agent, or the listed groups."""
    if weights == "shared":
        return [tuple(agents)]
    if weights == "per_agent":
        return [(agent,) for agent in agents]
    listed = [tuple(group) for group in weights] if _lists_of_lists(weights) else []
    if sorted(agent for group in listed for agent in group) != sorted(agents):
        raise ConfigError(
            f"{place}: weights: {weights!r} must be shared, per_agent, or lists in which each of "
            f"{', '.join(agents)} stands once, such as [{', '.join(f'[{agent}]' for agent in agents)}]"
        )
    return listed


def _lists_of_lists(data: Any) -> bool:
    return isinstance(data, list) and all(isinstance(group, list) and group for group in data)


def _bases(all_weights: Iterable[Mapping[str, Any]], seed: int) -> dict[str, Any]:
    """Return one base for all adapters that can share it, with room for the largest rank."""
    from mas_lab.backends.loading import load_base

    alike: dict[str, list[Mapping[str, Any]]] = {}
    for weights in all_weights:
        if weights.get("lora") is not None:
            alike.setdefault(_key(weights), []).append(weights)
    return {
        key: load_base(adapters=len(own), rank=max(one["lora"] for one in own), seed=seed, **_options(own[0]))
        for key, own in alike.items()
    }


def _policy(group: tuple[str, ...], weights: Mapping[str, Any], bases: Mapping[str, Any], seed: int) -> Policy:
    from mas_lab.backends.loading import load_policy

    if weights.get("lora") is None:
        return load_policy(lr=weights.get("lr"), seed=seed, **_options(weights))
    return bases[_key(weights)].adapter("+".join(group), rank=weights["lora"], lr=weights.get("lr"))


def _options(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `load_policy` and `load_base` that say where weights come from and where they live."""
    device = {"device": weights["device"]} if weights.get("device") else {}
    told = {"name": weights["model"], "backend": weights["backend"], "template": weights.get("template")}
    return told | device | dict(weights.get("options") or {})


def _key(weights: Mapping[str, Any]) -> str:
    return repr(sorted(_options(weights).items()))


def _only(data: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key in keys}
