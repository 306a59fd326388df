"""What is left of an instrument where nothing runs: HTML that a viewer has taken scripts, frames and styles out of.

Also tests the sliders of `live`.
"""

import base64
import html
import math
import re
from xml.etree import ElementTree

import ipywidgets
import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from plotly.graph_objects import Figure
from plotly.subplots import make_subplots
from widgets.test_names import DRAWN

import mas_lab as lab
from mas_lab.widgets import picture as drawing
from mas_lab.widgets.live import Controls, interact
from mas_lab.widgets.picture import description, numbers, show, svg

TAGS = {"div", "p", "small", "img", "table", "caption", "thead", "tbody", "tr", "th", "td", "details", "summary", "h2",
        "ul", "li", "b"}  # fmt: skip
EMPTIED = "script|style|textarea|option"
WIDGET = "application/vnd.jupyter.widget-view+json"
ALLOWED = r' (?:class|style|alt|src|scope)="[^"]*"'


def sanitized(text: str) -> str:
    """HTML as JupyterLab shows it in a notebook that is not trusted: a tag that is not allowed goes and leaves its
    text, but for scripts and styles; an id is none any more."""
    text = re.sub(rf"<({EMPTIED})\b.*?</\1>", "", text, flags=re.S)
    return re.sub(r"<(/?)(\w+)([^>]*)>", lambda tag: _kept(*tag.groups()), text)


def _kept(end, name, attributes):
    return f"<{end}{name}{''.join(re.findall(ALLOWED, attributes))}>" if name in TAGS else ""


def drawn_in(text: str) -> list[ElementTree.Element]:
    """The pictures within, each of which must be XML."""
    held = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', text)
    return [ElementTree.fromstring(base64.b64decode(one)) for one in held]


def words(drawn: ElementTree.Element) -> list[str]:
    return [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}text")]


def test_a_frame_that_is_taken_away_leaves_a_table(spiky):
    instruments, lefts = (lab.RolloutViewer(spiky), lab.SpikeInspector(spiky)), []
    for instrument in instruments:
        shown = instrument._repr_html_()
        hidden = re.search(r"<style>#(static-\w+) \{ display: none \}</style>", shown)[1]
        assert shown.count(f'<div id="{hidden}">') == 1 and shown.count("<iframe") == 1
        lefts.append(sanitized(shown))
        assert "<iframe" not in lefts[-1] and "display: none" not in lefts[-1] and "<td" in lefts[-1]
    (viewer, inspector), (left_of_viewer, left) = instruments, lefts
    assert viewer.episodes[0] in left_of_viewer and ">user: asker now " in left_of_viewer
    assert "Norms above the rule" in left and f"step {inspector.spikes[0]['step']}, " in left
    [norms] = drawn_in(left)
    assert "gradient norm (log scale)" in words(norms)
    assert "A diamond is a spike." in left and not re.search("hatched|ring is|rings|circle|click", left)
    assert "A share is" in left and "A share is" not in lab.SpikeInspector(lab.load_run(spiky).stats).static()


@pytest.mark.parametrize("name", DRAWN)
def test_every_figure_of_the_kit_has_a_picture(name, spiky, models):
    figure = DRAWN[name](lab.load_run(spiky), models)
    drawn = ElementTree.fromstring(svg(figure))
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}path"))) > 3 and description(figure)
    titles = [axis.title.text for axis in (figure.layout.xaxis, figure.layout.yaxis) if axis.title.text]
    assert all(html.unescape(title.split("<br>")[0]) in words(drawn) for title in titles)
    assert "nan" not in svg(figure) and "None" not in svg(figure)


def test_values_stand_where_the_axes_say():
    """100 x 100 pixels within margins of 10; a logarithm halves the way from 1 to 100 at 10."""
    traces = [{"type": "scatter", "x": [0, 4], "y": [1, 100]}]
    layout = {"xaxis": {"range": [0, 4]}, "yaxis": {"type": "log", "range": [0, 2]}}
    found = drawing.axes_of(traces, layout, (10, 10, 110, 110))
    assert found["x"].at([0, 1, 4]).tolist() == [10, 35, 110]
    assert found["y"].at([1, 10, 100, 0]) == pytest.approx([110, 60, 10, math.nan], nan_ok=True)
    assert [label for _, [label] in found["y"].ticks()] == ["1", "2", "5", "10", "20", "50", "100"]
    layout["xaxis"]["autorange"] = "reversed"
    del layout["xaxis"]["range"]
    turned = drawing.axes_of(traces, layout, (10, 10, 110, 110))["x"]
    assert turned.at([0]) > turned.at([4])


def test_a_slider_leaves_what_it_showed_at_first(monkeypatch):
    monkeypatch.setattr("plotly.io.renderers.default", "plotly_mimetype")
    asked = []

    def look(pay):
        asked.append(pay)
        print("pay <", pay)
        show(Figure(data=[{"type": "scatter", "x": [1, 2], "y": [3, 4]}]))

    pays = ipywidgets.SelectionSlider(options=(0.1, 0.2), value=0.2)
    InteractiveShell.instance()
    try:
        with capture_output() as held:
            interact(look, pay=pays)
    finally:
        InteractiveShell.clear_instance()
    bundle = held.outputs[-1].data
    left = sanitized(bundle["text/html"])
    assert "pay &lt; 0.2" in left and "Here at pay = 0.2;" in left and len(drawn_in(left)) == 1
    assert WIDGET in bundle and set(asked) == {0.2}
    with capture_output():
        pays.value = 0.1
    assert asked[-1] == 0.1


@pytest.mark.slow
def test_each_instrument_is_there_in_a_stored_notebook(stored):
    """By the HTML of its outputs, which is what viewers without a renderer of figures show."""
    for cell in stored.cells[1:]:
        outputs = [output for output in cell.outputs if output.output_type != "stream"]
        left = [sanitized(output.data["text/html"]) for output in outputs]
        left = [one for one in left if one.strip()]  # an older plotly puts an output of scripts alone before its first
        words = ("<td", "3 of 3 steps", "stands out", "the wrong way")
        assert all(drawn_in(one) or any(word in one for word in words) for one in left), cell.source
        assert any(drawn_in(one) for one in left) or "RolloutViewer" in cell.source
        has_widget = any("widget" in kind for output in outputs for kind in output.data)
        assert has_widget == ("RewardInspector" in cell.source), "its menus stand beside their first choice"
        assert not any(output.output_type == "stream" and output.name == "stderr" for output in cell.outputs)


def test_the_line_of_a_training_is_left_where_no_widget_lives(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda bundle, **how: shown.append(bundle))
    Controls(2, stop=print).tell(1, "step 1 of 2", "running")
    [bundle] = [bundle for bundle in shown if WIDGET in bundle]
    assert "step 1 of 2" in sanitized(bundle["text/html"])


def test_a_figure_is_told_in_numbers_too():
    """For a viewer that takes images away."""
    figure = make_subplots(rows=1, cols=2)
    for seed, ends in enumerate(([0.5, 1.0], [0.1, None])):
        figure.add_scatter(x=[0, 1], y=ends, name="dr_mas &lt;i&gt;", legendgroup=str(seed), row=1, col=1)
    figure.add_bar(x=[2, 4], y=["a", "b"], orientation="h", name="rows", row=1, col=2)
    figure.update_yaxes(title="success", col=1)
    held = re.findall("<td[^>]*>([^<]*)</td>", numbers(figure))
    assert held == ["dr_mas &lt;i&gt;", "success", "3", "0.100", "0.533", "1.000",
                    "rows", "", "2", "2.000", "3.000", "4.000"]  # fmt: skip
    placed = Figure(data=[{"type": "scatter", "x": [0.5, 0.7], "y": [0.1, -0.1], "name": "grpo"}])
    placed.update_yaxes(tickvals=[0], ticktext=["grpo"], title="recipe").update_xaxes(title="final success")
    shown = re.findall("<td[^>]*>([^<]*)</td>", numbers(placed))
    assert shown == ["grpo", "final success", "2", "0.500", "0.600", "0.700"], "a place among names is no number"
