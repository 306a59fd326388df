"""The recorded studies: whole, told by the pages of findings, and made again where that is quick."""

import importlib
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from tiny_study import TINY

from mas_lab.paths import data_dir
from mas_lab.study.cell import play
from mas_lab.study.design import Design
from mas_lab.study.intervals import t_test
from mas_lab.study.record import Recorded, is_record, ship
from mas_lab.study.runner import chosen
from mas_lab.train.budget import KINDS, Budget

STUDIES = sorted(path for path in (data_dir() / "results" / "studies").glob("*") if is_record(path))
FORMER = "asynchronous"
"""Its design has the setting `overlap`, which this version does not read."""
DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = [one for one in (DOCS / "findings.md", *sorted((data_dir() / "results").rglob("README.md")))
         if one.is_file() and "<!-- /" in one.read_text(encoding="utf-8")]  # fmt: skip
FORMER_RECIPES = ("asynchronous", "critics", "lengths", "robust_trials")
"""Studies of which the kit has a recipe (`iac`, `maac`, `own_optimal`) or setting (`overlap`) no more: they are read,
and not trained again."""


def design_of(record):
    """A design may name envs of a file beside its own: `benchmarks/studies/settings.py`."""
    file = DOCS.parent / "benchmarks" / "studies" / f"{record.folder.name}.yaml"
    return Design.of(record.provenance["design"], file, sure=record.folder.name not in FORMER_RECIPES)


def test_names_and_counts_are_read_as_they_were_shipped(tmp_path):
    """Names may look like numbers or like missing values; a failed training has no counts."""
    of_run = {"task": "5", "phase": "compare", "seed": 0, "code": "00", "versions": {"torch": "1"}}
    counts = {"steps": 12} | dict.fromkeys(KINDS, 12_345_678)
    curve = [{"step": 12, "success": 0.5, "return": 0.5, **counts}]
    records = [of_run | {"cell": f"0{arm}", "arm": arm, "lr": 1e-3, **counts, "seconds": 3.5, "curve": curve,
                         "agents": [{"agent": agent, "window": "start", "F": None} for agent in ("00", "None", "")]}
               for arm in ("0.10", "NA")]  # fmt: skip
    none = dict.fromkeys(("lr", "steps", *KINDS, "seconds"))
    records.append(of_run | none | {"cell": "1", "arm": "nan", "curve": [], "agents": [], "error": "UpdateError: x"})
    rates = pd.DataFrame({"task": "5", "arm": ["0.10", "NA"], "lr": 1e-3, "chosen": True})
    found = SimpleNamespace(records=records, rates=rates, design=SimpleNamespace(data=TINY))
    read = Recorded(ship(found, tmp_path, "the command"))
    for one in (*records[0]["agents"], *records[1]["agents"]):
        one["F"] = pytest.approx(float("nan"), nan_ok=True)
    assert read.records == records
    assert read.rates.to_dict("records") == rates.to_dict("records")


@pytest.mark.slow
@pytest.mark.parametrize("folder", [one for one in STUDIES if one.name != FORMER], ids=lambda path: path.name)
def test_a_record_holds_every_run_of_its_design_up_to_its_budget(folder):
    record = Recorded(folder)
    design = design_of(record)
    asked = {cell.digest for cell in [*design.sweeps(), *design.comparisons(chosen(record.rates))]}
    assert asked == {kept["cell"] for kept in record.records} and asked
    for task, runs in record.table.groupby("task"):
        budget = Budget.of(design.budget_of(task))
        a_step = runs[budget.kind] / runs["steps"]
        assert (runs[budget.kind] >= budget.amount).all() and (runs[budget.kind] - 3 * a_step < budget.amount).all()


FREE = (r"^\*Paper\.\*.*(\n.+)*", r"^From outside.*(\n.+)*", r"`[^`\n]+`", r"\]\([^)]+\)", r"Qwen(2\.5-Coder|3-1\.7B)",
        r"arXiv \d{4}\.\d{5}", r"0\.[35]( to 500| and| [MB]|,|M| million)")  # fmt: skip
"""What may have decimals outside of a table: papers' numbers, code, links, names, sizes."""


@pytest.fixture
def findings(monkeypatch):
    """docs/findings.py, which fills the tables of the pages about studies."""
    if not DOCS.is_dir():
        pytest.skip("docs/ is part of the checkout alone")
    monkeypatch.syspath_prepend(DOCS)
    return importlib.import_module("findings")  # it stays, with the records that it has read


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_a_page_of_findings_says_what_was_recorded(page, findings):
    told = page.read_text(encoding="utf-8")
    assert findings.filled(told) == told, "python docs/findings.py"


def test_a_number_stands_in_a_table_that_is_made(findings):
    """A decimal in the text of a page is held to no record. Papers' numbers have a line of their own."""
    assert {*findings.pages()} == {*PAGES} >= {folder / "README.md" for folder in STUDIES}
    for page in PAGES:
        text = re.sub(r"<!-- (\w+).*?<!-- /\1 -->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for free in FREE:
            text = re.sub(free, "", text, flags=re.MULTILINE)
        assert re.findall(r"\S*(?<!\d)\.\d\S*|\S*\d\.\d\S*", text) == [], page


def test_the_paper_says_what_was_recorded(findings):
    size = importlib.import_module("findings_of_size")
    paper = (DOCS / "paper.md").read_text(encoding="utf-8").replace("\n", " ")
    rows = {(setting, arm): own for setting, arm, own in size.rows("asked")}

    def short(*numbers, sign="+"):
        return [f"{one:{sign}.2f}".replace("0.", ".", 1) for one in numbers]

    def gains(setting, arm):
        found = rows[setting, arm][["difference", "low", "high"]].to_numpy()
        return ["{} ({} to {})".format(*short(*one)) for one in found]

    texts = ["{} at 0.3 M, {} at 3 M, {} at 10 M and {} at 135 M".format(*gains("paid_help", "own_pooled"))]
    texts.append("{}, {}, {} and {} from 0.3 to 135 M".format(*gains("finisher", "own_pooled")))
    texts.append("`dr_mas` gains {}, {} and {}".format(*gains("ladder", "dr_mas")))
    texts.append("Masking gains {}, {}, {} and {}".format(*short(*rows["paid_help", "grpo_masked"]["difference"])))
    helper = {of: size.scores(of, "paid_help").pivot(index="seed", columns="arm", values="asked")
              for of in ("0.3M", "3M", "10M", "135M", "0.5B")}  # fmt: skip
    clean = [(own["own_pooled"] - own["grpo_masked"]).mean() for own in helper.values()]
    texts.append("is {}, {}, {} and {}".format(*short(*clean[:4])))
    half = helper["0.5B"]
    ends = short(*half.mean()[["grpo", "grpo_masked", "dr_mas_mean", "own_pooled"]], sign="")
    texts.append("to {} under `grpo`, {} under `grpo_masked`, {} under `dr_mas_mean` and {} under".format(*ends))
    apart = half["own_pooled"] - half["grpo"]
    told = "{}, {} and {} by seed, three of three, interval {} to {}"
    texts.append(told.format(*short(*apart), *short(*t_test(apart.to_numpy())[1:])))
    shares = size.answers().set_index(["said", "size"])["grpo"]
    late = shares["ladder, stages 5 and 6: wrong answers reinforced"]
    texts.append("`grpo` reinforces {} to {}".format(*short(late.min(), late.max(), sign="")))
    wrong = shares["finisher: wrong answers reinforced"]
    texts.append("`grpo` reinforces {} to {} of its wrong".format(*short(wrong.max(), wrong.min(), sign="")))
    assert [text for text in texts if text not in " ".join(paper.split())] == []


@pytest.mark.slow
def test_the_figure_of_the_paper_comes_out_again(tmp_path):
    """One of its five seeds, within the tolerance that the paper names."""
    if not DOCS.is_dir():
        pytest.skip("docs/ is part of the checkout alone")
    paper = (DOCS / "paper.md").read_text(encoding="utf-8")
    code = re.search(r"<<'CODE'\n(.*?)\nCODE", paper, flags=re.DOTALL)[1].replace("range(5)", "range(1)")
    said = re.findall(r" (\.\d\d), [^`]+ for `(\w+)`", paper[paper.index("it printed") :])
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    found = {arm: float(score) for arm, score in re.findall(r"^0 (\w+) (\S+)$", ran, flags=re.MULTILINE)}
    assert len(said) == 2 and found == {arm: pytest.approx(float(score), abs=0.05) for score, arm in said}


@pytest.mark.slow
@pytest.mark.full
def test_the_quickest_run_comes_out_again(tmp_path):
    """To the last digit on the machine that made it; elsewhere rounding may draw another token now and then."""
    quickest, cell = None, None
    for folder in (one for one in STUDIES if one.name not in FORMER_RECIPES):
        record = Recorded(folder)
        cells = {cell.digest: cell for cell in design_of(record).comparisons(chosen(record.rates))}
        for kept in record.records:
            shipped = kept["cell"] in cells and "runs/" not in str(cells[kept["cell"]].config["team"])
            if shipped and (quickest is None or kept["seconds"] < quickest["seconds"]):
                quickest, cell = kept, cells[kept["cell"]]
    again = play(cell, tmp_path)
    for name, near in (("success", 0.1), ("return", 0.1)):
        assert abs(again["curve"][0][name] - quickest["curve"][0][name]) < near / 4
        assert abs(again["curve"][-1][name] - quickest["curve"][-1][name]) < near
    assert again["steps"] == pytest.approx(quickest["steps"], abs=1)
