"""The API server away for an hour while pods come and go behind it: the exporter's page and its facts.

An hour of an injected clock. The processes of the node are there to see all the while; what the API server
would have said is learned when it is back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from accounting.ledger.merge import held, merge_allocation
from contract.facts import AllocationFact, Fact, SliceUsageFact, decode_fact
from tests.exporter.node.clocked import HOUR_MS, ClockedStand, PlayedCard, pod_at
from tests.exporter.node.proc import FakeProc, systemd_path
from tests.exporter.node.stand import DEADLINE_S, MIB

MINUTE_MS = 60_000
GRACE_MS = 15 * MINUTE_MS
TICK_MS = 5_000
UIDS = {
    "stays": "11111111-aaaa-4000-8000-000000000001",
    "worked": "22222222-bbbb-4000-8000-000000000002",
    "quiet": "33333333-cccc-4000-8000-000000000003",
    "came": "44444444-dddd-4000-8000-000000000004",
    "passed": "55555555-eeee-4000-8000-000000000005",
}
CONTAINERS = {name: f"{number}f0a" * 16 for number, name in enumerate(UIDS, 1)}
PIDS = {"stays": 100, "worked": 200, "came": 300, "passed": 400}
SHARES = {"stays": 30, "worked": 20, "came": 10, "passed": 5}
BEGUN = {"stays": -5, "worked": -5, "passed": 5, "came": 15}
"""Minute of the outage in which the pod's process starts."""
OVER = {"passed": 8, "worked": 20}
"""Minute of the outage in which it ends."""


class Outage:
    """The node, its processes, and what happens behind the API server's back."""

    def __init__(self, stand: ClockedStand, card: PlayedCard, proc: FakeProc) -> None:
        self.stand = stand
        self.card = card
        self.proc = proc
        self.away_from_ms = 0
        self.seen_ms: dict[str, int] = {}

    def create(self, name: str) -> None:
        """Bound half a minute ago, as Kubernetes writes times: in whole seconds."""
        bound_ms = self.stand.at_ms - 30_000
        self.stand.double.create("Pod", pod_at(name, bound_ms, uid=UIDS[name], container_id=CONTAINERS[name]))

    def play(self, minutes: float) -> None:
        """Ticks, with processes that start and end in between."""
        for _ in range(round(minutes * MINUTE_MS / TICK_MS)):
            minute = (self.stand.at_ms + TICK_MS - self.away_from_ms) / MINUTE_MS if self.away_from_ms else -4
            for name, pid in PIDS.items():
                lives = BEGUN[name] <= minute < OVER.get(name, 1_000)
                if lives and pid not in self.card.memory:
                    self.proc.add(pid, 7, cgroup=systemd_path(UIDS[name], CONTAINERS[name]))
                    self.card.memory[pid] = 64 * MIB
                elif not lives and self.card.memory.pop(pid, 0):
                    self.proc.remove(pid)
            assert self.card.shares is not None
            self.card.shares = {PIDS[name]: SHARES[name] for name in PIDS if PIDS[name] in self.card.memory}
            self.stand.tick(TICK_MS)
            for name, pid in PIDS.items():
                if pid in self.card.memory:
                    self.seen_ms[name] = self.stand.at_ms

    def facts(self) -> list[Fact]:
        """What waits in the outbox now."""
        store = self.stand.sampler_role._store
        assert store is not None
        return [decode_fact(entry.line) for entry in store.batch(100_000).entries]

    def allocation(self, name: str) -> AllocationFact | None:
        """What is said of a pod's slice."""
        return next(
            (
                fact
                for fact in self.facts()
                if isinstance(fact, AllocationFact) and fact.pod_uid == UIDS[name]
            ),
            None,
        )

    def go_away(self) -> None:
        """The API server confirms its view once more and goes, and the exporter has noticed."""
        watches = self.stand.sampler_role._parts.watches
        _await(lambda: watches.pods().confirmed_at_ms == self.stand.at_ms)
        self.stand.tick(0)
        self.stand.double.stop()
        _await(lambda: not any(each.is_ok for each in watches.health()))
        self.away_from_ms = self.stand.at_ms


def _await(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)


@pytest.fixture
def outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Outage]:
    card, proc = PlayedCard(), FakeProc(tmp_path / "proc")
    with ClockedStand(tmp_path, monkeypatch, card, proc) as stand:
        found = Outage(stand, card, proc)
        for name in ("stays", "worked", "quiet"):
            found.create(name)
        stand.start()
        stand.know_pods(["stays", "worked", "quiet"])
        found.play(minutes=1)
        yield found


def test_an_hour_without_the_api_server_costs_no_slice_and_no_second(outage: Outage) -> None:
    stand = outage.stand
    outage.go_away()
    before = stand.page()
    sm_before = {name: before.one("slice_sm_seconds_total", pod=name) or 0.0 for name in ("stays", "worked")}
    confirmed_ms = outage.away_from_ms

    came_bound_ms = 0
    for minute in range(60):
        if minute == 4:
            outage.create("passed")
        if minute == 9:
            stand.double.delete("Pod", "team", "passed")
        if minute == 14:
            outage.create("came")
            came_bound_ms = stand.at_ms - 30_000
        if minute == 25:
            stand.double.delete("Pod", "team", "worked")
            stand.double.delete("Pod", "team", "quiet")
        outage.play(minutes=1)
        status, _ = stand.get("/metrics")
        assert status == 200
        page = stand.page()
        assert sorted(each["pod"] for each in page.labels("slice_info")) == ["quiet", "stays", "worked"]
        assert page.one("kube_view_timestamp_seconds") == confirmed_ms / 1_000
        assert page.one("collector_success", collector="pods") == 0

    # What only the API server could confirm stands on the grace; what has a process is confirmed by it.
    quiet, stays, worked = (outage.allocation(name) for name in ("quiet", "stays", "worked"))
    assert quiet is not None
    assert quiet.confirmed_at_ms <= confirmed_ms
    hold = held(merge_allocation([quiet]), as_of_ms=stand.at_ms, grace_ms=GRACE_MS)
    assert (hold.end, hold.to_ms) == ("grace", quiet.confirmed_at_ms + GRACE_MS)
    assert hold.confirmed_to_ms == quiet.confirmed_at_ms
    assert stays is not None
    assert held(merge_allocation([stays]), as_of_ms=stand.at_ms, grace_ms=GRACE_MS).end == "open"
    assert worked is not None
    assert worked.confirmed_at_ms <= outage.seen_ms["worked"]
    assert outage.allocation("came") is None

    stand.double.start()
    stand.know_pods(["stays", "came"])
    outage.play(minutes=1)

    _pods_that_exist_are_exact(outage, sm_before, came_bound_ms)
    _pods_deleted_meanwhile_ended_with_their_last_sign_of_life(outage, confirmed_ms)


def _pods_that_exist_are_exact(outage: Outage, sm_before: dict[str, float], came_bound_ms: int) -> None:
    page, now_ms = outage.stand.page(), outage.stand.at_ms
    assert sorted(each["pod"] for each in page.labels("slice_info")) == ["came", "stays"]
    sixty_one_minutes_s = (now_ms - outage.away_from_ms) / 1_000
    assert page.one("slice_sm_seconds_total", pod="stays") == pytest.approx(
        sm_before["stays"] + 0.3 * sixty_one_minutes_s
    )
    assert sum(page.find("slice_unknown_seconds_total", pod="stays")) == 0
    granted = page.one("slice_memory_allocated_byte_seconds_total", pod="came")
    assert granted == 4_000 * MIB * (now_ms - came_bound_ms) / 1_000
    came, stays = outage.allocation("came"), outage.allocation("stays")
    assert came is not None
    assert (came.bound_at_ms, came.ended_at_ms) == (came_bound_ms, None)
    assert stays is not None
    assert stays.ended_at_ms is None
    # The use of what nobody could name yet is nobody's, and the card's use is whole.
    assert page.one("device_busy_seconds_total") == pytest.approx(
        sum(page.find("slice_sm_seconds_total")) + (page.one("device_sm_unattributed_seconds_total") or 0)
    )
    assert outage.allocation("passed") is None


def _pods_deleted_meanwhile_ended_with_their_last_sign_of_life(outage: Outage, confirmed_ms: int) -> None:
    worked, quiet = outage.allocation("worked"), outage.allocation("quiet")
    assert worked is not None
    assert (worked.ended_at_ms, worked.end_kind, worked.end_reason) == (
        outage.seen_ms["worked"],
        "inferred",
        "Vanished",
    )
    assert outage.away_from_ms + 19 * MINUTE_MS < outage.seen_ms["worked"] < outage.away_from_ms + HOUR_MS / 2
    assert quiet is not None
    assert (quiet.ended_at_ms, quiet.end_kind, quiet.end_reason) == (confirmed_ms, "inferred", "Vanished")
    use = sorted(
        (
            fact
            for fact in outage.facts()
            if isinstance(fact, SliceUsageFact) and fact.pod_uid == UIDS["worked"]
        ),
        key=lambda fact: fact.from_ms,
    )
    for earlier, later in pairwise(use):
        assert earlier.to_ms <= later.from_ms
    # Twenty minutes in the outage and one before, at 20 %.
    assert sum(fact.sm_ppm_ms for fact in use) == pytest.approx(200_000 * 21 * MINUTE_MS, rel=0.01)
