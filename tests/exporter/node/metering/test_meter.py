"""The integrator: counters by hand, conservation, gaps, restarts, ends."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from contract.facts import DeviceUsageFact, SliceUsageFact, UnallocatedUseFact
from contract.ids import ClusterCode, DeviceUuid, EpochId, NodeUid, PodUid
from exporter.delivery.witness import Witness
from exporter.node.clock import Instant
from exporter.node.metering.counters import Labels, OwnerKey
from exporter.node.metering.hours import Origin
from exporter.node.metering.inputs import DeviceInput, OwnerInput
from exporter.node.metering.meter import Meter
from exporter.node.metering.packing import pack, resume, unpack
from exporter.nvidia.source import BusySample, DeviceReading, ProcessMemory, UtilizationSample

CARD = DeviceUuid("GPU-a")
MIB = 1_048_576
START_MS = 1_800_000_000_000  # a full hour, UTC
SECOND_OF_SM = 10**9  # one card for a second, ppm·ms
HELD_TO_30_PERCENT = (32, 82, 0, 84, 0, 60, 0, 57, 11, 25, 0, 9)


def _meter(epoch: str = "e1", *, ended_keep_ms: int = 120_000, ended_most: int = 1_000) -> Meter:
    origin = Origin(ClusterCode("c1"), NodeUid("node-1"), EpochId(epoch))
    return Meter(origin, ended_keep_ms=ended_keep_ms, ended_most=ended_most)


def _key(pod: str, *, is_slice: bool = True) -> OwnerKey:
    return OwnerKey(PodUid(pod), "main", CARD, is_slice)


def _owner(pod: str, *, is_slice: bool = True, **fields: object) -> OwnerInput:
    given_fields: dict[str, object] = {"has_source": True, **fields}
    return OwnerInput(
        key=_key(pod, is_slice=is_slice),
        labels=Labels("team", pod, "main", f"tenant-{pod}", "NVIDIA T4"),
        **given_fields,  # type: ignore[arg-type]
    )


def _now(after_ms: int, *, boot_ms: int | None = None) -> Instant:
    boot = after_ms if boot_ms is None else boot_ms
    return Instant(START_MS + after_ms, boot, boot)


def _reading(
    after_ms: int,
    shares: dict[int, int] | None,
    *,
    busy: int | None = None,
    energy_mj: int | None = None,
) -> DeviceReading:
    stamp_us = (START_MS + after_ms) * 1_000
    records = None
    if shares is not None:
        records = tuple(UtilizationSample(pid, stamp_us, share) for pid, share in shares.items())
    return DeviceReading(
        uuid=CARD,
        index=0,
        model="NVIDIA T4",
        processes=tuple(ProcessMemory(pid, None) for pid in shares or {}),
        utilization=records,
        busy=None if busy is None else (BusySample(stamp_us, busy),),
        energy_mj=energy_mj,
    )


def _device(reading: DeviceReading | None, *owners: OwnerInput, **fields: object) -> DeviceInput:
    return DeviceInput(CARD, reading, owners, **fields)  # type: ignore[arg-type]


def test_the_counter_of_a_slice_held_to_30_percent_has_its_mean_while_the_gauge_swings() -> None:
    meter, seen = _meter(), set()
    owner = _owner("a", pids=frozenset({7}))
    meter.tick(_now(0), [_device(_reading(0, {}, busy=0), owner)])
    for second in range(1, 241):
        share = HELD_TO_30_PERCENT[(second - 1) % 12]
        reading = _reading(second * 1_000, {7: share} if share else {}, busy=share)
        meter.tick(_now(second * 1_000), [_device(reading, owner)])
        rate = meter.rate(owner.key)
        assert rate is not None
        seen.add(rate.ppm)
        # 32+82+0+84+0+60+0+57+11+25+0+9 = 360 % over twelve seconds.
        if second % 12 == 0:
            assert meter.owners[owner.key].sm_ppm_ms == second * 300_000_000
    assert (min(seen), max(seen)) == (0, 840_000)
    assert not any(meter.owners[owner.key].unknown_ms.values())


def test_memory_is_integrated_and_its_peak_kept() -> None:
    meter = _meter()
    for second, mib in enumerate((100, 612, 3_684, 3_684, 0)):
        owner = _owner("a", used_bytes=mib * MIB, limit_bytes=4_000 * MIB)
        meter.tick(_now(second * 1_000), [_device(_reading(second * 1_000, {}), owner)])
    counters = meter.owners[_key("a")]
    assert counters.memory_used.byte_ms == (612 + 3_684 + 3_684 + 0) * MIB * 1_000
    assert counters.memory_peak_bytes == 3_862_953_984
    assert counters.over_limit_ms == 0


def test_time_above_the_limit_and_time_blocked_are_counted() -> None:
    meter = _meter()
    for second in range(4):
        owner = _owner("a", used_bytes=4_001 * MIB, limit_bytes=4_000 * MIB, is_blocked=second >= 2)
        meter.tick(_now(second * 1_000), [_device(_reading(second * 1_000, {}), owner)])
    counters = meter.owners[_key("a")]
    assert (counters.over_limit_ms, counters.blocked_ms) == (3_000, 2_000)


def test_granted_memory_is_integrated_from_the_binding_on_without_gaps() -> None:
    meter = _meter()
    owner = _owner("a", allocated_mib=4_000, held_from_ms=START_MS - 600_000)
    meter.tick(_now(0), [_device(None, owner)])
    assert meter.owners[_key("a")].memory_allocated.byte_ms == 4_000 * MIB * 600_000
    # An hour without a tick is a gap for what is measured, not for what is granted.
    meter.tick(_now(3_600_000), [_device(None, owner)])
    assert meter.owners[_key("a")].memory_allocated.byte_ms == 4_000 * MIB * 4_200_000


def test_processes_that_claim_more_than_the_card_was_busy_are_scaled_down() -> None:
    meter = _meter()
    owners = (_owner("a", pids=frozenset({1})), _owner("b", pids=frozenset({2})))
    meter.tick(_now(0), [_device(_reading(0, {}, busy=0), *owners)])
    meter.tick(_now(1_000), [_device(_reading(1_000, {1: 60, 2: 60}, busy=90), *owners)])
    assert [meter.owners[_key(pod)].sm_ppm_ms for pod in "ab"] == [450_000_000, 450_000_000]
    assert meter.devices[CARD].busy_ppm_ms == 900_000_000
    assert meter.tallies.by_family()["disagreements_total"] == {("sm_scaled",): 1}


def test_the_card_is_the_most_that_processes_can_use_also_without_a_busy_figure() -> None:
    meter = _meter()
    owner = _owner("a", pids=frozenset({1, 2}))
    meter.tick(_now(0), [_device(_reading(0, {}), owner)])
    meter.tick(_now(1_000), [_device(_reading(1_000, {1: 80, 2: 70}), owner)])
    assert meter.owners[_key("a")].sm_ppm_ms == SECOND_OF_SM


def test_use_of_no_known_pod_and_busy_time_of_no_process_are_unattributed() -> None:
    meter = _meter()
    owner = _owner("a", pids=frozenset({1}))
    meter.tick(_now(0), [_device(_reading(0, {}, busy=0), owner)])
    meter.tick(_now(1_000), [_device(_reading(1_000, {1: 30, 99: 20}, busy=75), owner)])
    assert meter.owners[_key("a")].sm_ppm_ms == 300_000_000
    assert meter.devices[CARD].sm_unattributed_ppm_ms == 450_000_000
    assert meter.devices[CARD].busy_ppm_ms == 750_000_000


def test_use_past_hami_has_its_own_counter_and_changes_no_slice() -> None:
    meter = _meter()
    owners = (_owner("a", pids=frozenset({1})), _owner("rogue", is_slice=False, pids=frozenset({2})))
    meter.tick(_now(0), [_device(_reading(0, {}), *owners)])
    meter.tick(_now(1_000), [_device(_reading(1_000, {1: 30, 2: 20}), *owners)])
    assert meter.owners[_key("a")].sm_ppm_ms == 300_000_000
    assert meter.owners[_key("rogue", is_slice=False)].sm_ppm_ms == 200_000_000
    facts = meter.take_facts(everything=True)
    (rogue,) = [fact for fact in facts if isinstance(fact, UnallocatedUseFact)]
    assert (rogue.pod, rogue.sm_ppm_ms) == ("rogue", 200_000_000)


def test_the_ladder_goes_from_nvml_to_the_cache_to_unknown_and_no_counter_jumps() -> None:
    meter = _meter()
    with_cache = _owner("a", pids=frozenset({7}), cache_sm_percent=40)
    without = _owner("a", pids=frozenset({7}))
    meter.tick(_now(0), [_device(_reading(0, {}), without)])
    meter.tick(_now(1_000), [_device(_reading(1_000, {7: 30}), with_cache)])
    assert meter.rate(_key("a")) is not None
    assert meter.rate(_key("a")).source == "nvml"  # type: ignore[union-attr]
    meter.tick(_now(2_000), [_device(_reading(2_000, None), with_cache)])
    assert meter.rate(_key("a")).source == "cache"  # type: ignore[union-attr]
    assert meter.owners[_key("a")].sm_ppm_ms == 300_000_000 + 400_000_000
    meter.tick(_now(3_000), [_device(None, without, unknown_reason="source_failed")])
    assert meter.rate(_key("a")) is None
    assert meter.owners[_key("a")].sm_ppm_ms == 700_000_000
    assert meter.owners[_key("a")].unknown_ms["source_failed"] == 1_000
    meter.tick(_now(4_000), [_device(_reading(4_000, {7: 50}), without)])
    meter.tick(_now(5_000), [_device(_reading(5_000, {7: 50}), without)])
    # The first record after the failure only sets the anchor's end: at most one second each.
    assert 700_000_000 < meter.owners[_key("a")].sm_ppm_ms <= 1_700_000_000


def test_a_process_with_an_unknown_host_pid_makes_the_slice_uncertain_only_while_someone_unknown_works() -> (
    None
):
    meter = _meter()
    owner = _owner("a", has_unknown_pids=True)
    meter.tick(_now(0), [_device(_reading(0, {}), owner)])
    meter.tick(_now(1_000), [_device(_reading(1_000, {99: 50}), owner)])
    assert meter.owners[_key("a")].unknown_ms["uncertain"] == 1_000
    meter.tick(_now(2_000), [_device(_reading(2_000, {}), owner)])
    assert meter.owners[_key("a")].unknown_ms["uncertain"] == 1_000
    assert meter.rate(_key("a")).ppm == 0  # type: ignore[union-attr]


def test_the_last_records_of_a_process_that_ended_still_go_to_its_slice() -> None:
    meter = _meter()
    meter.tick(_now(0), [_device(_reading(0, {}), _owner("a", pids=frozenset({7})))])
    meter.tick(_now(1_000), [_device(_reading(1_000, {7: 40}), _owner("a"))])
    assert meter.owners[_key("a")].sm_ppm_ms == 400_000_000


def test_a_gap_adds_unknown_time_and_nothing_else_and_its_energy_is_nobodys() -> None:
    meter = _meter()
    owner = _owner("a", pids=frozenset({7}), used_bytes=MIB, allocated_mib=4_000)
    meter.tick(_now(0), [_device(_reading(0, {}, energy_mj=0), owner, registered_mib=8_000)])
    meter.tick(_now(10_001), [_device(_reading(10_001, {7: 90}, energy_mj=700_000), owner)])
    counters, card = meter.owners[_key("a")], meter.devices[CARD]
    assert counters.unknown_ms["gap"] == 10_001
    assert (counters.sm_ppm_ms, counters.memory_used.byte_ms, counters.energy_idle_mj) == (0, 0, 0)
    assert (card.energy_mj, card.energy_unattributed_mj) == (700_000, 700_000)


def test_a_suspend_is_a_gap() -> None:
    meter = _meter()
    owner = _owner("a", pids=frozenset({7}))
    meter.tick(Instant(START_MS, 0, 0), [_device(_reading(0, {}), owner)])
    slept = Instant(START_MS + 5_000, 1_000, 5_000)
    meter.tick(slept, [_device(_reading(5_000, {7: 50}), owner)])
    assert meter.owners[_key("a")].unknown_ms["gap"] == 5_000
    assert meter.owners[_key("a")].sm_ppm_ms == 0


def test_energy_goes_by_sm_time_and_its_idle_part_by_granted_memory() -> None:
    meter = _meter()
    owners = (
        _owner("x", pids=frozenset({1}), allocated_mib=20_480),
        _owner("y", pids=frozenset({2}), allocated_mib=40_960),
    )
    settings = {"registered_mib": 81_920, "idle_power_mw": 60_000}
    meter.tick(_now(0), [_device(_reading(0, {}, energy_mj=5_000), *owners, **settings)])
    reading = _reading(1_000, {1: 60, 2: 30, 99: 10}, energy_mj=255_000)
    meter.tick(_now(1_000), [_device(reading, *owners, **settings)])
    # 250 J: 60 J idle (a quarter, a half, a quarter free) and 190 J by 60 : 30 : 10.
    x, y, card = meter.owners[_key("x")], meter.owners[_key("y")], meter.devices[CARD]
    assert (x.energy_active_mj, x.energy_idle_mj) == (114_000, 15_000)
    assert (y.energy_active_mj, y.energy_idle_mj) == (57_000, 30_000)
    assert (card.energy_mj, card.energy_unattributed_mj) == (250_000, 19_000 + 15_000)
    (fact,) = [fact for fact in meter.take_facts(everything=True) if isinstance(fact, DeviceUsageFact)]
    assert (fact.energy_mj, fact.energy_idle_mj, fact.energy_unattributed_mj) == (250_000, 60_000, 19_000)


def test_a_window_that_crosses_the_hour_is_cut_there() -> None:
    meter = _meter()
    owner = _owner("a", pids=frozenset({7}), used_bytes=MIB)
    for after_ms in (3_599_400, 3_600_400):
        meter.tick(_now(after_ms), [_device(_reading(after_ms, {7: 50}), owner)])
    facts = [fact for fact in meter.take_facts(everything=True) if isinstance(fact, SliceUsageFact)]
    first, second = sorted(facts, key=lambda fact: fact.hour_ms)
    assert (first.hour_ms, first.from_ms, first.to_ms) == (
        START_MS,
        START_MS + 3_599_400,
        START_MS + 3_600_000,
    )
    assert (first.covered_ms, first.sm_ppm_ms, first.mem_used_mib_ms) == (600, 300_000_000, 600)
    assert (second.covered_ms, second.sm_ppm_ms, second.mem_used_mib_ms) == (400, 200_000_000, 400)


def test_an_ended_slice_keeps_its_counters_for_a_while_and_speaks_its_last_fact_at_once() -> None:
    meter = _meter(ended_keep_ms=60_000)
    owner = _owner("a", pids=frozenset({7}))
    meter.tick(_now(0), [_device(_reading(0, {}), owner)])
    meter.tick(_now(1_000), [_device(_reading(1_000, {7: 50}), owner)])
    assert meter.take_facts() == []
    meter.tick(_now(2_000), [_device(_reading(2_000, {}))])
    (fact,) = meter.take_facts()
    assert isinstance(fact, SliceUsageFact)
    assert fact.sm_ppm_ms == 500_000_000
    meter.tick(_now(10_000), [_device(_reading(10_000, {}))])
    assert meter.owners[_key("a")].sm_ppm_ms == 500_000_000
    meter.tick(_now(62_000, boot_ms=62_000), [_device(_reading(62_000, {}))])
    assert _key("a") not in meter.owners


def test_of_many_ended_slices_the_biggest_stay() -> None:
    meter = _meter(ended_most=2)
    owners = [_owner(pod, pids=frozenset({pid})) for pid, pod in enumerate("abc", 1)]
    meter.tick(_now(0), [_device(_reading(0, {}), *owners)])
    meter.tick(_now(1_000), [_device(_reading(1_000, {1: 10, 2: 30, 3: 20}), *owners)])
    meter.tick(_now(2_000), [_device(_reading(2_000, {}))])
    assert sorted(key.pod_uid for key in meter.owners) == ["b", "c"]


def test_a_tenants_counters_go_on_after_its_slices_have_ended() -> None:
    meter = _meter(ended_keep_ms=0)
    owner = _owner("a", pids=frozenset({7}))
    meter.tick(_now(0), [_device(_reading(0, {}), owner)])
    meter.tick(_now(1_000), [_device(_reading(1_000, {7: 50}), owner)])
    meter.tick(_now(2_000), [_device(_reading(2_000, {}))])
    assert meter.owners == {}
    assert meter.tenants["tenant-a", "NVIDIA T4"].sm_ppm_ms == 500_000_000


def test_a_slice_that_nothing_ever_measured_makes_no_usage_fact() -> None:
    meter = _meter()
    owner = _owner("a", has_source=False, allocated_mib=20_000, held_from_ms=START_MS)
    for second in range(3):
        meter.tick(_now(second * 1_000), [_device(None, owner)])
    assert meter.take_facts(everything=True) == []
    assert meter.owners[_key("a")].unknown_ms["no_source"] == 2_000
    assert not meter.owners[_key("a")].is_measured


def test_use_of_a_card_that_counts_as_down_is_told_apart() -> None:
    meter = _meter()
    owner = _owner("a", pids=frozenset({7}))
    meter.tick(_now(0), [_device(_reading(0, {}), owner)])
    meter.tick(_now(1_000), [_device(_reading(1_000, {7: 50}), owner)])
    meter.tick(_now(2_000), [_device(_reading(2_000, {7: 20}), owner, is_down=True)])
    (fact,) = [fact for fact in meter.take_facts(everything=True) if isinstance(fact, SliceUsageFact)]
    assert (fact.sm_ppm_ms, fact.sm_down_ppm_ms) == (700_000_000, 200_000_000)


def _restart(meter: Meter, epoch: str) -> tuple[Meter, list[object]]:
    row = pack(meter, Witness(ClusterCode("c1"), "node", 300_000), had_readings=True)
    state = unpack(row)
    assert state is not None
    again = _meter(epoch)
    return again, list(resume(again, state, EpochId(epoch)))


def test_a_restart_goes_on_counting_closes_the_old_epoch_and_begins_a_new_one_at_zero() -> None:
    meter = _meter("e1")
    owner = _owner("a", pids=frozenset({7}))
    meter.tick(_now(0), [_device(_reading(0, {}), owner)])
    meter.tick(_now(1_000), [_device(_reading(1_000, {7: 50}), owner)])
    again, closing = _restart(meter, "e2")
    (old,) = [fact for fact in closing if isinstance(fact, SliceUsageFact)]
    assert (old.epoch, old.sm_ppm_ms, old.to_ms) == ("e1", 500_000_000, START_MS + 1_000)
    again.tick(_now(4_000), [_device(_reading(4_000, {7: 50}), owner)])
    again.tick(_now(5_000), [_device(_reading(5_000, {7: 20}), owner)])
    assert again.owners[_key("a")].sm_ppm_ms == 700_000_000
    assert again.owners[_key("a")].unknown_ms["gap"] == 3_000
    (new,) = [fact for fact in again.take_facts(everything=True) if isinstance(fact, SliceUsageFact)]
    assert (new.epoch, new.sm_ppm_ms, new.revision) == ("e2", 200_000_000, 1)
    assert (new.from_ms, new.to_ms) == (START_MS + 1_000, START_MS + 5_000)
    assert (new.covered_ms, new.unknown_ms) == (1_000, 3_000)


def test_counters_say_since_when_they_count_also_after_a_restart() -> None:
    meter = _meter()
    first = _owner("a", allocated_mib=4, held_from_ms=START_MS - 7_000)
    second = _owner("b", pids=frozenset({7}))
    meter.tick(_now(0), [_device(_reading(0, {}), first)])
    meter.tick(_now(1_000), [_device(_reading(1_000, {7: 50}), first, second)])
    again, _ = _restart(meter, "e2")
    again.tick(_now(4_000), [_device(_reading(4_000, {7: 50}), first, second)])
    kept, newer = again.owners[_key("a")], again.owners[_key("b")]
    # Granted memory counts from the binding on, everything else from the first look.
    assert (kept.created_ms, kept.held_from_ms) == (START_MS, START_MS - 7_000)
    assert (newer.created_ms, newer.held_from_ms) == (START_MS + 1_000, None)
    assert again.devices[CARD].created_ms == START_MS
    assert again.tenants["tenant-b", "NVIDIA T4"].created_ms == START_MS + 1_000


def test_a_row_of_another_version_or_damaged_bytes_are_refused_as_a_whole() -> None:
    row = pack(_meter(), Witness(ClusterCode("c1"), "node", 1), had_readings=False)
    assert unpack(row) is not None
    assert unpack(row.replace(b"\xa7version\x02", b"\xa7version\x03")) is None
    assert unpack(row[:-3]) is None
    assert unpack(b"nonsense") is None


def test_a_wall_clock_set_back_counts_unknown_time_and_no_book_overlaps() -> None:
    meter = _meter()
    owner = _owner("a", pids=frozenset({7}))
    meter.tick(_now(100_000), [_device(_reading(100_000, {}), owner)])
    meter.tick(_now(101_000), [_device(_reading(101_000, {7: 50}), owner)])
    back = Instant(START_MS + 50_000, 102_000, 102_000)
    interval = meter.tick(back, [_device(_reading(50_000, {7: 50}), owner)])
    assert interval is not None
    assert interval.stepped_back
    assert meter.owners[_key("a")].unknown_ms["gap"] == 1_000
    (fact,) = [fact for fact in meter.take_facts(everything=True) if isinstance(fact, SliceUsageFact)]
    assert (fact.from_ms, fact.to_ms) == (START_MS + 100_000, START_MS + 101_000)


Tick = tuple[int, dict[int, int] | None, int | None, int | None, frozenset[str], bool]

_ticks = st.lists(
    st.tuples(
        st.sampled_from([200, 999, 1_000, 1_001, 2_500, 15_000]),
        st.none() | st.dictionaries(st.integers(1, 5), st.integers(0, 100), max_size=4),
        st.none() | st.integers(0, 100),
        st.none() | st.integers(0, 300_000),
        st.frozensets(st.sampled_from("abc")),
        st.booleans(),
    ),
    min_size=1,
    max_size=40,
)


@given(_ticks)
def test_slices_unallocated_and_unattributed_add_up_to_the_card_across_anything(
    ticks: Sequence[Tick],
) -> None:
    meter, epoch, after_ms, board_mj = _meter(ended_keep_ms=10**9), 1, 0, 0
    before: dict[OwnerKey, int] = {}
    facts: list[object] = []
    for elapsed_ms, shares, busy, energy_mj, pods, restarts in ticks:
        after_ms += elapsed_ms
        board_mj += energy_mj or 0
        owners = [
            _owner(pod, pids=frozenset({pid}), allocated_mib=1_000 * pid, cache_sm_percent=10 * pid)
            for pid, pod in enumerate("ab", 1)
            if pod in pods
        ]
        if "c" in pods:
            owners.append(_owner("c", is_slice=False, pids=frozenset({3})))
        reading = _reading(after_ms, shares, busy=busy, energy_mj=None if energy_mj is None else board_mj)
        meter.tick(_now(after_ms), [_device(reading, *owners, registered_mib=4_000, idle_power_mw=20_000)])
        if restarts:
            epoch += 1
            meter, closing = _restart(meter, f"e{epoch}")
            facts += closing
        _adds_up(meter)
        for key, owner in meter.owners.items():
            assert owner.sm_ppm_ms >= before.get(key, 0)
            before[key] = owner.sm_ppm_ms
    facts += meter.take_facts(everything=True)
    _facts_are_plausible(facts)


def _adds_up(meter: Meter) -> None:
    for device in meter.devices.values():
        owners = list(meter.owners.values())
        assert sum(owner.sm_ppm_ms for owner in owners) + device.sm_unattributed_ppm_ms == device.busy_ppm_ms
        energy = sum(owner.energy_active_mj + owner.energy_idle_mj for owner in owners)
        assert energy + device.energy_unattributed_mj == device.energy_mj


def _facts_are_plausible(facts: Sequence[object]) -> None:
    """What accounting refuses a usage fact for, judged on the fact alone."""
    active: dict[tuple[str, int], int] = {}
    newest: dict[tuple[object, ...], SliceUsageFact | UnallocatedUseFact] = {}
    for fact in facts:
        assert isinstance(fact, SliceUsageFact | UnallocatedUseFact | DeviceUsageFact)
        unknown_ms = 0 if isinstance(fact, DeviceUsageFact) else fact.unknown_ms
        assert 0 <= fact.covered_ms + unknown_ms <= fact.to_ms - fact.from_ms
        assert fact.hour_ms <= fact.from_ms < fact.to_ms <= fact.hour_ms + 3_600_000
        if isinstance(fact, DeviceUsageFact):
            assert fact.busy_ppm_ms <= fact.covered_ms * 1_000_000
            continue
        assert fact.sm_ppm_ms <= fact.covered_ms * 1_000_000
        newest[type(fact), fact.pod_uid, fact.hour_ms, fact.epoch] = fact
    for use in newest.values():
        at = (use.epoch, use.hour_ms)
        active[at] = active.get(at, 0) + use.energy_active_mj
    for fact in facts:
        if isinstance(fact, DeviceUsageFact):
            spent = active.get((fact.epoch, fact.hour_ms), 0)
            assert spent + fact.energy_idle_mj + fact.energy_unattributed_mj == fact.energy_mj
