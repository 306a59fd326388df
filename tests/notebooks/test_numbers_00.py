"""What notebook 00 says of the recorded trainings stands in the records."""

import pandas as pd

from mas_lab.paths import data_dir, notebooks_dir

TEXT = (notebooks_dir() / "00_quickstart.ipynb").read_text(encoding="utf-8")
CURVES = pd.read_csv(data_dir() / "results" / "quickstart" / "curves.csv").query("recipe == 'at_grpo'")


def test_where_it_starts_and_ends():
    by_seed = CURVES.sort_values("step").groupby("seed")["success"].agg(["first", "last"]).round(2)
    [first] = by_seed["first"].unique()
    assert "from {:.2f} to {:.2f}, {:.2f} and {:.2f}".format(first, *by_seed["last"]) in TEXT


def test_more_than_half_of_the_gain_is_made_in_five_steps():
    at = CURVES.pivot(index="seed", columns="step", values="success")
    assert (
        (at[5] - at[0]) / (at[20] - at[0]) > 0.5
    ).all() and "more than half of the gain comes in the first five" in TEXT


def test_a_point_is_as_unsure_as_it_says():
    share, episodes = 0.9, 64 * 4
    assert 0.015 < (share * (1 - share) / episodes) ** 0.5 < 0.03 and "off by about 0.03" in TEXT
