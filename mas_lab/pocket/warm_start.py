"""Create a small model, and teach it the demonstrated answers by supervised learning.

The loss is cross entropy on the answers alone. Leaves out: the demonstrations (`play`), and reinforcement learning.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from tqdm import tqdm

from mas_lab.pocket.design import Design, Stage


def make_model(design: Design, tokenizer):
    """Return a fresh Qwen3 in fp32 with tied embeddings."""
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    ends = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=design.hidden,
        intermediate_size=8 * design.hidden // 3,
        num_hidden_layers=design.layers,
        num_attention_heads=design.heads,
        num_key_value_heads=design.heads,
        head_dim=design.hidden // design.heads,
        max_position_embeddings=design.context,
        tie_word_embeddings=True,
        initializer_range=design.spread,
        **ends,
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(do_sample=True, temperature=1.0, top_p=1.0, top_k=0, **ends)
    return model


def supervise(model, rows: Sequence[Mapping[str, list[int]]], stage: Stage, design: Design, seed: int, bar: tqdm):
    """Train the model in place for one stage by AdamW with a cosine schedule, and move `bar` on after each step."""
    import torch
    from torch.nn.utils.rnn import pad_sequence
    from transformers import get_cosine_schedule_with_warmup

    optimizer = torch.optim.AdamW(model.parameters(), lr=stage.lr, weight_decay=0.01)
    schedule = get_cosine_schedule_with_warmup(optimizer, min(50, stage.steps // 10), stage.steps)
    model.train()
    for batch in islice(_batches(rows, stage.batch, design.by_length, random.Random(seed)), stage.steps):
        ids_BL, answer_BL = (pad_sequence([torch.tensor(row[name]) for row in batch], batch_first=True)
                             for name in ("input_ids", "completion_mask"))  # fmt: skip
        labels_BL = ids_BL.masked_fill(answer_BL == 0, -100)
        real_BL = pad_sequence([torch.ones(len(row["input_ids"]), dtype=torch.long) for row in batch], batch_first=True)
        model(input_ids=ids_BL, attention_mask=real_BL, labels=labels_BL).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        bar.update()
    model.eval()


def _batches(rows: Sequence[Any], size: int, by_length: bool, draw: random.Random) -> Iterator[list[Any]]:
    """Yield batches of shuffled rows without end, of similar lengths if `by_length`."""
    while True:
        order = draw.sample(rows, len(rows))
        if by_length:  # of the next 50 batches
            for start in range(0, len(order), 50 * size):
                part = slice(start, start + 50 * size)
                order[part] = sorted(order[part], key=lambda row: len(row["input_ids"]))
        batches = [order[start : start + size] for start in range(0, len(order), size)]
        yield from draw.sample(batches, len(batches))
