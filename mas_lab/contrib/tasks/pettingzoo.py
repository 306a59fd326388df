"""Play worlds of PettingZoo as envs, with observations and actions in words (arXiv 2009.14471, the extra `games`).

    env = lab.from_pettingzoo(tictactoe_v3.env, say=board_in_words, read=square_of)

Parallel and turn-based worlds both work. `say(observation, agent) -> str` puts an agent's observation into words.
`read(text, agent)` returns the action in an answer, or `None`. PettingZoo's envs change while they are played, and they
do not promise copies. So a state here is a seed and the moves since: each step plays these moves again on a fresh env.
Rendering is not supported, and neither are agents that are born while the world runs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mas_lab.contrib.tasks.foreign import ForeignEnv
from mas_lab.env import EnvError, Step, Task

Moves = tuple[tuple[tuple[str, Any], ...], ...]
"""Moves in order: for each step, (agent, action) of every agent that acted."""


@dataclass(frozen=True)
class State:
    seed: int
    moves: Moves
    prompts: tuple[tuple[str, str], ...]
    """(agent, text) of the agents that act now; empty when the episode is over."""


@dataclass(frozen=True)
class PettingZoo(ForeignEnv):
    """An env that plays the world that `make()` returns; `from_pettingzoo` makes one.

    The local reward of an agent is the world's reward. With `cooperative=False` it is a game: the team earns nothing,
    and success is the first agent's win. With `cooperative=True` the team earns the mean over agents, and success means
    that its sum reaches `max_return`. An answer without an action that the world knows is invalid and ends the episode:
    its author gets `illegal`. A task is the seed of a world. The episode also ends where an agent would act more than
    `max_turns` times.
    """

    make: Callable[[], Any]
    say: Callable[[Any, str], str]
    read: Callable[[str, str], Any]
    agents: tuple[str, ...]
    cooperative: bool = False
    max_tokens: int = 32
    illegal: float = -1.0

    name = "pettingzoo"

    @property
    def competitive(self) -> bool:
        return not self.cooperative

    @property
    def world(self) -> str:
        """Return the name of the world in ids and errors."""
        return f"{self.make.__module__.rpartition('.')[2]}.{getattr(self.make, '__name__', 'make')}"

    def start(self, task: Task) -> State:
        return State(task.data["seed"], (), _Played(self, task.data["seed"], ()).prompts())

    def acting(self, state: State) -> tuple[str, ...]:
        return tuple(agent for agent, _ in state.prompts)

    def text_for(self, state: State, agent: str) -> str:
        return dict(state.prompts)[agent]

    def act(self, state: State, actions: Mapping[str, str]) -> Step:
        played = _Played(self, state.seed, state.moves)
        before, speakers = dict(played.totals), [agent for move in state.moves for agent, _ in move]
        chosen = {agent: self.read(text, agent) for agent, text in actions.items()}
        spaces = {agent: played.world.action_space(agent) for agent in chosen}
        valid = {agent: action is not None and spaces[agent].contains(action) for agent, action in chosen.items()}
        if all(valid.values()):
            played.move(chosen)
            prompts = played.prompts()
        else:
            played.pay({agent: self.illegal for agent in valid if not valid[agent]})
            prompts = ()
        turns = [*speakers, *chosen]
        over = not prompts or any(turns.count(agent) >= self.max_turns for agent, _ in prompts)
        due = {agent: played.totals[agent] for agent in self.agents if agent in turns}  # the others are paid later
        local = {agent: total - (before[agent] if agent in speakers else 0.0) for agent, total in due.items()}
        team = sum(played.totals.values()) - sum(before.values()) if self.cooperative else 0.0
        if self.cooperative:
            success = sum(played.totals.values()) / len(self.agents) >= self.max_return
        else:
            success = self.first_wins(due)
        after = State(state.seed, (*state.moves, tuple(chosen.items())), () if over else prompts)
        return Step(after, team / len(self.agents), local, valid, over and success, over)


def from_pettingzoo(
    make: Callable[[], Any], say: Callable[[Any, str], str], read: Callable[[str, str], Any], **options: Any
) -> PettingZoo:
    """Return the PettingZoo world that `make()` returns as an env.

    Args:
        make: Function without arguments that returns a fresh world: `env` or `parallel_env` of a PettingZoo module.
        say: Function `say(observation, agent)` that returns the agent's observation as text.
        read: Function `read(text, agent)` that returns the action in an answer, or `None` if there is none.
        **options: Other fields of `PettingZoo`. `cooperative`: whether the agents are one team; the default False means
            a game. `max_turns`: turns of one agent, by default 30. `max_tokens`: tokens of one answer, by default 32.
            `max_return`: upper bound of a return, by default 1.0. `illegal`: reward for an invalid answer, by default
            -1.0. `show`: function `show(text, rng)` that returns an imperfect answer to learn from, by default `None`.
            `pocket`: pocket model that plays the world, by default none.

    Returns:
        The env, a `PettingZoo`. Its agents are the world's `possible_agents`.

    Raises:
        EnvError: If PettingZoo is not installed, if `make()` returns something else than a world, or if the world does
            not name its possible agents.
    """
    try:
        from pettingzoo import AECEnv, ParallelEnv
    except ImportError as error:
        raise EnvError(f"worlds of PettingZoo need it ({error}): pip install 'mas-lab[games]'") from None
    world = make()
    agents = getattr(world, "possible_agents", None) if isinstance(world, AECEnv | ParallelEnv) else None
    if not agents:
        remedy = "give `env` or `parallel_env` of a module that names its possible_agents; none may be born later"
        raise EnvError(f"from_pettingzoo: make() gave {type(world).__name__}; {remedy}")
    return PettingZoo(make, say, read, tuple(agents), **options)


class _Played:
    """A fresh world on which the moves so far have been made."""

    def __init__(self, env: PettingZoo, seed: int, moves: Moves):
        self.env, self.world, self.moves = env, env.make(), moves
        self.totals = dict.fromkeys(env.agents, 0.0)
        self.parallel = not hasattr(self.world, "agent_iter")
        first = self.world.reset(seed=seed)
        self.observations = first[0] if self.parallel else {}
        for move in moves:
            self.move(dict(move))

    def move(self, chosen: Mapping[str, Any]) -> None:
        if self.parallel:
            self.observations, rewards, *_ = self.world.step(dict(chosen))
            self.pay(rewards)
            return
        ((_, action),) = chosen.items()
        self.world.step(action)
        self.pay(self.world.rewards)
        while self.world.agents and any(self.world.last(observe=False)[2:4]):  # terminated or truncated
            self.world.step(None)

    def prompts(self) -> tuple[tuple[str, str], ...]:
        """Return each agent that acts now with the text that it gets."""
        acting = self.world.agents if self.parallel else self.world.agents and [self.world.agent_selection]
        observations = self.observations if self.parallel else {agent: self.world.observe(agent) for agent in acting}
        return tuple((agent, self.env.say(observations[agent], agent)) for agent in acting)

    def pay(self, rewards: Mapping[str, float]) -> None:
        for agent, reward in rewards.items():
            if agent not in self.totals:
                world = f"PettingZoo world {self.env.world}, step {len(self.moves)}"
                raise EnvError(f"{world}: it pays {agent!r}; possible_agents are {self.env.agents}")
            self.totals[agent] += float(reward)
