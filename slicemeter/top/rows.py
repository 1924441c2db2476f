"""What the live table shows, out of two pages of an exporter: pure, nothing is asked or drawn here.

Invariants: a rate is the growth of a counter over the time between the snapshots that carry it, so it is a
mean and not the last sample; what a page does not say is None and never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from exporter.exposition.reading import Labels, Page

HISTORY: Final = 24
"""Rates of a slice that are kept for its sparkline."""

_IDENTITY: Final = ("node", "namespace", "pod", "container", "device_uuid")

SliceKey: TypeAlias = tuple[str, ...]
"""The exporter's address, then node, namespace, pod, container and device UUID."""


@dataclass(frozen=True, slots=True)
class Row:
    """One slice now.

    Attributes:
        model: Of its card; empty when the page does not say.
        card: Number of the card in its node, or the UUID.
        sm_ratio: Mean SM use since the snapshot before, 1 = one whole card.
        core_ratio: Cores granted, 1 = one whole card; 0 = none reserved.
        power_watts: Mean power at work, idle power left out.
        unknown_ratio: Part of the time in which SM use could not be measured.
        blocked_ratio: Part of the time blocked by a slice of higher priority.
        is_over_limit: It used more memory than its limit.
    """

    key: SliceKey
    tenant: str
    namespace: str
    pod: str
    container: str
    node: str
    card: str
    model: str
    sm_ratio: float | None
    core_ratio: float | None
    used_bytes: float | None
    allocated_bytes: float | None
    power_watts: float | None
    unknown_ratio: float | None
    blocked_ratio: float | None
    is_over_limit: bool


SORTS: Final[Mapping[str, Callable[[Row], tuple[object, ...]]]] = {
    "sm": lambda row: (-(row.sm_ratio if row.sm_ratio is not None else -1.0), row.key),
    "used": lambda row: (-(row.used_bytes or 0.0), row.key),
    "allocated": lambda row: (-(row.allocated_bytes or 0.0), row.key),
    "power": lambda row: (-(row.power_watts or 0.0), row.key),
    "tenant": lambda row: (row.tenant, row.key),
    "pod": lambda row: (row.namespace, row.pod, row.key),
    "card": lambda row: (row.node, row.card, row.key),
}
"""By name: what comes first in the table; of figures the largest, of names the first."""


def rows_of(source: str, page: Page, before: Page | None) -> list[Row]:
    """The slices on an exporter's page.

    Args:
        source: The exporter's address.
        page: Its newest page.
        before: An older one of the same exporter; None: no rates yet.
    """
    elapsed_s = _elapsed_s(page, before)
    cards = {labels["device_uuid"]: labels for labels, _ in page.find("device_info")}
    now, then = _Lookup(page), None if before is None else _Lookup(before)
    return [
        _row(source, labels, cards.get(labels["device_uuid"], {}), _Reading(labels, now, then, elapsed_s))
        for labels, _ in page.find("slice_memory_allocated_bytes")
    ]


def _elapsed_s(page: Page, before: Page | None) -> float:
    if before is None:
        return 0.0
    newer, older = (one.value("snapshot_timestamp_seconds") or one.at_s for one in (page, before))
    return newer - older


class _Lookup:
    """A page's slice series by identity: built once, asked for every slice."""

    def __init__(self, page: Page) -> None:
        self._series: dict[tuple[str, SliceKey], float] = {}
        for name, series in page.series.items():
            if name.startswith("slice_"):
                for labels, value in series:
                    # Several kinds, reasons or sources of one slice add up.
                    at = (f"{name}|{labels['kind']}" if "kind" in labels else name, identity_of(labels))
                    self._series[at] = self._series.get(at, 0.0) + value

    def get(self, name: str, key: SliceKey) -> float | None:
        return self._series.get((name, key))


@dataclass(frozen=True, slots=True)
class _Reading:
    labels: Labels
    now: _Lookup
    then: _Lookup | None
    elapsed_s: float

    def value(self, name: str) -> float | None:
        return self.now.get(name, identity_of(self.labels))

    def rate(self, name: str) -> float | None:
        """Growth a second; None without two snapshots, and across a counter's reset."""
        key = identity_of(self.labels)
        newer = self.now.get(name, key)
        older = None if self.then is None else self.then.get(name, key)
        if newer is None or older is None or newer < older or self.elapsed_s <= 0:
            return None
        return (newer - older) / self.elapsed_s


def identity_of(labels: Labels) -> SliceKey:
    """What names a slice on its exporter's page."""
    return tuple(labels.get(name, "") for name in _IDENTITY)


def _row(source: str, labels: Labels, card: Labels, reading: _Reading) -> Row:
    sm_ratio = reading.rate("slice_sm_seconds_total")
    unknown = reading.rate("slice_unknown_seconds_total")
    is_unknown = unknown is not None and unknown > 0.99
    used, limit = reading.value("slice_memory_used_bytes"), reading.value("slice_memory_limit_bytes")
    return Row(
        key=(source, *identity_of(labels)),
        tenant=labels["tenant"],
        namespace=labels["namespace"],
        pod=labels["pod"],
        container=labels["container"],
        node=labels["node"],
        card=card.get("index") or labels["device_uuid"],
        model=card.get("model", ""),
        sm_ratio=None if is_unknown else sm_ratio,
        core_ratio=reading.value("slice_core_allocated_ratio"),
        used_bytes=used,
        allocated_bytes=reading.value("slice_memory_allocated_bytes"),
        power_watts=reading.rate("slice_energy_joules_total|active"),
        unknown_ratio=unknown,
        blocked_ratio=reading.rate("slice_blocked_seconds_total"),
        is_over_limit=used is not None and limit is not None and used > limit,
    )


@dataclass(frozen=True, slots=True)
class Filters:
    """What the table is narrowed to; None: everything."""

    tenant: str | None = None
    namespace: str | None = None

    def lets_pass(self, row: Row) -> bool:
        """Whether a slice is shown; a tenant includes all below it."""
        is_tenant = self.tenant is None or f"{row.tenant}/".startswith(f"{self.tenant.strip('/')}/")
        return is_tenant and self.namespace in {None, row.namespace}


def ordered(rows: Iterable[Row], sort: str, *, is_reversed: bool = False) -> list[Row]:
    """The rows in the order of one of `SORTS`."""
    return sorted(rows, key=SORTS[sort], reverse=is_reversed)


_STEPS: Final = "▁▂▃▄▅▆▇█"


def sparkline(ratios: Sequence[float | None]) -> str:
    """Shares of a card as a line of blocks, oldest first; a gap where nothing was measured."""
    return "".join(
        " " if ratio is None else _STEPS[min(len(_STEPS) - 1, int(max(ratio, 0.0) * len(_STEPS)))]
        for ratio in ratios
    )
