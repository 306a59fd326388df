"""A training step of CoMLRL's MAGRPOTrainer: two agents with weights of their own, aligned joint actions, one turn.

The prompts are dealt out to the two agents, so that the step has as many prompts, completions and tokens as the other
contestants'; each agent makes one optimizer step on all of its completions. Its sampler is set to temperature 1 and the
full distribution; the rest are its defaults.
"""

from stopwatch import LEARNING_RATE, LORA, Stopwatch, arguments, reward

args = arguments(LORA)

from comlrl.trainers.reinforce import MAGRPOConfig, MAGRPOTrainer  # noqa: E402  after the stopwatch's environment
from datasets import Dataset  # noqa: E402
from peft import LoraConfig, get_peft_model  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

watch = Stopwatch()
half = len(args.prompts) // 2


class Timed(MAGRPOTrainer):
    """An epoch is a step: the rollout buffer holds every prompt of the epoch."""

    epochs = 0

    def get_train_dataloader(self):
        if self.epochs:
            watch.split()
        else:
            watch.start()
        self.epochs += 1
        return super().get_train_dataloader()

    def _generate_completions(self, *arguments, **settings):
        generated = super()._generate_completions(*arguments, **settings)
        watch.count(generated["response_lens"])
        return generated


def rewards(first: list[str], second: list[str]) -> list[float]:
    return [reward(a) + reward(b) for a, b in zip(first, second, strict=True)]


settings = MAGRPOConfig(
    num_agents=2,
    num_train_epochs=args.warmup + args.steps,
    agent_learning_rate=LEARNING_RATE,
    num_generations=args.candidates,
    max_new_tokens=args.new_tokens,
    temperature=1.0,
    top_p=1.0,
    top_k=0,
    num_turns=1,
    rollout_buffer_size=half,
    train_batch_size=half,
    advantage_normalization=False,
    eval_interval=0,
)


def with_adapter():
    net = AutoModelForCausalLM.from_pretrained(args.model, dtype="bfloat16")
    adapter = LoraConfig(r=args.lora, target_modules="all-linear", task_type="CAUSAL_LM")
    return get_peft_model(net, adapter, autocast_adapter_dtype=False)


trainer = Timed(
    agent_model=None if args.lora else str(args.model),
    agents=[with_adapter(), with_adapter()] if args.lora else None,
    num_agents=2,
    tokenizer=AutoTokenizer.from_pretrained(args.model),
    reward_func=rewards,
    formatters=[lambda item: item["first"], lambda item: item["second"]],
    args=settings,
    train_dataset=Dataset.from_list(
        [{"first": a, "second": b} for a, b in zip(args.prompts[:half], args.prompts[half:], strict=True)]
    ),
    wandb_config=None,
)
trainer.verbose = False
trainer.train()
watch.split()
watch.write(args, "transformers", "comlrl")
