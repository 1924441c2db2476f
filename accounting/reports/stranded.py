"""Where another slice would fit although a card is sold: free memory and cores, by device. For operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from accounting.ledger.calendar import at_text
from accounting.ledger.intervals import Interval
from accounting.ledger.rounding import card_hours
from accounting.ledger.stranded import Free, free_of
from accounting.periods.card import devices_held_or_present, read_card
from accounting.periods.compute import cuts_of, read_rulebook
from accounting.periods.rating_state import rated_as_of_ms, rated_grace_ms
from accounting.reports.documents import Document, instant
from accounting.reports.paging import EVERYTHING, Asked, page_of
from contract.ids import DeviceKey


@dataclass(frozen=True, slots=True)
class StrandedRow:
    """One device in the window."""

    key: DeviceKey
    node: str
    model: str
    free: Free


@dataclass(frozen=True, slots=True)
class StrandedReport:
    """The devices of a window."""

    window: Interval
    as_of_ms: int | None
    rows: Sequence[StrandedRow]

    @property
    def sums(self) -> Free:
        """All devices together."""
        frees = [row.free for row in self.rows]
        return Free(
            sum(free.up_ppm_ms for free in frees),
            sum(free.memory_ppm_ms for free in frees),
            sum(free.cores_ppm_ms for free in frees),
            sum(free.stranded_ppm_ms for free in frees),
            sum(free.idle_ppm_ms for free in frees),
        )


def report_stranded(session: Session, window: Interval, *, cluster: str | None = None) -> StrandedReport:
    """Sweep every card in the window, as of the instant up to which the ledger was rated."""
    as_of_ms = rated_as_of_ms(session)
    if as_of_ms is None:
        return StrandedReport(window, None, ())
    grace_ms = rated_grace_ms(session)
    rulebook = read_rulebook(session)
    rows = []
    for key in devices_held_or_present(session, window, grace_ms=grace_ms):
        if cluster not in {None, key.cluster}:
            continue
        card = read_card(session, key, window, as_of_ms=as_of_ms, grace_ms=grace_ms)
        cuts = cuts_of(rulebook.books[key.cluster], card, window)
        segments = card.sweep(window, cuts=cuts, policies=rulebook.policies.share_spans())
        if segments:
            free = free_of(segments, {hold.slice_key: hold.grant for hold in card.holds})
            rows.append(StrandedRow(key, card.node, segments[-1].model, free))
    return StrandedReport(window, as_of_ms, rows)


def _free(free: Free) -> Document:
    return {
        "up_ppm_ms": free.up_ppm_ms,
        "memory_free_ppm_ms": free.memory_ppm_ms,
        "cores_free_ppm_ms": free.cores_ppm_ms,
        "stranded_ppm_ms": free.stranded_ppm_ms,
        "idle_ppm_ms": free.idle_ppm_ms,
        "stranded_card_hours": str(card_hours(free.stranded_ppm_ms)),
    }


def stranded_document(report: StrandedReport, asked: Asked = EVERYTHING) -> Document:
    """The report as JSON: one page of rows, totals over all of them."""
    page = page_of(report.rows, lambda row: (row.key.cluster, row.key.node_uid, row.key.device_uuid), asked)
    return {
        "from": at_text(report.window[0]),
        "to": at_text(report.window[1]),
        "as_of": instant(report.as_of_ms),
        "rows": [
            {
                "cluster": row.key.cluster,
                "node": row.node,
                "node_uid": row.key.node_uid,
                "device_uuid": row.key.device_uuid,
                "model": row.model,
                **_free(row.free),
            }
            for row in page.rows
        ],
        "next": page.next,
        "totals": _free(report.sums),
        "reconciliation": {"devices": len(report.rows), **_free(report.sums)},
    }
