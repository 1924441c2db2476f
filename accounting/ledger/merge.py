"""Merging of what witnesses and epochs said about one slice or device, in any order, any number of times.

Invariant: every function here gives the same answer for any order and any repetition of its input.
Nothing reads a clock: the instant up to which the answer is wanted (`as_of_ms`) and the grace are
arguments. Source: DESIGN section 5, `reference/ledger.md §5`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Literal, NamedTuple, TypeVar

import msgspec

from accounting.ledger.pricing import plain_model
from contract.facts import (
    AllocationFact,
    ContainerKind,
    EndKind,
    SliceUsageFact,
    UnallocatedUseFact,
    UsageFact,
    canonical_bytes,
)
from contract.ids import ClusterCode, DeviceUuid, NodeUid, PodUid, SliceKey, TenantKey, Witness

SOURCE_RUNGS = ("nvml", "cache", "none")
"""Sources of SM time, best first."""

HoldEnd = Literal["open", "observed", "inferred", "grace"]
"""Why a hold stops where it does: still held, seen to end, missed in a relist, confirmed by nobody."""


class Report(NamedTuple):
    """An allocation fact as its row has it, by the same names; made in a fraction of the time."""

    allocation_id: str
    """As `str(uuid)` writes it."""
    cluster: ClusterCode
    pod_uid: PodUid
    container: str
    device_uuid: DeviceUuid
    witness: Witness
    node_uid: NodeUid
    node: str
    namespace: str
    pod: str
    vendor: str
    model: str
    mem_mib: int
    core_percent: int
    mig: str | None
    container_kind: ContainerKind
    tenant_key: TenantKey
    bound_at_ms: int
    started_at_ms: int | None
    ended_at_ms: int | None
    end_reason: str | None
    end_kind: EndKind | None
    first_confirmed_at_ms: int
    confirmed_at_ms: int
    labels_json: str

    @property
    def labels(self) -> dict[str, str]:
        """The pod's labels."""
        return {} if self.labels_json == "{}" else msgspec.json.decode(self.labels_json, type=dict[str, str])

    @property
    def slice_key(self) -> SliceKey:
        """The slice that it speaks of."""
        return SliceKey(self.cluster, self.pod_uid, self.container, self.device_uuid)


class MergedAllocation(NamedTuple):
    """One slice in time, as all its witnesses together know it."""

    slice_key: SliceKey
    node_uid: NodeUid
    node: str
    namespace: str
    pod: str
    vendor: str
    model: str
    mem_mib: int
    core_percent: int
    mig: str | None
    container_kind: ContainerKind
    tenant_key: TenantKey
    labels: tuple[tuple[str, str], ...]
    bound_at_ms: int
    started_at_ms: int | None
    first_confirmed_at_ms: int
    confirmed_at_ms: int
    ended_at_ms: int | None
    """The earliest observed end; without one, the latest inferred end, if no witness confirmed later."""
    end_kind: EndKind | None
    end_reason: str | None


class Held(NamedTuple):
    """When a slice is held, seen from one instant."""

    from_ms: int
    to_ms: int
    confirmed_to_ms: int
    """From here to `to_ms` the hold stands on grace alone."""
    end: HoldEnd
    settles_at_ms: int | None
    """From this instant on the answer no longer depends on when one asks; None: it already does not."""


def _snapshot(fact: AllocationFact | Report) -> tuple[str | int | tuple[tuple[str, str], ...], ...]:
    """The names and sizes of a fact in an order that decides between equally early confirmations."""
    labels = tuple(sorted(fact.labels.items()))
    names = (fact.witness, fact.node_uid, fact.node, fact.namespace, fact.pod, fact.vendor, fact.model)
    return (
        *names,
        fact.mem_mib,
        fact.core_percent,
        fact.mig or "",
        fact.container_kind,
        fact.tenant_key,
        labels,
    )


_first_confirmed = attrgetter("first_confirmed_at_ms")
_slice_of = attrgetter("cluster", "pod_uid", "container", "device_uuid")


def merge_allocation(facts: Iterable[AllocationFact | Report]) -> MergedAllocation:
    """Merge every report about one slice, of one or both witnesses.

    Earliest bind and start; the earliest observed end is final; an inferred end counts only while no
    witness confirms the slice later; latest confirmation; names, sizes and tenant key of the earliest
    confirmation (a model that its witness did not know comes from the earliest one that does).

    Raises:
        ValueError: For no fact at all, or facts of several slices.
    """
    reports = _by_confirmation(facts)
    if not reports:
        raise ValueError("merge_allocation takes the reports of exactly one slice")
    first = reports[0]
    slice_key = first.slice_key
    bound_at_ms, confirmed_at_ms = first.bound_at_ms, first.confirmed_at_ms
    started_at_ms, model = first.started_at_ms, first.model
    for fact in reports[1:]:
        if _slice_of(fact) != slice_key:
            raise ValueError("merge_allocation takes the reports of exactly one slice")
        bound_at_ms = min(bound_at_ms, fact.bound_at_ms)
        confirmed_at_ms = max(confirmed_at_ms, fact.confirmed_at_ms)
        if started_at_ms is None or (fact.started_at_ms is not None and fact.started_at_ms < started_at_ms):
            started_at_ms = fact.started_at_ms
        model = model or fact.model
    ended_at_ms, end_kind, end_reason = _merged_end(reports, confirmed_at_ms)
    labels = first.labels
    return MergedAllocation(
        slice_key,
        first.node_uid,
        first.node,
        first.namespace,
        first.pod,
        first.vendor,
        plain_model(model),
        first.mem_mib,
        first.core_percent,
        first.mig,
        first.container_kind,
        first.tenant_key,
        tuple(sorted(labels.items())) if labels else (),
        bound_at_ms,
        started_at_ms,
        first.first_confirmed_at_ms,
        confirmed_at_ms,
        ended_at_ms,
        end_kind,
        end_reason,
    )


def _by_confirmation(facts: Iterable[AllocationFact | Report]) -> list[AllocationFact | Report]:
    """The earliest first confirmation first; only where two are equal, names and sizes decide."""
    reports = list(facts)
    if len(reports) == 1:
        return reports
    if len(reports) == 2:  # the two witnesses, as nearly always
        ahead = reports[0].first_confirmed_at_ms - reports[1].first_confirmed_at_ms
        if ahead:
            return reports if ahead < 0 else [reports[1], reports[0]]
    reports.sort(key=_first_confirmed)
    for earlier, later in pairwise(reports):
        if earlier.first_confirmed_at_ms == later.first_confirmed_at_ms:
            reports.sort(key=lambda fact: (fact.first_confirmed_at_ms, _snapshot(fact)))
            break
    return reports


def _merged_end(
    reports: Sequence[AllocationFact | Report], confirmed_at_ms: int
) -> tuple[int | None, EndKind | None, str | None]:
    observed: tuple[int, str] | None = None
    inferred: list[tuple[int, str]] = []
    for fact in reports:
        if fact.ended_at_ms is None:
            continue
        end = fact.ended_at_ms, fact.end_reason or ""
        if fact.end_kind == "inferred":
            inferred.append(end)
        elif observed is None or end < observed:
            observed = end
    if observed is not None:
        return observed[0], "observed", observed[1] or None
    if not inferred:
        return None, None, None
    at_ms = max(at_ms for at_ms, _ in inferred)
    if confirmed_at_ms > at_ms:
        return None, None, None
    return at_ms, "inferred", min(reason for when, reason in inferred if when == at_ms) or None


def held(allocation: MergedAllocation, *, as_of_ms: int, grace_ms: int) -> Held:
    """When the slice is held, as far as can be said at `as_of_ms`.

    An observed end is final. Without one the slice is held until now, or until its latest confirmation
    plus the grace once that has passed; a later confirmation re-opens it.
    """
    confirmed_ms = allocation.confirmed_at_ms
    limit_ms = confirmed_ms + grace_ms
    end: HoldEnd
    if allocation.ended_at_ms is not None and allocation.end_kind == "observed":
        end, last_ms, confirmed_to_ms = "observed", allocation.ended_at_ms, allocation.ended_at_ms
    elif allocation.ended_at_ms is not None:
        end, last_ms, confirmed_to_ms = "inferred", min(allocation.ended_at_ms, limit_ms), confirmed_ms
    elif as_of_ms > limit_ms:
        end, last_ms, confirmed_to_ms = "grace", limit_ms, confirmed_ms
    else:
        end, last_ms, confirmed_to_ms = "open", limit_ms, as_of_ms
    to_ms = min(last_ms, as_of_ms)
    from_ms = min(allocation.bound_at_ms, to_ms)
    return Held(
        from_ms,
        to_ms,
        max(from_ms, min(confirmed_to_ms, to_ms)),
        end,
        last_ms if as_of_ms <= last_ms else None,
    )


@dataclass(frozen=True, slots=True)
class ContainerHour:
    """What one slice used in one UTC hour, over the epochs taken."""

    covered_ms: int
    unknown_ms: int
    sm_ppm_ms: int
    sm_down_ppm_ms: int
    mem_used_mib_ms: int
    mem_peak_mib: int
    energy_active_mj: int
    blocked_ms: int
    over_limit_ms: int
    source: str
    down_use: tuple[tuple[int, int], ...]
    """The intervals of the epochs that measured SM time while the device counted as down."""


Use = TypeVar("Use", bound=UsageFact)


def take_epochs(uses: Iterable[Use]) -> tuple[list[Use], list[Use]]:
    """Choose the epochs of one hour that count.

    Within an epoch the highest revision stands. Epochs come by (covered_ms descending, epoch id); one is
    taken unless its `[from_ms, to_ms)` overlaps one already taken, so two exporters on a node never
    double a use.

    Returns:
        The uses taken and those left out, both in the order in which they were considered.
    """
    latest: dict[str, Use] = {}
    for use in uses:
        known = latest.get(use.epoch)
        if known is None or use.revision > known.revision:
            latest[use.epoch] = use
        elif use.revision == known.revision:
            latest[use.epoch] = conflict_winner(use, known)
    taken: list[Use] = []
    left_out: list[Use] = []
    for use in sorted(latest.values(), key=lambda use: (-use.covered_ms, use.epoch)):
        clashes = any(use.from_ms < other.to_ms and other.from_ms < use.to_ms for other in taken)
        (left_out if clashes else taken).append(use)
    return taken, left_out


def merge_container_hour(uses: Iterable[SliceUsageFact | UnallocatedUseFact]) -> ContainerHour:
    """The hour of one slice: the sum over the epochs taken, the peak by maximum."""
    taken, _ = take_epochs(uses)
    sources = {use.source for use in taken}
    return ContainerHour(
        covered_ms=sum(use.covered_ms for use in taken),
        unknown_ms=sum(use.unknown_ms for use in taken),
        sm_ppm_ms=sum(use.sm_ppm_ms for use in taken),
        sm_down_ppm_ms=sum(use.sm_down_ppm_ms for use in taken),
        mem_used_mib_ms=sum(use.mem_used_mib_ms for use in taken),
        mem_peak_mib=max((use.mem_peak_mib for use in taken), default=0),
        energy_active_mj=sum(use.energy_active_mj for use in taken),
        blocked_ms=sum(use.blocked_ms for use in taken),
        over_limit_ms=sum(use.over_limit_ms for use in taken),
        source=next((rung for rung in SOURCE_RUNGS if rung in sources), "none"),
        down_use=tuple(sorted((use.from_ms, use.to_ms) for use in taken if use.sm_down_ppm_ms > 0)),
    )


def conflict_winner(first: Use, second: Use) -> Use:
    """Of two facts with one key, epoch and revision, the one that stands: larger (covered_ms, bytes)."""
    return max(first, second, key=lambda use: (use.covered_ms, canonical_bytes(use)))
