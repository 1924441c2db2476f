"""Slices over their life, ticked by hand: load that ends, containers that crash, sources that fail."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.facts import AllocationFact
from lab.kube.faults import Answer
from tests.exporter.node.clocked import START_MS, ClockedStand, PlayedCard, pod_at
from tests.exporter.node.proc import FakeProc, systemd_path
from tests.exporter.node.stand import CARD, MIB, Page

UID = "11111111-aaaa-4000-8000-000000000001"


@pytest.fixture
def card() -> PlayedCard:
    return PlayedCard()


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, card: PlayedCard) -> Iterator[ClockedStand]:
    with ClockedStand(tmp_path, monkeypatch, card) as found:
        yield found


def test_the_value_falls_to_0_within_a_period_after_the_load_although_the_cache_holds_the_old_one(
    stand: ClockedStand, card: PlayedCard
) -> None:
    stand.double.create("Pod", pod_at("job", START_MS - 60_000))
    with stand.region("job") as region:
        slot = region.attach(7, 4_711)
        slot.set_memory(0, data_bytes=64 * MIB)
        slot.set_sm(0, 40)
        card.memory, card.shares = {4_711: 64 * MIB}, {4_711: 40}
        stand.start()
        for _ in range(3):
            stand.tick()
        assert stand.page().one("slice_sm_utilization_ratio", source="nvml") == 0.4
        before = stand.page().one("slice_sm_seconds_total")
        card.shares = {}
        stand.tick()
        page = stand.page()
        assert page.find("slice_sm_utilization_ratio") == [0.0]
        assert page.one("slice_sm_seconds_total") == before


def counters(page: Page) -> dict[str, float]:
    """The slice's counters by their text."""
    found = re.findall(r"^(slicemeter_slice_\w+_total\{[^\n]*\}) (\S+)$", page.text, re.MULTILINE)
    return {series: float(value) for series, value in found}


def test_a_container_that_crashes_over_and_over_keeps_one_set_of_series_that_never_fall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, card: PlayedCard
) -> None:
    proc = FakeProc(tmp_path / "proc")
    with ClockedStand(tmp_path, monkeypatch, card, proc) as stand:
        stand.double.create("Pod", pod_at("job", START_MS - 60_000, uid=UID, container_id="0" * 64))
        stand.start()
        before: dict[str, float] = {}
        for life in range(5):
            # Each life has a container of its own, and begins again with the same pid inside.
            container_id, host_pid = f"{life}f0a" * 16, 1_000 + life
            pod = pod_at("job", START_MS - 60_000, uid=UID, container_id=container_id)
            pod["status"]["containerStatuses"][0]["restartCount"] = life
            stand.double.apply("Pod", pod)
            proc.add(host_pid, 7, cgroup=systemd_path(UID, container_id), start=1_000 * (life + 1))
            card.memory, card.shares = {host_pid: 64 * MIB}, {host_pid: 50}
            for second in range(6):
                if second == 4:
                    proc.remove(host_pid)
                    card.memory, card.shares = {}, {}
                stand.tick()
                page = stand.page()
                assert len(page.find("slice_info")) == 1
                now = counters(page)
                assert set(before) <= set(now)
                assert [name for name, value in before.items() if now[name] < value] == []
                before = now
        # Four of each life's six seconds at 50 %; the very first tick only sets anchors.
        assert page.one("slice_sm_seconds_total") == pytest.approx(5 * 4 * 0.5 - 0.5)
        assert page.one("slice_memory_used_byte_seconds_total") == (5 * 4 - 1) * 64 * MIB


def test_a_scrape_asks_neither_the_api_server_nor_the_driver(
    stand: ClockedStand, card: PlayedCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand.double.create("Pod", pod_at("job", START_MS - 60_000))
    stand.start()
    stand.tick()
    requests = len(stand.double.request_log.entries())
    looks: list[str] = []
    monkeypatch.setattr(card, "read", lambda: looks.append("read"))
    for path in ("/metrics", "/healthz", "/debug/snapshot") * 5:
        assert stand.get(path)[0] == 200
    assert stand.get("/readyz")[0] in {200, 503}
    assert looks == []
    # Watches that were open may end and begin again; nobody lists.
    later = stand.double.request_log.entries()[requests:]
    assert [entry.verb for entry in later if entry.verb != "watch"] == []


def test_without_the_right_to_list_pods_devices_are_shown_and_no_allocation_is_said(
    stand: ClockedStand, card: PlayedCard
) -> None:
    stand.double.create("Pod", pod_at("job", START_MS - 60_000))
    stand.double.fail_next(Answer(403), verb="list", resource="pods", times=None)
    card.memory, card.shares, card.energy_mj = {4_711: 64 * MIB}, {4_711: 40}, 1_000
    stand.start(without=["pods were not listed yet"])
    for _ in range(3):
        card.energy_mj += 20_000
        stand.tick()
    status, _ = stand.get("/metrics")
    page = stand.page()
    assert status == 200
    assert page.one("device_memory_used_bytes", device_uuid=CARD) == 64 * MIB
    assert page.one("collector_success", collector="pods") == 0
    assert page.one("collector_success", collector="nvml") == 1
    assert page.find("slice_info") == []
    stand.stop()
    assert [fact for fact in stand.outbox() if isinstance(fact, AllocationFact)] == []
