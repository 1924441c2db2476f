"""Ids: what names a thing, so that equal names in two clusters never meet.

Pod names, namespaces, node names and mock GPU UUIDs repeat between clusters; every key therefore
begins with the cluster's code. Ids are plain strings at run time and their own types for mypy.
"""

from __future__ import annotations

import uuid
from hashlib import sha1
from typing import Literal, NamedTuple, NewType

ClusterCode = NewType("ClusterCode", str)
NodeUid = NewType("NodeUid", str)
PodUid = NewType("PodUid", str)
DeviceUuid = NewType("DeviceUuid", str)
TenantKey = NewType("TenantKey", str)
EpochId = NewType("EpochId", str)

Witness = Literal["node", "cluster"]
"""Who reports a fact: the exporter on the node, or the cluster's one exporter."""

ALLOCATION_NAMESPACE = uuid.UUID("6f0c6d8e-6f3f-5f2b-9a53-0d1b0f6f7a11")
"""Namespace of allocation ids (UUIDv5); fixed for ever, since ids are computed, never handed out."""

_VERSION_AND_VARIANT = 0xF000 << 64 | 0xC000 << 48
_VERSION_5 = 0x5000 << 64 | 0x8000 << 48
"""RFC 9562: the four bits of the version, and the two of the variant."""


def allocation_id(cluster: str, pod_uid: str, container: str, device_uuid: str) -> uuid.UUID:
    """The id of a slice, which every part computes alike from its natural key: a UUIDv5.

    `uuid.uuid5` says the same in twice the time, and a batch has thousands of slices.
    """
    name = "\x1f".join((cluster, pod_uid, container, device_uuid))
    digest = sha1(ALLOCATION_NAMESPACE.bytes + name.encode(), usedforsecurity=False).digest()
    number = int.from_bytes(digest[:16]) & ~_VERSION_AND_VARIANT
    return uuid.UUID(int=number | _VERSION_5)


class SliceKey(NamedTuple):
    """One container's hold on one device: (cluster, pod UID, container, device UUID)."""

    cluster: ClusterCode
    pod_uid: PodUid
    container: str
    device_uuid: DeviceUuid

    @property
    def allocation_id(self) -> uuid.UUID:
        """The id that every part computes alike from the natural key."""
        return allocation_id(self.cluster, self.pod_uid, self.container, self.device_uuid)


class DeviceKey(NamedTuple):
    """One physical GPU: (cluster, node UID, device UUID); UUIDs repeat across mock nodes."""

    cluster: ClusterCode
    node_uid: NodeUid
    device_uuid: DeviceUuid


def new_epoch() -> EpochId:
    """A random id for one run of an exporter process."""
    return EpochId(uuid.uuid4().hex)
