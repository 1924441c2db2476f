"""Opens a file for the lint: CSV, or Parquet where pyarrow is installed.

Invariant: rows come one after the other as text, whatever the file's size; what is no readable file is an
`InvalidError` that says why, never a traceback.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from accounting.errors import InvalidError
from accounting.focus.lint import Finding, dataset_of, finding_of_types, version_of
from accounting.focus.model import NUMBERS, columns_of

PARQUET_MAGIC = b"PAR1"
MAX_CELL_BYTES = 1_048_576

_ROWS_AT_A_TIME = 4_096


@dataclass(frozen=True, slots=True)
class FocusFile:
    """An open file: its heading, its rows once, and what its types alone break."""

    header: Sequence[str]
    rows: Iterator[Sequence[str]]
    findings: Sequence[Finding] = field(default_factory=tuple)


@contextmanager
def open_focus(path: Path) -> Iterator[FocusFile]:
    """Open a file.

    Raises:
        InvalidError: It is not there, cannot be read, is no CSV of UTF-8 text, or is damaged.
    """
    try:
        with path.open("rb") as file:
            is_parquet = file.read(4) == PARQUET_MAGIC
        with _open_parquet(path) if is_parquet else _open_csv(path) as opened:
            yield opened
    except BrokenPipeError:
        raise  # it is not the file that is broken, but whoever looked at the findings that went away
    except OSError as error:
        raise InvalidError(f"{path} cannot be read: {error.strerror or error}; name another file") from None
    except UnicodeDecodeError as error:
        raise InvalidError(f"{path} is no text in UTF-8 (byte {error.start}); save it as UTF-8") from None
    except csv.Error as error:
        raise InvalidError(f"{path} is no CSV: {error}; write it as RFC 4180 says") from None


@contextmanager
def _open_csv(path: Path) -> Iterator[FocusFile]:
    csv.field_size_limit(MAX_CELL_BYTES)
    with path.open(encoding="utf-8-sig", newline="") as text:
        reader = csv.reader(text, strict=True)
        header = next(reader, None)
        if not header:
            raise InvalidError(f"{path} is empty: it has no heading; write one with the names of the columns")
        yield FocusFile(header, (row for row in reader if row))


def require_pyarrow(what: str) -> None:
    """Make sure that Parquet can be read and written.

    Raises:
        InvalidError: pyarrow is not installed; the message names the extra.
    """
    try:
        import pyarrow.parquet  # noqa: F401, PLC0415 - 55 MB that only Parquet needs
    except ImportError:
        raise InvalidError(
            f"{what} needs pyarrow, which is not installed; add it with: pip install 'slicemeter[parquet]'"
        ) from None


@contextmanager
def _open_parquet(path: Path) -> Iterator[FocusFile]:
    require_pyarrow(f"{path} is Parquet: reading it")
    import pyarrow as pa  # noqa: PLC0415 - only Parquet needs it
    from pyarrow import parquet  # noqa: PLC0415

    try:
        with parquet.ParquetFile(path) as opened:
            yield FocusFile(opened.schema_arrow.names, _rows(opened), tuple(_types(opened)))
    except pa.ArrowException as error:
        raise InvalidError(f"{path} is no readable Parquet: {str(error).splitlines()[0]}") from None


def _types(opened: Any) -> Iterator[Finding]:
    from pyarrow import types  # noqa: PLC0415 - only Parquet needs it

    header = opened.schema_arrow.names
    columns = columns_of(dataset_of(header), version_of(header))
    for arrow in opened.schema_arrow:
        column = columns.get(arrow.name)
        if column is None:
            continue
        if column.kind in NUMBERS:
            is_right, wanted = types.is_decimal(arrow.type), "a decimal"
        elif column.kind == "instant":
            is_right = types.is_timestamp(arrow.type) and arrow.type.tz == "UTC"
            wanted = "a timestamp in UTC"
        else:
            is_right = types.is_string(arrow.type) or types.is_large_string(arrow.type)
            is_right, wanted = is_right or types.is_dictionary(arrow.type), "text"
        if not is_right:
            yield finding_of_types(arrow.name, f"{arrow.type} is not {wanted}")


def _rows(opened: Any) -> Iterator[Sequence[str]]:
    for batch in opened.iter_batches(batch_size=_ROWS_AT_A_TIME):
        columns = [[_text(value) for value in column.to_pylist()] for column in batch.columns]
        yield from zip(*columns, strict=True)


def _text(value: object) -> str:
    """A value as CSV would hold it."""
    if value is None:
        return ""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%SZ") if not value.microsecond else value.isoformat()
    return str(value)
