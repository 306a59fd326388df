"""A folder that `verl.export(run, folder)` wrote, opened beside verl, whose engine samples the tokens.

The env and the plan belong to the kit. Token ids go out, the sampled ids come back, and no text is encoded again.
Leaves out: how the folder is written (`writer`), and verl's interfaces (`extensions`).
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.backends.torch.encoding import encode
from mas_lab.cells.driver import Runner
from mas_lab.cells.episode import EpisodeState, Plan
from mas_lab.env import Env, Message, Task, spec, with_max_turns
from mas_lab.locks import ModelLock
from mas_lab.policy import Completion, Policy, Request
from mas_lab.recipes import from_data
from mas_lab.runs.disk import read_json, read_table
from mas_lab.table import column, plain, selected
from mas_lab.tasks import make_env, own_env
from mas_lab.team import Sampling, Team

FILE, BATCH = "hand_over.json", "batch.parquet"
CLOSE = 1e-6
"""Tolerance for an advantage, relative to the recorded one if its magnitude is above 1."""
Speak = Callable[[Request], Awaitable[Completion]]
"""Async function that answers one request. An exception in it ends the episode."""
THREADS = ThreadPoolExecutor(max_workers=4096, thread_name_prefix="mas_lab episode")
"""A thread for each live episode, which mostly waits for the engine."""


class HandOverError(ValueError):
    """Error for a run that verl cannot take over, or for wrong values that it gave back."""


class VerlFolder:
    """Recipe, env and team settings of a folder; an env of a user's own is imported by its name."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        data = read_json(self.folder / FILE)
        env = own_env(folder=self.folder, **data["env"]) if ":" in data["env"]["name"] else make_env(**data["env"])
        if spec(env) != data["env"]:
            raise HandOverError(f"{self.folder / FILE} was made for env {data['env']}, and this one is {spec(env)}")
        self.env = with_max_turns(env, data["max_turns"])
        self.recipe = from_data(data["recipe"])
        self.sampling = {agent: Sampling(**one) for agent, one in data["sampling"].items()}
        self.frozen, self.template, self.seed = tuple(data["frozen"]), data["template"], data["seed"]
        self.minibatches = data["minibatches"]
        self.rows: Sequence[Mapping[str, Any] | None] | None = None
        """The rows of verl's batch, `None` for padding, until the estimator has taken them."""

    async def play(
        self, task: str, session: Any, occasion: str, speak: Speak, tokenizer: Any, context: int
    ) -> list[dict[str, Any]]:
        """Play one more instance of `task`, and return its rows.

        `task` is JSON text from the parquet files. `session` counts its instances, and `occasion` distinguishes
        repeated draws of one task.
        """
        data = json.loads(task)
        speaker = Speaker(speak, tokenizer, self.template, context)
        drawn, episode = Task(data["id"], data["data"]), f"{data['id']}#{session}@{occasion}"
        rows = await play(self.env, drawn, episode, self.recipe.plan, speaker, self.sampling, self.seed)
        return [{**row, "occasion": occasion} for row in rows]

    def learns(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row may be trained on; the recipe's `select` can still exclude it.

        Rows that only value a candidate and rows of frozen agents may not.
        """
        return not row["probe"] and row["agent"] not in self.frozen

    def advantages(self, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
        """Return all rows of one batch as a table with `credit`, `advantage` and `selected` from the recipe.

        The advantage of a row that is not trained on is 0.
        """
        turns = pd.DataFrame(list(rows)).assign(step=0)
        if "occasion" in turns:  # a task that was drawn twice gives two groups
            twice = turns.groupby("task")["occasion"].transform("nunique") > 1
            turns.loc[twice, "task"] += " @" + turns.loc[twice, "occasion"]
            turns = turns.drop(columns="occasion")
        judged = self.recipe.advantages(turns)
        trains = selected(judged) & ~column(judged, "agent").isin(self.frozen)
        return judged.assign(advantage=judged["advantage"].where(trains, 0.0), selected=trains)

    def batch(self) -> pd.DataFrame:
        """Return the recorded rows with their recorded advantages."""
        return read_table(self.folder / BATCH)

    def compare(self, found: Sequence[float]) -> str:
        """Return a line about how close `found` is to the recorded advantages.

        Raises HandOverError if a difference exceeds `CLOSE`.
        """
        recorded = self.batch()
        missed = np.abs(np.asarray(found, float) - recorded["advantage"].to_numpy(float))
        worst = int(missed.argmax())
        if not missed[worst] <= CLOSE * max(1.0, abs(float(recorded["advantage"].iloc[worst]))):
            row = recorded.iloc[worst]
            who = f"{self.folder / BATCH}: row {worst} (task {row['task']!r}, agent {row['agent']!r})"
            raise HandOverError(f"{who} has the advantage {row['advantage']!r}, here {found[worst]!r}; do not train")
        return f"{len(recorded)} advantages are those that were recorded; the largest difference is {missed[worst]:.1e}"


def plain_row(row: Mapping[str, Any], without: Sequence[str] = ()) -> dict[str, Any]:
    """Return a row as plain data, except for the columns `without`."""
    return {name: plain(value) for name, value in row.items() if name not in without}


def recorded_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a recorded batch as a rollout returned them."""
    return [plain_row(row, without=("step", "advantage")) for row in table.to_dict("records")]


class Speaker:
    """A policy that can only sample: `tokenizer` and `template` write prompts, `speak` answers them.

    `speak` runs in the event loop in which the speaker was made; the other methods are called in another thread.
    """

    streams = True

    def __init__(self, speak: Speak, tokenizer: Any, template: Mapping[str, Any], context: int):
        self.speak, self.tokenizer, self.template, self.context = speak, tokenizer, template, context
        self.name, self.engine, self.lock = "external", self, ModelLock()
        self.loop = asyncio.get_running_loop()
        self.futures: dict[int, Future[Completion]] = {}

    def encode_all(self, chats: Sequence[Sequence[Message]]) -> list[list[int]]:
        return encode(self.tokenizer, chats, self.template, self.name)

    def submit(self, policy: Policy, requests: Sequence[Request]) -> list[int]:
        answers = [asyncio.run_coroutine_threadsafe(self.speak(request), self.loop) for request in requests]
        self.futures |= {id(answer): answer for answer in answers}
        return [id(answer) for answer in answers]

    def ready(self) -> list[tuple[int, Completion]]:
        """Wait for the first answer, and return all that are there."""
        done = wait(self.futures.values(), return_when=FIRST_COMPLETED).done
        return [(id(answer), self.futures.pop(id(answer)).result()) for answer in done]

    def cancel(self, tickets: Iterable[int]) -> None:
        """Do nothing: `play` cancels what is left when its episode ends."""


async def play(
    env: Env, task: Task, episode: str, plan: Plan, speaker: Speaker, sampling: Mapping[str, Sampling], seed: int = 0
) -> list[dict[str, Any]]:
    """Play one instance of `task`, named `episode`, by `plan`, and return its rows.

    `speaker` answers for all agents. The env steps in a thread, so the trainer's event loop goes on. The seed of a
    request equals the seed of the same call in `rollout` at step 0, for engines that take seeds. Raises the same errors
    as `rollout`.
    """
    state, team = EpisodeState(env, task, episode), Team.shared(speaker, env.agents, sampling=dict(sampling))
    try:
        await speaker.loop.run_in_executor(THREADS, Runner(env, team, seed, step=0).run, [state], plan)
    finally:  # the thread ends too where this task is cancelled
        for answer in list(speaker.futures.values()):
            answer.cancel()
    return state.rows


def completion(ids: Sequence[int], logprobs: Sequence[float], request: Request, tokenizer: Any) -> Completion:
    """Return an engine's sample as a `Completion`.

    The text has no special tokens, but keeps the stop text. `finish` is "eos" after an end token of the model, "stop"
    after a stop text of the request, and "length" at the token limit. Raises ValueError if there are no tokens, or not
    one log-probability for each.
    """
    if not ids or len(ids) != len(logprobs):
        raise ValueError(f"the engine gave {len(ids)} tokens with {len(logprobs)} log-probabilities; one for each")
    text = tokenizer.decode(list(ids), skip_special_tokens=True)
    early = len(ids) < request.max_tokens  # ended before the limit: a model may have several end tokens
    ended = ids[-1] == tokenizer.eos_token_id or (early and ids[-1] in tokenizer.all_special_ids)
    finish = "eos" if ended else "stop" if any(one in text for one in request.stop) else "length"
    return Completion(tuple(map(int, ids)), tuple(map(float, logprobs)), text, finish)
