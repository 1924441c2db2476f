"""Hour books: what each slice and device did in each UTC hour, and the facts made of it.

Facts are cumulative within (hour, epoch) and carry a revision; an interval that crosses an hour is cut
exactly. Invariants: the parts of a cut add up to the whole; `covered + unknown ≤ to - from` and
`sm ≤ covered × 10⁶` hold in every fact, which is what accounting refuses a fact for.
Source: `reference/ledger.md §5`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import msgspec

from contract.facts import DeviceUsageFact, SliceUsageFact, UnallocatedUseFact, UsageFact
from contract.ids import ClusterCode, DeviceUuid, EpochId, NodeUid, PodUid, TenantKey
from contract.units import MIB, MS_PER_HOUR, PPM, hour_start_ms
from exporter.node.metering.counters import ByteTime, Labels, OwnerCounters, OwnerKey

SETTLE_MS = 60_000
"""An hour's book stays open this long after its end: a window may reach back over the edge."""


class Piece(msgspec.Struct, frozen=True, gc=False):
    """The part of an interval that lies in one hour: `[from_ms, to_ms)`."""

    hour_ms: int
    from_ms: int
    to_ms: int


def pieces(from_ms: int, to_ms: int) -> list[Piece]:
    """Cut an interval at the hours it crosses; none for an empty interval."""
    found = []
    while from_ms < to_ms:
        hour_ms = hour_start_ms(from_ms)
        end_ms = min(to_ms, hour_ms + MS_PER_HOUR)
        found.append(Piece(hour_ms, from_ms, end_ms))
        from_ms = end_ms
    return found


def shares(value: int, cut: list[Piece]) -> list[int]:
    """A whole number over the pieces by their length; the parts add up to it.

    Each edge is rounded down, so a part is never more than its length times the rate rounded up.
    """
    if len(cut) <= 1:
        return [value] * len(cut)
    start_ms, length_ms = cut[0].from_ms, cut[-1].to_ms - cut[0].from_ms
    edges = [value * (piece.to_ms - start_ms) // length_ms for piece in cut]
    return [edge - before for before, edge in zip([0, *edges], edges, strict=False)]


class HourUse(msgspec.Struct, kw_only=True, array_like=True):
    """One slice's (or unallocated user's) hour."""

    pod_uid: PodUid
    container: str
    device_uuid: DeviceUuid
    labels: Labels
    is_slice: bool
    hour_ms: int
    from_ms: int
    to_ms: int
    covered_ms: int = 0
    unknown_ms: int = 0
    sm_ppm_ms: int = 0
    sm_down_ppm_ms: int = 0
    memory_used: ByteTime = msgspec.field(default_factory=ByteTime)
    memory_peak_bytes: int = 0
    energy_active_mj: int = 0
    blocked_ms: int = 0
    over_limit_ms: int = 0
    source: str = "none"
    revision: int = 0
    is_dirty: bool = True


class HourDevice(msgspec.Struct, kw_only=True, array_like=True):
    """One device's hour."""

    device_uuid: DeviceUuid
    hour_ms: int
    from_ms: int
    to_ms: int
    covered_ms: int = 0
    busy_ppm_ms: int = 0
    energy_mj: int = 0
    energy_idle_mj: int = 0
    energy_unattributed_mj: int = 0
    sm_unattributed_ppm_ms: int = 0
    revision: int = 0
    is_dirty: bool = True


@dataclass(frozen=True, slots=True)
class Origin:
    """Who speaks: what every fact of this run carries."""

    cluster: ClusterCode
    node_uid: NodeUid
    epoch: EpochId


class HourBooks:
    """All open hours of one epoch."""

    def __init__(self, uses: Iterable[HourUse] = (), devices: Iterable[HourDevice] = ()) -> None:
        self._uses = {(_key(book), book.hour_ms): book for book in uses}
        self._devices = {(book.device_uuid, book.hour_ms): book for book in devices}

    @property
    def uses(self) -> list[HourUse]:
        """The books of slices and unallocated users, fit to be stored."""
        return list(self._uses.values())

    @property
    def devices(self) -> list[HourDevice]:
        """The books of devices, fit to be stored."""
        return list(self._devices.values())

    def use(self, key: OwnerKey, owner: OwnerCounters, piece: Piece) -> HourUse:
        """The book of an owner's hour, opened at need and widened to the piece."""
        at = (key, piece.hour_ms)
        book = self._uses.get(at)
        if book is None:
            book = self._uses[at] = HourUse(
                pod_uid=owner.pod_uid,
                container=owner.container,
                device_uuid=owner.device_uuid,
                labels=owner.labels,
                is_slice=owner.is_slice,
                hour_ms=piece.hour_ms,
                from_ms=piece.from_ms,
                to_ms=piece.to_ms,
            )
        widen(book, piece)
        return book

    def device(self, device_uuid: DeviceUuid, piece: Piece) -> HourDevice:
        """The book of a device's hour, opened at need and widened to the piece."""
        at = (device_uuid, piece.hour_ms)
        book = self._devices.get(at)
        if book is None:
            book = self._devices[at] = HourDevice(
                device_uuid=device_uuid, hour_ms=piece.hour_ms, from_ms=piece.from_ms, to_ms=piece.to_ms
            )
        widen(book, piece)
        return book

    def take_facts(
        self, origin: Origin, now_ms: int, *, everything: bool, ended: Collection[OwnerKey] = ()
    ) -> list[UsageFact]:
        """Facts of the books that changed and are due, each with its next revision.

        Due are books of hours that are over (they are dropped then), those of owners that ended, and,
        at a push or at the end of the run, everything.
        """
        over_ms = hour_start_ms(now_ms - SETTLE_MS)
        facts: list[UsageFact] = []
        for use in self._uses.values():
            if use.is_dirty and (everything or use.hour_ms < over_ms or (ended and _key(use) in ended)):
                use.revision, use.is_dirty = use.revision + 1, False
                facts.append(_use_fact(origin, use))
        for device in self._devices.values():
            if device.is_dirty and (everything or device.hour_ms < over_ms):
                device.revision, device.is_dirty = device.revision + 1, False
                facts.append(_device_fact(origin, device))
        if any(book.hour_ms < over_ms for book in self._devices.values()) or any(
            book.hour_ms < over_ms for book in self._uses.values()
        ):
            self._uses = {at: book for at, book in self._uses.items() if book.hour_ms >= over_ms}
            self._devices = {at: book for at, book in self._devices.items() if book.hour_ms >= over_ms}
        return facts


def _key(book: HourUse) -> OwnerKey:
    return OwnerKey(book.pod_uid, book.container, book.device_uuid, book.is_slice)


def widen(book: HourUse | HourDevice, piece: Piece) -> None:
    """Let a book reach over a piece of its hour."""
    # Every book is asked several times at every tick, and grows at one of them.
    if piece.to_ms > book.to_ms or piece.from_ms < book.from_ms:
        book.from_ms = min(book.from_ms, piece.from_ms)
        book.to_ms = max(book.to_ms, piece.to_ms)
    book.is_dirty = True


def _use_fact(origin: Origin, book: HourUse) -> SliceUsageFact | UnallocatedUseFact:
    # A process may be credited up to one sample period of lateness: in an hour of a few seconds that
    # can exceed what was covered, and accounting refuses such a fact.
    sm_ppm_ms = min(book.sm_ppm_ms, book.covered_ms * PPM)
    fact = SliceUsageFact(
        cluster=origin.cluster,
        node_uid=origin.node_uid,
        pod_uid=book.pod_uid,
        container=book.container,
        device_uuid=book.device_uuid,
        hour_ms=book.hour_ms,
        epoch=origin.epoch,
        revision=book.revision,
        from_ms=book.from_ms,
        to_ms=book.to_ms,
        covered_ms=book.covered_ms,
        unknown_ms=book.unknown_ms,
        sm_ppm_ms=sm_ppm_ms,
        sm_down_ppm_ms=min(book.sm_down_ppm_ms, sm_ppm_ms),
        mem_used_mib_ms=book.memory_used.mib_ms,
        mem_peak_mib=-(-book.memory_peak_bytes // MIB),
        energy_active_mj=book.energy_active_mj,
        blocked_ms=book.blocked_ms,
        over_limit_ms=book.over_limit_ms,
        source=book.source,
    )
    if book.is_slice:
        return fact
    return UnallocatedUseFact(
        **{name: getattr(fact, name) for name in fact.__struct_fields__},
        namespace=book.labels.namespace,
        pod=book.labels.pod,
        tenant_key=TenantKey(book.labels.tenant),
    )


def _device_fact(origin: Origin, book: HourDevice) -> DeviceUsageFact:
    return DeviceUsageFact(
        cluster=origin.cluster,
        node_uid=origin.node_uid,
        device_uuid=book.device_uuid,
        hour_ms=book.hour_ms,
        epoch=origin.epoch,
        revision=book.revision,
        from_ms=book.from_ms,
        to_ms=book.to_ms,
        covered_ms=book.covered_ms,
        busy_ppm_ms=min(book.busy_ppm_ms, book.covered_ms * PPM),
        energy_mj=book.energy_mj,
        energy_idle_mj=book.energy_idle_mj,
        energy_unattributed_mj=book.energy_unattributed_mj,
        sm_unattributed_ppm_ms=min(book.sm_unattributed_ppm_ms, book.covered_ms * PPM),
    )
