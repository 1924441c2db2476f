"""The role where the host's processes are seen: slices without a cache file are metered all the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.settings import NodeSettings
from tests.exporter.node.proc import FakeProc, systemd_path
from tests.exporter.node.stand import MIB, Stand, pod

WHOLE = "11111111-aaaa-4000-8000-000000000001"
FREE = "22222222-bbbb-4000-8000-000000000002"
ID, OTHER_ID = "5f0a" * 16, "9c3e" * 16


class SeeingStand(Stand):
    """A stand whose exporter sees the host's processes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.proc = FakeProc(folder / "proc")
        boot_id = self.proc.root / "sys/kernel/random/boot_id"
        boot_id.parent.mkdir(parents=True)
        boot_id.write_text("5d1c2c1e-0000-4000-8000-000000000001\n")

    def settings(self, *, once: bool = False) -> NodeSettings:
        return dataclasses.replace(super().settings(once=once), proc_root=self.proc.root)


@pytest.fixture
def seeing(tmp_path: Path) -> Iterator[SeeingStand]:
    found = SeeingStand(tmp_path)
    found.open()
    yield found
    found.close()


def test_a_whole_card_and_a_bypassing_pod_are_metered_by_their_cgroups(seeing: SeeingStand) -> None:
    seeing.double.create(
        "Pod", pod("whole", uid=WHOLE, env=[{"name": "CUDA_DISABLE_CONTROL", "value": "true"}])
    )
    seeing.double.create("Pod", pod("free", uid=FREE, allocated=False))
    seeing.proc.add(4_100, 7, cgroup=systemd_path(WHOLE, ID))
    seeing.proc.add(4_101, 1, cgroup=systemd_path(FREE, OTHER_ID))
    seeing.proc.add(4_102, cgroup="/system.slice/other.service")
    seeing.card.memory = {4_100: 800 * MIB, 4_101: 300 * MIB, 4_102: 50 * MIB}
    seeing.card.shares = {4_100: 40, 4_101: 20}
    seeing.start()

    page = seeing.wait_for(
        lambda found: (
            (found.one("slice_sm_seconds_total", pod="whole") or 0) > 0
            and (found.one("unallocated_sm_seconds_total", pod="free") or 0) > 0
        )
    )

    assert page.one("slice_memory_used_bytes", pod="whole") == 800 * MIB
    (info,) = page.labels("slice_info", pod="whole")
    assert (info["memory_source"], info["enforcement"]) == ("nvml", "none")
    assert page.one("slice_processes", pod="whole") == 1
    assert page.one("unallocated_memory_used_bytes", pod="free") == 300 * MIB
    assert page.one("unattributed_processes") == 1
    assert page.one("device_memory_unattributed_bytes") == 50 * MIB
