"""Notebooks that are run and shown: parameters, a cell that fails, static forms, formulas."""

import re

import execution
import formulas
import nbformat
import pages
import pytest

import mas_lab

V4 = nbformat.v4


def notebook(*sources):
    cells = [V4.new_code_cell("SMOKE = False  # short?\nOTHER = SMOKE", metadata={"tags": ["parameters"]})]
    return V4.new_notebook(cells=cells + [V4.new_code_cell(source) for source in sources])


def test_parameters_are_set_where_they_stand_and_nowhere_else():
    stored = notebook("SMOKE = False")
    made = execution.with_parameters(stored, {"SMOKE": True, "RECORDED": False})
    assert [cell.source for cell in made.cells] == ["SMOKE = True  # short?\nOTHER = SMOKE", "SMOKE = False"]
    assert stored.cells[0].source.startswith("SMOKE = False") and not execution.same_cells(stored, made)
    made.cells[1].outputs = [V4.new_output("stream", text="x")]
    assert execution.same_cells(made, execution.with_parameters(stored, {"SMOKE": True}))


def test_a_notebook_runs_in_a_folder_of_its_own_with_this_package():
    source = "import mas_lab, os; print(len(os.listdir()), mas_lab.__file__)"
    done = execution.execute(notebook(source), "mine")
    assert done.cells[1].outputs[0].text == f"0 {mas_lab.__file__}\n"


@pytest.mark.slow
def test_a_cell_that_fails_is_named_and_may_be_let_be():
    with pytest.raises(execution.NotebookError, match=r"^mine, cell 2: ZeroDivisionError: division by zero$"):
        execution.execute(notebook("print(1)", "1 / 0", "print(2)"), "mine")
    done = execution.execute(notebook("1 / 0", "print(2)"), "mine", go_on=True)
    assert [cell.outputs[0].output_type for cell in done.cells[1:]] == ["error", "stream"]
    with pytest.raises(execution.NotebookError, match=r"^mine: "):
        execution.execute(notebook("import os; os._exit(1)"), "mine")


def test_outputs_stand_in_forms_that_need_no_kernel():
    held = notebook("x")
    output = V4.new_output
    held.metadata["widgets"], figure = {}, {"data": [], "layout": {"title": "</script>", "height": 99}}
    held.cells[1].outputs = [
        output("stream", text="\x1b[31m 1%\r99%\x1b[0m\nnext\n"),
        output("display_data", data={pages.WIDGET: {}, "text/plain": "Bar()"}),
        output("display_data", data={pages.WIDGET: {}, "text/html": "<b>static</b>"}),
        output("display_data", data={pages.FIGURE: figure, "text/html": '<img src="data:image/svg+xml,">'}),
        output("stream", text="50%\r"),
    ]
    shown = pages.static(held)
    assert "widgets" not in shown.metadata
    first, html, figure = shown.cells[1].outputs[:3]
    assert first.text == "99%\nnext\n" and dict(html.data) == {"text/html": "<b>static</b>"}
    drawn = figure.data["text/html"]
    assert "height:99px" in drawn and drawn.count("</script>") == 1 and pages.FIGURE not in figure.data
    assert pages.DRAWN in drawn and "<img" not in drawn, "a figure is drawn, not shown as the picture that it carries"


@pytest.fixture
def math():
    return pytest.importorskip("math_core", reason="`make pages` brings it")


def test_a_formula_is_mathml_and_keeps_its_latex(math):
    made = formulas.mathml(r"\frac{1}{2}")
    assert "<mfrac>" in made and r"\frac{1}{2}</annotation>" in made and 'display="block"' not in made
    assert 'display="block"' in formulas.mathml("x", block=True)
    with pytest.raises(formulas.FormulaError, match=re.escape(r"formulas: cannot show '\\frac{1': ")):
        formulas.mathml(r" \frac{1 ")


def test_a_page_of_a_notebook_stands_alone(math):
    cells = [V4.new_markdown_cell("# A & B\n\nHalf: $\\frac12$ and\n\n$$x_1$$\n\n<script>alert(1)</script>")]
    made = pages.page(V4.new_notebook(cells=cells + [V4.new_code_cell("a < b")]), "A & B", scripts="there")
    assert "<title>A &amp; B</title>" in made and made.count("<math") == 2 and "a</span> <span" in made
    assert "https:" not in made.replace("http://www.w3.org", "") and 'href="there/formulas.css"' in made
    assert "<script src" not in made, "no figure, no script of figures"
    assert pages.parts()[formulas.FONT][:4] == b"\x00\x01\x00\x00"
