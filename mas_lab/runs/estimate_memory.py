"""Compute how much memory a parquet file takes, before it is read: a few thousand bytes may hold gigabytes.

The footer holds the number of values, and each page's header the size of the unpacked page. Text that a dictionary
repeats is counted as often as it occurs. Leaves out: how much is too much (`zips`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

NUMBER, LISTED = 8, 40
"""Bytes of a number in a column, and of one in a list, which pandas holds as an object."""
PLAIN, DICTIONARIES, RLE = 0, (2, 8), 3
"""Encodings of pages, the only ones that `train` writes. In others a value may grow from the one before it."""
MOST_PAGES = 100_000


@dataclass(frozen=True)
class Weight:
    """Size of a table: `rows`, `bytes` of numbers, unpacked bytes of `pages`, and at most the bytes of `text`."""

    rows: int
    bytes: int
    pages: int
    text: int


def estimate_memory(data: bytes) -> Weight:
    """Return a table's weight from footer and page headers alone; ValueError if `train` did not write them."""
    import pyarrow
    from pyarrow import parquet

    held = parquet.read_metadata(pyarrow.BufferReader(data))
    rows, numbers, unpacked, text, seen = held.num_rows, 0, 0, 0, 0
    for group in map(held.row_group, range(held.num_row_groups)):
        rows = max(rows, group.num_rows)
        for place in range(group.num_columns):
            chunk, column = group.column(place), held.schema.column(place)
            width = LISTED if column.max_repetition_level else NUMBER
            numbers += chunk.num_values * max(width, column.length or 0)
            longest = 0
            for kind, size in _pages(data, chunk):
                seen, unpacked = seen + 1, unpacked + size
                longest = max(longest, size) if kind == "dictionary" else longest
                text += size if column.physical_type == "BYTE_ARRAY" else 0
                if seen > MOST_PAGES:
                    raise ValueError(f"it has more than {MOST_PAGES:,} pages")
            text += chunk.num_values * longest if column.physical_type == "BYTE_ARRAY" else 0
    return Weight(rows, numbers, unpacked, text)


def text_bytes(data: bytes) -> int:
    """Return the bytes of all texts of a table, counting repeats; it reads dictionaries, which hold each text once."""
    import pyarrow
    from pyarrow import parquet

    columns = parquet.read_metadata(pyarrow.BufferReader(data)).schema
    texts = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
    held = parquet.ParquetFile(pyarrow.BufferReader(data), read_dictionary=texts, pre_buffer=False)
    return sum(_text(chunk) for column in held.read(texts, use_threads=False).columns for chunk in column.chunks)


def _text(array: Any) -> int:
    import pyarrow.compute as pc
    from pyarrow import types

    if types.is_dictionary(array.type):
        lengths = pc.binary_length(array.dictionary).take(array.indices)
        return pc.sum(lengths.cast("int64")).as_py() or 0
    if types.is_struct(array.type):
        return sum(map(_text, array.flatten()))
    if types.is_nested(array.type):
        return _text(array.flatten())
    return 0


def _pages(data: bytes, chunk: Any) -> Iterator[tuple[str, int]]:
    """Yield ("dictionary" or "values", bytes unpacked) of each page of a column chunk."""
    starts = [at for at in (chunk.dictionary_page_offset, chunk.data_page_offset) if at is not None and at > 0]
    at = min(starts, default=0)
    end = at + chunk.total_compressed_size
    if not 0 < at <= end <= len(data):
        raise ValueError(f"column {chunk.path_in_schema!r} lies outside of the file")
    while at < end:
        header, at = _struct(data, at)
        size, packed = header.get(2, -1), header.get(3, -1)
        told = header.get(5) or header.get(8)
        encoding = told.get(2 if 5 in header else 4) if told else PLAIN
        if min(size, packed) < 0 or encoding not in (PLAIN, *DICTIONARIES, RLE):
            raise ValueError(f"column {chunk.path_in_schema!r} has a page that train() does not write")
        yield "values" if told else "dictionary", size
        at += packed


def _struct(data: bytes, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Return a struct of Thrift's compact protocol, used by page headers, as {field number: value}, and its end.

    See github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md.
    """
    fields: dict[int, Any] = {}
    number = 0
    while (head := _byte(data, at)) != 0:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _integer(data, at)
        fields[number], at = _value(data, at, head & 15, depth)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (1, 2):
        return kind == 1, at
    if kind == 3:
        return _byte(data, at), at + 1
    if kind in (4, 5, 6):
        return _integer(data, at)
    if kind == 7:
        return None, at + 8
    if kind == 8:
        length, at = _varint(data, at)
        return None, at + length
    if kind == 12 and depth < 4:
        return _struct(data, at, depth + 1)
    raise ValueError("a page has a header that train() does not write")


def _integer(data: bytes, at: int) -> tuple[int, int]:
    number, at = _varint(data, at)
    return (number >> 1) ^ -(number & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        byte = _byte(data, at)
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
    raise ValueError("a page has a header that train() does not write")


def _byte(data: bytes, at: int) -> int:
    if at >= len(data):
        raise ValueError("a page ends beyond the file")
    return data[at]
