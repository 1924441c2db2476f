"""The node role as a whole: a real API double, real regions, real HTTP; only the card is scripted."""

from __future__ import annotations

import dataclasses
import subprocess
import time
from collections.abc import Callable
from itertools import groupby, pairwise

import pytest

from contract.facts import AllocationFact, PresenceFact, SliceUsageFact
from exporter.node import role
from exporter.node.role import run
from tests.exporter.node.stand import CARD, MIB, NODE, NODE_UID, Page, Stand, pod

SLICE = {"namespace": "team", "pod": "job", "container": "main", "device_uuid": CARD, "tenant": "tenant-a"}


def test_a_slice_shows_what_its_region_its_pod_and_its_card_say(stand: Stand) -> None:
    stand.double.create("Pod", pod("job", env=[{"name": "GPU_CORE_UTILIZATION_POLICY", "value": "force"}]))
    with stand.region("job") as region:
        slot = region.attach(7, 4_711)
        slot.set_memory(0, data_bytes=512 * MIB)
        stand.card.memory, stand.card.shares = {4_711: 612 * MIB}, {4_711: 30}
        stand.start()
        page = stand.wait_for(lambda page: (page.one("slice_sm_seconds_total", **SLICE) or 0) > 0)
    assert page.one("slice_memory_used_bytes", **SLICE) == 512 * MIB
    assert page.one("slice_memory_limit_bytes", **SLICE) == 4_194_304_000
    assert page.one("slice_memory_allocated_bytes", **SLICE) == 4_194_304_000
    assert page.one("slice_core_allocated_ratio", **SLICE) == 0.3
    assert page.one("slice_core_limit_ratio", **SLICE) == 0.3
    assert page.one("slice_core_limit_enforced", **SLICE) == 1
    assert page.one("slice_sm_utilization_ratio", source="nvml", **SLICE) == 0.3
    assert page.one("slice_memory_bytes", kind="data", **SLICE) == 512 * MIB
    assert page.one("slice_processes", **SLICE) == 1
    (info,) = page.labels("slice_info")
    assert info == {"node": NODE} | SLICE | {
        "pod_uid": "uid-job",
        "model": "NVIDIA-Tesla T4",
        "vendor": "NVIDIA",
        "layout": "v1.2-2008952",
        "policy": "force",
        "priority": "1",
        "enforcement": "hami-core",
        "memory_source": "region",
    }
    card = {"node": NODE, "device_uuid": CARD}
    assert page.one("device_memory_total_bytes", **card) == 15_360 * MIB
    assert page.one("device_memory_allocated_bytes", **card) == 4_000 * MIB
    # 612 MiB in use by NVML, 512 of them known from the region.
    assert page.one("device_memory_unattributed_bytes", **card) == 100 * MIB
    assert (page.one("device_slots", **card), page.one("device_slots_allocated", **card)) == (10, 1)
    assert page.one("device_core_allocated_ratio", **card) == 0.3
    assert page.one("unattributed_processes") == 0
    assert page.one("collector_success", collector="nvml") == 1


def test_every_closed_counter_of_a_new_slice_is_there_at_zero(stand: Stand) -> None:
    stand.double.create("Pod", pod("job"))
    stand.start()
    page = stand.wait_for(lambda page: bool(page.find("slice_info")))
    for name in (
        "slice_sm_seconds_total",
        "slice_memory_used_byte_seconds_total",
        "slice_blocked_seconds_total",
        "slice_over_memory_limit_seconds_total",
    ):
        assert page.one(name, **SLICE) == 0
    for reason in ("no_source", "source_failed", "gap", "uncertain"):
        assert page.one("slice_unknown_seconds_total", reason=reason, **SLICE) == 0
    # Without a region NVML is asked: nobody is on the card, so the slice uses nothing.
    assert page.one("slice_memory_used_bytes", **SLICE) == 0
    assert page.labels("slice_info")[0]["memory_source"] == "nvml"
    assert page.one("slice_memory_limit_bytes", **SLICE) is None
    # Granted memory counts from the binding, a minute ago.
    assert (page.one("slice_memory_allocated_byte_seconds_total", **SLICE) or 0) >= 59 * 4_000 * MIB


def test_a_mock_node_is_ready_and_shows_allocations_but_nothing_used(mock_stand: Stand) -> None:
    mock_stand.double.create("Pod", pod("job", memory_mib=8_000, cores=50))
    mock_stand.start()
    mock_stand.wait_ready()
    page = mock_stand.wait_for(lambda page: bool(page.find("slice_info")))
    assert [sample.name for sample in page.samples if "_used_" in sample.name] == []
    assert page.one("device_memory_allocated_bytes") == 8_000 * MIB
    assert page.one("device_core_allocated_ratio") == 0.5
    assert page.one("slice_memory_allocated_bytes", **SLICE) == 8_000 * MIB
    # Every kind and reason is there from 0 on.
    assert set(page.find("annotation_errors_total")) == {0.0}
    assert page.find("slice_sm_seconds_total") == []
    assert page.one("collector_success", collector="nvml") == 0
    assert page.labels("slice_info")[0]["enforcement"] == "none"


def test_a_process_of_a_pod_without_allocation_is_unallocated_and_one_of_no_pod_is_unattributed(
    stand: Stand,
) -> None:
    stand.double.create("Pod", pod("job"))
    stand.double.create("Pod", pod("rogue", allocated=False))
    with stand.region("job") as mine, stand.region("rogue") as rogue:
        mine.attach(7, 100).set_memory(0, data_bytes=64 * MIB)
        rogue.attach(7, 200).set_memory(0, data_bytes=128 * MIB)
        stand.card.memory = {100: 64 * MIB, 200: 128 * MIB, 300: 256 * MIB}
        stand.card.shares = {100: 10, 200: 20, 300: 40}
        stand.start()
        page = stand.wait_for(lambda page: (page.one("device_sm_unattributed_seconds_total") or 0) > 0)
    assert page.one("slice_memory_used_bytes", **SLICE) == 64 * MIB
    assert page.one("unallocated_memory_used_bytes", pod="rogue") == 128 * MIB
    assert page.find("slice_info", pod="rogue") == []
    assert page.one("unattributed_processes") == 1
    assert page.one("device_memory_unattributed_bytes") == 256 * MIB
    mine_s, rogue_s = page.one("slice_sm_seconds_total", **SLICE), page.one("unallocated_sm_seconds_total")
    foreign_s, busy_s = (
        page.one("device_sm_unattributed_seconds_total"),
        page.one("device_busy_seconds_total"),
    )
    assert mine_s is not None
    assert mine_s > 0
    assert rogue_s == pytest.approx(2 * mine_s)
    assert foreign_s == pytest.approx(4 * mine_s)
    assert busy_s == pytest.approx(7 * mine_s)


def test_a_killed_process_is_out_of_every_figure_and_counted_as_stale(stand: Stand) -> None:
    stand.double.create("Pod", pod("job"))
    with stand.region("job") as region:
        region.attach(7, 100).set_memory(0, data_bytes=64 * MIB)
        region.attach(8, 101).set_memory(0, data_bytes=32 * MIB)
        stand.card.memory = {100: 64 * MIB, 101: 32 * MIB}
        stand.start()
        stand.wait_for(lambda page: page.one("slice_memory_used_bytes", **SLICE) == 96 * MIB)
        stand.card.memory = {100: 64 * MIB}
        page = stand.wait_for(lambda page: page.one("slice_stale_processes", **SLICE) == 1)
    assert page.one("slice_memory_used_bytes", **SLICE) == 64 * MIB
    assert page.one("slice_processes", **SLICE) == 1


def test_a_finished_pod_keeps_its_counters_and_shows_no_gauge(stand: Stand) -> None:
    stand.double.create("Pod", pod("job"))
    stand.start()
    stand.wait_for(lambda page: bool(page.find("slice_info")))
    stand.double.patch("Pod", "team", "job", {"status": {"phase": "Succeeded"}})
    page = stand.wait_for(lambda page: not page.find("slice_info"))
    assert page.one("slice_sm_seconds_total", **SLICE) == 0
    assert page.one("slice_memory_used_bytes", **SLICE) is None
    assert page.one("device_slots_allocated") == 0


def test_a_pod_made_again_under_its_name_never_doubles_a_series(stand: Stand) -> None:
    stand.double.create("Pod", pod("job", uid="uid-first"))
    stand.start()
    stand.wait_for(lambda page: bool(page.find("slice_info", pod_uid="uid-first")))
    stand.double.delete("Pod", "team", "job")
    stand.double.create("Pod", pod("job", uid="uid-second"))
    page = stand.wait_for(lambda page: bool(page.find("slice_info", pod_uid="uid-second")))
    assert len(page.find("slice_sm_seconds_total")) == 1
    assert len(page.find("slice_memory_allocated_byte_seconds_total")) == 1


def test_counters_go_on_after_a_restart_and_never_go_back(stand: Stand) -> None:
    stand.double.create("Pod", pod("job"))
    with stand.region("job") as region:
        region.attach(7, 100).set_memory(0, data_bytes=64 * MIB)
        stand.card.memory, stand.card.shares = {100: 64 * MIB}, {100: 50}
        stand.start()
        before = stand.wait_for(lambda page: (page.one("slice_sm_seconds_total", **SLICE) or 0) > 0.2)
        stand.stop()
        assert stand.exit_code == 0
        stand.start()
        after = stand.wait_for(lambda page: bool(page.find("slice_sm_seconds_total", **SLICE)))
    for name in ("slice_sm_seconds_total", "slice_memory_used_byte_seconds_total"):
        assert (after.one(name, **SLICE) or 0) >= (before.one(name, **SLICE) or 0) > 0
    assert after.find("counters_restarted_total", why="first_start") == [0.0]
    assert (after.one("slice_unknown_seconds_total", reason="gap", **SLICE) or 0) > 0


def test_an_unreadable_annotation_is_one_error_over_a_restart_too(stand: Stand) -> None:
    bad = pod("job")
    bad["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"] = f"{CARD},NVIDIA,4000,30:GPU-x,NVIDIA:;"
    stand.double.create("Pod", bad)
    which = {"kind": "pod-devices", "reason": "field_count"}
    stand.start()
    page = stand.wait_for(lambda page: bool(page.find("slice_info")))
    assert page.one("annotation_errors_total", **which) == 1
    stand.stop()
    stand.start()
    page = stand.wait_for(lambda page: bool(page.find("slice_info")))
    assert page.one("annotation_errors_total", **which) == 1


def test_a_lost_driver_leaves_absence_and_a_health_series_and_comes_back_by_itself(stand: Stand) -> None:
    stand.double.create("Pod", pod("job"))
    stand.start()
    stand.wait_for(lambda page: page.one("device_memory_total_bytes") is not None)
    stand.card.is_down = True
    page = stand.wait_for(lambda page: page.one("collector_success", collector="nvml") == 0)
    assert page.one("device_memory_total_bytes") is None
    assert page.one("device_health") == 0
    assert page.one("slice_memory_used_bytes", **SLICE) is None
    assert page.one("slice_memory_allocated_bytes", **SLICE) == 4_000 * MIB
    stand.wait_for(
        lambda page: (page.one("slice_unknown_seconds_total", reason="source_failed", **SLICE) or 0) > 0
    )
    stand.card.is_down = False
    page = stand.wait_for(lambda page: page.one("device_memory_total_bytes") is not None)
    assert page.one("device_health") == 1
    assert stand.card.opened == 2


def test_the_source_is_let_go_while_hami_slices_cards_again(stand: Stand) -> None:
    stand.start()
    stand.wait_for(lambda page: page.one("collector_success", collector="nvml") == 1)
    stand.mig_lock.touch()
    page = stand.wait_for(lambda page: page.one("collector_success", collector="nvml") == 0)
    assert page.one("device_health") == 1
    assert stand.card.closed == 1
    stand.mig_lock.unlink()
    stand.wait_for(lambda page: page.one("collector_success", collector="nvml") == 1)
    assert stand.card.opened == 2


def test_it_is_not_ready_before_the_api_server_was_asked(stand: Stand) -> None:
    stand.double.stop()
    stand.start()
    stand.wait_for(lambda page: bool(page.find("process_start_time_seconds")) or "python_info" in page.text)
    status, body = stand.get("/readyz")
    assert status == 503
    assert "namespaces were not listed yet" in body
    stand.double.start()
    stand.wait_ready()


def _has_used(seconds: float) -> Callable[[Page], bool]:
    return lambda page: (page.one("slice_sm_seconds_total", **SLICE) or 0) > seconds


def test_facts_wait_in_the_outbox_until_somebody_takes_them(stand: Stand) -> None:
    stand.double.create("Pod", pod("job"))
    stand.start()
    # Allocation, presence, slice usage, device usage.
    page = stand.wait_for(lambda page: (page.one("outbox_facts") or 0) >= 4)
    assert (page.one("outbox_oldest_timestamp_seconds") or 0) > 0


def test_a_restart_closes_the_old_epoch_and_the_new_one_does_not_overlap_it(stand: Stand) -> None:
    stand.double.create("Pod", pod("job"))
    with stand.region("job") as region:
        region.attach(7, 100).set_memory(0, data_bytes=64 * MIB)
        stand.card.memory, stand.card.shares = {100: 64 * MIB}, {100: 50}
        seen_s = 0.0
        for _ in range(2):
            enough_s = seen_s + 0.3
            stand.start()
            page = stand.wait_for(_has_used(enough_s))
            seen_s = page.one("slice_sm_seconds_total", **SLICE) or 0
            stand.stop()
    facts = stand.outbox()
    usage = sorted(
        (fact for fact in facts if isinstance(fact, SliceUsageFact)), key=lambda fact: fact.from_ms
    )
    assert len({fact.epoch for fact in usage}) == 2
    for earlier, later in pairwise(usage):
        assert earlier.to_ms <= later.from_ms
    assert all(fact.covered_ms + fact.unknown_ms <= fact.to_ms - fact.from_ms for fact in usage)
    assert sum(fact.sm_ppm_ms for fact in usage) / 1e9 >= seen_s - 0.001
    (allocation,) = [fact for fact in facts if isinstance(fact, AllocationFact)]
    assert (allocation.pod_uid, allocation.mem_mib, allocation.core_percent) == ("uid-job", 4_000, 30)
    assert (allocation.tenant_key, allocation.node_uid, allocation.witness) == ("tenant-a", NODE_UID, "node")
    presence = [fact for fact in facts if isinstance(fact, PresenceFact)]
    assert {(fact.state, fact.registered_mib, fact.physical_mib) for fact in presence} == {
        ("healthy", 15_360, 15_360)
    }


def test_a_fatal_xid_takes_the_card_down_until_it_was_reset_and_outlives_a_restart(stand: Stand) -> None:
    stand.start()
    stand.wait_for(lambda page: page.one("device_health") == 1)
    stand.card.xids = [31]
    page = stand.wait_for(lambda page: page.one("device_xid_errors_total", code="31") == 1)
    assert page.one("device_health") == 1, "31 is the program's own fault"
    stand.card.xids = [79, 79]
    page = stand.wait_for(lambda page: page.one("device_health") == 0)
    assert page.one("device_xid_errors_total", code="79") == 2
    assert abs(time.time() - (page.one("device_xid_last_timestamp_seconds", code="79") or 0)) < 60
    stand.stop()
    stand.start()
    page = stand.wait_for(lambda page: page.one("device_health") is not None)
    assert page.one("device_health") == 0
    assert page.one("device_xid_errors_total", code="79") == 2
    stand.card.failure = "gpu_is_lost"
    page = stand.wait_for(lambda page: page.one("device_temperature_celsius") is None)
    assert (page.one("device_health"), page.one("collector_success", collector="nvml")) == (0, 0)
    stand.card.failure = None
    stand.wait_for(lambda page: page.one("device_health") == 1)
    stand.stop()
    presence = [fact for fact in stand.outbox() if isinstance(fact, PresenceFact)]
    states = {fact.from_ms: (fact.state, fact.reason) for fact in presence}
    told = [states[at_ms] for at_ms in sorted(states)]
    assert [state for state, _ in groupby(told)] == [
        ("healthy", None),
        ("down", "xid_79"),
        ("down", "gpu_is_lost"),
        ("healthy", None),
    ]


def test_once_prints_one_page_and_leaves_the_state_file_alone(
    stand: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    stand.double.create("Pod", pod("job"))
    settings = stand.settings(once=True)
    assert run(settings, stand.card, stop=stand._stop) == 0
    page = Page(capsys.readouterr().out)
    assert page.one("slice_memory_allocated_bytes", **SLICE) == 4_000 * MIB
    assert not settings.state_file.exists()


def test_a_port_in_use_ends_the_start_with_one_line(stand: Stand, capsys: pytest.CaptureFixture[str]) -> None:
    stand.start()
    stand.wait_ready()
    second = dataclasses.replace(stand.settings(), state_file=stand.folder / "other.db")
    assert run(second, stand.card, stop=stand._stop) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_source_that_hangs_leaves_a_page_that_says_how_old_it_is_and_shows_no_figures(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(role, "STALE_AFTER_S", 1.0)
    stand.double.create("Pod", pod("job"))
    stand.start()
    stand.wait_for(lambda page: bool(page.find("slice_info")))
    stand.card.hang.set()
    page = stand.wait_for(lambda page: not page.find("slice_info") and bool(page.find("build_info")))
    assert page.find("device_memory_total_bytes") == []
    assert page.one("collector_success", collector="nvml") == 0
    assert stand.wait_for(lambda page: bool(page.samples)).one("snapshot_timestamp_seconds") == page.one(
        "snapshot_timestamp_seconds"
    )
    status, body = stand.get("/readyz")
    assert status == 503
    assert "a source hangs" in body
    stand.card.hang.clear()
    stand.card.release.set()
    stand.wait_for(lambda page: bool(page.find("slice_info")))
    stand.wait_ready()


def test_with_the_api_server_away_no_slice_disappears_and_the_view_says_how_old_it_is(stand: Stand) -> None:
    stand.double.create("Pod", pod("job"))
    stand.start()
    before = stand.wait_for(lambda page: bool(page.find("slice_info")))
    stand.double.stop()
    page = stand.wait_for(lambda page: page.one("collector_success", collector="pods") == 0)
    later = stand.wait_for(
        lambda later: (
            (later.one("snapshot_timestamp_seconds") or 0) > (page.one("snapshot_timestamp_seconds") or 0)
        )
    )
    assert later.find("slice_info") == [1.0]
    assert later.one("kube_view_timestamp_seconds") == page.one("kube_view_timestamp_seconds")
    assert (page.one("kube_view_timestamp_seconds") or 0) >= (before.one("kube_view_timestamp_seconds") or 0)
    stand.double.start()
    stand.wait_for(lambda page: page.one("collector_success", collector="pods") == 1)


def test_a_card_without_process_samples_is_metered_from_the_cache(stand: Stand) -> None:
    stand.card.has_samples = False
    stand.double.create("Pod", pod("job"))
    with stand.region("job") as region:
        slot = region.attach(7, 100)
        slot.set_monitorused(0, MIB)
        slot.set_sm(0, 40)
        stand.card.memory = {100: MIB}
        stand.start()
        page = stand.wait_for(lambda page: (page.one("slice_sm_seconds_total", **SLICE) or 0) > 0)
        assert page.one("slice_sm_utilization_ratio", source="cache", **SLICE) == 0.4
        assert page.one("slice_sm_utilization_ratio", source="nvml", **SLICE) is None


@pytest.mark.promtool
def test_promtool_finds_nothing_on_the_page(stand: Stand, need_tool: Callable[[str, str], str]) -> None:
    promtool = need_tool("promtool", "prometheus")
    stand.double.create("Pod", pod("job"))
    stand.double.create("Pod", pod("rogue", allocated=False))
    with stand.region("job") as mine, stand.region("rogue") as rogue:
        mine.attach(7, 100).set_memory(0, data_bytes=64 * MIB)
        rogue.attach(7, 200).set_memory(0, data_bytes=128 * MIB)
        stand.card.memory, stand.card.shares = {100: 64 * MIB, 200: 128 * MIB}, {100: 10, 200: 5}
        stand.start()
        page = stand.wait_for(lambda page: (page.one("unallocated_sm_seconds_total") or 0) > 0)
    done = subprocess.run(
        [promtool, "check", "metrics"], input=page.text, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
