"""One tick of the cluster as values: what a page is made of. Never changes once it is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.cluster.capacity import NodeCapacity
from exporter.cluster.pending import PendingKey
from exporter.cluster.quotas import QuotaSight
from exporter.cluster.stranded import Why


@dataclass(frozen=True, slots=True)
class CollectorHealth:
    """How a watch is doing."""

    name: str
    is_well: bool
    last_success_ms: int | None


@dataclass(frozen=True, slots=True)
class LockSight:
    """One node's lock.

    Attributes:
        acquired_at_ms: By the lock's own time; None: not held, or unreadable.
        owner: Namespace and name; empty where the lock names none.
        is_unreadable: Nobody but a person will remove it.
        since_ms: Since when outcomes are counted, Unix time; None = not known.
    """

    node: str
    is_held: bool
    acquired_at_ms: int | None
    owner: tuple[str, str]
    waiting_pods: int
    is_owner_stuck: bool
    is_unreadable: bool
    outcomes: Mapping[str, int]
    since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class PendingSum:
    """Pods that wait under one set of labels; `memory_mib` None: it depends on a card nobody registered."""

    pods: int
    memory_mib: int | None


@dataclass(frozen=True, slots=True)
class Findings:
    """What the views say, once pods, nodes and namespaces were listed.

    Attributes:
        capacities: By node name.
        waiting_ms: Counters of waiting time.
        unschedulable: Pods by namespace, tenant and why.
        bypassing: The same.
        stranded_mib: By node and why.
        quotas: By namespace and resource.
    """

    capacities: Mapping[str, NodeCapacity]
    locks: tuple[LockSight, ...]
    pending: Mapping[PendingKey, PendingSum]
    waiting_ms: Mapping[PendingKey, int]
    unschedulable: Mapping[tuple[str, str, str], int]
    bypassing: Mapping[tuple[str, str, str], int]
    stranded_mib: Mapping[tuple[str, Why], int]
    quotas: Mapping[tuple[str, str], QuotaSight]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything one tick has to say.

    Attributes:
        view_ms: The oldest of the watches' last good answers.
        duration_ms: What reading the views cost at this tick.
        since_ms: When the other counters began at 0, Unix time; None = not known.
        findings: None: not everything was listed yet.
    """

    at_ms: int
    view_ms: int | None
    duration_ms: float
    collectors: tuple[CollectorHealth, ...]
    findings: Findings | None = None
    annotation_errors: Mapping[tuple[str, str], int] = field(default_factory=dict)
    outbox_facts: int | None = None
    outbox_oldest_ms: int | None = None
    since_ms: int | None = None
