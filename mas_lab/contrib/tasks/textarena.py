"""Play games of TextArena as envs, in self-play or against others (arXiv 2504.11442, the extra `games`).

    env = lab.from_textarena("TicTacToe-v0")
    team = lab.Team.shared(policy, env.agents)                  # self-play: one policy has both seats
    recipe = lab.RECIPES["dr_mas"].replace(credit=lab.own_return())
    for report in lab.train(env, team, recipe, steps=10): ...

TextArena's envs change while they are played. So a state here holds a game that is never played on: each step plays a
deep copy. TextArena's agents, its online arena, and word games that download their dictionary are not supported.
"""

import copy
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mas_lab.contrib.tasks.foreign import ForeignEnv
from mas_lab.env import EnvError, Step, Task

SIZES = (2, 1, *range(3, 16))
"""Numbers of players, in the order in which they are tried if none is given."""
_dice = threading.Lock()
"""Lock for Python's own random generator: TextArena draws from it, and all threads share it."""


@dataclass(frozen=True)
class State:
    """State of a game; two states are equal if all fields except `game` are equal."""

    seed: int
    turns: tuple[tuple[str, str], ...]
    """(agent, answer) of each turn, in order."""
    player: int
    observation: str
    done: bool = False
    game: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class TextArena(ForeignEnv):
    """An env that plays the game `id` with agents `player_0`, `player_1`, …; `from_textarena` makes one.

    With two or more players it is `competitive`. At the end each player gets the game's reward as its local reward (in
    most games -1 to 1), and the team earns nothing. A player that has said nothing by then is not paid. With one
    player, `player_0` earns the reward for the team, and success means to earn `max_return`. A task is the seed of a
    game. An answer that the game refuses is invalid; the player may answer again as often as the game allows. Where a
    player would speak more than `max_turns` times, it is a draw.
    """

    id: str
    players: int
    max_tokens: int = 256
    say: Callable[[str], str] | None = None
    """Function from an observation to the text that an agent gets; `None`: the whole observation."""
    read: Callable[[str], str] | None = None
    """Function from an answer to the move that the game gets; `None`: the answer itself."""

    name = "textarena"

    @property
    def world(self) -> str:
        return self.id

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(f"player_{number}" for number in range(self.players))

    @property
    def competitive(self) -> bool:
        return self.players > 1

    def start(self, task: Task) -> State:
        seed, game = task.data["seed"], _made(self.id)
        with _dice_of(f"{seed}"):
            game.reset(num_players=self.players, seed=seed)
            return State(seed, (), *game.get_observation(), game=game)

    def acting(self, state: State) -> tuple[str, ...]:
        return () if state.done else (f"player_{state.player}",)

    def text_for(self, state: State, agent: str) -> str:
        return self.say(state.observation) if self.say else state.observation

    def act(self, state: State, actions: Mapping[str, str]) -> Step:
        ((agent, text),) = actions.items()
        turns = (*state.turns, (agent, text))
        with _dice_of(f"{state.seed} {len(turns)}"):
            game = copy.deepcopy(state.game)
            before = _refused(game, state.player)
            over, _ = game.step(self.read(text) if self.read else text)
            player, observation = (state.player, "") if over else game.get_observation()
        speakers = [one for one, _ in turns]
        late = speakers.count(f"player_{player}") >= self.max_turns
        rewards = self._rewards(game, len(turns)) if over else dict.fromkeys(self.agents, 0.0)
        team, success = (0.0, False) if self.competitive else (rewards[agent], rewards[agent] >= self.max_return)
        if over and self.competitive:
            success = self.first_wins({one: rewards[one] for one in speakers})
        local = {one: rewards[one] for one in dict.fromkeys(speakers if over else [agent])}
        after = State(state.seed, turns, player, observation, over or late, game)
        valid = {agent: _refused(game, state.player) <= before}
        return Step(after, team, local, valid, success, over or late)

    def _rewards(self, game: Any, step: int) -> dict[str, float]:
        rewards, _ = game.close()
        if not rewards or set(rewards) - set(range(self.players)):
            place = f"TextArena game {self.id!r} ({type(game).__name__}), step {step}"
            raise EnvError(f"{place}: it ended with the rewards {rewards!r}; give one to each of the players")
        return {agent: float(rewards.get(number, 0.0)) for number, agent in enumerate(self.agents)}


def from_textarena(id: str, players: int | None = None, **options: Any) -> TextArena:
    """Return the TextArena game `id` as an env.

    Args:
        id: Name of the game in TextArena, for example "TicTacToe-v0".
        players: Number of players. `None` (default) means two if the game allows it, else one, else the least number
            from 3 to 15 that it allows.
        **options: Other fields of `TextArena`. `max_turns`: turns of one player, by default 30. `max_tokens`: tokens of
            one answer, by default 256. `max_return`: upper bound of a return, by default 1.0. `say`: function from an
            observation to the text that an agent gets, by default the whole observation. `read`: function from an
            answer to the game's move, by default the answer itself. `show`: function `show(text, rng)` that returns an
            imperfect answer to learn from, by default `None`. `pocket`: pocket model that plays the game, by default
            none. `say`, `read` and `show` translate for a model that knows few words.

    Returns:
        The env, a `TextArena` with one agent per player.

    Raises:
        EnvError: If TextArena is not installed, if it has no such game (the message lists its games), or if the game
            does not open.
    """
    errors = []
    for count in SIZES if players is None else (players,):
        env = TextArena(id, count, **options)
        try:
            env.start(Task(id, {"seed": 0}))
            return env
        except EnvError:
            raise
        except Exception as error:
            errors.append(f"for {count}: {type(error).__name__}: {error}")
    raise EnvError(f"TextArena game {id!r} does not open {errors[0]}")


def _made(id: str) -> Any:
    try:
        import textarena
        from textarena.envs.registration import ENV_REGISTRY
    except ImportError as error:
        raise EnvError(f"games of TextArena need it ({error}): pip install 'mas-lab[games]'") from None
    if id not in ENV_REGISTRY:
        raise EnvError(f"TextArena has no game {id!r}; its games are: {', '.join(ENV_REGISTRY)}")
    return textarena.make(id)


def _refused(game: Any, player: int) -> int:
    """Return the number of refused answers in this turn; the last one ends the game, or the player's part in it."""
    return getattr(game.state, "error_count", 0) + 10**6 * bool(game.state.game_info[player].get("invalid_move"))


@contextmanager
def _dice_of(seed: str) -> Iterator[None]:
    """Make all random draws inside depend on `seed` alone, and restore the generators afterwards."""
    with _dice:
        before, before_numpy = random.getstate(), np.random.get_state()
        random.seed(seed)
        np.random.seed(random.randrange(2**32))
        try:
            yield
        finally:
            random.setstate(before)
            np.random.set_state(before_numpy)
