"""One training step, rollout and update, side by side: mas_lab, a plain hand-written loop, TRL and CoMLRL.

    bash benchmarks/peers/setup.sh && .venv/bin/python benchmarks/step.py

All contestants get the same random 1.1 M-parameter Qwen3, the same prompts and the same number of completions, run in
processes of their own on one thread, and take turns: every round runs each once, in an order that rotates. Leaves out
learning, which a random model cannot show, and everything that needs a GPU.
"""

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
OURS = sys.executable
TRL, COMLRL = (str(HERE / env / "bin" / "python") for env in (".venv-trl", ".venv-comlrl"))
CONTESTANTS = {
    "plain loop": (OURS, "plain_step.py"),
    "mas_lab at_grpo": (OURS, "ours_step.py", "--recipe=at_grpo"),
    "mas_lab dr_mas": (OURS, "ours_step.py", "--recipe=dr_mas"),
    "TRL GRPOTrainer": (TRL, "trl_step.py"),
    "TRL GRPOTrainer, faster settings": (TRL, "trl_step.py", "--faster"),
    "mas_lab at_grpo, 2 agents": (OURS, "ours_step.py", "--recipe=at_grpo", "--agents=2"),
    "mas_lab dr_mas, 2 agents": (OURS, "ours_step.py", "--recipe=dr_mas", "--agents=2"),
    "mas_lab magrpo, 2 policies": (OURS, "ours_step.py", "--recipe=magrpo", "--agents=2", "--own-weights"),
    "CoMLRL MAGRPOTrainer, 2 policies": (COMLRL, "comlrl_step.py"),
}
WORDS = 509


def make_model(folder: Path) -> int:
    """Save a random Qwen3 with a word-level tokenizer, its chat template the identity; returns its parameters."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    vocabulary = {token: i for i, token in enumerate(["<pad>", "<eos>", "<unk>", *(f"w{i}" for i in range(WORDS))])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(vocabulary),
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        intermediate_size=512,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    model = Qwen3ForCausalLM(config)
    model.save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters())


def make_prompts(n: int, length: int) -> list[str]:
    draw = random.Random(0)
    return [" ".join(f"w{draw.randrange(WORDS)}" for _ in range(length)) for _ in range(n)]


def run_one(name: str, folder: Path, args: argparse.Namespace) -> dict:
    """One process of one contestant; raises with its output if it fails."""
    python, script, *options = CONTESTANTS[name]
    out = folder / "out.json"
    out.unlink(missing_ok=True)
    load = f"--candidates={args.candidates} --new-tokens={args.new_tokens} --steps={args.steps} --warmup={args.warmup}"
    command = [python, str(HERE / "peers" / script), f"--model={folder / 'model'}"]
    command += [f"--prompts={folder / 'prompts.json'}", f"--out={out}", *load.split(), *options]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    if done.returncode or not out.is_file():
        raise RuntimeError(f"{name} failed (status {done.returncode}):\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return json.loads(out.read_text())


def rotated(names: list[str], by: int) -> list[str]:
    return names[by % len(names) :] + names[: by % len(names)]


def summary(runs: list[dict]) -> dict:
    """Median, quartiles and range of the seconds of all measured steps; medians of processor time and tokens."""
    steps = [step for run in runs for step in run["steps"]]
    seconds = sorted(step["seconds"] for step in steps)
    quartiles = statistics.quantiles(seconds, n=4) if len(seconds) > 1 else seconds * 3
    return {
        "seconds": round(statistics.median(seconds), 4),
        "quartiles": [round(quartiles[0], 4), round(quartiles[2], 4)],
        "range": [round(seconds[0], 4), round(seconds[-1], 4)],
        "cpu_seconds": round(statistics.median(step["cpu_seconds"] for step in steps), 4),
        "steps": len(seconds),
        "completions": statistics.median(step["completions"] for step in steps),
        "tokens": statistics.median(step["tokens"] for step in steps),
        "versions": runs[0]["versions"],
        "all_seconds": [round(step["seconds"], 4) for step in steps],
    }


def table(results: dict[str, dict]) -> str:
    lines = [f"{'':<34}{'s / step':>9}{'quartiles':>16}{'cpu s':>8}{'tokens':>8}{'completions':>13}"]
    for name, row in results.items():
        low, high = row["quartiles"]
        lines.append(
            f"{name:<34}{row['seconds']:>9.2f}{f'{low:.2f} - {high:.2f}':>16}{row['cpu_seconds']:>8.2f}"
            f"{row['tokens']:>8.0f}{row['completions']:>13.0f}"
        )
    return "\n".join(lines)


def machine() -> dict:
    model = ""
    if Path("/proc/cpuinfo").is_file():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
    return {"platform": platform.platform(), "processor": model, "cores": os.cpu_count(), "load": os.getloadavg()[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--prompt-tokens", type=int, default=75)
    parser.add_argument("--candidates", type=int, default=8)
    parser.add_argument("--new-tokens", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3, help="measured steps per process")
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=list(CONTESTANTS), metavar="NAME", help="names, or parts of them")
    parser.add_argument("--out", type=Path, default=HERE.parent / "data" / "results" / "benchmark_step.json")
    args = parser.parse_args()
    names = [name for name in CONTESTANTS if any(part in name for part in args.only)]
    runs: dict[str, list[dict]] = {name: [] for name in names}
    before = machine()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        parameters = make_model(folder / "model")
        (folder / "prompts.json").write_text(json.dumps(make_prompts(args.prompts, args.prompt_tokens)))
        for number in range(args.rounds):
            for name in rotated(names, number):
                runs[name].append(run_one(name, folder, args))
                print(f"round {number}: {name:<34}{runs[name][-1]['steps'][-1]['seconds']:>8.2f} s", flush=True)
    results = {name: summary(runs[name]) for name in names}
    print(table(results))
    settings = {key: value for key, value in vars(args).items() if key not in ("only", "out")}
    record = {
        "command": " ".join(["python", "benchmarks/step.py", *sys.argv[1:]]),
        "settings": settings | {"parameters": parameters, "threads": 1},
        "machine": before,
        "results": results,
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
