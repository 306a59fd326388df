"""The command line: it says what is wrong on one line, and never writes over somebody's notebook.

Also the doctor: it has every section, and tells of a broken machine instead of ending its report.
"""

import importlib
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pandas
import pytest

from mas_lab import __main__ as cli
from mas_lab import table
from mas_lab.backends import devices
from mas_lab.tasks import sandbox

# `mas_lab.doctor` is the function; the module is found by its full name.
doctor = importlib.import_module("mas_lab.doctor")


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
])  # fmt: skip
def test_an_error_of_the_package_is_one_line_and_a_status(monkeypatch, capsys, error, code, said):
    def schema(args):
        raise error

    monkeypatch.setattr(cli, "schema", schema)
    assert cli.main(["schema"]) == code
    assert capsys.readouterr().err == f"mas_lab schema: {said}\n"


def test_lab_opens_the_quickstart_on_loopback_only_and_copies_no_notebook_over_one_that_is_there(
    monkeypatch, tmp_path, capsys
):
    pytest.importorskip("jupyterlab")
    (tmp_path / cli.QUICKSTART).write_text("my work")
    called = {}
    server = SimpleNamespace(wait=lambda: 0)
    monkeypatch.setattr(subprocess, "Popen", lambda command, **own: called.update(command=command, **own) or server)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert cli.main(["lab", "--folder", str(tmp_path), "--no-browser", "--port", "9999"]) == 0
    assert "--ip=127.0.0.1" in called["command"] and "--port=9999" in called["command"]
    assert called["command"][-1] == str(tmp_path / cli.QUICKSTART)
    address = f"http://127.0.0.1:9999/lab/tree/{cli.QUICKSTART}?token={called['env']['JUPYTER_TOKEN']}"
    assert capsys.readouterr().out == f"{address}\n"
    assert (tmp_path / cli.QUICKSTART).read_text() == "my work" and len(list(tmp_path.iterdir())) > 10


@pytest.mark.skipif(os.name == "nt", reason="Windows ends a process without asking it")
def test_who_ends_the_command_ends_jupyterlab(tmp_path):
    """A program takes the place of JupyterLab: it says that it was asked to stop."""
    (tmp_path / "jupyterlab.py").write_text(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (open('ended', 'w').close(), sys.exit(3)))\n"
        "open('began', 'w').close()\n"
        "time.sleep(120)\n"
    )
    code = "import sys; from mas_lab.__main__ import main; sys.exit(main(['lab', '--folder', 'here']))"
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    command = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=env)
    while not (tmp_path / "here" / "began").exists():
        assert command.poll() is None
        time.sleep(0.1)
    command.send_signal(signal.SIGTERM)
    assert command.wait(60) == 3 and (tmp_path / "here" / "ended").exists()


@pytest.mark.skipif(os.name == "nt", reason="a pipe of POSIX")
def test_a_reader_that_has_seen_enough_is_no_error():
    command = [sys.executable, "-m", "mas_lab", "schema"]
    shown = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    shown.stdout.close()
    assert shown.stderr.read() == b"" and shown.wait(60) == 0


def test_the_block_has_every_section_and_is_returned_as_printed(capsys):
    block = doctor.doctor()
    assert capsys.readouterr().out == block + "\n"
    starts = [line.split(maxsplit=1)[0] for line in block.splitlines() if not line.startswith(" ")]
    assert starts == ["mas_lab", "platform", "python", "packages", "device", "threads", "sandbox", "widgets", "runs"]
    assert "cpu: works" in block and " cores usable" in block and f"pandas {pandas.__version__}," in block
    assert max(map(len, block.splitlines())) <= 110


def test_a_device_that_fails_and_a_torch_that_cannot_be_imported_do_not_end_the_report(monkeypatch):
    assert devices.probe("no_such_device").startswith("FAILS at the first operation (RuntimeError")
    monkeypatch.setitem(sys.modules, "torch", None)
    assert doctor.devices().startswith("torch cannot be imported: ModuleNotFoundError")


def test_the_sandbox_is_named_with_its_version(tier):
    text = doctor.sandbox()
    assert text.startswith(f"{tier} ({doctor.LIBRARIES[tier]} ") and text.endswith("): works")


def test_a_sandbox_that_is_broken_is_told(monkeypatch):
    monkeypatch.setattr(sandbox, "run", lambda *arguments: sandbox.Outcome("killed", (None,)))
    monkeypatch.setattr(sandbox, "tier", lambda: "monty")
    assert doctor.sandbox().endswith(": FAILS at 1 + 1")
