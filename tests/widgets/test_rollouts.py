"""RolloutViewer: what the page holds of an episode, of a tree, and of texts that want to be more than text."""

import json

import pandas as pd
import pytest
from small import Relay, make_team

import mas_lab as lab
from mas_lab.table import TableError
from mas_lab.widgets.rollouts import SCRIPTS

TEXTS = ["go", "<script>window.hacked = 1</script>"]


@pytest.fixture
def tree():
    """The asker has two candidates; the second is kept and the doer answers it."""
    rows = [("e/0", "", 0, "asker", 0, False, TEXTS[0]), ("e/0", "", 0, "asker", 1, True, TEXTS[1]),
            ("e/1", "e/0.1", 1, "doer", 0, True, "done")]  # fmt: skip
    table = pd.DataFrame(rows, columns=["node", "parent", "depth", "agent", "candidate", "kept", "completion"])
    return table.assign(task="t", episode="e", turn=0, prompt="say", team_reward=0.0, local_reward=[0.0, 1.0, 0.5])


def test_a_tree_by_hand(tree):
    data = lab.RolloutViewer(tree).data()
    [episode] = data["episodes"]
    assert list(data["agents"]) == ["asker", "doer"] and episode["name"] == "e" and episode["step"] == 0
    first, second = episode["nodes"]
    assert [found["kept"] for found in first["candidates"]] == [False, True]
    assert [found["said"] for found in first["candidates"]] == TEXTS
    assert second["parent"] == first["candidates"][1]["action"] == "e/0.1"
    assert second["candidates"][0]["numbers"] == {"team_reward": 0.0, "local_reward": 0.5}
    assert first["candidates"][0]["tokens"] == []


def test_what_the_world_told_is_shown(tree):
    told = [{"said": ["<b>", 3]}, {}, None]
    [episode] = lab.RolloutViewer(tree.assign(info=told)).data()["episodes"]
    found = [one["info"] for node in episode["nodes"] for one in node["candidates"]]
    assert found == ['{"said": ["<b>", 3]}', "", ""]


def held(page):
    """The data that a page hands to its scripts."""
    return json.loads(page.partition('id="data">')[2].partition("</script>")[0])


def test_a_run_shows_every_candidate_with_the_text_of_its_tokens(spiky):
    viewer = lab.RolloutViewer(spiky)
    data = held(viewer.page())
    assert {episode["step"] for episode in data["episodes"]} == {0, 1, 2, 3, 4}
    turns = lab.load_run(spiky).turns
    for episode in data["episodes"]:
        rows = turns[(turns["step"] == episode["step"]) & (turns["episode"] == episode["name"])]
        found = [(node, one) for node in episode["nodes"] for one in node["candidates"]]
        assert len(found) == len(rows) == len(rows["action"].unique())
        by_action = rows.set_index("action")
        for node, one in found:
            row = by_action.loc[one["action"]]
            assert (node["agent"], one["said"], one["kept"]) == (row["agent"], row["completion"], row["kept"])
            assert one["ids"] == row["completion_ids"]
            assert len(one["tokens"]) == len(one["shades"]["surprise"]) == len(one["ids"])
            assert one["numbers"]["advantage"] == pytest.approx(row["advantage"], abs=1e-4)
            spoken = [text for text in one["tokens"] if text not in ("<eos>", "<pad>")]
            assert " ".join(spoken) == row["completion"]


def test_tokens_without_a_tokenizer_are_numbers_and_a_team_names_them(models):
    team = make_team("unlike", models)
    turns = lab.rollout(Relay(), team, Relay().tasks(1, "train", 0), lab.episodes(1))
    bare, named = (lab.RolloutViewer(turns, team=known).data() for known in (None, team))
    first = [data["episodes"][0]["nodes"][0]["candidates"][0] for data in (bare, named)]
    assert first[0]["tokens"] == [f"#{number}" for number in first[0]["ids"]]
    assert first[1]["tokens"] == [team["asker"].tokenizer.decode([number]) for number in first[1]["ids"]]


def test_an_episode_is_found_by_name_wherever_it_is(spiky):
    turns = lab.load_run(spiky).turns
    name = turns.loc[turns["step"] == 3, "episode"].iloc[-1]
    viewer = lab.RolloutViewer(spiky, episode=name)
    assert viewer.episodes == [name] and viewer.data()["left_out"] == len(viewer.index) - 1
    with pytest.raises(TableError, match="no episode 'nobody'"):
        lab.RolloutViewer(spiky, episode="nobody")


def test_continuations_that_only_value_a_candidate_are_no_part_of_the_tree(tree):
    shown = lab.RolloutViewer(tree.assign(probe=[False, False, True])).data()
    assert [node["agent"] for node in shown["episodes"][0]["nodes"]] == ["asker"]


def test_hostile_texts_are_held_as_text(tree, hostile, tmp_path):
    rows = pd.concat([tree.iloc[[0]]] * len(hostile), ignore_index=True)
    rows["completion"] = pd.Series(list(hostile.values()), dtype=object)
    rows["candidate"] = range(len(rows))
    rows["kept"] = rows["candidate"] == 0
    page = lab.RolloutViewer(rows).to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    said = [one["said"] for one in held(page)["episodes"][0]["nodes"][0]["candidates"]]
    assert len(said[list(hostile).index("long")]) == 100_000
    assert "␛[31mred" in said[list(hostile).index("ansi")] and "⟨U+202E⟩" in said[list(hostile).index("right to left")]
    assert "<script>window" not in page and "<img" not in page
    assert page.count("<script") == page.count("</script>") == 2 + len(SCRIPTS)  # the theme, the data and our own


def test_where_no_script_runs_the_kept_path_is_a_table(tree):
    assert ">doer</td>" in lab.RolloutViewer(tree).static() and ">go<" not in lab.RolloutViewer(tree).static()


def test_a_notebook_shows_a_frame_of_its_own(spiky):
    shown = lab.RolloutViewer(spiky)._repr_html_()
    assert shown.count("<iframe") == shown.count('sandbox="allow-scripts allow-downloads"') == 1
    assert shown.count("<script") == 1, "what tells the frame whether the notebook is dark"
    assert repr(lab.RolloutViewer(spiky)) == "RolloutViewer(run spiky, at_grpo: 10 episodes)"


def test_the_figure_marks_what_was_kept(spiky):
    viewer = lab.RolloutViewer(spiky)
    figure, told = viewer.figure(), viewer.index.iloc[0]
    turns = lab.load_run(spiky).step_turns(told["step"])
    first = turns[turns["episode"] == told["episode"]]
    for trace in figure.data:
        own = first[first["agent"] == trace.name]
        assert sorted(trace.y) == pytest.approx(sorted(own["credit"]))
        assert sum(sign == "circle" for sign in trace.marker.symbol) == own["kept"].sum()
    assert figure.layout.xaxis.title.text and figure.layout.yaxis.title.text
