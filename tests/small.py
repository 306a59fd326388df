"""What several test files and their child processes share: a world of eight words, models of 6,000 weights, teams.

`Relay` pays every text a little differently, so that groups of random models are seldom flat. The models are random
and made on the spot. Leaves out: anything a test asserts.
"""

import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

import mas_lab as lab
from mas_lab.env import Step, Task
from mas_lab.runs.disk import digest, read_hashed, write_hashed
from mas_lab.runs.run import TABLES

torch.set_num_threads(1)
WORDS = tuple(f"w{i}" for i in range(8))
TURNS = ("now", "then", "later", "last")
AGENTS = ("asker", "doer")
LENGTH = 3
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }} {{ m['content'] }} {% endfor %}{% if add_generation_prompt %}say{% endif %}"
)


@dataclass(frozen=True)
class State:
    word: str
    heard: str = ""
    turn: int = 0
    done: bool = False


@dataclass(frozen=True)
class Relay:
    """The task is a word, even or odd; a text scores the share of its three words that are of the same kind.

    Taking turns, the asker speaks and the doer, who hears it, acts; `together`, they act at once and are scored as one
    text. A perfect text ends the episode and earns 1, any other earns up to 0.5 over the episode.
    """

    together: bool = False
    max_turns: int = 2
    broken: str = ""
    """A defect for tests of errors: "nan" rewards, or an "impure" step."""

    name = "relay"
    pocket = "relay"
    agents = AGENTS
    max_return = 1.5
    max_tokens = LENGTH

    def tasks(self, n: int, split: str, seed: int) -> list[Task]:
        rng = random.Random(f"{split} {seed}")
        numbers = rng.sample(range(0 if split == "train" else 1, 2000, 2), n)
        return [Task(f"{split}-{number}", {"word": WORDS[number // 2 % 8], "number": number}) for number in numbers]

    def start(self, task: Task) -> State:
        return State(task.data["word"])

    def acting(self, state: State) -> tuple[str, ...]:
        if state.done:
            return ()
        return AGENTS if self.together else (AGENTS[bool(state.heard)],)

    def observe(self, state: State, agent: str) -> list[dict[str, str]]:
        content = f"{agent} {TURNS[state.turn]} {state.word} {state.heard}".strip()
        return [{"role": "user", "content": content}]

    def step(self, state: State, actions: Mapping[str, str]) -> Step:
        valid = {agent: bool(text.split()) for agent, text in actions.items()}
        local = {agent: score(text, state.word) for agent, text in actions.items()}
        if self.broken == "nan":
            local = dict.fromkeys(actions, float("nan"))
        if self.broken == "impure":
            local = {agent: random.random() for agent in actions}
        if not self.together and "asker" in actions:
            heard = " ".join(word for word in actions["asker"].split() if word in WORDS)[:8] or "nothing"
            return Step(State(state.word, heard, state.turn), 0.0, local, valid, False, False)
        share = score(" ".join(actions.values()), state.word, LENGTH * len(actions))
        success, turn = share == 1.0, state.turn + 1
        team = 1.0 if success else 0.5 * share / self.max_turns
        done = success or turn == self.max_turns
        return Step(State(state.word, "", turn, done), team, local, valid, success, done)


def score(text: str, word: str, length: int = LENGTH) -> float:
    """The share of `length` words that are as even or odd as `word`."""
    alike = [said for said in text.split() if said in WORDS and (int(said[1]) - int(word[1])) % 2 == 0]
    return min(1.0, len(alike) / length)


def make_model(directory: Path, seed: int, extra_words: int = 0, head_dim: int = 8) -> Path:
    """A random Qwen3 and a word-level tokenizer in Hugging Face format; other `extra_words`, another tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    listed = ["<pad>", "<eos>", *(f"x{i}" for i in range(extra_words)), "user", "say", "nothing"]
    listed += [*AGENTS, *TURNS, *WORDS]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(listed)}, unk_token="nothing"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<pad>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(directory)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(Qwen3Config(
            vocab_size=len(listed), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=1, head_dim=head_dim, max_position_embeddings=64, tie_word_embeddings=True,
            pad_token_id=0, eos_token_id=1, bos_token_id=None,
        ))  # fmt: skip
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(directory)
    return directory


def make_models(root: Path) -> Path:
    """`root/a`, `root/b` (another tokenizer): the models of all teams below."""
    make_model(root / "a", seed=0)
    make_model(root / "b", seed=1, extra_words=5)
    return root


def make_team(kind: str, models: Path, lr: float = 1e-2) -> lab.Team:
    """ "shared", "per_agent", "lora" (two adapters on one base) or "unlike" (two models, tokenizers and rates)."""
    if kind == "shared":
        return lab.Team.shared(lab.load_policy(models / "a", lr=lr), AGENTS)
    if kind == "per_agent":
        return lab.Team.per_agent(lambda agent: lab.load_policy(models / "a", lr=lr), AGENTS)
    if kind == "lora":
        base = lab.load_base(models / "a", adapters=2, rank=2, lr=lr, seed=3)
        return lab.Team.per_agent(base.adapter, AGENTS)
    assert kind == "unlike"
    cold = {"doer": lab.Sampling(temperature=0.8)}
    unlike = {"asker": lab.load_policy(models / "a", lr=lr), "doer": lab.load_policy(models / "b", lr=lr / 2)}
    return lab.Team(unlike, sampling=cold)


KINDS = ("shared", "per_agent", "lora", "unlike")
RECIPE = lab.RECIPES["at_grpo"].replace(plan=lab.tree(3))
SETTINGS = {"seed": 5, "tasks": 2, "minibatches": 2, "schedule": 9, "save_every": 1, "check": False, "workers": 2}


def judged(team: lab.Team, step: int = 0) -> pd.DataFrame:
    """Trees of four candidates a turn, with advantages."""
    return RECIPE.advantages(lab.rollout(Relay(), team, Relay().tasks(4, "train", 0), lab.tree(4), step=step))


class Memory:
    """A watch that remembers: the running sum of every gradient norm it saw."""

    def __init__(self):
        self.total, self.seen = 0.0, []

    def __call__(self, batch) -> None:
        self.total += sum(batch.norms.values())
        self.seen.append(batch.name)

    def state(self) -> dict:
        return {"total": self.total, "seen": self.seen}

    def load_state(self, state: dict) -> None:
        self.total, self.seen = state["total"], list(state["seen"])


def start(kind: str, models: Path, run: Path, steps: int, **changes):
    """The training that all runs of these tests make, as a generator; `changes` to its settings."""
    torch.set_num_threads(1)
    return lab.train(Relay(), make_team(kind, models), RECIPE, steps, run=run, watch=Memory(), **SETTINGS | changes)


def environment(**variables: str) -> dict[str, str]:
    """The variables of a process that imports what the tests share, on one thread."""
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)} | variables


def child(*arguments, **variables: str) -> list[dict]:
    """What `children.py` printed, a JSON object per line; a training also prints its verdict."""
    command = [sys.executable, str(Path(__file__).with_name("children.py")), *map(str, arguments)]
    done = subprocess.run(command, env=environment(**variables), capture_output=True, text=True, timeout=7200)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def recorded(run: Path, without: str = "", **changes) -> None:
    """`changes` to run.json, and one field less, as if a training had asked for it so."""
    config = read_hashed(run / "run.json") | changes
    config.pop(without, None)
    write_hashed(run / "run.json", config)


def bits(run: Path) -> dict[str, str]:
    """sha256 of every table and of every file of the newest checkpoint, by its path inside the run.

    PEFT writes a set of module names into an adapter's description in any order: it is compared sorted, and the digests
    of files are left out.
    """
    newest = max((run / "checkpoints").iterdir())
    tables = [path for name in TABLES for path in (run / name).glob("*.parquet")]
    found = {}
    for path in (*tables, *filter(Path.is_file, newest.rglob("*"))):
        data = path.read_bytes()
        if path.name == "adapter_config.json":
            described = json.loads(data)
            data = json.dumps(described | {"target_modules": sorted(described["target_modules"])}).encode()
        if path.name == "state.json":
            data = json.dumps({**read_hashed(path), "files": None}).encode()
        found[path.relative_to(run).as_posix()] = digest(data)
    return found


def assert_newest_weights_are_scored(team, loop, tasks=3, episodes=2) -> None:
    """Assert after each step that its scores are those of the team as it is now. The loop scores every step."""
    held_out = Relay().tasks(tasks, "test", SETTINGS["seed"])
    for report in loop:
        own = lab.evaluate(Relay(), team, held_out, k=episodes, seed=SETTINGS["seed"])
        scores = report.held_out[report.held_out["step"] == report.step + 1].reset_index(drop=True)
        columns = own.columns.drop(["latency", "throughput"])
        pd.testing.assert_frame_equal(scores[columns], own[columns])
