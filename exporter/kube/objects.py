"""The few Kubernetes objects we read, with only the fields we need.

msgspec skips every other field while decoding (managedFields among them), so a large object costs
little. Times stay RFC 3339 text here; `parse_time_ms` turns them into Unix milliseconds.
"""

from __future__ import annotations

import datetime as dt

import msgspec


class Meta(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """`metadata` of any object."""

    name: str
    uid: str = ""
    namespace: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class ResourceRequirements(msgspec.Struct, frozen=True):
    """Quantities are strings or whole numbers in real objects."""

    limits: dict[str, str | int] = {}
    requests: dict[str, str | int] = {}


class EnvVar(msgspec.Struct, frozen=True):
    """An environment variable with a literal value (`valueFrom` is left out)."""

    name: str
    value: str | None = None


class Container(msgspec.Struct, frozen=True, rename="camel"):
    """A container's spec; `restart_policy` "Always" on an init container makes it a sidecar."""

    name: str
    resources: ResourceRequirements = ResourceRequirements()
    env: list[EnvVar] = []
    restart_policy: str | None = None


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What a pod asks for and where it was put."""

    node_name: str | None = None
    scheduler_name: str | None = None
    init_containers: list[Container] = []
    containers: list[Container] = []


class RunningState(msgspec.Struct, frozen=True, rename="camel"):
    """`state.running`."""

    started_at: str | None = None


class TerminatedState(msgspec.Struct, frozen=True, rename="camel"):
    """`state.terminated`."""

    exit_code: int = 0
    reason: str | None = None
    started_at: str | None = None
    finished_at: str | None = None


class ContainerState(msgspec.Struct, frozen=True):
    """One of running and terminated, or neither (waiting)."""

    running: RunningState | None = None
    terminated: TerminatedState | None = None


class ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What the kubelet says of one container."""

    name: str
    container_id: str | None = msgspec.field(name="containerID", default=None)
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class Condition(msgspec.Struct, frozen=True, rename="camel"):
    """A condition of a pod or node."""

    type: str
    status: str
    last_transition_time: str | None = None
    last_heartbeat_time: str | None = None
    reason: str | None = None


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """Phase, conditions and container states."""

    phase: str = "Pending"
    reason: str | None = None
    start_time: str | None = None
    conditions: list[Condition] = []
    init_container_statuses: list[ContainerStatus] = []
    container_statuses: list[ContainerStatus] = []
    ephemeral_container_statuses: list[ContainerStatus] = []


class Pod(msgspec.Struct, frozen=True):
    """A pod."""

    metadata: Meta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class NodeStatus(msgspec.Struct, frozen=True):
    """Capacity and conditions of a node."""

    capacity: dict[str, str | int] = {}
    allocatable: dict[str, str | int] = {}
    conditions: list[Condition] = []


class Node(msgspec.Struct, frozen=True):
    """A node."""

    metadata: Meta
    status: NodeStatus = NodeStatus()


class Namespace(msgspec.Struct, frozen=True):
    """A namespace: metadata only."""

    metadata: Meta


class QuotaSpec(msgspec.Struct, frozen=True):
    """What a quota allows, by resource with its prefix, as `limits.nvidia.com/gpumem`."""

    hard: dict[str, str | int] = {}


class QuotaStatus(msgspec.Struct, frozen=True):
    """What Kubernetes itself has counted; it counts requests of extended resources, and no limits."""

    used: dict[str, str | int] = {}


class ResourceQuota(msgspec.Struct, frozen=True):
    """A quota of one namespace."""

    metadata: Meta
    spec: QuotaSpec = QuotaSpec()
    status: QuotaStatus = QuotaStatus()


class ObjectReference(msgspec.Struct, frozen=True):
    """What an event speaks of."""

    kind: str | None = None
    namespace: str | None = None
    name: str | None = None
    uid: str | None = None


class EventSeries(msgspec.Struct, frozen=True, rename="camel"):
    """Merged occurrences of one event."""

    count: int = 0
    last_observed_time: str | None = None


class EventSource(msgspec.Struct, frozen=True):
    """Who recorded it (older writers)."""

    component: str | None = None


class Event(msgspec.Struct, frozen=True, rename="camel"):
    """A core/v1 event."""

    metadata: Meta
    involved_object: ObjectReference = ObjectReference()
    reason: str | None = None
    message: str | None = None
    type: str | None = None
    count: int | None = None
    series: EventSeries | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    source: EventSource = EventSource()


def parse_time_ms(text: str | None) -> int | None:
    """An RFC 3339 time as Unix milliseconds; None for None or for text that is no time."""
    if not text:
        return None
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    delta = moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return delta // dt.timedelta(milliseconds=1)
