"""Guesses: a field before a cell runs, and the explanation once a guess is written.

The name "03.b" means notebook 03, second guess. A notebook holds its explanations sealed, so that nobody reads one by
unfolding its cell. Leaves out: judging a guess.
"""

import base64
import textwrap

GUESSES: dict[str, str] = {}
"""Guesses of this kernel by name."""


def guess(name: str, text: object = None) -> None:
    """Show a field for a guess.

    Args:
        name: The guess, such as "03.b".
        text: The guess itself, if no field can be shown.
    """
    from IPython.display import display
    from ipywidgets import Layout, Text

    if text is not None:
        GUESSES[name] = str(text)
    hint = "a number, a sign, or a few words"
    field = Text(GUESSES.get(name, ""), description="Your guess", placeholder=hint, layout=Layout(width="95%"))
    field.observe(lambda change: GUESSES.update({name: change["new"].strip()}), "value")
    plain = f'Write lab.course.guess("{name}", "your guess") here.'
    view = {"version_major": 2, "version_minor": 0, "model_id": field.model_id}  # ipywidgets 7 has no MIME bundle
    display({"text/plain": plain, "application/vnd.jupyter.widget-view+json": view}, raw=True)


def explain(name: str, text: str) -> None:
    """Show the guess, and the explanation below it; without a guess, ask for one.

    Args:
        name: The guess, such as "03.b".
        text: The explanation in Markdown, as `sealed` returns it.
    """
    from IPython.display import Markdown, display

    if GUESSES.get(name):
        told = base64.b64decode(text).decode()
        display(Markdown(f"*Your guess:* {GUESSES[name]}\n\n{told}"))
    else:
        print(f"Write your guess ({name}) into the field above first. Then run this cell again.")


def sealed(text: str) -> str:
    """Return a text as lines of letters that nobody reads by chance; `explain` shows it."""
    return textwrap.fill(base64.b64encode(text.encode()).decode(), 100)
