"""A causal language model in Hugging Face format whose logits are a table: one row of logits per last token.

A Llama of one layer, whose attention and feed-forward outputs are 0. The embedding is the identity, so that the last
hidden state is sqrt(V) times the unit vector of the last token, and the output layer holds the table. The gradient with
respect to the table is that of the output layer, transposed, over sqrt(V).
"""

import math
from pathlib import Path

import torch

TEMPLATE = "{% for m in messages %}{{ m['content'] }} {% endfor %}"


def load_table(model, logits):
    """Put a table of logits (V, V) into the output layer."""
    with torch.no_grad():
        weight = torch.as_tensor(logits, dtype=torch.float64).T / math.sqrt(len(logits))
        model.lm_head.weight.copy_(weight.to(model.lm_head.weight.dtype))
    return model


def table_gradient(model):
    """Return the gradient with respect to the table (V, V), as nested lists."""
    gradient = model.lm_head.weight.grad
    return (gradient.double().T / math.sqrt(len(gradient))).tolist()


def make_model(logits, dtype=torch.float32):
    from transformers import LlamaConfig, LlamaForCausalLM

    size = len(logits)
    config = LlamaConfig(
        vocab_size=size, hidden_size=size, intermediate_size=size, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-12, tie_word_embeddings=False,
        pad_token_id=0, eos_token_id=0, bos_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config).to(dtype)
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(torch.eye(size))
        model.model.layers[0].self_attn.o_proj.weight.zero_()
        model.model.layers[0].mlp.down_proj.weight.zero_()
    return load_table(model, logits)


def make_tokenizer(size):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(size)}, unk_token="t1"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="t0", pad_token="t0")
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def save_model(folder, logits):
    """Write the model and a tokenizer of V words; return the folder."""
    make_model(logits).save_pretrained(folder)
    make_tokenizer(len(logits)).save_pretrained(folder)
    return Path(folder)


def reference_table(case):
    """Return a table under which the completion tokens have their `reference_logprobs`; other tokens share the rest."""
    logits = torch.tensor(case["inputs"]["logits"], dtype=torch.float64)
    known = {}
    for row in case["inputs"]["rows"]:
        before = [row["prompt_ids"][-1], *row["completion_ids"][:-1]]
        for last, token, logprob in zip(before, row["completion_ids"], row["reference_logprobs"], strict=True):
            known.setdefault(last, {})[token] = logprob
    table = logits.log_softmax(-1)
    for last, tokens in known.items():
        rest = [token for token in range(len(logits)) if token not in tokens]
        left = 1 - sum(math.exp(logprob) for logprob in tokens.values())
        table[last, rest] += math.log(left) - torch.logsumexp(table[last, rest], 0)
        table[last, list(tokens)] = torch.tensor(list(tokens.values()), dtype=torch.float64)
    return table.tolist()
