"""Builds the pocket models: language models so small that a team of them trains on two CPU cores.

`python -m mas_lab pocket plan_path` rebuilds one from its fixed seed: a word-level tokenizer from the env's own words,
a Qwen3 of at most 2 M parameters, and a supervised warm start (TRL's SFTTrainer) on the env's imperfect
demonstrations. The result is an ordinary Hugging Face folder, `data/pocket/<family>/`. Leaves out: reinforcement
learning, which is what the models are for.
"""

import argparse
import json
import platform
import random
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from itertools import count, islice
from pathlib import Path
from typing import Any

from mas_lab.env import Env, Message, Task
from mas_lab.paths import data_dir
from mas_lab.tasks import make_env

PAD, EOS, UNKNOWN = "<pad>", "<eos>", "<unk>"
CONTEXT = 256
"""Longest prompt plus completion, in tokens."""
EPISODES = 256
"""Episodes demonstrated at a time."""
HELD_OUT = 200
"""Tasks of the `test` split that the figures of a build come from."""


@dataclass(frozen=True)
class Stage:
    """One supervised pass: `steps` of `batch` demonstrations, given by the env with its options changed."""

    steps: int
    lr: float
    options: Mapping[str, Any] = field(default_factory=dict)
    batch: int = 64


@dataclass(frozen=True)
class Family:
    """How one pocket model is made."""

    env: str
    forms: tuple[tuple[float, Mapping[str, Any]], ...]
    """(share of the demonstrations, options of `make_env`) for each form of the env the model should play."""
    stages: tuple[Stage, ...]
    layers: int = 3
    hidden: int = 96
    heads: int = 4
    spread: float = 0.02
    """Standard deviation of fresh weights. 0.02, the usual one, is meant for wide models; see where it is not taken."""
    by_length: bool = False
    """Batches of like lengths, which saves padding where the forms differ much. A batch is then no fair sample."""
    marks: tuple[str, str] = ("<user>", "<assistant>")
    """The words that open a turn. Another pair makes another tokenizer, with other ids for every word."""

    def __post_init__(self):
        total = sum(share for share, _ in self.forms)
        if abs(total - 1) > 1e-9:
            raise ValueError(f"pocket family of env {self.env!r}: the shares of its forms add up to {total}, not to 1")


MATH_FORMS = (
    (0.34, {}),
    (0.33, {"fixer": True}),
    (0.15, {"single_agent": True}),
    (0.06, {"n_agents": 4}),
    (0.04, {"n_agents": 16}),
    (0.03, {"size": 3}),
    (0.05, {"size": 7}),
)
FAMILIES: dict[str, Family] = {
    "plan_path": Family(
        "plan_path",
        forms=((0.45, {}), (0.4, {"single_agent": True}), (0.1, {"n_agents": 4}), (0.05, {"n_agents": 16})),
        stages=(Stage(1200, 3e-3, {"mistakes": 0.0}), Stage(100, 1e-3, {"mistakes": 0.4})),
        spread=0.08,  # 0.02 took 200 steps more to the same loss
        by_length=True,
    ),
    # After 120 steps of the second stage the fixer still was right in every third case, after 300 in every sixth.
    "math": Family("math", MATH_FORMS, (Stage(600, 3e-3, {"mistakes": 0.15}, batch=96), Stage(300, 1e-3))),
    "math_small": Family(
        "math",
        MATH_FORMS,
        (Stage(900, 3e-3, {"mistakes": 0.15}, batch=96), Stage(120, 1e-3)),
        layers=2,
        hidden=64,
        marks=("<ask>", "<say>"),
    ),
    "tldr": Family(
        "tldr",
        forms=((0.65, {}), (0.35, {"single_agent": True})),
        stages=(Stage(1000, 3e-3, {"mistakes": 0.0}), Stage(60, 5e-4)),
        spread=0.08,
    ),
}


def build(family: str, out: str | Path | None = None, seed: int = 0) -> Path:
    """Build the pocket model `family` into `out` (default `data/pocket/<family>`); returns the folder.

    The same seed on the same machine and library versions gives the same weights.
    """
    recipe = _family(family)
    import torch
    from transformers import set_seed

    folder = Path(out) if out is not None else data_dir() / "pocket" / family
    torch.set_num_threads(1)
    set_seed(seed)
    started = time.perf_counter()
    tokenizer = make_tokenizer(make_env(recipe.env), recipe.marks)
    model = make_model(recipe, tokenizer)
    for number, stage in enumerate(recipe.stages):
        rows = demonstrations(recipe, stage, tokenizer, seed + number)
        print(f"{family}: stage {number + 1} of {len(recipe.stages)}, {len(rows)} demonstrated answers", flush=True)
        _supervise(model, rows, tokenizer, stage, seed, recipe.by_length)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)  # it is written for its owner alone, and would be packed so
    seconds = round(time.perf_counter() - started)
    provenance = _provenance(family, recipe, seed, model.num_parameters(), seconds)
    provenance["held_out"] = figures(recipe, folder)
    (folder / "provenance.json").write_text(json.dumps(provenance, indent=1) + "\n")
    print(f"{family}: {json.dumps(provenance['held_out'])}", flush=True)
    return folder


def _family(name: str) -> Family:
    if name not in FAMILIES:
        raise ValueError(f"no pocket family is named {name!r}; known are: {', '.join(FAMILIES)}")
    return FAMILIES[name]


def make_tokenizer(env: Env, marks: tuple[str, str] = ("<user>", "<assistant>")):
    """A word-level fast tokenizer over `env.words`, with pad, eos and a chat template.

    The template shows user and assistant messages and drops the system prompt. The marks are plain words, so that a
    model that writes one is not silently corrected by the decoder.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    user, assistant = marks
    words = list(dict.fromkeys((*marks, *env.words)))
    random.Random(" ".join(marks)).shuffle(words)
    words = [PAD, EOS, UNKNOWN, *words]
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=UNKNOWN))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=EOS,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = (
        "{%- for message in messages %}"
        "{%- if message['role'] == 'user' %}{{ '" + user + " ' + message['content'] + ' ' }}"
        "{%- elif message['role'] == 'assistant' %}{{ '"
        + assistant
        + " ' + message['content'] + ' ' + eos_token + ' ' }}"
        "{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{ '" + assistant + "' }}{%- endif %}"
    )
    return tokenizer


def make_model(recipe: Family, tokenizer):
    """A fresh Qwen3 in fp32 with tied embeddings."""
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    ends = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=recipe.hidden,
        intermediate_size=8 * recipe.hidden // 3,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.heads,
        head_dim=recipe.hidden // recipe.heads,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        initializer_range=recipe.spread,
        **ends,
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(do_sample=True, temperature=1.0, top_p=1.0, top_k=0, **ends)
    return model


def demonstrations(recipe: Family, stage: Stage, tokenizer, seed: int) -> list[dict[str, list[int]]]:
    """Enough demonstrated answers for the stage to see each once: `input_ids` (prompt, answer, eos) and their
    `completion_mask`, which is 1 on the answer and its eos."""
    rows = []
    for number, (share, options) in enumerate(recipe.forms):
        env = replace(make_env(recipe.env, **options), **stage.options)
        said = list(islice(_answers(env, seed, number), round(share * stage.steps * stage.batch)))
        prompts = [tokenizer.apply_chat_template(m, add_generation_prompt=True, tokenize=False) for m, _ in said]
        both = [tokenizer(texts)["input_ids"] for texts in (prompts, [text for _, text in said])]
        for prompt, answer in zip(*both, strict=True):
            answer = [*answer, tokenizer.eos_token_id]
            rows.append({"input_ids": prompt + answer, "completion_mask": [0] * len(prompt) + [1] * len(answer)})
    unknown = tokenizer.convert_tokens_to_ids(UNKNOWN)
    if any(unknown in row["input_ids"] for row in rows):
        raise ValueError(f"env {recipe.env!r}: a prompt or demonstration has a word that `words` leaves out")
    return rows


def _answers(env: Env, seed: int, number: int) -> Iterator[tuple[list[Message], str]]:
    """(messages, answer) of one demonstrated episode after the other, without end."""
    rng = random.Random(f"{seed} {number}")
    for part in count(1000 * seed):
        for task in env.tasks(EPISODES, "train", part):
            yield from _play(env, task, rng)


def _play(env: Env, task: Task, rng: random.Random) -> Iterator[tuple[list[Message], str]]:
    """(messages, answer) for every turn of one demonstrated episode."""
    state, done = env.start(task), False
    while not done:
        actions = {}
        for agent in env.acting(state):
            actions[agent] = env.demonstrate(state, agent, rng)
            yield env.observe(state, agent), actions[agent]
        step = env.step(state, actions)
        state, done = step.state, step.done


def _supervise(
    model, rows: Sequence[Mapping[str, list[int]]], tokenizer, stage: Stage, seed: int, by_length: bool
) -> None:
    """One stage of cross entropy on the answers, in place."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    with tempfile.TemporaryDirectory() as scratch:
        settings = SFTConfig(
            output_dir=scratch,
            max_steps=stage.steps,
            per_device_train_batch_size=stage.batch,
            learning_rate=stage.lr,
            lr_scheduler_type="cosine",
            warmup_steps=min(50, stage.steps // 10),
            weight_decay=0.01,
            train_sampling_strategy="group_by_length" if by_length else "random",
            max_length=CONTEXT,
            completion_only_loss=True,
            gradient_checkpointing=False,
            use_cpu=True,
            bf16=False,
            seed=seed,
            dataloader_pin_memory=False,
            save_strategy="no",
            logging_steps=100,
            report_to="none",
            disable_tqdm=True,
        )
        data = Dataset.from_list(list(rows))
        SFTTrainer(model, args=settings, train_dataset=data, processing_class=tokenizer).train()


def figures(recipe: Family, folder: Path) -> dict[str, dict[str, float]]:
    """On held-out tasks, sampling at temperature 1, per form: the share solved, and the return as a share of its best.

    One model plays every role.
    """
    from mas_lab.backends import load_policy
    from mas_lab.team import Team
    from mas_lab.train.evaluate import evaluate

    policy, found = load_policy(folder), {}
    for _, options in recipe.forms:
        env = make_env(recipe.env, **options)
        scores = evaluate(env, Team.shared(policy, env.agents), env.tasks(HELD_OUT, "test", seed=0), seed=0)
        mean = scores.groupby("task")[["success", "return"]].first().mean()
        share = {"success": mean["success"], "return": mean["return"] / env.max_return}
        found[json.dumps(options)] = {name: round(float(value), 3) for name, value in share.items()}
    return found


def _provenance(family: str, recipe: Family, seed: int, parameters: int, seconds: int) -> dict[str, Any]:
    libraries = {name: version(name) for name in ("torch", "transformers", "tokenizers", "trl")}
    return {
        "command": f"python -m mas_lab pocket {family}"
        if seed == 0
        else f"python -m mas_lab.pocket {family} --seed {seed}",
        "seed": seed,
        "recipe": asdict(recipe),
        "parameters": parameters,
        "seconds": seconds,
        "threads": 1,
        "versions": {"python": platform.python_version(), **libraries},
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="mas_lab.pocket", description="Rebuild pocket models.")
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=f"default: all of {', '.join(FAMILIES)}")
    parser.add_argument("--out", type=Path, default=None, help="folder, for one family (default: data/pocket/FAMILY)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    if args.out is not None and len(args.families) != 1:
        parser.error("--out is the folder of one FAMILY")
    for family in args.families or FAMILIES:
        build(family, args.out, args.seed)


if __name__ == "__main__":
    main()
