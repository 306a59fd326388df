"""Let a person play one agent: the team plays the others, and the episode waits at the person's turns.

Leaves out: the widget that shows the prompt and asks for the answer (`widgets.play`).
"""

from collections import deque
from collections.abc import Sequence

import pandas as pd

from mas_lab.backends.runner import Runner, draw_seed, max_tokens, require_policies
from mas_lab.cells.episode import EpisodeState, Generation
from mas_lab.cells.plans import episodes
from mas_lab.cells.rollout import as_table
from mas_lab.env import Env, Message, Task, transcript
from mas_lab.policy import Request
from mas_lab.team import Team

PERSON = "person"
"""Value of the column `policy` in a person's rows: they have no tokens, and nothing learns from them."""


class HumanAgent(Runner):
    """An episode of `task` in which a person plays `agent`; the other agents are sampled from `team` by `seed`.

    While `waits`, it is the person's turn: `heard` is the prompt, and `say(text)` answers it.

    Raises:
        ValueError: `env` has no such agent, or the team lacks another one.
    """

    def __init__(self, env: Env, team: Team, agent: str, task: Task, seed: int = 0):
        if agent not in env.agents:
            raise ValueError(f"play_as: no agent is named {agent!r}; {type(env).__name__} plays {env.agents}")
        require_policies([other for other in env.agents if other != agent], team, [task], "play_as")
        super().__init__(env, team, seed, step=0)
        self.agent, self.task = agent, task
        self._episode, self._asked = EpisodeState(env, task, task.id), deque()
        self.run([self._episode], episodes(1))

    @property
    def waits(self) -> bool:
        """Return whether it is the person's turn; if not, the episode has ended."""
        return bool(self._asked)

    @property
    def heard(self) -> list[Message]:
        """Return the prompt of this turn."""
        _, _, request = self._asked[0]
        return self.env.observe(request.at.state, self.agent)

    def say(self, text: str) -> None:
        """Answer for the person; return at their next turn, or when the episode has ended."""
        if not self.waits:
            raise ValueError(f"play_as: the episode of task {self.task.id!r} has ended; start another one")
        columns = {
            "policy": PERSON, "prompt": transcript(self.heard), "prompt_ids": [], "temperature": float("nan"),
            "completion": text, "completion_ids": [], "logprobs": [], "finish": "eos",
        }  # fmt: skip
        plan, slot, request = self._asked.popleft()
        self.answer((plan, slot), Generation(self.agent, request.candidate, text, columns))
        self.run()

    def suggestion(self) -> str:
        """Return what the team's own policy would say at this turn. Raises KeyError if the team has none."""
        policy, sampling, messages = self.team[self.agent], self.team.sampling[self.agent], self.heard
        limit = sampling.max_tokens or max_tokens(self.env, self.agent)
        seed = draw_seed(self.seed, "suggestion", len(self._episode.rows))
        request = Request(tuple(policy.encode(messages)), limit, sampling.temperature, seed, sampling.stop)
        return policy.sample([request])[0].text

    @property
    def turns(self) -> pd.DataFrame:
        """Return the rows so far, as `rollout` does."""
        return as_table(self._episode.rows, step=0)

    def speaker(self, agent: str) -> int:
        """Return a key: the person's requests are kept apart."""
        return id(self) if agent == self.agent else super().speaker(agent)

    def submit(self, requests: Sequence[tuple]) -> None:
        """Keep the person's requests, and submit the others to their policies."""
        if requests[0][2].agent == self.agent:
            self._asked.extend(requests)
        else:
            super().submit(requests)
