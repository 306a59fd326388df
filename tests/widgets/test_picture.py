"""What is left of an instrument where nothing runs: HTML that a viewer has taken scripts, frames and styles out of.

Also tests the sliders of `live`.
"""

import base64
import html
import math
import re
from html.parser import HTMLParser
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
EMPTIED = {"script", "style", "textarea", "option"}
WIDGET = "application/vnd.jupyter.widget-view+json"
ATTRIBUTES = {"class", "style", "alt", "src", "scope"}


class Sanitized(HTMLParser):
    """HTML as JupyterLab shows it in a notebook that is not trusted: a tag that is not allowed goes and leaves its
    text, but for scripts and styles; an id is none any more."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=False)
        self.kept, self._within = [], 0
        self.feed(text)
        self.html = "".join(self.kept)

    def handle_starttag(self, tag, attributes):
        self._within += tag in EMPTIED
        if tag in TAGS and not self._within:
            allowed = "".join(f' {name}="{value}"' for name, value in attributes if name in ATTRIBUTES)
            self.kept.append(f"<{tag}{allowed}>")

    def handle_endtag(self, tag):
        self._within -= tag in EMPTIED
        if tag in TAGS and not self._within:
            self.kept.append(f"</{tag}>")

    def handle_data(self, data):
        if not self._within:
            self.kept.append(data)

    def handle_entityref(self, name):
        self.handle_data(f"&{name};")

    def handle_charref(self, name):
        self.handle_data(f"&#{name};")


def drawn_in(text: str) -> list[ElementTree.Element]:
    """The pictures within, each of which must be XML."""
    held = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', text)
    return [ElementTree.fromstring(base64.b64decode(one)) for one in held]


def words(drawn: ElementTree.Element) -> list[str]:
    return [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}text")]


def test_a_frame_that_is_taken_away_leaves_a_table(spiky):
    viewer, inspector = lab.RolloutViewer(spiky), lab.SpikeInspector(spiky)
    for instrument in (viewer, inspector):
        shown = instrument._repr_html_()
        hidden = re.search(r"<style>#(static-\w+) \{ display: none \}</style>", shown)[1]
        assert shown.count(f'<div id="{hidden}">') == 1 and shown.count("<iframe") == 1
        left = Sanitized(shown).html
        assert "<iframe" not in left and "display: none" not in left and "<td" in left
    left = Sanitized(viewer._repr_html_()).html
    assert viewer.episodes[0] in left and ">user: asker now " in left
    left = Sanitized(inspector._repr_html_()).html
    assert "Norms above the rule" in left and f"step {inspector.spikes[0]['step']}, " in left
    [norms] = drawn_in(left)
    assert "gradient norm (log scale)" in words(norms)
    assert "A diamond is a spike." in left and not re.search("hatched|ring is|rings|circle|click", left)
    assert "A share is" in left and "A share is" not in lab.SpikeInspector(lab.load_run(spiky).stats).static()


def test_a_figure_carries_its_picture_beside_itself(spiky, monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda bundle, **how: shown.append(bundle))
    monkeypatch.setattr("plotly.io.renderers.default", "plotly_mimetype")
    show(lab.RewardInspector(spiky).figure())
    style, bundle = shown
    assert set(style) == {"text/html"} and not Sanitized(style["text/html"]).html.strip()
    assert set(bundle) == {"application/vnd.plotly.v1+json", "text/html"}
    [drawn] = drawn_in(Sanitized(bundle["text/html"]).html)
    assert {"asker", "doer", "own baseline", "global mean", "rows", "credit"} <= set(words(drawn))
    assert 'alt="rows over credit, advantage' in bundle["text/html"]


@pytest.mark.parametrize("name", DRAWN)
def test_every_figure_of_the_kit_has_a_picture(name, spiky, models):
    figure = DRAWN[name](lab.load_run(spiky), models)
    drawn = ElementTree.fromstring(svg(figure))
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}path"))) > 3, description(figure)
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
    left = Sanitized(bundle["text/html"]).html
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
        left = [Sanitized(output.data["text/html"]).html for output in outputs]
        left = [one for one in left if one.strip()]  # an older plotly puts an output of scripts alone before its first
        words = ("<td", "3 of 3 steps", "stands out", "the wrong way")
        assert all(drawn_in(one) or any(word in one for word in words) for one in left), cell.source
        assert any(drawn_in(one) for one in left) or "RolloutViewer" in cell.source
        assert not any("widget" in kind for output in outputs for kind in output.data)
        assert not any(output.output_type == "stream" and output.name == "stderr" for output in cell.outputs)


def training():
    controls = Controls(2, stop=print)
    controls.tell(1, "step 1 of 2", "running")


WIDGETS = {
    "sliders": (
        lambda: interact(lambda pay: print(pay), pay=ipywidgets.FloatSlider(value=0.5)),
        "Here at pay = 0.5;",
    ),
    "live": (training, "step 1 of 2"),
}
"""By its module: what shows a widget, and what is left of it where none lives."""


@pytest.mark.parametrize("module", WIDGETS)
def test_a_widget_is_shown_with_its_static_form(module, monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda bundle, **how: shown.append(bundle))
    show, left = WIDGETS[module]
    show()
    [bundle] = [bundle for bundle in shown if WIDGET in bundle]
    assert left in Sanitized(bundle["text/html"]).html and (left or not bundle["text/html"])


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
    for nothing in ({"type": "pie", "values": [1]}, {"type": "scatter", "x": ["a"], "y": ["b"]}):
        assert numbers(Figure(data=[nothing])) == ""


def test_names_are_text_in_a_picture():
    bar = {"type": "bar", "x": ["</text><script>x</script>"], "y": [1], "name": "&lt;i&gt;", "showlegend": True}
    figure = Figure(data=[bar])
    drawn = ElementTree.fromstring(svg(figure))
    assert "<i>" in words(drawn) and not list(drawn.iter("{http://www.w3.org/2000/svg}script"))
