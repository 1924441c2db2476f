"""Rows into a file, one after the other: CSV, JSON and Parquet.

Invariant: the same rows make the same bytes; nothing is kept but the rows of one batch. Text cells of CSV
that a spreadsheet would run as a formula begin with an apostrophe, since names come from tenants.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from decimal import Decimal
from typing import IO, Any, Protocol

import msgspec

from accounting.exports.columns import Column, Value
from accounting.focus.reading import require_pyarrow

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")

_ROWS_AT_A_TIME = 8_192


class Writer(Protocol):
    """Writes one file."""

    def row(self, values: Sequence[Value], texts: Sequence[str] | None = None) -> None:
        """Write one row, a value for each column; `texts` are the same as text, if somebody has them."""

    def finish(self) -> None:
        """Write what is left; the file stays open."""

    def abandon(self) -> None:
        """Let go of a file that will not become whole."""


class CsvWriter:
    """RFC 4180 in UTF-8, with a heading; null is an empty cell."""

    def __init__(self, file: IO[bytes], columns: Sequence[Column]) -> None:
        self._columns = columns
        self._text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        self._are_texts = [column.kind == "text" for column in columns]
        self._writer = csv.writer(self._text, lineterminator="\r\n")
        self._writer.writerow(column.name for column in columns)

    def row(self, values: Sequence[Value], texts: Sequence[str] | None = None) -> None:
        """Write one row."""
        cells = texts or [column.text(value) for column, value in zip(self._columns, values, strict=True)]
        self._writer.writerow(
            [
                f"'{cell}" if is_text and cell.startswith(FORMULA_STARTS) else cell
                for cell, is_text in zip(cells, self._are_texts, strict=True)
            ]
        )

    def finish(self) -> None:
        """Write what is left."""
        self._text.detach()

    def abandon(self) -> None:
        """Leave the file open."""
        self._text.detach()


class JsonWriter:
    """One array with an object in each line: decimals are strings, counts numbers, instants RFC 3339."""

    def __init__(self, file: IO[bytes], columns: Sequence[Column]) -> None:
        self._file = file
        self._columns = columns
        self._encode = msgspec.json.Encoder().encode
        self._before = b"[\n"

    def row(self, values: Sequence[Value], texts: Sequence[str] | None = None) -> None:  # noqa: ARG002 - Writer's
        """Write one row."""
        found = {
            column.name: value if value is None or column.kind == "count" else column.text(value)
            for column, value in zip(self._columns, values, strict=True)
        }
        self._file.write(self._before + self._encode(found))
        self._before = b",\n"

    def finish(self) -> None:
        """Close the array."""
        self._file.write(b"[]\n" if self._before == b"[\n" else b"\n]\n")

    def abandon(self) -> None:
        """There is nothing to let go of."""


class ParquetWriter:
    """Parquet with exact decimals and UTC timestamps, in groups of a fixed number of rows.

    Raises:
        InvalidError: pyarrow is not installed.
    """

    def __init__(self, file: IO[bytes], columns: Sequence[Column]) -> None:
        require_pyarrow("Parquet")
        import pyarrow as pa  # noqa: PLC0415 - 55 MB that only Parquet needs
        from pyarrow import parquet  # noqa: PLC0415

        self._arrow: Any = pa
        self._columns = columns
        self._schema = pa.schema([pa.field(column.name, self._type(column)) for column in columns])
        self._writer = parquet.ParquetWriter(file, self._schema, compression="zstd")
        self._rows: list[Sequence[Value]] = []

    def _type(self, column: Column) -> Any:
        match column.kind:
            case "decimal":
                return self._arrow.decimal128(38, column.digits)
            case "instant":
                return self._arrow.timestamp("us", tz="UTC")
            case "count":
                return self._arrow.int64()
            case "text":
                return self._arrow.string()

    def row(self, values: Sequence[Value], texts: Sequence[str] | None = None) -> None:  # noqa: ARG002 - Writer's
        """Write one row."""
        self._rows.append(values)
        if len(self._rows) == _ROWS_AT_A_TIME:
            self._flush()

    def _flush(self) -> None:
        arrays = [
            self._arrow.array([_arrow_value(column, row[place]) for row in self._rows], type=field.type)
            for place, (column, field) in enumerate(zip(self._columns, self._schema, strict=True))
        ]
        self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))
        self._rows.clear()

    def finish(self) -> None:
        """Write the last group and the index."""
        if self._rows:
            self._flush()
        self._writer.close()

    def abandon(self) -> None:
        """Close what pyarrow would else close when the file is gone."""
        self._writer.close()


def _arrow_value(column: Column, value: Value) -> Value:
    if column.kind == "instant" and isinstance(value, int):
        return value * 1_000
    if column.kind == "decimal" and isinstance(value, Decimal):
        # A database may give more zeros than the column has digits.
        return Decimal(column.text(value))
    return value
