"""Make a pocket model for a custom env: `lab.make_pocket(env, out)`.

Nothing is registered, and no words are listed. The env's `demonstrate` shows how it is played. The words are those of
demonstrated and of hostile play. Leaves out: how a model is made (`build`). A complete example:

    WORDS = ("ash", "bay", "cove", "dell", "elm", "fen", "glen", "hill", "isle", "jet")

    @dataclass(frozen=True)
    class Signals:  # the sender sees a digit and says a word; the receiver hears the word and must name the digit
        agents, max_turns, max_return, max_tokens, pocket = ("sender", "receiver"), 1, 1.0, 1, ""
        splits_meet = True  # there are only ten tasks

        def tasks(self, n, split, seed):
            return [Task(f"digit {digit}", {"digit": digit}) for digit in range(10)][:n]

        def start(self, task):
            return (task.data["digit"],)

        def acting(self, state):
            return self.agents[len(state) - 1 : len(state)]

        def observe(self, state, agent):
            return [{"role": "user", "content": f"send {state[0]}" if agent == "sender" else f"heard {state[1]}"}]

        def step(self, state, actions):
            [(agent, text)] = actions.items()
            right = agent == "receiver" and text == str(state[0])
            return Step((*state, text), float(right), {agent: float(right)}, {agent: True}, right, agent == "receiver")

        def demonstrate(self, state, agent, rng):
            digit = state[0] if rng.random() > 0.3 else rng.randrange(10)
            return WORDS[digit] if agent == "sender" else str(digit)

    folder = lab.make_pocket(Signals(), "signals", steps=100, tasks=10)
    team = lab.Team.shared(lab.load_policy(folder), Signals.agents)
    for report in lab.train(Signals(), team, lab.RECIPES["grpo"], steps=10, seed=0, tasks=10):
        print(report)
"""

import json
from collections.abc import Sequence
from dataclasses import is_dataclass, replace
from pathlib import Path

from mas_lab.arguments import check_arguments
from mas_lab.check import check_env
from mas_lab.env import Env, EnvError, Task, tools_of
from mas_lab.pocket.build import Order, make
from mas_lab.pocket.design import Design, Stage
from mas_lab.pocket.play import hostile_play, longest_answer
from mas_lab.pocket.words import different, parts_of
from mas_lab.train.demonstrations import Demonstration, name_of, require_demonstrate

LR = 3e-3
MARKS = ("<user>", "<assistant>", "<system>", "<tool>")
"""Messages of all roles are shown, since roles of a custom env may differ by their system prompt alone."""
CONTEXTS = (256, 512, 1024, 2048)
"""Context lengths in tokens. A model gets the first one that fits twice the longest chat seen."""
REPEATS = 4
"""Episodes per held-out task."""


def make_pocket(env: Env, out: str | Path, steps: int = 600, seed: int = 0, tasks: int = 32) -> Path:
    """Make a pocket model that plays `env`, and return its folder, which `lab.load_policy` opens.

    >>> lab.make_pocket(MyEnv(), "my_model")
    >>> team = lab.Team.shared(lab.load_policy("my_model"), MyEnv.agents)

    The model is a Qwen3 of about 0.3 M weights. Its tokens are the words of the env. It learns from batches of 64
    answers of `env.demonstrate(state, agent, rng) -> str`.

    Demonstrate imperfectly, so that the team starts at 20 to 60 % and can still learn: give right moves, with a random
    one now and then, drawn by `rng` alone. If the team starts too low, take more steps; if too high, more mistakes.

    Prompts and answers are words separated by spaces (the model reads other white space as one space). It learns to
    read sooner with fewer different words and shorter prompts. An optional `env.words` adds words that play never
    shows.

    The same seed gives the same weights. `provenance.json` in the folder records the design of the model, the team's
    scores, and the learning rates that `load_policy` takes.

    Args:
        env: An env with a method `demonstrate`.
        out: The folder to write. It must be new, empty, or hold a pocket model.
        steps: Optimizer steps of supervised learning, of 64 answers each.
        seed: Seed of demonstrations, first weights and batches.
        tasks: Number of tasks drawn at a time for demonstrations (`train`), and of held-out ones (`test`) for the
            scores.

    Returns:
        The folder.

    Raises:
        EnvError: The env breaks its contract (`check_env`), shows nothing, has too many words, or has too long chats.
            The message names task, agent and turn.
        ValueError: `steps` or `tasks` is not a count from 1.
        FileExistsError: `out` holds something that is no pocket model.
    """
    check_arguments(make_pocket, locals(), steps=1, tasks=1)
    out = Path(out)
    _refuse(env, out)
    check_env(env, tasks=min(2, tasks), seed=seed)
    name = name_of(env)
    tools = any(tools_of(env, agent) for agent in env.agents)
    design = Design(
        stages=(Stage(steps, LR),), marks=MARKS, tools=tools, episodes=tasks, held_out=tasks, repeats=REPEATS
    )
    made = repr(env) if is_dataclass(env) else f"{type(env).__qualname__}()"
    command = f"lab.make_pocket({made}, out, steps={steps}, seed={seed}, tasks={tasks})"
    order = Order(name, design, {json.dumps({}): (1.0, env)}, (), seed, command)
    badly = [turn for found in _drawn(env, tasks, seed) for turn in hostile_play(env, found, seed)]
    demonstrated = order.demonstrated()
    played = [*demonstrated[0], *badly]
    words = different(played, getattr(env, "words", ()), name)
    order = replace(order, words=words, design=replace(design, context=_context(env, played, name)))
    return make(order, demonstrated, out)


def _refuse(env: Env, out: Path) -> None:
    require_demonstrate(env, "make_pocket")
    if out.exists() and not (out / "provenance.json").is_file() and (not out.is_dir() or any(out.iterdir())):
        raise FileExistsError(f"make_pocket: {out} holds something that is no pocket model; name another folder")


def _drawn(env: Env, tasks: int, seed: int) -> list[list[Task]]:
    found = [env.tasks(tasks, split, seed) for split in ("train", "test")]
    train, test = map(len, found)
    if not train == test == tasks:
        message = f"make_pocket: tasks={tasks} are too many: the env gives {train} of 'train' and {test} of 'test'"
        raise EnvError(f"{message}; pass tasks={min(train, test)}")
    return found


def _context(env: Env, played: Sequence[Demonstration], name: str) -> int:
    """Return a context length for twice the longest chat seen; raise EnvError if that is too long."""
    longest = max(
        sum(2 + _length(message["content"] or "", one) for message in one.messages)  # 2: room for marks
        + sum(_length(json.dumps(calls), one) for message in one.messages for calls in message.get("tool_calls", ()))
        + sum(_length(json.dumps(tool), one) for tool in one.tools)
        for one in played
    )
    longest += max(longest_answer(env, agent) for agent in env.agents)
    if fitting := [context for context in CONTEXTS if 2 * longest <= context]:
        return fitting[0]
    raise EnvError(
        f"make_pocket: {name!r} showed {longest} words in one chat, answer included; a pocket model reads at most "
        f"{CONTEXTS[-1] // 2}: show less of what was said before, or lower max_tokens"
    )


def _length(text: str, one: Demonstration) -> int:
    return len(parts_of(text, bool(one.tools)))
