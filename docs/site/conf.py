"""Sphinx's settings for the site; `build.py` runs it on the pages that it has gathered."""

import ast
import sys
from itertools import pairwise
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "notebooks" / "tools")]

import docstrings  # noqa: E402
import formulas  # noqa: E402
import pages  # noqa: E402

import mas_lab as lab  # noqa: E402
from mas_lab.table import SCHEMA  # noqa: E402
from mas_lab.widgets import document  # noqa: E402

project = "mas_lab"
author = "the mas_lab authors"
project_copyright = "the mas_lab authors, Apache-2.0"
html_title = "mas_lab"
extensions = ["myst_nb", "sphinx.ext.autodoc"]
exclude_patterns = ["static"]

nb_execution_mode = "off"  # build.py executes, so that a failing notebook is named and its copies can be kept
nb_ipywidgets_js: dict[str, dict] = {}  # live widgets would be fetched from another host; static forms are shown
nb_mime_priority_overrides = [("html", "text/html", 0)]
nb_render_markdown_format = "myst"
nb_merge_streams = True

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "attrs_inline", "deflist"]
myst_heading_anchors = 4
myst_dmath_double_inline = True
suppress_warnings = ["myst.xref_ambiguous"]

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
autodoc_default_options = {"exclude-members": "__init__,__new__,__weakref__"}
python_maximum_signature_line_length = 88
add_module_names = False
modindex_common_prefix = ["mas_lab."]
python_use_unqualified_type_names = True

html_theme = "furo"
html_static_path: list[str] = []  # build.py says: a folder that it fills
html_css_files = ["site.css", "formulas.css"]
pygments_style = "friendly"
pygments_dark_style = "github-dark"
html_math_renderer = "mathml"
html_show_search_summary = False  # it would be fetched, which no browser does in a folder
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#2f5d8a", "color-brand-content": "#2f5d8a"},
    "dark_css_variables": {"color-brand-primary": "#8ab8e6", "color-brand-content": "#8ab8e6"},
}


def _inline(writer, node):
    writer.body.append(formulas.mathml(node.astext()))
    raise _skip()


def _block(writer, node):
    identity = f' id="{node["ids"][0]}"' if node.get("ids") else ""
    writer.body.append(f'<div class="formula"{identity}>{formulas.mathml(node.astext(), block=True)}</div>')
    raise _skip()


def _skip():
    from docutils.nodes import SkipNode

    return SkipNode()


def _plain_text(app, what, name, held, options, lines):
    """Ours are plain text; what a dataclass says of its own arguments is its signature again."""
    if what == "class" and lines and lines[0].startswith(f"{name.rpartition('.')[2]}("):
        lines.clear()
    lines[:] = docstrings.as_rst(lines, frozenset(lab.__all__) - set(SCHEMA))  # `group` is a column, too


def _public(app, env, node, text):
    """A type by the name under which it is public: `mas_lab.team.Team` is `mas_lab.Team`."""
    name = node.get("reftarget", "").rpartition(".")[2]
    if node.get("refdomain") != "py" or name not in lab.__all__:
        return None
    return env.get_domain("py").resolve_xref(env, node["refdoc"], app.builder, "obj", f"mas_lab.{name}", node, text)


def _documented_data() -> dict[str, str]:
    """What stands below `ENVS = ...` and its like, by public name."""
    import public_names

    found = {}
    for name, module in public_names.origins().items():
        if public_names.kind(name) != "data":
            continue
        source = Path(sys.modules[module].__file__).read_text(encoding="utf-8")
        body = ast.parse(source).body
        for made, said in pairwise(body):
            targets = made.targets if isinstance(made, ast.Assign) else []
            if any(ast.unparse(target) == name for target in targets) and isinstance(said, ast.Expr):
                found[f"mas_lab.{name}"] = ast.literal_eval(said.value)
    return found


def _of_data(app, what, name, held, options, lines):
    if what == "data":
        lines[:] = DATA.get(name, "").splitlines()


DATA = _documented_data()


def _figures(app, page, template, context, doctree):
    if pages.DRAWN in context.get("body", ""):
        for name in document.FIGURES:
            app.add_js_file(name, loading_method="defer")


def setup(app):
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))
    app.connect("autodoc-process-docstring", _of_data, priority=100)
    app.connect("autodoc-process-docstring", _plain_text, priority=500)
    app.connect("html-page-context", _figures)
    app.connect("missing-reference", _public)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
