"""The kinds of facts: for each its table, its merge rule, and what a change of it touches.

Columns are named like fields, so a fact becomes a row and a row a fact without a mapping. Invariant:
`fact_of(row_of(fact))` has the canonical bytes of `fact`, so the bytes need not be stored.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
from sqlalchemy import Column, Table

from accounting.facts import merging, touching
from accounting.facts.merging import Merged
from accounting.facts.touching import Window
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
Key: TypeAlias = tuple[Value, ...]

SomeFact = TypeVar("SomeFact", bound=Fact)


@cache
def _key_getter(table: Table) -> Callable[[Mapping[str, Any]], Key]:
    """Takes the natural key out of a row; every one has at least two columns."""
    return itemgetter(*(column.name for column in table.primary_key))


@dataclass(frozen=True, slots=True)
class FactKind(Generic[SomeFact]):
    """One kind of fact.

    Attributes:
        fact_type: The struct.
        model: The table's class.
        merge: What stays of two facts of one natural key.
        touched: Which time of which device a change from one fact (None: there was none) to another may
            have changed, seen from now.
    """

    fact_type: type[SomeFact]
    model: type[Base]
    merge: Callable[[SomeFact, SomeFact], Merged[SomeFact]]
    touched: Callable[[SomeFact | None, SomeFact, int], list[Window]]

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

    def row_of(self, fact: SomeFact) -> Row:
        """A fact as the values of its row, but for the number of the request that brings it."""
        row: Row = msgspec.structs.asdict(fact)
        del row["schema"]
        if isinstance(fact, AllocationFact):
            row["labels"] = msgspec.json.encode(fact.labels, order="sorted").decode()
        if isinstance(fact, AllocationFact | SliceUsageFact):
            row["allocation_id"] = fact.slice_key.allocation_id
        return row

    def key_of(self, row: Mapping[str, Any]) -> Key:
        """The natural key of a row."""
        return _key_getter(self.table)(row)

    def fact_of(self, row: Mapping[str, Any]) -> SomeFact:
        """A row, by column name, as the fact that it keeps."""
        fields = {name: row[name] for name in self.fact_type.__struct_fields__ if name != "schema"}
        if "labels" in fields:
            fields["labels"] = msgspec.json.decode(fields["labels"], type=dict[str, str])
        return self.fact_type(**fields)


ALLOCATION = FactKind(
    AllocationFact, AllocationReport, merging.merge_allocations, touching.touched_by_allocation
)
PRESENCE = FactKind(PresenceFact, PresenceReport, merging.merge_presence, touching.touched_by_presence)
NODE_STATE = FactKind(NodeStateFact, NodeState, merging.merge_node_states, touching.touched_by_node_state)
SLICE_USAGE = FactKind(SliceUsageFact, UsageFact, merging.merge_uses, touching.touched_by_use)
UNALLOCATED_USE = FactKind(UnallocatedUseFact, UnallocatedFact, merging.merge_uses, touching.touched_by_use)
DEVICE_USAGE = FactKind(DeviceUsageFact, DeviceFact, merging.merge_uses, touching.touched_by_use)
