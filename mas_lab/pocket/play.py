"""Play the episodes from which a pocket model learns: demonstrated play and hostile play.

Demonstrated play shows words and first moves, hostile play more words. Leaves out: the play of an episode
(`train.demonstrations`) and the learning (`warm_start`).
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, islice
from typing import Any

from mas_lab.check import HOSTILE, hostile
from mas_lab.env import Env, EnvError, Message, Task
from mas_lab.pocket.design import Stage
from mas_lab.pocket.words import UNKNOWN, parts_of
from mas_lab.train.demonstrations import Demonstration, play, speaker

Forms = Sequence[tuple[float, Env]]
"""(share of the demonstrations, env) for each form that a model plays."""


def demonstrations(forms: Forms, stage: Stage, episodes: int, seed: int) -> list[Demonstration]:
    """Return enough answers that the stage sees each once, form by form; `episodes` tasks are drawn at a time."""
    answers = []
    for number, (share, env) in enumerate(forms):
        env = replace(env, **stage.options) if stage.options else env
        answers += islice(_demonstrated(env, episodes, seed, number), round(share * stage.steps * stage.batch))
    return answers


def _demonstrated(env: Env, episodes: int, seed: int, number: int) -> Iterator[Demonstration]:
    """Yield the answers of one demonstrated episode after the other, without end."""
    rng = random.Random(f"{seed} {number}")
    for part in count(1000 * seed):
        for task in env.tasks(episodes, "train", part):
            for one in play(env, task, speaker(env, rng)):
                most, words = longest_answer(env, one.agent), parts_of(one.text, bool(one.tools))
                if one.text != ("" if one.tools else " ").join(words) or len(words) > most:
                    raise EnvError(
                        f"{one.place}: demonstrate gave {one.text!r:.200}; give a str of at most max_tokens={most} "
                        "words with one space between them, since a pocket model writes nothing else"
                    )
                yield one


def hostile_play(env: Env, tasks: Sequence[Task], seed: int) -> Iterator[Demonstration]:
    """Play every task with each hostile text of `check_env`, cut to the length of an answer."""
    for task in tasks:
        for player in HOSTILE:
            rng = random.Random(f"{seed} {task.id} {player}")

            def speak(state: Any, agent: str, messages: list[Message], place: str, player=player, rng=rng) -> str:
                prompt = " ".join(message["content"] or "" for message in messages)
                return " ".join(hostile(player, prompt, rng).split()[: longest_answer(env, agent)])

            yield from play(env, task, speak)


def longest_answer(env: Env, agent: str) -> int:
    """Return the most tokens of one answer."""
    return env.max_tokens[agent] if isinstance(env.max_tokens, Mapping) else env.max_tokens


def as_rows(answers: Sequence[Demonstration], tokenizer, name: str) -> list[dict[str, list[int]]]:
    """Return training rows: `input_ids` (prompt, answer, eos) and `completion_mask` (1 on the answer and its eos)."""
    write = partial(tokenizer.apply_chat_template, add_generation_prompt=True, tokenize=False)
    prompts = [write(one.messages, tools=list(one.tools) or None) for one in answers]
    both = [tokenizer(texts)["input_ids"] for texts in (prompts, [one.text for one in answers])]
    rows, unknown = [], tokenizer.convert_tokens_to_ids(UNKNOWN)
    for prompt, answer in zip(*both, strict=True):
        answer = [*answer, tokenizer.eos_token_id]
        rows.append({"input_ids": prompt + answer, "completion_mask": [0] * len(prompt) + [1] * len(answer)})
        if unknown in rows[-1]["input_ids"] or len(rows[-1]["input_ids"]) > tokenizer.model_max_length:
            raise EnvError(f"env {name!r}: a chat has a word that `words` leaves out, or is above the context")
    return rows
