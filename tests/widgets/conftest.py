"""What a model may write to do more than be read."""

import pytest

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
