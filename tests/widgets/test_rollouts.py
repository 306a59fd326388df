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
    """What only values a candidate is no part of it."""
    probed = lab.RolloutViewer(tree.assign(probe=[False, False, True])).data()
    assert [node["agent"] for node in probed["episodes"][0]["nodes"]] == ["asker"]
    data = lab.RolloutViewer(tree).data()
    [episode] = data["episodes"]
    assert list(data["agents"]) == ["asker", "doer"] and episode["name"] == "e" and episode["step"] == 0
    first, second = episode["nodes"]
    assert [found["kept"] for found in first["candidates"]] == [False, True]
    assert [found["said"] for found in first["candidates"]] == TEXTS
    assert second["parent"] == first["candidates"][1]["action"] == "e/0.1"
    assert second["candidates"][0]["numbers"] == {"team_reward": 0.0, "local_reward": 0.5}
    assert first["candidates"][0]["tokens"] == []


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


def test_hostile_texts_are_held_as_text(tree, hostile):
    rows = pd.concat([tree.iloc[[0]]] * len(hostile), ignore_index=True)
    rows["completion"] = pd.Series(list(hostile.values()), dtype=object)
    rows["candidate"] = range(len(rows))
    rows["kept"] = rows["candidate"] == 0
    page = lab.RolloutViewer(rows).page()
    said = [one["said"] for one in held(page)["episodes"][0]["nodes"][0]["candidates"]]
    assert len(said[list(hostile).index("long")]) == 100_000
    assert "␛[31mred" in said[list(hostile).index("ansi")] and "⟨U+202E⟩" in said[list(hostile).index("right to left")]
    assert "<script>window" not in page and "<img" not in page
    assert page.count("<script") == page.count("</script>") == 2 + len(SCRIPTS)  # the theme, the data and our own


def test_a_page_says_what_it_left_out_and_keeps_each_steps_most_telling(spiky):
    whole = lab.RolloutViewer(spiky)
    assert whole.data()["left_out"] == 0 and whole.episodes == whole.index["episode"].tolist()
    size = len(json.dumps([whole.data()["episodes"], whole.data()["groups"]]))
    data = held(lab.RolloutViewer(spiky, limit_mb=0.7 * size / 1e6).page())
    assert data["total"] == 10 and 5 <= len(data["episodes"]) == 10 - data["left_out"] < 10
    assert len(json.dumps([data["episodes"], data["groups"]])) < 0.7 * size
    firsts = whole.index.drop_duplicates("step")[["step", "episode"]]
    shown = [(one["step"], one["name"]) for one in data["episodes"]]
    assert set(shown) >= set(firsts.itertuples(index=False, name=None))
    assert shown == list(zip(data["index"]["step"], data["index"]["episode"], strict=True))
    turns = lab.load_run(spiky).turns
    for name, members in data["groups"].items():
        _, step, group = name.split("|", 2)
        own = turns[(turns["step"] == int(step)) & (turns["group"] == group) & ~turns["probe"]]
        expected = set(zip(own["node"], own["candidate"], strict=True))
        assert {(one["node"], one["candidate"]) for one in members} == expected


def test_a_link_opens_what_it_names_though_it_tells_little(spiky):
    last = lab.RolloutViewer(spiky).index.iloc[-1]
    viewer = lab.RolloutViewer(spiky, limit_mb=0.001)
    link = viewer.link(last["step"], last["episode"], node=f"{last['episode']}/0", run=0)
    assert link.startswith(f"#run=0&step={last['step']}&episode=train-")
    opened = lab.RolloutViewer(spiky, at=link, limit_mb=0.001)
    assert opened.data()["at"] == link and opened.episodes == [last["episode"]]
    assert f"Episode {last['episode']} of step {last['step']}" in opened.static()
    with pytest.raises(TableError, match="no episode 'nobody' at step 3"):
        lab.RolloutViewer(spiky, at="#step=3&episode=nobody")
    with pytest.raises(ValueError, match="is no address of an episode"):
        lab.RolloutViewer(spiky, at="#step=x&episode=e")


@pytest.mark.slow
def test_two_runs_side_by_side_are_one_index(spiky, tmp_path):
    run = lab.load_run(spiky)
    zipped = lab.export(run, tmp_path / "other.zip")
    viewer = lab.RolloutViewer(run, beside=zipped)
    data = viewer.data()
    assert data["runs"] == ["run spiky, at_grpo", "run other.zip, at_grpo"] and data["total"] == 20
    assert sorted(data["index"]["run"]) == [0] * 10 + [1] * 10
    first, second = ([one for one in data["episodes"] if one["run"] == run] for run in (0, 1))
    assert [{**one, "run": 1} for one in first] == second
    assert "run" in viewer.static() and viewer.title == "run spiky, at_grpo beside run other.zip, at_grpo"


def test_a_group_is_listed_up_to_a_bound_with_the_largest_and_ones_own():
    rows = [{"episode": f"e{place}", "agent": "a", "task": "t", "completion": "x", "group": "g", "credit": 0.0,
             "advantage": float(place)} for place in range(80)]  # fmt: skip
    viewer = lab.RolloutViewer(pd.DataFrame(rows), at="#step=0&episode=e3", limit_mb=0.001)
    [members] = viewer.data()["groups"].values()
    assert viewer.data()["episodes"][0]["nodes"][0]["candidates"][0]["compared"] == 80
    assert [one["episode"] for one in members] == ["e3", *(f"e{place}" for place in range(49, 80))]
