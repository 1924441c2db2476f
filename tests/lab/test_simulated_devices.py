"""The simulated cards: what an exporter reads at any moment follows from the plan and the clock alone."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from lab.devices.processes import processes_of
from lab.devices.simulated import SimulatedDevices
from lab.scenarios.demo import demo
from lab.scenarios.plan import ClusterPlan

START_S = 1_900_000_000
MIB = 1024 * 1024


class Clock:
    """A clock that a test moves; seconds from the scenario's start."""

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s

    def __call__(self) -> float:
        return START_S + self.at_s


def ten_slots() -> ClusterPlan:
    return demo(ends=True).cluster("lab-c")


def cards_at(clock: Clock) -> SimulatedDevices:
    return SimulatedDevices(ten_slots(), lambda: START_S, powered_s=START_S - 3_600, now_s=clock)


def held_pid() -> int:
    return next(p.host_pid for p in processes_of(ten_slots()) if p.pod.name == "held")


def percents(devices: SimulatedDevices, clock: Clock, moments: Iterator[float]) -> list[tuple[float, int]]:
    """(second from the start, percent) of every record that the reads at these moments bring."""
    seen = []
    for clock.at_s in moments:
        (card,) = devices.read()
        assert card.utilization is not None
        seen += [(r.stamp_us / 1e6 - START_S, r.sm_percent) for r in card.utilization]
    return seen


def test_the_held_process_reads_the_twelve_samples_one_a_second_and_idle_ones_leave_no_record() -> None:
    clock = Clock(20.3)
    devices = cards_at(clock)
    devices.read()

    seen = percents(devices, clock, iter(20.3 + tenth / 10 for tenth in range(1, 130)))

    assert seen == [
        (21.0, 32), (22.0, 82), (24.0, 84), (26.0, 60), (28.0, 57), (29.0, 11), (30.0, 25), (32.0, 9),
        (33.0, 32),
    ]  # fmt: skip


def test_a_record_is_delivered_once_however_often_one_reads() -> None:
    clock = Clock(22.5)
    devices = cards_at(clock)

    first, second = devices.read()[0].utilization, devices.read()[0].utilization

    assert first is not None
    assert [record.sm_percent for record in first] == [32, 82]
    assert second == ()


@given(at_s=st.floats(min_value=0, max_value=100))
def test_an_exporter_killed_and_started_again_sees_the_same_truth(at_s: float) -> None:
    before, after = cards_at(Clock(at_s)).read(), cards_at(Clock(at_s)).read()

    assert before == after


def test_the_refused_process_peaks_at_context_and_seven_chunks_for_three_seconds() -> None:
    (process,) = [p for p in processes_of(ten_slots()) if p.pod.name == "refused"]
    peak = (100 + 7 * 512) * MIB

    held_ms = [at_ms for at_ms in range(0, 20_000, 100) if process.memory_bytes(at_ms) == peak]

    assert peak == 3_862_953_984
    assert held_ms == list(range(12_000, 15_000, 100))
    assert max(process.memory_bytes(at_ms) for at_ms in range(0, 20_000, 10)) == peak


def test_memory_of_the_card_is_the_processes_memory_and_what_the_driver_keeps() -> None:
    (card,) = cards_at(Clock(14.0)).read()

    # idle-1 and idle-2 hold 100 MiB each, the refused one its peak; the driver keeps 256 MiB.
    assert card.memory_used_bytes == (100 + 100 + 3_684) * MIB
    assert card.memory_free_bytes == (15_360 - 256 - 3_884) * MIB


def test_energy_is_idle_watts_since_power_on_and_the_busy_part_for_each_sm_second() -> None:
    (card,) = cards_at(Clock(32.0)).read()

    # 3,632 s at 17 W, and 3.60 SM seconds of the first cycle at 53 W.
    assert card.energy_mj == 3_632 * 17_000 + 190_800


def test_before_the_start_the_card_is_idle_and_empty() -> None:
    devices = SimulatedDevices(ten_slots(), lambda: None, powered_s=START_S - 10, now_s=Clock(30.0))

    (card,) = devices.read()

    assert (card.memory_used_bytes, card.processes, card.utilization) == (0, (), ())
    assert held_pid() not in {p.pid for p in card.processes or ()}


def test_the_cards_own_samples_stand_at_each_whole_second_idle_ones_included() -> None:
    clock = Clock(22.9)
    devices = cards_at(clock)
    devices.read()
    clock.at_s = 25.1

    (card,) = devices.read()

    assert card.busy is not None
    assert [(sample.stamp_us // 1_000_000 - START_S, sample.busy_percent) for sample in card.busy] == [
        (23, 0), (24, 84), (25, 0),
    ]  # fmt: skip
