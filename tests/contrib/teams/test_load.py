"""Shared teams: they come back bit for bit and are checked first, and the card says only what the run holds.

These are the tests of `load` and `save`.
"""

import json
import shutil
from fnmatch import fnmatch

import pytest
import torch
from huggingface_hub import ModelCard, constants
from markdown_it import MarkdownIt
from peft import PeftModel
from small import Relay, make_model, make_team, start
from transformers import AutoModelForCausalLM, AutoTokenizer

import mas_lab as lab
from mas_lab.contrib.foreign import child as foreign
from mas_lab.contrib.teams.load import FETCHED
from mas_lab.contrib.teams.save import block, card
from mas_lab.policy import PolicyError
from mas_lab.runs.disk import hashes, read_json, write_json
from mas_lab.runs.run import Checkpoint, Run
from mas_lab.runs.scores import score_curve

SCORES = {"score_every": 2, "score_tasks": 2, "score_episodes": 2}


@pytest.fixture(scope="module")
def made(models, tmp_path_factory):
    """A folder with `run` and `team`, what was handed out, for each kind of team; "shared" kept no scores."""
    root = tmp_path_factory.mktemp("teams")
    for kind, settings in {"lora": SCORES, "unlike": SCORES, "shared": {}}.items():
        list(start(kind, models, root / kind / "run", 2, **settings))
        lab.save_team(root / kind / "run", root / kind / "team")
    return root


@pytest.fixture(params=["lora", "unlike"])
def given(request, made):
    """(kind, run folder, folder that was handed out)."""
    return request.param, made / request.param / "run", made / request.param / "team"


@pytest.fixture
def handed(made):
    return made / "shared" / "run", made / "shared" / "team"


@pytest.fixture
def folder(handed, tmp_path):
    """A copy to spoil."""
    return shutil.copytree(handed[1], tmp_path / "team")


def edit(folder, change):
    data = json.loads((folder / "team.json").read_text(encoding="utf-8"))
    change(data)
    write_json(folder / "team.json", data)


def same_weights(one, other):
    got, kept = one.parameters, other.parameters
    return list(got) == list(kept) and all(torch.equal(got[key], kept[key]) for key in kept)


def test_a_team_comes_back_bit_for_bit(given, models):
    kind, run, folder = given
    theirs, own = lab.load_team(folder, base=models / "a" if kind == "lora" else ()), lab.load_run(run).team()
    assert theirs.sampling == own.sampling and list(theirs) == list(own) and list(theirs.policies) == list(own.policies)
    for name, policy in own.policies.items():
        got = theirs.policies[name]
        assert same_weights(got, policy) and got.lr == policy.lr and got.shared.template == policy.shared.template
    env = Relay()
    played = [lab.rollout(env, team, env.tasks(3, "test", 0), lab.episodes(2), seed=4) for team in (own, theirs)]
    assert played[0]["completion"].tolist() == played[1]["completion"].tolist()
    assert (theirs["asker"].shared is theirs["doer"].shared) == (kind == "lora")
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in files if "optimizer" in path.name or path.name == "policy.json"]
    held = b"".join(path.read_bytes() for path in files)
    assert str(models).encode() not in held and str(run.parent).encode() not in held, "no path of the machine"


def test_others_load_the_same_weights(given, models):
    kind, run, folder = given
    data = json.loads((folder / "team.json").read_text(encoding="utf-8"))
    for name, policy in lab.load_run(run).team().policies.items():
        place = folder / data["policies"][name]["folder"]
        if kind == "lora":
            net = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(models / "a"), place)
            key = next(key for key in policy.parameters if "lora_A" in key)
            found = [value for named, value in net.named_parameters() if "lora_A" in named]
            assert any(torch.equal(value, policy.parameters[key]) for value in found)
        else:
            net = AutoModelForCausalLM.from_pretrained(place)
            assert AutoTokenizer.from_pretrained(place).chat_template
            assert all(torch.equal(value, policy.parameters[key]) for key, value in net.named_parameters())


def blocks(text):
    return [json.loads(part.partition("```")[0]) for part in text.split("```json\n")[1:]]


def test_the_card_says_what_the_run_says(given):
    kind, run, folder = given
    text = (folder / "README.md").read_text(encoding="utf-8")
    header, kept = ModelCard(text).data.to_dict(), lab.load_run(run)
    assert header["library_name"] == "mas_lab" and "license" not in header and "base_model" not in header
    assert ("peft" in header["tags"]) == (kind == "lora")
    _, described, results = blocks(text)
    scores = score_curve(kept).round(3)[["step", "success", "return"]].to_dict("records")
    tokens = int(kept.turns["completion_ids"].map(len).sum())
    assert results == {"steps": 2, "sampled_tokens": tokens, "held_out_scores": scores} and len(scores) == 2
    assert described.pop("forked_after_step") is None  # of a fork; its path stays on the machine
    assert all(told == kept.config.get(key) for key, told in described.items())
    assert described["recipe"]["name"] == "at_grpo" and described["code"] and described["versions"]["torch"]


EVIL = (
    "](http://evil.example)<script>alert(1)</script>`` ``` |x|\n---\nlicense: mit\n# Hi ![](http://evil.example/a.png)"
)


def test_no_name_of_a_run_becomes_a_link_html_or_yaml(handed):
    """All of them stand in blocks of JSON, and the header names models of the hub alone."""
    assert blocks((handed[1] / "README.md").read_text(encoding="utf-8"))[2]["held_out_scores"] == []  # none were kept
    one = {"folder": "policies/0", "kind": "adapter", "lr": 0.1, "template": {}, "lora": {"rank": 2},
           "base": {"kind": "hub", "name": EVIL, "digest": EVIL}}  # fmt: skip
    team = {"step": 1, "agents": {EVIL: EVIL}, "sampling": {EVIL: {"stop": [EVIL]}}, "frozen": [],
            "policies": {EVIL: one}}  # fmt: skip
    _, header, text = str(card(lab.load_run(handed[0]), team)).split("---\n", 2)
    assert "license" not in header and "base_model" not in header
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    assert {one.type for one in tokens if "evil" in one.content} == {"fence"}
    [fence] = MarkdownIt("commonmark").parse(block({EVIL: [EVIL]}))
    assert fence.type == "fence" and json.loads(fence.content) == {EVIL: [EVIL]}


def first(data):
    return next(iter(data["policies"].values()))


EDITED = {
    r"policies\..*\.folder: .*'\.\./\.\./etc'": lambda data: first(data).update(folder="../../etc"),
    r"files\.\.\./x\.json": lambda data: first(data)["files"].update({"../x.json": "0" * 64}),
    "agents, policies, sampling and frozen do not name": lambda data: data["agents"].update(asker="other"),
    r"template\.tools": lambda data: first(data).update(template={"tools": ["x"]}),
    "tokenizer.json is not recorded in team.json": lambda data: first(data)["files"].pop("tokenizer.json"),
    r"sampling\.asker: .*temperature": lambda data: data["sampling"]["asker"].update(temperature=float("nan")),
    "device: Unexpected keyword argument": lambda data: data["sampling"]["asker"].update(device="x"),
    "an adapter has lora": lambda data: first(data).update(kind="adapter"),
    "index below adapters": lambda data: first(data).update(
        kind="adapter", lora={"adapters": 1, "index": 1, "rank": 1, "alpha": 2.0}),
}  # fmt: skip


@pytest.mark.parametrize("told", EDITED, ids=list(range(len(EDITED))))
def test_an_edited_team_json_is_refused_by_name(folder, told):
    edit(folder, EDITED[told])
    with pytest.raises(lab.RunError, match=told):
        lab.load_team(folder)


@pytest.mark.parametrize("text", ["{", "[" * 100_000])
def test_a_team_json_that_is_no_json_is_refused(folder, text):
    (folder / "team.json").write_text(text, encoding="utf-8")
    with pytest.raises(lab.RunError, match=r"team\.json: Invalid JSON"):
        lab.load_team(folder)


def relist(folder):
    edit(folder, lambda data: first(data).update(files=hashes(folder / "policies" / "0-shared")))


def test_a_changed_file_and_an_oversized_model_are_refused(folder, monkeypatch):
    path = folder / "policies" / "0-shared" / "config.json"
    original = path.read_text(encoding="utf-8")
    config = json.loads(original)
    path.write_text(json.dumps(config | {"vocab_size": 10}), encoding="utf-8")
    with pytest.raises(lab.RunError, match=r"config\.json is changed in team\.json"):
        lab.load_team(folder)
    for change, error, sentence in (
        ({"num_hidden_layers": 10**9}, lab.RunError, "num_hidden_layers=.*no model that could be loaded"),
        ({"text_config": {"vocab_size": 2**25}}, lab.RunError, "vocab_size=.*no model that could be loaded"),
        ({"intermediate_size": 2**20}, PolicyError, r"config.json describes \d+ weights, and its files have \d+ bytes"),
    ):
        path.write_text(json.dumps(config | change), encoding="utf-8")
        relist(folder)
        with pytest.raises(error, match=sentence):
            lab.load_team(folder)
    path.write_text(original, encoding="utf-8")
    relist(folder)
    monkeypatch.setenv("MAS_LAB_TEAM_GIB", "1e-6")
    with pytest.raises(lab.RunError, match=r"if you trust it, allow more: os\.environ..MAS_LAB_TEAM_GIB"):
        lab.load_team(folder)
    monkeypatch.delenv("MAS_LAB_TEAM_GIB")
    assert len(lab.load_team(folder)) == 2


LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
SAID = "{% for one in messages %}{{ one['content'] }}{% endfor %}"


def tokenizer_with(**parts):
    """Return a change of tokenizer.json."""

    def change(place):
        path = place / "tokenizer.json"
        path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | parts), encoding="utf-8")

    return change


def chat_with(template):
    return lambda place: (place / "chat_template.jinja").write_text(template, encoding="utf-8")


def ninefold(letter):
    grow = {"type": "Replace", "pattern": {"String": letter}, "content": 9 * letter}
    return {"type": "Sequence", "normalizers": 9 * [grow]}


BACKTRACKS = {"type": "Split", "pattern": {"Regex": "(a+)+(?<!a)$"}, "behavior": "Isolated", "invert": False}
MALICIOUS = {
    "loops for two messages": chat_with(SAID + "{% if messages | length == 2 %}" + LOOP + "{% endif %}"),
    "loops for tools": chat_with(SAID + "{% if tools %}" + LOOP + "{% endif %}"),
    "takes memory": chat_with(SAID + "{{ 'a' * 10**10 }}"),
    "repeats what was said": chat_with("{{ messages[0]['content'] * 9999 }}"),
    "grows a letter": tokenizer_with(normalizer=ninefold("a")),
    "grows a rare character": tokenizer_with(normalizer=ninefold("\u20ac")),
    "backtracks": tokenizer_with(pre_tokenizer=BACKTRACKS),
    "decodes to more": tokenizer_with(decoder={"type": "Sequence", "decoders": ninefold("e")["normalizers"]}),
}  # fmt: skip


@pytest.mark.parametrize("change", MALICIOUS.values(), ids=MALICIOUS)
def test_a_tokenizer_that_loops_grows_or_crashes_is_refused_before_it_is_used(folder, monkeypatch, change):
    monkeypatch.setattr(foreign, "CHAT_SECONDS", 3)
    change(folder / "policies" / "0-shared")
    relist(folder)
    with pytest.raises(lab.RunError, match=r"0-shared(: it makes| crashes in a chat).* ask its maker"):
        lab.load_team(folder)


@pytest.mark.parametrize("key", ["chat_template", "max_length", "padding", "tokenize"])
def test_template_arguments_that_are_no_variables_are_refused(folder, key):
    edit(folder, lambda data: first(data).update(template={key: "x", "enable_thinking": False}))
    with pytest.raises(lab.RunError, match=f"template has '{key}', which is no variable of a chat template"):
        lab.load_team(folder)


@pytest.mark.parametrize("kind", ["shared", "lora"])
def test_a_run_of_somebody_else_is_tried_like_a_team(made, tmp_path, monkeypatch, kind):
    """A copy of a run is somebody else's; its record of an adapter has a chat template for a base of one's own."""
    monkeypatch.setattr(foreign, "CHAT_SECONDS", 3)
    run = shutil.copytree(made / kind / "run", tmp_path / "run")
    place = max((run / "checkpoints").iterdir()) / "policies" / "0"
    template = SAID + "{% if messages | length == 2 %}" + LOOP + "{% endif %}"
    if kind == "lora":
        write_json(place / "policy.json", read_json(place / "policy.json") | {"template": {"chat_template": template}})
    else:
        chat_with(template)(place)
    monkeypatch.setattr(Checkpoint, "_refuse_changes", lambda *_: None)  # a stranger writes the hashes, too
    with pytest.raises(lab.RunError, match=r"crashes in a chat .* ask its maker"):
        lab.load_run(run).team()


def test_patterns_of_a_stranger_are_forgotten(folder):
    path = folder / "policies" / "0-shared" / "tokenizer_config.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    fields = {"content": {"close_pattern": "(a+)+$", "content": "text"}}
    path.write_text(json.dumps(data | {"response_template": {"fields": fields}}), encoding="utf-8")
    relist(folder)
    assert lab.load_team(folder)["asker"].tokenizer.response_template is None


def test_a_base_is_loaded_only_if_it_was_asked_for(made, models, tmp_path):
    folder = shutil.copytree(made / "lora" / "team", tmp_path / "team")
    with pytest.raises(PolicyError, match="get that model, and load_team"):
        lab.load_team(folder)
    with pytest.raises(PolicyError, match="get that model"):
        lab.load_team(folder, base=make_model(tmp_path / "other", seed=9))
    with pytest.raises(TypeError, match="multiple values for keyword argument 'alpha'"):
        lab.load_team(folder, base=models / "a", alpha=8)

    def of_the_hub(data):
        for one in data["policies"].values():
            one["base"] = {"kind": "hub", "name": "somebody/model", "digest": "0" * 40}

    edit(folder, of_the_hub)
    with pytest.raises(PolicyError, match="'somebody/model' of the hub, which is only loaded on request"):
        lab.load_team(folder, base="somebody/other")


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub(handed, tmp_path, monkeypatch):
    """A cache as the hub's own client lays it out, and no network: refs, blobs, and a snapshot of links to them."""
    home = tmp_path / "hub" / "models--owner--name"
    for name in ("refs", "blobs"):
        (home / name).mkdir(parents=True)
    (home / "refs" / "v1").write_text(COMMIT, encoding="utf-8")
    for path in (one for one in handed[1].rglob("*") if one.is_file()):
        name = path.relative_to(handed[1]).as_posix()
        blob, link = home / "blobs" / name.replace("/", "_"), home / "snapshots" / COMMIT / name
        shutil.copyfile(path, blob)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return home / "snapshots" / COMMIT


def test_a_team_of_the_hub_is_one_line_with_a_revision(hub, handed):
    own = lab.load_run(handed[0]).team()
    for revision in (COMMIT, "v1"):
        assert same_weights(lab.load_team("owner/name", revision=revision)["asker"], own["asker"])
    for asked, revision, sentence in (
        ("owner/name", None, "say which revision"),
        ("owner/name", "v2", "owner/name at v2 cannot be fetched"),
        ("owner/other", "v1", "owner/other at v1 cannot be fetched"),
    ):
        with pytest.raises(lab.RunError, match=sentence):
            lab.load_team(asked, revision=revision)
    (hub / "team.json").unlink()
    with pytest.raises(lab.RunError, match=r"holds no team\.json"):
        lab.load_team("owner/name", revision="v1")
    with pytest.raises(lab.RunError, match=r"give a folder that lab\.save_team wrote"):
        lab.load_team(hub)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "modeling.py", "sub/x.json"])
def test_a_file_that_is_not_listed_is_neither_fetched_nor_loaded(folder, name):
    def fetched(path):
        return any(fnmatch(path.relative_to(folder).as_posix(), one) for one in FETCHED)

    held = [path for path in folder.rglob("*") if path.is_file()]
    assert [path.name for path in held if not fetched(path)] == ["README.md"]
    path = folder / "policies" / "0-shared" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"import os")
    assert not fetched(path) or name == "sub/x.json"
    with pytest.raises(lab.RunError, match=f"{name} is not recorded in team.json"):
        lab.load_team(folder)


def test_a_hub_that_lists_too_much_is_refused_before_it_is_fetched(hub, monkeypatch):
    import huggingface_hub
    from huggingface_hub.file_download import DryRunFileInfo

    fetched = []

    def listing(where, dry_run=False, allow_patterns=(), **_):
        if dry_run:
            return [DryRunFileInfo(COMMIT, 2**40, name, name, False, True) for name in allow_patterns]
        fetched.append(allow_patterns)
        return str(hub)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", listing)
    with pytest.raises(lab.RunError, match="more than"):
        lab.load_team("owner/name", revision=COMMIT)
    assert not fetched


def test_where_a_team_cannot_be_written(handed, tmp_path):
    run, _ = handed
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x", encoding="utf-8")
    with pytest.raises(lab.RunError, match="name a folder that is new or empty"):
        lab.save_team(run, tmp_path / "full")
    with pytest.raises(lab.RunError, match="tables, not weights"):
        lab.save_team(lab.export(run, tmp_path / "run.zip"), tmp_path / "new")
    assert not (tmp_path / "new").exists() and not list(tmp_path.glob("*.tmp"))
    (tmp_path / "empty").mkdir()
    assert len(lab.load_team(lab.save_team(run, tmp_path / "empty"))) == 2


def test_odd_names_of_policies_are_no_places(handed, models, tmp_path):
    """A policy's name is an agent's, and may be anything."""
    run = shutil.copytree(handed[0], tmp_path / "run")
    newest = max((run / "checkpoints").iterdir())
    shutil.rmtree(newest)
    Checkpoint.write(newest, lab.Team({"../../x": make_team("shared", models)["asker"]}))
    folder = lab.save_team(Run(run), tmp_path / "out" / "team")
    assert (folder / "policies" / "0" / "model.safetensors").is_file()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["team"]
    assert list(lab.load_team(folder)) == ["../../x"]
