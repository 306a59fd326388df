"""Killed or interrupted at a file operation, a training goes on to the same bits.

The long form (`make test-long`) ends it before every write, as often as `faults` says, and prints how often that was.
"""

import pytest
import small
from faults import DEATHS
from small import child


@pytest.mark.parametrize("how", ["killed", pytest.param("interrupted", marks=pytest.mark.full)])
@pytest.mark.parametrize(
    "kinds, steps, moments, least",
    [
        pytest.param(("shared",), 2, (1, 23, 48, 61), 4, marks=pytest.mark.slow),
        pytest.param(("shared", "per_agent", "lora"), 4, range(1, 999), DEATHS,
                     marks=[pytest.mark.long, pytest.mark.timeout(7200)]),
    ],
    ids=["four writes", "every write"],
)  # fmt: skip
def test_ended_before_a_write_it_resumes_to_the_same_bits(models, tmp_path, how, kinds, steps, moments, least):
    ends = 0
    for kind in kinds:
        straight = tmp_path / "straight" / kind
        list(small.start(kind, models, straight, steps))
        (tmp_path / kind).mkdir()
        for told in child(how, models, tmp_path / kind, steps, *moments):
            assert told["bits"] == small.bits(straight), f"{kind}, {how} before write {told['moment']}"
            ends += told["ended"] > 0
    print(f"\n{how} at chosen file operations: {ends}")
    assert ends >= least
