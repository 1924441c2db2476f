"""Versions as they were known at some moment: what a sealed period is computed with again.

Prices, policies, discounts, tenant rules and moves are never edited; a mistake is superseded by a later
row that names it. So the highest id of each table says all that was known at a moment, whatever the clocks
said.

Invariant: for one `Known` the live versions are the same for ever, whoever is recorded later.
Source: `reference/ledger.md §4, §9`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import msgspec
from sqlalchemy import ColumnElement, and_, exists, func, select
from sqlalchemy.orm import Session, aliased

from accounting.store.models import (
    Budget,
    PolicyVersion,
    PriceVersion,
    TenantDiscount,
    TenantMove,
    TenantRule,
)

Versioned: TypeAlias = (
    type[PriceVersion]
    | type[PolicyVersion]
    | type[TenantDiscount]
    | type[TenantRule]
    | type[TenantMove]
    | type[Budget]
)

VERSIONED: tuple[Versioned, ...] = (PriceVersion, PolicyVersion, TenantDiscount, TenantRule, TenantMove)
"""Every table of versions that a rating depends on."""


@dataclass(frozen=True, slots=True)
class Known:
    """What was recorded at a moment: by table the highest id."""

    newest: Mapping[str, int]

    @classmethod
    def now(cls, session: Session) -> Known:
        """All that a transaction sees."""
        return cls(
            {table.__tablename__: session.scalar(select(func.max(table.id))) or 0 for table in VERSIONED}
        )

    @classmethod
    def from_text(cls, text: str) -> Known:
        """Read what `text` wrote."""
        return cls(msgspec.json.decode(text, type=dict[str, int]))

    @property
    def text(self) -> str:
        """As JSON, to be kept."""
        return msgspec.json.encode(dict(self.newest), order="sorted").decode()


def is_live(table: Versioned, known: Known | None) -> ColumnElement[bool]:
    """The condition on versions that nobody superseded: now (None), or as far as was known."""
    if known is None:
        return table.superseded_at_ms.is_(None)
    newest = known.newest.get(table.__tablename__, 0)
    successor = aliased(table)
    is_superseded = exists().where(successor.supersedes_id == table.id, successor.id <= newest)
    return and_(table.id <= newest, ~is_superseded)
