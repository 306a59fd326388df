"""Tables on disk: what comes back is what went in. Files in their place, whoever reads there."""

from contextlib import nullcontext
from pathlib import Path

import pandas as pd
import pytest

from mas_lab.runs.disk import RunError, read_table, read_tables, write_json, write_table

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


@pytest.mark.parametrize(("code", "tries"), [(5, 3), (32, 3), (None, 1)])
def test_file_that_somebody_reads_on_windows_is_replaced_afterwards(tmp_path, monkeypatch, code, tries):
    replace, asked = Path.replace, []

    def busy(self, target):
        asked.append(target)
        if len(asked) < 3:
            error = PermissionError(13, "The process cannot access the file")
            error.winerror = code
            raise error
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", busy)
    with nullcontext() if code else pytest.raises(RunError, match=r"run\.json cannot be written"):
        write_json(tmp_path / "run.json", {"a": 1})
    assert (tmp_path / "run.json").exists() == bool(code) and len(asked) == tries
