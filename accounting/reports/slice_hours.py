"""A slice's time, step by step: what it held, what it was charged, what was measured beside.

Invariant: the steps are cut at full UTC hours or days, so the charged time of all steps is what the slice's
lines charge; a slice without a usage source has no use in any step, which is not a use of 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer
from accounting.errors import NotFoundError
from accounting.ledger.calendar import at_text
from accounting.ledger.intervals import Interval, clip, length_ms, overlaps
from accounting.ledger.sweep import Segment
from accounting.periods.card import Card, HeldSlice, devices_of_slice, read_card
from accounting.periods.compute import read_rulebook
from accounting.periods.rating_state import rated_as_of_ms, rated_grace_ms
from accounting.periods.use import SliceUses, Use, add_uses
from accounting.reports.documents import Document, instant, use_document
from accounting.reports.usage import sweep_card
from accounting.store.walls import CARDS, seeing
from accounting.tenants.tree import list_tenants
from contract.units import MS_PER_HOUR

STEPS = {"hour": MS_PER_HOUR, "day": 24 * MS_PER_HOUR}
"""How long a step may be."""


@dataclass(frozen=True, slots=True)
class SliceStep:
    """One stretch of a slice. Card time in ppm·ms; None on a card of unknown size."""

    from_ms: int
    to_ms: int
    held_ms: int
    own_ppm_ms: int | None
    charged_ppm_ms: int | None
    use: Use | None
    """None: not measured."""


@dataclass(frozen=True, slots=True)
class SliceReport:
    """One slice in a window, as far as it is a viewer's tenants'."""

    slice: HeldSlice
    tenants: Sequence[str]
    """Whose it was, in time order."""
    registered_mib: int | None
    """Of the card; None: nobody reported its size."""
    window: Interval
    as_of_ms: int | None
    steps: Sequence[SliceStep]


def report_slice(
    session: Session,
    viewer: Viewer,
    cluster: str,
    allocation_id: UUID,
    window: Interval,
    *,
    step_ms: int = MS_PER_HOUR,
) -> SliceReport:
    """What one slice held, was charged and used, step by step.

    Args:
        session: A reading transaction.
        viewer: Who asks.
        cluster: Where it is.
        allocation_id: Which slice, as its lines name it.
        window: From when to when.
        step_ms: The length of a step, of whole hours.

    Raises:
        NotFoundError: No such slice in the window, or none that the viewer may see.
    """
    as_of_ms = rated_as_of_ms(session)
    tenants = frozenset(tenant.path for tenant in list_tenants(session, viewer))
    with seeing(session, CARDS):
        found = None
        if as_of_ms is not None:
            grace_ms = rated_grace_ms(session)
            for key in devices_of_slice(session, cluster, allocation_id):
                card = read_card(session, key, window, as_of_ms=as_of_ms, grace_ms=grace_ms)
                found = found or _slice_of(session, card, allocation_id, tenants, step_ms, as_of_ms)
    if found is None:
        raise NotFoundError(
            f'no slice of this id in cluster "{cluster}" in this window; take one from a statement, '
            "where each line names its own"
        )
    return found


def _slice_of(  # noqa: PLR0917 - one slice of one card
    session: Session,
    card: Card,
    allocation_id: UUID,
    tenants: frozenset[str],
    step_ms: int,
    as_of_ms: int,
) -> SliceReport | None:
    one = next((each for each in card.slices.values() if each.allocation_id == allocation_id), None)
    if one is None:
        return None
    rulebook = read_rulebook(session)
    held = (one.held.from_ms, one.held.to_ms)
    stretches = [
        (max(start, held[0]), min(end, held[1]), owner.path)
        for start, end, owner in rulebook.books[card.key.cluster].owned(one.claim).stretches(*card.window)
        if owner.path in tenants and overlaps((start, end), held)
    ]
    if not stretches:
        return None
    times = [(start, end) for start, end, _ in stretches]
    segments = [each for each in sweep_card(card, rulebook) if clip([(each.from_ms, each.to_ms)], held)]
    uses = SliceUses(session, [(card.key.cluster, allocation_id)], card.window)
    return SliceReport(
        slice=one,
        tenants=list(dict.fromkeys(path for *_, path in stretches)),
        registered_mib=segments[-1].registered_mib if segments else None,
        window=card.window,
        as_of_ms=as_of_ms,
        steps=list(_steps(one, card, segments, times, uses, step_ms)),
    )


def _steps(  # noqa: PLR0917 - what a step is made of
    one: HeldSlice,
    card: Card,
    segments: Sequence[Segment],
    times: Sequence[Interval],
    uses: SliceUses,
    step_ms: int,
) -> Iterable[SliceStep]:
    key = one.allocation.slice_key
    first, last = times[0][0], times[-1][1]
    own: dict[int, int] = {}
    charged: dict[int, int] = {}
    for segment in segments:
        if not any(start <= segment.from_ms < end for start, end in times):
            continue
        at = segment.from_ms - segment.from_ms % step_ms
        for part in segment.parts:
            if part.slice_key == key:
                own[at] = own.get(at, 0) + part.own_ppm_ms
                charged[at] = charged.get(at, 0) + part.charged_ppm_ms
    nothing = None if card.is_unknown else 0
    for at in range(first - first % step_ms, last, step_ms):
        within = clip(times, (at, at + step_ms))
        parts = [uses.of(one.allocation_id, when) for when in within]
        yield SliceStep(
            from_ms=at,
            to_ms=at + step_ms,
            held_ms=length_ms(within),
            own_ppm_ms=own.get(at, nothing),
            charged_ppm_ms=charged.get(at, nothing),
            use=add_uses(parts),
        )


def slice_steps_document(report: SliceReport) -> Document:
    """A slice as JSON: one row a step."""
    allocation = report.slice.allocation
    return {
        "id": str(report.slice.allocation_id),
        "cluster": allocation.slice_key.cluster,
        "namespace": allocation.namespace,
        "pod": allocation.pod,
        "container": allocation.slice_key.container,
        "node": allocation.node,
        "device_uuid": allocation.slice_key.device_uuid,
        "model": allocation.model,
        "mem_mib": allocation.mem_mib,
        "core_percent": allocation.core_percent,
        "tenants": list(report.tenants),
        "from": at_text(report.window[0]),
        "to": at_text(report.window[1]),
        "as_of": instant(report.as_of_ms),
        "rows": [
            {
                "from": at_text(step.from_ms),
                "to": at_text(step.to_ms),
                "held_ms": step.held_ms,
                "own_ppm_ms": step.own_ppm_ms,
                "charged_ppm_ms": step.charged_ppm_ms,
                "use": use_document(step.use),
            }
            for step in report.steps
        ],
        "totals": {
            "held_ms": sum(step.held_ms for step in report.steps),
            "own_ppm_ms": sum(step.own_ppm_ms or 0 for step in report.steps),
            "charged_ppm_ms": sum(step.charged_ppm_ms or 0 for step in report.steps),
            "use": use_document(add_uses([step.use for step in report.steps])),
        },
    }
