"""What slices held and used, added up by what a person asks for, by allocation or by use.

Invariant: the groups are the rows of the ungrouped report, each in exactly one; what nobody measured is
counted, never taken for 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from accounting.errors import InvalidError
from accounting.periods.use import Use, add_uses
from accounting.reports.documents import Document, use_document
from accounting.reports.grouping import LEVELS, Branches
from accounting.reports.paging import EVERYTHING, Asked, page_of
from accounting.reports.usage import SliceRow, UsageReport, usage_frame

Basis: TypeAlias = Literal["allocation", "usage"]

BASES: tuple[Basis, ...] = ("allocation", "usage")
"""`allocation`: the card time that a slice is charged. `usage`: the SM time that was measured on it."""


@dataclass(frozen=True, slots=True)
class UsageGroup:
    """Slices that have the same values of the keys."""

    keys: tuple[str, ...]
    slices: int
    unmeasured: int
    """Slices without a usage source; what they used is in no sum."""
    held_ms: int
    own_ppm_ms: int
    charged_ppm_ms: int
    use: Use | None


def group_usage(report: UsageReport, group_by: Sequence[str]) -> list[UsageGroup]:
    """Add the rows of a report up by some of `grouping.USAGE_KEYS`."""
    groups: dict[tuple[str, ...], list[SliceRow]] = {}
    for row in report.rows:
        keys = tuple(_value(row, key, report.branches) for key in group_by)
        groups.setdefault(keys, []).append(row)
    return [
        UsageGroup(
            keys=keys,
            slices=len(rows),
            unmeasured=sum(1 for row in rows if row.use is None),
            held_ms=sum(row.held_ms for row in rows),
            own_ppm_ms=sum(row.own_ppm_ms or 0 for row in rows),
            charged_ppm_ms=sum(row.charged_ppm_ms or 0 for row in rows),
            use=add_uses(row.use for row in rows),
        )
        for keys, rows in sorted(groups.items())
    ]


def _value(row: SliceRow, key: str, branches: Branches) -> str:
    allocation = row.slice.allocation
    if key in LEVELS:
        return branches.level(row.tenant, key)
    values = {
        "tenant": row.tenant,
        "cluster": allocation.slice_key.cluster,
        "namespace": allocation.namespace,
        "pod": f"{allocation.namespace}/{allocation.pod}",
        "node": allocation.node,
        "device": allocation.slice_key.device_uuid,
        "model": allocation.model,
    }
    return values[key]


def require_measured(report: UsageReport, basis: Basis) -> None:
    """Refuse to tell by use where nothing was measured.

    Raises:
        InvalidError: Slices were held, and none has a usage source.
    """
    if basis == "usage" and report.rows and all(row.use is None for row in report.rows):
        raise InvalidError(
            "no usage was measured on any of these slices; ask by basis=allocation, or run a node exporter "
            "where they are"
        )


def grouped_usage_document(
    report: UsageReport, group_by: Sequence[str], basis: Basis, asked: Asked = EVERYTHING
) -> Document:
    """The groups as JSON: one page of them, totals over all rows."""
    groups = group_usage(report, group_by)
    page = page_of(groups, lambda group: group.keys, asked)
    return {
        **usage_frame(report),
        "group_by": list(group_by),
        "basis": basis,
        "rows": [_group(group, group_by, basis) for group in page.rows],
        "next": page.next,
    }


def _group(group: UsageGroup, names: Sequence[str], basis: Basis) -> Document:
    used = None if group.use is None else group.use.sm_ppm_ms
    return {
        **{name: value or None for name, value in zip(names, group.keys, strict=True)},
        "slices": group.slices,
        "unmeasured_slices": group.unmeasured,
        "held_ms": group.held_ms,
        "card_time_ppm_ms": group.charged_ppm_ms if basis == "allocation" else used,
        "own_ppm_ms": group.own_ppm_ms,
        "discount_ppm_ms": group.own_ppm_ms - group.charged_ppm_ms,
        "charged_ppm_ms": group.charged_ppm_ms,
        "use": use_document(group.use),
    }
