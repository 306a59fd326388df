"""The team: agent -> policy, agent -> sampling settings, and the agents that do not learn.

Only this module knows whether weights are shared or per role. Leaves out: making policies (`mas_lab.backends`).
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mas_lab.arguments import check_arguments
from mas_lab.policy import Policy

TEAM, NO_WORD = "team.json", r"\W"


@dataclass(frozen=True)
class Sampling:
    """Settings by which an agent draws its tokens.

    Training accepts any temperature above 0, with `top_p` 1 and `top_k` None.

    Raises:
        ValueError: A setting is out of range.
    """

    temperature: float = 1.0
    """Divisor of the logits; 0 always takes the most likely token."""
    max_tokens: int | None = None
    """Most tokens of a completion. `None`: the limit of the environment."""
    stop: tuple[str, ...] = ()
    """Texts that end a completion: it ends with the token after which one of them occurs in the text. `finish` is then
    "stop"."""
    top_p: float = 1.0
    """Draw only from the most likely tokens that together have this probability. 1: all tokens. For `evaluate` only."""
    top_k: int | None = None
    """Draw only from this many most likely tokens. `None`: all tokens. For `evaluate` only."""

    def __post_init__(self):
        stop = (self.stop,) if isinstance(self.stop, str) else self.stop
        check_arguments(Sampling, vars(self) | {"stop": stop}, temperature=0, max_tokens=1, top_k=1)
        object.__setattr__(self, "stop", tuple(stop))
        if not all(self.stop):
            raise ValueError(f"Sampling: stop={self.stop!r}; give texts that are not empty")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"Sampling: top_p={self.top_p!r}; give a share above 0, at most 1 (which is off)")


class Team(Mapping[str, Policy]):
    """A mapping from agent to policy; several agents may share one policy.

    >>> Team.shared(policy, env.agents)                    # one set of weights plays every role
    >>> Team.per_agent(base.adapter, env.agents)           # one policy per role
    >>> Team({"solver": big, "verifier": small}, frozen=("verifier",))
    >>> Team({"left": learner, "right": lab.load_run("runs/earlier").team()["left"]}, frozen="right")   # self-play

    Args:
        policies: The policy of each agent.
        sampling: Sampling settings of each agent. `None`, or an agent without settings: `Sampling()`.
        frozen: Agents that do not learn. Default: all agents learn.

    Attributes:
        frozen: The agents that do not learn.
        sampling: The sampling settings of each agent.
        policies: The policies by their names. A name is made of the agents that the policy plays, or is "shared" if it
            plays all of several agents.

    Raises:
        ValueError: `sampling` or `frozen` names an unknown agent, or two policies would have one name.
    """

    def __init__(
        self,
        policies: Mapping[str, Policy],
        sampling: Mapping[str, Sampling] | None = None,
        frozen: Iterable[str] = (),
    ):
        unlike = {} if isinstance(policies, Mapping) else {"policies": policies}
        check_arguments(Team.__init__, {"sampling": sampling} | unlike, "Team")
        self._by_agent = dict(policies)
        if not self._by_agent:
            raise ValueError("Team: it has no agents; give {agent: policy}")
        for agent, policy in self._by_agent.items():
            check_arguments(Team.shared, {"policy": policy}, f"Team, agent {agent!r}")
        self.frozen = (frozen,) if isinstance(frozen, str) else tuple(frozen)
        self.sampling = {agent: Sampling() for agent in self._by_agent} | dict(sampling or {})
        for what, names in (("sampling", self.sampling), ("frozen", self.frozen)):
            for agent in names:
                if agent not in self._by_agent:
                    raise ValueError(f"Team: {what} names agent {agent!r}; the team has {list(self._by_agent)}")
        self._name_of = self._names()
        self.policies = {self._name_of[agent]: policy for agent, policy in self._by_agent.items()}

    def _names(self) -> dict[str, str]:
        """Return the policy name of each agent: the agents that the policy plays, or "shared" if it plays them all."""
        players: dict[int, list[str]] = {}
        for agent, policy in self._by_agent.items():
            players.setdefault(id(policy), []).append(agent)
        names = {key: "shared" if len(agents) == len(self) > 1 else "+".join(agents) for key, agents in players.items()}
        if len(set(names.values())) < len(names):
            raise ValueError(f"Team: two policies would have one name among {list(names.values())}; rename an agent")
        return {agent: names[id(policy)] for agent, policy in self._by_agent.items()}

    def name_of(self, agent: str) -> str:
        """Return the name of the policy that plays an agent.

        Args:
            agent: Name of the agent.

        Returns:
            A key of `policies`.
        """
        return self._name_of[agent]

    def learners(self, name: str) -> list[str]:
        """Return the agents whose rows train a policy.

        Args:
            name: Name of the policy.

        Returns:
            Agents that the policy plays and that are not frozen.
        """
        return [agent for agent in self if self._name_of[agent] == name and agent not in self.frozen]

    def with_sampling(self, sampling: "Sampling | Mapping[str, Sampling] | None") -> "Team":
        """Return the same policies with other sampling settings.

        Args:
            sampling: One setting for all agents, or settings of some agents. `None`: no change.

        Returns:
            A new team.
        """
        if isinstance(sampling, Sampling):
            sampling = dict.fromkeys(self, sampling)
        return self._with_these_names(Team(self._by_agent, self.sampling | dict(sampling or {}), self.frozen))

    def swapped(self, first: str, second: str) -> "Team":
        """Return the team with the policies of two agents exchanged; the policies keep their names.

        Args:
            first: One agent.
            second: The other agent.

        Returns:
            A new team.

        Raises:
            KeyError: The team has no such agent.
        """
        others = {first: second, second: first}
        for agent in others:
            self[agent]  # raises where the team has no such agent
        return self._with_these_names(
            Team({agent: self[others.get(agent, agent)] for agent in self}, self.sampling, self.frozen)
        )

    def played_by(self, policies: Mapping[str, Policy]) -> "Team":
        """Return the team with other policies.

        Args:
            policies: A policy for each name in `policies`.

        Returns:
            A new team with the same agents, names and settings.
        """
        team = Team({agent: policies[name] for agent, name in self._name_of.items()}, self.sampling, self.frozen)
        team._name_of, team.policies = self._name_of, dict(policies)
        return team

    def _with_these_names(self, team: "Team") -> "Team":
        """Return `team`, which plays with the policies of this one, with the names that they have here."""
        names = {id(policy): name for name, policy in self.policies.items()}
        team._name_of = {agent: names[id(policy)] for agent, policy in team._by_agent.items()}
        team.policies = self.policies
        return team

    def save(self, folder: str | Path) -> Path:
        """Write each policy as an ordinary PEFT or transformers folder, and `team.json` beside them.

        Args:
            folder: A new or empty folder.

        Returns:
            The folder. `Team.load` opens it, and `from_pretrained` each policy in it.

        Raises:
            FileExistsError: The folder has files.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise FileExistsError(f"Team.save: {folder} has files; give a new folder")
        places = {name: f"{number}_{re.sub(NO_WORD, '_', name)[:60]}" for number, name in enumerate(self.policies)}
        for name, place in places.items():
            self.policies[name].save(folder / place)
        described = json.dumps({**describe_team(self), "folders": places}, indent=1)
        (folder / TEAM).write_text(described + "\n", encoding="utf-8")  # last: a folder with this file is whole
        return folder

    @classmethod
    def load(cls, folder: str | Path, base: str | Sequence[str] = ()) -> "Team":
        """Return the team that `save` wrote, with its optimizers.

        Args:
            folder: The folder.
            base: Hub ids of the models that its adapters need; no other model is fetched.

        Returns:
            The team.

        Raises:
            FileNotFoundError: The folder holds no `team.json`, so no whole team.
            PolicyError: An adapter needs a model of the hub that `base` does not name.
        """
        described = json.loads((Path(folder) / TEAM).read_text(encoding="utf-8"))
        return cls.restored(described, {name: Path(folder) / one for name, one in described["folders"].items()}, base)

    @classmethod
    def restored(cls, described: Mapping[str, Any], places: Mapping[str, Path], base: str | Sequence[str]) -> "Team":
        """Return the team that `describe_team` described, with its policies from the folders `places`."""
        from mas_lab.backends.loading import restore_policies

        policies = restore_policies(places, base)
        sampling = {agent: Sampling(**fields) for agent, fields in described["sampling"].items()}
        players = {agent: policies[name] for agent, name in described["agents"].items()}
        return cls(players, sampling, described["frozen"])

    @classmethod
    def shared(cls, policy: Policy, agents: Iterable[str], **settings) -> "Team":
        """Return a team in which one policy plays every role.

        Args:
            policy: The policy.
            agents: Names of the agents.
            **settings: `sampling` and `frozen` of the constructor.

        Returns:
            The team.
        """
        check_arguments(cls.shared, locals(), "Team.shared")
        return cls(dict.fromkeys(agents, policy), **settings)

    @classmethod
    def per_agent(cls, make: Callable[[str], Policy], agents: Iterable[str], **settings) -> "Team":
        """Return a team with one policy per role.

        Args:
            make: Callable that returns the policy of an agent, such as `base.adapter`.
            agents: Names of the agents.
            **settings: `sampling` and `frozen` of the constructor.

        Returns:
            The team.
        """
        check_arguments(cls.per_agent, locals(), "Team.per_agent")
        return cls({agent: make(agent) for agent in agents}, **settings)

    def __getitem__(self, agent: str) -> Policy:
        try:
            return self._by_agent[agent]
        except KeyError:
            raise KeyError(f"agent {agent!r} has no policy; the team has {list(self._by_agent)}") from None

    def __iter__(self):
        return iter(self._by_agent)

    def __len__(self) -> int:
        return len(self._by_agent)

    def __repr__(self) -> str:
        return f"Team({', '.join(f'{agent}: {self.name_of(agent)}' for agent in self)})"


def arguments_of(part: Any, turns: Any, team: Team | None, cell: str) -> tuple:
    """Return the arguments of a part: the table, and also the team if the part has `needs_team = True`."""
    if not getattr(part, "needs_team", False):
        return (turns,)
    if team is None:
        raise ValueError(
            f"{cell}: {part!r} needs the team that played the turns; pass it, as in recipe.advantages(turns, team)"
        )
    return turns, team


def describe_team(team: Team) -> dict[str, Any]:
    """Return a team as plain data, which must be equal before a checkpoint is loaded."""
    described = {
        "agents": {agent: team.name_of(agent) for agent in team},
        "policies": {name: policy.describe() for name, policy in team.policies.items()},
        "sampling": {agent: asdict(sampling) for agent, sampling in team.sampling.items()},
        "frozen": list(team.frozen),
    }
    return json.loads(json.dumps(described))
