"""What was measured on slices, merged over epochs and cut to days: shown beside the ledger, never billed.

Invariant: a slice without a usage source has no use (None), which is not a use of 0. An hour that
straddles a window's edge is divided by the time its epochs cover.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

import msgspec
from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.facts import kinds
from accounting.ledger.calendar import day_bounds_ms
from accounting.ledger.intervals import Interval
from accounting.ledger.merge import ContainerHour, merge_container_hour, take_epochs
from accounting.ledger.tenancy import Claim
from accounting.store.models import UnallocatedFact, UsageFact
from accounting.tenants.rules import Owners
from contract.apportion import apportion
from contract.facts import SliceUsageFact, UnallocatedUseFact
from contract.units import MS_PER_HOUR

_IDS_PER_QUERY = 500
_DIVIDED = (
    "covered_ms",
    "unknown_ms",
    "sm_ppm_ms",
    "sm_down_ppm_ms",
    "mem_used_mib_ms",
    "energy_active_mj",
    "blocked_ms",
    "over_limit_ms",
)


@dataclass(frozen=True, slots=True)
class Use:
    """What was measured over some time; sums, and the largest peak."""

    covered_ms: int
    unknown_ms: int
    sm_ppm_ms: int
    mem_used_mib_ms: int
    mem_peak_mib: int
    energy_active_mj: int
    blocked_ms: int
    over_limit_ms: int
    source: str


@dataclass(frozen=True, slots=True)
class UnallocatedUse:
    """Use by a pod that held no allocation on the device: listed, costs nothing."""

    cluster: str
    tenant_key: str
    namespace: str
    pod: str
    container: str
    device_uuid: str
    use: Use
    tenant: str = ""
    """Whose it was; one who used it under several owners is listed for each."""
    account: str = ""


def add_uses(uses: Iterable[Use | None]) -> Use | None:
    """The sum of what was measured; None when nothing was."""
    measured = [use for use in uses if use is not None]
    if not measured:
        return None
    sources = {use.source for use in measured}
    return Use(
        covered_ms=sum(use.covered_ms for use in measured),
        unknown_ms=sum(use.unknown_ms for use in measured),
        sm_ppm_ms=sum(use.sm_ppm_ms for use in measured),
        mem_used_mib_ms=sum(use.mem_used_mib_ms for use in measured),
        mem_peak_mib=max(use.mem_peak_mib for use in measured),
        energy_active_mj=sum(use.energy_active_mj for use in measured),
        blocked_ms=sum(use.blocked_ms for use in measured),
        over_limit_ms=sum(use.over_limit_ms for use in measured),
        source="nvml" if "nvml" in sources else "cache" if "cache" in sources else "none",
    )


class SliceUses:
    """The measured hours of some slices, read once, to be asked for windows."""

    def __init__(self, session: Session, slices: Iterable[tuple[str, UUID]], window: Interval) -> None:
        """Read the hours of slices, given as (cluster, allocation id), that touch a window."""
        self._hours: dict[UUID, dict[int, list[SliceUsageFact]]] = defaultdict(lambda: defaultdict(list))
        by_cluster: dict[str, set[UUID]] = defaultdict(set)
        for cluster, allocation_id in slices:
            by_cluster[cluster].add(allocation_id)
        for cluster, ids in sorted(by_cluster.items()):
            ordered = sorted(ids)
            for start in range(0, len(ordered), _IDS_PER_QUERY):
                self._read(session, cluster, ordered[start : start + _IDS_PER_QUERY], window)

    def _read(self, session: Session, cluster: str, ids: Sequence[UUID], window: Interval) -> None:
        table = kinds.SLICE_USAGE.table
        names = [column.name for column in table.columns]
        rows = session.execute(
            select(table).where(
                UsageFact.cluster == cluster,
                UsageFact.hour_ms > window[0] - MS_PER_HOUR,
                UsageFact.hour_ms < window[1],
                UsageFact.allocation_id.in_(ids),
            )
        )
        for row in rows:
            values = dict(zip(names, row, strict=True))
            fact = kinds.SLICE_USAGE.fact_of(values)
            self._hours[values["allocation_id"]][fact.hour_ms].append(fact)

    def of(self, allocation_id: UUID, window: Interval) -> Use | None:
        """What a slice used in a window; None when nothing measured it there."""
        hours = self._hours.get(allocation_id, {})
        return add_uses(
            _use(merge_container_hour(_cut(facts, window)))
            for hour_ms, facts in sorted(hours.items())
            if window[0] - MS_PER_HOUR < hour_ms < window[1] and _has_source(facts)
        )

    def hours_of(self, allocation_id: UUID, window: Interval) -> list[Use]:
        """What a slice used in each measured hour of a window, in order."""
        hours = sorted(self._hours.get(allocation_id, {}))
        found = (self.of(allocation_id, _common(window, (at_ms, at_ms + MS_PER_HOUR))) for at_ms in hours)
        return [use for use in found if use is not None]


def _common(one: Interval, other: Interval) -> Interval:
    return max(one[0], other[0]), min(one[1], other[1])


class SliceLine(Protocol):
    """What a line of a slice says about when it is."""

    @property
    def id(self) -> int:
        """Its key."""

    @property
    def resource_key(self) -> str:
        """The slice."""

    @property
    def day_ms(self) -> int:
        """The local midnight at which its day begins."""

    @property
    def charge_from_ms(self) -> int:
        """The first instant that it charges."""


def measured_windows(lines: Sequence[SliceLine], time_zone: str) -> dict[int, Interval]:
    """By line: the part of its day whose measured use stands beside it; together they are the day."""
    of_day: dict[tuple[str, int], list[SliceLine]] = {}
    for line in lines:
        of_day.setdefault((line.resource_key, line.day_ms), []).append(line)
    windows = {}
    for (_, day_ms), siblings in of_day.items():
        ordered = sorted(siblings, key=lambda line: line.charge_from_ms)
        starts = [day_ms, *(line.charge_from_ms for line in ordered[1:])]
        ends = [*starts[1:], day_bounds_ms(day_ms, time_zone)[1]]
        windows.update({line.id: (a, b) for line, a, b in zip(ordered, starts, ends, strict=True)})
    return windows


def unallocated_uses(session: Session, owners: Owners, window: Interval) -> list[UnallocatedUse]:
    """Use without an allocation in a window, per container, device and owner."""
    table = kinds.UNALLOCATED_USE.table
    names = [column.name for column in table.columns]
    rows = session.execute(
        select(table).where(
            UnallocatedFact.cluster.in_(owners.accounts),
            UnallocatedFact.hour_ms > window[0] - MS_PER_HOUR,
            UnallocatedFact.hour_ms < window[1],
        )
    )
    facts: dict[tuple[str, ...], dict[int, list[UnallocatedUseFact]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        fact = kinds.UNALLOCATED_USE.fact_of(dict(zip(names, row, strict=True)))
        claim = Claim(fact.cluster, fact.tenant_key, fact.namespace)
        owner = owners.of(claim).at(max(fact.from_ms, window[0]))
        whose = (owner.path, owners.account_of(owner, fact.cluster))
        key = (fact.cluster, fact.pod_uid, fact.container, fact.device_uuid, *whose)
        facts[key][fact.hour_ms].append(fact)
    found = []
    for (*_, tenant, account), hours in sorted(facts.items()):
        use = add_uses(_use(merge_container_hour(_cut(hour, window))) for hour in hours.values())
        latest = max(
            (fact for hour in hours.values() for fact in hour), key=lambda fact: (fact.hour_ms, fact.to_ms)
        )
        if use is not None:
            where = (latest.cluster, latest.tenant_key, latest.namespace, latest.pod)
            found.append(UnallocatedUse(*where, latest.container, latest.device_uuid, use, tenant, account))
    return found


def _has_source(facts: Iterable[SliceUsageFact]) -> bool:
    return any(fact.source != "none" or fact.covered_ms for fact in facts)


def _cut(
    facts: Sequence[SliceUsageFact] | Sequence[UnallocatedUseFact], window: Interval
) -> list[SliceUsageFact | UnallocatedUseFact]:
    """The epochs taken of an hour, each divided at the window's edges by time."""
    taken, _ = take_epochs(list[SliceUsageFact | UnallocatedUseFact](facts))
    cut = []
    for fact in taken:
        start, end = max(fact.from_ms, window[0]), min(fact.to_ms, window[1])
        if start >= end:
            continue
        weights = [start - fact.from_ms, end - start, fact.to_ms - end]
        if weights[0] or weights[2]:
            parts = {name: apportion(getattr(fact, name), weights)[1] for name in _DIVIDED}
            cut.append(msgspec.structs.replace(fact, from_ms=start, to_ms=end, **parts))
        else:
            cut.append(fact)
    return cut


def _use(hour: ContainerHour) -> Use:
    return Use(
        covered_ms=hour.covered_ms,
        unknown_ms=hour.unknown_ms,
        sm_ppm_ms=hour.sm_ppm_ms,
        mem_used_mib_ms=hour.mem_used_mib_ms,
        mem_peak_mib=hour.mem_peak_mib,
        energy_active_mj=hour.energy_active_mj,
        blocked_ms=hour.blocked_ms,
        over_limit_ms=hour.over_limit_ms,
        source=hour.source,
    )
