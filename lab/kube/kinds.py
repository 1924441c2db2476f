"""The kinds of objects the double serves, and by which of their fields one may select.

The field lists are those of a Kubernetes API server (`ToSelectableFields` of each kind); selecting by
any other field is a 400 there and here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from lab.kube.json_object import JsonObject

API_PREFIX = "/api/v1"


class BadSelectorError(Exception):
    """A field selector that an API server would refuse."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object."""

    name: str
    plural: str
    is_namespaced: bool
    fields: tuple[str, ...]


KINDS = (
    Kind(
        "Pod",
        "pods",
        is_namespaced=True,
        fields=(
            "metadata.name",
            "metadata.namespace",
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "status.phase",
        ),
    ),
    Kind("Node", "nodes", is_namespaced=False, fields=("metadata.name", "spec.unschedulable")),
    Kind("Namespace", "namespaces", is_namespaced=False, fields=("metadata.name", "status.phase")),
    Kind(
        "ResourceQuota",
        "resourcequotas",
        is_namespaced=True,
        fields=("metadata.name", "metadata.namespace"),
    ),
    Kind(
        "Event",
        "events",
        is_namespaced=True,
        fields=(
            "metadata.name",
            "metadata.namespace",
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "reason",
            "type",
        ),
    ),
)
BY_NAME = {kind.name: kind for kind in KINDS}
BY_PLURAL = {kind.plural: kind for kind in KINDS}

Requirement: TypeAlias = tuple[str, str, bool]
"""(field, value, whether it must be equal)."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a kind a request is about; an empty namespace means all of them."""

    kind: Kind
    namespace: str = ""
    requirements: tuple[Requirement, ...] = ()

    def has(self, found: JsonObject | None) -> bool:
        """Whether an object is selected; nothing is not."""
        if found is None:
            return False
        if self.namespace and found["metadata"].get("namespace") != self.namespace:
            return False
        return all((_field(found, field) == value) == equal for field, value, equal in self.requirements)


def parse_field_selector(kind: Kind, text: str) -> tuple[Requirement, ...]:
    """`a=b,c!=d` as requirements.

    Raises:
        BadSelectorError: It has no operator, or selects by a field that the kind has not.
    """
    return tuple(_parse_requirement(kind, part) for part in text.split(",") if part)


def _parse_requirement(kind: Kind, part: str) -> Requirement:
    for operator in ("!=", "==", "="):
        field, found, value = part.partition(operator)
        if not found:
            continue
        if field not in kind.fields:
            raise BadSelectorError(f"field label not supported: {field}")
        return field, value, operator != "!="
    raise BadSelectorError(f"invalid field selector {part!r}")


def _field(found: JsonObject, path: str) -> str:
    value: object = found
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return "" if value is None else str(value)
