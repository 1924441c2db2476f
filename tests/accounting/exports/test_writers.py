"""Rows as CSV, JSON and Parquet: nulls, formulas, digits, and the same bytes twice."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from accounting.exports.columns import Column, Value
from accounting.exports.writers import CsvWriter, JsonWriter, ParquetWriter
from lab.golden.world import at

COLUMNS = (
    Column("name"),
    Column("amount", "decimal", 17),
    Column("shown", "decimal", 4, keeps_zeros=True),
    Column("count", "count"),
    Column("from", "instant"),
)
ROW: Sequence[Value] = ['a, "b"', Decimal("-0.50"), Decimal("-0.50"), 7, at("2026-10-01T00:00Z")]
NULLS: Sequence[Value] = [None] * 5


def written(kind: type[CsvWriter | JsonWriter | ParquetWriter], rows: Sequence[Sequence[Value]]) -> bytes:
    file = io.BytesIO()
    writer = kind(file, COLUMNS)
    for row in rows:
        writer.row(row)
    writer.finish()
    return file.getvalue()


def test_csv_quotes_what_needs_it_and_leaves_nulls_empty() -> None:
    assert written(CsvWriter, [ROW, NULLS]).decode() == (
        'name,amount,shown,count,from\r\n"a, ""b""",-0.5,-0.50,7,2026-10-01T00:00:00Z\r\n,,,,\r\n'
    )


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\tx", "\rx", "=cmd|' /C calc'!A0"])
def test_text_that_a_spreadsheet_would_run_is_quoted_and_numbers_are_not(text: str) -> None:
    made = written(CsvWriter, [[text, Decimal(-1), None, -1, None]]).decode()
    (row,) = list(csv.DictReader(io.StringIO(made, newline="")))
    assert (row["name"], row["amount"], row["count"]) == (f"'{text}", "-1", "-1")


def test_json_is_one_array_with_decimals_as_text() -> None:
    assert json.loads(written(JsonWriter, [ROW, NULLS])) == [
        {
            "name": 'a, "b"',
            "amount": "-0.5",
            "shown": "-0.50",
            "count": 7,
            "from": "2026-10-01T00:00:00Z",
        },
        dict.fromkeys(column.name for column in COLUMNS),
    ]


def test_json_of_nothing_is_an_empty_array() -> None:
    assert json.loads(written(JsonWriter, [])) == []


def test_parquet_holds_exact_types() -> None:
    table = parquet.read_table(io.BytesIO(written(ParquetWriter, [ROW, NULLS])))
    assert [str(field.type) for field in table.schema] == [
        "string",
        "decimal128(38, 17)",
        "decimal128(38, 4)",
        "int64",
        "timestamp[us, tz=UTC]",
    ]
    assert table.column("amount").to_pylist() == [Decimal("-0.50"), None]
    assert table.column("count").to_pylist() == [7, None]


def test_a_decimal_with_more_digits_than_its_column_is_an_error_in_parquet_not_rounded() -> None:
    with pytest.raises(pa.ArrowInvalid):
        written(ParquetWriter, [["a", Decimal("1e-18"), None, None, None]])


def test_zeros_that_a_database_adds_change_no_byte() -> None:
    padded = [[ROW[0], Decimal("-0.50000000000000000"), *ROW[2:]]]
    for kind in (CsvWriter, JsonWriter, ParquetWriter):
        assert written(kind, padded) == written(kind, [ROW])


def test_many_rows_make_many_groups_and_the_same_bytes_twice() -> None:
    rows = [[f"name-{number}", Decimal(number), None, number, None] for number in range(20_000)]
    once = written(ParquetWriter, rows)
    assert once == written(ParquetWriter, rows)
    opened = parquet.ParquetFile(io.BytesIO(once))
    assert (opened.metadata.num_rows, opened.metadata.num_row_groups) == (20_000, 3)


@pytest.mark.parametrize("kind", [CsvWriter, JsonWriter, ParquetWriter])
def test_a_file_that_is_abandoned_stays_open_and_nobody_complains_later(
    kind: type[CsvWriter | JsonWriter | ParquetWriter],
) -> None:
    file = io.BytesIO()
    writer = kind(file, COLUMNS)
    writer.row(ROW)
    writer.abandon()
    assert not file.closed
    file.close()
    del writer  # whatever its end still wants with the file would be an error here


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)


@given(st.lists(st.tuples(TEXT, st.integers(-(10**18), 10**18)), max_size=5))
def test_json_and_csv_give_back_what_went_in(rows: list[tuple[str, int]]) -> None:
    values: list[list[Value]] = [[name, Decimal(count), None, count, None] for name, count in rows]
    told = json.loads(written(JsonWriter, values))
    assert [(row["name"], row["amount"], row["count"]) for row in told] == [
        (name, str(count), count) for name, count in rows
    ]
    read = csv.DictReader(io.StringIO(written(CsvWriter, values).decode(), newline=""))
    starts = ("=", "+", "-", "@", "\t", "\r")
    assert [(row["name"], row["amount"]) for row in read] == [
        (f"'{name}" if name.startswith(starts) else name, str(count)) for name, count in rows
    ]
