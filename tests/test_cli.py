"""The command line: it starts fast, says what is wrong on one line, and never writes over somebody's notebook."""

import subprocess
import sys

import pytest

from mas_lab import __main__ as cli
from mas_lab import table

HEAVY = ("torch", "transformers", "trl", "peft", "datasets", "math_verify", "reasoning_gym", "jupyterlab")


def test_starting_imports_nothing_heavy():
    code = f"import sys, mas_lab.__main__; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_schema_prints_each_column_with_its_meaning(capsys):
    assert cli.main(["schema"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(table.SCHEMA)
    assert lines[list(table.SCHEMA).index("advantage")].endswith(table.SCHEMA["advantage"].description)
    assert cli.main(["schema", "inflation"]) == 0
    [signal] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("signal ")]
    assert signal.endswith(table.COLUMN_DOCS["inflation"]["signal"])


@pytest.mark.parametrize(("error", "code", "said"), [
    (table.TableError("group: column 'credit' is missing"), 1, "group: column 'credit' is missing"),
    (KeyboardInterrupt(), 130, "stopped; run the same command again"),
    (ZeroDivisionError(), None, "a bug keeps its traceback"),
])  # fmt: skip
def test_an_error_of_the_package_is_one_line_and_a_status(monkeypatch, capsys, error, code, said):
    def schema(args):
        raise error

    monkeypatch.setattr(cli, "schema", schema)
    if code is None:
        with pytest.raises(type(error)):
            cli.main(["schema"])
    else:
        assert cli.main(["schema"]) == code
        assert capsys.readouterr().err == f"mas_lab schema: {said}\n"


def test_notebooks_are_copied_but_never_over_ones_that_are_there(tmp_path):
    mine = tmp_path / "notebooks" / cli.QUICKSTART
    mine.parent.mkdir()
    mine.write_text("my work")
    folder = cli.copy_notebooks(mine.parent)
    assert folder == mine.parent.resolve()
    assert mine.read_text() == "my work" and len(list(folder.iterdir())) > 10


def test_lab_opens_the_quickstart_on_loopback_only(monkeypatch, tmp_path):
    pytest.importorskip("jupyterlab")
    called = {}
    monkeypatch.setattr(subprocess, "call", lambda command, cwd: called.update(command=command, cwd=cwd) or 0)
    assert cli.main(["lab", "--folder", str(tmp_path), "--no-browser", "--port", "9999"]) == 0
    assert "--ip=127.0.0.1" in called["command"] and "--port=9999" in called["command"]
    assert called["command"][-1] == str(tmp_path / cli.QUICKSTART)
    assert (tmp_path / cli.QUICKSTART).is_file()
