"""One statement in every form that it is asked for.

Invariant: every form shows the same lines, the same rounding line and the same total.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from accounting.periods.statement import Statement
from accounting.reports.documents import encode, statement_document
from accounting.reports.paging import EVERYTHING, Asked
from accounting.reports.statement_csv import statement_csv
from accounting.reports.statement_html import statement_html
from accounting.reports.statement_table import statement_table

Format: TypeAlias = Literal["table", "csv", "json", "html"]

FORMATS: tuple[Format, ...] = ("table", "csv", "json", "html")

CONTENT_TYPES = {
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "html": "text/html; charset=utf-8",
}


def render_statement(statement: Statement, form: Format, asked: Asked = EVERYTHING) -> str:
    """A statement as text; only JSON comes in pages."""
    match form:
        case "json":
            return encode(statement_document(statement, asked)).decode()
        case "csv":
            return statement_csv(statement)
        case "html":
            return statement_html(statement)
        case "table":
            return statement_table(statement)
