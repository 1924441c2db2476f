"""Fact types: what exporters tell accounting, and the one byte form of each.

A fact is a whole statement of its own: it names its cluster, carries its schema version, and needs no
other fact to be understood. Facts arrive in any order and any number of times; `accounting/ledger`
merges them. Invariant: numbers are whole, times are Unix milliseconds (UTC), intervals half-open.

Source of fields and merge rules: DESIGN section 5, `reference/ledger.md §5`.
"""

from __future__ import annotations

from typing import Literal, TypeAlias
from uuid import UUID

import msgspec

from contract.ids import (
    ClusterCode,
    DeviceUuid,
    EpochId,
    NodeUid,
    PodUid,
    SliceKey,
    TenantKey,
    Witness,
    allocation_id,
)

SCHEMA = 1
"""The version of the fact types below; an exporter says it with each batch.

A reader refuses a newer exporter's batch whole, so that its facts wait until the reader is upgraded too.
"""

OLDEST_SCHEMA = 1
"""The oldest version that is still read: exporters may be upgraded after accounting."""

MAX_FACTS_PER_BATCH = 5_000
"""The most facts one POST may carry."""

FACTS_PATH = "/api/v1/facts"
REPORTER_PATH = "/api/v1/reporter"
"""Where an exporter asks who it is to accounting; asking changes nothing."""

CONTENT_TYPE = "application/x-ndjson"

HEADER_SENT_AT = "Slicemeter-Sent-At"
"""When the exporter sent the batch, Unix milliseconds: the server takes the clock offset from it."""

HEADER_KUBE_SYSTEM_UID = "Slicemeter-Kube-System-Uid"
"""UID of the cluster's kube-system namespace; the first request binds it."""

HEADER_SOURCE = "Slicemeter-Source"
"""Who sends: `role=node;node_uid=…;node=…;epoch=…;version=…;schema=…` (node fields on the node role only)."""

ContainerKind: TypeAlias = Literal["app", "sidecar", "init"]
EndKind: TypeAlias = Literal["observed", "inferred"]
DeviceState: TypeAlias = Literal["healthy", "down"]


class _Fact(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", gc=False):
    """What every fact has. No fact can be part of a cycle, so the collector need not look at thousands."""

    cluster: ClusterCode
    schema: int = SCHEMA


class AllocationFact(_Fact, frozen=True, kw_only=True, gc=False, tag="allocation"):
    """What one witness knows of one slice: held from `bound_at_ms` to `ended_at_ms` (None: still held).

    Key: (cluster, pod_uid, container, device_uuid, witness).
    """

    pod_uid: PodUid
    container: str
    device_uuid: DeviceUuid
    witness: Witness
    node_uid: NodeUid
    node: str
    namespace: str
    pod: str
    vendor: str
    model: str
    """As registered; empty when the witness does not know it."""
    mem_mib: int
    core_percent: int
    """0: none requested. It never means "uses nothing"."""
    container_kind: ContainerKind
    tenant_key: TenantKey
    bound_at_ms: int
    """`PodScheduled`; for a plain init container, the start of its run."""
    first_confirmed_at_ms: int
    confirmed_at_ms: int
    """The last successful view of the API, or of a living process; never a stale view's now."""
    started_at_ms: int | None = None
    ended_at_ms: int | None = None
    end_reason: str | None = None
    end_kind: EndKind | None = None
    mig: str | None = None
    labels: dict[str, str] = {}

    @property
    def slice_key(self) -> SliceKey:
        """The slice that the fact speaks of."""
        return SliceKey(self.cluster, self.pod_uid, self.container, self.device_uuid)

    @property
    def allocation_id(self) -> UUID:
        """The id of that slice."""
        return allocation_id(self.cluster, self.pod_uid, self.container, self.device_uuid)


class PresenceFact(_Fact, frozen=True, kw_only=True, gc=False, tag="presence"):
    """A device was there, in one state and size, from `from_ms` to `to_ms` (the latest confirmation).

    Key: (cluster, node_uid, device_uuid, witness, from_ms).
    """

    node_uid: NodeUid
    node: str
    device_uuid: DeviceUuid
    witness: Witness
    from_ms: int
    to_ms: int
    state: DeviceState
    model: str
    vendor: str
    registered_mib: int
    """What HAMi may hand out: the scaled size on a scaled card."""
    slots: int
    physical_mib: int | None = None
    """NVML's total; None where there is no NVML (a mock node)."""
    reason: str | None = None


class NodeStateFact(_Fact, frozen=True, kw_only=True, gc=False, tag="node_state"):
    """A Node was Ready, or not, from `from_ms` to `to_ms`. Key: (cluster, node_uid, from_ms)."""

    node_uid: NodeUid
    node: str
    from_ms: int
    to_ms: int
    ready: bool
    heartbeat_at_ms: int


class _Use(_Fact, frozen=True, kw_only=True, gc=False):
    """Cumulative measurement within one UTC hour, by one epoch; a later revision replaces an earlier one."""

    device_uuid: DeviceUuid
    node_uid: NodeUid
    hour_ms: int
    epoch: EpochId
    revision: int
    from_ms: int
    to_ms: int
    covered_ms: int
    """Time that was really measured; `covered + unknown ≤ to - from`."""


class _ContainerUse(_Use, frozen=True, kw_only=True, gc=False):
    pod_uid: PodUid
    container: str
    unknown_ms: int
    sm_ppm_ms: int
    """SM time: parts per million of the whole card, times milliseconds."""
    sm_down_ppm_ms: int
    """The part of `sm_ppm_ms` measured while the device counted as down."""
    mem_used_mib_ms: int
    mem_peak_mib: int
    energy_active_mj: int
    blocked_ms: int
    over_limit_ms: int
    source: str
    """The best rung used: `nvml`, `cache`, or `none`."""

    @property
    def slice_key(self) -> SliceKey:
        """The slice that the fact speaks of."""
        return SliceKey(self.cluster, self.pod_uid, self.container, self.device_uuid)

    @property
    def allocation_id(self) -> UUID:
        """The id of that slice."""
        return allocation_id(self.cluster, self.pod_uid, self.container, self.device_uuid)


class SliceUsageFact(_ContainerUse, frozen=True, kw_only=True, gc=False, tag="slice_usage"):
    """What a slice used in an hour. Key: (cluster, pod_uid, container, device_uuid, hour, epoch)."""


class UnallocatedUseFact(_ContainerUse, frozen=True, kw_only=True, gc=False, tag="unallocated_use"):
    """Use by a known pod that holds no allocation there. Key as `SliceUsageFact`."""

    namespace: str
    pod: str
    tenant_key: TenantKey


class DeviceUsageFact(_Use, frozen=True, kw_only=True, gc=False, tag="device_usage"):
    """What a whole device did in an hour. Key: (cluster, node_uid, device_uuid, hour, epoch)."""

    busy_ppm_ms: int
    energy_mj: int
    energy_idle_mj: int
    """The board's idle part, unsplit: the server's policy version splits it."""
    energy_unattributed_mj: int
    sm_unattributed_ppm_ms: int


Fact: TypeAlias = (
    AllocationFact | PresenceFact | NodeStateFact | SliceUsageFact | UnallocatedUseFact | DeviceUsageFact
)
UsageFact: TypeAlias = SliceUsageFact | UnallocatedUseFact | DeviceUsageFact

_encoder = msgspec.json.Encoder(order="sorted")
_decoder: msgspec.json.Decoder[Fact] = msgspec.json.Decoder(Fact)


def canonical_bytes(fact: Fact) -> bytes:
    """The one byte form of a fact: JSON, sorted keys, no blanks, whole numbers, UTF-8."""
    return _encoder.encode(fact)


def decode_fact(line: bytes | str) -> Fact:
    """Read one fact.

    Raises:
        msgspec.DecodeError: Not JSON.
        msgspec.ValidationError: JSON, but not a fact (the message names the field).
    """
    return _decoder.decode(line)


def natural_key(fact: Fact) -> tuple[str | int, ...]:
    """What makes two facts speak of the same thing: type, then the key of DESIGN section 5, no revision."""
    match fact:
        case AllocationFact():
            return ("allocation", fact.cluster, fact.pod_uid, fact.container, fact.device_uuid, fact.witness)
        case PresenceFact():
            return ("presence", fact.cluster, fact.node_uid, fact.device_uuid, fact.witness, fact.from_ms)
        case NodeStateFact():
            return ("node_state", fact.cluster, fact.node_uid, fact.from_ms)
        case SliceUsageFact() | UnallocatedUseFact():
            tag = "slice_usage" if isinstance(fact, SliceUsageFact) else "unallocated_use"
            owner = (fact.pod_uid, fact.container, fact.device_uuid)
            return (tag, fact.cluster, *owner, fact.hour_ms, fact.epoch)
        case DeviceUsageFact():
            return ("device_usage", fact.cluster, fact.node_uid, fact.device_uuid, fact.hour_ms, fact.epoch)
