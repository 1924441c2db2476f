"""A card's time hour by hour: who held it, what each was charged, what was idle and down.

Invariant: in every hour the named slices, the others, idle and down are the time that is shown, exactly. A
viewer that is no operator is shown the stretches on which one of its tenants held a slice of the card, and
nothing else; whoever held the rest of it then is one sum and a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer
from accounting.errors import NotFoundError
from accounting.ledger.calendar import at_text
from accounting.ledger.intervals import Interval, overlaps
from accounting.periods.card import (
    Card,
    HeldSlice,
    devices_held_or_present,
    read_card,
)
from accounting.periods.compute import Rulebook, read_rulebook
from accounting.periods.rating_state import rated_as_of_ms, rated_grace_ms
from accounting.reports.documents import Document, instant
from accounting.reports.usage import sweep_card
from accounting.store.walls import CARDS, seeing
from accounting.tenants.tree import list_tenants
from contract.units import MS_PER_HOUR


@dataclass(frozen=True, slots=True)
class NamedSlice:
    """A slice that the viewer may see, while it was one tenant's."""

    allocation_id: UUID
    tenant: str
    namespace: str
    pod: str
    container: str


@dataclass(slots=True)
class CardHour:
    """What is shown of one hour. Quantities in ppm·ms; present is what they add up to."""

    hour_ms: int
    present_ppm_ms: int = 0
    idle_ppm_ms: int = 0
    down_ppm_ms: int = 0
    others: set[UUID] = field(default_factory=set)
    others_charged_ppm_ms: int = 0
    charged: dict[NamedSlice, int] = field(default_factory=dict)

    @property
    def charged_ppm_ms(self) -> int:
        """Of all slices, named or not."""
        return sum(self.charged.values()) + self.others_charged_ppm_ms


@dataclass(frozen=True, slots=True)
class CardReport:
    """One card in a window."""

    cluster: str
    device_uuid: str
    node: str
    model: str
    window: Interval
    as_of_ms: int | None
    hours: Sequence[CardHour]
    is_whole: bool
    """Whether the viewer sees all of the card's time, or only the stretches on which it held a part."""

    @property
    def slices(self) -> list[NamedSlice]:
        """All that are named in any hour, in the order in which they came."""
        return list(dict.fromkeys(one for hour in self.hours for one in hour.charged))


@dataclass(frozen=True, slots=True)
class CardDay:
    """What is shown of one UTC day."""

    from_ms: int
    present_ppm_ms: int
    charged_ppm_ms: int
    idle_ppm_ms: int
    down_ppm_ms: int


def card_days(report: CardReport) -> list[CardDay]:
    """The hours of a report, added up by UTC day."""
    days: dict[int, list[CardHour]] = {}
    for hour in report.hours:
        days.setdefault(hour.hour_ms - hour.hour_ms % (24 * MS_PER_HOUR), []).append(hour)
    return [
        CardDay(
            from_ms=from_ms,
            present_ppm_ms=sum(hour.present_ppm_ms for hour in hours),
            charged_ppm_ms=sum(hour.charged_ppm_ms for hour in hours),
            idle_ppm_ms=sum(hour.idle_ppm_ms for hour in hours),
            down_ppm_ms=sum(hour.down_ppm_ms for hour in hours),
        )
        for from_ms, hours in sorted(days.items())
    ]


def report_card(
    session: Session, viewer: Viewer, cluster: str, device_uuid: str, window: Interval
) -> CardReport:
    """Sweep one card in a window, as of the instant up to which the ledger was rated.

    Raises:
        NotFoundError: Nothing is known of such a card in the window, or nothing that the viewer may see.
    """
    as_of_ms = rated_as_of_ms(session)
    tenants = frozenset(tenant.path for tenant in list_tenants(session, viewer))
    hours: dict[int, CardHour] = {}
    cards: list[Card] = []
    with seeing(session, CARDS):
        if as_of_ms is not None:
            cards = _cards(session, cluster, device_uuid, window, as_of_ms)
            rulebook = read_rulebook(session)
            for card in cards:
                _add_hours(hours, card, rulebook, None if viewer.sees_everything else tenants)
    if not hours and not (viewer.sees_everything and cards):
        raise _no_card(cluster, device_uuid)
    return CardReport(
        cluster=cluster,
        device_uuid=device_uuid,
        node=cards[-1].node,
        model=next((span.model for card in reversed(cards) for span in reversed(card.spans)), ""),
        window=window,
        as_of_ms=as_of_ms,
        hours=[hours[at_ms] for at_ms in sorted(hours)],
        is_whole=viewer.sees_everything,
    )


def _no_card(cluster: str, device_uuid: str) -> NotFoundError:
    return NotFoundError(
        f'nothing is known of a card "{device_uuid}" of cluster "{cluster}" in this window; the lines of a '
        "statement name the cards and days that there are"
    )


def _cards(session: Session, cluster: str, device_uuid: str, window: Interval, as_of_ms: int) -> list[Card]:
    """The card on each node that had it in the window."""
    grace_ms = rated_grace_ms(session)
    keys = devices_held_or_present(session, window, grace_ms=grace_ms, only=(cluster, device_uuid))
    return [read_card(session, key, window, as_of_ms=as_of_ms, grace_ms=grace_ms) for key in keys]


def _add_hours(
    hours: dict[int, CardHour], card: Card, rulebook: Rulebook, tenants: frozenset[str] | None
) -> None:
    """Add a card's segments to hours; of those only where one of some tenants (None: all) held a slice."""
    books = rulebook.books[card.key.cluster]
    owned = {key: books.owned(one.claim) for key, one in card.slices.items()}
    mine = None
    if tenants is not None:
        mine = [
            (max(start, one.held.from_ms), min(end, one.held.to_ms))
            for key, one in card.slices.items()
            for start, end, owner in owned[key].stretches(*card.window)
            if owner.path in tenants and overlaps((start, end), (one.held.from_ms, one.held.to_ms))
        ]
    for segment in sweep_card(card, rulebook):
        if mine is not None and not any(overlaps((segment.from_ms, segment.to_ms), when) for when in mine):
            continue
        hour_ms = segment.from_ms - segment.from_ms % MS_PER_HOUR
        hour = hours.setdefault(hour_ms, CardHour(hour_ms))
        hour.present_ppm_ms += segment.present_ppm_ms
        hour.idle_ppm_ms += segment.idle_ppm_ms
        hour.down_ppm_ms += segment.down_ppm_ms
        for part in segment.parts:
            one = card.slices[part.slice_key]
            tenant = owned[part.slice_key].at(segment.from_ms).path
            if tenants is None or tenant in tenants:
                named = _named(one, tenant)
                hour.charged[named] = hour.charged.get(named, 0) + part.charged_ppm_ms
            else:
                hour.others.add(one.allocation_id)
                hour.others_charged_ppm_ms += part.charged_ppm_ms


def _named(one: HeldSlice, tenant: str) -> NamedSlice:
    allocation = one.allocation
    pod = (allocation.namespace, allocation.pod, allocation.slice_key.container)
    return NamedSlice(one.allocation_id, tenant, *pod)


def card_document(report: CardReport) -> Document:
    """A card as JSON: one row an hour."""
    rows = [_hour(hour) for hour in report.hours]
    present = sum(hour.present_ppm_ms for hour in report.hours)
    charged = sum(hour.charged_ppm_ms for hour in report.hours)
    idle = sum(hour.idle_ppm_ms for hour in report.hours)
    down = sum(hour.down_ppm_ms for hour in report.hours)
    return {
        "cluster": report.cluster,
        "node": report.node,
        "device_uuid": report.device_uuid,
        "model": report.model,
        "from": at_text(report.window[0]),
        "to": at_text(report.window[1]),
        "as_of": instant(report.as_of_ms),
        "whole_card": report.is_whole,
        "rows": rows,
        "totals": {
            "present_ppm_ms": present,
            "charged_ppm_ms": charged,
            "idle_ppm_ms": idle,
            "down_ppm_ms": down,
        },
        "reconciliation": {"hours": len(rows), "unexplained_ppm_ms": present - charged - idle - down},
    }


def _hour(hour: CardHour) -> Document:
    return {
        "hour": at_text(hour.hour_ms),
        "present_ppm_ms": hour.present_ppm_ms,
        "charged_ppm_ms": hour.charged_ppm_ms,
        "idle_ppm_ms": hour.idle_ppm_ms,
        "down_ppm_ms": hour.down_ppm_ms,
        "slices": [
            {
                "id": str(one.allocation_id),
                "tenant": one.tenant,
                "namespace": one.namespace,
                "pod": one.pod,
                "container": one.container,
                "charged_ppm_ms": charged,
            }
            for one, charged in hour.charged.items()
        ],
        "others": {"slices": len(hour.others), "charged_ppm_ms": hour.others_charged_ppm_ms},
    }
