"""An export of four times the lines takes no more memory."""

from __future__ import annotations

import tracemalloc
import uuid
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import insert, select

from accounting.access.viewer import COMMAND_LINE
from accounting.exports.making import Format, Wanted, write_export
from accounting.ledger.calendar import parse_month
from accounting.periods import ledger_stream
from accounting.store.models import LedgerLine

if TYPE_CHECKING:
    from pathlib import Path

    from tests.accounting.periods.conftest import Ledger

MIB = 1 << 20


def multiply(ledger: Ledger, first: int, count: int) -> None:
    """The tenant's one line again, on as many slices."""
    with ledger.database.writing() as session:
        line = session.scalars(select(LedgerLine).where(LedgerLine.kind == "usage")).first()
        assert line is not None
        names = [column.name for column in LedgerLine.__table__.columns if column.name != "id"]
        known = {name: getattr(line, name) for name in names}
        for start in range(first, first + count, 1_000):
            session.execute(
                insert(LedgerLine),
                [
                    known | {"resource_key": str(uuid.UUID(int=number)), "pod": f"pod-{number}"}
                    for number in range(start, start + 1_000)
                ],
            )


def peak_bytes(ledger: Ledger, form: Format, folder: Path) -> tuple[int, int]:
    """Rows written, and the most memory that was held meanwhile."""
    wanted = Wanted(parse_month("2026-10"), form, account="acme")
    with (folder / form).open("wb") as file, ledger.database.reading() as session:
        tracemalloc.start()
        try:
            made = write_export(session, COMMAND_LINE, wanted, file)
            return made.rows, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["csv", "focus"])
def test_memory_does_not_grow_with_the_month(
    october: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Format
) -> None:
    # Some batches of lines are held at once, so the smaller month has more than those.
    monkeypatch.setattr(ledger_stream, "_ROWS_AT_A_TIME", 100)
    multiply(october, 1, 1_000)
    peak_bytes(october, form, tmp_path)  # what is made once and kept
    few, of_few = peak_bytes(october, form, tmp_path)
    multiply(october, 1_001, 3_000)
    many, of_many = peak_bytes(october, form, tmp_path)
    assert many > 3 * few
    # 3,000 lines more of some 4 KB each would be 12 MiB; the digests of their keys are 0.1.
    assert of_many < of_few + 1 * MIB
