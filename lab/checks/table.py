"""The check table's looks: every figure with what was expected and what was measured."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from lab.checks.check import Check

UNITS_LINE = (
    "card-s: seconds of one whole card; 0.3 of a card for 10 s is 3 card-s. "
    "ppm·ms: the ledger's whole number, a millionth of a card for a millisecond; 10⁹ of them are 1 card-s."
)
"""What stands below the table: its two units that are not everybody's."""


def check_table(checks: Sequence[Check]) -> Table:
    """The table, cases in the order in which they come."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column("case", no_wrap=True)
    table.add_column("figure")
    table.add_column("expected", justify="right")
    table.add_column("measured", justify="right")
    table.add_column("")
    previous = None
    for check in checks:
        if previous not in {None, check.case}:
            table.add_section()
        verdict = Text("ok", style="green") if check.is_right else Text("OFF", style="bold red")
        case = "" if check.case == previous else check.case
        table.add_row(case, check.figure, check.expected, check.measured, verdict)
        previous = check.case
    return table
