"""The kinds of facts: for each its table, its merge rule, and what a change of it touches.

Columns are named like fields, so a fact becomes a row and a row a fact without a mapping. Invariant:
`fact_of(row_of(fact))` has the canonical bytes of `fact`, so the bytes need not be stored.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
from sqlalchemy import Column, Table

from accounting.facts import merging, touching
from accounting.facts.merging import Merged
from accounting.facts.touching import Change, Window
from accounting.store.models import (
    AllocationReport,
    Base,
    DeviceFact,
    NodeState,
    PresenceReport,
    UnallocatedFact,
    UsageFact,
)
from contract.facts import (
    AllocationFact,
    DeviceUsageFact,
    Fact,
    NodeStateFact,
    PresenceFact,
    SliceUsageFact,
    UnallocatedUseFact,
)

Value: TypeAlias = str | int | bool | uuid.UUID | None
Row: TypeAlias = dict[str, Value]
Values: TypeAlias = tuple[Any, ...]
Key: TypeAlias = tuple[Value, ...]

SomeFact = TypeVar("SomeFact", bound=Fact)


@dataclass(frozen=True, slots=True)
class FactKind(Generic[SomeFact]):
    """One kind of fact.

    Attributes:
        fact_type: The struct.
        model: The table's class.
        merge: What stays of two facts of one natural key.
        touched: Which time of which device changes from one fact (None: there was none) to another may
            have changed, seen from now.
        columns: Names of the table's columns that a fact says: all but `ingest_seq`.
        said: Those of them that are fields of the fact; the others are computed from these.
        key_of: Takes the natural key out of the values of these columns; every one has at least two.
    """

    fact_type: type[SomeFact]
    model: type[Base]
    merge: Callable[[SomeFact, SomeFact], Merged[SomeFact]]
    touched: Callable[[Iterable[Change[SomeFact]], int], list[Window]]
    columns: tuple[str, ...] = field(init=False)
    said: tuple[str, ...] = field(init=False)
    key_of: Callable[[Values], Key] = field(init=False)
    _get: Callable[[SomeFact], Values] = field(init=False)
    _labels_at: int | None = field(init=False)

    def __post_init__(self) -> None:
        names = tuple(column.name for column in self.table.columns if column.name != "ingest_seq")
        key_places = [names.index(column.name) for column in self.key_columns]
        object.__setattr__(self, "columns", names)
        object.__setattr__(self, "said", tuple(n for n in self.fact_type.__struct_fields__ if n != "schema"))
        object.__setattr__(self, "key_of", itemgetter(*key_places))
        object.__setattr__(self, "_get", attrgetter(*names))
        object.__setattr__(self, "_labels_at", names.index("labels") if "labels" in names else None)

    @property
    def table(self) -> Table:
        """The table itself."""
        table = self.model.__table__
        assert isinstance(table, Table)
        return table

    @property
    def key_columns(self) -> list[Column[Any]]:
        """The columns of the natural key, in the order of its index."""
        return list(self.table.primary_key)

    def values_of(self, fact: SomeFact) -> Values:
        """A fact as the values of `columns`."""
        values = self._get(fact)
        if self._labels_at is None:
            return values
        labels = msgspec.json.encode(values[self._labels_at], order="sorted").decode()
        return (*values[: self._labels_at], labels, *values[self._labels_at + 1 :])

    def row_of(self, fact: SomeFact) -> Row:
        """A fact as its row by column name, but for the number of the request that brings it."""
        return dict(zip(self.columns, self.values_of(fact), strict=True))

    def fact_of(self, row: Mapping[str, Any]) -> SomeFact:
        """A row, by column name, as the fact that it keeps."""
        return self.fact_of_values([row[name] for name in self.said])

    def fact_of_values(self, values: Iterable[Any]) -> SomeFact:
        """A row, as the values of the columns `said`, as the fact that it keeps."""
        fields = dict(zip(self.said, values, strict=True))
        if self._labels_at is not None:
            fields["labels"] = msgspec.json.decode(fields["labels"], type=dict[str, str])
        return self.fact_type(**fields)


ALLOCATION = FactKind(
    AllocationFact, AllocationReport, merging.merge_allocations, touching.touched_by_allocations
)
PRESENCE = FactKind(PresenceFact, PresenceReport, merging.merge_presence, touching.touched_by_presences)
NODE_STATE = FactKind(NodeStateFact, NodeState, merging.merge_node_states, touching.touched_by_node_states)
SLICE_USAGE = FactKind(SliceUsageFact, UsageFact, merging.merge_uses, touching.touched_by_uses)
UNALLOCATED_USE = FactKind(UnallocatedUseFact, UnallocatedFact, merging.merge_uses, touching.touched_by_uses)
DEVICE_USAGE = FactKind(DeviceUsageFact, DeviceFact, merging.merge_uses, touching.touched_by_uses)
