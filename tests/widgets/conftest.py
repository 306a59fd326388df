"""A run of the small world, kept once for all tests of the instruments."""

import pytest
from small import RECIPE, SETTINGS, Relay, make_team

import mas_lab as lab


@pytest.fixture(scope="session")
def spiky(models, tmp_path_factory):
    """The folder of a five-step run whose watch calls almost every second norm a spike."""
    run = tmp_path_factory.mktemp("runs") / "spiky"
    watch = lab.SpikeWatch(warmup=2, window=4, threshold=0.01, samples=6)
    list(lab.train(Relay(), make_team("shared", models), RECIPE, 5, run=run, watch=watch, **SETTINGS))
    assert watch.spikes
    return run


HOSTILE = {
    "markup": "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'><b>bold</b>&amp;",
    "closing": "</script></pre></iframe><script>window.hacked = 1</script><!--",
    "ansi": "\x1b[31mred\x1b[0m\x07",
    "null": "before\x00after",
    "right to left": "abc\u202egnp.exe\u200f",
    "surrogate": "half \ud800 a pair",
    "long": "x" * 100_000,
    "invisible": "a\u200bb\ufeffc\u2028d",
}


@pytest.fixture
def hostile():
    """Texts that a model may write to do more than be read."""
    return dict(HOSTILE)
