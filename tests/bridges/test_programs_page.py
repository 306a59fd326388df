"""docs/programs.md: every block runs as it stands, in order; and what clients get is what the plain function gets."""

import re
from pathlib import Path

import pandas as pd
import pytest

import mas_lab as lab

CLIENTS = {"with_the_sdk": "openai", "with_langgraph": "langgraph", "with_autogen": "autogen_agentchat"}
TEXT = (Path(__file__).parents[2] / "docs" / "programs.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.S)
OF_CLIENT = {name: block for name in CLIENTS for block in BLOCKS if f"def {name}(" in block}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """What the names of the page stand for, after its blocks without a client."""
    names = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("page"))
        first, *others = [block for block in BLOCKS if block not in OF_CLIENT.values()]
        exec(compile(first, "programs.md", "exec"), names)
        names["played"] = names["turns"]
        names["again"] = lab.play(names["pair"], names["team"], names["problems"][:4], n=2, seed=0, max_tokens=8)
        for block in others:
            exec(compile(block, "programs.md", "exec"), names)
    return names


def test_the_function_plays_and_trains(page):
    assert set(OF_CLIENT) == set(CLIENTS)
    assert len(page["played"]) == 4 * 8 * 2 and page["played"]["local_reward"].any()
    assert page["report"].step == 1 and page["report"].stats["grad_norm"].gt(0).any()


@pytest.mark.slow
@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_gets_what_the_function_gets(page, name):
    pytest.importorskip(CLIENTS[name], reason="make clients installs it")
    names = {**page, "team": lab.Team.shared(lab.load_policy("math"), page["AGENTS"])}
    exec(compile(OF_CLIENT[name], "programs.md", "exec"), names)
    got, own = (one.sort_values(["episode", "depth"], ignore_index=True) for one in (names["turns"], page["again"]))
    pd.testing.assert_frame_equal(got, own)
