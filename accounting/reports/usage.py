"""What slices held and used in a window, and how it closes against the cards.

Invariant: over whole hours the charged time of all slices, idle and down are the cards' presence. A viewer
sees the slices of its own tenants only; figures of whole cards are for operators.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer, path_is_visible
from accounting.ledger.calendar import at_text
from accounting.ledger.intervals import Interval, overlaps
from accounting.ledger.sweep import Segment
from accounting.periods.card import Card, HeldSlice, devices_held_or_present, read_card
from accounting.periods.compute import Rulebook, cuts_of, read_rulebook
from accounting.periods.statement import rated_as_of_ms, rated_grace_ms
from accounting.periods.use import SliceUses, UnallocatedUse, Use, add_uses, unallocated_uses
from accounting.reports.documents import Document, instant, unallocated_document, use_document
from accounting.reports.paging import EVERYTHING, Asked, Key, page_of
from accounting.store.models import Cluster
from accounting.tenants.tree import leaf_path, list_tenants
from contract.ids import SliceKey


@dataclass(frozen=True, slots=True)
class SliceRow:
    """One slice in the window. Quantities are ppm·ms; None on a card of unknown size."""

    slice: HeldSlice
    tenant: str
    window: Interval
    charged_ppm_ms: int | None
    own_ppm_ms: int | None
    degraded_ppm_ms: int
    use: Use | None

    @property
    def held_ms(self) -> int:
        """How long it was held in the window."""
        return max(
            0, min(self.slice.held.to_ms, self.window[1]) - max(self.slice.held.from_ms, self.window[0])
        )

    @property
    def held_not_running_ms(self) -> int:
        """How long of it before its first container ran."""
        started_ms = self.slice.allocation.started_at_ms
        held = self.slice.held
        until_ms = held.to_ms if started_ms is None else min(started_ms, held.to_ms)
        return max(0, min(until_ms, self.window[1]) - max(held.from_ms, self.window[0]))


@dataclass(frozen=True, slots=True)
class CardSums:
    """Whole cards in the window: charged + idle + down = present."""

    present_ppm_ms: int
    charged_ppm_ms: int
    idle_ppm_ms: int
    down_ppm_ms: int
    confirmed_ms: int


@dataclass(frozen=True, slots=True)
class UsageReport:
    """The slices of a window that a viewer may see."""

    window: Interval
    as_of_ms: int | None
    rows: Sequence[SliceRow]
    cards: CardSums | None
    """None for a viewer that may not see whole cards."""
    unallocated: Sequence[UnallocatedUse] = ()
    """Use by pods that held no allocation, of the viewer's tenants."""


def report_usage(session: Session, viewer: Viewer, window: Interval) -> UsageReport:
    """Sweep every card in the window, as of the instant up to which the ledger was rated."""
    as_of_ms = rated_as_of_ms(session)
    if as_of_ms is None or window[0] >= window[1]:
        return UsageReport(window, as_of_ms, (), None)
    grace_ms = rated_grace_ms(session)
    tenants = {tenant.path for tenant in list_tenants(session, viewer)}
    accounts = {row.code: row.account for row in session.scalars(select(Cluster))}
    rulebook = read_rulebook(session)
    found: list[_Found] = []
    segments: list[Segment] = []
    for key in devices_held_or_present(session, window, grace_ms=grace_ms):
        card = read_card(session, key, window, as_of_ms=as_of_ms, grace_ms=grace_ms)
        swept = _sweep(card, rulebook)
        segments += swept
        found += [one for one in _slices(card, swept, accounts[key.cluster]) if one.tenant in tenants]
    ids = [(one.slice.allocation.slice_key.cluster, one.allocation_id) for one in found]
    uses = SliceUses(session, ids, window)
    rows = [
        SliceRow(
            slice=one.slice,
            tenant=one.tenant,
            window=window,
            charged_ppm_ms=one.charged_ppm_ms,
            own_ppm_ms=one.own_ppm_ms,
            degraded_ppm_ms=one.degraded_ppm_ms,
            use=uses.of(one.allocation_id, window),
        )
        for one in sorted(found, key=lambda one: (one.slice.held.from_ms, one.slice.allocation.slice_key))
    ]
    cards = _card_sums(segments) if viewer.sees_everything else None
    unallocated = [
        one
        for one in unallocated_uses(session, sorted(accounts), window)
        if path_is_visible(viewer, leaf_path(accounts[one.cluster], one.tenant_key))
    ]
    return UsageReport(window, as_of_ms, rows, cards, unallocated)


@dataclass(slots=True)
class _Found:
    """A slice while its segments are added up."""

    slice: HeldSlice
    tenant: str
    charged_ppm_ms: int | None
    own_ppm_ms: int | None
    degraded_ppm_ms: int = 0

    @property
    def allocation_id(self) -> UUID:
        return self.slice.allocation_id


def _sweep(card: Card, rulebook: Rulebook) -> list[Segment]:
    cuts = cuts_of(rulebook.books[card.key.cluster], card, card.window)
    return card.sweep(card.window, cuts=cuts, policies=rulebook.policies.share_spans())


def _slices(card: Card, segments: Iterable[Segment], account: str) -> list[_Found]:
    found: dict[SliceKey, _Found] = {}
    start = None if card.is_unknown else 0
    for slice_key, one in card.slices.items():
        if overlaps((one.held.from_ms, one.held.to_ms), card.window):
            found[slice_key] = _Found(one, leaf_path(account, one.allocation.tenant_key), start, start)
    for segment in segments:
        for part in segment.parts:
            one_found = found[part.slice_key]
            one_found.charged_ppm_ms = (one_found.charged_ppm_ms or 0) + part.charged_ppm_ms
            one_found.own_ppm_ms = (one_found.own_ppm_ms or 0) + part.own_ppm_ms
            one_found.degraded_ppm_ms += part.charged_ppm_ms if part.is_degraded else 0
    return list(found.values())


def _card_sums(segments: Sequence[Segment]) -> CardSums:
    return CardSums(
        present_ppm_ms=sum(segment.present_ppm_ms for segment in segments),
        charged_ppm_ms=sum(segment.charged_ppm_ms for segment in segments),
        idle_ppm_ms=sum(segment.idle_ppm_ms for segment in segments),
        down_ppm_ms=sum(segment.down_ppm_ms for segment in segments),
        confirmed_ms=sum(s.to_ms - s.from_ms for s in segments if s.is_confirmed),
    )


def slice_document(row: SliceRow) -> Document:
    """One slice as JSON; `ended_at` is null while it is held."""
    allocation, held = row.slice.allocation, row.slice.held
    own, charged = row.own_ppm_ms, row.charged_ppm_ms
    use = row.use
    return {
        "cluster": allocation.slice_key.cluster,
        "namespace": allocation.namespace,
        "pod": allocation.pod,
        "pod_uid": allocation.slice_key.pod_uid,
        "container": allocation.slice_key.container,
        "node": allocation.node,
        "device_uuid": allocation.slice_key.device_uuid,
        "model": allocation.model,
        "mem_mib": allocation.mem_mib,
        "core_percent": allocation.core_percent,
        "tenant": row.tenant,
        "bound_at": at_text(allocation.bound_at_ms),
        "started_at": instant(allocation.started_at_ms),
        "ended_at": None if held.end == "open" else at_text(held.to_ms),
        "end": held.end,
        "held_ms": row.held_ms,
        "held_not_running_ms": row.held_not_running_ms,
        "charged_ppm_ms": charged,
        "own_ppm_ms": own,
        "discount_ppm_ms": None if own is None or charged is None else own - charged,
        "degraded_ppm_ms": row.degraded_ppm_ms,
        **_use_fields(use),
    }


def _use_fields(use: Use | None) -> Document:
    names = ("sm_ppm_ms", "mem_used_mib_ms", "mem_peak_mib", "covered_ms", "unknown_ms", "energy_active_mj")
    return {name: None if use is None else getattr(use, name) for name in names}


def _key(row: SliceRow) -> Key:
    key = row.slice.allocation.slice_key
    return row.slice.held.from_ms, key.cluster, key.pod_uid, key.container, key.device_uuid


def usage_document(report: UsageReport, asked: Asked = EVERYTHING) -> Document:
    """The report as JSON: one page of rows, totals over all of them."""
    rows = report.rows
    page = page_of(rows, _key, asked)
    own = sum(row.own_ppm_ms or 0 for row in rows)
    charged = sum(row.charged_ppm_ms or 0 for row in rows)
    cards = report.cards
    return {
        "from": at_text(report.window[0]),
        "to": at_text(report.window[1]),
        "as_of": instant(report.as_of_ms),
        "rows": [slice_document(row) for row in page.rows],
        "next": page.next,
        "totals": {
            "slices": len(rows),
            "held_ms": sum(row.held_ms for row in rows),
            "own_ppm_ms": own,
            "discount_ppm_ms": own - charged,
            "charged_ppm_ms": charged,
            "use": use_document(add_uses(row.use for row in rows)),
        },
        "unallocated_use": [unallocated_document(one) for one in report.unallocated],
        "reconciliation": {
            "own_ppm_ms": own,
            "discount_ppm_ms": own - charged,
            "charged_ppm_ms": charged,
            "unknown_devices": sum(1 for row in rows if row.charged_ppm_ms is None),
            "cards": None if cards is None else card_sums_document(cards),
        },
    }


def card_sums_document(cards: CardSums) -> Document:
    """Whole cards."""
    return {
        "present_ppm_ms": cards.present_ppm_ms,
        "charged_ppm_ms": cards.charged_ppm_ms,
        "idle_ppm_ms": cards.idle_ppm_ms,
        "down_ppm_ms": cards.down_ppm_ms,
        "confirmed_ms": cards.confirmed_ms,
    }
