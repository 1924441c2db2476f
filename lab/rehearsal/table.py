"""A rehearsal's outcome as people read it: one line an alert, one table a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table

from lab.rehearsal.rehearsal import Outcome


def outcome_table(outcomes: Sequence[Outcome]) -> Table:
    """Every scene with what had to arrive, what came, and after how many of its minutes."""
    table = Table(title="What must arrive, and what did", show_lines=True)
    for heading in ("scene", "must arrive", "after minutes", "verdict"):
        table.add_column(heading, overflow="fold")
    for outcome in outcomes:
        names = [arrival.expected.name for arrival in outcome.arrivals] or ["nothing"]
        times = [
            "-" if arrival.after_minutes is None else f"{arrival.after_minutes:.1f}"
            for arrival in outcome.arrivals
        ]
        verdict = "right" if outcome.is_right else "\n".join(faults(outcome))
        table.add_row(outcome.scene.name, "\n".join(names), "\n".join(times), verdict)
    return table


def faults(outcome: Outcome) -> Iterator[str]:
    """What was not as it should be, a line each."""
    for arrival in outcome.arrivals:
        for fault in arrival.faults:
            yield f"{arrival.expected.name}: {fault}"
    for notice in outcome.unexpected:
        labels = ", ".join(f"{name}={value}" for name, value in sorted(notice.labels.items()))
        yield f"not expected: {labels}: {notice.annotations.get('description', '')}"
    for leak in outcome.leaks:
        yield f"a tenant read too much: {leak}"
