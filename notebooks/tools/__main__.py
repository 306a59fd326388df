"""Make, pack and grade the notebooks of the course: `python notebooks/tools COMMAND`.

Leaves out: any logic of its own.
"""

import argparse
import sys
from pathlib import Path

import execution
import forms
import formulas
import grading
import pack

KNOWN = (FileNotFoundError, forms.MasterError, formulas.FormulaError, execution.NotebookError, pack.PackError)
"""Errors that are told on one line; others are bugs, and keep their traceback."""


def notebooks(args: argparse.Namespace) -> None:
    for path in forms.write(args.out, "solution" if args.solutions else "release"):
        print(path)
    if (readme := forms.NOTEBOOKS.parent / "README.md").is_file():
        readme.write_text(forms.filled(readme.read_text(encoding="utf-8")), encoding="utf-8")


def course(args: argparse.Namespace) -> None:
    print(pack.pack(args.out, args.full, args.students, args.executed, args.wheel))


def grade(args: argparse.Namespace) -> None:
    print(grading.grade(args.folder, args.out, args.run, say=print))


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(prog="python notebooks/tools", description="Make, pack and grade the notebooks.")
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(run, about: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(run.__name__, help=about, description=about)
        sub.set_defaults(run_command=run)
        return sub

    sub = command(notebooks, "write the notebooks from their masters")
    sub.add_argument("--solutions", action="store_true", help="with the solutions; the other form has none")
    sub.add_argument("--out", type=Path, default=forms.NOTEBOOKS, help="folder (default: notebooks/)")

    sub = command(course, "pack the course into one zip: notebooks, solutions, pages, the wheel, a teacher's page")
    sub.add_argument("--out", type=Path, default=Path("mas_lab_course.zip"), help="file to write")
    sub.add_argument("--students", action="store_true", help="without solutions, the teacher's page and the tools")
    sub.add_argument("--full", action="store_true", help="run the solutions at full length (default: short)")
    sub.add_argument("--executed", type=Path, default=None, help="folder of notebooks that were run before")
    sub.add_argument("--wheel", type=Path, default=None, help="of the kit (default: built from the checkout)")

    sub = command(grade, "write a page about what a class handed in: exercises, runs, a board over all")
    sub.add_argument("folder", type=Path, help="holds a folder for each student, with notebooks and zips of runs")
    sub.add_argument("--out", type=Path, default=Path("grades.html"), help="file to write")
    sub.add_argument("--run", action="store_true", help="run their notebooks again: their code, with your rights")
    return root


def main(argv: list[str] | None = None) -> int:
    """Run one command and return the exit status; a known error is printed on one line."""
    args = parser().parse_args(argv)
    try:
        args.run_command(args)
    except KNOWN as error:
        print(f"{args.command}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
