"""The check-up of a node: each thing that can be wrong is named, with a way out; what is right is ok."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from exporter.checkup import finding
from lab.kube.faults import Answer, Silence
from lab.workloads.region_writer import RegionFile
from tests.exporter.checkup.conftest import Check
from tests.exporter.node.proc import FakeProc, systemd_path
from tests.exporter.node.stand import CARD, MIB, NODE, Stand, pod

ROGUE_UID = "7a1a2b3c-1111-4222-8333-444455556666"


def test_a_node_in_order_has_no_finding(check: Check, stand: Stand, job: RegionFile) -> None:
    lines = check()
    assert {name: line.verdict for name, line in lines.items()} == {
        "state file": "ok",
        "kubernetes api": "ok",
        "kubernetes pods": "ok",
        "kubernetes nodes": "ok",
        "kubernetes namespaces": "ok",
        "node": "ok",
        "hami register": "ok",
        "hami allocations": "ok",
        "container roots": "ok",
        "cache files": "ok",
        "host processes": "ok",
        "mig lock": "ok",
        "nvml": "ok",
        "card 0": "ok",
        "registered cards": "ok",
        "gpu processes": "ok",
        "accounting": "note",
        "clock": "ok",
    }
    assert lines["hami register"].detail == "1 devices registered, 10 slots"
    assert lines["hami allocations"].detail == "1 slices held by 1 of 1 pods"
    assert lines["cache files"].detail == "1 read: v1.2-2008952 ×1"
    assert lines["gpu processes"].detail == "1 listed by NVML: 1 of slices, 0 unallocated, 0 unattributed"
    assert "energy" in lines["card 0"].detail.partition("not supported")[0]
    assert "ECC errors" in lines["card 0"].detail.partition("not supported")[2]
    assert (stand.card.opened, stand.card.closed) == (1, 1)


def test_checking_leaves_no_file_behind(check: Check, stand: Stand, job: RegionFile) -> None:
    def tree() -> dict[str, int]:
        return {str(path): path.stat().st_mtime_ns for path in stand.root.rglob("*")}

    before = tree()
    check()
    assert tree() == before
    assert not stand.settings().state_file.exists()


@pytest.mark.parametrize(("verb", "word"), [("list", "list: "), ("watch", "watch: ")])
def test_a_missing_right_names_the_resource_and_the_verb(
    check: Check, stand: Stand, verb: str, word: str
) -> None:
    stand.double.fail_next(Answer(403), times=None, verb=verb, resource="namespaces")  # type: ignore[arg-type]
    lines = check()
    assert lines["kubernetes api"].verdict == "ok"
    assert lines["kubernetes namespaces"].verdict == "finding"
    assert lines["kubernetes namespaces"].detail.startswith(word)
    assert "allow list and watch on namespaces" in lines["kubernetes namespaces"].way_out
    assert lines["kubernetes pods"].verdict == "ok"


def test_a_refused_token_is_one_finding_and_nothing_else_is_asked(check: Check, stand: Stand) -> None:
    stand.double.token_file.write_text("old\n")
    lines = check()
    assert lines["kubernetes api"].verdict == "finding"
    assert "401" in lines["kubernetes api"].detail
    assert "--kube-token-file" in lines["kubernetes api"].way_out
    assert [lines[f"kubernetes {name}"].detail for name in ("pods", "nodes", "namespaces")] == [
        "not asked"
    ] * 3
    assert lines["hami allocations"].verdict == "note"
    assert lines["nvml"].verdict == "ok"


def test_a_ca_file_that_is_not_there_is_named(check: Check, stand: Stand, tmp_path: Path) -> None:
    stand.double.ca_file.unlink()
    line = check()["kubernetes api"]
    assert (line.verdict, str(stand.double.ca_file) in line.detail) == ("finding", True)


def test_an_api_server_that_is_gone_hides_nothing_of_the_host(
    check: Check, stand: Stand, job: RegionFile
) -> None:
    stand.double.stop()
    lines = check()
    assert lines["kubernetes api"].verdict == "finding"
    assert lines["cache files"].verdict == "ok"
    assert lines["card 0"].verdict == "ok"
    assert lines["gpu processes"].verdict == "note"


def test_an_api_server_that_hangs_is_not_waited_for(
    check: Check, stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "ANSWER_SECONDS", 0.3)
    stand.double.fail_next(Silence(), times=None)
    line = check()["kubernetes api"]
    assert (line.verdict, "no answer within 0.3 s" in line.detail) == ("finding", True)


def test_a_driver_that_hangs_is_not_waited_for(
    check: Check, stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand.card.hang.set()
    monkeypatch.setattr("exporter.checkup.finding.ANSWER_SECONDS", 1.5)
    lines = check()
    assert (lines["nvml"].verdict, lines["nvml"].detail) == ("finding", "no answer within 1.5 s")
    assert "dmesg" in lines["nvml"].way_out
    assert lines["gpu processes"].verdict == "note"


def test_a_node_that_is_not_there_is_named(check: Check) -> None:
    lines = check(node_name="worker-9")
    assert lines["node"].detail == 'there is no Node "worker-9"'
    assert (lines["node"].verdict, "NODE_NAME" in lines["node"].way_out) == ("finding", True)


@pytest.mark.parametrize(
    ("text", "word"),
    [("", "no device registered"), ("GPU-1,ten,15360,100,T4,0,true:", "bad_number")],
)
def test_a_register_that_says_nothing_readable_is_a_finding(
    check: Check, stand: Stand, text: str, word: str
) -> None:
    annotations: dict[str, object] = {"hami.io/node-nvidia-register": text}
    stand.double.patch("Node", "", NODE, {"metadata": {"annotations": annotations}})
    line = check()["hami register"]
    assert line.verdict == "finding"
    assert word in line.detail


def test_an_allocation_that_cannot_be_read_is_counted_by_reason_and_named(check: Check, stand: Stand) -> None:
    broken = pod("torn")
    broken["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"] = f"{CARD},NVIDIA,many,30:;"
    stand.double.create("Pod", broken)
    line = check()["hami allocations"]
    assert line.verdict == "finding"
    assert "bad_number ×1, in team/torn" in line.detail


def test_a_pod_that_asks_for_a_gpu_and_holds_none_is_named(check: Check, stand: Stand) -> None:
    asking = pod("lost")
    asking["metadata"]["annotations"] = {}
    stand.double.create("Pod", asking)
    line = check()["hami allocations"]
    assert (line.verdict, "team/lost" in line.detail) == ("finding", True)


def test_cache_files_that_are_refused_are_counted_by_reason(
    check: Check, stand: Stand, job: RegionFile
) -> None:
    folder = stand.root / "uid-odd_main"
    folder.mkdir()
    (folder / "a.cache").write_bytes(b"\0" * 17)
    (folder / "b.cache").symlink_to("/etc/passwd")
    line = check()["cache files"]
    assert line.verdict == "finding"
    assert line.detail.startswith("2 of 3 refused: symlink ×1, unknown_size ×1; ")
    assert line.detail.endswith("read: v1.2-2008952 ×1")


def test_a_node_of_the_mock_device_plugin_has_notes_and_no_finding(check: Check, stand: Stand) -> None:
    stand.root.rmdir()
    stand.card.is_down = True
    stand.double.create("Pod", pod("job"))
    lines = check()
    assert [line for line in lines.values() if line.verdict == "finding"] == []
    assert (lines["container roots"].verdict, lines["nvml"].verdict) == ("note", "note")
    assert lines["hami allocations"].verdict == "ok"


def test_without_nvml_and_roots_a_node_whose_driver_is_loaded_has_findings(
    check: Check, stand: Stand, proc: FakeProc
) -> None:
    stand.root.rmdir()
    stand.card.is_down = True
    stand.double.create("Pod", pod("job"))
    version = proc.root / "driver/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01\n")
    lines = check()
    assert (lines["container roots"].verdict, lines["nvml"].verdict) == ("finding", "finding")
    assert "NVIDIA_VISIBLE_DEVICES=all" in lines["nvml"].way_out


def test_without_nvml_a_node_with_cache_files_has_a_finding(
    check: Check, stand: Stand, job: RegionFile
) -> None:
    stand.card.is_down = True
    assert check()["nvml"].verdict == "finding"


def test_a_proc_that_is_not_the_hosts_is_a_finding_where_pids_matter(
    check: Check, stand: Stand, tmp_path: Path, job: RegionFile
) -> None:
    stand.card.memory = {9_999: MIB}
    lines = check(proc_root=FakeProc(tmp_path / "own", is_hosts=False).root)
    assert lines["host processes"].verdict == "finding"
    assert "hostPID" in lines["host processes"].way_out
    assert lines["gpu processes"].verdict == "finding"
    assert "1 unattributed" in lines["gpu processes"].detail


def test_processes_past_hami_are_told_apart(
    check: Check, stand: Stand, proc: FakeProc, job: RegionFile
) -> None:
    stand.double.create("Pod", pod("rogue", uid=ROGUE_UID, allocated=False))
    proc.add(5_000, 9, cgroup=systemd_path(ROGUE_UID, "b" * 64))
    proc.add(6_000)
    stand.card.memory |= {5_000: MIB, 6_000: MIB}
    line = check()["gpu processes"]
    assert line.verdict == "note"
    assert line.detail == (
        "3 listed by NVML: 1 of slices, 1 unallocated, 1 unattributed; unallocated: team/rogue"
    )


def test_while_hami_slices_cards_anew_nvml_is_not_touched(check: Check, stand: Stand) -> None:
    stand.mig_lock.touch()
    lines = check()
    assert (lines["mig lock"].verdict, lines["nvml"].verdict, stand.card.opened) == ("note", "note", 0)


def test_a_mig_lock_that_was_left_behind_is_a_finding(check: Check, stand: Stand) -> None:
    stand.mig_lock.touch()
    hour_ago_s = time.time() - 3_600
    os.utime(stand.mig_lock, (hour_ago_s, hour_ago_s))
    line = check()["mig lock"]
    assert (line.verdict, "60 minutes" in line.detail) == ("finding", True)


def test_a_card_that_hami_registered_and_nvml_does_not_list_is_a_finding(check: Check, stand: Stand) -> None:
    annotations: dict[str, object] = {"hami.io/node-nvidia-register": "GPU-gone,10,15360,100,T4,0,true:"}
    stand.double.patch("Node", "", NODE, {"metadata": {"annotations": annotations}})
    line = check()["registered cards"]
    assert (line.verdict, "GPU-gone" in line.detail) == ("finding", True)


def test_a_card_that_is_lost_is_a_finding_and_others_are_still_told(check: Check, stand: Stand) -> None:
    stand.card.failure = "gpu_is_lost"
    lines = check()
    assert (lines["card 0"].verdict, "gpu_is_lost" in lines["card 0"].detail) == ("finding", True)
    assert lines["nvml"].verdict == "ok"


def test_a_card_without_process_samples_says_where_sm_time_comes_from(check: Check, stand: Stand) -> None:
    stand.card.has_samples = False
    line = check()["card 0"]
    assert (line.verdict, "cache files" in line.way_out) == ("note", True)


def test_a_pod_whose_slice_has_no_directory_is_a_note(check: Check, stand: Stand) -> None:
    stand.double.create("Pod", pod("job"))
    line = check()["hami-core"]
    assert (line.verdict, line.detail) == (
        "note",
        "1 of 1 pods with slices have no directory in the container roots",
    )


def test_a_clock_behind_the_api_servers_is_a_finding(check: Check, stand: Stand) -> None:
    late = pod("tomorrow")
    late["metadata"]["creationTimestamp"] = time.strftime(
        "%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 600)
    )
    stand.double.create("Pod", late)
    line = check()["clock"]
    assert (line.verdict, "before the API server made its newest object" in line.detail) == ("finding", True)
