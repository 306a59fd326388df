"""LaTeX as MathML, which every browser draws without a script and without a network.

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
"""Rules for a style sheet that lies beside the font."""


class FormulaError(ValueError):
    """Error for a formula that cannot be shown, with the reason."""


@cache
def _converter():
    try:
        from math_core import LatexToMathML
    except ImportError as error:
        raise FormulaError("formulas: math-core is not installed; pip install 'mas-lab[course]'") from error
    return LatexToMathML(annotation=True, fancy_error=False)


def mathml(latex: str, block: bool = False) -> str:
    """Convert one formula, inline or as a block, or raise FormulaError with the reason.

    Its LaTeX source stays in the result, so that it can be copied.
    """
    try:
        return _converter().convert_with_local_state(latex.strip(), displaystyle=block)
    except FormulaError:
        raise
    except Exception as error:  # math_core's LatexError; math_core is optional, so its name is not imported here
        raise FormulaError(f"formulas: cannot show {latex.strip()!r}: {error}") from error


def font() -> bytes:
    """Return the font of the formulas, STIX Two Math (SIL Open Font License), from ziamath's wheel."""
    held = util.find_spec("ziamath")
    if held is None:
        raise FormulaError("formulas: ziamath is not installed; pip install 'mas-lab[course]'")
    return (Path(held.origin).parent / "fonts" / FONT).read_bytes()
