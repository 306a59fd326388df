"""Tables on disk: what comes back is what went in. Files in their place, whoever reads there."""

import json
from pathlib import Path

import pandas as pd
import pytest

from mas_lab.runs.disk import RunError, patiently, read_table, read_tables, write_json, write_table

INFOS = [{}, {"x": [1, {"y": None}], "deep": {"ü": True}}, [{"a": 1.5}, {}]]


def test_info_is_read_as_it_was_written(tmp_path):
    table = pd.DataFrame({"agent": ["a", "b", "c"], "info": INFOS})
    write_table(tmp_path / "0.parquet", table)
    assert read_table(tmp_path / "0.parquet").to_dict("list") == table.to_dict("list")
    assert table["info"].tolist() == INFOS  # the table that was written is left alone
    assert list(read_table(tmp_path / "0.parquet", ["info"])) == ["info"]


def test_tables_with_other_columns_are_joined(tmp_path):
    parts = [tmp_path / f"{number}.parquet" for number in range(3)]
    write_table(parts[0], pd.DataFrame({"advantage": [0.5], "ids": [[1, 2]]}))
    write_table(parts[1], pd.DataFrame({"advantage": [0.25], "ids": [[3]], "info": [{"x": 1}]}))
    write_table(parts[2], pd.DataFrame({"advantage": [[0.5, 1.0]], "ids": [[]]}))
    assert read_tables(parts[:2]).to_dict("list") == {
        "advantage": [0.5, 0.25], "ids": [[1, 2], [3]], "info": [{}, {"x": 1}]
    }  # fmt: skip
    table = read_tables(parts)
    assert table["advantage"].tolist() == [0.5, 0.25, [0.5, 1.0]] and table["ids"].tolist() == [[1, 2], [3], []]
    assert all(type(one) is int for ids in table["ids"] for one in ids)
    assert "info" not in read_table(parts[0])


def test_lists_keep_their_gaps_and_bytes_that_are_no_table_are_named(tmp_path):
    table = pd.DataFrame({"ids": [[1, None], None, [2]]})
    write_table(tmp_path / "0.parquet", table)
    assert read_table(tmp_path / "0.parquet")["ids"].tolist() == [[1, None], None, [2]]
    (tmp_path / "0.parquet").write_bytes(b"PAR1")
    with pytest.raises(RunError, match=r"0\.parquet is not a whole table"):
        read_table(tmp_path / "0.parquet")


def held(number):
    """As Windows says that somebody has the file open."""
    error = PermissionError(13, "The process cannot access the file")
    error.winerror = number
    return error


@pytest.mark.parametrize("number", [5, 32])
def test_file_that_somebody_reads_is_replaced_afterwards(tmp_path, monkeypatch, number):
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
def test_lasting_errors_of_a_file_are_raised(error, tries):
    asked = []

    def refused():
        asked.append(1)
        raise error

    with pytest.raises(PermissionError):
        patiently(refused, seconds=0.01)
    assert len(asked) == tries
