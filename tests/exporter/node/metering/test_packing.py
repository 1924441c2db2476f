"""What a process that dies takes with it is said: the window that was still open at its end."""

from __future__ import annotations

from contract.facts import DeviceUsageFact, SliceUsageFact
from contract.ids import ClusterCode, DeviceUuid, EpochId, NodeUid, PodUid
from exporter.delivery.witness import Witness
from exporter.node.clock import Instant
from exporter.node.metering.counters import Labels, OwnerKey
from exporter.node.metering.hours import Origin
from exporter.node.metering.inputs import DeviceInput, OwnerInput
from exporter.node.metering.meter import Meter
from exporter.node.metering.packing import pack, resume, unpack
from exporter.nvidia.source import BusySample, DeviceReading, UtilizationSample

CARD = DeviceUuid("GPU-a")
KEY = OwnerKey(PodUid("a"), "main", CARD, is_slice=True)
OWNER = OwnerInput(
    key=KEY, labels=Labels("team", "a", "main", "t", "NVIDIA T4"), pids=frozenset({7}), has_source=True
)
START_MS = 1_800_000_000_000  # a full hour, UTC
ORIGIN = Origin(ClusterCode("c1"), NodeUid("node-1"), EpochId("e1"))


def tick(meter: Meter, after_ms: int, stamp_ms: int | None, energy_mj: int) -> None:
    """A card at 40 %, with samples up to a stamp."""
    stamps = [] if stamp_ms is None else [(START_MS + stamp_ms) * 1_000]
    reading = DeviceReading(
        uuid=CARD,
        index=0,
        model="NVIDIA T4",
        utilization=tuple(UtilizationSample(7, stamp_us, 40) for stamp_us in stamps),
        busy=tuple(BusySample(stamp_us, 40) for stamp_us in stamps),
        energy_mj=energy_mj,
    )
    now = Instant(START_MS + after_ms, after_ms, after_ms)
    meter.tick(now, [DeviceInput(CARD, reading, (OWNER,))])


def resumed(meter: Meter) -> tuple[Meter, list[object]]:
    row = pack(meter, Witness(ClusterCode("c1"), "node", 300_000), had_readings=True)
    state = unpack(row)
    assert state is not None
    again = Meter(ORIGIN)
    return again, list(resume(again, state, EpochId("e2")))


def test_the_window_that_was_open_is_unknown_time_of_the_old_epoch_and_its_energy_is_nobodys() -> None:
    meter = Meter(ORIGIN)
    tick(meter, 0, 0, energy_mj=1_000)
    tick(meter, 1_000, 1_000, energy_mj=51_000)
    # The driver has not sampled again: this second and a half is not given out yet.
    tick(meter, 2_500, None, energy_mj=126_000)

    again, closing = resumed(meter)

    owner, device = again.owners[KEY], again.devices[CARD]
    assert (owner.sm_ppm_ms, owner.unknown_ms["gap"]) == (400_000_000, 1_500)
    assert (device.energy_mj, device.energy_unattributed_mj) == (125_000, 75_000)
    (use,) = [fact for fact in closing if isinstance(fact, SliceUsageFact)]
    assert (use.epoch, use.from_ms, use.to_ms) == ("e1", START_MS, START_MS + 2_500)
    assert (use.covered_ms, use.unknown_ms) == (1_000, 1_500)
    (card,) = [fact for fact in closing if isinstance(fact, DeviceUsageFact)]
    assert (card.energy_mj, card.energy_unattributed_mj) == (125_000, 75_000)
    # Said once: a second end of nothing has nothing to say.
    assert resumed(again)[1] == []
    assert again.owners[KEY].unknown_ms["gap"] == 1_500


def test_the_new_epoch_begins_where_the_old_one_ended() -> None:
    meter = Meter(ORIGIN)
    tick(meter, 0, 0, energy_mj=1_000)
    tick(meter, 1_000, 1_000, energy_mj=51_000)
    tick(meter, 2_500, None, energy_mj=126_000)
    again, _ = resumed(meter)
    tick(again, 6_000, 6_000, energy_mj=200_000)
    tick(again, 7_000, 7_000, energy_mj=250_000)
    (use,) = [fact for fact in again.take_facts(everything=True) if isinstance(fact, SliceUsageFact)]
    assert (use.from_ms, use.to_ms) == (START_MS + 2_500, START_MS + 7_000)
    assert (use.covered_ms, use.unknown_ms) == (1_000, 3_500)
    assert again.devices[CARD].energy_mj == 249_000
