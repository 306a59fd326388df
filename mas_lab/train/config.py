"""A training as a YAML file: env, team, recipe and number of steps; the few lines of a notebook as a file.

Every key is known or refused, with its place in the file. `data/configs/plan_path.yaml` shows all keys. Leaves out: the
loop (`loop`) and its printed lines (`__main__`).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ValidationError

from mas_lab.env import Env
from mas_lab.policy import Policy
from mas_lab.recipes import Recipe, find, from_data
from mas_lab.tasks import make_env, own_env
from mas_lab.team import Sampling, Team
from mas_lab.train.budget import Budget
from mas_lab.train.settings import Settings


class ConfigError(ValueError):
    """Error of a file that describes no training; it names the file and the place in it."""


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

    @contextmanager
    def naming(self, key: str) -> Iterator[None]:
        """Add this place to an error of the `with` block."""
        try:
            yield
        except ConfigError:
            raise
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{self.to(key)}: {error}") from error


class Weights(BaseModel):
    """Keys of weights, see `load_policy`: for the whole team, or for an agent with weights of its own."""

    model: str | None = None
    backend: str = "torch"
    lora: int | None = None
    lr: float | None = None
    template: dict[str, Any] | None = None
    device: str | None = None
    options: dict[str, Any] | None = None

    @property
    def source(self) -> dict[str, Any]:
        """Return the arguments of `load_policy` and `load_base` that say where weights come from and where they live.

        Adapters with equal sources share a base.
        """
        where = {"name": self.model, "backend": self.backend, "template": self.template}
        return where | ({"device": self.device} if self.device else {}) | (self.options or {})


class Member(Weights):
    """Keys of an agent, or of all agents of the team."""

    temperature: float = 1.0
    max_tokens: int | None = None
    stop: str | list[str] = []
    frozen: bool = False

    @classmethod
    def of(cls, data: Any, place: Place) -> Self:
        try:
            return cls.model_validate(place.mapping(data or {}, [*cls.model_fields]))
        except ValidationError as error:
            [first, *_] = error.errors()
            raise ConfigError(f"{place}: {first['loc'][0]}: {first['msg']} (got {first['input']!r})") from None


@dataclass(frozen=True)
class Config:
    """The content of the file. The env is made already; `make_team` loads the models."""

    env: Env
    team: Mapping[str, Member]
    groups: Sequence[Sequence[str]]
    """The agents that share weights, a list for each of the weights."""
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

    @classmethod
    def read(cls, path: str | Path) -> "Config":
        """Read the file; raise ConfigError with the key that is unknown, missing or unusable."""
        return cls.of(read_yaml(Path(path)), Place(Path(path)))

    @classmethod
    def of(cls, data: Any, place: Place) -> "Config":
        """Check the data found at `place`, as `read` does."""
        data = place.mapping(data, [f.name for f in fields(cls) if f.name != "groups"], ("env", "team", "recipe"))
        if not data.get("budget"):
            place.mapping(data, needed=["steps"])
        with place.naming("env"):
            env = read_env(place.to("env"), data["env"], place.path.parent)
        with place.naming("recipe"):
            recipe = data["recipe"]
            if isinstance(recipe, Mapping):  # {name: ..., field: change}, in the form of `describe`
                changes = place.to("recipe").mapping(recipe, [f.name for f in fields(Recipe)], needed=("name",))
                changes = {key: from_data(value) for key, value in changes.items()}
                recipe = find(changes.pop("name")).replace(**changes)
            recipe = find(recipe)
        with place.naming("settings"):
            settings = data.get("settings") or {}
            Settings.of(settings)
        for name in ("steps", "seed", "threads"):
            if data.get(name) is not None and (not isinstance(data[name], int) or data[name] < 0):
                raise ConfigError(f"{place.to(name)}: {data[name]!r} is no whole number of 0 or more")
        with place.naming("budget"):
            budget = None if data.get("budget") is None else Budget.of(data["budget"])
        team, groups = _team(place.to("team"), data["team"], env)
        parts = {"env": env, "team": team, "groups": groups, "recipe": recipe, "settings": settings, "budget": budget}
        return cls(**data | parts)

    def make_team(self) -> Team:
        """Load the models; agents whose weights are adapters of one base share it."""
        from mas_lab.backends.loading import load_base, load_policy

        bases: dict[str, Any] = {}
        policies: dict[str, Policy] = {}
        adapters = [self.team[group[0]] for group in self.groups if self.team[group[0]].lora is not None]
        for group in self.groups:
            weights = self.team[group[0]]
            if weights.lora is None:
                policy = load_policy(lr=weights.lr, seed=self.seed, **weights.source)
            else:
                key = repr(sorted(weights.source.items()))
                if key not in bases:
                    ranks = [one.lora for one in adapters if one.source == weights.source]
                    bases[key] = load_base(adapters=len(ranks), rank=max(ranks), seed=self.seed, **weights.source)
                policy = bases[key].adapter("+".join(group), rank=weights.lora, lr=weights.lr)
            policies |= dict.fromkeys(group, policy)
        sampling = {agent: Sampling(one.temperature, one.max_tokens, one.stop) for agent, one in self.team.items()}
        frozen = [agent for agent, one in self.team.items() if one.frozen]
        return Team({agent: policies[agent] for agent in self.env.agents}, sampling, frozen)


def read_yaml(path: Path) -> Any:
    import yaml

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 ({error}); save it with that encoding") from None
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


def _team(place: Place, data: Any, env: Env) -> tuple[dict[str, Member], list[tuple[str, ...]]]:
    """Return the keys of each agent, which are its own or else the team's, and the agents that share weights."""
    data = place.mapping(data, ["weights", "agents", *Member.model_fields], ("weights",))
    by_agent = place.to("agents").mapping(data.pop("agents", None) or {}, env.agents)
    groups = _groups(place, data.pop("weights"), env.agents)
    common = Member.of({"model": env.pocket, **data}, place)
    own = {agent: Member.of(by_agent.get(agent), place.to("agents").to(agent)) for agent in env.agents}
    for first, *others in groups:
        for agent in others:
            unlike = [key for key in Weights.model_fields if getattr(own[agent], key) != getattr(own[first], key)]
            if unlike:
                raise ConfigError(
                    f"{place.to('agents').to(agent)}: {agent!r} has its weights in common with {first!r}, so both must "
                    f"say the same of {', '.join(unlike)}; or give each its own"
                )
    return {agent: common.model_copy(update=one.model_dump(exclude_unset=True)) for agent, one in own.items()}, groups


def _groups(place: Place, weights: Any, agents: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the groups of agents that share weights: one group, a group per agent, or the listed groups."""
    if weights == "shared":
        return [tuple(agents)]
    if weights == "per_agent":
        return [(agent,) for agent in agents]
    are_lists = isinstance(weights, list) and all(isinstance(group, list) and group for group in weights)
    if are_lists and sorted(agent for group in weights for agent in group) == sorted(agents):
        return [tuple(group) for group in weights]
    raise ConfigError(
        f"{place}: weights: {weights!r} must be shared, per_agent, or lists in which each of "
        f"{', '.join(agents)} stands once, such as [{', '.join(f'[{agent}]' for agent in agents)}]"
    )
