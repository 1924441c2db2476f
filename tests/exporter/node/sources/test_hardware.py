"""What happened to a card: counters that never go back, and a fatal error that stands until a reset."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.ids import DeviceUuid
from exporter.node.clock import Instant
from exporter.node.sources.hardware import CardHistory, Hardware, HardwareView
from exporter.node.tallies import Tallies
from exporter.nvidia.source import DeviceReading, XidEvent

SECOND_NS = 1_000_000_000
CARD = DeviceUuid("GPU-a")


class Watch:
    """Takes in readings of one card, one a second."""

    def __init__(self, hardware: Hardware | None = None) -> None:
        self.tallies = Tallies()
        self.hardware = Hardware(self.tallies) if hardware is None else hardware
        self.second = 0

    def see(self, *, after_s: int = 1, **fields: Any) -> HardwareView:
        self.second += after_s
        at_ms = self.second * 1_000
        reading = DeviceReading(uuid=CARD, index=0, model="A100", **fields)
        self.hardware.take([reading], Instant(at_ms, at_ms, at_ms))
        return self.hardware.views()[CARD]

    def xid(self, *codes: int, **fields: Any) -> HardwareView:
        at_ms = (self.second + 1) * 1_000
        return self.see(xids=tuple(XidEvent(code, at_ms) for code in codes), **fields)


@pytest.fixture
def watch() -> Watch:
    return Watch()


def test_errors_from_before_the_first_look_are_not_counted_and_each_later_one_is(watch: Watch) -> None:
    assert watch.see(ecc_corrected=7, ecc_uncorrected=1).ecc_errors == {"corrected": 0, "uncorrected": 0}
    assert watch.see(ecc_corrected=9, ecc_uncorrected=1).ecc_errors == {"corrected": 2, "uncorrected": 0}


def test_a_kind_that_a_card_does_not_count_is_missing(watch: Watch) -> None:
    assert watch.see().ecc_errors == {}
    assert watch.see(ecc_corrected=3).ecc_errors == {"corrected": 0}


def test_a_counter_that_steps_back_adds_nothing_and_counts_on_from_there(watch: Watch) -> None:
    """A driver that was loaded again counts from 0."""
    for count in (5, 8, 0, 2):
        view = watch.see(ecc_corrected=count)
    assert view.ecc_errors == {"corrected": 3 + 2}
    assert watch.tallies.by_family() == {"values_refused_total": {("ecc", "below_range"): 1}}


def test_more_than_a_billion_errors_in_one_tick_are_refused(watch: Watch) -> None:
    watch.see(ecc_corrected=0)
    assert watch.see(ecc_corrected=10**9).ecc_errors == {"corrected": 10**9}
    assert watch.see(ecc_corrected=2 * 10**9 + 1).ecc_errors == {"corrected": 10**9}


def test_a_card_is_not_throttled_for_longer_than_time_has_gone(watch: Watch) -> None:
    """But for a second: the driver brings its counters up to date about once a second."""
    watch.see(throttle_ns=(("sw_power_cap", 5 * SECOND_NS),))
    view = watch.see(throttle_ns=(("sw_power_cap", 7 * SECOND_NS),))
    assert view.throttle_ns == {"sw_power_cap": 2 * SECOND_NS}
    view = watch.see(throttle_ns=(("sw_power_cap", 9 * SECOND_NS + 1),))
    assert view.throttle_ns == {"sw_power_cap": 2 * SECOND_NS}
    assert watch.tallies.by_family() == {"values_refused_total": {("throttle", "above_range"): 1}}


def test_throttled_time_of_a_gap_is_counted(watch: Watch) -> None:
    watch.see(throttle_ns=(("sync_boost", 0),))
    assert watch.see(after_s=60, throttle_ns=(("sync_boost", 45 * SECOND_NS),)).throttle_ns == {
        "sync_boost": 45 * SECOND_NS
    }


def test_the_same_xid_twice_counts_twice_and_keeps_its_last_time(watch: Watch) -> None:
    assert watch.xid(31, 31).xids == {31: (2, 1_000)}
    watch.see(xids=())
    assert watch.xid(31, 43).xids == {31: (3, 3_000), 43: (1, 3_000)}


def test_a_code_that_cannot_be_one_is_refused(watch: Watch) -> None:
    assert watch.xid(0, 2**64 - 1).xids == {}
    refused = watch.tallies.by_family()["values_refused_total"]
    assert refused == {("xid", "below_range"): 1, ("xid", "blank"): 1}


def test_an_xid_after_which_no_reset_is_asked_for_leaves_the_card_in_service(watch: Watch) -> None:
    # Those of applications, contained and remapped memory errors, and one that nobody knows.
    assert watch.xid(13, 31, 43, 45, 63, 68, 94, 109, 999).fatal_xid is None


def test_the_first_fatal_xid_stands(watch: Watch) -> None:
    assert watch.xid(31, 48, 79).fatal_xid == 48
    assert watch.see(xids=()).fatal_xid == 48


def test_a_fatal_xid_stands_until_the_cards_energy_began_anew(watch: Watch) -> None:
    watch.xid(79, energy_mj=1_000)
    assert watch.see(energy_mj=1_001).fatal_xid == 79
    assert watch.see(energy_mj=3).fatal_xid == 79, "once may be a slip"
    assert watch.see(energy_mj=4).fatal_xid is None


def test_one_slip_of_the_energy_counter_is_no_reset(watch: Watch) -> None:
    watch.xid(79, energy_mj=1_000)
    watch.see(energy_mj=0)
    watch.see(energy_mj=1_002)
    watch.see(energy_mj=0)
    assert watch.see(energy_mj=1_004).fatal_xid == 79


def test_a_fatal_xid_stands_while_the_card_is_lost_and_ends_when_it_is_back(watch: Watch) -> None:
    watch.xid(79)
    assert watch.see(failure="gpu_is_lost").fatal_xid == 79
    assert watch.see().fatal_xid is None


def test_an_error_that_came_with_the_loss_is_not_ended_by_it(watch: Watch) -> None:
    assert watch.xid(79, failure="gpu_is_lost").fatal_xid == 79
    assert watch.xid(79).fatal_xid == 79, "it came back and failed again at once"


def test_a_card_that_is_gone_keeps_its_counters(watch: Watch) -> None:
    watch.xid(31)
    watch.hardware.take([], Instant(9_000, 9_000, 9_000))
    assert watch.hardware.views()[CARD].xids == {31: (1, 1_000)}


def test_everything_goes_on_after_a_restart(watch: Watch) -> None:
    watch.xid(79, ecc_corrected=5, throttle_ns=(("sync_boost", 0),), energy_mj=10)
    packed = msgspec.msgpack.encode(watch.hardware.dump())
    again = Watch(Hardware(Tallies(), msgspec.msgpack.decode(packed, type=list[CardHistory])))
    again.second = watch.second
    view = again.see(ecc_corrected=6, throttle_ns=(("sync_boost", SECOND_NS),), energy_mj=11)
    assert view == HardwareView({"corrected": 1}, {"sync_boost": SECOND_NS}, {79: (1, 1_000)}, 79, 1_000)


@given(st.lists(st.integers(min_value=0, max_value=2 * 10**9), max_size=40))
def test_no_counter_ever_goes_back(counts: list[int]) -> None:
    watch, before = Watch(), 0
    for count in counts:
        now = watch.see(ecc_corrected=count).ecc_errors["corrected"]
        assert now >= before
        before = now
