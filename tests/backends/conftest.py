"""Tiny random models of three architectures, with a tokenizer of their own, made here and never downloaded."""

import pytest
import torch
from small import TEMPLATE, make_model

torch.set_num_threads(1)
WORDS = 60
SPECIAL = {"vocab_size": WORDS + 4, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SHAPE = SPECIAL | {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}


def _config(kind: str):
    import transformers as hf

    llama = SHAPE | {"intermediate_size": 64, "num_key_value_heads": 2, "max_position_embeddings": 64}
    if kind == "qwen3":
        return hf.Qwen3Config(**llama, head_dim=8, tie_word_embeddings=True)
    if kind == "gemma2":
        return hf.Gemma2Config(**llama, head_dim=8, sliding_window=6, attn_logit_softcapping=2.0,
                               final_logit_softcapping=3.0, query_pre_attn_scalar=8)  # fmt: skip
    return hf.GPT2Config(**SPECIAL, n_embd=32, n_layer=2, n_head=4, n_positions=64, resid_pdrop=0.1)


def build(directory, kind, pad_is_eos=False):
    """A random model of this kind, or config, and its tokenizer in `directory`, in Hugging Face format."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    words = {"<pad>": 0, "<bos>": 1, "<eos>": 2, "say": 3} | {f"w{i}": i + 4 for i in range(WORDS)}
    words["user"] = words.pop("w0")
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w1"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    pad = "<eos>" if pad_is_eos else "<pad>"
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", pad_token=pad, bos_token="<bos>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(directory)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(_config(kind) if isinstance(kind, str) else kind)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Random biases and larger weights: distributions that differ from token to token.
            parameter.add_(torch.randn_like(parameter) * (0.3 if "norm" not in name and "ln" not in name else 0.05))
    model.save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def model_dirs(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    dirs = {kind: str(build(root / kind, kind)) for kind in ("qwen3", "gpt2", "gemma2")}
    return dirs | {"pad=eos": str(build(root / "pad_eos", "qwen3", pad_is_eos=True))}


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A model whose attention heads vLLM's CPU build takes as they are."""
    return make_model(tmp_path_factory.mktemp("wide") / "a", 0, head_dim=32)


@pytest.fixture
def qwen3(model_dirs):
    return model_dirs["qwen3"]
