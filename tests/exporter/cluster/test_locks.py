"""Node locks: the table of `reference/hami-kubernetes.md §7.5`, line by line."""

from __future__ import annotations

from typing import Any

import pytest

from exporter.cluster.locks import Ending, Owner, judge
from exporter.cluster.snapshot import LockSight
from exporter.hami.annotations.node_lock import parse_node_lock
from tests.exporter.cluster.handmade import (
    EIGHT_MS,
    Cluster,
    event,
    filtered,
    gpu_node,
    gpu_pod,
    lock,
    make_cluster,
)

TIMEOUT_MS = 300_000
NONE = {"acquired": 0, "released": 0, "expired": 0, "dangling": 0, "manual": 0}


def outcome(
    owner: Owner | None, *, gone_s: float, next_s: float | None = None, text: str | None = None
) -> str:
    next_ms = None if next_s is None else EIGHT_MS + round(next_s * 1000)
    ending = Ending(text or lock(0), EIGHT_MS + round(gone_s * 1000), next_ms)
    return judge(parse_node_lock(ending.text), ending, owner, TIMEOUT_MS)


ALLOCATING = Owner(exists=True, bind_phase="allocating")


@pytest.mark.parametrize("phase", ["success", "failed"])
@pytest.mark.parametrize("gone_s", [1.0, 400.0])
def test_an_owner_that_was_served_released_its_lock_whatever_its_age(phase: Any, gone_s: float) -> None:
    assert outcome(Owner(exists=True, bind_phase=phase), gone_s=gone_s) == "released"


def test_an_owner_whose_binding_failed_released_its_lock() -> None:
    assert outcome(Owner(True, "allocating", False, EIGHT_MS), gone_s=1) == "released"


def test_a_binding_that_failed_before_the_lock_was_taken_releases_nothing() -> None:
    assert outcome(Owner(True, "allocating", False, EIGHT_MS - 1000), gone_s=1) == "manual"


@pytest.mark.parametrize("gone_s", [1.0, 400.0])
def test_a_lock_without_its_owner_is_dangling(gone_s: float) -> None:
    assert outcome(Owner(exists=False), gone_s=gone_s) == "dangling"


def test_a_lock_older_than_the_timeout_expired_even_when_its_owner_runs() -> None:
    assert outcome(ALLOCATING, gone_s=310) == "expired"


def test_a_replaced_lock_is_judged_by_the_times_of_the_two_locks() -> None:
    # Replayed objects: by our clock a second passed, by the scheduler's five minutes and more.
    assert outcome(ALLOCATING, gone_s=1, next_s=308) == "expired"
    # And the other way round: our clock is late, the next lock came in time.
    assert outcome(ALLOCATING, gone_s=1000, next_s=240) == "manual"


def test_a_lock_a_few_seconds_short_of_the_timeout_counts_as_expired() -> None:
    assert outcome(ALLOCATING, gone_s=298) == "expired"
    assert outcome(ALLOCATING, gone_s=290) == "manual"


def test_the_young_lock_of_a_finished_owner_was_released() -> None:
    assert outcome(Owner(exists=True, bind_phase="allocating", is_terminal=True), gone_s=10) == "released"


def test_a_young_lock_whose_owner_is_still_allocating_was_removed_by_hand() -> None:
    assert outcome(ALLOCATING, gone_s=240) == "manual"


def test_an_unreadable_lock_only_a_person_removes() -> None:
    assert outcome(None, gone_s=1, text="half past nine") == "manual"


def test_a_lock_that_names_no_owner_is_judged_by_its_age() -> None:
    assert outcome(None, gone_s=10, text="2026-10-01T08:00:00Z") == "released"
    assert outcome(None, gone_s=310, text="2026-10-01T08:00:00Z") == "expired"


def sight(cluster: Cluster, at_s: float) -> LockSight:
    (found,) = cluster.tick(at_s).findings.locks
    return found


def test_every_outcome_of_a_gpu_node_is_there_from_zero(cluster: Cluster) -> None:
    found = sight(cluster, 0)
    assert (found.is_held, found.acquired_at_ms, dict(found.outcomes)) == (False, None, NONE)


def test_a_healthy_lock_that_comes_and_goes_between_two_ticks_is_counted_twice(cluster: Cluster) -> None:
    cluster.tick(0)
    annotations = filtered(bind_phase="success")
    cluster.put_pods(gpu_pod(annotations=annotations, node="gpu-node", bound_s=5))
    cluster.put_nodes(gpu_node(lock=lock(5)), gpu_node(), at_s=5.4)
    assert sight(cluster, 5.5).outcomes == NONE | {"acquired": 1}, "the owner's own update may be on its way"
    assert sight(cluster, 6.5).outcomes == NONE | {"acquired": 1, "released": 1}


def test_the_owner_is_judged_as_it_is_a_second_after_the_lock_went(cluster: Cluster) -> None:
    cluster.put_nodes(gpu_node(lock=lock(5)), at_s=5)
    cluster.put_pods(gpu_pod(annotations=filtered(bind_phase="allocating"), node="gpu-node", bound_s=5))
    cluster.tick(5)
    cluster.put_nodes(gpu_node(), at_s=6)
    cluster.tick(6)
    cluster.put_pods(gpu_pod(annotations=filtered(bind_phase="success"), node="gpu-node", bound_s=5))
    assert sight(cluster, 7).outcomes["released"] == 1


def test_the_mock_labs_locks_expire_twice_and_the_last_is_removed_by_hand() -> None:
    # Own times -898, -590 and -200 are replayed within seconds; the lock goes at 40.
    cluster = make_cluster()
    cluster.tick(-24)
    pods = [("share-a", -898, -23.9), ("share-b", -590, -15.7), ("share-c", -200, -5.3)]
    for name, own_s, real_s in pods:
        cluster.put_nodes(gpu_node(lock=lock(own_s, name)), at_s=real_s)
        annotations = filtered(at_s=own_s - 1, bind_phase="allocating")
        running = gpu_pod(name, annotations=annotations, node="gpu-node", bound_s=own_s, phase="Running")
        cluster.put_pods(running, at_s=real_s)
        cluster.tick(real_s + 0.1)
    found = sight(cluster, 0)
    assert (found.is_held, found.owner, found.acquired_at_ms) == (
        True,
        ("team", "share-c"),
        EIGHT_MS - 200_000,
    )
    cluster.put_nodes(gpu_node(), at_s=40)
    cluster.tick(40)
    assert sight(cluster, 41).outcomes == {
        "acquired": 3,
        "released": 0,
        "expired": 2,
        "dangling": 0,
        "manual": 1,
    }


def test_an_owner_deleted_after_its_lock_went_is_no_reason_to_call_it_dangling(cluster: Cluster) -> None:
    cluster.put_nodes(gpu_node(lock=lock(5)), at_s=5)
    cluster.put_pods(gpu_pod(annotations=filtered(bind_phase="success"), node="gpu-node", bound_s=5))
    cluster.tick(5)
    cluster.put_nodes(gpu_node(), at_s=10)
    cluster.drop_pod("uid-team-p", at_s=10.2)
    cluster.tick(10.5)
    assert sight(cluster, 11.5).outcomes["released"] == 1


def test_an_owner_deleted_while_it_held_the_lock_leaves_it_dangling(cluster: Cluster) -> None:
    cluster.put_nodes(gpu_node(lock=lock(5)), at_s=5)
    cluster.put_pods(gpu_pod(annotations=filtered(bind_phase="allocating"), node="gpu-node", bound_s=5))
    cluster.tick(5)
    cluster.drop_pod("uid-team-p", at_s=8)
    cluster.tick(8)
    cluster.put_nodes(gpu_node(lock=lock(20, "other")), at_s=20)
    cluster.tick(20)
    assert sight(cluster, 21).outcomes == NONE | {"acquired": 2, "dangling": 1}


def test_a_lock_that_was_there_at_the_start_was_not_acquired_now() -> None:
    cluster = make_cluster(nodes=[gpu_node(lock=lock(-60))])
    cluster.put_pods(gpu_pod(annotations=filtered(bind_phase="success"), node="gpu-node", bound_s=-60))
    found = sight(cluster, 0)
    assert (found.is_held, dict(found.outcomes)) == (True, NONE)


def test_a_change_while_the_exporter_was_away_is_counted_when_it_is_back(cluster: Cluster) -> None:
    cluster.put_pods(gpu_pod(annotations=filtered(bind_phase="success"), node="gpu-node", bound_s=5))
    cluster.put_nodes(gpu_node(lock=lock(5)), at_s=5)
    cluster.tick(5)
    cluster.put_nodes(gpu_node())
    again = cluster.restarted()
    again.tick(20)
    assert sight(again, 21.5).outcomes == NONE | {"acquired": 1, "released": 1}


def test_outcomes_go_on_after_a_restart(cluster: Cluster) -> None:
    cluster.put_nodes(gpu_node(lock=lock(5)), at_s=5)
    cluster.tick(5)
    assert sight(cluster.restarted(), 6).outcomes == NONE | {"acquired": 1}


def test_an_unreadable_lock_is_held_has_no_time_and_counts_one_error() -> None:
    cluster = make_cluster(nodes=[gpu_node(lock="2026-10-01T08:00:00Z,team")])
    found = sight(cluster, 0)
    assert (found.is_held, found.is_unreadable, found.acquired_at_ms) == (True, True, None)
    cluster.put_nodes(gpu_node(lock="2026-10-01T08:00:00Z,team"), at_s=10)  # a heartbeat
    cluster.tick(10)
    assert cluster.core.flaws.counts()["node-lock", "field_count"] == 1


def test_an_empty_lock_is_unreadable_too() -> None:
    assert sight(make_cluster(nodes=[gpu_node(lock="")]), 0).is_unreadable


def test_a_pod_refused_by_the_lock_waits_until_it_is_bound(cluster: Cluster) -> None:
    cluster.put_nodes(gpu_node(lock=lock(0, "owner")))
    cluster.put_pods(gpu_pod(annotations=filtered(at_s=1)))
    cluster.say(
        event(
            "p",
            "FilteringSucceed",
            "find fit node(gpu-node), 0 nodes not fit, 1 nodes fit(gpu-node:10.00)",
            1,
        ),
        event("p", "BindingFailed", "node gpu-node has been locked within 5m0s", 3),
    )
    assert sight(cluster, 4).waiting_pods == 1
    assert sight(cluster, 7200).waiting_pods == 1, "an event that aged out ends nothing"
    cluster.put_pods(gpu_pod(annotations=filtered(at_s=1), node="gpu-node", bound_s=290))
    assert sight(cluster, 7201).waiting_pods == 0


def test_a_pod_that_was_filtered_anew_waits_for_no_lock(cluster: Cluster) -> None:
    cluster.put_pods(gpu_pod(annotations=filtered(at_s=1)))
    cluster.say(event("p", "BindingFailed", "node gpu-node is locked", 3))
    assert sight(cluster, 4).waiting_pods == 1
    cluster.put_pods(gpu_pod(annotations=filtered(at_s=10)))
    assert sight(cluster, 11).waiting_pods == 0
    cluster.put_pods(gpu_pod(annotations=filtered("other-node", at_s=3)))
    assert sight(cluster, 12).waiting_pods == 0


def test_an_owner_that_is_bound_and_does_not_run_for_thirty_seconds_is_stuck(cluster: Cluster) -> None:
    cluster.put_nodes(gpu_node(lock=lock(0)))
    owner = gpu_pod(annotations=filtered(bind_phase="allocating"), node="gpu-node", bound_s=0)
    cluster.put_pods(owner)
    assert not sight(cluster, 0).is_owner_stuck
    assert not sight(cluster, 29).is_owner_stuck
    assert sight(cluster, 31).is_owner_stuck
    running = owner | {"status": owner["status"] | {"phase": "Running"}}
    cluster.put_pods(running)
    assert not sight(cluster, 32).is_owner_stuck


def test_an_owner_whose_binding_lies_far_back_is_not_stuck_at_first_sight(cluster: Cluster) -> None:
    cluster.put_nodes(gpu_node(lock=lock(-898)))
    cluster.put_pods(gpu_pod(annotations=filtered(), node="gpu-node", bound_s=-898))
    assert not sight(cluster, 0).is_owner_stuck
    assert sight(cluster, 3).is_owner_stuck


def test_a_node_that_goes_takes_its_lock_with_it(cluster: Cluster) -> None:
    cluster.put_nodes(gpu_node(lock=lock(0)))
    cluster.tick(0)
    cluster.drop_node("uid-gpu-node", at_s=1)
    assert cluster.tick(1).findings.locks == ()
    cluster.put_nodes(gpu_node())
    assert sight(cluster, 3).outcomes == NONE


def test_a_node_without_gpus_and_without_a_lock_has_no_lock_series() -> None:
    assert make_cluster(nodes=[gpu_node(register=None)]).tick(0).findings.locks == ()
