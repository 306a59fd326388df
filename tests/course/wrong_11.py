from transformers import Qwen3Config

import mas_lab as lab

EIGHT = {f"cuda:{i}": 79.1 for i in range(8)}
QWEN3_8B = Qwen3Config(
    vocab_size=151936, hidden_size=4096, intermediate_size=12288, num_hidden_layers=36, num_attention_heads=32,
    num_key_value_heads=8, head_dim=128, max_position_embeddings=40960, tie_word_embeddings=False,
)  # fmt: skip
TOLD = {"num_machines": 2, "num_processes": 8, "machine_rank": 1}
RIGHT = {
    "11.1": [(lab.ModelSpec(QWEN3_8B, lora=16), EIGHT)],
    "11.2": [(lambda means, rows: (means * rows[:, None]).sum(0) / rows.sum(),)],
    "11.3": [(TOLD,)],
}
WRONG = {
    "11.1": [
        (lab.ModelSpec(QWEN3_8B), EIGHT),
        (lab.ModelSpec(QWEN3_8B, frozen=True), EIGHT),
        (lab.ModelSpec("Qwen3-0.6B", lora=16), EIGHT),
        ("Qwen3-8B", EIGHT),
    ],
    "11.2": [
        (lambda means, rows: means.mean(0),),
        (lambda means, rows: (means * rows[:, None]).sum(0),),
    ],
    "11.3": [({**TOLD, "num_processes": 4},), ({**TOLD, "machine_rank": 2},), (8,)],
}
