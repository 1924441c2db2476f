"""The lock of the field lab, replayed: a mock device plugin, whose locks nobody ever releases.

Three pods want one node. HAMi gives it to the first at second 0, refuses the two others at 30 and again at
299 (the lock is younger than its five minutes), lets the second take over at 301 and the third at 602,
301 s after it. What must be seen at each moment follows from the table of
`reference/hami-kubernetes.md §7.5`, by hand.
"""

from __future__ import annotations

from dataclasses import dataclass

from exporter.cluster.page import make_page
from exporter.cluster.snapshot import LockSight, Snapshot
from exporter.kube.objects import parse_time_ms
from tests.exporter.cluster.handmade import (
    EIGHT_MS,
    Cluster,
    clock,
    event,
    filtered,
    gpu_node,
    gpu_pod,
    lock,
    make_cluster,
)

NODE = "gpu-node"
REFUSED = f"node {NODE} has been locked within 5m0s"


@dataclass(frozen=True)
class Seen:
    """What the page says of the lock."""

    owner: str | None
    acquired_s: int | None
    waiting: int
    acquired: int
    expired: int


def seen(cluster: Cluster, at_s: float) -> Seen:
    (found,) = cluster.tick(at_s).findings.locks
    assert (found.is_owner_stuck, found.is_unreadable) == (False, False), "the owner runs, the text is whole"
    assert {found.outcomes[other] for other in ("released", "dangling", "manual")} == {0}
    return Seen(
        found.owner[1] if found.is_held else None,
        None if found.acquired_at_ms is None else (found.acquired_at_ms - EIGHT_MS) // 1000,
        found.waiting_pods,
        found.outcomes["acquired"],
        found.outcomes["expired"],
    )


def wants(cluster: Cluster, name: str, at_s: float) -> None:
    """HAMi's filter chose the node."""
    cluster.put_pods(gpu_pod(name, created_s=0, annotations=filtered(at_s=at_s)), at_s=at_s)


def is_refused(cluster: Cluster, name: str, at_s: float) -> None:
    """A binding failed; client-go merges it with the one before, so it is the same event, later."""
    cluster.say(event(name, "BindingFailed", REFUSED, at_s))


def takes(cluster: Cluster, name: str, at_s: float) -> None:
    """A binding succeeds, and the mock plugin starts the container without a word to HAMi."""
    cluster.put_nodes(gpu_node(lock=lock(at_s, name)), at_s=at_s)
    annotations = filtered(at_s=at_s - 1, bind_phase="allocating")
    running = gpu_pod(name, annotations=annotations, node=NODE, bound_s=at_s, phase="Running")
    cluster.put_pods(running, at_s=at_s)


def test_the_field_labs_lock_is_told_as_it_was_at_each_moment() -> None:
    cluster = make_cluster()
    cluster.tick(-5)

    takes(cluster, "first", 0)
    assert seen(cluster, 0) == Seen("first", 0, waiting=0, acquired=1, expired=0)

    for name in ("second", "third"):
        wants(cluster, name, 29)
        is_refused(cluster, name, 30)
    assert seen(cluster, 30) == Seen("first", 0, waiting=2, acquired=1, expired=0)

    wants(cluster, "second", 298)
    assert seen(cluster, 298) == Seen("first", 0, waiting=1, acquired=1, expired=0), "it tries anew"
    is_refused(cluster, "second", 299)
    assert seen(cluster, 299) == Seen("first", 0, waiting=2, acquired=1, expired=0)

    wants(cluster, "third", 300)
    takes(cluster, "second", 301)
    is_refused(cluster, "third", 301)
    # The new lock is there at once; how the old one ended is judged a second later.
    assert seen(cluster, 301) == Seen("second", 301, waiting=1, acquired=2, expired=0)
    assert seen(cluster, 302) == Seen("second", 301, waiting=1, acquired=2, expired=1)

    takes(cluster, "third", 602)
    assert seen(cluster, 602) == Seen("third", 602, waiting=0, acquired=3, expired=1)
    assert seen(cluster, 603) == Seen("third", 602, waiting=0, acquired=3, expired=2)
    # Nobody wants the node any more: the lock stays, beyond its time, and harms nobody.
    assert seen(cluster, 1_000) == Seen("third", 602, waiting=0, acquired=3, expired=2)


def test_the_last_lock_of_the_lab_removed_by_hand_is_expired_and_not_manual_once_its_time_is_over() -> None:
    cluster = make_cluster()
    cluster.tick(-5)
    takes(cluster, "first", 0)
    cluster.tick(0)
    cluster.put_nodes(gpu_node(), at_s=301)
    cluster.tick(301)
    assert seen(cluster, 302) == Seen(None, None, waiting=0, acquired=1, expired=1)


def test_a_scheduler_in_another_zone_and_a_replay_at_once_change_nothing() -> None:
    # The texts of the three locks as a scheduler at +08:00 writes them, seen within three seconds.
    cluster = make_cluster()
    cluster.tick(0)
    for at_s, name in enumerate(("first", "second", "third"), 1):
        own_s = (0, 301, 602)[at_s - 1]
        hours, rest = divmod(16 * 3600 + own_s, 3600)
        text = f"2026-10-01T{hours}:{rest // 60:02}:{rest % 60:02}+08:00,team,{name}"
        assert parse_time_ms(text.partition(",")[0]) == parse_time_ms(clock(own_s))
        cluster.put_nodes(gpu_node(lock=text), at_s=at_s)
        annotations = filtered(at_s=own_s, bind_phase="allocating")
        cluster.put_pods(gpu_pod(name, annotations=annotations, node=NODE, bound_s=own_s, phase="Running"))
        cluster.tick(at_s)
    assert seen(cluster, 5) == Seen("third", 602, waiting=0, acquired=3, expired=2)


def test_the_page_names_the_owner_and_counts_every_outcome() -> None:
    cluster = make_cluster()
    cluster.tick(-5)
    takes(cluster, "first", 0)
    takes(cluster, "second", 301)
    cluster.tick(301)
    findings = cluster.tick(303).findings
    page = make_page(Snapshot(EIGHT_MS + 303_000, EIGHT_MS + 303_000, 1.0, (), findings))
    shown = {
        (family.family.name, *sample.labels): sample.value
        for family in page.families
        for sample in family.samples
        if family.family.name.startswith("node_lock_")
    }
    assert shown == {
        ("node_lock_held", NODE): 1,
        ("node_lock_acquired_timestamp_seconds", NODE, "team", "second"): EIGHT_MS / 1000 + 301,
        ("node_lock_waiting_pods", NODE): 0,
        ("node_lock_owner_stuck", NODE): 0,
        ("node_lock_unreadable", NODE): 0,
        ("node_lock_transitions_total", NODE, "acquired"): 2,
        ("node_lock_transitions_total", NODE, "released"): 0,
        ("node_lock_transitions_total", NODE, "expired"): 1,
        ("node_lock_transitions_total", NODE, "dangling"): 0,
        ("node_lock_transitions_total", NODE, "manual"): 0,
    }


def found(cluster: Cluster, at_s: float) -> LockSight:
    (sight,) = cluster.tick(at_s).findings.locks
    return sight


def test_a_scheduler_that_failed_to_bind_gave_its_lock_back() -> None:
    cluster = make_cluster()
    cluster.put_pods(gpu_pod("p", annotations=filtered(at_s=4, bind_phase="allocating")))
    cluster.tick(0)
    cluster.put_nodes(gpu_node(lock=lock(5)), gpu_node(), at_s=5.2)
    cluster.say(event("p", "BindingFailed", "Operation cannot be fulfilled on pods/binding", 5))
    cluster.tick(5.2)
    assert found(cluster, 6.5).outcomes["released"] == 1


def test_an_unreadable_lock_that_a_person_replaces_is_manual_and_the_next_one_acquired() -> None:
    cluster = make_cluster(nodes=[gpu_node(lock="half past nine")])
    assert found(cluster, 0).is_unreadable
    cluster.put_nodes(gpu_node(), gpu_node(lock=lock(9)), at_s=10)
    sight = found(cluster, 12)
    assert (sight.is_unreadable, sight.outcomes["manual"], sight.outcomes["acquired"]) == (False, 1, 1)


def test_an_owner_that_comes_again_under_the_same_name_looks_like_the_owner() -> None:
    # The UID is not in the lock: HAMi itself cannot tell them apart.
    cluster = make_cluster()
    cluster.put_pods(gpu_pod("p", annotations=filtered(bind_phase="allocating"), uid="uid-1"))
    cluster.put_nodes(gpu_node(lock=lock(0)))
    cluster.tick(0)
    cluster.drop_pod("uid-1", at_s=3)
    cluster.put_pods(gpu_pod("p", annotations=filtered(at_s=4), uid="uid-2"), at_s=4)
    cluster.put_nodes(gpu_node(), at_s=20)
    cluster.tick(20)
    outcomes = found(cluster, 22).outcomes
    assert (outcomes["dangling"], outcomes["released"]) == (0, 1)
