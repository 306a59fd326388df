"""Killed, dying at a file operation or interrupted anywhere, a training goes on to the same bits.

The long forms (`make test-long`) make as many faults as `faults` says, and print how many they were.
"""

import pytest
import small
from faults import DEATHS, INTERRUPTS, KILLS
from small import child

KINDS = ("shared", "per_agent", "lora")
LONG = [pytest.mark.long, pytest.mark.timeout(7200)]


def straight(kind: str, models, root, steps: int) -> dict[str, str]:
    """The bits of a run that nothing happened to; and a folder for those to which something will."""
    for _ in small.start(kind, models, root / "straight" / kind, steps):
        pass
    (root / kind).mkdir()
    return small.bits(root / "straight" / kind)


@pytest.mark.parametrize(
    "kinds, moments, least",
    [(("shared",), (1, 23, 48, 61), 4), pytest.param(KINDS, range(1, 999), DEATHS, marks=LONG)],
    ids=["four writes", "every write"],
)
def test_killed_before_a_write_it_resumes_to_the_same_bits(models, tmp_path, kinds, moments, least):
    deaths = 0
    for kind in kinds:
        expected = straight(kind, models, tmp_path, 2)
        for told in child("killed", models, tmp_path / kind, 2, *moments):
            assert told["bits"] == expected, f"{kind}, killed before write {told['moment']}"
            deaths += told["ended"] == 9
    print(f"\ndeaths at chosen file operations: {deaths}")
    assert deaths >= least


@pytest.mark.parametrize(
    "kinds, steps, least",
    [pytest.param(("lora",), 4, 2, marks=pytest.mark.slow), pytest.param(KINDS, 40, KILLS, marks=LONG)],
    ids=["twice", "very often"],
)
def test_killed_at_random_moments_it_resumes_to_the_same_bits(models, tmp_path, kinds, steps, least):
    deaths, runs = 0, 0
    expected = {kind: straight(kind, models, tmp_path, steps) for kind in kinds}
    while deaths < least:
        kind = kinds[runs % len(kinds)]
        [told] = child("shot", models, tmp_path / f"{kind}-{runs}", steps, 3 * steps // 2, runs)
        assert told["bits"] == expected[kind], f"{kind}, by seed {runs}"
        deaths, runs = deaths + told["deaths"], runs + 1
    print(f"\nkills at random moments: {deaths} of {runs} runs")


@pytest.mark.parametrize(
    "kinds, least",
    [pytest.param(("lora",), 1, marks=pytest.mark.slow), pytest.param(KINDS, INTERRUPTS, marks=LONG)],
    ids=["three times", "very often"],
)
def test_interrupted_at_random_moments_it_resumes_to_the_same_bits(models, tmp_path, kinds, least):
    stopped, times = 0, max(3, least // 2)
    for kind in kinds:
        expected = straight(kind, models, tmp_path, 2)
        for stop in child("interrupted", models, tmp_path / kind, 2, times, 11):
            assert stop["bits"] == expected, f"{kind}, interrupted after {stop['after']} s"
            stopped += stop["ended"] == 2
    print(f"\ninterrupts at random moments: {stopped}")
    assert stopped >= least
