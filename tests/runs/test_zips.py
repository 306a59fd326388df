"""Zips of runs: what others made opens, or an error names the file; nothing else in it is read."""

import shutil
import zipfile

import pytest

import mas_lab as lab


@pytest.fixture(scope="module")
def honest(spiky, tmp_path_factory):
    return lab.export(spiky, tmp_path_factory.mktemp("zips") / "alice.zip")


@pytest.mark.parametrize("name", ["../evil.txt", "__MACOSX/._run.json"])
def test_what_the_run_does_not_name_is_left_alone(honest, tmp_path, name):
    before, path = {path.name for path in tmp_path.parent.iterdir()}, shutil.copy(honest, tmp_path / "bob.zip")
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, b"x")
    assert lab.load_run(path).turns.equals(lab.load_run(honest).turns)
    assert {path.name for path in tmp_path.parent.iterdir()} == before


def test_what_is_no_zip_of_a_run_is_named(honest, tmp_path):
    path = tmp_path / "bob.zip"
    path.write_bytes(b"PK nothing")
    with pytest.raises(lab.RunError, match=r"bob\.zip is neither a run's folder nor a zip made by export\(\)"):
        lab.load_run(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "x")
    with pytest.raises(lab.RunError, match=r"bob\.zip is neither .*no item named 'run\.json'"):
        lab.load_run(path)
