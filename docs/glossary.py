"""Writes the page of words, `docs/glossary.md`, from `mas_lab/course/glossary.csv`: `python docs/glossary.py`."""

from pathlib import Path

from mas_lab.course.glossary import TERMS

INTRO = """# Glossary

In a notebook, `lab.course.glossary()` shows these words, and `lab.course.glossary("advantage", "lone row")` two of
them. `lab.schema()` explains the columns of the table. `python docs/glossary.py` writes this page from
`mas_lab/course/glossary.csv`.

| word | meaning |
|---|---|
"""


def page() -> str:
    """Return the text of `docs/glossary.md`."""
    rows = TERMS.assign(meaning=TERMS["meaning"].str.replace("|", "\\|")).itertuples(index=False)
    return INTRO + "".join(
        f"| **{term}** | {meaning}{f' ({source})' if source else ''} |\n" for term, meaning, source in rows
    )


if __name__ == "__main__":
    Path(__file__).with_name("glossary.md").write_text(page(), encoding="utf-8")
