"""Play a game of TextArena (arXiv 2504.11442) as an env: tic-tac-toe in self-play.

A game changes while it is played. So a state here holds a game that is never played on: each step plays a deep copy.
Games draw from the random generators of Python and NumPy, which all threads share. So a lock guards each step, and
the drawn numbers depend on the task's seed and the turn alone.

Seam of the kit: an env of your own, `tasks`, `start`, `acting`, `observe` and `step`, with `demonstrate` for a pocket
model. It is a game (`competitive`): agents earn local rewards, and success is the first agent's win.
Run it: pip install 'mas-lab[games]', then python examples/textarena_env.py
Leaves out: games of one player, word games that download their dictionary, and TextArena's online arena.
"""

import copy
import random
import re
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import mas_lab as lab

LOCK = threading.Lock()


@contextmanager
def dice_of(seed: str) -> Iterator[None]:
    """Make the random draws inside depend on `seed` alone, and give the generators back as they were."""
    with LOCK:
        before, before_numpy = random.getstate(), np.random.get_state()
        random.seed(seed)
        np.random.seed(random.randrange(2**32))
        try:
            yield
        finally:
            random.setstate(before)
            np.random.set_state(before_numpy)


@dataclass(frozen=True)
class State:
    """A state of a game; two states are equal if all fields but `game` are equal."""

    seed: int
    turns: tuple[tuple[str, str], ...]
    """(agent, answer) of each turn."""
    agent: str
    """The agent that acts now."""
    text: str
    """What it sees."""
    done: bool = False
    game: Any = field(default=None, compare=False, repr=False)


def refusals(game: Any, player: int) -> int:
    """Return how many answers of this turn the game has refused; the last one ends the player's part in it."""
    return game.state.error_count + 1000 * bool(game.state.game_info[player].get("invalid_move"))


@dataclass(frozen=True)
class TextArena:
    """The game `id` with the agents `player_0`, `player_1`, …

    At the end each player earns the game's reward, in most games from -1 to 1; a player that has said nothing by then
    is not paid. A refused answer is invalid, and its player may answer again as often as the game allows. A game ends
    as a draw where a player would speak more than `max_turns` times.
    """

    id: str
    players: int = 2
    max_turns: int = 30
    max_return: float = 1.0
    max_tokens: int = 256
    say: Callable[[str], str] = str
    """Function from an observation to the text that an agent gets."""
    read: Callable[[str], str] = str
    """Function from an answer to the move that the game gets."""

    name, pocket, competitive = "textarena", "", True

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(f"player_{number}" for number in range(self.players))

    def tasks(self, n: int, split: str, seed: int) -> list[lab.Task]:
        """Return `n` seeds of the game: even ones to train, odd ones to test."""
        seeds = [2 * one + (split == "test") for one in random.Random(f"{split} {seed}").sample(range(10**6), n)]
        return [lab.Task(f"{self.id} {one}", {"seed": one}) for one in seeds]

    def start(self, task: lab.Task) -> State:
        import textarena

        seed, game = task.data["seed"], textarena.make(self.id)
        with dice_of(f"{seed}"):
            game.reset(num_players=self.players, seed=seed)
            player, text = game.get_observation()
        return State(seed, (), f"player_{player}", self.say(text), game=game)

    def acting(self, state: State) -> tuple[str, ...]:
        return () if state.done else (state.agent,)

    def observe(self, state: State, agent: str) -> list[dict[str, str]]:
        return [{"role": "user", "content": state.text}]

    def step(self, state: State, actions: Mapping[str, str]) -> lab.Step:
        ((agent, answer),) = actions.items()
        turns, player = (*state.turns, (agent, answer)), self.agents.index(agent)
        with dice_of(f"{state.seed} {len(turns)}"):
            game = copy.deepcopy(state.game)
            before = refusals(game, player)
            over, _ = game.step(self.read(answer))
            after, text = (player, "") if over else game.get_observation()
        valid = {agent: refusals(game, player) <= before}
        spoke = [one for one, _ in turns]
        done = over or spoke.count(f"player_{after}") >= self.max_turns
        earned = dict.fromkeys(self.agents, 0.0)
        if over:
            rewards, _ = game.close()
            earned |= {one: float(rewards[number]) for number, one in enumerate(self.agents) if one in spoke}
        first, *others = earned.values()
        paid = {one: earned[one] for one in (dict.fromkeys(spoke) if over else [agent])}
        state = State(state.seed, turns, f"player_{after}", self.say(text), done, game)
        return lab.Step(state, 0.0, paid, valid, over and first > max(others), done)


class TicTacToe(TextArena):
    def demonstrate(self, state: State, agent: str, rng: random.Random) -> str:
        """Return a free square, which is enough to learn the rules from."""
        return rng.choice([word for word in state.text.split() if word.isdigit()])


def board(observation: str) -> str:
    """Return the last board in nine words: a mark, or the number of a free square."""
    rows = re.findall(r"^ (\S) \| (\S) \| (\S) $", observation, re.MULTILINE)[-3:]
    return " ".join(cell for row in rows for cell in row)


def bracketed(answer: str) -> str:
    return f"[{answer}]"


def tictactoe() -> TicTacToe:
    return TicTacToe("TicTacToe-v0", max_turns=10, max_tokens=1, say=board, read=bracketed)


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
