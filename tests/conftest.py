"""Threads and signals, the same for all tests; tiny random models, a run of one, and a browser, once per session."""

import os
import shutil
import signal

import hypothesis
import pytest

# A thread each, also in the processes that tests start: they run side by side, and nothing hangs on the load.
for variable in ("MAS_LAB_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
# What a test compares with is computed on the CPU; only `test_cuda` asks for a GPU.
if os.environ.get("MAS_LAB_TESTS") != "cuda":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
# A law holds however long the machine takes over an example of it, and CI meets the same examples every time.
hypothesis.settings.register_profile("unhurried", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("unhurried")
# Processes that a shell started in the background ignore Ctrl-C, and so do theirs. Tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """A folder with the models `a` and `b` (another tokenizer), see `small.make_models`."""
    from small import make_models

    return make_models(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def spiky(models, tmp_path_factory):
    """The folder of a five-step run whose watch calls almost every second norm a spike."""
    from small import RECIPE, SETTINGS, Relay, make_team

    import mas_lab as lab

    run = tmp_path_factory.mktemp("runs") / "spiky"
    watch = lab.SpikeWatch(warmup=2, window=4, threshold=1, samples=6)
    list(lab.train(Relay(), make_team("shared", models), RECIPE, 5, run=run, watch=watch, **SETTINGS))
    assert watch.spikes
    return run


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


@pytest.fixture
def use(monkeypatch):
    """Make one tier the sandbox, or skip the test if it is not installed."""
    from mas_lab.tasks import sandbox

    def choose(name):
        pytest.importorskip(sandbox.TIERS[name], reason=sandbox.HOW)
        monkeypatch.setattr(sandbox, "tier", lambda: name)
        return name

    return choose


@pytest.fixture(params=["pyeryx", "monty"])
def tier(request, use):
    """Name of the sandbox in use, each in turn."""
    return use(request.param)
