"""The shipped pocket models load by plain transformers and speak their env's words; a tiny one is really built.

These are the tests of all modules of `mas_lab/pocket`.
"""

import json
import random
import sys
import textwrap
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from own_envs import Agree

import mas_lab as lab
from mas_lab.contrib import programs
from mas_lab.env import EnvError, Step, Task
from mas_lab.paths import data_dir
from mas_lab.pocket import custom
from mas_lab.pocket.design import Stage
from mas_lab.pocket.play import as_rows, demonstrations
from mas_lab.pocket.words import MARKED, UNKNOWN, different, make_tokenizer, make_tool_tokenizer
from mas_lab.tasks import make_env
from mas_lab.train.demonstrations import Demonstration

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "build_pocket.py"
if not SCRIPT.is_file():
    pytest.skip("no checkout", allow_module_level=True)
SPEC = spec_from_file_location("build_pocket", SCRIPT)
building = sys.modules["build_pocket"] = module_from_spec(SPEC)
SPEC.loader.exec_module(building)
SHIPPED = [pytest.param(data_dir() / "pocket" / name, recipe, id=name) for name, recipe in building.families().items()]
OF_WORDS = [one for one in SHIPPED if not one.values[1].tools]


@pytest.mark.parametrize("folder, recipe", SHIPPED)
def test_a_shipped_model_is_small_loads_by_plain_transformers_and_leaves_room_to_learn(folder, recipe):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    assert model.num_parameters() <= 2_000_000 and model.dtype == torch.float32
    assert model.config.vocab_size == len(tokenizer) and tokenizer.pad_token_id != tokenizer.eos_token_id
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    env = make_env(recipe.env)
    state = env.start(env.tasks(1, "test", 0)[0])
    messages = env.observe(state, env.acting(state)[0])
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits
    assert logits.shape == (1, len(ids), len(tokenizer)) and logits.isfinite().all()
    record = json.loads((folder / "provenance.json").read_text())
    team = record["held_out"][json.dumps(recipe.forms[0][1])]
    assert 0.2 <= max(team.values()) <= 0.6, f"{folder.name} starts at {team}"
    assert record["seed"] == 0 and record["command"] == f"python benchmarks/build_pocket.py {folder.name}"


@pytest.mark.parametrize("limit", [{}, {"max_tokens": 10**6}], ids=str)
def test_a_program_may_leave_the_limit_to_a_shipped_model(limit):
    team = lab.Team({"one": lab.load_policy("calculator")})
    [row] = programs.play(lambda task, ask: float(bool(ask("one", "go"))), team, ["task"], **limit).itertuples()
    assert 0 < len(row.completion_ids) <= team["one"].context - len(row.prompt_ids)


@pytest.mark.parametrize("folder, recipe", OF_WORDS)
def test_a_shipped_tokenizer_knows_every_word_and_keeps_its_ids(folder, recipe):
    from transformers import AutoTokenizer

    shipped, fresh = AutoTokenizer.from_pretrained(folder), make_tokenizer(make_env(recipe.env).words, recipe.marks)
    assert shipped.get_vocab() == fresh.get_vocab()
    for _, options in recipe.forms:
        env = make_env(recipe.env, **options)
        for task in env.tasks(2, "test", 1):
            messages = env.observe(env.start(task), env.acting(env.start(task))[0])
            ids = [t.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
                   for t in (shipped, fresh)]  # fmt: skip
            words = " ".join([recipe.marks[0], *(message["content"] for message in messages), recipe.marks[1]])
            assert ids[0] == ids[1] and shipped.decode(ids[0]) == words
            assert shipped.convert_tokens_to_ids(UNKNOWN) not in ids[0]


@pytest.mark.parametrize("folder, recipe", OF_WORDS)
def test_the_column_prompt_is_what_the_prompt_ids_decode_to_in_all_four_roles(folder, recipe, monkeypatch):
    env, policy = make_env(recipe.env), lab.load_policy(folder)
    chat = [{"role": role, "content": f"{word} {word}"} for role, word in zip(MARKED, env.words, strict=False)]
    monkeypatch.setattr(type(env), "observe", lambda self, state, agent: chat)
    turns = lab.rollout(env, lab.Team.shared(policy, env.agents), env.tasks(1, "test", 0), lab.episodes(1))
    said, speaks = recipe.marks
    for prompt, ids in zip(turns["prompt"], turns["prompt_ids"], strict=True):
        lines = [line.split(": ") for line in prompt.splitlines()]
        assert [role for role, _ in lines] == list(MARKED)
        told = [f"{speaks} {text} <eos>" if role == "assistant" else f"{said} {text}" for role, text in lines]
        assert policy.tokenizer.decode(ids) == " ".join([*told, speaks])


def test_the_tokenizer_of_tool_calls_gives_the_prompt_back_in_all_four_roles(monkeypatch):
    env, policy = make_env("calculator"), lab.load_policy("calculator")
    fresh = make_tool_tokenizer(env.words, policy.context)
    assert policy.tokenizer.get_vocab() == fresh.get_vocab() and policy.tokenizer.chat_template == fresh.chat_template
    chat = [{"role": role, "content": f"43 + {number}"} for number, role in enumerate(MARKED)]
    monkeypatch.setattr(type(env), "observe", lambda self, state, agent: chat)
    [row] = lab.rollout(env, lab.Team.shared(policy, env.agents), env.tasks(1, "test", 0)).head(1).itertuples()
    text = policy.tokenizer.decode(row.prompt_ids)
    assert all(text.count(message["content"]) == row.prompt.count(message["content"]) == 1 for message in chat)
    assert "<tools>\ncalculate a op b\n</tools>" in text and '"name": "calculate"' in row.prompt
    assert UNKNOWN not in text


TINY = building.Family(
    env="plan_path", forms=((0.75, {"size": 3}), (0.25, {"size": 3, "single_agent": True})),
    stages=(Stage(30, 3e-3, {"mistakes": 0.0}, batch=16),), layers=1, hidden=16, heads=2, spread=0.02, held_out=4,
)  # fmt: skip


def rows_of(family, tokenizer):
    forms = [(share, make_env(family.env, **options)) for share, options in family.forms]
    return as_rows(demonstrations(forms, family.stages[0], family.episodes, seed=0), tokenizer, family.env)


def test_demonstrations_are_masked_prompts_and_answers_in_their_shares():
    tokenizer = make_tokenizer(make_env("plan_path").words)
    rows = rows_of(TINY, tokenizer)
    assert len(rows) == 30 * 16
    said = ["".join(tokenizer.decode([i for i, m in zip(r["input_ids"], r["completion_mask"], strict=True) if m]))
            for r in rows]  # fmt: skip
    assert all(text.endswith("<eos>") and "<assistant>" not in text for text in said)
    prompts = [tokenizer.decode(row["input_ids"]).split() for row in rows]
    assert sum("solo" in words for words in prompts) == 120
    assert rows == rows_of(TINY, tokenizer)


def test_a_family_that_leaves_a_word_out_is_an_error():
    with pytest.raises(EnvError, match=r"env 'plan_path': .* that `words` leaves out"):
        rows_of(TINY, make_tokenizer(make_env("math").words))


@pytest.mark.slow
def test_building_is_real_and_the_same_seed_gives_the_same_weights(tmp_path):
    one, two, other = (
        building.build("tiny", TINY, tmp_path / name, seed) for name, seed in (("1", 0), ("2", 0), ("3", 1))
    )
    weights = [(folder / "model.safetensors").read_bytes() for folder in (one, two, other)]
    assert weights[0] == weights[1] != weights[2]
    assert json.loads((one / "provenance.json").read_text())["recipe"]["layers"] == 1


# One's own


def test_an_env_of_ones_own_gets_a_model_that_plays_it_and_says_how_it_was_made(tmp_path):
    """Its words are those of demonstrated and of hostile play, on both splits."""
    agreeing = lab.make_pocket(Agree(), tmp_path / "agree", steps=3, tasks=10)
    env, policy = Agree(), lab.load_policy(agreeing)
    assert policy.lr == 1e-3 and lab.load_policy(agreeing, lora=2).lr == 5e-3
    turns = lab.rollout(env, lab.Team.shared(policy, env.agents), env.tasks(4, "test", 0), lab.episodes(2))
    assert set(turns["agent"]) == set(env.agents) and turns["completion_ids"].map(len).max() <= 2
    record = json.loads((agreeing / "provenance.json").read_text())
    assert record["command"] == "lab.make_pocket(Agree(), out, steps=3, seed=0, tasks=10)"
    assert record["recipe"]["stages"] == [{"steps": 3, "lr": 0.003, "options": {}, "batch": 64}]
    assert set(record["held_out"]) == {"{}"} and set(record["held_out"]["{}"]) == {"success", "return"}
    tokenizer = policy.tokenizer
    words = set(tokenizer.get_vocab())
    assert {"you", "are", "left", "right", "play", "round-0", "round-19", "other", "said", *Agree.colours} <= words
    assert {"<user>", "<assistant>", "<system>", "<tool>", "}{", "<moves>"} - words == {"<moves>"}  # two words at most
    chat = Agree().observe(("round-3", "red|blue"), "right")
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    told = "<system> you are right <user> play round-3 <assistant> blue <eos> <user> other said red <assistant>"
    assert tokenizer.decode(ids) == told


@pytest.mark.slow
def test_the_whole_example_as_the_module_shows_it(tmp_path, monkeypatch, capsys):
    """An env of one's own, its model, and a team of it that learns: steps cut to what a test has time for."""
    monkeypatch.chdir(tmp_path)
    source = textwrap.dedent(custom.__doc__[custom.__doc__.index("    WORDS =") :])
    short = source.replace("steps=100", "steps=40").replace("steps=10,", "steps=2,")
    assert short.count("steps=40") == short.count("steps=2,") == 1
    names = {"lab": lab, "dataclass": dataclass, "Task": Task, "Step": Step, "__name__": "example"}
    exec(short, names)
    assert names["folder"] == Path("signals") and names["report"].step == 1
    start = json.loads(Path("signals/provenance.json").read_text())["held_out"]["{}"]["success"]
    assert start > 0.15  # 0.1 for a model that knows nothing


def shows(answer, **changes):
    """An env whose demonstrations are what `answer(state, agent, rng)` gives."""
    return type("Mine", (Agree,), {"demonstrate": staticmethod(answer), **changes})()


@pytest.mark.parametrize("answer, why", [
    (lambda *_: "1\n2", r"demonstrate gave '1\\n2'; give a str of at most max_tokens=1 words with one space between"),
    (lambda *_: {}["coins"], r"demonstrate failed: KeyError: 'coins'"),
])  # fmt: skip
def test_a_demonstration_or_a_message_that_cannot_be_learned_names_its_place(answer, why, tmp_path):
    with pytest.raises(EnvError, match=rf"env '.*Mine', task 'train \d', agent 'left', turn 0: {why}"):
        demonstrations([(1.0, shows(answer))], Stage(1, 1e-3), 4, seed=0)
    calls = [{"role": "assistant", "content": None, "tool_calls": [{"name": "look"}]}]
    env = shows(lambda *_: "1", observe=lambda *_: calls)
    with pytest.raises(EnvError, match=r"env '.*Mine', .*, turn 0: a message has 'tool_calls', and a pocket"):
        lab.make_pocket(env, tmp_path / "own", tasks=4)


def test_what_makes_no_model_is_refused_and_a_file_of_ones_own_is_kept(tmp_path):
    mute = type("Mute", (), {name: getattr(Agree, name) for name in vars(Agree) if name != "demonstrate"})()
    with pytest.raises(EnvError, match=r"Mute has no `demonstrate\(self, state, agent, rng\) -> str`; write one"):
        lab.make_pocket(mute, tmp_path / "own")
    with pytest.raises(ValueError, match="the env gives 10 of 'train' and 10 of 'test'; pass tasks=10"):
        lab.make_pocket(Agree(), tmp_path / "own", tasks=32)
    assert not (tmp_path / "own").exists()
    (tmp_path / "thesis").write_text("chapter 1")
    with pytest.raises(FileExistsError, match="thesis holds something that is no pocket model"):
        lab.make_pocket(Agree(), tmp_path / "thesis")


def test_an_env_of_prose_is_told_to_say_less():
    letters = random.Random(0)
    prose = [Demonstration([{"role": "user", "content": " ".join(str(letters.random()) for _ in range(9000))}], "yes")]
    with pytest.raises(EnvError, match=r"'novel' says 900\d different words, .* at most 8192; the last ones are '0"):
        different(prose, ("yes", "no"), "novel")
