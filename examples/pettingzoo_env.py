"""Play a world of PettingZoo (arXiv 2009.14471) as an env: tic-tac-toe in self-play.

A world changes while it is played, and it promises no copies. A state of an env never changes. So a state here is a
seed and the moves since, and each step plays them again on a fresh world.

Agents speak one after the other. In a world in which they act at once, none sees what the others have chosen, since
PettingZoo shows an agent the world as it was before. Two functions translate: `say` an observation, `read` an answer.

Seam of the kit: an env of your own, `tasks`, `start`, `acting`, `observe` and `step`, with `demonstrate` for a pocket
model. It is a game (`competitive`): agents earn local rewards, and success is the first agent's win.
Run it: pip install 'mas-lab[games]', then python examples/pettingzoo_env.py
Leaves out: worlds of one team, agents that are born late, and pictures.
"""

import random
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import mas_lab as lab


@dataclass(frozen=True)
class State:
    seed: int
    moves: tuple[Any, ...] = ()
    speakers: tuple[str, ...] = ()
    """Agent of each move."""
    agent: str = ""
    """The agent that acts now."""
    text: str = ""
    """What it sees, in words."""
    done: bool = False


@dataclass(frozen=True)
class PettingZoo:
    """The world that `make()` returns, which is `env` of a module of PettingZoo.

    An answer without an action that the world allows is invalid. It ends the episode, and its author earns -1. An agent
    that has not spoken yet is not paid. A game ends as a draw where an agent would speak more than `max_turns` times.
    """

    make: Callable[[], Any]
    say: Callable[[Any, str], str]
    """Function `say(observation, agent)` that returns an observation in words."""
    read: Callable[[str, str], Any]
    """Function `read(text, agent)` that returns the action of an answer, or None."""
    agents: tuple[str, ...]
    """The world's `possible_agents`."""
    max_turns: int = 30
    max_return: float = 1.0
    max_tokens: int = 1

    name, pocket, competitive = "pettingzoo", "", True

    def tasks(self, n: int, split: str, seed: int) -> list[lab.Task]:
        """Return `n` seeds of the world: even ones to train, odd ones to test."""
        drawn = random.Random(f"{split} {seed}").sample(range(10**6), n)
        return [lab.Task(f"{2 * one + (split == 'test')}", {"seed": 2 * one + (split == "test")}) for one in drawn]

    def start(self, task: lab.Task) -> State:
        return self._after(State(task.data["seed"]))[0]

    def acting(self, state: State) -> tuple[str, ...]:
        return () if state.done else (state.agent,)

    def observe(self, state: State, agent: str) -> list[dict[str, str]]:
        return [{"role": "user", "content": state.text}]

    def step(self, state: State, actions: Mapping[str, str]) -> lab.Step:
        ((agent, text),) = actions.items()
        action = self.read(text, agent)
        _, totals, world = self._after(state)
        seen = world.observe(agent)
        mask = seen.get("action_mask") if isinstance(seen, Mapping) else None  # classic games say which moves are legal
        valid = (
            action is not None and world.action_space(agent).contains(action) and (mask is None or mask[action] == 1)
        )
        speakers = (*state.speakers, agent)
        if valid:
            after, earned, _ = self._after(State(state.seed, (*state.moves, action), speakers))
        else:
            after, earned = State(state.seed, state.moves, speakers, done=True), totals | {agent: totals[agent] - 1.0}
        paid = {one: earned[one] - (totals[one] if one in state.speakers else 0.0) for one in dict.fromkeys(speakers)}
        first, *others = (earned[one] if one in speakers else 0.0 for one in self.agents)
        return lab.Step(after, 0.0, paid, {agent: valid}, after.done and first > max(others), after.done)

    def _after(self, state: State) -> tuple[State, dict[str, float], Any]:
        """Return the state after these moves on a fresh world, what each agent has earned by then, and the world."""
        world, totals = self.make(), dict.fromkeys(self.agents, 0.0)
        world.reset(seed=state.seed)
        for action in state.moves:
            world.step(action)
            for agent, reward in world.rewards.items():
                totals[agent] += float(reward)
            while world.agents and any(world.last(observe=False)[2:4]):  # this agent's game is over
                world.step(None)
        agent = world.agent_selection if world.agents else ""
        done = not agent or state.speakers.count(agent) >= self.max_turns
        text = "" if done else self.say(world.observe(agent), agent)
        return State(state.seed, state.moves, state.speakers, agent, text, done), totals, world


def board(observation: Mapping[str, Any], agent: str) -> str:
    """Return a board in nine words: x for my marks, o for theirs, a number for a free square."""
    mine, theirs = (observation["observation"][..., side].T.ravel() for side in (0, 1))
    return " ".join("x" if mine[i] else "o" if theirs[i] else str(i) for i in range(9))


def square(text: str, agent: str) -> int | None:
    return int(text) if text in tuple("012345678") else None


class TicTacToe(PettingZoo):
    def demonstrate(self, state: State, agent: str, rng: random.Random) -> str:
        """Return a free square, which is enough to learn the rules from."""
        return rng.choice([word for word in state.text.split() if word.isdigit()])


def tictactoe() -> TicTacToe:
    from pettingzoo.classic import tictactoe_v3

    return TicTacToe(tictactoe_v3.env, board, square, tuple(tictactoe_v3.env().possible_agents), max_turns=5)


def main(steps: int = 5, tasks: int = 16, lessons: int = 100) -> None:
    """Teach a pocket model the rules, let one policy play both sides, and print the share of legal moves."""
    env = tictactoe()
    lab.check_env(env, tasks=2)  # raises an error where the env breaks its contract
    with tempfile.TemporaryDirectory() as folder:
        team = lab.Team.shared(lab.load_policy(lab.make_pocket(env, folder, steps=lessons, tasks=8)), env.agents)
        recipe = lab.RECIPES["dr_mas"].replace(credit=lab.own_return())
        for report in lab.train(env, team, recipe, steps=steps, seed=0, tasks=tasks):
            print(f"step {report.step}: {report.turns['valid'].mean():.2f} of the moves are legal")


if __name__ == "__main__":
    main()
