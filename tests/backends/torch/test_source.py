"""Model folders that are broken, or that name code of a hub: each is refused with the file and the remedy."""

import json
import shutil

import pytest

import mas_lab as lab
from mas_lab.paths import data_dir
from mas_lab.policy import PolicyError, Request


@pytest.fixture
def folder(tmp_path):
    """A copy of a pocket model with 49 tokens."""
    return shutil.copytree(data_dir() / "pocket" / "plan_path", tmp_path / "model")


def written(name, data):
    return lambda folder: (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def cut(name):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:100])


def removed(*names):
    return lambda folder: [(folder / name).unlink() for name in names]


def entry(key, value, name="config.json"):
    def change(folder):
        data = json.loads((folder / name).read_text(encoding="utf-8"))
        (folder / name).write_text(json.dumps(data | {key: value}), encoding="utf-8")

    return change


def folder_for(name):
    return lambda folder: [(folder / name).unlink(), (folder / name).mkdir()]


BROKEN = {
    **{f"config is {text[:9]!r}": (written("config.json", text), r"config\.json cannot be read")
       for text in ("", "{", "hello", "[]", "null", "{}", "[" * 100_000, b"\xff\xfe")},
    "config is cut": (cut("config.json"), r"config\.json cannot be read"),
    "config is a folder": (folder_for("config.json"), r"neither a directory with a config\.json"),
    "unknown type": (entry("model_type", "zork"), r"config\.json cannot be read .*zork"),
    "type of no text": (entry("model_type", "vit"), r"config\.json or the weights"),
    "type is a list": (entry("model_type", ["a"]), r"config\.json cannot be read"),
    "size is text": (entry("hidden_size", "a"), r"config\.json cannot be read .*hidden_size"),
    "no heads": (entry("num_attention_heads", 0), r"config\.json or the weights"),
    "other vocabulary": (entry("vocab_size", 7), "1 weights are of another shape, the first is 'model.embed_tokens"),
    "no vocabulary": (entry("vocab_size", 0), r"config\.json or the weights"),
    "no weights": (removed("model.safetensors"), r"model\.safetensors\) cannot be read"),
    "weights are cut": (cut("model.safetensors"), r"model\.safetensors\) cannot be read"),
    "weights are empty": (written("model.safetensors", b""), r"model\.safetensors\) cannot be read"),
    "weights are a folder": (folder_for("model.safetensors"), r"model\.safetensors cannot be read"),
    "index is cut": (written("model.safetensors.index.json", "["), r"index\.json cannot be read"),
    "no tokenizer": (removed("tokenizer.json"), r"tokenizer\.json or tokenizer_config\.json cannot be read"),
    "nothing of a tokenizer": (removed("tokenizer.json", "tokenizer_config.json"), "it has no vocabulary"),
    "tokenizer is cut": (cut("tokenizer.json"), r"tokenizer\.json cannot be read"),
    "tokenizer is a list": (written("tokenizer.json", "[]"), r"tokenizer_config\.json cannot be read"),
    "tokenizer is a model": (entry("tokenizer_class", "AutoModel", "tokenizer_config.json"), "'Qwen3Model' object"),
    "generation config is cut": (cut("generation_config.json"), r"generation_config\.json cannot be read"),
    "chat template in other bytes": (written("chat_template.jinja", b"\xff"), r"tokenizer_config\.json cannot be read"),
    "record is a list": (written("policy.json", "[]"), r"policy\.json was not written by `policy\.save`"),
    "adapter": (written("adapter_config.json", '{"base_model_name_or_path": "a/b"}'), "load that one with lora="),
}  # fmt: skip


@pytest.mark.parametrize(("change", "sentence"), BROKEN.values(), ids=BROKEN)
def test_a_broken_folder_is_refused_with_the_file_and_a_remedy(folder, change, sentence):
    change(folder)
    with pytest.raises(PolicyError, match=sentence):
        lab.load_policy(folder)


def test_a_file_in_place_of_a_folder_is_refused(folder):
    with pytest.raises(PolicyError, match=r"neither a directory with a config\.json"):
        lab.load_policy(folder / "model.safetensors")


def test_a_token_without_an_embedding_is_refused_where_a_prompt_has_it(folder):
    """Gemma 3's tokenizer has a token for images beyond the embeddings of the models without images."""
    path = folder / "tokenizer.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    added = data["added_tokens"][0] | {"id": 49, "content": "<image>", "special": False}
    path.write_text(json.dumps(data | {"added_tokens": [*data["added_tokens"], added]}), encoding="utf-8")
    policy = lab.load_policy(folder)
    assert policy.sample([Request((1, 2), 2, 1.0, 0)])[0].ids
    with pytest.raises(PolicyError, match=r"a prompt has the token 49 \('<image>'\), and the model has 49 embeddings"):
        policy.sample([Request((1, 49, 2), 2, 1.0, 0)])


CODE = {
    "_attn_implementation": "owner/kernel",
    "attn_implementation": {"": "owner/kernel@v1:function"},
    "_attn_implementation_internal": "paged|owner/kernel",
    "experts_implementation": "owner/kernel",
    "text_config": {"vision": [{"_experts_implementation": "owner/kernel"}]},
    "kernel_config": {"RMSNorm": {"cuda": "owner/kernel:Norm"}},
}


@pytest.mark.parametrize("key", CODE)
@pytest.mark.parametrize("lora", [None, 2])
def test_a_config_that_names_code_of_a_hub_is_refused(folder, key, lora):
    entry(key, CODE[key])(folder)
    with pytest.raises(PolicyError, match=r"config\.json .* it names '.*owner/kernel.*', which is code from a hub"):
        lab.load_policy(folder, lora=lora)


def test_implementations_of_transformers_and_code_that_is_not_needed_are_no_reason(folder):
    entry("_attn_implementation", "eager")(folder)
    entry("linear_conv_kernel_dim", 4)(folder)
    entry("auto_map", {"AutoConfig": "owner/code--module.Config"})(folder)
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text("raise SystemExit('run')", encoding="utf-8")
    assert lab.load_policy(folder).model.config.model_type == "qwen3"
    entry("model_type", "zork")(folder)
    with pytest.raises(PolicyError, match="wants code of its own"):
        lab.load_policy(folder)
