"""Tables on disk: what comes back is what went in. Files in their place, whoever reads there."""

import pandas as pd

from mas_lab.runs.disk import RunError, read_hashed, read_table, read_tables, write_hashed, write_table

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
    gaps = pd.DataFrame({"ids": [[1, None], None, [2]]})
    write_table(parts[0], gaps)
    assert read_table(parts[0])["ids"].tolist() == gaps["ids"].tolist() == [[1, None], None, [2]]


def test_flipped_bit_of_hashed_json_is_named_or_changes_nothing(tmp_path):
    path, data = tmp_path / "run.json", {"format": 5, "lr": 1e-3, "deep": {"ü": [None, True, "x"]}, "": float("inf")}
    write_hashed(path, data)
    whole = path.read_bytes()
    assert read_hashed(path) == data
    for bit in range(8 * len(whole)):
        path.write_bytes(bytes(byte ^ (1 << bit % 8) * (place == bit // 8) for place, byte in enumerate(whole)))
        try:
            assert read_hashed(path) == data
        except RunError as error:
            assert str(path) in str(error)
