"""LaTeX as MathML, which every browser draws by itself: no script, no network.

Leaves out: LaTeX outside of formulas.
"""

from functools import cache
from importlib import util
from pathlib import Path

FONT = "STIXTwoMath-Regular.ttf"
STYLE = f"""
@font-face {{ font-family: "STIX Two Math"; src: local("STIX Two Math"), url("{FONT}"); font-display: swap; }}
math {{ font-family: "STIX Two Math", "Cambria Math", math; font-size: 1.08em; }}
math[display="block"] {{ overflow-x: auto; overflow-y: hidden; max-width: 100%; padding: 0.4em 0; }}
""".strip()
"""For a style sheet that stands beside the font."""


class FormulaError(ValueError):
    """A formula that cannot be shown, with the reason."""


@cache
def _converter():
    try:
        from math_core import LatexToMathML
    except ImportError as error:
        raise FormulaError("formulas: math-core is not installed; pip install 'mas-lab[course]'") from error
    return LatexToMathML(annotation=True, fancy_error=False)


def mathml(latex: str, block: bool = False) -> str:
    """One formula, in its line or as a block; its LaTeX stays in it, for copying. FormulaError says what is wrong."""
    try:
        return _converter().convert_with_local_state(latex.strip(), displaystyle=block)
    except FormulaError:
        raise
    except Exception as error:  # its LatexError, which is named only where it is installed
        raise FormulaError(f"formulas: cannot show {latex.strip()!r}: {error}") from error


def font() -> bytes:
    """The font of the formulas, STIX Two Math (SIL Open Font License), out of ziamath's wheel."""
    held = util.find_spec("ziamath")
    if held is None:
        raise FormulaError("formulas: ziamath is not installed; pip install 'mas-lab[course]'")
    return (Path(held.origin).parent / "fonts" / FONT).read_bytes()
