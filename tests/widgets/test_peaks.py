"""Peaks that the rule does not mark although a marked one is lower: which they are, and their reasons, by hand."""

import numpy as np
import pandas as pd

from mas_lab.explain.spike_rule import SpikeRule, spike_scores
from mas_lab.widgets.peaks import MOST, unmarked_peaks, why_not

RULE = SpikeRule(warmup=4, window=4, threshold=4.0)


def stats(**norms):
    """Statistics of policies with an agent each, a norm a step."""
    parts = [
        pd.DataFrame({"step": range(len(own)), "optimizer_step": 0, "policy": name, "agent": "a", "grad_norm": own,
                      "policy_norm": own, "skipped": False})
        for name, own in norms.items()
    ]  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def peaks(**norms):
    scored = spike_scores(stats(**norms), RULE.warmup, RULE.window, RULE.threshold)
    return {policy: told for (policy, agent), told in unmarked_peaks(scored, RULE).items() if agent == "a"}


def test_each_reason_by_hand():
    """Place 0: nothing came before. Place 5 is marked. At place 9 the median of 3, 4, 4, 4 is 4, and log(4.2 / 4) =
    0.049 is one floor of 0.05."""
    found = dict(peaks(p=[9.0, 1.0, 1.0, 1.0, 1.0, 3.0, 4.0, 4.0, 4.0, 4.2, 4.0])["p"])
    assert list(found) == [0, 9]
    assert found[0] == "only 0 norms came before it, and the rule waits for 4"
    assert found[9] == (
        "1.0 robust standard deviations above 4, the median of the 4 norms before it; the rule asks for more than 4"
    )


def test_lower_peaks_slopes_and_marked_ones_have_none():
    assert peaks(p=[1.0, 1.0, 1.0, 1.0, 1.0, 5.0, 1.0, 2.0, 1.0]) == {}
    assert peaks(p=[9.0, 1.0, 2.0, 1.0, 1.0, 1.1]) == {}, "where nothing is marked, nothing is missing"


def test_a_line_without_a_spike_is_held_against_the_others():
    found = peaks(p=[1.0] * 5 + [5.0, 1.0], q=[7.0, 6.0, 7.0, 6.0, 7.0, 7.1, 6.0])
    assert [place for place, _ in found["q"]] == [5, 0, 2] and "p" not in found


def test_only_the_tallest_are_told():
    found = peaks(p=[1.0] * 5 + [5.0, 1.0], q=[6.0 + place % 2 * place for place in range(60)])
    places = [place for place, _ in found["q"]]
    assert len(places) == MOST and places == sorted(places, reverse=True)


def test_a_score_below_the_usual_says_so():
    assert why_not(RULE, 9, 2.0, -1.25).startswith("1.2 robust standard deviations below 2, the median of the 4 norms")
    assert "only 3 norms" in why_not(RULE, 3, np.nan, np.nan)
