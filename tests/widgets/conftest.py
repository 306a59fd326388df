"""A real browser for the instruments, and what a model may write to do more than be read."""

import shutil

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="session")
def browser():
    """Headless Chromium; skips, with the reason, where it or playwright is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no chromium on the path")
    with playwright.sync_playwright() as started:
        options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        launched = started.chromium.launch(executable_path=CHROMIUM, args=options)
        yield launched
        launched.close()


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
