"""The rows of any document as CSV, so that every list and report can be read by a spreadsheet.

Invariant: a column is a name of the JSON row, with what lies inside it behind a dot; every row has every
column. Cells that a spreadsheet would run as a formula are quoted as in a statement.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

import msgspec

from accounting.reports.documents import Document
from accounting.reports.statement_csv import cell


def rows_csv(document: Document) -> str:
    """The `rows` of a document, RFC 4180, with a heading; a list within a row is one cell of JSON."""
    rows = document["rows"]
    assert isinstance(rows, list)
    flat = [dict(_flat(row, "")) for row in rows]
    # A value that is null in one row may hold something in another.
    every = list(dict.fromkeys(name for row in flat for name in row))
    columns = [name for name in every if not any(other.startswith(f"{name}.") for other in every)]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(columns)
    for row in flat:
        writer.writerow([_cell(row.get(name)) for name in columns])
    return out.getvalue()


def _flat(value: object, name: str) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, str | int):
        return cell(value)
    return msgspec.json.encode(value).decode()
