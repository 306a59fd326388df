"""A training step of TRL's GRPOTrainer: one policy, K completions of each prompt, one optimizer step on all of them.

Settings are TRL's defaults but for the load, the sampling (temperature 1, full distribution) and the micro-batch
(`--rows`), which was chosen as the fastest of those tried here; benchmarks/README.md has the figures.
"""

from stopwatch import LEARNING_RATE, LORA, Stopwatch, arguments, reward

args = arguments(
    ("--rows", {"type": int, "default": 256, "help": "completions per micro-batch"}),
    ("--faster", {"action": "store_true", "help": "bfloat16 weights, and completions for two steps at once"}),
    LORA,
)

from datasets import Dataset  # noqa: E402  the environment of the stopwatch has to be set before these are imported
from peft import LoraConfig  # noqa: E402
from transformers import TrainerCallback  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402

watch = Stopwatch()


def rewards(completions, completion_ids, **_):
    watch.count(map(len, completion_ids))
    return [reward(text) for text in completions]


class Splits(TrainerCallback):
    def on_train_begin(self, *_, **__):
        watch.start()

    def on_step_end(self, *_, **__):
        watch.split()


completions = len(args.prompts) * args.candidates
rows = min(args.rows, completions)
options = {"model_init_kwargs": {"dtype": "bfloat16"}} if args.faster or args.lora else {}
if args.faster:
    options["generation_batch_size"] = 2 * completions
adapter = LoraConfig(r=args.lora, target_modules="all-linear", task_type="CAUSAL_LM") if args.lora else None
settings = GRPOConfig(
    output_dir=str(args.out.parent / "trl"),
    per_device_train_batch_size=rows,
    gradient_accumulation_steps=completions // rows,
    num_generations=args.candidates,
    max_completion_length=args.new_tokens,
    max_steps=args.warmup + args.steps,
    learning_rate=LEARNING_RATE,
    temperature=1.0,
    top_p=1.0,
    top_k=0,
    use_cpu=True,
    bf16=False,
    gradient_checkpointing=False,
    report_to="none",
    save_strategy="no",
    logging_strategy="no",
    disable_tqdm=True,
    **options,
)
trainer = GRPOTrainer(
    model=str(args.model),
    reward_funcs=rewards,
    args=settings,
    train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in args.prompts] * (2 if args.faster else 1)),
    callbacks=[Splits()],
    peft_config=adapter,
)
trainer.train()
watch.write(args, "transformers", "trl")
