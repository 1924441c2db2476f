"""The check table's looks: every figure with what was expected and what was measured."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from lab.checks.check import Check


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
