"""Build a pocket model: words, a small Qwen3, a warm start, and a folder with its provenance.

`lab.make_pocket` (`custom`) makes a model for a custom env, and `benchmarks/build_pocket.py` rebuilds the shipped ones.
Both use `make`. Leaves out: sizes and stages (`design`), the demonstrations (`play`) and the supervised training
(`warm_start`).
"""

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mas_lab.backends.torch.threads import settle_threads
from mas_lab.display.progress import no_bars, progress_bar
from mas_lab.env import Env
from mas_lab.pocket.design import Design
from mas_lab.pocket.play import Demonstration, as_rows, demonstrations
from mas_lab.pocket.warm_start import make_model, supervise
from mas_lab.pocket.words import make_tokenizer, make_tool_tokenizer

LEARNING_RATE = {"full": 1e-3, "lora": 5e-3}
"""Learning rates of pocket models, for full weights and for an adapter."""


@dataclass(frozen=True)
class Order:
    """Everything that a build needs: design, forms of the env, words, seed and command."""

    name: str
    design: Design
    forms: Mapping[str, tuple[float, Env]]
    """Maps the name of a form to (share of the demonstrations, env)."""
    words: Sequence[str]
    seed: int
    command: str
    """The command that repeats the build."""

    def demonstrated(self) -> list[list[Demonstration]]:
        """Return the demonstrated answers, a list per stage."""
        forms = tuple(self.forms.values())
        return [demonstrations(forms, stage, self.design.episodes, self.seed + number)
                for number, stage in enumerate(self.design.stages)]  # fmt: skip


def make(order: Order, answers: Sequence[Sequence[Demonstration]], folder: Path) -> Path:
    """Train a fresh model on `answers`, a list per stage, and write it to `folder`."""
    from transformers import set_seed

    from mas_lab.backends.torch.model import quiet

    design = order.design
    steps = sum(stage.steps for stage in design.stages)
    with one_thread(), progress_bar(steps, f"pocket {order.name}", "step", even=True) as bar, no_bars(), quiet():
        set_seed(order.seed)
        if design.tools:
            tokenizer = make_tool_tokenizer(order.words, design.context)
        else:
            tokenizer = make_tokenizer(order.words, design.marks, design.context)
        model = make_model(design, tokenizer)
        for stage, of_stage in zip(design.stages, answers, strict=True):
            rows = as_rows(of_stage, tokenizer, order.name)
            supervise(model, rows, stage, design, order.seed, bar)
        folder.mkdir(parents=True, exist_ok=True)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        (folder / "model.safetensors").chmod(0o644)  # a package would keep its owner-only mode
        libraries = {name: version(name) for name in ("torch", "transformers", "tokenizers")}
        record = {
            "command": order.command, "seed": order.seed, "recipe": asdict(design),
            "parameters": model.num_parameters(), "learning_rate": LEARNING_RATE, "threads": 1,
            "versions": {"python": platform.python_version(), **libraries},
        }  # fmt: skip
        write_provenance(folder, record)  # `load_policy` reads it
        record["held_out"] = figures(order, folder)
        write_provenance(folder, record)
    print(f"pocket {order.name}: on held-out tasks {json.dumps(record['held_out'])}")
    return folder


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one torch thread, so that the same seed gives the same weights."""
    import torch

    settle_threads()  # else the first policy loaded inside would do it, and `before` would undo it
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def figures(order: Order, folder: Path) -> dict[str, dict[str, float]]:
    """Return the scores on held-out tasks per form: the share solved, and the return divided by its maximum.

    Completions are sampled at temperature 1. One model plays every role.
    """
    from mas_lab.backends.loading import load_policy
    from mas_lab.team import Team
    from mas_lab.train.evaluate import evaluate

    policy, found, design = load_policy(folder), {}, order.design
    for form, (_, env) in order.forms.items():
        tasks = env.tasks(design.held_out, "test", seed=0)
        scores = evaluate(env, Team.shared(policy, env.agents), tasks, k=design.repeats, seed=0)
        mean = scores.groupby("task")[["success", "return"]].first().mean()
        share = {"success": mean["success"], "return": mean["return"] / env.max_return}
        found[form] = {name: round(float(value), 3) for name, value in share.items()}
    return found


def write_provenance(folder: Path, record: Mapping[str, Any]) -> None:
    (folder / "provenance.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
