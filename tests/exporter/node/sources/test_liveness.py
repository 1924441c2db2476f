"""Where the host's processes cannot be seen, stale slots are called so on evidence only."""

from __future__ import annotations

from exporter.hami.region import DeviceUse, Slot
from exporter.node.sources.liveness import Liveness


def _slot(hostpid: int, used_bytes: int = 1) -> Slot:
    devices = (DeviceUse(index=0, total_bytes=used_bytes, monitorused_bytes=0),) if used_bytes else ()
    return Slot(
        slot=0,
        pid=7,
        hostpid=hostpid,
        status=1,
        seqlock=0,
        devices=devices,
        consistent=True,
        quality=frozenset(),
    )


def test_a_slot_whose_host_pid_is_not_known_is_believed() -> None:
    liveness = Liveness()
    for _ in range(5):
        liveness.begin([])
        assert liveness.is_listed("x", _slot(0), 0)


def test_nvml_must_miss_a_process_three_ticks_in_a_row() -> None:
    liveness, verdicts = Liveness(), []
    for listed in ([], [], [100], [], [], [], []):
        liveness.begin(listed)
        verdicts.append(liveness.is_listed("x", _slot(100), 100))
    assert verdicts == [True, True, True, True, True, False, False]


def test_a_slot_without_memory_is_not_expected_on_nvmls_list() -> None:
    liveness = Liveness()
    for _ in range(5):
        liveness.begin([])
        assert liveness.is_listed("x", _slot(100, used_bytes=0), 100)


def test_without_a_list_every_slot_is_believed() -> None:
    liveness = Liveness()
    for _ in range(5):
        liveness.begin(None)
        assert liveness.is_listed("x", _slot(100), 100)
