"""The command line, `python -m mas_lab ...` or `mas-lab ...`; the Makefile uses it, and it also works without make.

Each command is a thin call of a public function, which it imports itself. Leaves out: any logic of its own.
"""

import argparse
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib import util
from pathlib import Path

from mas_lab.display.documented_frame import COLUMN_DOCS

QUICKSTART = "00_quickstart.ipynb"


def demo(args: argparse.Namespace) -> None:
    from mas_lab.demo.command import main

    main(args.out, args.seeds, args.steps, args.real)


def lab(args: argparse.Namespace) -> int:
    """Open JupyterLab on loopback with a copy of the notebooks; a notebook that exists already stays as it is."""
    if util.find_spec("jupyterlab") is None:
        raise SystemExit("mas_lab lab: JupyterLab is not installed; pip install 'mas-lab[cpu]'")
    folder = copy_notebooks(args.folder)
    options = ["--no-browser"] if args.no_browser else []
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.append("--allow-root")  # containers run as root; the server is on loopback and wants its token
    token = secrets.token_hex(16)  # a token of its own, so that JupyterLab need not print one
    print(f"http://127.0.0.1:{args.port}/lab/tree/{QUICKSTART}?token={token}", flush=True)
    options += ["--ip=127.0.0.1", f"--port={args.port}", "--port-retries=0", "--Application.log_level=CRITICAL"]
    command = [sys.executable, "-m", "jupyterlab", *options, str(folder / QUICKSTART)]
    server = subprocess.Popen(command, cwd=folder, env={**os.environ, "JUPYTER_TOKEN": token})
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())  # who ends this command ends JupyterLab
    try:
        return server.wait()
    except KeyboardInterrupt:  # JupyterLab got it too, and would ask whether to stop
        server.terminate()
        server.wait()
        raise


def copy_notebooks(folder: Path) -> Path:
    """Copy the kit's notebooks to `folder`; existing ones stay, because they may hold somebody's work."""
    from mas_lab.paths import notebooks_dir

    folder.mkdir(parents=True, exist_ok=True)
    for source in sorted(notebooks_dir().glob("*.ipynb")):
        if not (folder / source.name).exists():
            shutil.copy(source, folder / source.name)
    return folder.resolve()


def doctor(args: argparse.Namespace) -> None:
    from mas_lab.doctor import doctor

    doctor()


def export(args: argparse.Namespace) -> None:
    from mas_lab.contrib import verl
    from mas_lab.runs.export import export
    from mas_lab.tasks import own_env

    if (args.zip is None) == (args.out is None) or (args.to is None) != (args.out is None):
        raise SystemExit("mas_lab export: give RUN and a file to write, or RUN --to verl --out FOLDER")
    if args.to is None:
        print(export(args.run, args.zip))
    else:
        print(verl.export(args.run, args.out, env=None if args.env is None else own_env(args.env, Path())))


def study(args: argparse.Namespace) -> int:
    from mas_lab.study.record import is_record, ship
    from mas_lab.study.runner import study

    sources = [*args.source, *([args.record] if args.record and is_record(args.record) else [])]
    made = study(args.file, args.folder, sources, play=False)
    try:
        made.play(args.workers, args.keep)
    finally:
        if args.record and made.records:
            ship(made, args.record, f"python -m mas_lab study {args.file} --record {args.record}")
    print(made)
    return 1 if made.failed else 0


def schema(args: argparse.Namespace) -> None:
    from mas_lab.table import schema

    table = schema(args.of)
    widths = {name: table[name].str.len().max() for name in table.columns[:-1]}
    for row in table.to_dict("records"):
        print(*(f"{row[name]:<{width}}" for name, width in widths.items()), row["meaning"], sep="  ")


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no count; give a number from 1")
    return int(text)


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(prog="mas_lab", description="Reinforcement learning for teams of language models.")
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(run, about: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(run.__name__, help=about, description=about)
        sub.set_defaults(run_command=run)
        return sub

    sub = command(demo, "train two teams on this CPU, one of them with two recipes, and write a page")
    sub.add_argument("--real", action="store_true", help="add a team of a real language model, from `make real`")
    sub.add_argument("--out", type=Path, default=None, help="folder (default: runs/quickstart)")
    sub.add_argument("--seeds", type=_count, default=1, help="number of seeds on the ladder (default: 1)")
    sub.add_argument("--steps", type=_count, default=None, help="number of steps of every training")

    sub = command(lab, "open JupyterLab on a copy of the notebooks")
    sub.add_argument("--folder", type=Path, default=Path("runs/notebooks"), help="where the copies go")
    sub.add_argument("--port", type=int, default=8888)
    sub.add_argument("--no-browser", action="store_true", help="only print the address")

    command(doctor, "print one block about this machine, to paste into a question")

    sub = command(export, "pack a run into one zip, or hand it over to verl")
    sub.add_argument("run", type=Path, help="folder of a run")
    sub.add_argument("zip", type=Path, nargs="?", default=None, help="file to write")
    sub.add_argument("--to", choices=("verl",), default=None, help="a folder for this trainer instead")
    sub.add_argument("--out", type=Path, default=None, help="the folder, with --to")
    sub.add_argument("--env", default=None, help="my_file:MyEnv, with --to, where the run's env is one of your own")

    sub = command(study, "train the cells of a study that are missing, and say what they came to")
    sub.add_argument("file", type=Path, help="the study, such as benchmarks/studies/ladder.yaml")
    sub.add_argument("--folder", type=Path, default=None, help="where it is kept (default: its name under runs/)")
    sub.add_argument("--record", type=Path, default=None, help="folder for its tables; what it holds is not made again")
    sub.add_argument("--source", type=Path, action="append", default=[], help="the folder of a recorded study")
    sub.add_argument("--workers", type=_count, default=None, help="processes at a time (default: one per core)")
    sub.add_argument("--keep", choices=("tables", "all", "record"), default="tables", help="what stays of each run")

    sub = command(schema, "print the columns of the table with their meaning")
    known = ("turns", *COLUMN_DOCS)
    sub.add_argument("of", nargs="?", default="turns", choices=known, help="of which table (default: turns)")
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status; an error of the package is printed on one line."""
    args = parser().parse_args(argv)
    try:
        status = args.run_command(args) or 0
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # who reads, such as `head`, has seen enough; Python flushes once more at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print(f"mas_lab {args.command}: stopped; run the same command again", file=sys.stderr)
        return 130
    except Exception as error:
        is_file_error = isinstance(error, FileNotFoundError | FileExistsError)
        if not (is_file_error or type(error).__module__.startswith("mas_lab.")):
            raise
        print(f"mas_lab {args.command}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
