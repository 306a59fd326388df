"""The memory plan of `lab.Placement` beside the peak that torch allocates, on a CPU.

    MAS_LAB_THREADS=2 .venv/bin/python benchmarks/memory.py     # data/results/memory.json, docs/gpus.md; 5 minutes

Random weights in the shapes of Qwen3-0.6B and 1.7B with few layers, base in bfloat16 under one adapter. One micro-batch
of one tree (P prompt tokens, K completions of T tokens) is trained on, and the same prompt is sampled from. The peaks
are those of all tensors that torch's allocator holds beyond the weights. Leaves out: a GPU's context and fragmentation,
and time.
"""

import json
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from gpu import make_model
from torch.profiler import ProfilerActivity, profile

import mas_lab as lab
from mas_lab.backends.devices import GIB
from mas_lab.backends.placement import ModelSpec, known_shapes
from mas_lab.policy import Request, Sample

HERE = Path(__file__).resolve().parent
OUT, PAGE = HERE.parent / "data" / "results" / "memory.json", HERE.parent / "docs" / "gpus.md"
BEGIN, END = "<!-- memory -->\n", "<!-- /memory -->\n"
RANK = 16
CASES = [
    # shape, layers, LoRA, checkpointing, (P, K, T) of the update, (P, K, T) of sampling
    ("Qwen3-0.6B", 4, RANK, False, (128, 4, 64), (16, 883, 3)),
    ("Qwen3-0.6B", 4, RANK, False, (512, 8, 64), (64, 883, 6)),
    ("Qwen3-0.6B", 8, RANK, True, (512, 4, 128), (16, 883, 3)),
    ("Qwen3-0.6B", 4, None, False, (128, 8, 32), (512, 883, 3)),
    ("Qwen3-1.7B", 2, RANK, False, (768, 2, 128), (16, 883, 3)),
    ("Qwen3-1.7B", 4, None, True, (512, 4, 64), (16, 883, 6)),
]


def peak_of(work: Callable[[], object]) -> float:
    """GiB that torch's allocator holds at most during `work`, beyond what it held before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        work()
    with tempfile.TemporaryDirectory() as at:
        found.export_chrome_trace(f"{at}/trace.json")
        events = json.loads(Path(at, "trace.json").read_text())["traceEvents"]
    return max(event["args"]["Total Allocated"] for event in events if event.get("name") == "[memory]") / GIB


def measure(shape: str, layers: int, lora: int | None, checkpointing: bool, update, sampling) -> dict:
    config = known_shapes()[shape].to_dict() | {"num_hidden_layers": layers, "layer_types": None}
    config = type(known_shapes()[shape]).from_dict(config)
    draw, (P, K, T), (prompt, rows, new) = random.Random(0), update, sampling
    options = {"train_tokens": P + K * (T - 1), "sample_tokens": prompt + rows * new, "checkpointing": checkpointing}
    planned = ModelSpec(config, lora=lora, **options).memory()
    with tempfile.TemporaryDirectory() as folder:
        make_model(config, Path(folder))
        policy = lab.load_policy(folder, lora=lora, dtype="bfloat16", packing="packed", **options)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(draw.randrange(3, 1000) for _ in range(count))

    common = ids(P)
    samples = [Sample(common, ids(T), (0.0,) * T, 1.0, 1.0, 1 / K / T) for _ in range(K)]
    requests = [Request(common[:1] * prompt, new, 1.0, seed) for seed in range(rows)]
    policy.forward_backward(samples[:1], lab.reinforce())  # makes the gradients, which stay
    return {
        "shape": shape, "layers": layers, "lora": lora, "checkpointing": checkpointing,
        "update": update, "update planned": planned.activations / GIB,
        "update measured": peak_of(lambda: policy.forward_backward(samples, lab.reinforce())),
        "sampling": sampling, "sampling planned": planned.sampling / GIB,
        "sampling measured": peak_of(lambda: policy.sample(requests)),
    }  # fmt: skip


def table(rows: list[dict]) -> str:
    lines = ["| shape | layers | trained | checkpointing | update: P, K, T | plan | measured | sampling: P, K, T | "
             "plan | measured |", "|---|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for row in rows:
        about = [row["shape"], str(row["layers"]), "all weights" if row["lora"] is None else f"rank {row['lora']}"]
        about.append("yes" if row["checkpointing"] else "no")
        for part in ("update", "sampling"):
            about.append(", ".join(map(str, row[part])))
            about += [f"{row[f'{part} {which}']:.2f}" for which in ("planned", "measured")]
        lines.append(f"| {' | '.join(about)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    rows = []
    for case in CASES:
        rows.append(measure(*case))
        print(rows[-1], flush=True)
    record = {"command": "python benchmarks/memory.py", "torch": torch.__version__, "rows": rows}
    OUT.write_text(json.dumps(record, indent=1) + "\n")
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + table(rows) + END + rest.partition(END)[2])


if __name__ == "__main__":
    sys.exit(main())
