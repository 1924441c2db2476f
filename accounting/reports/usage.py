"""What slices held and used in a window, and how it closes against the cards.

Invariant: over whole hours the charged time of all slices, idle and down are the cards' presence. A viewer
sees the slices of its own tenants only; figures of whole cards are for operators.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer
from accounting.ledger.calendar import at_text
from accounting.ledger.intervals import Interval, overlaps
from accounting.ledger.sweep import Segment
from accounting.periods.card import Card, HeldSlice, devices_held_or_present, read_cards
from accounting.periods.compute import Rulebook, cuts_of, read_rulebook
from accounting.periods.rating_state import rated_as_of_ms, rated_grace_ms
from accounting.periods.recompute import groups_of_cards
from accounting.periods.tariff import Books
from accounting.periods.use import SliceUses, UnallocatedUse, Use, add_uses, unallocated_uses
from accounting.reports.documents import Document, instant, money, unallocated_document, use_document
from accounting.reports.grouping import Branches, Filters, read_branches
from accounting.reports.paging import EVERYTHING, Asked, Key, page_of
from accounting.store.walls import CARDS, seeing
from accounting.tenants.rules import read_owners
from contract.ids import SliceKey
from contract.units import PPM


@dataclass(frozen=True, slots=True)
class SliceRow:
    """One slice in the window. Quantities are ppm·ms; None on a card of unknown size."""

    slice: HeldSlice
    tenant: str
    times: Sequence[Interval]
    """When in the window the slice was this tenant's; a slice that changes hands has a row for each."""
    charged_ppm_ms: int | None
    own_ppm_ms: int | None
    degraded_ppm_ms: int
    use: Use | None

    @property
    def held_ms(self) -> int:
        """How long it was held by this tenant."""
        return _common_ms((self.slice.held.from_ms, self.slice.held.to_ms), self.times)

    @property
    def held_not_running_ms(self) -> int:
        """How long of it before its first container ran."""
        started_ms = self.slice.allocation.started_at_ms
        held = self.slice.held
        until_ms = held.to_ms if started_ms is None else min(started_ms, held.to_ms)
        return _common_ms((held.from_ms, until_ms), self.times)


def _common_ms(when: Interval, times: Sequence[Interval]) -> int:
    return sum(max(0, min(when[1], end) - max(when[0], start)) for start, end in times)


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
    """None for a viewer that may not see whole cards, or that asks for some slices only."""
    branches: Branches
    unallocated: Sequence[UnallocatedUse] = ()
    """Use by pods that held no allocation, of the viewer's tenants."""


def report_usage(
    session: Session, viewer: Viewer, window: Interval, filters: Filters | None = None
) -> UsageReport:
    """Sweep every card in the window, as of the instant up to which the ledger was rated.

    Args:
        session: A reading transaction.
        viewer: Who asks.
        window: From when to when.
        filters: Only the slices that these let through; whole cards are then left out.

    Raises:
        NotFoundError: No tenant of the filter's name, or none that the viewer may see.
    """
    wanted = filters or Filters()
    branches = read_branches(session, viewer, wanted.tenant)
    as_of_ms = rated_as_of_ms(session)
    if as_of_ms is None or window[0] >= window[1]:
        return UsageReport(window, as_of_ms, (), None, branches)
    with seeing(session, CARDS):
        return _swept_usage(session, viewer, window, as_of_ms, branches, wanted)


def _swept_usage(  # noqa: PLR0917 - a report and all that narrows it
    session: Session,
    viewer: Viewer,
    window: Interval,
    as_of_ms: int,
    branches: Branches,
    filters: Filters,
) -> UsageReport:
    """The slices of a viewer's tenants, out of all that share their cards."""
    grace_ms = rated_grace_ms(session)
    tenants = set(branches.paths.values())
    rulebook = read_rulebook(session)
    found: list[_Found] = []
    segments: list[Segment] = []
    keys = [
        key
        for key in devices_held_or_present(session, window, grace_ms=grace_ms)
        if filters.cluster in {None, key.cluster}
    ]
    for group in groups_of_cards(keys):
        for card in read_cards(session, group, window, as_of_ms=as_of_ms, grace_ms=grace_ms):
            swept = sweep_card(card, rulebook)
            segments += swept
            found += [
                one
                for one in _slices(card, swept, rulebook.books[card.key.cluster])
                if one.tenant in tenants and _is_asked(one, filters)
            ]
    ids = [(one.slice.allocation.slice_key.cluster, one.allocation_id) for one in found]
    uses = SliceUses(session, ids, window)
    rows = [
        SliceRow(
            slice=one.slice,
            tenant=one.tenant,
            times=one.times,
            charged_ppm_ms=one.charged_ppm_ms,
            own_ppm_ms=one.own_ppm_ms,
            degraded_ppm_ms=one.degraded_ppm_ms,
            use=add_uses(uses.of(one.allocation_id, when) for when in one.times),
        )
        for one in sorted(
            found, key=lambda one: (one.slice.held.from_ms, one.slice.allocation.slice_key, one.tenant)
        )
    ]
    of_cards = filters in {Filters(), Filters(cluster=filters.cluster)}
    cards = _card_sums(segments) if viewer.sees_everything and of_cards else None
    unallocated = [
        one
        for one in unallocated_uses(session, read_owners(session), window)
        if (one.tenant in tenants or (viewer.sees_everything and branches.root is None))
        and filters.cluster in {None, one.cluster}
        and filters.namespace in {None, one.namespace}
    ]
    return UsageReport(window, as_of_ms, rows, cards, branches, unallocated)


def _is_asked(one: _Found, filters: Filters) -> bool:
    allocation = one.slice.allocation
    values = {
        "account": one.account,
        "cluster": allocation.slice_key.cluster,
        "namespace": allocation.namespace,
        "node": allocation.node,
        "model": allocation.model,
    }
    return all(values.get(name) == value for name, value in filters.columns().items())


@dataclass(slots=True)
class _Found:
    """A slice while its segments are added up."""

    slice: HeldSlice
    tenant: str
    account: str
    times: list[Interval]
    charged_ppm_ms: int | None
    own_ppm_ms: int | None
    degraded_ppm_ms: int = 0

    @property
    def allocation_id(self) -> UUID:
        return self.slice.allocation_id


def sweep_card(card: Card, rulebook: Rulebook) -> list[Segment]:
    """A card's whole window, divided as its lines are."""
    cuts = cuts_of(rulebook.books[card.key.cluster], card, card.window)
    return card.sweep(card.window, cuts=cuts, policies=rulebook.policies.share_spans())


def _slices(card: Card, segments: Iterable[Segment], books: Books) -> list[_Found]:
    found: dict[tuple[SliceKey, str], _Found] = {}
    nothing = None if card.is_unknown else 0
    for slice_key, one in card.slices.items():
        for start, end, owner in books.owned(one.claim).stretches(*card.window):
            if overlaps((one.held.from_ms, one.held.to_ms), (start, end)):
                mine = found.setdefault(
                    (slice_key, owner.path),
                    _Found(one, owner.path, books.account_of(owner).code, [], nothing, nothing),
                )
                mine.times.append((start, end))
    for segment in segments:
        for part in segment.parts:
            owner = books.owned(card.slices[part.slice_key].claim).at(segment.from_ms)
            one_found = found[part.slice_key, owner.path]
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
        "share": _share(own, row.held_ms),
        "degraded_ppm_ms": row.degraded_ppm_ms,
        **_use_fields(use),
    }


def _share(own_ppm_ms: int | None, held_ms: int) -> str | None:
    """Of the card, on average while the slice was held."""
    if own_ppm_ms is None or not held_ms:
        return None
    return money((Decimal(own_ppm_ms) / Decimal(held_ms * PPM)).quantize(Decimal("0.000001")))


def _use_fields(use: Use | None) -> Document:
    names = ("sm_ppm_ms", "mem_used_mib_ms", "mem_peak_mib", "covered_ms", "unknown_ms", "energy_active_mj")
    return {name: None if use is None else getattr(use, name) for name in names}


def _key(row: SliceRow) -> Key:
    key = row.slice.allocation.slice_key
    return row.slice.held.from_ms, key.cluster, key.pod_uid, key.container, key.device_uuid, row.tenant


def usage_document(report: UsageReport, asked: Asked = EVERYTHING) -> Document:
    """The report as JSON: one page of rows, totals over all of them."""
    page = page_of(report.rows, _key, asked)
    return {
        **usage_frame(report),
        "rows": [slice_document(row) for row in page.rows],
        "next": page.next,
    }


def usage_frame(report: UsageReport) -> Document:
    """All of the report but its rows."""
    rows = report.rows
    own = sum(row.own_ppm_ms or 0 for row in rows)
    charged = sum(row.charged_ppm_ms or 0 for row in rows)
    cards = report.cards
    use = add_uses(row.use for row in rows)
    return {
        "from": at_text(report.window[0]),
        "to": at_text(report.window[1]),
        "as_of": instant(report.as_of_ms),
        "rows": [],
        "next": None,
        "totals": {
            "slices": len(rows),
            "held_ms": sum(row.held_ms for row in rows),
            "own_ppm_ms": own,
            "discount_ppm_ms": own - charged,
            "charged_ppm_ms": charged,
            "use": use_document(use),
        },
        "unallocated_use": [unallocated_document(one) for one in report.unallocated],
        "reconciliation": {
            "own_ppm_ms": own,
            "discount_ppm_ms": own - charged,
            "charged_ppm_ms": charged,
            "unknown_devices": sum(1 for row in rows if row.charged_ppm_ms is None),
            "unmeasured_slices": sum(1 for row in rows if row.use is None),
            "measured_ms": None if use is None else use.covered_ms,
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
