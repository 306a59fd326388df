"""The success of a step by hand."""

import pandas as pd
import pytest

from mas_lab.train import Report


def table(*rows) -> pd.DataFrame:
    """(episode, node, parent, agent, action, kept, probe, success) per row."""
    columns = ["episode", "node", "parent", "agent", "action", "kept", "probe", "success"]
    return pd.DataFrame(rows, columns=columns)


CROSSED = [
    *(("a", "a/0", "", "p", f"a/0.{i}-*", True, False, True) for i in range(2)),
    *(("a", "a/0", "", "q", f"a/0.*-{j}", True, False, j == 0) for j in range(2)),
]
SUCCESSES = {
    "of several chains is the mean over episodes": (1 / 2, [
        ("a", "a/0", "", "p", "a/0.0", True, False, False),
        ("a", "a/1", "a/0.0", "e", "a/1.0", True, False, True),
        ("b", "b/0", "", "p", "b/0.0", True, False, True),
        ("b", "b/1", "b/0.0", "e", "b/1.0", True, False, False)]),
    "of a cross takes each joint action once": (1 / 2, CROSSED),
    "of a tree of agents together is what the last one saw": (1, [
        ("a", "a/0", "", "p", "a/0.0-0", True, False, False),
        ("a", "a/0", "", "p", "a/0.1-0", False, False, False),
        ("a", "a/0", "", "q", "a/0.0-0", False, False, False),
        ("a", "a/0", "", "q", "a/0.0-1", True, False, True)]),
    "does not count continuations": (0, [
        ("a", "a/0", "", "p", "a/0.0", True, False, False),
        ("a/0.0+0", "a/0.0+0/1", "a/0.0", "e", "a/0.0+0/1.0", True, True, True),
        ("a", "a/1", "a/0.0", "e", "a/1.0", True, False, False)]),
}  # fmt: skip


@pytest.mark.parametrize("case", SUCCESSES)
def test_success_by_hand(case):
    expected, rows = SUCCESSES[case]
    assert Report(0, table(*rows), pd.DataFrame()).success == pytest.approx(expected)
