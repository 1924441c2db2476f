"""Which cards there are: lost ones, returning ones, and two with one name, through pynvml's own ctypes."""

from __future__ import annotations

import pytest

from tests.exporter.nvidia.driver import NOW_S, OPEN, Play, node

ENERGY = "nvmlDeviceGetTotalEnergyConsumption"
LIST = "nvmlDeviceGetCount_v2"


@pytest.mark.parametrize(("code", "failure"), [(15, "gpu_is_lost"), (16, "reset_required")])
def test_a_lost_card_hides_no_other_and_comes_back(play: Play, code: int, failure: str) -> None:
    well = node(f"0 {ENERGY} 0 5", f"1 {ENERGY} 0 6", cards=2)
    *_, lost, back, again = play(
        node(f"0 {ENERGY} {code}", f"1 {ENERGY} 0 6", cards=2), *OPEN, ("read",), well, ("read",), ("read",)
    )
    assert [(each["uuid"], each["failure"], each["energy_mj"]) for each in lost["readings"]] == [
        ("GPU-0", failure, None),
        ("GPU-1", None, 6),
    ]
    for given in (back, again):
        assert [(each["failure"], each["energy_mj"]) for each in given["readings"]] == [(None, 5), (None, 6)]


def test_a_card_that_fell_off_the_bus_stays_on_the_page_as_lost(play: Play) -> None:
    *_, first, gone = play(
        node(f"0 {ENERGY} 0 5", f"1 {ENERGY} 0 6", cards=2),
        *OPEN,
        ("read",),
        # An invalid argument on a handle that used to work makes the cards be listed anew.
        node(f"0 {ENERGY} 2", cards=1),
        ("read",),
        ("read",),
    )[1:]
    assert [each["failure"] for each in first["readings"]] == [None, None]
    assert [each["failure"] for each in gone["readings"]] == [None, "gpu_is_lost"]


def test_a_card_that_stays_lost_is_looked_for_with_growing_pauses(play: Play) -> None:
    """In 100 s of reads at 1 Hz: at once, then after 1, 2, 4, 8, 16, 32 s; the next would be at 127 s."""
    steps: list[tuple[object, ...]] = [node(f"0 {ENERGY} 15"), *OPEN, ("calls", LIST)]
    for second in range(100):
        steps += [("clock", NOW_S + second), ("read",)]
    given = play(*steps, ("calls", LIST))
    # The first read finds it lost, so the first list after that is at the second.
    assert given[-1]["calls"] - given[1]["calls"] == 7


def test_a_lost_card_is_not_asked_between_two_lists(play: Play) -> None:
    steps: list[tuple[object, ...]] = [node(f"0 {ENERGY} 15"), *OPEN]
    for second in range(100):
        steps += [("clock", NOW_S + second), ("read",)]
    *_, asked = play(*steps, ("calls", ENERGY))
    assert asked["calls"] == 8


def test_a_call_that_fails_without_a_lost_card_is_named_and_said_once(play: Play) -> None:
    logged: list[str] = []
    *_, first, second, well = play(
        node(f"0 {ENERGY} 999"),
        *OPEN,
        ("read",),
        ("read",),
        node(f"0 {ENERGY} 0 5"),
        ("read",),
        logged=logged,
    )
    for given in (first, second):
        (reading,) = given["readings"]
        assert (reading["failed_calls"], reading["failure"], reading["energy_mj"]) == (["energy"], None, None)
    assert well["readings"][0]["failed_calls"] == []
    assert len([line for line in logged if "energy of GPU-0 failed with code 999" in line]) == 1


def test_an_argument_that_was_never_right_is_no_sign_of_a_stale_handle(play: Play) -> None:
    *_, before, given, after = play(
        node(f"0 {ENERGY} 2"), *OPEN, ("calls", LIST), ("read",), ("read",), ("read",), ("calls", LIST)
    )[-5:][0::2]
    assert given["readings"][0]["failed_calls"] == ["energy"]
    assert after["calls"] == before["calls"]


TWINS = ("1 nvmlDeviceGetUUID 0 GPU-0", f"0 {ENERGY} 0 5", f"1 {ENERGY} 0 6")


def test_two_cards_with_one_uuid_are_told_apart_by_their_pci_address(play: Play) -> None:
    logged: list[str] = []
    *_, given = play(node(*TWINS, cards=2), *OPEN, ("read",), logged=logged)
    assert [
        (each["uuid"], each["has_repeated_uuid"], each["pci_address"], each["energy_mj"])
        for each in given["readings"]
    ] == [
        ("GPU-0", False, "00000000:0B:00.0", 5),
        ("GPU-0@00000000:1B:00.0", True, "00000000:1B:00.0", 6),
    ]
    assert len([line for line in logged if "repeats the UUID GPU-0" in line]) == 1


def test_a_card_keeps_its_name_when_its_twin_falls_off_the_bus(play: Play) -> None:
    """The second card is now the first in the list, and must not inherit the counters of the other."""
    alone = (
        "0 nvmlDeviceGetPciInfo_v3 0 00000000:1B:00.0",
        f"0 {ENERGY} 0 7",
    )
    *_, doubt, given = play(
        node(*TWINS, cards=2),
        *OPEN,
        ("read",),
        node(f"0 {ENERGY} 15", cards=2),
        ("read",),
        node(*alone),
        ("read",),
    )
    assert doubt["readings"][0]["failure"] == "gpu_is_lost"
    found = {each["uuid"]: (each["failure"], each["energy_mj"]) for each in given["readings"]}
    assert found == {"GPU-0@00000000:1B:00.0": (None, 7), "GPU-0": ("gpu_is_lost", None)}


def test_a_card_moved_to_another_slot_keeps_its_name(play: Play) -> None:
    *_, given = play(
        node(f"0 {ENERGY} 0 5"),
        *OPEN,
        ("read",),
        node(f"0 {ENERGY} 15"),
        ("read",),
        node("0 nvmlDeviceGetPciInfo_v3 0 00000000:9B:00.0", f"0 {ENERGY} 0 7"),
        ("read",),
    )
    assert [(each["uuid"], each["energy_mj"], each["failure"]) for each in given["readings"]] == [
        ("GPU-0", 7, None)
    ]


def test_an_old_driver_is_read_with_what_it_has(play_old: Play) -> None:
    """One of the 410 series: no driver-reserved memory, no newer process calls, no field for mean power."""
    logged: list[str] = []
    *_, given = play_old(
        node(
            "0 nvmlDeviceGetMemoryInfo 0 1000 600 400",
            "0 nvmlDeviceGetComputeRunningProcesses_v2 0 4001 4096",
            f"0 nvmlDeviceGetProcessUtilization 0 4001 {NOW_S * 1_000_000} 44",
            "0 nvmlDeviceGetPowerUsage 0 28123",
            "0 nvmlDeviceGetFieldValues 0 185 0 30000",
            "0 nvmlDeviceGetRemappedRows 0 0 0 1 0",
            f"0 {ENERGY} 0 5",
        ),
        *OPEN,
        ("read",),
        ("read",),
        logged=logged,
    )
    (reading,) = given["readings"]
    assert (reading["memory_total_bytes"], reading["memory_reserved_bytes"]) == (1000, None)
    assert [each["pid"] for each in reading["processes"]] == [4001]
    assert (reading["power_mw"], reading["has_remapped_rows_pending"]) == (28_123, None)
    assert (reading["failed_calls"], reading["failure"]) == ([], None)
    assert len([line for line in logged if "has no memory v2" in line]) == 1
