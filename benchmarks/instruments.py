"""How fast the instruments open a long run, and how large their pages are.

    .venv/bin/python benchmarks/instruments.py

Ten real steps of `plan_path` are repeated to a run of 1,000 steps and about 200,000 turns; beside it, a run of the
quickstart is trained. For each instrument: seconds until its page is written (wall, and of this process), megabytes of
the page and, where playwright and chromium are installed, seconds until the browser has loaded it and milliseconds that
one click takes there. Limits: 3 s to open the long run, 300 ms a click, 8 MB for a page of the quickstart. `--runs`
keeps both runs in a folder and takes them from there the next time. Leaves out notebooks, which show the same pages.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import pandas as pd

REAL = 10
CLICKS = {"SpikeInspector": "[aria-label^=Spikes] button", "RolloutViewer": ".bar button"}


def real_run(folder: Path) -> Path:
    """A few steps of a pocket team, every second norm taken apart as if it were a spike."""
    import mas_lab as lab

    env = lab.make_env("plan_path")
    team = lab.Team.shared(lab.load_policy(env.pocket, lr=1e-3), env.agents)
    watch = lab.SpikeWatch(warmup=2, window=8, threshold=0.3)
    for _ in lab.train(env, team, "grpo", REAL, run=folder, watch=watch, tasks=4, check=False):
        pass
    return folder


def long_run(real: Path, folder: Path, steps: int) -> None:
    """Repeat the tables of a run under other step numbers."""
    shutil.copytree(real, folder)
    for name in ("turns", "stats"):
        tables = [pd.read_parquet(path) for path in sorted((real / name).glob("*.parquet"))]
        for step in range(steps):
            table = tables[step % REAL]
            if step >= REAL:
                table.assign(step=step).to_parquet(folder / name / f"{step:06d}.parquet", index=False)


def clicked(page_file: Path, selector: str) -> tuple[float, float]:
    """Seconds to load a page, and milliseconds of a click on the last of `selector` with the layout that follows."""
    from playwright.sync_api import sync_playwright

    found = [path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))]
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=found[0], args=["--no-sandbox", "--disable-gpu"])
        page, start = browser.new_page(), time.perf_counter()
        page.goto(page_file.as_uri())
        loaded = time.perf_counter() - start
        act = "const b = [...document.querySelectorAll(s)].pop(); b.click(); document.body.offsetHeight;"
        took = page.evaluate(f"s => {{ const t = performance.now(); {act} return performance.now() - t }}", selector)
        browser.close()
    return loaded, took


def quickstart_run(folder: Path) -> Path:
    """One run of the quickstart, with a watch."""
    import mas_lab as lab
    from mas_lab import demo

    env = lab.make_env(demo.ENV)
    watch = lab.SpikeWatch()
    for _ in lab.train(env, demo.make_team(env), demo.METHOD, demo.STEPS, run=folder, watch=watch, **demo.SETTINGS):
        pass
    return folder


def measure(make, run: Path, page: Path) -> str:
    """What it takes one instrument to write its page of a run, and a browser to open it."""
    wall, own = time.perf_counter(), time.process_time()
    make(run).to_html(page)
    line = f"{make.__name__}: {time.perf_counter() - wall:.2f} s ({time.process_time() - own:.2f} s of its own), "
    line += f"{page.stat().st_size / 1e6:.2f} MB"
    try:
        if make.__name__ in CLICKS:
            line += ", loaded in {:.2f} s, a click {:.0f} ms".format(*clicked(page, CLICKS[make.__name__]))
    except (ImportError, IndexError):
        line += " (no playwright or no chromium: not clicked)"
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--runs", type=Path, default=None, help="folder that keeps the runs between measurements")
    asked = parser.parse_args()
    import mas_lab as lab

    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.runs or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "long").is_dir():
            long_run(real_run(folder / "real"), folder / "long", asked.steps)
        if not (folder / "quickstart").is_dir():
            quickstart_run(folder / "quickstart")
        for name in ("long", "quickstart"):
            run = lab.load_run(folder / name)
            print(f"{name}: {run.steps} steps, {len(run.read('turns', ['step']))} turns")
            for make in (lab.RewardInspector, lab.RolloutViewer, lab.SpikeInspector, lab.AblationBoard):
                print("   ", measure(make, folder / name, Path(scratch) / f"{make.__name__}.html"))


if __name__ == "__main__":
    main()
