"""A large month, written straight into the tables of facts: COPY on PostgreSQL, batches elsewhere.

Invariant: afterwards the books are as if exporters had delivered everything: facts, their days marked for
rating, the number of the last request, accounts, prices and policies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import Any, Literal, TypeAlias

import psycopg
from psycopg import sql
from sqlalchemy import Table, insert, text
from sqlalchemy.orm import Session

from accounting.access.viewer import COMMAND_LINE
from accounting.facts import kinds
from accounting.facts.kinds import FactKind
from accounting.prices.book import set_price
from accounting.prices.policies import set_policy
from accounting.store.database import Database
from accounting.store.models import Base, IngestCounter, Node, RatingMark
from accounting.store.partitions import make_ahead
from accounting.tenants.registry import add_account, add_cluster
from contract.facts import Fact
from contract.units import MS_PER_HOUR
from lab.scale.month import CARDS_PER_NODE, CLUSTER, ENDS_MS, MODELS, STARTS_MS, ZONE, LargeCard, node_state

UsageLoaded: TypeAlias = Literal["none", "device", "all"]
"""Which measurements by the hour are loaded: none, the boards' energy, the slices' too."""

USAGE_LOADED: tuple[UsageLoaded, ...] = ("none", "device", "all")

_ACCOUNT, _PLATFORM = "company", "company-platform"
_CURRENCY = "EUR"
_PRICES = {MODELS[0][0]: Decimal("2.40"), MODELS[1][0]: Decimal("1.10")}
_PER_KWH = Decimal("0.31")
_SEQ = 1
_MS_PER_DAY = 24 * MS_PER_HOUR
_ROWS_AT_A_TIME = 5_000


@dataclass(frozen=True, slots=True)
class Loaded:
    """How many rows there are of what."""

    nodes: int
    cards: int
    allocation_reports: int
    presence_reports: int
    device_hours: int
    slice_hours: int


def open_books(database: Database) -> None:
    """Two accounts, the cluster, a price for each model and for energy, energy split by memory."""
    now_ms = STARTS_MS - 30 * _MS_PER_DAY
    by: dict[str, Any] = {"by": COMMAND_LINE, "now_ms": now_ms}
    with database.writing() as session:
        make_ahead(session, now_ms=STARTS_MS)
        for code, kind in ((_ACCOUNT, "tenant"), (_PLATFORM, "platform")):
            add_account(session, code, kind=kind, currency=_CURRENCY, time_zone=ZONE, grace_days=3, **by)  # type: ignore[arg-type]
        add_cluster(session, CLUSTER, account=_ACCOUNT, platform_account=_PLATFORM, **by)
        prices = [("gpu-slice", model, price) for model, price in _PRICES.items()]
        for sku, model, price in [*prices, ("gpu-energy", "", _PER_KWH)]:
            set_price(
                session, sku=sku, model=model, currency=_CURRENCY, unit_price=price, valid_from_ms=0, **by
            )
        set_policy(session, kind="energy", value="memory", valid_from_ms=0, **by)


def load(
    database: Database, *, nodes: int, usage: UsageLoaded, progress: Callable[[int, int], None]
) -> Loaded:
    """Write a month of so many nodes, ten slices to a card, eight cards to a node.

    Args:
        database: Migrated, with the books of `open_books`.
        nodes: How many.
        usage: Which measurements to load.
        progress: Told how many of how many nodes are written.
    """
    counts = dict.fromkeys(("allocation", "presence", "device", "slice"), 0)
    for number in range(nodes):
        cards = [LargeCard(number * CARDS_PER_NODE + index) for index in range(CARDS_PER_NODE)]
        with database.writing() as session:
            counts["allocation"] += _facts(
                session, kinds.ALLOCATION, (f for c in cards for f in c.allocations())
            )
            counts["presence"] += _facts(session, kinds.PRESENCE, (f for c in cards for f in c.presence()))
            _facts(session, kinds.NODE_STATE, [node_state(number)])
            if usage != "none":
                counts["device"] += _facts(
                    session, kinds.DEVICE_USAGE, (f for c in cards for f in c.device_usage())
                )
            if usage == "all":
                counts["slice"] += _facts(
                    session, kinds.SLICE_USAGE, (f for c in cards for f in c.slice_usage())
                )
            _rows(session, Node, [_node_row(cards[0])])
            _rows(session, RatingMark, (row for card in cards for row in _marks(card)))
        progress(number + 1, nodes)
    with database.writing() as session:
        session.merge(IngestCounter(id=1, last_seq=_SEQ))
    _analyze(database)
    return Loaded(
        nodes,
        nodes * CARDS_PER_NODE,
        counts["allocation"],
        counts["presence"],
        counts["device"],
        counts["slice"],
    )


def _facts(session: Session, kind: FactKind[Any], facts: Iterable[Fact]) -> int:
    return _rows(session, kind.model, (kind.row_of(fact) | {"ingest_seq": _SEQ} for fact in facts))


def _node_row(card: LargeCard) -> dict[str, Any]:
    return {"cluster": CLUSTER, "node_uid": card.node_uid, "name": card.node, "named_at_ms": ENDS_MS}


def _marks(card: LargeCard) -> Iterator[dict[str, Any]]:
    for day_ms in range(STARTS_MS - STARTS_MS % _MS_PER_DAY, ENDS_MS, _MS_PER_DAY):
        yield {
            "cluster": CLUSTER,
            "node_uid": card.node_uid,
            "device_uuid": card.uuid,
            "day_ms": day_ms,
            "ingest_seq": _SEQ,
        }


def _rows(session: Session, model: type[Base], rows: Iterable[dict[str, Any]]) -> int:
    table = model.__table__
    assert isinstance(table, Table)
    connection = session.connection()
    driver = connection.connection.driver_connection
    if isinstance(driver, psycopg.Connection):
        return _copied(driver, table, rows)
    count = 0
    iterator = iter(rows)
    while chunk := list(islice(iterator, _ROWS_AT_A_TIME)):
        connection.execute(insert(table), chunk)
        count += len(chunk)
    return count


def _copied(driver: psycopg.Connection[Any], table: Table, rows: Iterable[dict[str, Any]]) -> int:
    names: Sequence[str] = [column.name for column in table.columns]
    target = sql.SQL("COPY {} ({}) FROM STDIN").format(
        sql.Identifier(table.name), sql.SQL(", ").join(map(sql.Identifier, names))
    )
    count = 0
    with driver.cursor().copy(target) as copy:
        for row in rows:
            copy.write_row([row[name] for name in names])
            count += 1
    return count


def _analyze(database: Database) -> None:
    """What autovacuum would have done by the end of a month."""
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE"))
