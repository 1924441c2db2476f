"""From a snapshot to the cluster's page.

Units change here and nowhere else: bytes, seconds, ratios. Invariant: before everything was listed the
page says so and holds no figure of the cluster, for half a list would look like an empty cluster.
"""

from __future__ import annotations

from contract.units import MIB, MS_PER_SECOND
from contract.version import VERSION
from exporter.cluster.capacity import NodeCapacity
from exporter.cluster.snapshot import Findings, LockSight, Snapshot
from exporter.exposition.page import DEFAULT_SERIES_BUDGET, Page, PageBuilder

_PERCENT = 100


def make_page(snapshot: Snapshot, series_budget: int = DEFAULT_SERIES_BUDGET) -> Page:
    """The whole page of one snapshot; over budget, the series of the last findings are left out."""
    page = PageBuilder(series_budget)
    _self(page, snapshot)
    if snapshot.findings is not None:
        _findings(page, snapshot.findings, _seconds(snapshot.since_ms))
    return page.build(snapshot.at_ms / MS_PER_SECOND)


def _findings(page: PageBuilder, findings: Findings, since_s: float | None) -> None:
    for lock in findings.locks:
        with page.group():
            _lock(page, lock)
    for node, capacity in findings.capacities.items():
        with page.group():
            _capacity(page, node, capacity)
    for key, waiting in findings.pending.items():
        labels = (key.namespace, key.tenant, key.reason)
        memory = None if waiting.memory_mib is None else waiting.memory_mib * MIB
        with page.group():
            page.add("pending_pods", labels, waiting.pods)
            page.add("pending_memory_bytes", labels, memory)
    for key, milliseconds in findings.waiting_ms.items():
        labels = (key.namespace, key.tenant, key.reason)
        with page.group():
            page.add("pending_seconds_total", labels, milliseconds / MS_PER_SECOND, since_s)
    for where, pods in findings.unschedulable.items():
        with page.group():
            page.add("unschedulable_pods", where, pods)
    for where, pods in findings.bypassing.items():
        with page.group():
            page.add("bypassing_pods", where, pods)
    for (node, why), mib in findings.stranded_mib.items():
        with page.group():
            page.add("stranded_memory_bytes", (node, why), mib * MIB)
    for named, quota in findings.quotas.items():
        with page.group():
            page.add("quota_used", named, quota.used)
            page.add("quota_limit", named, quota.limit)


def _lock(page: PageBuilder, lock: LockSight) -> None:
    node = (lock.node,)
    page.add("node_lock_held", node, lock.is_held)
    if lock.acquired_at_ms is not None:
        acquired_s = lock.acquired_at_ms / MS_PER_SECOND
        page.add("node_lock_acquired_timestamp_seconds", (*node, *lock.owner), acquired_s)
    page.add("node_lock_waiting_pods", node, lock.waiting_pods)
    page.add("node_lock_owner_stuck", node, lock.is_owner_stuck)
    page.add("node_lock_unreadable", node, lock.is_unreadable)
    for outcome, count in lock.outcomes.items():
        page.add("node_lock_transitions_total", (*node, outcome), count, _seconds(lock.since_ms))


def _capacity(page: PageBuilder, node: str, capacity: NodeCapacity) -> None:
    for model in capacity.models:
        page.add("node_gpu_info", (node, model), 1)
    registered, allocated = (node, "registered"), (node, "allocated")
    page.add("node_gpu_memory_bytes", registered, capacity.registered_mib * MIB)
    page.add("node_gpu_memory_bytes", allocated, capacity.allocated_mib * MIB)
    page.add("node_gpu_cores_ratio", registered, capacity.registered_core_percent / _PERCENT)
    page.add("node_gpu_cores_ratio", allocated, capacity.allocated_core_percent / _PERCENT)
    page.add("node_gpu_slots", registered, capacity.registered_slots)
    page.add("node_gpu_slots", allocated, capacity.allocated_slots)
    page.add("reservation_memory_bytes", (node,), capacity.reserved_mib * MIB)


def _self(page: PageBuilder, snapshot: Snapshot) -> None:
    page.add("build_info", ("cluster", VERSION, ""), 1)
    page.add("snapshot_timestamp_seconds", (), snapshot.at_ms / MS_PER_SECOND)
    page.add("kube_view_timestamp_seconds", (), _seconds(snapshot.view_ms))
    for collector in snapshot.collectors:
        name = (collector.name,)
        page.add("collector_success", name, collector.is_well)
        page.add("collector_last_success_timestamp_seconds", name, _seconds(collector.last_success_ms))
    page.add("collector_duration_seconds", ("views",), snapshot.duration_ms / MS_PER_SECOND)
    for (kind, reason), count in snapshot.annotation_errors.items():
        page.add("annotation_errors_total", (kind, reason), count, _seconds(snapshot.since_ms))
    page.add("outbox_facts", (), snapshot.outbox_facts)
    page.add("outbox_oldest_timestamp_seconds", (), _seconds(snapshot.outbox_oldest_ms))


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / MS_PER_SECOND
