"""docs/programs.md: every block runs as it stands; and what LangGraph gets is what plain Python gets."""

import re
from pathlib import Path

import pandas as pd
import pytest

TEXT = (Path(__file__).parents[3] / "docs" / "programs.md").read_text(encoding="utf-8")
LANGGRAPH, *BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.S)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """What the names of the page stand for, after its blocks without a framework; `played` is its first table."""
    names = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("page"))
        for block in BLOCKS:
            exec(compile(block, "programs.md", "exec"), names)
            names.setdefault("played", names["turns"])
    return names


def test_plain_python_calls_tools_and_trains(page):
    assert {"ok", "unclosed", "none"} <= set(page["played"]["call_status"]) and page["played"]["success"].any()
    assert page["report"].step == 1 and page["report"].stats["grad_norm"].gt(0).any()


@pytest.mark.slow
def test_langgraph_gets_what_plain_python_gets(page):
    pytest.importorskip("langchain", reason="make clients installs it")
    exec(compile(LANGGRAPH, "programs.md", "exec"), names := {})
    got, own = (
        table.sort_values(["episode", "depth"], ignore_index=True) for table in (names["turns"], page["played"])
    )
    told = ["prompt"]  # LangGraph describes the tool more fully
    pd.testing.assert_frame_equal(got.drop(columns=told), own.drop(columns=told))
