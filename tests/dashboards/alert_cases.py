"""One case an alert and tier: series under which it fires, the near miss, and the words it must say.

Series are written without `cluster`, which the tests add; minute numbers and texts are worked out by
hand from the thresholds of the design.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Series = Mapping[str, str]
"""Series (without cluster) to promtool's values, one a minute."""

DEVICE = 'node="n", device_uuid="GPU-1"'
SLICE = 'node="n", namespace="ns", pod="p", container="main", device_uuid="GPU-1", tenant="t"'
SOURCE = 'instance="i"'
DEVICE_LABELS = {"node": "n", "device_uuid": "GPU-1"}
SLICE_LABELS = {**DEVICE_LABELS, "namespace": "ns", "pod": "p", "container": "main", "tenant": "t"}
SOURCE_LABELS = {"instance": "i"}
NAMESPACE_LABELS = {"namespace": "ns", "tenant": "t"}
CARD = "/d/slicemeter-card?var-cluster=c&var-node=n&var-device=GPU-1"
POD = "/d/slicemeter-pod?var-cluster=c&var-node=n&var-tenant=t&var-namespace=ns&var-pod=p"
LOCKS = "/d/slicemeter-neighbours?var-cluster=c&var-node=n"
PIPELINE = "/d/slicemeter-pipeline?var-cluster=c"
TENANT = "/d/slicemeter-tenant?var-cluster=c&var-tenant=t&var-namespace=ns"
FLEET = "/d/slicemeter-fleet?var-cluster=c"
BOOKS = "/d/slicemeter-chargeback"


@dataclass(frozen=True)
class Case:
    """What an alert must do.

    Attributes:
        fires_at: The first minute at which it fires.
        labels: Beside `alertname`, `severity` and `cluster`.
        near_miss: Series that replace, or are added to, those that fire.
        description: As a person reads it.
    """

    alert: str
    severity: str
    series: Series
    near_miss: Series
    fires_at: int
    labels: Mapping[str, str]
    description: str
    dashboard: str
    tenant_text: str = ""
    why: str = ""

    @property
    def id(self) -> str:
        """For the test's name."""
        return " ".join(filter(None, (self.alert, self.severity, self.why)))


def _lasting(value: float) -> str:
    return f"{value}x100"


_HELD = f"slicemeter_slice_region_lock_held_since_timestamp_seconds{{{SLICE}}}"
_ALIVE = f"slicemeter_slice_region_lock_owner_alive{{{SLICE}}}"
_LOCKED = 'slicemeter_node_lock_acquired_timestamp_seconds{node="n", owner_namespace="ns", owner_pod="p"}'
_WAITING = 'slicemeter_node_lock_waiting_pods{node="n"}'
_USED = f"slicemeter_slice_memory_used_bytes{{{SLICE}}}"
_LIMIT = f"slicemeter_slice_memory_limit_bytes{{{SLICE}}}"
_UNALLOCATED = f"slicemeter_unallocated_memory_used_bytes{{{SLICE}}}"
_NODE_BUILD = 'slicemeter_build_info{role="node", version="1", node="n"}'
_CLUSTER_BUILD = 'slicemeter_build_info{role="cluster", version="1", node=""}'
_BYPASS = 'slicemeter_bypassing_pods{namespace="ns", tenant="t", why="scheduler"}'
_PENDING = 'slicemeter_pending_pods{namespace="ns", tenant="t", reason="CardInsufficientMemory"}'
_CONTESTED = 'slicemeter_source_contested_timestamp_seconds{node="n"}'
_RESTARTED = f'slicemeter_counters_restarted_total{{{SOURCE}, why="state_damaged"}}'
_DOWN = (
    "Card GPU-1 on n is down, waits for a reset to remap memory rows, or counted uncorrected ECC errors in "
    "the last hour."
)

ALWAYS_ON = (
    Case(
        alert="SlicemeterExporterDown",
        severity="warning",
        series={'slicemeter_node_gpu_info{node="n", model="L4"}': _lasting(1)},
        near_miss={_NODE_BUILD: _lasting(1)},
        fires_at=5,
        labels={"node": "n"},
        description=(
            "Node n has GPUs registered with HAMi, and no Slicemeter exporter answers there: its slices are "
            "billed from the cluster's view, and their use is unknown."
        ),
        dashboard=PIPELINE,
    ),
    Case(
        alert="SlicemeterClusterRoleAbsent",
        severity="warning",
        series={_NODE_BUILD: _lasting(1)},
        near_miss={_CLUSTER_BUILD: _lasting(1)},
        fires_at=5,
        labels={},
        description=(
            "Cluster c has node exporters and no cluster exporter: locks, pending pods, bypasses and dead "
            "exporters are not seen there."
        ),
        dashboard=PIPELINE,
    ),
    Case(
        alert="SlicemeterNodeLockUnreadable",
        severity="warning",
        series={'slicemeter_node_lock_unreadable{node="n"}': _lasting(1)},
        near_miss={'slicemeter_node_lock_unreadable{node="n"}': _lasting(0)},
        fires_at=1,
        labels={"node": "n"},
        description=(
            "The annotation hami.io/mutex.lock of node n has a value that HAMi cannot read: no GPU pod binds "
            "there until a person removes it."
        ),
        dashboard=LOCKS,
    ),
    Case(
        # Held since second 60: over 60 s from minute 3 on (180 - 60 = 120), then one minute more.
        alert="SlicemeterRegionLockStuck",
        severity="warning",
        series={_HELD: _lasting(60), _ALIVE: _lasting(1)},
        near_miss={_HELD: "0+60x100"},
        fires_at=4,
        labels=SLICE_LABELS,
        description=(
            "In ns/p (main) on n one process has held the region's lock for 3m 0s, or died with it: GPU "
            "allocations of the container wait."
        ),
        tenant_text=(
            "In ns/p (main) one process has held HAMi-core's lock for 3m 0s, or died with it: GPU "
            "allocations of the container wait. Restart the container if it does not move."
        ),
        dashboard=POD,
    ),
    Case(
        # The owner is dead: no minute of grace for the age, only that of the alert.
        alert="SlicemeterRegionLockStuck",
        severity="warning",
        why="owner dead",
        series={_HELD: "0+60x100", _ALIVE: _lasting(0)},
        near_miss={_ALIVE: _lasting(1)},
        fires_at=1,
        labels=SLICE_LABELS,
        description=(
            "In ns/p (main) on n one process has held the region's lock for 0s, or died with it: GPU "
            "allocations of the container wait."
        ),
        tenant_text=(
            "In ns/p (main) one process has held HAMi-core's lock for 0s, or died with it: GPU allocations "
            "of the container wait. Restart the container if it does not move."
        ),
        dashboard=POD,
    ),
    Case(
        alert="SlicemeterSliceNearLimit",
        severity="info",
        series={_USED: _lasting(96), _LIMIT: _lasting(100)},
        near_miss={_USED: _lasting(94)},
        fires_at=10,
        labels=SLICE_LABELS,
        description=(
            "ns/p (main) uses 96% of its GPU memory limit on n: the next allocation is likely refused."
        ),
        tenant_text="ns/p (main) uses 96% of its GPU memory limit: the next allocation is likely refused.",
        dashboard=POD,
    ),
    Case(
        # Seen at second 120, told from minute 2 on; at minute 12 it is 600 s old and forgotten.
        alert="SlicemeterXid",
        severity="critical",
        series={f'slicemeter_device_xid_last_timestamp_seconds{{{DEVICE}, code="79"}}': "_x2 120x98"},
        near_miss={f'slicemeter_device_xid_last_timestamp_seconds{{{DEVICE}, code="79"}}': "_x2 -600x98"},
        fires_at=2,
        labels={**DEVICE_LABELS, "code": "79"},
        description=("Card GPU-1 on n reported XID 79 0s ago. Its time is not charged until it is reset."),
        dashboard=CARD,
    ),
    Case(
        alert="SlicemeterXid",
        severity="info",
        series={f'slicemeter_device_xid_last_timestamp_seconds{{{DEVICE}, code="31"}}': "_x2 120x98"},
        near_miss={f'slicemeter_device_xid_last_timestamp_seconds{{{DEVICE}, code="31"}}': "_x2 -600x98"},
        fires_at=2,
        labels={**DEVICE_LABELS, "code": "31"},
        description="Card GPU-1 on n reported XID 31 0s ago: mostly a program's own error; the card goes on.",
        dashboard=CARD,
    ),
    Case(
        alert="SlicemeterDeviceUnhealthy",
        severity="critical",
        series={f"slicemeter_device_health{{{DEVICE}}}": _lasting(0)},
        near_miss={f"slicemeter_device_health{{{DEVICE}}}": _lasting(1)},
        fires_at=5,
        labels=DEVICE_LABELS,
        description=_DOWN,
        dashboard=CARD,
    ),
    Case(
        alert="SlicemeterDeviceUnhealthy",
        severity="critical",
        why="rows to remap",
        series={f"slicemeter_device_remapped_rows_pending{{{DEVICE}}}": _lasting(1)},
        near_miss={f"slicemeter_device_remapped_rows_pending{{{DEVICE}}}": _lasting(0)},
        fires_at=5,
        labels=DEVICE_LABELS,
        description=_DOWN,
        dashboard=CARD,
    ),
    Case(
        # One uncorrected error at minute 3, seen as an increase from then on; five minutes more.
        alert="SlicemeterDeviceUnhealthy",
        severity="critical",
        why="uncorrected errors",
        series={f'slicemeter_device_ecc_errors_total{{{DEVICE}, kind="uncorrected"}}': "0x2 1x98"},
        near_miss={f'slicemeter_device_ecc_errors_total{{{DEVICE}, kind="uncorrected"}}': _lasting(7)},
        fires_at=8,
        labels=DEVICE_LABELS,
        description=_DOWN,
        dashboard=CARD,
    ),
    Case(
        alert="SlicemeterPodBypassesHami",
        severity="warning",
        series={_BYPASS: _lasting(2)},
        near_miss={_BYPASS: _lasting(0)},
        fires_at=10,
        labels={**NAMESPACE_LABELS, "why": "scheduler"},
        description=(
            "In namespace ns (tenant t) 2 pod(s) went past HAMi (scheduler): no limit holds them, and other "
            "slices of the card suffer."
        ),
        tenant_text="In namespace ns 2 pod(s) went past HAMi (scheduler).",
        dashboard=TENANT,
    ),
    Case(
        # 512 MiB; the near miss is 128 MiB, a context that somebody left open.
        alert="SlicemeterPodBypassesHami",
        severity="warning",
        why="uses a card",
        series={_UNALLOCATED: _lasting(536870912)},
        near_miss={_UNALLOCATED: _lasting(134217728)},
        fires_at=10,
        labels=SLICE_LABELS,
        description=(
            "In namespace ns (tenant t) p (main) uses 512MiB of card GPU-1 on n without an allocation: no "
            "limit holds them, and other slices of the card suffer."
        ),
        tenant_text="In namespace ns p uses a GPU that it was not granted.",
        dashboard=TENANT,
    ),
    Case(
        alert="SlicemeterLedgerGap",
        severity="warning",
        series={"slicemeter_coverage_ratio": _lasting(0.9)},
        near_miss={"slicemeter_coverage_ratio": _lasting(0.96)},
        fires_at=60,
        labels={},
        description=(
            "Only 90% of the device time of cluster c is confirmed: its month will not close without an "
            "override."
        ),
        dashboard="/d/slicemeter-pipeline",
    ),
)

BY_SWITCH = {
    "collection": (
        Case(
            # The snapshot stays at second 0: over 60 s old from minute 2 on, then five minutes more.
            alert="SlicemeterSnapshotStale",
            severity="warning",
            series={f"slicemeter_snapshot_timestamp_seconds{{{SOURCE}}}": _lasting(0)},
            near_miss={f"slicemeter_snapshot_timestamp_seconds{{{SOURCE}}}": "0+60x100"},
            fires_at=7,
            labels=SOURCE_LABELS,
            description="Exporter i of cluster c took its snapshot 7m 0s ago: its sampler hangs.",
            dashboard=PIPELINE,
        ),
        Case(
            alert="SlicemeterCollectorFailing",
            severity="warning",
            series={f'slicemeter_collector_success{{{SOURCE}, collector="nvml"}}': _lasting(0)},
            near_miss={f'slicemeter_collector_success{{{SOURCE}, collector="nvml"}}': _lasting(1)},
            fires_at=10,
            labels={**SOURCE_LABELS, "collector": "nvml"},
            description="Exporter i of cluster c gets nothing from its source nvml: what it feeds is absent.",
            dashboard=PIPELINE,
        ),
        Case(
            # One file that is tried once a minute; the rate needs two points.
            alert="SlicemeterCacheUndecodable",
            severity="warning",
            series={f'slicemeter_cache_errors_total{{{SOURCE}, reason="size"}}': "0+1x100"},
            near_miss={f'slicemeter_cache_errors_total{{{SOURCE}, reason="size"}}': _lasting(5)},
            fires_at=16,
            labels={**SOURCE_LABELS, "reason": "size"},
            description=(
                "Exporter i of cluster c cannot read region files (size): those slices fall back to NVML."
            ),
            dashboard=PIPELINE,
        ),
        Case(
            # 9 s a minute: 180 s, 5 % of the hour, are passed at minute 21 with 189 s (5.25 %).
            alert="SlicemeterUsageUnknown",
            severity="info",
            series={f'slicemeter_slice_unknown_seconds_total{{{SLICE}, reason="source_failed"}}': "0+9x100"},
            near_miss={
                f'slicemeter_slice_unknown_seconds_total{{{SLICE}, reason="source_failed"}}': "0+2x100"
            },
            fires_at=21,
            labels=SLICE_LABELS,
            description="The SM use of ns/p (main) is unknown for 5.25% of the last hour.",
            tenant_text="The SM use of ns/p (main) is unknown for 5.25% of the last hour; it is not guessed.",
            dashboard=POD,
        ),
        Case(
            alert="SlicemeterKubeViewStale",
            severity="warning",
            series={f"slicemeter_kube_view_timestamp_seconds{{{SOURCE}}}": _lasting(0)},
            near_miss={f"slicemeter_kube_view_timestamp_seconds{{{SOURCE}}}": "0+60x100"},
            fires_at=11,
            labels=SOURCE_LABELS,
            description=(
                "Exporter i of cluster c last saw the Kubernetes API 11m 0s ago: names and ends are of then."
            ),
            dashboard=PIPELINE,
        ),
        Case(
            alert="SlicemeterSeriesDropped",
            severity="warning",
            series={f"slicemeter_series_dropped_total{{{SOURCE}}}": "0x4 40x96"},
            near_miss={f"slicemeter_series_dropped_total{{{SOURCE}}}": _lasting(40)},
            fires_at=5,
            labels=SOURCE_LABELS,
            description=(
                "Exporter i of cluster c left series out of its page: raise its series budget, or look for "
                "what multiplies them."
            ),
            dashboard=PIPELINE,
        ),
        Case(
            # The counter is born at 1 with the restart; whoever has had it for six hours has been told.
            alert="SlicemeterCountersRestarted",
            severity="warning",
            series={_RESTARTED: "_x3 1x97"},
            near_miss={_RESTARTED: _lasting(0)},
            fires_at=3,
            labels={**SOURCE_LABELS, "why": "state_damaged"},
            description=(
                "Exporter i of cluster c began its counters at 0 again, because its state file was damaged: "
                "facts that had not left are lost."
            ),
            dashboard=PIPELINE,
        ),
        Case(
            # Heard by turns from minute 3 on; one that was set right two hours ago is over.
            alert="SlicemeterTwoExporters",
            severity="warning",
            series={_CONTESTED: "_x3 180+60x97"},
            near_miss={_CONTESTED: _lasting(-7200)},
            fires_at=3,
            labels={"node": "n"},
            description="Two exporters report for node n of cluster c: one of them counts. Stop the other.",
            dashboard=PIPELINE,
        ),
    ),
    "outbox": (
        Case(
            # Waiting since second 0: over an hour from minute 61 on, then ten minutes more.
            alert="SlicemeterOutboxBacklog",
            severity="warning",
            series={f"slicemeter_outbox_oldest_timestamp_seconds{{{SOURCE}}}": _lasting(0)},
            near_miss={f"slicemeter_outbox_oldest_timestamp_seconds{{{SOURCE}}}": "0+60x100"},
            fires_at=71,
            labels=SOURCE_LABELS,
            description=(
                "Exporter i of cluster c has facts that have waited for accounting for 1h 11m 0s. Nothing is "
                "lost, but the bill is behind."
            ),
            dashboard=PIPELINE,
        ),
        Case(
            # Waiting since 86,340 s before the first minute: over a day from minute 2 on.
            alert="SlicemeterOutboxBacklog",
            severity="critical",
            series={f"slicemeter_outbox_oldest_timestamp_seconds{{{SOURCE}}}": _lasting(-86340)},
            near_miss={f"slicemeter_outbox_oldest_timestamp_seconds{{{SOURCE}}}": "-86340+60x100"},
            fires_at=12,
            labels=SOURCE_LABELS,
            description=(
                "Exporter i of cluster c has facts that have waited for accounting for 1d 0h 11m 0s. A full "
                "disk or a lost node would lose them."
            ),
            dashboard=PIPELINE,
        ),
        Case(
            alert="SlicemeterFactsLost",
            severity="critical",
            series={f'slicemeter_facts_lost_total{{{SOURCE}, reason="disk_full"}}': "0x4 3x96"},
            near_miss={f'slicemeter_facts_lost_total{{{SOURCE}, reason="disk_full"}}': _lasting(3)},
            fires_at=5,
            labels={**SOURCE_LABELS, "reason": "disk_full"},
            description="Exporter i of cluster c lost facts in the last hour for good (disk_full).",
            dashboard=PIPELINE,
        ),
    ),
    "slices": (
        Case(
            # Twelve seconds a minute: 60 s are passed at minute 6 with 72 s.
            alert="SlicemeterSliceOverMemoryLimit",
            severity="warning",
            series={f"slicemeter_slice_over_memory_limit_seconds_total{{{SLICE}}}": "0+12x100"},
            near_miss={f"slicemeter_slice_over_memory_limit_seconds_total{{{SLICE}}}": "0+3x100"},
            fires_at=6,
            labels=SLICE_LABELS,
            description=(
                "ns/p (main) was over its GPU memory limit for 1m 12s of the last 15 minutes: HAMi-core does "
                "not hold it."
            ),
            tenant_text="ns/p (main) was over its GPU memory limit for 1m 12s of the last 15 minutes.",
            dashboard=POD,
        ),
        Case(
            # 36 of 60 s; the rate over 15 minutes passes 0.5 at minute 13 (468 s of 900).
            alert="SlicemeterSliceBlocked",
            severity="info",
            series={f"slicemeter_slice_blocked_seconds_total{{{SLICE}}}": "0+36x100"},
            near_miss={f"slicemeter_slice_blocked_seconds_total{{{SLICE}}}": "0+24x100"},
            fires_at=28,
            labels=SLICE_LABELS,
            description="ns/p (main) was blocked 60% of the last 15 minutes.",
            tenant_text=(
                "ns/p (main) was blocked 60% of the last 15 minutes: another slice of a higher priority runs "
                "on its card."
            ),
            dashboard=POD,
        ),
        Case(
            alert="SlicemeterUnattributedHigh",
            severity="warning",
            series={
                f"slicemeter_device_memory_unattributed_bytes{{{DEVICE}}}": _lasting(20),
                f"slicemeter_device_memory_total_bytes{{{DEVICE}}}": _lasting(100),
            },
            near_miss={f"slicemeter_device_memory_unattributed_bytes{{{DEVICE}}}": _lasting(9)},
            fires_at=15,
            labels=DEVICE_LABELS,
            description=(
                "Processes in no known pod use 20% of card GPU-1 on n, in memory or SM time: nobody pays for "
                "it."
            ),
            dashboard=CARD,
        ),
        Case(
            alert="SlicemeterUnattributedHigh",
            severity="warning",
            # Half of a card; the rate over 5 minutes passes 0.1 at minute 2 (60 s of 300).
            why="SM time",
            series={f"slicemeter_device_sm_unattributed_seconds_total{{{DEVICE}}}": "0+30x100"},
            near_miss={f"slicemeter_device_sm_unattributed_seconds_total{{{DEVICE}}}": "0+5x100"},
            fires_at=17,
            labels=DEVICE_LABELS,
            description=(
                "Processes in no known pod use 50% of card GPU-1 on n, in memory or SM time: nobody pays for "
                "it."
            ),
            dashboard=CARD,
        ),
    ),
    "capacity": (
        Case(
            alert="SlicemeterPodsPending",
            severity="info",
            series={_PENDING: _lasting(3)},
            near_miss={_PENDING: _lasting(0)},
            fires_at=15,
            labels={**NAMESPACE_LABELS, "reason": "CardInsufficientMemory"},
            description=(
                "3 pod(s) of namespace ns (tenant t) wait for GPU slices; HAMi's reason: "
                "CardInsufficientMemory."
            ),
            tenant_text=(
                "3 pod(s) of namespace ns wait for GPU slices; HAMi's reason: CardInsufficientMemory."
            ),
            dashboard=TENANT,
        ),
        Case(
            alert="SlicemeterPodNeverFits",
            severity="warning",
            series={'slicemeter_unschedulable_pods{namespace="ns", tenant="t", why="memory"}': _lasting(1)},
            near_miss={
                'slicemeter_unschedulable_pods{namespace="ns", tenant="t", why="memory"}': _lasting(0)
            },
            fires_at=10,
            labels={**NAMESPACE_LABELS, "why": "memory"},
            description=(
                "1 pod(s) of namespace ns (tenant t) can never be placed: memory. Waiting does not help."
            ),
            tenant_text=(
                "1 pod(s) of namespace ns can never be placed: memory. Waiting does not help; change the "
                "request."
            ),
            dashboard=TENANT,
        ),
        Case(
            alert="SlicemeterStrandedMemory",
            severity="info",
            series={
                'slicemeter_stranded_memory_bytes{node="n", why="slots"}': _lasting(30),
                'slicemeter_node_gpu_memory_bytes{node="n", state="registered"}': _lasting(100),
            },
            near_miss={'slicemeter_stranded_memory_bytes{node="n", why="slots"}': _lasting(20)},
            fires_at=60,
            labels={"node": "n", "why": "slots"},
            description="30% of the GPU memory of node n is free, but its cards have no slots left.",
            dashboard=FLEET,
        ),
        Case(
            alert="SlicemeterQuotaNearlyUsed",
            severity="info",
            series={
                'slicemeter_quota_used{namespace="ns", resource="nvidia.com/gpumem"}': _lasting(95),
                'slicemeter_quota_limit{namespace="ns", resource="nvidia.com/gpumem"}': _lasting(100),
            },
            near_miss={'slicemeter_quota_used{namespace="ns", resource="nvidia.com/gpumem"}': _lasting(80)},
            fires_at=15,
            labels={"namespace": "ns", "resource": "nvidia.com/gpumem"},
            description="Namespace ns uses 95% of its quota of nvidia.com/gpumem.",
            dashboard=FLEET,
        ),
        Case(
            # Held since second 0, beyond 300 s from minute 6 on, then five minutes more.
            alert="SlicemeterNodeLockLeaked",
            severity="info",
            series={_LOCKED: _lasting(0), _WAITING: _lasting(0)},
            near_miss={_WAITING: _lasting(1)},
            fires_at=11,
            labels={"node": "n"},
            description=(
                "The lock of node n has been held for 11m 0s. The next pod that binds there takes it over; "
                "until then it does no harm."
            ),
            dashboard=LOCKS,
        ),
        Case(
            alert="SlicemeterNodeLockOwnerStuck",
            severity="warning",
            series={'slicemeter_node_lock_owner_stuck{node="n"}': _lasting(1)},
            near_miss={'slicemeter_node_lock_owner_stuck{node="n"}': _lasting(0)},
            fires_at=1,
            labels={"node": "n"},
            description=(
                "The owner of the lock of node n is bound and has not been running for 30 seconds or more: "
                "the device plugin there does not finish its allocation."
            ),
            dashboard=LOCKS,
        ),
    ),
    "ledger": (
        Case(
            alert="SlicemeterUnratedModel",
            severity="warning",
            series={"slicemeter_unrated_models": _lasting(2)},
            near_miss={"slicemeter_unrated_models": _lasting(0)},
            fires_at=60,
            labels={},
            description=(
                "2 GPU model(s) have use and no price: their lines have no amount, and the month does not "
                "close. See: slicemeter accounting close PERIOD --check."
            ),
            dashboard=BOOKS,
        ),
        Case(
            # Due 86,340 s before the first minute: over a day late from minute 2 on, then an hour more.
            alert="SlicemeterCloseLate",
            severity="warning",
            series={'slicemeter_period_close_due_timestamp_seconds{account="a"}': _lasting(-86340)},
            near_miss={'slicemeter_period_close_due_timestamp_seconds{account="a"}': _lasting(0)},
            fires_at=62,
            labels={"account": "a"},
            description=(
                "The period of account a was due to close 1d 1h 1m 0s ago. What blocks it: slicemeter "
                "accounting close PERIOD --check."
            ),
            dashboard=BOOKS,
        ),
        Case(
            alert="SlicemeterReconciliationBroken",
            severity="critical",
            series={"slicemeter_ledger_invariant_violations": _lasting(1)},
            near_miss={"slicemeter_ledger_invariant_violations": _lasting(0)},
            fires_at=5,
            labels={},
            description=(
                "1 identity(ies) of the ledger are violated: close nothing, and run: slicemeter accounting "
                "verify PERIOD."
            ),
            dashboard=BOOKS,
        ),
        Case(
            alert="SlicemeterBudgetNearlyUsed",
            severity="warning",
            series={'slicemeter_budget_used_ratio{tenant="t"}': _lasting(0.92)},
            near_miss={'slicemeter_budget_used_ratio{tenant="t"}': _lasting(0.89)},
            fires_at=15,
            labels={"tenant": "t"},
            description="Tenant t has spent 92% of its budget.",
            tenant_text="92% of your GPU budget is spent.",
            dashboard=BOOKS,
        ),
    ),
}

CASES = (*ALWAYS_ON, *(case for cases in BY_SWITCH.values() for case in cases))
