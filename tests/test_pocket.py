"""The shipped pocket models load by plain transformers and speak their env's words; a tiny one is really built."""

import json

import pytest

from mas_lab.paths import data_dir
from mas_lab.pocket import build as pocket
from mas_lab.pocket.build import FAMILIES, UNKNOWN, Family, Stage, build, demonstrations, make_tokenizer
from mas_lab.tasks import make_env

SHIPPED = [pytest.param(data_dir() / "pocket" / name, recipe, id=name) for name, recipe in FAMILIES.items()]


@pytest.mark.parametrize("folder, recipe", SHIPPED)
def test_a_shipped_model_is_small_whole_and_loads_by_plain_transformers(folder, recipe):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    assert model.num_parameters() <= 2_000_000 and model.dtype == torch.float32
    assert model.config.vocab_size == len(tokenizer) and tokenizer.pad_token_id != tokenizer.eos_token_id
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    env = make_env(recipe.env)
    state = env.start(env.tasks(1, "test", 0)[0])
    ids = tokenizer.apply_chat_template(
        env.observe(state, env.acting(state)[0]), add_generation_prompt=True, return_dict=False
    )
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits
    assert logits.shape == (1, len(ids), len(tokenizer)) and logits.isfinite().all()


@pytest.mark.parametrize("folder, recipe", SHIPPED)
def test_a_shipped_tokenizer_knows_every_word_and_keeps_its_ids(folder, recipe):
    from transformers import AutoTokenizer

    shipped, fresh = AutoTokenizer.from_pretrained(folder), make_tokenizer(make_env(recipe.env), recipe.marks)
    assert shipped.get_vocab() == fresh.get_vocab()
    for _, options in recipe.forms:
        env = make_env(recipe.env, **options)
        for task in env.tasks(5, "test", 1):
            messages = env.observe(env.start(task), env.acting(env.start(task))[0])
            ids = [t.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
                   for t in (shipped, fresh)]  # fmt: skip
            words = " ".join([recipe.marks[0], *(message["content"] for message in messages), recipe.marks[1]])
            assert ids[0] == ids[1] and shipped.decode(ids[0]) == words
            assert shipped.convert_tokens_to_ids(UNKNOWN) not in ids[0]


@pytest.mark.parametrize("folder, recipe", SHIPPED)
def test_a_shipped_model_leaves_room_to_learn(folder, recipe):
    record = json.loads((folder / "provenance.json").read_text())
    team = record["held_out"][json.dumps(recipe.forms[0][1])]
    assert 0.2 <= max(team.values()) <= 0.6, f"{folder.name} starts at {team}"
    assert record["seed"] == 0 and record["command"] == f"python -m mas_lab pocket {folder.name}"
    assert record["recipe"]["stages"] == json.loads(json.dumps([vars(stage) for stage in recipe.stages]))


def test_the_template_drops_the_system_prompt_and_closes_an_answer():
    tokenizer = make_tokenizer(make_env("plan_path"))
    chat = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "goal a1"},
        {"role": "assistant", "content": "a2 a1"},
        {"role": "user", "content": "goal b1"},
    ]
    text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    assert " ".join(text.split()) == "<user> goal a1 <assistant> a2 a1 <eos> <user> goal b1 <assistant>"
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    assert tokenizer.eos_token_id in ids and tokenizer.convert_tokens_to_ids(UNKNOWN) not in ids


def test_a_mark_that_a_model_writes_is_not_hidden_by_the_decoder():
    tokenizer = make_tokenizer(make_env("plan_path"))
    ids = tokenizer("a1 <user> a2")["input_ids"]
    assert tokenizer.decode([*ids, tokenizer.eos_token_id], skip_special_tokens=True) == "a1 <user> a2"


def test_other_marks_make_another_tokenizer():
    one, two = (make_tokenizer(make_env("math"), marks).get_vocab() for marks in (("<a>", "<b>"), ("<c>", "<d>")))
    shared = set(one) & set(two) - {"<pad>", "<eos>", "<unk>"}
    assert len(shared) > 10 and sum(one[word] != two[word] for word in shared) > len(shared) / 2


TINY = Family(
    "plan_path",
    forms=((0.75, {"size": 3}), (0.25, {"size": 3, "single_agent": True})),
    stages=(Stage(30, 3e-3, {"mistakes": 0.0}, batch=16),),
    layers=1,
    hidden=16,
    heads=2,
)


def test_demonstrations_are_masked_prompts_and_answers_in_their_shares():
    tokenizer = make_tokenizer(make_env("plan_path"))
    rows = demonstrations(TINY, TINY.stages[0], tokenizer, seed=0)
    assert len(rows) == 30 * 16
    said = ["".join(tokenizer.decode([i for i, m in zip(r["input_ids"], r["completion_mask"], strict=True) if m]))
            for r in rows]  # fmt: skip
    assert all(text.endswith("<eos>") and "<assistant>" not in text for text in said)
    prompts = [tokenizer.decode(row["input_ids"]).split() for row in rows]
    assert sum("solo" in words for words in prompts) == 120
    assert rows == demonstrations(TINY, TINY.stages[0], tokenizer, seed=0)


def test_a_word_that_the_env_leaves_out_is_an_error():
    tokenizer = make_tokenizer(make_env("math"))
    with pytest.raises(ValueError, match=r"env 'plan_path': .* that `words` leaves out"):
        demonstrations(TINY, TINY.stages[0], tokenizer, seed=0)


def test_an_unknown_family_lists_the_known_ones():
    with pytest.raises(ValueError, match="'chess'; known are: plan_path"):
        build("chess")


@pytest.mark.slow
def test_building_is_real_and_the_same_seed_gives_the_same_weights(tmp_path, monkeypatch):
    monkeypatch.setitem(FAMILIES, "tiny", TINY)
    monkeypatch.setattr(pocket, "HELD_OUT", 4)
    one, two, other = (build("tiny", tmp_path / name, seed) for name, seed in (("1", 0), ("2", 0), ("3", 1)))
    weights = [(folder / "model.safetensors").read_bytes() for folder in (one, two, other)]
    assert weights[0] == weights[1] != weights[2]
    assert json.loads((one / "provenance.json").read_text())["recipe"]["layers"] == 1
