"""What every contestant shares: its arguments, the threads, the reward, and the record of seconds and tokens per step.

Runs in each peer's own environment, so it imports torch and the standard library only.
"""

import argparse
import json
import os
import time
from importlib import metadata
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.update(MKL_NUM_THREADS=os.environ["OMP_NUM_THREADS"], TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")

import torch

LEARNING_RATE = 1e-5
"""Small, so that the random model stays near uniform and every contestant samples about as many tokens."""
LORA = ("--lora", {"type": int, "default": 0, "help": "rank of an adapter on bfloat16 weights; 0: no adapter"})


def arguments(*extra: tuple[str, dict]) -> argparse.Namespace:
    """`--model DIR --prompts FILE --candidates K --new-tokens T --steps N --warmup W --out JSON`, and the extras."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, required=True, help="JSON list of prompts")
    parser.add_argument("--candidates", type=int, default=8)
    parser.add_argument("--new-tokens", type=int, default=16)
    parser.add_argument("--steps", type=int, default=3, help="measured steps")
    parser.add_argument("--warmup", type=int, default=1, help="steps before them")
    parser.add_argument("--out", type=Path, required=True)
    for flag, settings in extra:
        parser.add_argument(flag, **settings)
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.manual_seed(0)
    args = parser.parse_args()
    args.prompts = json.loads(args.prompts.read_text())
    return args


def reward(completion: str) -> float:
    """The share of even digits and of the letter e: cheap, and different between the completions of a prompt."""
    return sum(letter in "02468e" for letter in completion) / max(len(completion), 1)


class Stopwatch:
    """`split()` ends a step and starts the next; `tokens` counts what was sampled and trained on, padding left out.

    Besides the wall clock it keeps the processor time, which a busy neighbour disturbs less.
    """

    def __init__(self):
        self.rows: list[dict] = []
        self.start()

    def start(self) -> None:
        self.tokens = self.completions = 0
        self._since, self._cpu_since = time.perf_counter(), time.process_time()

    def count(self, lengths) -> None:
        """The non-pad lengths of some completions."""
        lengths = list(map(int, lengths))
        self.tokens += sum(lengths)
        self.completions += len(lengths)

    def split(self) -> None:
        seconds, cpu_seconds = time.perf_counter() - self._since, time.process_time() - self._cpu_since
        row = {"seconds": seconds, "cpu_seconds": cpu_seconds, "tokens": self.tokens, "completions": self.completions}
        self.rows.append(row)
        self.start()

    def write(self, args: argparse.Namespace, *packages: str) -> None:
        """Write the steps after the warm-up; refuses a record that is short of steps."""
        measured = self.rows[args.warmup :]
        if len(measured) != args.steps:
            raise RuntimeError(f"{len(self.rows)} steps were timed, expected {args.warmup} + {args.steps}")
        versions = {name: metadata.version(name) for name in ("torch", *packages)}
        args.out.write_text(json.dumps({"versions": versions, "steps": measured}))
