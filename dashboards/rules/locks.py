"""HAMi's two locks: the node's, which lets one pod bind at a time, and the region's, inside a container.

The node lock's age comes from the lock's own time, so it is right also for a lock that was taken
before anybody looked. Source: `reference/hami-kubernetes.md §7`.
"""

from __future__ import annotations

from dashboards import uids
from dashboards.names import ST, N, increase, once
from dashboards.rules.rule import Alert
from dashboards.thresholds import Thresholds

NODE_LINK = uids.alert_link(uids.NEIGHBOURS, "cluster", "node")
POD_LINK = uids.alert_link(uids.POD, "cluster", "node", "tenant", "namespace", "pod")

_HELD_SINCE = once("node_lock_acquired_timestamp_seconds", N)
_WAITING = once("node_lock_waiting_pods", N)


def node_lock(limits: Thresholds) -> tuple[Alert, ...]:
    """The three that stop pods from binding: held too long, expired, unreadable."""
    return (
        Alert(
            name="SlicemeterNodeLockBlocking",
            expr=f"(time() - {_HELD_SINCE} > {limits.lock_held_seconds})\nand on ({N}) ({_WAITING} > 0)",
            hold="1m",
            severity="warning",
            summary="HAMi's node lock is held while pods wait for it",
            description=(
                "The lock of node {{ $labels.node }} has been held for {{ $value | humanizeDuration }} and "
                "pods wait for it: nothing binds there until it is released or expires."
            ),
            dashboard=NODE_LINK,
        ),
        Alert(
            name="SlicemeterNodeLockTimeout",
            expr=increase("node_lock_transitions_total", N, limits.lock_timeout_window, 'outcome="expired"')
            + " > 0",
            hold="0s",
            severity="warning",
            summary="A HAMi node lock ran into its timeout",
            description=(
                f"Locks of node {{{{ $labels.node }}}} expired in the last {limits.lock_timeout_window}: "
                "pods waited for the whole timeout before the next could bind."
            ),
            dashboard=NODE_LINK,
        ),
        Alert(
            name="SlicemeterNodeLockUnreadable",
            expr=f"{once('node_lock_unreadable', N)} == 1",
            hold="1m",
            severity="warning",
            summary="HAMi's node lock cannot be read, and HAMi will never remove it",
            description=(
                "The annotation hami.io/mutex.lock of node {{ $labels.node }} has a value that HAMi cannot "
                "read: no GPU pod binds there until a person removes it."
            ),
            dashboard=NODE_LINK,
        ),
    )


def region_lock(limits: Thresholds) -> Alert:
    """A region's lock that its owner cannot give back: every allocation in the container waits for it."""
    held = f"(time() - {once('slice_region_lock_held_since_timestamp_seconds', ST)})"
    dead = f"min by ({ST}) (slicemeter_slice_region_lock_owner_alive) == 0"
    return Alert(
        name="SlicemeterRegionLockStuck",
        expr=f"({held} > {limits.region_lock_held_seconds})\nor\n({held} and on ({ST}) ({dead}))",
        hold="1m",
        severity="warning",
        summary="The lock inside a container's HAMi-core region is not given back",
        description=(
            "In {{ $labels.namespace }}/{{ $labels.pod }} ({{ $labels.container }}) on {{ $labels.node }} "
            "one process has held the region's lock for {{ $value | humanizeDuration }}, or died with it: "
            "GPU allocations of the container wait."
        ),
        tenant_text=(
            "In {{ $labels.namespace }}/{{ $labels.pod }} ({{ $labels.container }}) one process has held "
            "HAMi-core's lock for {{ $value | humanizeDuration }}, or died with it: GPU allocations of the "
            "container wait. Restart the container if it does not move."
        ),
        dashboard=POD_LINK,
    )


def quiet_locks(limits: Thresholds) -> tuple[Alert, ...]:
    """Locks that hurt nobody yet, and an owner that does not get on."""
    return (
        Alert(
            name="SlicemeterNodeLockLeaked",
            expr=(
                f"(time() - {_HELD_SINCE} > {limits.lock_timeout_seconds})\nunless on ({N}) ({_WAITING} > 0)"
            ),
            hold="5m",
            severity="info",
            summary="A HAMi node lock outlived its timeout, and nobody waits for it",
            description=(
                "The lock of node {{ $labels.node }} has been held for {{ $value | humanizeDuration }}. The "
                "next pod that binds there takes it over; until then it does no harm."
            ),
            dashboard=NODE_LINK,
        ),
        Alert(
            name="SlicemeterNodeLockOwnerStuck",
            expr=f"{once('node_lock_owner_stuck', N)} == 1",
            hold="1m",
            severity="warning",
            summary="The pod that holds HAMi's node lock is bound and does not start",
            description=(
                "The owner of the lock of node {{ $labels.node }} is bound and has not been running for "
                "30 seconds or more: the device plugin there does not finish its allocation."
            ),
            dashboard=NODE_LINK,
        ),
    )
