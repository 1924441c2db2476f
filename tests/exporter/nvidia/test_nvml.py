"""NVML as pynvml really calls it, through ctypes into a small C library that plays the driver."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

from tests.exporter.nvidia.driver import NOW_S, NOW_US, OPEN, ROOT, Play, node, only

NO_INSTANCE = {"gpu_instance_id": None, "compute_instance_id": None}


def test_every_value_of_a_card_is_read_in_the_units_of_the_interface(play: Play) -> None:
    *_, given = play(
        node(
            "0 nvmlDeviceGetMemoryInfo_v2 0 16106127360 471859200 10000000000 5634268160",
            "0 nvmlDeviceGetUtilizationRates 0 37 5",
            "0 nvmlDeviceGetComputeRunningProcesses_v3 0 4001 1073741824 4002 18446744073709551615",
            "0 nvmlDeviceGetGraphicsRunningProcesses_v3 0 4001 2147483648",
            "0 nvmlDeviceGetMPSComputeRunningProcesses_v3 0 4003 1048576",
            f"0 nvmlDeviceGetProcessesUtilizationInfo 0 4001 {NOW_US - 500_000} 30",
            f"0 nvmlDeviceGetSamples 0 {NOW_US - 400_000} 80 {NOW_US - 200_000} 20",
            "0 nvmlDeviceGetTotalEnergyConsumption 0 123456789",
            "0 nvmlDeviceGetPowerUsage 0 28123",
            "0 nvmlDeviceGetPowerManagementLimitConstraints 0 60000 70000",
            "0 nvmlDeviceGetTemperature 0 54",
            "0 nvmlDeviceGetClockInfo 0 0 1590 5001",
            "0 nvmlDeviceGetMigMode 0 0",
            "0 nvmlDeviceGetTotalEccErrors 0 12 1",
            "0 nvmlDeviceGetRemappedRows 0 3 1 1 0",
            "0 nvmlDeviceGetFieldValues 0 74 0 5000000000 76 0 0 269 0 70 270 3 0 271 0 9",
            "0 nvmlDeviceRegisterEvents 0",
        ),
        *OPEN,
        ("read",),
    )
    assert only(given) == {
        "uuid": "GPU-0",
        "index": 0,
        "model": "Tesla T4",
        "driver_version": "550.54.15",
        "mode": "hami-core",
        "memory_total_bytes": 16_106_127_360,
        "memory_reserved_bytes": 471_859_200,
        "memory_free_bytes": 10_000_000_000,
        "memory_used_bytes": 5_634_268_160,
        "utilization_percent": 37,
        "memory_utilization_percent": 5,
        # 4001 computes and draws: one figure, the larger; all ones = the driver does not say.
        "processes": [
            {"pid": 4001, "used_bytes": 2_147_483_648} | NO_INSTANCE,
            {"pid": 4002, "used_bytes": None} | NO_INSTANCE,
            {"pid": 4003, "used_bytes": 1_048_576} | NO_INSTANCE,
        ],
        "utilization": [{"pid": 4001, "stamp_us": NOW_US - 500_000, "sm_percent": 30}],
        "busy": [
            {"stamp_us": NOW_US - 400_000, "busy_percent": 80},
            {"stamp_us": NOW_US - 200_000, "busy_percent": 20},
        ],
        "energy_mj": 123_456_789,
        "power_mw": 28_123,
        "power_limit_mw": 70_000,
        "temperature_celsius": 54,
        "sm_clock_hz": 1_590_000_000,
        "memory_clock_hz": 5_001_000_000,
        "ecc_corrected": 12,
        "ecc_uncorrected": 1,
        "has_remapped_rows_pending": True,
        # Field 270 (the hardware's thermal slowdown) is one that this card does not know.
        "throttle_ns": [
            ["sw_power_cap", 5_000_000_000],
            ["sync_boost", 0],
            ["sw_thermal_slowdown", 70],
            ["hw_power_brake_slowdown", 9],
        ],
        "xids": [],
        "mig": None,
        "pci_address": "00000000:0B:00.0",
        "has_repeated_uuid": False,
        "failed_calls": [],
        "failure": None,
    }


def test_what_a_card_cannot_is_absent_and_said_once(play: Play) -> None:
    logged: list[str] = []
    *_, first, second = play(node(), *OPEN, ("read",), ("read",), logged=logged)
    unknown = {key: value for key, value in only(second).items() if value is None}
    assert only(first) == only(second)
    identity = {"uuid", "index", "model", "driver_version", "mode", "pci_address"}
    identity |= {"has_repeated_uuid", "failed_calls"}
    assert unknown.keys() == only(first).keys() - identity
    assert len([line for line in logged if "GPU-0 (Tesla T4) has no energy" in line]) == 1


@pytest.mark.parametrize("code", [6, 0], ids=["not found", "success with no record"])
def test_nobody_on_the_card_is_idle_and_not_unknown(play: Play, code: int) -> None:
    """pynvml raises NVMLError with value 0 when the size probe says: success, no records."""
    steps = [
        f"0 nvmlDeviceGetProcessesUtilizationInfo {code}",
        "0 nvmlDeviceGetSamples 6",
        "0 nvmlDeviceGetComputeRunningProcesses_v3 0",
    ]
    *_, given = play(node(*steps), *OPEN, ("read",))
    reading = only(given)
    assert (reading["utilization"], reading["busy"], reading["processes"]) == ([], [], [])


@pytest.mark.parametrize("code", [10, 999, 20])
def test_any_other_failure_is_unknown_for_once(play: Play, code: int) -> None:
    call = "0 nvmlDeviceGetProcessesUtilizationInfo"
    *_, failed, well = play(
        node(f"{call} {code}", "0 nvmlDeviceGetTotalEnergyConsumption 0 5"),
        *OPEN,
        ("read",),
        node(f"{call} 0 7 {NOW_US} 11", "0 nvmlDeviceGetTotalEnergyConsumption 0 6"),
        ("read",),
    )
    assert (only(failed)["utilization"], only(failed)["energy_mj"]) == (None, 5)
    assert only(well)["utilization"] == [{"pid": 7, "stamp_us": NOW_US, "sm_percent": 11}]


@pytest.mark.parametrize("missing", [3, 13], ids=["not supported", "function not found"])
def test_older_drivers_are_asked_with_the_older_call(play: Play, missing: int) -> None:
    *_, given = play(
        node(
            f"0 nvmlDeviceGetProcessesUtilizationInfo {missing}",
            f"0 nvmlDeviceGetProcessUtilization 0 7 {NOW_US} 44",
            f"0 nvmlDeviceGetMemoryInfo_v2 {missing}",
            "0 nvmlDeviceGetMemoryInfo 0 1000 600 400",
        ),
        *OPEN,
        ("read",),
    )
    reading = only(given)
    assert reading["utilization"] == [{"pid": 7, "stamp_us": NOW_US, "sm_percent": 44}]
    assert (reading["memory_total_bytes"], reading["memory_free_bytes"], reading["memory_used_bytes"]) == (
        1000,
        600,
        400,
    )
    assert reading["memory_reserved_bytes"] is None


def test_the_newer_call_is_preferred_even_where_the_older_one_is_silent(play: Play) -> None:
    *_, given = play(
        node(
            f"0 nvmlDeviceGetProcessesUtilizationInfo 0 7 {NOW_US} 44", "0 nvmlDeviceGetProcessUtilization 6"
        ),
        *OPEN,
        ("read",),
    )
    assert [each["sm_percent"] for each in only(given)["utilization"]] == [44]


def test_records_come_once_and_none_between_two_reads_is_lost(play: Play) -> None:
    """Two processes have records of one stamp, and NVML delivers the second of them late."""
    call = "0 nvmlDeviceGetProcessesUtilizationInfo 0"
    first, later = NOW_US, NOW_US + 900_000
    *_, one, two, three = play(
        node(f"{call} 7 {first} 10", f"0 nvmlDeviceGetSamples 0 {first} 50"),
        *OPEN,
        ("read",),
        ("clock", NOW_S + 1),
        node(
            f"{call} 7 {first} 10 8 {first} 20 7 {later} 30",
            f"0 nvmlDeviceGetSamples 0 {first} 50 {later} 60",
        ),
        ("read",),
        ("read",),
    )
    assert [(each["pid"], each["sm_percent"]) for each in only(one)["utilization"]] == [(7, 10)]
    assert [(each["pid"], each["sm_percent"]) for each in only(two)["utilization"]] == [(8, 20), (7, 30)]
    assert only(three)["utilization"] == []
    busy = [[each["busy_percent"] for each in only(given)["busy"]] for given in (one, two, three)]
    assert busy == [[50], [60], []]


def test_the_first_read_asks_for_the_last_second_only(play: Play) -> None:
    """From 0 NVML would average over its whole buffer, and a finished process would show."""
    *_, given = play(
        node(f"0 nvmlDeviceGetProcessesUtilizationInfo 0 6 {NOW_US - 1_500_000} 90 7 {NOW_US} 11"),
        *OPEN,
        ("read",),
    )
    assert [each["pid"] for each in only(given)["utilization"]] == [7]


def test_a_stamp_from_the_future_does_not_silence_what_follows(play: Play) -> None:
    call = "0 nvmlDeviceGetProcessesUtilizationInfo 0"
    *_, one, two = play(
        node(f"{call} 6 {NOW_US + 10**12} 90 7 {NOW_US} 11"),
        *OPEN,
        ("read",),
        ("clock", NOW_S + 1),
        node(f"{call} 7 {NOW_US + 1_000_000} 12"),
        ("read",),
    )
    assert [each["pid"] for each in only(one)["utilization"]] == [7, 6]
    assert [each["sm_percent"] for each in only(two)["utilization"]] == [12]


def test_a_list_that_grows_between_probe_and_read_is_asked_for_again(play: Play) -> None:
    *_, given = play(node("0 nvmlDeviceGetComputeRunningProcesses_v3 1007 7 4096"), *OPEN, ("read",))
    assert only(given)["processes"] == [{"pid": 7, "used_bytes": 4096} | NO_INSTANCE]


@pytest.mark.parametrize(
    ("code", "reason"),
    [(1, "uninitialized"), (9, "driver_not_loaded"), (18, "lib_rm_version_mismatch"), (999, "nvml_error")],
)
def test_a_driver_that_is_not_there_is_the_whole_source(play: Play, code: int, reason: str) -> None:
    down, unread, opened, read = play(
        ("answers", f"* nvmlInitWithFlags {code}\n"), ("open",), ("read",), node(), ("open",), ("read",)
    )
    assert down["down"] == reason
    assert unread["down"] == "uninitialized"
    assert opened == {}
    assert len(read["readings"]) == 1


@pytest.mark.parametrize("code", [1, 9, 18])
def test_a_driver_that_goes_away_takes_the_whole_source(play: Play, code: int) -> None:
    _, down, closed, opened, read = play(
        node(f"0 nvmlDeviceGetTotalEnergyConsumption {code}", cards=2),
        *OPEN,
        ("read",),
        ("close",),
        node("0 nvmlDeviceGetTotalEnergyConsumption 0 5"),
        ("open",),
        ("read",),
    )
    assert down["down"] in {"uninitialized", "driver_not_loaded", "lib_rm_version_mismatch"}
    assert (closed, opened) == ({}, {})
    assert only(read)["energy_mj"] == 5


def test_a_node_without_the_library_is_told_how_to_get_it(play: Play, library: pathlib.Path) -> None:
    hidden = library.parent / "hidden"
    library.rename(hidden)
    try:
        (down,) = play(("open",))
    finally:
        hidden.rename(library)
    assert down["down"] == "library_not_found"
    assert "mount the driver's libraries" in down["detail"]


def test_a_node_without_cards_is_healthy(play: Play) -> None:
    assert play(node(cards=0), *OPEN, ("read",)) == [{}, {"readings": []}]


def test_pynvml_is_imported_when_the_source_is_opened_and_not_before() -> None:
    code = "import sys, exporter.nvidia.nvml; sys.exit('pynvml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, timeout=60).returncode == 0
