"""Tables in a notebook: their texts are whole, and what their columns mean stands below."""

import html
import pickle
import re

import pandas as pd
import pytest
from small import RECIPE, SETTINGS, Relay, make_team

import mas_lab as lab
from mas_lab.cells.update import STATS
from mas_lab.display.documented_frame import COLUMN_DOCS, DocumentedFrame, documented
from mas_lab.table import SCHEMA
from mas_lab.widgets.figures import dialogue


@pytest.fixture
def found():
    rows = [{"task": "t", "episode": e, "agent": "solver", "credit": float(e > 5)} for e in range(8)]
    rows += [{"task": "t", "episode": e, "agent": "fixer", "credit": float(e > 5)} for e in (5, 6, 7)]
    return lab.inflation(pd.DataFrame(rows))


def shown(table: pd.DataFrame) -> str:
    """The text of its HTML."""
    return html.unescape(re.sub("<style.*?</style>|<[^>]*>", " ", table._repr_html_(), flags=re.S))


def test_the_schema_shows_each_meaning_whole():
    with pd.option_context("display.max_colwidth", 10):
        of_turns, of_inflation = shown(lab.schema()), shown(lab.schema("inflation"))
    assert all(column.description in of_turns for column in SCHEMA.values())
    assert all(meaning in of_inflation for meaning in COLUMN_DOCS["inflation"].values())
    with pytest.raises(ValueError, match=r"schema: of='turn' is no table of the kit; known are turns, group_stats"):
        lab.schema("turn")


@pytest.mark.slow
def test_a_dialogue_is_whole_with_its_line_breaks(spiky):
    turns = lab.load_run(spiky).step_turns(0)
    heard = "user: first line\n" + "word " * 40 + "<b>end</b>\x1b[0m"
    table = dialogue(turns.assign(prompt=heard), turns["episode"].iloc[0])
    with pd.option_context("display.max_colwidth", 20):
        page = table._repr_html_()
    told = html.escape(heard.removeprefix("user: ").replace("\x1b", "␛")).replace("\n", "&#10;")
    assert f'<div style="text-align: left; white-space: pre-wrap">{told}</div>' in page
    assert "<b>end" not in page and "<b>hears</b>: the prompt" in page


def test_the_key_tells_of_the_columns_that_are_shown(found):
    few = found[["agent", "F_k"]].round(2).head(1)
    assert "<b>F_k</b>: v_k + b_k²" in few._repr_html_() and "<b>signal</b>" not in few._repr_html_()
    assert "<b>F_k</b>" not in found.rename(columns={"F_k": "inflated"})._repr_html_()
    assert "<small>" not in documented(pd.DataFrame({"F_k": [1]}))._repr_html_()


def test_what_is_computed_of_it_is_the_table_that_pandas_makes(found):
    plain = pd.DataFrame(found)
    assert type(plain) is pd.DataFrame and type(found) is DocumentedFrame
    means = [table.groupby("agent").mean(numeric_only=True) for table in (found, plain)]
    pd.testing.assert_frame_equal(*means)
    assert repr(found) == repr(plain) and pd.concat([plain, found]).shape == (4, found.shape[1])
    assert found.copy().kind == pickle.loads(pickle.dumps(found)).kind == "inflation"


def test_whatever_a_table_holds_is_text():
    evil = "<img src=x onerror=hack()>"
    values = {evil: [evil, [evil], {"a": evil}, None, 2.5, True]}
    page = documented(pd.DataFrame(values, index=[evil, 1, 2, 3, 4, (evil, 2)]))._repr_html_()
    assert "<img" not in page and page.count("&lt;img") == 6
    assert "2.5" in page and "True" in page


def test_every_column_has_its_meaning(found, spiky, models):
    env, team = Relay(), make_team("per_agent", models)
    [report] = lab.train(env, team, RECIPE, 1, staleness=1, **SETTINGS)
    run = lab.load_run(spiky)
    inspector = lab.RewardInspector(run)
    tables = {
        "inflation": found, "group_stats": lab.group_stats(run.turns),
        "rewards": inspector.table, "update": report.stats,
        "dialogue": dialogue(report.turns, report.turns["episode"].iloc[0]),
        "uphill": lab.uphill(team, env, ["grpo"], rollouts=2, tasks=1), "wrong_way": lab.wrong_way(report.turns),
        "index": lab.RolloutViewer(spiky).index, "rejudge": lab.rejudge(report.turns, ["grpo"]),
        "evaluate": lab.evaluate(env, team, env.tasks(2, "test", 0), k=2),
        "imitate": lab.imitate(lab.Team.shared(lab.load_policy("math"), ("solver",)), lab.make_env("math"), 2, 1, 2),
    }  # fmt: skip
    assert set(tables) == set(COLUMN_DOCS)
    for name, table in tables.items():
        columns = ["pass@j" if column.startswith("pass@") else column for column in table.columns]
        assert not set(columns) - set(COLUMN_DOCS[name]), name
        plain = name in ("index", "update", "evaluate", "imitate")
        assert plain or (type(table) is DocumentedFrame and table.kind == name)
    assert set(COLUMN_DOCS["update"]) == {"step", *STATS.split(), "age"} == set(report.stats.columns)
    assert {"b", "v", "F", "lone"} <= set(inspector.table.columns)
    assert set(inspector.table.columns) | {"malformed", "age"} == set(COLUMN_DOCS["rewards"])
