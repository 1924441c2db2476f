"""Which objects to watch and how to read one: a path, a selector, a type.

Invariant: one object that cannot be read costs that object alone. What can still be known of it (its
UID) is kept, so that it is not taken for gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Protocol, TypeVar

import msgspec

from exporter.kube.client import JSON
from exporter.kube.objects import Event, Meta, Namespace, Node, Pod, ResourceQuota


class HasMeta(Protocol):
    """Any Kubernetes object."""

    @property
    def metadata(self) -> Meta:
        """Its metadata."""


T = TypeVar("T", bound=HasMeta)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An object we could not decode; `uid` is empty when not even that could be read."""

    uid: str
    detail: str


class _Identity(msgspec.Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class _Identified(msgspec.Struct):
    metadata: _Identity


@dataclass(frozen=True)
class Resource(Generic[T]):
    """A collection of the API server.

    Attributes:
        name: What logs and health series call it.
        path: e.g. `/api/v1/pods`.
        object_type: The struct to decode into.
        field_selector: Which objects, by the server's own selection.
        is_metadata_only: Ask for `PartialObjectMetadata`: nothing but metadata is transferred.
        can_be_empty: False where an API server always has an object, so that an empty list is never true.
        is_paged: List page by page from the first time on. An API server gives its cache's list in one piece
            only: cheap for a thousand nodes that ask for little, but 200 MB for one that asks for all pods.
        slim: What to keep of an object; None keeps all that was decoded.
    """

    name: str
    path: str
    object_type: type[T]
    field_selector: str = ""
    is_metadata_only: bool = False
    can_be_empty: bool = True
    is_paged: bool = False
    slim: Callable[[T], T] | None = None

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[T]:
        return msgspec.json.Decoder(self.object_type)

    def accept(self, *, is_list: bool) -> str:
        """The Accept header; a server that cannot convert answers with the full objects."""
        if not self.is_metadata_only:
            return JSON
        kind = "PartialObjectMetadataList" if is_list else "PartialObjectMetadata"
        return f"{JSON};as={kind};g=meta.k8s.io;v=v1,{JSON}"

    def decode(self, raw: msgspec.Raw) -> T | Unreadable:
        """An object, or what is left of it."""
        try:
            decoded = self._decoder.decode(raw)
        except msgspec.MsgspecError as error:
            identity = identity_of(raw)
            return Unreadable(identity.uid, str(error))
        return decoded if self.slim is None else self.slim(decoded)


def identity_of(raw: msgspec.Raw) -> _Identity:
    """UID and version of an object, empty where they cannot be read."""
    try:
        return msgspec.json.decode(raw, type=_Identified).metadata
    except msgspec.MsgspecError:
        return _Identity()


def pods(node_name: str | None = None) -> Resource[Pod]:
    """All pods, or those bound to one node (what is transferred does not grow with the cluster)."""
    selector = f"spec.nodeName={node_name}" if node_name else ""
    return Resource("pods", "/api/v1/pods", Pod, selector)


def nodes(name: str | None = None) -> Resource[Node]:
    """All nodes, or one."""
    return Resource("nodes", "/api/v1/nodes", Node, f"metadata.name={name}" if name else "")


def namespaces() -> Resource[Namespace]:
    """All namespaces, metadata only.

    `default` and `kube-system` always exist; a list without them would give pods the wrong tenants.
    """
    return Resource("namespaces", "/api/v1/namespaces", Namespace, is_metadata_only=True, can_be_empty=False)


def events(field_selector: str = "") -> Resource[Event]:
    """Events of all namespaces, e.g. with `involvedObject.kind=Pod`."""
    return Resource("events", "/api/v1/events", Event, field_selector)


def quotas() -> Resource[ResourceQuota]:
    """Resource quotas of all namespaces."""
    return Resource("resourcequotas", "/api/v1/resourcequotas", ResourceQuota)
