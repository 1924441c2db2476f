"""A flaw: one piece of an annotation that could not be read, and why.

Flaws travel beside the values that could be read; they are counted by kind and reason and shown by
`slicemeter annotation show`. Invariant: the reasons are a closed set, so they are fit for a label.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal[
    "pod-devices", "pod-keys", "node-register", "node-lock", "mig-allocations", "device-cordon"
]
"""Which annotation: the `kind` label of `annotation_errors_total`."""

Reason: TypeAlias = Literal[
    "field_count",
    "bad_number",
    "bad_boolean",
    "bad_time",
    "bad_uuid",
    "bad_value",
    "bad_mig",
    "bad_json",
    "missing_uuid",
    "duplicate",
    "unmapped",
    "no_entry",
    "other_node",
    "too_many",
]
"""Why: the `reason` label of `annotation_errors_total`."""


REASONS_OF: Mapping[Kind, tuple[Reason, ...]] = {
    "pod-devices": (
        "field_count",
        "bad_number",
        "bad_value",
        "missing_uuid",
        "bad_uuid",
        "bad_mig",
        "unmapped",
        "no_entry",
        "too_many",
    ),
    "pod-keys": ("bad_time", "bad_value", "other_node"),
    "node-register": (
        "field_count",
        "bad_number",
        "bad_boolean",
        "bad_value",
        "missing_uuid",
        "bad_uuid",
        "bad_json",
        "duplicate",
    ),
    "node-lock": ("field_count", "bad_time", "bad_value"),
    "mig-allocations": ("missing_uuid", "bad_uuid", "bad_value", "bad_number", "bad_json", "duplicate"),
    "device-cordon": ("bad_uuid",),
}
"""What can be wrong with each kind: a counter is there from 0 for each of these."""

_SEGMENT_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Flaw:
    """One piece that could not be read.

    Attributes:
        kind: The annotation it stood in.
        segment: The piece itself, shortened when it is long.
        reason: A closed word.
        detail: One line for a person.
    """

    kind: Kind
    segment: str
    reason: Reason
    detail: str


def flaw(kind: Kind, segment: str, reason: Reason, detail: str) -> Flaw:
    """A flaw whose segment is cut to a length that fits a log line."""
    if len(segment) > _SEGMENT_CHARACTERS:
        segment = segment[:_SEGMENT_CHARACTERS] + "…"
    return Flaw(kind, segment, reason, detail)
