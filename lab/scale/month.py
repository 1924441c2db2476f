"""What happened on each card of a large cluster in October 2026, made from the card's number alone.

Each card has ten slots. One allocation follows another on each slot, four a day with a pause of minutes
between, at instants that no clock's edge aligns with; most days one of the four holds over midnight.
Sizes vary, so that some cards are over-booked for a while. Both witnesses report everything, as a node's
and the cluster's exporter do. One card in fifty is down for half an hour.

Invariant: equal numbers make equal facts. Nothing here computes a share or an amount.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from contract.facts import (
    AllocationFact,
    DeviceUsageFact,
    NodeStateFact,
    PresenceFact,
    SliceUsageFact,
)
from contract.ids import ClusterCode, DeviceUuid, EpochId, NodeUid, PodUid, TenantKey, Witness
from contract.units import MS_PER_HOUR

CLUSTER = ClusterCode("large")
ZONE = "Europe/Berlin"
MONTH = "2026-10"
STARTS_MS = 1_790_805_600_000
"""30 September 22:00Z, midnight in Berlin."""
ENDS_MS = 1_793_487_600_000
"""31 October 23:00Z: 745 hours later."""
NOW_MS = ENDS_MS + 4 * 24 * MS_PER_HOUR
"""When the month is billed: past the account's three days for late facts."""

CARDS_PER_NODE = 8
SLOTS = 10
MODELS = (("NVIDIA A100-SXM4-80GB", 81_920), ("NVIDIA L40S", 46_068))
TENANTS = 200

_TURN_MS = 6 * MS_PER_HOUR
_MEMORY_PARTS = (2, 4, 6, 8, 10, 12)
"""Of a hundred parts of a card; the last three are the commonest."""
_CORES = (0, 0, 5, 10, 10, 15)
_WITNESSES: tuple[Witness, ...] = ("node", "cluster")
_IDLE_WATTS, _ACTIVE_WATTS = 55, 30


@dataclass(frozen=True, slots=True)
class LargeCard:
    """One card, by its number from 0."""

    number: int

    @property
    def node_number(self) -> int:
        """Its node, by its number from 0."""
        return self.number // CARDS_PER_NODE

    @property
    def node_uid(self) -> NodeUid:
        """The UID of its node."""
        return NodeUid(f"5d3a9f20-0000-4000-8000-{self.node_number:012x}")

    @property
    def node(self) -> str:
        """The name of its node."""
        return f"gpu-{self.node_number:04d}"

    @property
    def uuid(self) -> DeviceUuid:
        """Its own UUID."""
        return DeviceUuid(f"GPU-9c0e5c1a-0000-4000-8000-{self.number:012x}")

    @property
    def model(self) -> tuple[str, int]:
        """Its model and registered memory: one in four is of the second."""
        return MODELS[self.node_number % 4 == 3]

    def allocations(self) -> Iterator[AllocationFact]:
        """Everything that was held on it, as both witnesses report it, in no order of time."""
        random = Random(self.number)
        model, registered_mib = self.model
        for slot in range(SLOTS):
            at_ms = STARTS_MS + random.randrange(0, 20 * 60_000)
            turn = 0
            while at_ms < ENDS_MS - 60_000:
                until_ms = min(ENDS_MS, at_ms + _TURN_MS - random.randrange(60_000, 25 * 60_000))
                tenant = random.randrange(TENANTS)
                mem_mib = registered_mib * random.choice(_MEMORY_PARTS) // 100
                cores = random.choice(_CORES)
                started_ms = min(until_ms, at_ms + random.randrange(2_000, 90_000))
                for witness in _WITNESSES:
                    yield AllocationFact(
                        cluster=CLUSTER,
                        pod_uid=PodUid(f"{self.number:08x}-{slot:04x}-4000-8000-{turn:012x}"),
                        container="main",
                        device_uuid=self.uuid,
                        witness=witness,
                        node_uid=self.node_uid,
                        node=self.node,
                        namespace=f"team-{tenant:03d}",
                        pod=f"job-{self.number}-{slot}-{turn}",
                        vendor="NVIDIA",
                        model=model,
                        mem_mib=mem_mib,
                        core_percent=cores,
                        container_kind="app",
                        tenant_key=TenantKey(f"team-{tenant:03d}"),
                        bound_at_ms=at_ms,
                        started_at_ms=started_ms,
                        ended_at_ms=until_ms,
                        end_reason="Completed",
                        end_kind="observed",
                        first_confirmed_at_ms=at_ms + (500 if witness == "cluster" else 1_500),
                        confirmed_at_ms=until_ms,
                    )
                turn += 1
                # Turns begin six hours apart on average, so that a slot has four a day.
                at_ms = max(until_ms + 1_000, at_ms + _TURN_MS + random.randrange(-5 * 60_000, 5 * 60_000))

    def presence(self) -> Iterator[PresenceFact]:
        """When it was there, as both witnesses report it."""
        edges: list[tuple[int, int, str | None]] = [(STARTS_MS, ENDS_MS, None)]
        if self.number % 50 == 7:
            down_ms = STARTS_MS + Random(self.number).randrange(24, 700) * MS_PER_HOUR + 123_456
            up_ms = down_ms + MS_PER_HOUR // 2
            edges = [(STARTS_MS, down_ms, None), (down_ms, up_ms, "xid"), (up_ms, ENDS_MS, None)]
        model, registered_mib = self.model
        for from_ms, to_ms, reason in edges:
            for witness in _WITNESSES:
                yield PresenceFact(
                    cluster=CLUSTER,
                    node_uid=self.node_uid,
                    device_uuid=self.uuid,
                    witness=witness,
                    node=self.node,
                    from_ms=from_ms,
                    to_ms=to_ms,
                    state="healthy" if reason is None else "down",
                    reason=reason,
                    model=model,
                    vendor="NVIDIA",
                    registered_mib=registered_mib,
                    physical_mib=registered_mib,
                    slots=SLOTS,
                )

    def device_usage(self) -> Iterator[DeviceUsageFact]:
        """Its energy by the hour: idle draw, and what the ten slots' work drew."""
        for hour_ms in range(STARTS_MS, ENDS_MS, MS_PER_HOUR):
            idle_mj = _IDLE_WATTS * MS_PER_HOUR + self.number % 1_000
            active_mj = SLOTS * self._active_mj(hour_ms)
            yield DeviceUsageFact(
                cluster=CLUSTER,
                node_uid=self.node_uid,
                device_uuid=self.uuid,
                hour_ms=hour_ms,
                epoch=EpochId(f"{self.node_number:032x}"),
                revision=12,
                from_ms=hour_ms,
                to_ms=hour_ms + MS_PER_HOUR,
                covered_ms=MS_PER_HOUR,
                busy_ppm_ms=MS_PER_HOUR * 600_000,
                energy_mj=idle_mj + active_mj,
                energy_idle_mj=idle_mj,
                energy_unattributed_mj=0,
                sm_unattributed_ppm_ms=0,
            )

    def slice_usage(self) -> Iterator[SliceUsageFact]:
        """What its slices used by the hour; one that begins or ends within the hour for that part of it."""
        for held in self.allocations():
            if held.witness != "node" or held.ended_at_ms is None:
                continue
            hour_ms = held.bound_at_ms - held.bound_at_ms % MS_PER_HOUR
            while hour_ms < held.ended_at_ms:
                from_ms, to_ms = max(hour_ms, held.bound_at_ms), min(hour_ms + MS_PER_HOUR, held.ended_at_ms)
                yield self._use_of(held, hour_ms, from_ms, to_ms)
                hour_ms += MS_PER_HOUR

    def _use_of(self, held: AllocationFact, hour_ms: int, from_ms: int, to_ms: int) -> SliceUsageFact:
        covered_ms = to_ms - from_ms
        return SliceUsageFact(
            cluster=CLUSTER,
            pod_uid=held.pod_uid,
            container=held.container,
            device_uuid=self.uuid,
            node_uid=self.node_uid,
            hour_ms=hour_ms,
            epoch=EpochId(f"{self.node_number:032x}"),
            revision=12,
            from_ms=from_ms,
            to_ms=to_ms,
            covered_ms=covered_ms,
            unknown_ms=0,
            sm_ppm_ms=covered_ms * 60_000,
            sm_down_ppm_ms=0,
            mem_used_mib_ms=covered_ms * held.mem_mib // 2,
            mem_peak_mib=held.mem_mib,
            energy_active_mj=self._active_mj(hour_ms) * covered_ms // MS_PER_HOUR,
            blocked_ms=0,
            over_limit_ms=0,
            source="nvml",
        )

    def _active_mj(self, hour_ms: int) -> int:
        return _ACTIVE_WATTS // SLOTS * MS_PER_HOUR + hour_ms // MS_PER_HOUR % 977


def node_state(number: int) -> NodeStateFact:
    """A node was Ready all month."""
    card = LargeCard(number * CARDS_PER_NODE)
    return NodeStateFact(
        cluster=CLUSTER,
        node_uid=card.node_uid,
        node=card.node,
        from_ms=STARTS_MS,
        to_ms=ENDS_MS,
        ready=True,
        heartbeat_at_ms=ENDS_MS,
    )
