"""A page about a class: right exercises by student, the result of each run, and a board of all runs.

All that students wrote is shown as text. Leaves out: grades, and reading the files (`handed_in`).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from handed_in import RAISED, HandedRun, Notebook, Student, Verdict, changed_files, students

from mas_lab.study.entries import Entry, entries
from mas_lab.widgets.ablation import PANEL, SIDE, AblationBoard
from mas_lab.widgets.document import FIGURES, document, escape, figure_html, table_html, write

MARKS = {True: ("●", "right"), False: ("○", "wrong"), RAISED: ("×", "raised an error"), None: ("–", "untouched")}
STORED = (
    "Verdicts are those that stand in the outputs of the notebooks as they were handed in, where a student could have "
    "typed them; the option --run runs the notebooks again."
)
AGAIN = (
    "Notebooks were run again in their short form, each in a kernel of its own. The grader judged their answers "
    "outside it, and on the data of the shipped notebook. An exercise with * asks for code of the student's own, such "
    "as an env or a loss. It was judged in a process that runs this code."
)
CHANGED = (
    "A hand-in changed files of the kit while it ran; its table names them. It has no verdicts, and neither have the "
    "hand-ins after it. Restore the files, and grade again."
)
ZIPS = (
    "Scores of runs are those in the zips. A student can forge them, and the hashes with them. To make sure, "
    "train again: run = lab.load_run(zip) has run.recipe, and run.config has the env, the team, the seed and the "
    "settings for lab.train. With the same number of threads, a CPU computes the same tables."
)
FORM = ("max_turns", "score_tasks", "score_episodes")
"""Settings that make a task easier, or its score a matter of luck."""
NOTHING = "nothing"
"""What is said of a student who handed in neither a notebook nor a zip."""
LONG = 120
"""Maximal number of characters that are shown of an option."""


def grade(folder: Path, out: Path, run: bool = False, say: Callable[[str], None] = lambda text: None) -> Path:
    """Write the page about the files in `folder`, which has a folder for each student.

    `run`: run their notebooks again, which executes their code with your rights. Files that cannot be read are listed
    in the page. Raises FileNotFoundError if nothing was handed in.
    """
    handed_in = []
    for student in students(Path(folder), run):
        say(f"{student.name}: {_counted(student)}")
        handed_in.append(student)
    board = _board([held.entry for student in handed_in for held in student.runs if held.entry])
    body = "".join(
        (
            f'<p class="quiet">{escape(AGAIN if run else STORED)}</p>',
            f"<p><b>{escape(CHANGED)}</b></p>" if run and changed_files() else "",
            _overview(handed_in),
            _exercises(handed_in),
            _drawn(board),
        )
    )
    finals = {} if isinstance(board, str) else board.runs.set_index("file")["final"]
    body += "".join(_one(student, handed_in, finals) for student in handed_in)
    return write(out, document(f"Handed in: {Path(folder).resolve().name}", body, scripts=FIGURES))


def _counted(student: Student) -> str:
    if not student.notebooks and not student.runs:
        return NOTHING
    right = sum(held.count for held in student.notebooks)
    asked = sum(len(held.right) for held in student.notebooks)
    broken = sum(bool(held.trouble) for held in (*student.notebooks, *student.runs))
    told = f"{right} of {asked} exercises right{_raised(student.notebooks)}"
    told += f", {len(student.runs)} run{'s' * (len(student.runs) != 1)}"
    return f"{told}, {broken} file{'s' * (broken != 1)} that cannot be read" if broken else told


def _overview(handed_in: Sequence[Student]) -> str:
    """Return a table of right exercises, with a row per student and a column per notebook."""
    numbers = sorted({held.number for student in handed_in for held in student.notebooks if held.number})
    heads = ["student", *numbers, "runs", "cannot be read"]
    rows = []
    for student in handed_in:
        best = {number: max((held for held in student.notebooks if held.number == number), default=None, key=_count)
                for number in numbers}  # fmt: skip
        cells = [_shares(held) if held else "" for held in best.values()]
        broken = sum(bool(held.trouble) for held in (*student.notebooks, *student.runs))
        rows.append([student.name, *cells, sum(run.entry is not None for run in student.runs), broken or ""])
    table = _table("Exercises that are right, by notebook; of several copies the one with most", heads, rows)
    empty = ", ".join(student.name for student in handed_in if not student.notebooks and not student.runs)
    return table + (f"<p>Who handed in {NOTHING}: {escape(empty)}.</p>" if empty else "")


def _shares(held: Notebook) -> str:
    """Return such as `2 right, 1 raised an error (ValueError in 02.1), 1 untouched`."""
    counts = Counter(held.right.values())
    told = {one: f"{counts[one]} {name}" for one, (_, name) in MARKS.items()} | {RAISED: _raised([held])[2:]}
    return ", ".join(told[one] for one in MARKS if counts[one])


def _raised(notebooks: Sequence[Notebook]) -> str:
    """Return such as `, 2 raised an error (ValueError in 02.1, NameError in 02.4)`, or an empty text."""
    errors = [f"{error} in {name}" for held in notebooks for name, error in held.errors.items()]
    return f", {len(errors)} raised an error ({', '.join(errors)})" if errors else ""


def _exercises(handed_in: Sequence[Student]) -> str:
    """Return a table of how many students solved each exercise; of several copies of a notebook the best counts."""
    found: dict[str, Counter] = {}
    for student in handed_in:
        best: dict[str, Verdict] = {}
        for held in student.notebooks:
            for name, right in held.right.items():
                best[name] = max(best.get(name), right, key=[None, RAISED, False, True].index)
        for name, right in best.items():
            found.setdefault(name, Counter())[right] += 1
    rows = [[name, *(f"{mark} {counts[right]}" for right, (mark, _) in MARKS.items())]
            for name, counts in sorted(found.items())]  # fmt: skip
    return _table("Students by exercise", ["exercise", *(name for _, name in MARKS.values())], rows) if rows else ""


def _count(held: Notebook) -> int:
    return held.count


def _one(student: Student, handed_in: Sequence[Student], finals: Mapping[str, float]) -> str:
    parts = [f"<h2>{escape(student.name)}</h2>"]
    if student.notebooks:
        rows = [[held.file, *_verdicts(held)] for held in student.notebooks]
        parts.append(_table("Notebooks", ["file", "right", "exercises", "by"], rows))
    if student.runs:
        heads = ["file", "task", "recipe", "seed", "steps", "tokens", "success before", "final, as on the board",
                 "what differs from the others"]  # fmt: skip
        rows = [[held.file, *_facts(held, handed_in, finals)] for held in student.runs]
        parts.append(_table("Runs", heads, rows))
    if not student.notebooks and not student.runs:
        parts.append(f"<p>{NOTHING.capitalize()}: neither a notebook nor a zip.</p>")
    return "".join(parts)


def _verdicts(held: Notebook) -> list[str]:
    if held.trouble:
        return ["", f"cannot be read: {held.trouble}", ""]
    told = "  ".join(f"{MARKS[right][0]} {name}{'*' * (name in held.own)}" for name, right in held.right.items())
    return [f"{held.count} of {len(held.right)}", told, held.how]


def _facts(held: HandedRun, handed_in: Sequence[Student], finals: Mapping[str, float]) -> list[Any]:
    if held.entry is None:
        return ["", "", "", "", "", "", "", f"cannot be read: {held.trouble}"]
    entry = held.entry
    tokens = int(entry.curve["tokens"].iloc[-1])
    return [
        entry.env,
        entry.recipe,
        entry.seed,
        len(entry.curve),
        f"{tokens:,}",
        f"{entry.held_out['success'].iloc[0]:.3f}" if len(entry.held_out) else "",
        f"{finals[entry.file]:.3f}" if entry.file in finals else "not on the board",
        _differs(held, handed_in),
    ]


def _differs(held: HandedRun, handed_in: Sequence[Student]) -> str:
    """Describe the options that most other runs have with another value, and runs with the same tables.

    Options of a recipe are compared among runs of that recipe only.
    """
    others = [(student, run) for student in handed_in for run in student.runs if run.entry and run is not held]
    mine, told = flat(held.entry.config), []
    same = [f"{student.name}: {run.file}" for student, run in others if run.digests and run.digests == held.digests]
    if same:
        told.append(f"the same tables as {', '.join(same)}")
    for key, value in mine.items():
        alike = [run for _, run in others if run.entry.recipe == held.entry.recipe or not key.startswith("recipe.")]
        usual = Counter(flat(run.entry.config).get(key, "none") for run in alike).most_common(1)
        if usual and usual[0][0] != value and usual[0][1] * 2 > len(alike) and key != "recipe.name":
            told.append(f"{key} {value} (most: {usual[0][0]})")
    return "; ".join(told)


def flat(asked: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested options by dotted names, each as a short text."""
    found: dict[str, str] = {}
    for key, value in asked.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and name.count(".") < 4:
            found |= flat(value, f"{name}.")
        else:
            text = str(value)
            found[name[:LONG]] = text if len(text) <= LONG else f"{text[:LONG]}…"
    return found


def _board(found: Sequence[Entry]) -> AblationBoard | str:
    """Return the board of all runs, or the reason why there is none.

    If some runs have held-out scores, the board is of these. Only runs of one form of a task are compared: another
    size, or another bound, is another form.
    """
    if not found:
        return "No run was handed in that can be read."
    scored = [entry for entry in found if len(entry.held_out)]
    try:
        return AblationBoard([replace(entry, env=_form(entry)) for entry in entries(list(scored or found))])
    except ValueError as error:
        return f"They cannot be compared: {error}"


def _form(entry: Entry) -> str:
    settings = entry.config["settings"]
    changed = (f"{name}={settings[name]}" for name in FORM if settings.get(name) is not None)
    return ", ".join((entry.env, *changed))


def _drawn(board: AblationBoard | str) -> str:
    if isinstance(board, str):
        return f"<h2>The class's runs</h2><p>{escape(board)}</p>"
    least = SIDE + PANEL * board.runs["env"].nunique()
    described = f"Final {board.score} of every run"
    return "".join(
        (
            f'<h2>The class\'s runs</h2><p class="quiet">{escape(ZIPS)}</p><p>{escape(board.counted())}.</p>',
            figure_html(board.figure(), described, board.runs, least),
            table_html(board.table.loc[:, (board.table != "").any()], "Recipes over their runs"),
            f"<ul>{''.join(f'<li>{escape(caution)}</li>' for caution in board.cautions)}</ul>",
        )
    )


def _table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    lines = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f'<div class="table"><table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )
