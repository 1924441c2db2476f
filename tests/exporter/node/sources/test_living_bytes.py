"""Used bytes are those of the living: genuine files of every layout, and a faked process table.

The truth is what the client programs did (`processes` of the manifests), not what a file says.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contract.ids import DeviceUuid
from exporter.node.attribution.owners import Attribution
from exporter.node.snapshot import SliceGauges
from tests.exporter.node.proc import FakeProc, systemd_path
from tests.exporter.node.tree import Node, card_of, pod_of

FIXTURES = Path(__file__).parents[3] / "fixtures/hami-core"
UID = "0d9ad4a1-9b58-4f66-8d0a-3f2c4b1e9a01"
ID = "5f0a" * 16
KINDS = {
    "sigkill_stale",
    "sigkill_then_new_process",
    "exit_with_memory",
    "exit_one_of_three",
    "restart_pid_collision",
    "cleanup_moves_slot",
    "oom_without_ps",
    "two_processes",
    "two_devices_two_processes",
    "hostpid_unknown",
}
TOLD_BY_NVML_ALONE = {
    # The library dropped every slot.
    ("v0-804680", "oom_without_ps"),
    ("v0-1197896", "oom_without_ps"),
    ("v1.1-2008952", "oom_without_ps"),
    # The slots name the host pids of the dead.
    ("v0-804680", "cleanup_moves_slot"),
    ("v0-1197896", "cleanup_moves_slot"),
}
LEGACY_CONTEXT_BYTES = 104_857_600
"""What that library adds for a context, whatever the card says."""


def _cases() -> Iterator[tuple[str, dict[str, Any]]]:
    for manifest in sorted(FIXTURES.glob("*/manifest.json")):
        content = json.loads(manifest.read_text())
        for case in content["cases"]:
            if case["case"].partition("-")[0] in KINDS:
                yield content["layout"], case


CASES = [
    pytest.param(layout, case, has_list, id=f"{layout}-{case['case']}-{'nvml' if has_list else 'alone'}")
    for layout, case in _cases()
    for has_list in (True, False)
    if has_list or (layout, case["case"].partition("-")[0]) not in TOLD_BY_NVML_ALONE
]


class Host:
    """One container with a genuine region, and the host's processes."""

    def __init__(self, folder: Path, layout: str, case: dict[str, Any]) -> None:
        self.case = case
        self.proc = FakeProc(folder / "proc")
        tree = folder / "containers"
        home = tree / f"{UID}_main"
        home.mkdir(parents=True)
        packed = (FIXTURES / layout / case["file"]).read_bytes()
        (home / "0b7f5c66.cache").write_bytes(gzip.decompress(packed))
        self.node = Node(tree, self.proc.root)
        for uuid in case["device_uuids"]:
            self.node.registered[uuid] = next(iter(self.node.registered.values()))
        allocated = ":".join(f"{uuid},NVIDIA,16000,30" for uuid in case["device_uuids"])
        self.pod = pod_of("job", f"{allocated}:;", uid=UID, ids={"main": f"containerd://{ID}"})
        self.living = [each for each in case["processes"] if each["alive_at_snapshot"]]
        for number, process in enumerate(self.living):
            host_pid = process["hostpid"] or 900_000 + number
            self.proc.add(host_pid, process["pid"], cgroup=systemd_path(UID, ID))

    def bytes_of(self, process: dict[str, Any]) -> dict[str, int]:
        """What a process owns, by device."""
        uuids = self.case["device_uuids"]
        return {uuids[int(index)]: use["total"] for index, use in process["devices"].items()}

    def look(self, *, lists_processes: bool, at_ms: int = 1_000) -> Attribution:
        uuids = self.case["device_uuids"]
        cards = [
            card_of(
                uuid,
                {each["hostpid"]: self.bytes_of(each).get(uuid, 0) for each in self.living if each["hostpid"]}
                if lists_processes
                else None,
            )
            for uuid in uuids
        ]
        return self.node.look([self.pod], *cards, at_ms=at_ms)

    def slices(self, found: Attribution) -> dict[DeviceUuid, SliceGauges]:
        return {gauges.key.device_uuid: gauges for gauges in found.slices}


@pytest.mark.parametrize(("layout", "case", "lists_processes"), CASES)
def test_used_bytes_are_those_of_the_living(
    tmp_path: Path, layout: str, case: dict[str, Any], lists_processes: bool
) -> None:
    kind = case["case"].partition("-")[0]
    host = Host(tmp_path, layout, case)
    if kind == "restart_pid_collision":
        # In the container's new life another program has the pid of a slot that was left.
        host.proc.add(800_001, case["extra"]["stale_from_previous_life"]["pid"], cgroup=systemd_path(UID, ID))
    want = dict.fromkeys(case["device_uuids"], 0)
    for process in host.living:
        for uuid, size in host.bytes_of(process).items():
            want[uuid] += size
        if layout == "legacy-280392":
            want[case["device_uuids"][0]] += LEGACY_CONTEXT_BYTES - process["devices"]["0"]["context_size"]

    for at_ms in (1_000, 2_000, 9_000):
        slices = host.slices(host.look(lists_processes=lists_processes, at_ms=at_ms))

        assert {uuid: gauges.used_bytes for uuid, gauges in slices.items()} == want
        assert all(gauges.memory_source == "region" for gauges in slices.values())


def _case(layout: str, name: str) -> dict[str, Any]:
    return next(case for found, case in _all() if (found, case["case"]) == (layout, name))


def _all() -> Iterator[tuple[str, dict[str, Any]]]:
    for manifest in sorted(FIXTURES.glob("*/manifest.json")):
        content = json.loads(manifest.read_text())
        yield from ((content["layout"], case) for case in content["cases"])


def test_bytes_that_a_wrapped_counter_put_on_the_wrong_device_are_taken_from_nvml(tmp_path: Path) -> None:
    host = Host(tmp_path, "v1.1-2008952", _case("v1.1-2008952", "async_wrap_underflow"))
    first, second = host.case["device_uuids"]
    # Freed again: a context of 105 MiB is left on each card; the file says 169 and 41 MiB.
    cards = [card_of(uuid, {3_358_610: 110_100_480}) for uuid in (first, second)]

    slices = host.slices(host.node.look([host.pod], *cards))

    assert [slices[uuid].used_bytes for uuid in (first, second)] == [110_100_480, 110_100_480]
    # Parts of which one is below zero are not shown.
    regions = [slices[uuid].region for uuid in (first, second)]
    assert [region.data_bytes for region in regions if region is not None] == [None, None]


@pytest.mark.parametrize(
    ("layout", "name", "frozen_pid"),
    [
        ("v1.2-2008952", "cleanup_moves_slot", 45),
        ("v1.1-2008984", "cleanup_moves_slot", 28),
        ("v1.1-2008984", "sigkill_then_new_process", 15),
    ],
)
def test_a_frozen_slot_is_found_by_the_pid_in_its_old_place(
    tmp_path: Path, layout: str, name: str, frozen_pid: int
) -> None:
    host = Host(tmp_path, layout, _case(layout, name))
    host.look(lists_processes=False)
    survey = host.node.caches.survey(looks=0, wait=lambda _seconds: None)
    slots = survey.directories[0].caches[0].region.slots
    assert [slot.pid for slot in slots if "slot_frozen" in slot.quality] == [frozen_pid]


@pytest.mark.parametrize(
    "layout", ["v1.2-2008952", "v1.1-2008984", "v1.1-2008952", "v0-1197896", "v0-804680"]
)
def test_a_process_that_was_killed_is_counted_as_a_stale_slot(tmp_path: Path, layout: str) -> None:
    host = Host(tmp_path, layout, _case(layout, "sigkill_stale"))
    found = host.look(lists_processes=True)
    (gauges,) = found.slices
    assert (gauges.used_bytes, gauges.processes, gauges.stale_processes) == (0, 0, 1)
    assert found.alive == frozenset()


def test_files_of_every_known_size_that_hold_the_same_give_the_same_figures(tmp_path: Path) -> None:
    figures = {}
    for layout, case in _all():
        # What the oldest library was made to do is not the same: it knew no other GPUs.
        if case["case"].partition("-")[0] != "one_process" or layout == "legacy-280392":
            continue
        folder = tmp_path / f"{layout}-{case['case']}"
        folder.mkdir()
        (gauges,) = Host(folder, layout, case).look(lists_processes=True).slices
        region = gauges.region
        assert region is not None
        figures[layout, case["case"]] = (
            gauges.used_bytes,
            gauges.processes,
            gauges.memory_source,
            region.limit_bytes,
            region.sm_limit_percent,
            region.context_bytes,
            region.data_bytes,
        )
    assert {layout for layout, _ in figures} == {
        "v0-804680",
        "v0-1197896",
        "v1.1-2008952",
        "v1.1-2008984",
        "v1.2-2008952",
    }
    # 105 MiB of context and 615 of data, under 4,000 MiB and 30 %.
    assert set(figures.values()) == {(754_978_816, 1, "region", 4_194_304_000, 30, 110_100_480, 644_878_336)}
