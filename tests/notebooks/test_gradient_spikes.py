"""What notebook 05 says of the recorded runs stands in the records, and the shipped spike opens."""

import json

import numpy as np
import pandas as pd
import pytest

import mas_lab as lab
from mas_lab.paths import data_dir, notebooks_dir

RECORDS = data_dir() / "results" / "gradient_spikes"
TEXT = (notebooks_dir() / "05_gradient_spikes.ipynb").read_text(encoding="utf-8")


def records(name, form="fixer"):
    return pd.read_csv(RECORDS / f"{name}.csv").query("form == @form")


def with_ratio(norms):
    return norms.assign(ratio=norms["norm_global"] / norms["norm_agent"].where(norms["norm_agent"] > 0))


@pytest.fixture(scope="module")
def norms():
    return with_ratio(records("norms"))


def test_records_are_small():
    assert all(path.stat().st_size < 300_000 for path in RECORDS.iterdir())


def test_the_solver_has_no_inflation_at_any_step(norms):
    solver = norms[norms["agent"] == "solver"]
    assert len(solver) == 360 and solver["ratio"].to_numpy() == pytest.approx(1, abs=1e-3)
    assert (norms["F"] <= 7).all()


def test_the_medians_are_those_of_the_text(norms):
    medians = norms.groupby(["recipe", "agent"])["ratio"].median()
    assert f"{medians['grpo', 'fixer']:.1f} in the median under `grpo` and {medians['dr_mas', 'fixer']:.1f}" in TEXT
    assert 1.1 < medians["grpo", "verifier"] < medians["dr_mas", "verifier"] < 1.2
    assert round(norms["ratio"].max()) == 16 and "at worst 16" in TEXT
    silent = (norms["norm_agent"] == 0).groupby([norms["recipe"], norms["agent"]]).mean()
    assert silent["grpo", "fixer"] == pytest.approx(1 / 3, abs=0.03) and silent["dr_mas", "fixer"] > 0.5


def test_what_is_predicted_is_as_far_off_as_the_text_says():
    ratios = records("ratios").drop_duplicates(["agent", "norm_global"])
    fixer = ratios[ratios["agent"] == "fixer"]
    known = fixer[fixer["V"] > 0]
    assert f"{len(fixer) - len(known)} of the fixer's {len(fixer)} batches are missing" in TEXT
    for predicted, told in ((known["F"] / known["V"], (1.8, 7.4)), (known["predicted"], (1.2, 2.2))):
        off = np.exp(np.abs(np.log(predicted / known["measured"])))
        assert (round(off.median(), 1), round(off.max(), 1)) == told
        assert "a factor of {} in the median, at worst {}".format(*told) in TEXT


def test_success_and_spikes_are_those_of_the_text():
    scores = records("scores")
    last = scores.groupby(["recipe", "seed"])["success"].last().unstack().round(2)
    told = {name: "{:.2f}, {:.2f} and {:.2f}".format(*last.loc[name]) for name in last.index}
    assert f"`grpo` ended at {told['grpo']}, `dr_mas` at {told['dr_mas']}" in TEXT
    spikes = records("spikes").groupby(["recipe", "policy"]).size()
    assert f"The fixer has {spikes['grpo', 'fixer']} under `grpo`" in TEXT and spikes["dr_mas", "fixer"] == 3


def test_without_the_fixer_no_norm_is_inflated_and_the_text_says_so():
    pair = with_ratio(records("norms", "pair"))
    medians = pair.groupby(["agent", "recipe"])["ratio"].median().round(2)
    assert medians["solver"].between(1, 1.01).all()
    told = "for the verifier {} under `grpo` and {} under `dr_mas`"
    assert told.format(medians["verifier", "grpo"], medians["verifier", "dr_mas"]) in TEXT
    assert round(pair["ratio"].max(), 1) == 1.6 and (pair["ratio"] < 1).mean() == pytest.approx(0.4, abs=0.02)
    assert pair["rows"].median() == pytest.approx(340, abs=5) and (pair["norm_agent"] == 0).sum() == 4
    ends = records("scores", "pair").groupby(["recipe", "seed"])["success"].last().unstack().round(2)
    assert (
        "ended at {}, {} and {} under `grpo`, at {}, {} and {} under `dr_mas`".format(
            *ends.loc["grpo"], *ends.loc["dr_mas"]
        )
        in TEXT
    )
    [spike] = records("spikes", "pair").to_dict("records")
    assert (spike["policy"], spike["recipe"], round(spike["norm"], 2)) == ("verifier", "dr_mas", 0.61)


def test_the_shipped_spike_opens_to_one_row():
    remembered = json.loads((RECORDS / "spikes.json").read_text())
    watch = lab.SpikeWatch(threshold=remembered["rule"]["threshold"])
    watch.load_state(remembered)
    tables = [pd.read_parquet(RECORDS / f"spike_{name}.parquet") for name in ("turns", "stats")]
    inspector = lab.SpikeInspector(tables, watch=watch)
    [spike] = [spike for spike in inspector.spikes if spike["policy"] == "fixer"]
    assert sum(spike["rows"].values()) == pytest.approx(1, abs=1e-4)
    row, share = max(spike["rows"].items(), key=lambda item: item[1])
    turns = inspector.source.turns(spike["step"])
    assert turns.loc[int(row), "agent"] == "fixer" and turns.loc[int(row), "advantage"] == pytest.approx(
        -(7**0.5), rel=1e-4
    )
    assert 0.7 < share < 0.8 and spike["without"][row] < spike["norm"] / 2
    assert len(inspector.data()["spikes"]) == 3
