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


def written(name, text):
    return lambda folder: (folder / name).write_text(text, encoding="utf-8")


def cut(name):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:100])


def removed(*names):
    return lambda folder: [(folder / name).unlink() for name in names]


def entry(key, value):
    def change(folder):
        data = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        (folder / "config.json").write_text(json.dumps(data | {key: value}), encoding="utf-8")

    return change


BROKEN = {
    "config is no object": (written("config.json", "[]"), r"config\.json cannot be read"),
    "config is cut": (cut("config.json"), r"config\.json cannot be read"),
    "unknown type": (entry("model_type", "zork"), r"config\.json cannot be read .*zork"),
    "type of no text": (entry("model_type", "vit"), r"config\.json or the weights"),
    "other vocabulary": (entry("vocab_size", 7), "1 weights are of another shape, the first is 'model.embed_tokens"),
    "no weights": (removed("model.safetensors"), r"model\.safetensors\) cannot be read"),
    "weights are cut": (cut("model.safetensors"), r"model\.safetensors\) cannot be read"),
    "index is cut": (written("model.safetensors.index.json", "["), r"index\.json cannot be read"),
    "no tokenizer": (removed("tokenizer.json"), r"tokenizer\.json or tokenizer_config\.json cannot be read"),
    "nothing of a tokenizer": (removed("tokenizer.json", "tokenizer_config.json"), "it has no vocabulary"),
    "tokenizer is cut": (cut("tokenizer.json"), r"tokenizer\.json cannot be read"),
    "generation config is cut": (cut("generation_config.json"), r"generation_config\.json cannot be read"),
    "record is a list": (written("policy.json", "[]"), r"policy\.json was not written by `policy\.save`"),
    "adapter": (written("adapter_config.json", '{"base_model_name_or_path": "a/b"}'), "load that one with lora="),
}  # fmt: skip


@pytest.mark.parametrize(("change", "sentence"), BROKEN.values(), ids=BROKEN)
def test_a_broken_folder_is_refused_with_the_file_and_a_remedy(folder, change, sentence):
    change(folder)
    with pytest.raises(PolicyError, match=sentence):
        lab.load_policy(folder)


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
    "attn_implementation": {"": "owner/kernel@v1:function"},
    "_attn_implementation_internal": "paged|owner/kernel",
    "text_config": {"vision": [{"_experts_implementation": "owner/kernel"}]},
    "kernel_config": {"RMSNorm": {"cuda": "owner/kernel:Norm"}},
}


@pytest.mark.parametrize("key", CODE)
def test_a_config_that_names_code_of_a_hub_is_refused(folder, key):
    entry(key, CODE[key])(folder)
    with pytest.raises(PolicyError, match=r"config\.json .* it names '.*owner/kernel.*', which is code from a hub"):
        lab.load_policy(folder)
