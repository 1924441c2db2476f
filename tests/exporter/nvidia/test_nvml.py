"""NVML as pynvml really calls it, through ctypes into a small C library that plays the driver."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
GCC = shutil.which("gcc")

Step = tuple[object, ...]
Play = Callable[..., list[dict[str, Any]]]

NODE = """\
* nvmlInitWithFlags 0
* nvmlShutdown 0
* nvmlSystemGetDriverVersion 0 550.54.15
"""
IDENTITY = """\
{index} nvmlDeviceGetHandleByIndex_v2 0
{index} nvmlDeviceGetUUID 0 GPU-{index}
{index} nvmlDeviceGetName 0 Tesla T4
"""
NOW_S = 1_800_000_000
NOW_US = NOW_S * 1_000_000
OPEN: tuple[Step, ...] = (("clock", NOW_S), ("open",))


def node(*lines: str, cards: int = 1) -> Step:
    """Answers of a node with `cards` T4; what is not in `lines` is not supported."""
    identities = [IDENTITY.format(index=index) for index in range(cards)]
    count = f"* nvmlDeviceGetCount_v2 0 {cards}\n"
    return ("answers", NODE + count + "".join(identities) + "\n".join(lines) + "\n")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The folder with the mock `libnvidia-ml.so.1`, built once."""
    if GCC is None:
        if os.environ.get("CI"):
            pytest.fail("gcc builds the mock of NVML; install it")
        pytest.skip("no gcc to build the mock of NVML")
    folder = tmp_path_factory.mktemp("nvml")
    built = folder / "libnvidia-ml.so.1"
    subprocess.run(
        [GCC, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(built), str(HERE / "mock_nvml.c")],
        check=True,
    )
    return folder


@pytest.fixture
def play(library: pathlib.Path, tmp_path: pathlib.Path) -> Play:
    """Plays steps against `NvmlSource` in a process where the mock is the driver's library."""

    def run(*steps: Step, logged: list[str] | None = None) -> list[dict[str, Any]]:
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(library),
            "MOCK_NVML": str(tmp_path / "answers"),
            "PYTHONPATH": str(ROOT),
        }
        done = subprocess.run(
            [sys.executable, str(HERE / "ask_nvml.py")],
            input=json.dumps(steps),
            capture_output=True,
            text=True,
            env=environment,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        if logged is not None:
            logged += done.stderr.splitlines()
        given: list[dict[str, Any]] = json.loads(done.stdout)
        return given

    return run


def only(given: dict[str, Any]) -> dict[str, Any]:
    """The reading of the only card."""
    (reading,) = given["readings"]
    assert isinstance(reading, dict)
    return reading


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
        # 4001 computes and draws: one figure, the larger; all ones = the driver does not say.
        "processes": [
            {"pid": 4001, "used_bytes": 2_147_483_648},
            {"pid": 4002, "used_bytes": None},
            {"pid": 4003, "used_bytes": 1_048_576},
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
        "failure": None,
    }


def test_what_a_card_cannot_is_absent_and_said_once(play: Play) -> None:
    logged: list[str] = []
    *_, first, second = play(node(), *OPEN, ("read",), ("read",), logged=logged)
    unknown = {key: value for key, value in only(second).items() if value is None}
    assert only(first) == only(second)
    identity = {"uuid", "index", "model", "driver_version", "mode"}
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
    assert only(given)["processes"] == [{"pid": 7, "used_bytes": 4096}]


@pytest.mark.parametrize(("code", "failure"), [(15, "gpu_is_lost"), (16, "reset_required")])
def test_a_lost_card_hides_no_other_and_comes_back(play: Play, code: int, failure: str) -> None:
    energy = "nvmlDeviceGetTotalEnergyConsumption"
    well = node(f"0 {energy} 0 5", f"1 {energy} 0 6", cards=2)
    *_, lost, back, again = play(
        node(f"0 {energy} {code}", f"1 {energy} 0 6", cards=2), *OPEN, ("read",), well, ("read",), ("read",)
    )
    assert [(each["uuid"], each["failure"], each["energy_mj"]) for each in lost["readings"]] == [
        ("GPU-0", failure, None),
        ("GPU-1", None, 6),
    ]
    for given in (back, again):
        assert [(each["failure"], each["energy_mj"]) for each in given["readings"]] == [(None, 5), (None, 6)]


def test_a_card_that_fell_off_the_bus_stays_on_the_page_as_lost(play: Play) -> None:
    energy = "nvmlDeviceGetTotalEnergyConsumption"
    *_, first, gone = play(
        node(f"0 {energy} 0 5", f"1 {energy} 0 6", cards=2),
        *OPEN,
        ("read",),
        # An invalid argument on a handle that used to work makes the cards be listed anew.
        node(f"0 {energy} 2", cards=1),
        ("read",),
        ("read",),
    )[1:]
    assert [each["failure"] for each in first["readings"]] == [None, None]
    assert [each["failure"] for each in gone["readings"]] == [None, "gpu_is_lost"]


def test_a_card_in_mig_mode_says_so(play: Play) -> None:
    *_, given = play(node("0 nvmlDeviceGetMigMode 0 1"), *OPEN, ("read",))
    assert only(given)["mode"] == "mig"


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


def test_a_repeated_uuid_is_left_out(play: Play) -> None:
    step, text = node(cards=2)
    assert isinstance(text, str)
    twice = text.replace("1 nvmlDeviceGetUUID 0 GPU-1", "1 nvmlDeviceGetUUID 0 GPU-0")
    logged: list[str] = []
    *_, given = play((step, twice), *OPEN, ("read",), logged=logged)
    assert only(given)["index"] == 0
    assert any("repeats the UUID GPU-0" in line for line in logged)


def test_pynvml_is_imported_when_the_source_is_opened_and_not_before() -> None:
    code = "import sys, exporter.nvidia.nvml; sys.exit('pynvml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, timeout=60).returncode == 0
