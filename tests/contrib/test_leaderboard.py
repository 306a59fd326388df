"""The class leaderboard: equal tokens, reruns that confirm, and files that cannot be ranked."""

import re
import shutil
from pathlib import Path

import grading
import numpy as np
import pandas as pd
import pytest
import small
from hostile import edited, members

import mas_lab as lab
from mas_lab.__main__ import main
from mas_lab.backends.torch.source import Source
from mas_lab.contrib import leaderboard
from mas_lab.paths import data_dir
from mas_lab.policy import PolicyError
from mas_lab.runs.run import RunError
from mas_lab.study.entries import Entry, entries


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory):
    folder = tmp_path_factory.mktemp("class")
    env = lab.make_env("vote", n_agents=2)
    for student, steps, asked in (("ada", None, {"budget": {"episodes": 32}, "score_every": 0.5}),
                                  ("bob", 1, {"score_every": 1})):  # fmt: skip
        team = lab.Team.per_agent(lambda agent: lab.load_policy("math", lr=1e-4), env.agents)
        asked |= {"score_tasks": 4, "score_episodes": 2}
        for _ in lab.train(env, team, "dr_mas", steps, seed=steps or 2, run=folder / student, tasks=2, **asked):
            pass
        lab.export(folder / student, folder / f"{student}.zip")
    return folder


@pytest.mark.slow
def test_runs_are_ranked_at_equal_tokens_and_a_rerun_confirms_them(handed_in, tmp_path, capsys):
    (handed_in / "none.zip").write_bytes(b"PK no zip")
    out = tmp_path / "board.html"
    zips = [str(handed_in / f"{name}.zip") for name in ("ada", "bob", "none")]
    assert main(["board", *zips, "--out", str(out), "--rerun", "2"]) == 0
    text = out.read_text(encoding="utf-8")
    curves = {name: entries(lab.load_run(handed_in / f"{name}.zip"))[0].held_out for name in ("ada", "bob")}
    budget = int(min(curve["tokens"].iloc[-1] for curve in curves.values()))
    assert f"At most {budget:,} tokens" in text and text.count("confirmed</td>") == 2
    at = {name: np.interp(budget, curve["tokens"], curve["success"]) for name, curve in curves.items()}
    first = re.search(r"<td[^>]*>(ada|bob)\.zip</td>", text)[1]
    assert at[first] == max(at.values())
    assert "none.zip" in text.split("Not ranked")[1]


@pytest.mark.slow
def test_both_pages_show_one_number_for_a_run_and_mark_copies_on_both(handed_in, tmp_path):
    place = tmp_path / "class"
    for student, zipped in (("ada", "ada"), ("bob", "bob"), ("cy", "bob")):
        (place / student).mkdir(parents=True)
        shutil.copy(handed_in / f"{zipped}.zip", place / student / "mine.zip")
    page = board(tmp_path, *sorted(place.glob("*/mine.zip")))
    grades = grading.grade(place, tmp_path / "grades.html").read_text(encoding="utf-8")
    finals = lab.AblationBoard([handed_in / "ada.zip", handed_in / "bob.zip"]).runs.set_index("file")["final"]
    told = ("ada", finals["ada.zip"], ""), ("bob", finals["bob.zip"], "cy"), ("cy", finals["bob.zip"], "bob")
    for student, final, twin in told:
        row = re.search(rf"<td>\d</td><td[^>]*>{student}: mine\.zip</td>(.*?)</tr>", page)[1]
        assert f">{final:.3f}</td>" in row and (f"{twin}: mine.zip" in row) == bool(twin)
        own = grades.split(f"<h2>{student}</h2>")[1].split("<h2>")[0]
        assert f"<td>{final:.3f}</td>" in own and (f"the same tables as {twin}: mine.zip" in own) == bool(twin)


@pytest.mark.slow
def test_a_forged_score_is_told(handed_in, tmp_path, monkeypatch):
    monkeypatch.setattr(leaderboard, "trained_again", lambda run, folder: lab.load_run(handed_in / "bob.zip"))
    page = leaderboard.leaderboard([handed_in / "ada.zip"], tmp_path / "board.html", rerun=1).read_text(
        encoding="utf-8"
    )
    assert re.search(r"differs: 0\.\d{3} at the end", page) and "confirmed</td>" not in page


def test_the_gap_is_the_largest_difference_on_either_side(monkeypatch):
    honest, forged = ([Entry("a", "vote", "grpo", 0, pd.DataFrame(), pd.DataFrame({"success": success}))]
                      for success in ([0.25, 0.3], [0.2, 0.95]))  # fmt: skip
    monkeypatch.setattr(leaderboard, "trained_again", lambda run, folder: honest)
    assert leaderboard.confirmed(None, *forged) == "differs: 0.300 at the end (gap -0.650)"


def test_what_cannot_be_made_again_says_why(tmp_path, models):
    env, team = small.Relay(), small.make_team("per_agent", models)
    scores = {"score_every": 1, "score_tasks": 2, "score_episodes": 1}
    for _ in lab.train(env, team, "grpo", 1, run=tmp_path / "own", tasks=2, **scores):
        pass
    page = leaderboard.leaderboard([tmp_path / "own"], tmp_path / "board.html", rerun=1).read_text(encoding="utf-8")
    assert re.search(r"cannot be made: the weights of &#x27;\w+&#x27; are not shipped", page)
    with pytest.raises(RunError, match="no run was given"):
        leaderboard.leaderboard([], tmp_path / "board.html")


def board(tmp_path, *paths, rerun=0):
    return leaderboard.leaderboard(paths, tmp_path / "board.html", rerun).read_text(encoding="utf-8")


def forged(run, path, change):
    """Write a zip like `run`, with another run.json and the digests that go with it."""
    return edited("run.json", lambda config: [change(config), config][1])(members(run), path)


def of_source(**other):
    def change(config):
        for policy in config["team"]["policies"].values():
            policy["source"] |= other

    return change


BAD = {
    "hub": (of_source(name="owner/model"), "the kit ships no pocket model"),
    "path": (of_source(name=str(data_dir() / "pocket" / "math")), "the kit ships no pocket model"),
    "relative": (of_source(name="../pocket/math"), "the kit ships no pocket model"),
    "list": (of_source(name=["math"]), "the kit ships no pocket model"),
    "kind": (of_source(kind="directory", name=str(data_dir() / "pocket" / "math")), "are not shipped with the kit"),
    "digest": (of_source(digest="0" * 64), "has changed: sha256"),
    "threads": (lambda config: config.pop("threads"), "threads"),
    "no_scores": (lambda config: config["settings"].update(score_every=None), "its settings keep no held-out scores"),
    "type": (lambda config: config["settings"].update(tasks="many"), "tasks=&#x27;many&#x27;"),
}  # fmt: skip


@pytest.mark.slow
def test_a_bad_run_costs_its_own_row(handed_in, tmp_path):
    bob = handed_in / "bob.zip"
    evil = [forged(bob, tmp_path / f"{name}.zip", change) for name, (change, _) in BAD.items()]
    page = board(tmp_path, bob, *evil, rerun=len(evil) + 1)
    cells = [re.findall("<td[^>]*>([^<]*)</td>", row) for row in page.split("<tr>")]
    rows = {Path(own[1]).stem.rpartition(": ")[2]: own[-2] for own in cells if len(own) > 2 and own[1].endswith(".zip")}
    assert rows.pop("bob") == "confirmed" and rows.keys() == BAD.keys()
    for name, (_, told) in BAD.items():
        assert re.match(f"cannot be made: .*{told}", rows[name]), name


@pytest.mark.slow
def test_a_rerun_has_limits(handed_in, tmp_path, monkeypatch):
    run = lab.load_run(handed_in / "ada.zip")
    for name, value, told in (("STEPS", 1, "it has 2 steps, and at most 1 are trained again"),
                              ("SECONDS", 1, "takes more than 2 GiB, or 0 minutes")):  # fmt: skip
        with monkeypatch.context() as one, pytest.raises(RunError, match=told):
            one.setattr(leaderboard, name, value)
            leaderboard.trained_again(run, tmp_path / name)
    monkeypatch.setenv("MAS_LAB_ZIP_GIB", "0.01")
    with pytest.raises(RunError):
        leaderboard.trained_again(run, tmp_path / "memory")
    assert not (tmp_path / "memory" / "turns").exists()


@pytest.mark.slow
def test_a_pocket_model_is_never_a_folder_of_the_same_name(handed_in, tmp_path, monkeypatch):
    (tmp_path / "math").mkdir()
    (tmp_path / "math" / "config.json").write_text("{}", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert "confirmed</td>" in board(tmp_path, handed_in / "bob.zip", rerun=1)


@pytest.mark.parametrize("name", ["owner/model", "/etc", "..", ""])
def test_only_a_shipped_name_is_a_pocket_model(name):
    with pytest.raises(PolicyError, match="ships no pocket model"):
        Source("pocket", name).location()
    assert Source("pocket", "math").location() == str(data_dir() / "pocket" / "math")


@pytest.mark.slow
def test_an_easier_form_is_ranked_apart(handed_in, tmp_path):
    easier = {
        "size": lambda config: config["env"].update(n_agents=1),
        "turns": lambda config: config["settings"].update(max_turns=1),
        "held_out": lambda config: config["settings"].update(score_tasks=1),
    }
    bob = handed_in / "bob.zip"
    page = board(tmp_path, bob, *(forged(bob, tmp_path / f"{name}.zip", one) for name, one in easier.items()))
    found = re.findall(r"<h2>(.*?)</h2>(.*?)</table>", page, re.DOTALL)
    assert [re.findall(r"(\w+)\.zip", table) for _, table in found] == [["bob"], ["size"], ["turns"], ["held_out"]]
    assert [head for head, _ in found] == [
        "vote (n_agents=2), score_tasks=4, score_episodes=2", "vote (n_agents=1), score_tasks=4, score_episodes=2",
        "vote (n_agents=2), max_turns=1, score_tasks=4, score_episodes=2",
        "vote (n_agents=2), score_tasks=1, score_episodes=2",
    ]  # fmt: skip
