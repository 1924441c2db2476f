"""Stale slots are called so on evidence only."""

from __future__ import annotations

from pathlib import Path

from exporter.hami.region import DeviceUse, Slot
from exporter.node.liveness import Liveness


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


def _host(root: Path, *pids: int) -> Path:
    (root / "2").mkdir()
    (root / "2" / "comm").write_text("kthreadd\n")
    for pid in pids:
        (root / str(pid)).mkdir()
    return root


def test_a_host_process_that_is_gone_makes_its_slot_stale(tmp_path: Path) -> None:
    liveness = Liveness(_host(tmp_path, 100))
    liveness.begin(None)
    assert liveness.is_live("x", _slot(100))
    assert not liveness.is_live("x", _slot(101))
    assert (liveness.exists(100), liveness.exists(101)) == (True, False)


def test_a_proc_of_another_pid_namespace_is_no_evidence(tmp_path: Path) -> None:
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "comm").write_text("python\n")
    liveness = Liveness(tmp_path)
    liveness.begin([5_000])
    assert liveness.is_live("x", _slot(5_000))
    assert liveness.exists(5_000) is None


def test_a_proc_that_shows_a_process_of_nvmls_list_is_the_hosts(tmp_path: Path) -> None:
    (tmp_path / "5000").mkdir()
    liveness = Liveness(tmp_path)
    liveness.begin([5_000])
    assert not liveness.is_live("x", _slot(101))


def test_a_slot_whose_host_pid_is_not_known_is_believed(tmp_path: Path) -> None:
    liveness = Liveness(_host(tmp_path))
    liveness.begin([])
    assert liveness.is_live("x", _slot(0))


def test_without_a_proc_nvml_must_miss_a_process_three_ticks_in_a_row() -> None:
    liveness, verdicts = Liveness(None), []
    for listed in ([], [], [100], [], [], [], []):
        liveness.begin(listed)
        verdicts.append(liveness.is_live("x", _slot(100)))
    assert verdicts == [True, True, True, True, True, False, False]


def test_a_slot_without_memory_is_not_expected_on_nvmls_list() -> None:
    liveness = Liveness(None)
    for _ in range(5):
        liveness.begin([])
        assert liveness.is_live("x", _slot(100, used_bytes=0))


def test_without_proc_and_nvml_every_slot_is_believed() -> None:
    liveness = Liveness(None)
    for _ in range(5):
        liveness.begin(None)
        assert liveness.is_live("x", _slot(100))
