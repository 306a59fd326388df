"""Killed, dying at a file operation or interrupted anywhere, a training goes on to the same bits.

The long forms (`make test-long`) make as many faults as `faults` says, and print how many they were.
"""

import pytest
import small
from faults import DEATHS, INTERRUPTS, KILLS
from small import child

KINDS = ("shared", "per_agent", "lora")


def straight(kind: str, models, root, steps: int) -> dict[str, str]:
    """The bits of a run that nothing happened to."""
    for _ in small.start(kind, models, root / "straight" / kind, steps):
        pass
    return small.bits(root / "straight" / kind)


@pytest.mark.slow
def test_interrupted_at_random_moments_it_resumes_to_the_same_bits(models, tmp_path):
    expected = straight("lora", models, tmp_path, 2)
    (tmp_path / "lora").mkdir()
    stops = child("interrupted", models, tmp_path / "lora", 2, 6, 11)
    assert 2 in {stop["ended"] for stop in stops} <= {0, 2}
    for stop in stops:
        assert stop["bits"] == expected, f"interrupted after {stop['after']} s"


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_killed_before_every_write_until_it_is_through(models, tmp_path):
    found = {}
    for kind in KINDS:
        expected = straight(kind, models, tmp_path, 2)
        (tmp_path / kind).mkdir()
        *deaths, survived = child("killed", models, tmp_path / kind, 2, *range(1, 999))
        assert {death["ended"] for death in deaths} == {9} and survived["ended"] == 0
        for death in (*deaths, survived):
            assert death["bits"] == expected, f"{kind}, killed before write {death['moment']}"
        found[kind] = len(deaths)
    print(f"\ndeaths at chosen file operations: {sum(found.values())} {found}")
    assert sum(found.values()) >= DEATHS


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_killed_at_random_moments_very_often(models, tmp_path):
    deaths, runs = 0, 0
    expected = {kind: straight(kind, models, tmp_path, 40) for kind in KINDS}
    while deaths < KILLS:
        kind = KINDS[runs % len(KINDS)]
        [told] = child("shot", models, tmp_path / f"{kind}-{runs}", 40, 60, runs)
        assert told["bits"] == expected[kind], f"{kind}, by seed {runs}"
        deaths, runs = deaths + told["deaths"], runs + 1
    print(f"\nkills at random moments: {deaths} of {runs} runs")


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_interrupted_at_random_moments_very_often(models, tmp_path):
    stopped = 0
    for kind in KINDS:
        expected = straight(kind, models, tmp_path, 2)
        (tmp_path / kind).mkdir()
        for stop in child("interrupted", models, tmp_path / kind, 2, INTERRUPTS // 2, 11):
            assert stop["bits"] == expected, f"{kind}, interrupted after {stop['after']} s"
            stopped += stop["ended"] == 2
    print(f"\ninterrupts at random moments: {stopped}")
    assert stopped >= INTERRUPTS
