"""The lab's regions equal those that HAMi-core wrote for the same programs, to the last byte."""

from __future__ import annotations

import gzip
import json
import pathlib
import stat
import threading
from typing import Any

import pytest

from exporter.hami.opening import read_cache
from exporter.hami.region import Region
from lab.workloads.region_writer import ProcessSlot, RegionFile

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures" / "hami-core" / "v1.2-2008952"
MANIFEST = {case["case"]: case for case in json.loads((FIXTURES / "manifest.json").read_text())["cases"]}
GIB = 2**30


def replay(path: pathlib.Path, case: dict[str, Any]) -> None:
    """Run the client programs of a manifest's case against the writer."""
    expected = case["expected"]
    limits = [device["memory_limit_bytes"] for device in expected["devices"]]
    with RegionFile(
        path,
        uuids=case["device_uuids"],
        limits_bytes=limits,
        sm_limit_percent=case["sm_limit"],
        priority=expected["priority"],
        clock=lambda: float(expected["last_kernel_time_unix_s"]),
    ) as region:
        slots = [run(region, process) for process in case["processes"]]
        for slot, process in zip(slots, case["processes"], strict=True):
            if process["state"] == "exited":
                slot.exit()
            if process["state"] == "suspended":
                slot.suspend()
        for seen in expected["slots"]:
            for device, figures in seen["devices"].items():
                slots[seen["slot"]].set_monitorused(int(device), figures["monitorused"])
                slots[seen["slot"]].set_sm(int(device), figures["sm_util"])
        region.set_recent_kernel(expected["recent_kernel"])
        region.set_utilization_switch(enforced=bool(expected["utilization_switch"]))


def run(region: RegionFile, process: dict[str, Any]) -> ProcessSlot:
    slot = region.attach(process["pid"], process["hostpid"])
    device, allocations = 0, dict[int, list[int]]()
    for action in process["client_actions"]:
        verb, _, number = action.partition(" ")
        if verb == "retain":
            device = int(number)
            # The mock card of the fixtures gave every context 105 MiB.
            slot.set_memory(device, context_bytes=110_100_480)
        elif verb in {"alloc", "free"}:
            held = allocations.setdefault(device, [])
            if verb == "free":
                held[int(number)] = 0
            else:
                held.append(int(number))
            slot.set_memory(device, data_bytes=sum(held))
    return slot


@pytest.mark.parametrize(
    "name",
    [
        "attach_without_kernel",
        "exit_one_of_three",
        "exit_with_memory",
        "freed_to_zero",
        "fresh_after_exit",
        "limits_unset",
        "many_processes",
        "monitor_blocked",
        "monitor_switch_off",
        "one_process",
        "priority_high",
        "suspended",
        "two_devices",
        "two_devices_two_processes",
        "two_processes",
    ],
)
def test_replayed_programs_leave_the_same_file_as_hami_core(name: str, tmp_path: pathlib.Path) -> None:
    case = MANIFEST[name]
    replay(tmp_path / "written.cache", case)
    written = (tmp_path / "written.cache").read_bytes()
    genuine = gzip.decompress((FIXTURES / case["file"]).read_bytes())
    assert len(written) == len(genuine)
    assert [at for at in range(0, len(genuine), 8) if written[at : at + 8] != genuine[at : at + 8]] == []


def test_file_is_open_to_every_process_of_the_container_as_hami_core_makes_it(tmp_path: pathlib.Path) -> None:
    with RegionFile(tmp_path / "one.cache", uuids=["GPU-a"], limits_bytes=[GIB]):
        assert stat.S_IMODE((tmp_path / "one.cache").stat().st_mode) == 0o666


def test_attaching_process_clears_dead_slots_and_the_moved_one_goes_on_writing(
    tmp_path: pathlib.Path,
) -> None:
    with RegionFile(tmp_path / "one.cache", uuids=["GPU-a"], limits_bytes=[GIB]) as region:
        ended, staying = region.attach(10, 1010), region.attach(11, 1011)
        ended.set_memory(0, context_bytes=100, data_bytes=900)
        staying.set_memory(0, context_bytes=100, data_bytes=200)
        ended.exit()
        region.attach(12, 1012).set_memory(0, context_bytes=100)
        staying.set_memory(0, data_bytes=300)
        found = read_cache(tmp_path / "one.cache")
    assert isinstance(found, Region)
    assert [(slot.slot, slot.pid, slot.hostpid) for slot in found.slots] == [(0, 11, 1011), (1, 12, 1012)]
    # 11: context 100 + data 300; 12: context 100 alone
    assert [use.total_bytes for slot in found.slots for use in slot.devices] == [400, 100]


def test_reader_beside_a_writing_process_never_sees_torn_memory(tmp_path: pathlib.Path) -> None:
    """The writer swings between a context of 1 GiB with and without 3 GiB of data."""
    done = threading.Event()
    with RegionFile(tmp_path / "one.cache", uuids=["GPU-a"], limits_bytes=[8 * GIB]) as region:
        slot = region.attach(10, 1010)
        slot.set_memory(0, context_bytes=GIB)

        def write() -> None:
            while not done.is_set():
                slot.set_memory(0, data_bytes=3 * GIB)
                slot.set_memory(0, data_bytes=0)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            looks = [read_cache(tmp_path / "one.cache") for _ in range(2000)]
        finally:
            done.set()
            writer.join()
    seen = [look.slots[0] for look in looks if isinstance(look, Region)]
    assert len(seen) == 2000
    figures = {
        (use.context_bytes, use.data_bytes, use.total_bytes)
        for slot in seen
        if slot.consistent
        for use in slot.devices
    }
    assert figures <= {(GIB, 0, GIB), (GIB, 3 * GIB, 4 * GIB)}
    assert figures
    # Inconsistent looks still have a total that was true at some instant.
    assert {use.total_bytes for slot in seen for use in slot.devices} <= {GIB, 4 * GIB}


def test_more_devices_than_a_region_holds_are_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="16 devices, 17 were given"):
        RegionFile(tmp_path / "one.cache", uuids=["GPU-a"] * 17, limits_bytes=[])
