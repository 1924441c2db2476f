"""An owner whose input stays the same object is counted as one whose input is made anew at every tick."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from contract.facts import canonical_bytes
from contract.ids import ClusterCode, DeviceUuid, EpochId, NodeUid, PodUid
from exporter.delivery.witness import Witness
from exporter.node.clock import Instant
from exporter.node.metering.counters import Labels, OwnerKey
from exporter.node.metering.hours import Origin
from exporter.node.metering.inputs import DeviceInput, OwnerInput
from exporter.node.metering.meter import Meter
from exporter.node.metering.packing import pack
from exporter.nvidia.source import BusySample, DeviceReading, ProcessMemory, UtilizationSample

CARDS = (DeviceUuid("GPU-a"), DeviceUuid("GPU-b"))
MIB = 1_048_576
START_MS = 1_799_999_980_000  # twenty seconds before a full hour, so that hours are crossed


@dataclass(frozen=True)
class Tick:
    """One tick: who is on which card with how much, and what the cards say."""

    passed_ms: int
    held: tuple[tuple[int, int, int], ...]  # pod, card, used MiB (0 = not known)
    shares: tuple[int, ...]
    has_reading: bool
    is_second_card_there: bool
    tenant: int


TICKS = st.builds(
    Tick,
    passed_ms=st.sampled_from([500, 1_000, 1_000, 1_000, 12_000, 0]),
    held=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 3)),
        max_size=5,
        unique_by=lambda each: each[:2],
    ).map(tuple),
    shares=st.tuples(*[st.integers(0, 60)] * 5),
    has_reading=st.booleans(),
    is_second_card_there=st.booleans(),
    tenant=st.integers(0, 1),
)


def _owner(pod: int, card: int, used: int, tenant: int) -> OwnerInput:
    return OwnerInput(
        key=OwnerKey(PodUid(f"pod-{pod}"), "main", CARDS[card], is_slice=pod != 3),
        labels=Labels("team", f"pod-{pod}", "main", f"t{tenant if pod == 1 else 0}", "T4"),
        allocated_mib=1_000 if pod != 3 else 0,
        held_from_ms=START_MS - 5_000 if pod != 3 else None,
        pids=frozenset({10 * card + pod}),
        used_bytes=used * MIB or None,
        limit_bytes=2 * MIB,
        is_blocked=pod == 2,
        has_source=used != 1,
    )


def _devices(tick: Tick, now_ms: int, kept: dict[OwnerInput, OwnerInput] | None) -> list[DeviceInput]:
    """The input of a tick; with `kept`, an owner that is equal to an earlier one is that very object."""
    devices = []
    for card, uuid in enumerate(CARDS[: 2 if tick.is_second_card_there else 1]):
        owners = [_owner(pod, at, used, tick.tenant) for pod, at, used in sorted(tick.held) if at == card]
        owners = [structs.replace(each) if kept is None else kept.setdefault(each, each) for each in owners]
        stamp_us = now_ms * 1_000
        pids = [10 * card + pod for pod in range(5)]
        reading = DeviceReading(
            uuid=uuid,
            index=card,
            model="T4",
            processes=tuple(ProcessMemory(pid, MIB) for pid in pids),
            utilization=tuple(
                UtilizationSample(pid, stamp_us, share)
                for pid, share in zip(pids, tick.shares, strict=True)
                if share
            ),
            busy=(BusySample(stamp_us, min(100, sum(tick.shares))),),
            energy_mj=(now_ms - START_MS) * 70,
        )
        devices.append(
            DeviceInput(uuid, reading if tick.has_reading else None, tuple(owners), registered_mib=8_000)
        )
    return devices


@settings(max_examples=150, deadline=None)
@given(st.lists(TICKS, min_size=2, max_size=12))
def test_counters_and_facts_do_not_depend_on_whether_inputs_are_the_same_objects(ticks: list[Tick]) -> None:
    origin = Origin(ClusterCode("c1"), NodeUid("node-1"), EpochId("e1"))
    remembering, anew = (Meter(origin, ended_keep_ms=3_000, ended_most=2) for _ in range(2))
    witness = Witness(ClusterCode("c1"), "node", 300_000)
    kept: dict[OwnerInput, OwnerInput] = {}
    passed_ms = 0
    for tick in ticks:
        passed_ms += tick.passed_ms
        now = Instant(START_MS + passed_ms, passed_ms, passed_ms)
        remembering.tick(now, _devices(tick, now.wall_ms, kept))
        anew.tick(now, _devices(tick, now.wall_ms, None))
        assert pack(remembering, witness, had_readings=True) == pack(anew, witness, had_readings=True)
        facts = [[canonical_bytes(fact) for fact in meter.take_facts()] for meter in (remembering, anew)]
        assert facts[0] == facts[1]
