"""How fast the instruments open a long run and a class of twenty, what a click costs, and how large their pages are.

    .venv/bin/python benchmarks/instruments.py

The long run: ten real steps of `plan_path`, recorded again and again up to 1,000 steps and about 200,000 turns. Beside
it a run of the quickstart is trained; twenty copies of it under other seeds, as folders and as exported zips, are the
class. Every measurement is a process of its own that has imported mas_lab; the middle one of `--rounds` is told.

Opening is making an instrument and writing its page (wall seconds, and processor seconds of its own), and then, where
playwright and chromium are installed, the browser's loading: up to its first text, and up to the second frame with
everything drawn. A click lasts from the press of the mouse to the second frame after the last change that it made.
Limits: 3 s to open, 300 ms a click or an answer, 8 MB for a page of the quickstart. An answer is what the viewer's page
asks a live kernel for, timed in the kernel, each for the first time: the index, its orders, filters and an episode; the
first search reads all texts of the run. `--runs` keeps the runs in a folder and takes them from there the next time.
Leaves out notebooks, which show the same figures.
"""

import argparse
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

REAL, CLASS = 10, 20
CLICKS = {
    "RewardInspector": ".legendtoggle",  # hides one agent's line
    "RolloutViewer": ".rows tbody a",  # an episode of the index
    "SpikeInspector": "[aria-label^=Spikes] button",  # opens a spike
    "AblationBoard": "summary",  # unfolds the numbers
}
WATCH = """() => {
    const seen = () => { window.answered = performance.now() };
    const frames = () => requestAnimationFrame(() => requestAnimationFrame(seen));
    window.answered = 0;
    addEventListener("pointerdown", () => { window.pressed = performance.now() }, true);
    const page = document.querySelector("main");  // plotly's fading hints are outside
    new MutationObserver(frames).observe(page, {subtree: true, childList: true, attributes: true});
}"""
LOADED = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def real_run(folder: Path) -> Path:
    """A few steps of a pocket team, every second norm taken apart as if it were a spike."""
    import mas_lab as lab

    env = lab.make_env("plan_path")
    team = lab.Team.shared(lab.load_policy(env.pocket, lr=1e-3), env.agents)
    watch = lab.SpikeWatch(warmup=2, window=8, threshold=1)
    for _ in lab.train(env, team, "grpo", REAL, run=folder, watch=watch, tasks=4, check=False):
        pass
    return folder


def long_run(real: Path, folder: Path, steps: int) -> None:
    """Record the steps of a run again under other numbers, as training records them."""
    import mas_lab as lab
    from mas_lab.runs.recorder import Recorder

    shutil.copytree(real, folder)
    run, recorder = lab.load_run(real), Recorder(folder)
    turns, stats = ([table for _, table in whole.groupby("step")] for whole in (run.turns, run.stats))
    for step in range(REAL, steps):
        one = step % REAL
        recorder.tables(step, turns[one].assign(step=step), stats[one].assign(step=step))


def quickstart_run(folder: Path) -> None:
    """One run of the quickstart, with a watch."""
    import mas_lab as lab
    from mas_lab.demo import trials as demo

    env = lab.make_env(demo.ENV)
    watch = lab.SpikeWatch()
    for _ in lab.train(env, demo.make_team(env), demo.METHOD, demo.STEPS, run=folder, watch=watch, **demo.SETTINGS):
        pass


def a_class(run: Path, folders: Path, zips: Path) -> None:
    """Copies of a run under other seeds, and what each would hand in."""
    import mas_lab as lab
    from mas_lab.runs.disk import read_hashed, write_hashed

    zips.mkdir()
    for seed in range(CLASS):
        copy = Path(shutil.copytree(run, folders / f"student-{seed:02d}"))
        write_hashed(copy / "run.json", read_hashed(copy / "run.json") | {"seed": seed})
        lab.export(copy, zips / f"student-{seed:02d}.zip")


def written(instrument: str, runs: Path, page: Path) -> dict[str, float]:
    """What it takes one instrument to write its page, in a process of its own."""
    import mas_lab as lab

    make, wall, own = getattr(lab, instrument), time.perf_counter(), time.process_time()
    make(runs).to_html(page)
    wall, own = time.perf_counter() - wall, time.process_time() - own
    return {"wall": wall, "own": own, "MB": page.stat().st_size / 1e6}


def browsed(page_file: Path, selector: str) -> dict[str, float]:
    """Seconds until a page shows its first text, and until it is drawn; milliseconds until a click on the last of
    `selector` is answered. Empty without a browser."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return {}
    if chromium is None:
        return {}
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page, start = browser.new_page(), time.perf_counter()
        page.goto(page_file.as_uri())
        page.evaluate(LOADED)
        loaded = time.perf_counter() - start
        page.evaluate(WATCH)
        page.locator(selector).last.click()
        page.wait_for_timeout(1000)  # for changes still to come
        page.wait_for_function("window.answered > window.pressed")
        took = page.evaluate("window.answered - window.pressed")
        first = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime") / 1000
        browser.close()
    return {"first": first, "loaded": loaded, "click": took}


def answered(runs: Path) -> dict[str, float]:
    """Seconds until the viewer has its index, and milliseconds of the kernel's answers to its page."""
    import mas_lab as lab

    start = time.perf_counter()
    viewer = lab.RolloutViewer(runs)
    found, last = {"index, s": time.perf_counter() - start}, viewer.index.iloc[-1]
    window = {"ask": "index", "sort": "telling", "descending": True, "filter": [], "from": 0, "count": 100}
    questions = {
        "a window, ms": window,
        "sorted": window | {"sort": "surprise"},
        "filtered": window | {"filter": [{"kind": "failed"}, {"kind": "step", "from": 10, "to": 900}]},
        "first search": window | {"filter": [{"kind": "text", "value": "walls"}]},
        "next search": window | {"filter": [{"kind": "text", "value": "hint"}, {"kind": "failed", "negated": True}]},
        "an episode": {"ask": "episode", "run": 0, "step": int(last["step"]), "episode": last["episode"]},
    }
    for name, question in questions.items():
        start = time.perf_counter()
        answer = viewer._answers.answer(question)
        found[name] = 1000 * (time.perf_counter() - start)
        assert "error" not in answer, answer
    return found


def in_a_process(measure: Callable[..., dict[str, float]], *arguments: Any) -> dict[str, float]:
    """Of its own, which has imported mas_lab."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        pool.submit(_imported).result()
        return pool.submit(measure, *arguments).result()


def medians(found: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(one[name] for one in found) for name in found[0]}


def measured(instrument: str, runs: Path, page: Path, rounds: int) -> dict[str, float]:
    """Medians over rounds."""
    rest = page, CLICKS[instrument]
    return medians([in_a_process(written, instrument, runs, page) | browsed(*rest) for _ in range(rounds)])


def _imported() -> None:
    import mas_lab as lab

    return [getattr(lab, name) for name in CLICKS] and None


def line(instrument: str, runs: str, found: dict[str, float]) -> str:
    """A row of the table."""
    browser = "{first:.1f} | {loaded:.1f} | {click:.0f}".format(**found) if "click" in found else "– | – | –"
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return "| `{}` of {} | {wall:.1f} ({own:.1f}) | {} | {MB:.1f} | {:.1f} |".format(
        instrument, runs, browser, load, **found
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=Path, default=None, help="folder that keeps the runs between measurements")
    asked = parser.parse_args()
    import mas_lab as lab

    with tempfile.TemporaryDirectory() as scratch:
        kept = asked.runs or Path(scratch)
        kept.mkdir(parents=True, exist_ok=True)
        if not (kept / "long").is_dir():
            long_run(real_run(kept / "real"), kept / "long", asked.steps)
        if not (kept / "quickstart").is_dir():
            quickstart_run(kept / "quickstart")
        if not (kept / "zips").is_dir():
            a_class(kept / "quickstart", kept / "folders", kept / "zips")
        for name in ("long", "quickstart"):
            run = lab.load_run(kept / name)
            print(f"{name}: {run.steps} steps, {len(run.read('turns', ['step']))} turns")
        print("| instrument | written, s (own) | first text, s | drawn, s | a click, ms | page, MB | load average |")
        print("|---|---|---|---|---|---|---|")
        todo = [(one, name) for name in ("long", "quickstart") for one in CLICKS]
        for instrument, name in [*todo, ("AblationBoard", "folders"), ("AblationBoard", "zips")]:
            found = measured(instrument, kept / name, Path(scratch) / f"{instrument}.html", asked.rounds)
            print(line(instrument, name, found), flush=True)
        for name in ("long", "quickstart"):
            told = medians([in_a_process(answered, kept / name) for _ in range(asked.rounds)])
            print(f"answers, {name}: " + ", ".join(f"{what} {took:.2g}" for what, took in told.items()))


if __name__ == "__main__":
    main()
