"""Tables on disk: what comes back is what went in. Files in their place, whoever reads there."""

import json
from pathlib import Path

import pandas as pd
import pytest

from mas_lab.runs.disk import patiently, read_table, read_tables, write_json, write_table

INFOS = [{}, {"x": [1, {"y": None}], "deep": {"ü": True}}, [{"a": 1.5}, {}]]


def test_info_comes_back_as_it_was(tmp_path):
    table = pd.DataFrame({"agent": ["a", "b", "c"], "info": INFOS})
    write_table(tmp_path / "0.parquet", table)
    assert read_table(tmp_path / "0.parquet").to_dict("list") == table.to_dict("list")
    assert table["info"].tolist() == INFOS  # the table that was written is left alone


def test_steps_that_told_nothing_stand_beside_those_that_did(tmp_path):
    write_table(tmp_path / "0.parquet", pd.DataFrame({"agent": ["a"]}))
    write_table(tmp_path / "1.parquet", pd.DataFrame({"agent": ["b"], "info": [{"x": 1}]}))
    parts = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    assert read_tables(parts)["info"].tolist() == [{}, {"x": 1}]
    assert "info" not in read_table(parts[0])


def test_nor_do_lists_of_advantages_change_that(tmp_path):
    write_table(tmp_path / "0.parquet", pd.DataFrame({"advantage": [0.5]}))
    write_table(tmp_path / "1.parquet", pd.DataFrame({"advantage": [[0.5, 1.0]], "info": [{"x": 1}]}))
    table = read_tables([tmp_path / "0.parquet", tmp_path / "1.parquet"])
    assert table.to_dict("list") == {"advantage": [0.5, [0.5, 1.0]], "info": [{}, {"x": 1}]}


@pytest.mark.parametrize("columns", [["info"], ["agent"]])
def test_some_columns(tmp_path, columns):
    write_table(tmp_path / "0.parquet", pd.DataFrame({"agent": ["b"], "info": [{"x": 1}]}))
    assert list(read_table(tmp_path / "0.parquet", columns)) == columns


def held(number):
    """As Windows says that somebody has the file open."""
    error = PermissionError(13, "The process cannot access the file")
    error.winerror = number
    return error


@pytest.mark.parametrize("number", [5, 32])
def test_a_file_that_somebody_reads_is_replaced_once_he_is_done(tmp_path, monkeypatch, number):
    replace, tries = Path.replace, []

    def busy(self, target):
        tries.append(target)
        if len(tries) < 3:
            raise held(number)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", busy)
    write_json(tmp_path / "run.json", {"a": 1})
    assert json.loads((tmp_path / "run.json").read_text(encoding="utf-8")) == {"a": 1} and len(tries) == 3


@pytest.mark.parametrize(("error", "tries"), [(held(32), 2), (PermissionError(13, "Permission denied"), 1)])
def test_what_waiting_does_not_help_is_raised(error, tries):
    asked = []

    def refused():
        asked.append(1)
        raise error

    with pytest.raises(PermissionError):
        patiently(refused, seconds=0.01)
    assert len(asked) == tries
