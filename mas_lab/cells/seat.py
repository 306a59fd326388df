"""One agent's seat, given to a person: the team plays the others, and the episode waits when it is the person's turn.

Leaves out: how the person is shown what they hear and asked what they say (`widgets.play`).
"""

from collections import deque
from collections.abc import Sequence

import pandas as pd

from mas_lab.cells.driver import Driver, draw_seed, max_tokens
from mas_lab.cells.game import Game, Said
from mas_lab.cells.plans import episodes
from mas_lab.cells.rollout import as_table, refuse_strangers
from mas_lab.env import Env, Message, Task, transcript
from mas_lab.policy import Request
from mas_lab.progress import no_bars, progress_bar
from mas_lab.team import Team

PERSON = "person"
"""In the column `policy`: nobody's weights said it, so that the row has no tokens, and nothing learns from it."""


class Seat(Driver):
    """An episode of `task` in which a person sits in for `agent`; whoever else acts is sampled from `team` by `seed`.

    While `waits`, it is the person's turn: `heard` is what they are told, `say(text)` their answer, upon which the
    others play on. Raises ValueError where `env` has no such agent, or the team lacks another one.
    """

    def __init__(self, env: Env, team: Team, agent: str, task: Task, seed: int = 0):
        if agent not in env.agents:
            raise ValueError(f"play_as: no agent is named {agent!r}; {type(env).__name__} plays {env.agents}")
        refuse_strangers([other for other in env.agents if other != agent], team, [task], "play_as")
        with no_bars():  # a person sees how far it is
            super().__init__(env, team, None, seed, 0, progress_bar(1, "play", "episode"))
        self.agent, self.task = agent, task
        self._game, self._asked = Game(env, task, task.id), deque()
        self.play([(self._game, episodes(1)(self._game))])

    @property
    def waits(self) -> bool:
        """Is it the person's turn? If not, the episode has ended."""
        return bool(self._asked)

    @property
    def heard(self) -> list[Message]:
        """What the person is told at this turn."""
        _, _, say = self._asked[0]
        return self.env.observe(say.at.state, self.agent)

    def say(self, text: str) -> None:
        """The person's answer; returns when it is their turn again, or the episode has ended."""
        if not self.waits:
            raise ValueError(f"play_as: the episode of task {self.task.id!r} has ended; start another one")
        columns = {
            "policy": PERSON, "prompt": transcript(self.heard), "prompt_ids": [], "temperature": float("nan"),
            "completion": text, "completion_ids": [], "logprobs": [], "finish": "eos",
        }  # fmt: skip
        play, slot, say = self._asked.popleft()
        self._answer(play, slot, Said(self.agent, say.candidate, text, columns))
        self.play([])

    def suggestion(self) -> str:
        """What the team's own policy would say at this turn. Raises KeyError where the team has none for this seat."""
        policy, sampling, messages = self.team[self.agent], self.team.sampling[self.agent], self.heard
        limit = sampling.max_tokens or max_tokens(self.env, self.agent)
        seed = draw_seed(self.seed, "suggestion", len(self._game.rows))
        request = Request(tuple(policy.encode(messages)), limit, sampling.temperature, seed, sampling.stop)
        return policy.sample([request])[0].text

    @property
    def turns(self) -> pd.DataFrame:
        """What was played so far, as `rollout` returns it."""
        return as_table(self._game.rows, step=0)

    def _speaker(self, agent: str) -> int:
        return id(self) if agent == self.agent else super()._speaker(agent)

    def _submit(self, says: Sequence[tuple]) -> None:
        if says[0][2].agent == self.agent:
            self._asked.extend(says)
        else:
            super()._submit(says)
