"""Months of partitions, worked out by hand: 2026-10-01T00:00Z is 1,790,812,800,000 ms."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import text

from accounting.ledger.calendar import Month
from accounting.store.database import Database
from accounting.store.errors import StoreError
from accounting.store.partitions import Stray, drain, is_partition, make_ahead, retire, strays
from tests.accounting.postgresql import Server

OCTOBER = 1_790_812_800_000
NOVEMBER = 1_793_491_200_000
NOW = 1_793_000_000_000
HOUR = 3_600_000


@pytest.fixture
def books(postgresql: Server, migrated_database: str) -> Iterator[Database]:
    with postgresql.database(migrated_database) as name:
        database = Database(postgresql.url(name))
        yield database
        database.close()


def put(database: Database, *hours_ms: int) -> None:
    with database.writing() as session:
        for hour_ms in hours_ms:
            session.execute(
                text(
                    "INSERT INTO device_fact (cluster, hour_ms, node_uid, device_uuid, epoch, busy_ppm_ms, "
                    "energy_mj, energy_idle_mj, energy_unattributed_mj, sm_unattributed_ppm_ms, revision, "
                    "from_ms, to_ms, covered_ms, ingest_seq) "
                    "VALUES ('a', :hour, 'n', 'GPU-1', 'e', 0, 0, 0, 0, 0, 1, :hour, :hour + 1, 0, 1)"
                ),
                {"hour": hour_ms},
            )


def rows(database: Database, table: str) -> list[int]:
    with database.reading() as session:
        return list(session.scalars(text(f"SELECT hour_ms FROM {table} ORDER BY hour_ms")))


@pytest.mark.postgresql
def test_this_month_and_the_next_three_are_made_once(books: Database) -> None:
    with books.writing() as session:
        made = make_ahead(session, now_ms=NOW)
    assert [name for name in made if name.startswith("usage_fact")] == [
        "usage_fact_p202610", "usage_fact_p202611", "usage_fact_p202612", "usage_fact_p202701",
    ]  # fmt: skip
    assert len(made) == 3 * 4
    with books.writing() as session:
        assert make_ahead(session, now_ms=NOW) == []


@pytest.mark.postgresql
def test_hours_lie_in_the_partition_of_their_utc_month_and_are_found_through_the_table(
    books: Database,
) -> None:
    with books.writing() as session:
        make_ahead(session, now_ms=NOW)
    put(books, OCTOBER, NOVEMBER - HOUR, NOVEMBER)
    assert rows(books, "device_fact_p202610") == [OCTOBER, NOVEMBER - HOUR]
    assert rows(books, "device_fact_p202611") == [NOVEMBER]
    assert rows(books, "device_fact") == [OCTOBER, NOVEMBER - HOUR, NOVEMBER]


@pytest.mark.postgresql
def test_an_hour_without_a_partition_is_kept_and_told_and_moved_when_asked(books: Database) -> None:
    put(books, OCTOBER - HOUR, OCTOBER)
    with books.writing() as session:
        # October's partition cannot be made while its hours lie elsewhere; September is in the past.
        assert "device_fact_p202610" not in make_ahead(session, now_ms=NOW)
        stray = [Stray("device_fact", Month(2026, 9), 1), Stray("device_fact", Month(2026, 10), 1)]
        assert strays(session) == stray
        assert drain(session) == stray
        assert strays(session) == []
    assert rows(books, "device_fact_p202609") == [OCTOBER - HOUR]
    assert rows(books, "device_fact_p202610") == [OCTOBER]
    assert rows(books, "device_fact") == [OCTOBER - HOUR, OCTOBER]
    put(books, OCTOBER + HOUR)
    assert rows(books, "device_fact_p202610") == [OCTOBER, OCTOBER + HOUR]


@pytest.mark.postgresql
def test_retired_months_leave_their_table_but_not_the_database(books: Database) -> None:
    with books.writing() as session:
        make_ahead(session, now_ms=NOW)
    put(books, OCTOBER, NOVEMBER)
    # 400 days after 2026-11-01T00:00Z nothing of October may come any more.
    later = NOVEMBER + 400 * 86_400_000
    with books.writing() as session:
        retired = retire(session, Month(2026, 11), now_ms=later)
    assert "device_fact_p202610_retired" in retired
    assert rows(books, "device_fact") == [NOVEMBER]
    assert rows(books, "device_fact_p202610_retired") == [OCTOBER]


@pytest.mark.postgresql
def test_a_month_whose_facts_may_still_come_is_not_retired(books: Database) -> None:
    just_before = NOVEMBER + 400 * 86_400_000 - 1
    still_open = "facts up to 400 days old are accepted; name 2026-10"
    with books.writing() as session, pytest.raises(StoreError, match=still_open):
        retire(session, Month(2026, 11), now_ms=just_before)


def test_sqlite_has_no_partitions(migrated_file: object) -> None:
    database = Database(f"sqlite:///{migrated_file}")
    with database.reading() as session:
        assert make_ahead(session, now_ms=NOW) == []
        assert strays(session) == []
    database.close()


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("usage_fact_p202610", True), ("device_fact_default", True), ("unallocated_fact_p209912", True),
        ("usage_fact", False), ("usage_fact_p202610_retired", True), ("usage_fact_p20261", False),
        ("ledger_line_p202610", False),
    ],
)  # fmt: skip
def test_a_partition_is_known_by_its_name(name: str, verdict: bool) -> None:
    assert is_partition(name) is verdict
