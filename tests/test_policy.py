"""A back end of 60 lines plays, learns and trains with the cells; the blocks of docs/extending.md run."""

import re
import runpy
from pathlib import Path

import pytest
from small import WORDS, Relay
from toy_backend import BigramPolicy

import mas_lab as lab
from mas_lab.policy import samples_of

DOCS = Path(__file__).resolve().parents[1] / "docs"


def make_team():
    env = Relay()
    return env, lab.Team.shared(BigramPolicy(WORDS), env.agents)


def test_recorded_logprobs_are_those_of_the_weights():
    env, team = make_team()
    turns = lab.rollout(env, team, env.tasks(8, "train", seed=0), lab.tree(4))
    judged = lab.RECIPES["at_grpo"].advantages(turns)
    first, second = (lab.update(team, judged, max_norm=None) for _ in range(2))
    assert (first["mismatch"] < 1e-6).all() and (second["mismatch"] > 1e-3).all()
    assert (first["policy_norm"] > 0).all() and first["grad_norm"].isna().all(), "one norm for both agents"


def test_a_toy_team_learns_and_what_its_back_end_cannot_do_is_refused_before_anything_is_played():
    env, team = make_team()
    with pytest.raises(lab.PolicyError, match="looks at the gradient, which its back end keeps"):
        list(lab.train(env, team, "at_grpo", steps=1, watch=lab.SpikeWatch()))
    reports = list(lab.train(env, team, "at_grpo", steps=3, seed=0, tasks=8, max_norm=None))
    assert team["asker"].version == 3 and len(reports) == 3
    rows = reports[-1].turns.query("advantage != 0")
    samples = samples_of(rows, weight=1.0)
    learned = team["asker"].forward_backward(samples, lab.reinforce()).losses_N.sum()
    recorded = -sum(advantage * sum(logprobs) for advantage, logprobs in rows[["advantage", "logprobs"]].to_numpy())
    assert learned < recorded, "what was better has become likelier"


@pytest.mark.skipif(not DOCS.is_dir(), reason="docs/ is part of the checkout alone")
def test_the_page_has_the_fields_of_recipes_and_settings():
    page = (DOCS / "extending.md").read_text(encoding="utf-8")
    filled = runpy.run_path(str(DOCS / "extending.py"))["filled"]
    assert filled(page) == page and "| `staleness` | `0` |" in page and "| `lone` |" in page, "python docs/extending.py"


@pytest.mark.skipif(not DOCS.is_dir(), reason="docs/ is part of the checkout alone")
def test_blocks_of_the_page_run_in_order():
    page, names = DOCS / "extending.md", {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, page.name, "exec"), names)
    assert names["stats"]["grad_norm"].gt(0).all() and names["norms"], "the cells learned with these parts"
    assert names["reports"][-1].turns["advantage"].any()
