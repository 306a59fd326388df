"""`play_as`: let a person play one agent, read its prompts, answer, and see what the answers earn.

The person uses widgets where they stay live, and `.say(text)` elsewhere. The team plays the other agents, and the
episode waits at the person's turns. This module leaves out the play itself (`driver`).
"""

import inspect
from collections import deque
from collections.abc import Sequence

import pandas as pd

from mas_lab.cells.driver import Runner, Slot, draw_seed, require_policies
from mas_lab.cells.episode import EpisodeState, Generation
from mas_lab.cells.plans import episodes
from mas_lab.cells.rollout import as_table
from mas_lab.display.progress import front_end
from mas_lab.env import Env, Message, Task, max_tokens, transcript
from mas_lab.policy import Request
from mas_lab.team import Team
from mas_lab.tool_calls import as_action
from mas_lab.widgets.document import beside, escape, table_html
from mas_lab.widgets.live import with_fallback
from mas_lab.widgets.text import escape_control_chars

ANSWERED_BY_WIDGETS = ("jupyter", "vscode", "colab", "kaggle")
"""Front ends (`progress.front_end`) in which a button still works after its cell has returned."""
COLUMNS = ("agent", "turn", "completion", "valid", "local_reward", "team_reward")
PERSON = "person"
"""Value of the column `policy` in a person's rows: they have no tokens, and nothing learns from them."""


def play_as(env: Env, team: Team, agent: str, seed: int = 0, split: str = "train") -> "PlayAs":
    """Take the seat of one agent: read its prompts, answer, and see what the answers earn.

    >>> lab.play_as(env, team, "executor")

    The button "Ask the policy" fills the box with an answer of the team's own policy. Without widgets, as in a
    terminal, use `.say(text)`.

    Args:
        env: The environment.
        team: A team with a policy for each other agent; any team if there are no others.
        agent: Name of the agent that you play.
        seed: Seed of the tasks, and of the samples of the other agents.
        split: Split of the tasks, as in `env.tasks`.

    Returns:
        A `PlayAs`. Its `.turns` is the table of everything played, as `rollout` returns it, and the instruments read
        it. Your own rows have no tokens, and nothing learns from them.

    Raises:
        ValueError: If `env` has no such agent, or if the team lacks another agent.
    """
    return PlayAs(env, team, agent, seed, split)


class PlayAs(Runner):
    """A person in the seat of one agent, task after task; `play_as` makes one.

    The person's requests wait in `_requests`. All others are submitted to the team's policies.
    """

    def __init__(self, env: Env, team: Team, agent: str, seed: int, split: str):
        if agent not in env.agents:
            raise ValueError(f"play_as: no agent is named {agent!r}; {type(env).__name__} plays {env.agents}")
        super().__init__(env, team, seed, step=0)
        self.agent, self.split = agent, split
        self._episodes: list[EpisodeState] = []
        self._requests: deque[Slot] = deque()
        self._panel: Panel | None = None
        self.another()

    def __repr__(self) -> str:
        return f"PlayAs({type(self.env).__name__}, {self.agent!r}: {self._outcome() or 'your turn'})"

    def another(self) -> None:
        """Start the next task.

        Raises:
            ValueError: If the env gives no further task for this seed.
        """
        tasks = self.env.tasks(len(self._episodes) + 1, self.split, self.seed)
        if len(tasks) <= len(self._episodes):
            raise ValueError(f"play_as: the env gave {len(tasks)} tasks, and all of them were played; use another seed")
        require_policies([other for other in self.env.agents if other != self.agent], self.team, tasks[-1:], "play_as")
        self._episodes.append(EpisodeState(self.env, tasks[-1], tasks[-1].id))
        self._requests.clear()
        self.run(self._episodes[-1:], episodes(1))
        self._show()

    def key(self, agent: str) -> int:
        """Return a key: the person's requests are not submitted together with others."""
        return id(self) if agent == self.agent else super().key(agent)

    def submit(self, slots: Sequence[Slot]) -> None:
        """Let the person's requests wait, and submit the others to their policies."""
        if slots[0].request.agent == self.agent:
            self._requests.extend(slots)
        else:
            super().submit(slots)

    def say(self, text: str) -> None:
        """Give your answer, and let the other agents play until it is your turn again or the episode ends.

        Args:
            text: The answer, as the completion of your agent.

        Raises:
            ValueError: If the episode has ended.
        """
        if not self._requests:
            raise ValueError(f"play_as: the episode of task {self.task.id!r} has ended; start another one")
        columns = {
            "policy": PERSON, "prompt": self.heard, "prompt_ids": [], "temperature": float("nan"),
            "completion": text, "completion_ids": [], "logprobs": [], "finish": "eos",
        }  # fmt: skip
        slot = self._requests.popleft()
        action = as_action(self.env, self.agent, text, slot.request.at.depth)
        message = None if action == text else action
        self.answer(slot, Generation(self.agent, slot.request.candidate, text, columns, message))
        self.run()
        self._show()

    def suggestion(self) -> str:
        """Return what the team's own policy would say at this turn.

        Returns:
            The completion of the policy.

        Raises:
            KeyError: If the team has no policy for your agent.
        """
        policy, sampling = self.team[self.agent], self.team.sampling[self.agent]
        limit = sampling.max_tokens or max_tokens(self.env, self.agent)
        seed = draw_seed(self.seed, "suggestion", len(self._episodes[-1].rows))
        tools = self.tools[self.agent]
        ids = tuple(policy.encode(self._messages(), **({"tools": tools} if tools else {})))
        return policy.sample([Request(ids, limit, sampling.temperature, seed, sampling.stop)])[0].text

    @property
    def turns(self) -> pd.DataFrame:
        """Return all turns played so far, with the columns `mas_lab.table.ROLLOUT`."""
        return pd.concat([as_table(episode.rows, step=0) for episode in self._episodes], ignore_index=True)

    @property
    def task(self) -> Task:
        """Return the present task."""
        return self._episodes[-1].task

    @property
    def heard(self) -> str:
        """Return the prompt of your agent at this turn; it is empty after the end of the episode."""
        return transcript(self._messages()) if self._requests else ""

    def _messages(self) -> list[Message]:
        return self.env.observe(self._requests[0].request.at.state, self.agent)

    def _present(self) -> pd.DataFrame:
        """Return the turns of the present episode."""
        return as_table(self._episodes[-1].rows, step=0)

    def _outcome(self) -> str:
        """Return the end of the episode in words; empty while the episode goes on."""
        if self._requests:
            return ""
        turns = self._present()
        if getattr(self.env, "competitive", False):
            own = turns.loc[turns["agent"] == self.agent, "local_reward"].sum()
            return f"{self.agent} earned {own:.2f} of at most {self.env.max_return:g}"
        total = turns.drop_duplicates("depth")["team_reward"].sum()
        ending = "success" if turns["success"].any() else "no success"
        return f"the team earned {total:.2f} of at most {self.env.max_return:g}: {ending}"

    def _table(self) -> pd.DataFrame:
        """Return your own turns during the episode, and the turns of all agents after its end."""
        turns = self._present()[list(COLUMNS)]
        return turns[turns["agent"] == self.agent] if self._requests else turns

    def _heading(self) -> str:
        return f"You are {self.agent}, in task {self.task.id}"

    def _show(self) -> None:
        if self._panel is not None:
            self._panel.show()
        elif front_end() == "terminal":
            print(self._in_text())

    def _in_text(self) -> str:
        heard = escape_control_chars(self.heard if self._requests else self._table().to_string(index=False))
        return f"{self._heading()}\n{heard}\n{self!r}; answer with .say(text)"

    def _ipython_display_(self) -> None:
        from IPython.display import display

        if front_end() in ANSWERED_BY_WIDGETS:
            self._panel = self._panel or Panel(self)
            body = table_html(self._table(), self._outcome()) if self._outcome() else _block(self.heard)
            display(with_fallback(self._panel.box, beside(f"<p>{escape(self._heading())}</p>{body}")), raw=True)
        else:
            print(self._in_text())


class Panel:
    """The seat of a player as core widgets (ipywidgets 7.7.1 and later)."""

    def __init__(self, play: PlayAs):
        from ipywidgets import HTML, Button, HBox, Label, Textarea, VBox

        self._play = play
        self._heading, self._heard, self._table = Label(), HTML(), HTML()
        self._answer = Textarea(placeholder="Your answer", layout={"width": "100%"})
        self._say = Button(description="Say", tooltip="Answer, and let the others play on")
        self._ask = Button(description="Ask the policy", tooltip="Fill the box with what the team's own policy says")
        following = Button(description="Another task", tooltip="Start the next task")
        self._say.on_click(lambda _: play.say(self._answer.value))
        self._ask.on_click(lambda _: setattr(self._answer, "value", play.suggestion()))
        following.on_click(lambda _: play.another())
        rules = HTML(f"<details><summary>The rules</summary>{_block(inspect.getdoc(type(play.env)) or '')}</details>")
        buttons = HBox([self._say, self._ask, following])
        self.box = VBox([self._heading, rules, self._heard, self._answer, buttons, self._table])
        self.show()

    def show(self) -> None:
        play, outcome, table = self._play, self._play._outcome(), self._play._table()
        self._heading.value = play._heading()
        self._heard.value = _block(play.heard) if play.heard else ""
        self._answer.value = ""
        self._answer.disabled = self._say.disabled = bool(outcome)
        self._ask.disabled = bool(outcome) or play.agent not in play.team
        self._table.value = table_html(table, outcome or "What you said, and what it earned") if len(table) else ""


def _block(text: str) -> str:
    return f'<pre style="white-space: pre-wrap">{escape(text)}</pre>'
