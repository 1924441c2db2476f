"""The metric catalogue: every series we emit, as one table.

The exporter, accounting, the docs, dashboards, rules and tests all read it; a name that is not here
does not exist. Invariants (tested): names carry their base unit, `_total` stands on counters and on
nothing else, all families of one level have the level's labels first, no label holds a measured value.

Source: DESIGN section 4, `reference/metering.md §1`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

PREFIX = "slicemeter_"

MetricType: TypeAlias = Literal["gauge", "counter", "histogram", "info"]
Group: TypeAlias = Literal["device", "slice", "tenant", "node_lock", "cluster", "accounting", "self"]
Emitter: TypeAlias = Literal["node", "cluster", "accounting"]

_PLANNED: frozenset[str] = frozenset()
"""Families that nothing exports yet; the tests of each program's page hold this list against the code."""

DEVICE = ("node", "device_uuid")
SLICE = ("node", "namespace", "pod", "container", "device_uuid", "tenant")
TENANT = ("node", "tenant", "model")
NODE = ("node",)
PENDING = ("namespace", "tenant", "reason")


@dataclass(frozen=True, slots=True)
class Family:
    """One metric family.

    Attributes:
        name: Without the prefix; a counter's name ends in `_total`, an info's in `_info`.
        type: `info` is a gauge of value 1 that carries identity (OpenMetrics-free, so joins are plain).
        group: Its row in DESIGN section 4.
        labels: In the order in which they are written.
        help: One line, in a user's words, with the unit where the name does not say it.
        emitters: Which program exports it.
        closed: For label sets known in advance, the label's possible values: a counter with a closed
            set is exported from 0 for each of them.
        is_planned: Name and labels are fixed, but nothing exports it yet.
        prefix: Ours; another program's for families that are shown under its names.
    """

    name: str
    type: MetricType
    group: Group
    labels: tuple[str, ...]
    help: str
    emitters: tuple[Emitter, ...]
    closed: tuple[str, ...] = ()
    is_planned: bool = False
    prefix: str = PREFIX

    @property
    def full_name(self) -> str:
        """The name on the page."""
        return self.prefix + self.name


def _family(  # noqa: PLR0917 - a table reads better in columns
    group: Group,
    emitters: tuple[Emitter, ...],
    name: str,
    labels: tuple[str, ...],
    text: str,
    closed: tuple[str, ...] = (),
    kind: MetricType | None = None,
) -> Family:
    if kind is None:
        kind = "counter" if name.endswith("_total") else "info" if name.endswith("_info") else "gauge"
    return Family(name, kind, group, labels, text, emitters, closed, name in _PLANNED)


def _device(name: str, text: str, *extra: str, closed: tuple[str, ...] = ()) -> Family:
    return _family("device", ("node",), name, DEVICE + extra, text, closed)


def _slice(name: str, text: str, *extra: str, closed: tuple[str, ...] = ()) -> Family:
    return _family("slice", ("node",), name, SLICE + extra, text, closed)


def _tenant(name: str, text: str) -> Family:
    return _family("tenant", ("node",), name, TENANT, text)


def _lock(name: str, text: str, *extra: str, closed: tuple[str, ...] = ()) -> Family:
    return _family("node_lock", ("cluster",), name, NODE + extra, text, closed)


def _cluster(name: str, labels: tuple[str, ...], text: str, kind: MetricType | None = None) -> Family:
    return _family("cluster", ("cluster",), name, labels, text, (), kind)


def _accounting(name: str, labels: tuple[str, ...], text: str) -> Family:
    return _family("accounting", ("accounting",), name, labels, text)


def _self(
    name: str,
    labels: tuple[str, ...],
    text: str,
    emitters: tuple[Emitter, ...] = ("node", "cluster"),
    closed: tuple[str, ...] = (),
) -> Family:
    return _family("self", emitters, name, labels, text, closed)


UNKNOWN_REASONS = ("no_source", "source_failed", "gap", "uncertain")
"""Why a slice's SM time was unknown: no rung measures it, the call failed, a gap or suspend, or its
process could not be told apart."""

THROTTLE_REASONS = (
    "sw_power_cap",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
)
"""Why clocks were held down, NVML's words for it."""

LOCK_OUTCOMES = ("acquired", "released", "expired", "dangling", "manual")
PUSH_RESULTS = ("ok", "refused", "unreachable", "set_aside")
FACTS_LOST_REASONS = ("disk_full", "state_damaged", "rejected")
RESTART_REASONS = ("first_start", "new_boot", "state_damaged")
DISAGREEMENTS = ("sm_scaled", "memory_negative")

FAMILIES: tuple[Family, ...] = (
    # Devices
    _device("device_info", "Identity of a device; 1.", "model", "vendor", "index", "mode", "driver_version"),
    _device("device_memory_total_bytes", "Physical memory of the device, as NVML reports it."),
    _device(
        "device_memory_registered_bytes", "Memory HAMi may hand out on the device (scaled on scaled cards)."
    ),
    _device("device_memory_used_bytes", "Memory in use on the device, driver-reserved memory left out."),
    _device("device_memory_allocated_bytes", "Memory held by slices on the device."),
    _device("device_memory_driver_reserved_bytes", "Memory the driver keeps for itself."),
    _device("device_memory_unattributed_bytes", "Used memory that no known pod accounts for."),
    _device("device_slots", "Slots HAMi registered on the device."),
    _device("device_slots_allocated", "Slots held by slices on the device."),
    _device("device_core_registered_ratio", "Cores HAMi may hand out, 1 = one whole card."),
    _device("device_core_allocated_ratio", "Cores held by slices, 1 = one whole card."),
    _device("device_utilization_ratio", "Share of the last sample period in which any kernel ran."),
    _device("device_busy_seconds_total", "Seconds of SM time on the device, all processes together."),
    _device("device_energy_joules_total", "Energy the board consumed, from its own counter."),
    _device("device_energy_unattributed_joules_total", "Energy that no known pod accounts for."),
    _device("device_sm_unattributed_seconds_total", "SM time of processes in no known pod."),
    _device(
        "device_power_watts",
        "Power draw of the board: mean of the last second where the driver has it, else NVML's plain figure.",
    ),
    _device("device_temperature_celsius", "Temperature of the GPU."),
    _device("device_clock_hertz", "Current clock.", "domain", closed=("sm", "memory")),
    _device("device_ecc_errors_total", "ECC errors.", "kind", closed=("corrected", "uncorrected")),
    _device("device_remapped_rows_pending", "1 while a row remapping waits for a reset."),
    _device("device_xid_errors_total", "XID errors by code.", "code"),
    _device("device_xid_last_timestamp_seconds", "When the code was last seen.", "code"),
    _device(
        "device_throttle_seconds_total",
        "Time in which clocks were held down, by reason.",
        "reason",
        closed=THROTTLE_REASONS,
    ),
    _device("device_health", "1 healthy, 0 down: lost by NVML, fatal XID, or registered unhealthy."),
    _device(
        "mig_info",
        "Identity of a MIG instance; 1.",
        "mig_uuid",
        "profile",
        "gpu_instance",
        "compute_instance",
    ),
    # Slices
    _slice(
        "slice_info",
        "Identity of a slice; 1.",
        "pod_uid",
        "model",
        "vendor",
        "layout",
        "policy",
        "priority",
        "enforcement",
        "memory_source",
    ),
    _slice("slice_memory_allocated_bytes", "Memory granted to the slice."),
    _slice(
        "slice_memory_limit_bytes", "Memory limit enforced by HAMi-core; absent when nothing is enforced."
    ),
    _slice("slice_memory_used_bytes", "Memory in use by the slice's living processes."),
    _slice(
        "slice_memory_bytes",
        "Memory in use by kind.",
        "kind",
        closed=("context", "module", "data", "other"),
    ),
    _slice("slice_memory_peak_bytes", "Highest memory in use since the slice began."),
    _slice("slice_core_allocated_ratio", "Cores granted, 1 = one whole card; 0 = none requested."),
    _slice("slice_core_limit_ratio", "SM limit in the region, 1 = one whole card."),
    _slice("slice_core_limit_enforced", "1 while HAMi-core holds the slice to its SM limit."),
    _slice(
        "slice_sm_utilization_ratio",
        "SM use in the last sample, 1 = one whole card.",
        "source",
        closed=("nvml", "cache"),
    ),
    _slice("slice_sm_seconds_total", "SM time used: whole-card seconds."),
    _slice("slice_memory_used_byte_seconds_total", "Integral of memory in use."),
    _slice("slice_memory_allocated_byte_seconds_total", "Integral of memory granted."),
    _slice("slice_energy_joules_total", "Energy by kind.", "kind", closed=("active", "idle")),
    _slice("slice_processes", "Living GPU processes of the slice."),
    _slice("slice_stale_processes", "Slots of processes that no longer live, left out of every figure."),
    _slice("slice_last_kernel_timestamp_seconds", "Last kernel launch or attach that HAMi-core noted."),
    _slice("slice_blocked_seconds_total", "Time blocked by a higher priority."),
    _slice("slice_over_memory_limit_seconds_total", "Time in which used memory was above the limit."),
    _slice(
        "slice_unknown_seconds_total",
        "Time in which SM use could not be measured, by reason.",
        "reason",
        closed=UNKNOWN_REASONS,
    ),
    _slice(
        "slice_region_lock_held_since_timestamp_seconds",
        "Since when the same process was seen holding the region's lock; absent when free.",
    ),
    _slice("slice_region_lock_owner_alive", "1 if the holder of the region's lock lives."),
    _slice("unallocated_memory_used_bytes", "Memory used by a known pod that holds no allocation there."),
    _slice("unallocated_sm_seconds_total", "SM time of a known pod that holds no allocation there."),
    _slice("unallocated_energy_joules_total", "Energy of a known pod that holds no allocation there."),
    # Tenants, on a node
    _tenant("tenant_memory_allocated_bytes", "Memory held by the tenant's slices on the node."),
    _tenant("tenant_memory_used_bytes", "Memory used by the tenant's slices on the node."),
    _tenant("tenant_core_allocated_ratio", "Cores held by the tenant's slices, 1 = one whole card."),
    _tenant("tenant_sm_seconds_total", "SM time of the tenant's slices on the node."),
    _tenant("tenant_energy_joules_total", "Energy of the tenant's slices on the node."),
    _tenant("tenant_slices", "Slices the tenant holds on the node."),
    # Node locks
    _lock("node_lock_held", "1 while HAMi's node lock is set."),
    _lock(
        "node_lock_acquired_timestamp_seconds",
        "When the present lock was taken, by its own time.",
        "owner_namespace",
        "owner_pod",
    ),
    _lock("node_lock_waiting_pods", "Pods whose binding failed because of the lock."),
    _lock("node_lock_owner_stuck", "1 if the lock's owner is bound but has not been running for 30 s."),
    _lock(
        "node_lock_unreadable",
        "1 if the lock's value cannot be read: nothing binds until a person removes it.",
    ),
    _lock(
        "node_lock_transitions_total",
        "Changes of the node lock by outcome.",
        "outcome",
        closed=LOCK_OUTCOMES,
    ),
    # Cluster
    _cluster("node_gpu_info", ("node", "model"), "GPU models a node has registered; 1."),
    _cluster("node_gpu_memory_bytes", ("node", "state"), "GPU memory of a node: registered, allocated."),
    _cluster(
        "node_gpu_cores_ratio", ("node", "state"), "GPU cores of a node, 1 = one card: registered, allocated."
    ),
    _cluster("node_gpu_slots", ("node", "state"), "GPU slots of a node: registered, allocated."),
    _cluster("pending_pods", PENDING, "Unbound pods that want GPU slices, by HAMi's reason."),
    _cluster("pending_seconds_total", PENDING, "Time pods spent waiting for GPU slices."),
    _cluster("pending_memory_bytes", PENDING, "GPU memory that waiting pods ask for."),
    _cluster("unschedulable_pods", ("namespace", "tenant", "why"), "Pods that can never fit, and why."),
    _cluster(
        "reservation_memory_bytes", ("node",), "Memory HAMi's filter promised to pods that are not bound."
    ),
    _cluster("bypassing_pods", ("namespace", "tenant", "why"), "Pods that use or ask for a GPU past HAMi."),
    _cluster(
        "quota_used",
        ("namespace", "resource"),
        "GPU quota used, promises included, in the resource's own unit: GPUs, MiB, percent of a card.",
    ),
    _cluster(
        "quota_limit",
        ("namespace", "resource"),
        "GPU quota, in the resource's own unit; the tightest where there are several.",
    ),
    _cluster(
        "stranded_memory_bytes", ("node", "why"), "Free memory no pod can get: cores or slots are used up."
    ),
    _cluster("grant_seconds", (), "From a pod's creation to its binding.", "histogram"),
    # Accounting
    _accounting(
        "tenant_cost",
        ("account", "tenant", "sku", "currency", "period"),
        "Cost in the period, rounded as on the statement.",
    ),
    _accounting(
        "tenant_charged_card_seconds",
        ("account", "tenant", "model", "period"),
        "Charged card time in the period.",
    ),
    _accounting(
        "idle_cost", ("account", "sku", "currency", "period"), "Cost of idle capacity in the period."
    ),
    _accounting("period_info", ("account", "period", "state"), "State of a period; 1."),
    _accounting(
        "tenant_mapping_info", ("cluster", "tenant_key", "tenant"), "Which tenant a key belongs to; 1."
    ),
    _accounting("budget_amount", ("tenant", "currency", "period"), "Budget of the tenant."),
    _accounting("budget_used_ratio", ("tenant",), "Spent share of the budget."),
    _accounting("forecast_cost", ("tenant", "currency"), "Forecast for the open period."),
    _accounting(
        "coverage_ratio",
        ("cluster",),
        "Confirmed share of present device time, over the last 24 hours rated.",
    ),
    _accounting("source_last_seen_timestamp_seconds", ("cluster", "node"), "Last batch of an exporter."),
    _accounting(
        "source_contested_timestamp_seconds",
        ("cluster", "node"),
        "When two exporters last reported for one node; absent if never.",
    ),
    _family(
        "accounting",
        ("accounting",),
        "facts_total",
        ("result",),
        "Facts taken in, by result.",
        ("stored", "duplicate", "rejected"),
    ),
    _accounting("unrated_models", (), "GPU models with usage and no price."),
    _accounting("close_blockers", ("account", "reason"), "What blocks the close of the next period."),
    _accounting("period_close_due_timestamp_seconds", ("account",), "When the next period is due to close."),
    _accounting(
        "ledger_invariant_violations", (), "Violations of the ledger's identities; 0 is the only good value."
    ),
    # About ourselves
    _self("collector_success", ("collector",), "1 if the source answered at the last tick."),
    _self("collector_duration_seconds", ("collector",), "How long the source took at the last tick."),
    _self("collector_last_success_timestamp_seconds", ("collector",), "When the source last answered."),
    _self("snapshot_timestamp_seconds", (), "When the snapshot on this page was taken."),
    _self("cache_files", ("layout", "result"), "Region files by layout and result.", ("node",)),
    _self("cache_errors_total", ("reason",), "Region files that could not be read, by reason.", ("node",)),
    _self("annotation_errors_total", ("kind", "reason"), "Annotations that could not be read."),
    _self("values_refused_total", ("quantity", "reason"), "Impossible values that were left out.", ("node",)),
    _self(
        "disagreements_total", ("kind",), "Sources that contradicted each other.", ("node",), DISAGREEMENTS
    ),
    _self(
        "cache_directories_ignored", (), "Entries of HAMi's tree that are no container directory.", ("node",)
    ),
    _self("samples_lost_total", ("source",), "Samples lost to failed calls.", ("node",)),
    _self("unattributed_processes", (), "GPU processes in no known pod.", ("node",)),
    _self("series_dropped_total", (), "Series left out because the page's budget was full."),
    _self("outbox_facts", (), "Facts waiting for accounting."),
    _self("outbox_oldest_timestamp_seconds", (), "Time of the oldest waiting fact; absent when none waits."),
    _self("push_total", ("result",), "Batches pushed to accounting, by result.", closed=PUSH_RESULTS),
    _self("facts_lost_total", ("reason",), "Facts lost for good, by reason.", closed=FACTS_LOST_REASONS),
    _self("kube_view_timestamp_seconds", (), "Time of the last good view of the Kubernetes API."),
    _self(
        "counters_restarted_total",
        ("why",),
        "Starts at which counters began again at 0.",
        ("node", "cluster"),
        RESTART_REASONS,
    ),
    _family(
        "self",
        ("node", "cluster"),
        "build_info",
        ("role", "version", "node"),
        "Version of the exporter; 1. The node label is empty on the cluster role.",
    ),
)

BY_NAME: dict[str, Family] = {family.name: family for family in FAMILIES}


def families_of(emitter: Emitter) -> Iterator[Family]:
    """The families a program may export, in the table's order."""
    return (family for family in FAMILIES if emitter in family.emitters)
