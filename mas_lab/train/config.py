"""A training as a YAML file: env, team, recipe and number of steps; the few lines of a notebook as a file.

pydantic reads the keys. Every key is known or refused, with its place in the file. `data/configs/plan_path.yaml` shows
all keys. Leaves out: the loop (`loop`) and its printed lines (`__main__`).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, NonNegativeInt, ValidationError, field_validator, model_validator

from mas_lab.env import Env
from mas_lab.policy import Policy
from mas_lab.recipes import find, from_data
from mas_lab.tasks import make_env, own_env
from mas_lab.team import Sampling, Team
from mas_lab.train.budget import Budget
from mas_lab.train.loop import train
from mas_lab.train.report import Report
from mas_lab.train.settings import Settings


class ConfigError(ValueError):
    """Error of a file that describes no training; it names the file and the place in it."""


class Weights(BaseModel, extra="forbid"):
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


class Members(Member):
    """Keys of the team: those of all its agents, and in `agents` those of single ones."""

    weights: Any
    agents: dict[str, Member | None] | None = None

    def by_agent(self, env: Env) -> dict[str, Member]:
        """Return the keys of each agent, which are its own or else the team's."""
        common = {"model": env.pocket} | self.model_dump(exclude={"weights", "agents"}, exclude_unset=True)
        own = {agent: (self.agents or {}).get(agent) or Member() for agent in env.agents}
        return {agent: Member(**common | keys.model_dump(exclude_unset=True)) for agent, keys in own.items()}

    def groups(self, env: Env) -> list[list[str]]:
        """Return the agents that share weights, a list for each of the weights, or raise ValueError."""
        groups = {"shared": [[*env.agents]], "per_agent": [[agent] for agent in env.agents]}.get(str(self.weights))
        groups = groups or self.weights
        if strangers := set(self.agents or ()) - set(env.agents):
            raise ValueError(f"team.agents: unknown agent {strangers.pop()!r}; known are {', '.join(env.agents)}")
        if not isinstance(groups, list) or sorted(str(one) for group in groups for one in group) != sorted(env.agents):
            raise ValueError(
                f"team.weights: {self.weights!r} must be shared, per_agent, or lists in which each of "
                f"{', '.join(env.agents)} stands once, such as [{', '.join(f'[{agent}]' for agent in env.agents)}]"
            )
        members = self.by_agent(env)
        for first, *others in groups:
            for agent, key in ((agent, key) for agent in others for key in Weights.model_fields):
                if getattr(members[agent], key) != getattr(members[first], key):
                    raise ValueError(
                        f"team.agents.{agent}.{key}: {agent!r} has its weights in common with {first!r}, so both must "
                        f"say the same of {key}; or give each its own"
                    )
        return groups


class Config(BaseModel, extra="forbid"):
    """The content of the file. The env is made already; `make_team` loads the models."""

    env: Any
    team: Members
    recipe: Any
    steps: NonNegativeInt | None = None
    budget: Any = None
    """Budget at which the training ends, if that is before `steps`."""
    seed: NonNegativeInt = 0
    run: str | None = None
    fork: str | None = None
    """The run from which this one starts, see `train`."""
    threads: NonNegativeInt | None = None
    """Number of torch threads. `None`: the number that the first policy on a CPU finds best; a resumed run keeps its
    number."""
    settings: dict[str, Any] | None = None
    """The fields of `Settings`."""

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a file; raise ConfigError with the key that is unknown, missing or unusable."""
        return cls.of(read_yaml(Path(path)), Path(path))

    @classmethod
    def of(cls, data: Any, path: Path, *place: str) -> Self:
        """Check the data found at a `place` of the file, as `read` does."""
        try:
            return cls.model_validate(data, context=path)
        except ValidationError as error:
            [first, *_] = error.errors()
            words = first.get("ctx", {}).get("error") or f"{first['msg']} (got {first['input']!r:.200})"
            if first["type"] in ("extra_forbidden", "missing"):
                kind = "unknown key" if first["type"] == "extra_forbidden" else "this key is missing"
                words = f"{kind}; data/configs/plan_path.yaml lists all keys"
            keys = ".".join(map(str, (*place, *first["loc"])))
            raise ConfigError(": ".join(filter(None, (str(path), keys, str(words))))) from error

    @field_validator("env", "recipe", "budget", "settings")
    @classmethod
    def _made(cls, data: Any, info: Any) -> Any:
        try:
            return made(info.field_name, data, info.context.parent)
        except TypeError as error:
            raise ValueError(error) from error

    @model_validator(mode="after")
    def _fit(self) -> Self:
        if self.steps is None and self.budget is None:
            raise ValueError("'steps' is missing; give it, or a budget")
        self.team.groups(self.env)
        return self

    def make_team(self) -> Team:
        """Load the models; agents whose weights are adapters of one base share it."""
        from mas_lab.backends.loading import load_base, load_policy
        from mas_lab.backends.torch.threads import set_threads

        if self.threads:
            set_threads(self.threads)
        bases: dict[str, Any] = {}
        policies: dict[str, Policy] = {}
        members, groups = self.team.by_agent(self.env), self.team.groups(self.env)
        adapters = [members[first] for first, *_ in groups if members[first].lora is not None]
        for group in groups:
            weights = members[group[0]]
            if weights.lora is None:
                policy = load_policy(lr=weights.lr, seed=self.seed, **weights.source)
            else:
                key = repr(sorted(weights.source.items()))
                if key not in bases:
                    ranks = [one.lora for one in adapters if one.source == weights.source]
                    bases[key] = load_base(adapters=len(ranks), rank=max(ranks), seed=self.seed, **weights.source)
                policy = bases[key].adapter("+".join(group), rank=weights.lora, lr=weights.lr)
            policies |= dict.fromkeys(group, policy)
        sampling = {agent: Sampling(one.temperature, one.max_tokens, one.stop) for agent, one in members.items()}
        frozen = [agent for agent, one in members.items() if one.frozen]
        return Team({agent: policies[agent] for agent in self.env.agents}, sampling, frozen)

    def train(self, team: Team, steps: int | None = None, run: str | Path | None = None) -> Iterator[Report]:
        """Return the training of a team, with `steps` and in the folder `run` in place of the file's."""
        return train(
            self.env, team, self.recipe, self.steps if steps is None else steps, self.seed, run or self.run,
            budget=self.budget, fork=self.fork, **self.settings or {},
        )  # fmt: skip


def read_yaml(path: Path) -> Any:
    import yaml

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: cannot be read as YAML in UTF-8: {error}") from None


def made(key: str, data: Any, folder: Path) -> Any:
    """Return the object that a key of the file describes: env, recipe or budget. Settings are only checked."""
    if key == "env":
        return read_env(data, folder)
    if key == "recipe":  # a name, or {name: ..., field: change} in the form of `describe`
        changes = dict(data) if isinstance(data, Mapping) else {"name": data}
        recipe = find(changes.pop("name", None))
        return recipe.replace(**{key: from_data(value) for key, value in changes.items()})
    if key == "budget":
        return Budget.of(data) if data else None
    Settings.of(data or {})
    return data


def read_env(data: Any, folder: Path) -> Env:
    """Return an env: itself, by its name, or from `{name: ..., and its options}`.

    `my_file:MyEnv` is an env of your own; `my_file` is searched in `folder`.
    """
    if hasattr(data, "step"):
        return data
    options = dict(data) if isinstance(data, Mapping) else {"name": data}
    if ":" in (name := str(options.pop("name", ""))):
        return own_env(name, folder, **options)
    return make_env(name, **options)
