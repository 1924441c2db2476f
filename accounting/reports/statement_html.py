"""A statement as one HTML file: no script, no address, readable on screen, in the dark and on paper."""

from __future__ import annotations

from functools import cache

import jinja2

from accounting.ledger.rounding import plain
from accounting.periods.statement import Statement
from accounting.reports import units
from accounting.reports.month_picture import month_picture
from accounting.reports.statement_basis import basis_of
from accounting.reports.statement_groups import group_lines


@cache
def environment() -> jinja2.Environment:
    """The templates of this package; every value is escaped, an unknown name is an error."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("accounting.reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "hours": units.hours,
        "quantity": units.quantity,
        "plain": plain,
        "kwh": units.kwh,
        "amount": units.amount_text,
        "price_of": units.price_of,
        "sm": units.sm_text,
        "peak": units.peak_text,
        "energy": units.energy_text,
        "what": units.what,
        "coverage": units.coverage_text,
        "when": units.when,
    }
    return made


def statement_html(statement: Statement, *, max_lines: int | None = None) -> str:
    """The statement as a page; one of more lines than `max_lines` says how many it leaves out."""
    is_cut = max_lines is not None and len(statement.lines) > max_lines
    return (
        environment()
        .get_template("statement.html")
        .render(
            statement=statement,
            days=[] if is_cut else _by_day(statement),
            left_out=len(statement.lines) if is_cut else 0,
            picture=month_picture(statement),
            basis=basis_of(statement),
            groups=group_lines(statement),
            not_measured=units.NOT_MEASURED,
        )
    )


def _by_day(statement: Statement) -> list[tuple[str, list[object]]]:
    """Lines grouped by day, so that a page shows each day once."""
    days: dict[str, list[object]] = {}
    for line in statement.lines:
        days.setdefault(line.day, []).append(line)
    return list(days.items())
