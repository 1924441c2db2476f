from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, select, text
from sqlalchemy.exc import IntegrityError, StatementError

from accounting.store.database import Database
from accounting.store.models import BillingAccount, Cluster, DeviceHour, PriceBook, PriceVersion
from accounting.store.walls import see_everything


def price(unit_price: Decimal, *, valid_from_ms: int = 0) -> PriceVersion:
    return PriceVersion(
        book="standard",
        sku="gpu-slice",
        model="NVIDIA L4",
        currency="EUR",
        unit="card-hour",
        unit_price=unit_price,
        valid_from_ms=valid_from_ms,
        recorded_at_ms=0,
        recorded_by="test",
    )


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20, places=17))
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_an_amount_comes_back_to_its_last_digit(database: Database, amount: Decimal) -> None:
    with database.engine.connect() as connection:
        if database.is_postgresql:
            see_everything(connection)
        connection.execute(insert(PriceBook).values(code="standard", created_at_ms=0))
        connection.execute(
            insert(PriceVersion).values(
                book="standard", sku="s", model="", currency="EUR", unit="u", unit_price=amount,
                valid_from_ms=0, recorded_at_ms=0, recorded_by="t",
            )
        )  # fmt: skip
        stored = connection.execute(select(PriceVersion.unit_price)).scalar_one()
        assert (stored, type(stored)) == (amount, Decimal)
        typeof = "pg_typeof(unit_price)::text" if database.is_postgresql else "typeof(unit_price)"
        kind = connection.execute(text(f"SELECT {typeof} FROM price_version")).scalar_one()
        assert kind == ("numeric" if database.is_postgresql else "text")
        connection.rollback()


@pytest.mark.parametrize("wrong", [0.1, 1, "1.0", Decimal("NaN"), Decimal("Infinity")])
def test_an_amount_that_is_no_finite_decimal_is_refused(database: Database, wrong: Decimal) -> None:
    with pytest.raises(StatementError, match="an amount is"), database.writing() as session:
        session.add(price(wrong))


@pytest.mark.parametrize("wrong", [1.5, True, "2026-10-01", -1, 253_402_300_800_000])
def test_a_time_that_is_no_whole_unix_millisecond_is_refused(database: Database, wrong: int) -> None:
    with pytest.raises(StatementError, match="Unix milliseconds"), database.writing() as session:
        session.add(PriceBook(code="standard", created_at_ms=wrong))


@pytest.fixture
def far_zone() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Pacific/Kiritimati"
    time.tzset()
    yield
    os.environ.pop("TZ") if before is None else os.environ.update(TZ=before)
    time.tzset()


def test_the_zone_of_the_process_moves_no_time(database: Database, far_zone: None) -> None:
    with database.writing() as session:
        session.add(PriceBook(code="standard", created_at_ms=1_790_805_600_000))
    with database.reading() as session:
        assert session.scalars(select(PriceBook.created_at_ms)).one() == 1_790_805_600_000


def test_two_live_prices_from_the_same_instant_are_refused(database: Database) -> None:
    with database.writing() as session:
        session.add(PriceBook(code="standard", created_at_ms=0))
        session.flush()
        session.add(price(Decimal("2.40")))
    with pytest.raises(IntegrityError), database.writing() as session:
        session.add(price(Decimal("3.00")))


def test_a_cluster_needs_an_account_that_exists(database: Database) -> None:
    with pytest.raises(IntegrityError, match=r"(?i)foreign key"), database.writing() as session:
        session.add(Cluster(code="a", account="nobody", platform_account="nobody", created_at_ms=0))


@pytest.mark.parametrize(
    ("present", "charged", "idle", "down"),
    [(100, 50, 40, 9), (100, 50, 60, -10), (3_600_000_000_001, 3_600_000_000_001, 0, 0)],
)
def test_a_device_hour_that_does_not_close_is_refused(
    database: Database, present: int, charged: int, idle: int, down: int
) -> None:
    with pytest.raises(IntegrityError, match=r"(?i)check"), database.writing() as session:
        session.add(
            DeviceHour(
                cluster="a", hour_ms=0, node_uid="n", device_uuid="GPU-1", node="n1", model="NVIDIA L4",
                present_ppm_ms=present, charged_ppm_ms=charged, idle_ppm_ms=idle, down_ppm_ms=down,
                confirmed_ms=0,
            )
        )  # fmt: skip


def test_a_writer_that_fails_leaves_nothing(database: Database) -> None:
    account = BillingAccount(
        code="acme", kind="tenant", currency="EUR", time_zone="Europe/Berlin", grace_days=3, created_at_ms=0
    )

    def write_and_fail() -> None:
        with database.writing() as session:
            session.add(account)
            session.flush()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_and_fail()
    with database.reading() as session:
        assert session.scalars(select(BillingAccount)).all() == []


def test_a_second_writer_waits_for_the_first(database: Database) -> None:
    entered = threading.Event()

    def second() -> None:
        entered.set()
        with database.writing() as session:
            book = session.scalars(select(PriceBook)).one()
            book.created_at_ms += 1

    with database.writing() as session:
        thread = threading.Thread(target=second)
        thread.start()
        entered.wait()
        session.add(PriceBook(code="standard", created_at_ms=1))
    thread.join()
    with database.reading() as session:
        assert session.scalars(select(PriceBook.created_at_ms)).one() == 2
