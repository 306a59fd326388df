"""The class leaderboard: equal tokens, reruns that confirm, and files that cannot be ranked."""

import re

import pytest
import small

import mas_lab as lab
from mas_lab.__main__ import main
from mas_lab.runs.run import RunError
from mas_lab.study.entries import entries
from mas_lab.widgets import leaderboard


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory):
    folder = tmp_path_factory.mktemp("class")
    env = lab.make_env("vote", n_agents=2)
    for student, steps in (("ada", 2), ("bob", 1)):
        team = lab.Team.per_agent(lambda agent: lab.load_policy("math", lr=1e-4), env.agents)
        scores = {"score_every": 1, "score_tasks": 4, "score_episodes": 2}
        for _ in lab.train(env, team, "dr_mas", steps, seed=steps, run=folder / student, tasks=2, **scores):
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
    at = {name: curve[curve["tokens"] <= budget].iloc[-1]["success"] for name, curve in curves.items()}
    first = re.search(r"<td[^>]*>(ada|bob)\.zip</td>", text)[1]
    assert at[first] == max(at.values())
    assert "none.zip" in text.split("Not ranked")[1]


@pytest.mark.slow
def test_a_forged_score_is_told(handed_in, tmp_path, monkeypatch):
    monkeypatch.setattr(leaderboard, "trained_again", lambda run, folder: lab.load_run(handed_in / "bob.zip"))
    page = leaderboard.leaderboard([handed_in / "ada.zip"], tmp_path / "board.html", rerun=1).read_text(
        encoding="utf-8"
    )
    assert re.search(r"differs: 0\.\d{3} at the end", page) and "confirmed</td>" not in page


def test_what_cannot_be_made_again_says_why(tmp_path, models):
    env, team = small.Relay(), small.make_team("per_agent", models)
    scores = {"score_every": 1, "score_tasks": 2, "score_episodes": 1}
    for _ in lab.train(env, team, "grpo", 1, run=tmp_path / "own", tasks=2, **scores):
        pass
    page = leaderboard.leaderboard([tmp_path / "own"], tmp_path / "board.html", rerun=1).read_text(encoding="utf-8")
    assert re.search(r"cannot be made: the weights of &#x27;\w+&#x27; are not shipped", page)
    with pytest.raises(RunError, match="no run was given"):
        leaderboard.leaderboard([], tmp_path / "board.html")
