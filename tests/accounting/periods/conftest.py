"""Books with two clusters of one account, to be filled with facts and rated at instants a test names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

import pytest
from sqlalchemy import select

from accounting.access.viewer import COMMAND_LINE, Viewer
from accounting.facts.ingest import ingest
from accounting.facts.reading import Scope, read_lines
from accounting.ledger.calendar import parse_month
from accounting.periods.adjust import adjust, parse_amount
from accounting.periods.close import Closed, close_period
from accounting.periods.correct import Corrected, correct_period
from accounting.periods.months import find_account
from accounting.periods.preflight import Preflight, preflight
from accounting.periods.rate import Rated, rate
from accounting.periods.statement import Statement, state_statement
from accounting.periods.verify import Verified, verify_period
from accounting.prices.book import set_price
from accounting.store.database import Database
from accounting.store.models import DeviceHour, LedgerLine, Tenant
from accounting.tenants.registry import add_account, add_cluster
from contract.facts import AllocationFact, Fact, PresenceFact, canonical_bytes

GRACE_MS = 900_000


@dataclass
class Ledger:
    """A database with accounts `acme` and `platform` in Berlin and clusters `c` and `d`."""

    database: Database

    def account(
        self, code: str, kind: str = "tenant", currency: str | None = "EUR", zone: str = "UTC"
    ) -> None:
        with self.database.writing() as session:
            add_account(
                session, code, kind=kind, currency=currency, time_zone=zone, grace_days=3,  # type: ignore[arg-type]
                by=COMMAND_LINE, now_ms=0,
            )  # fmt: skip

    def cluster(self, code: str, account: str = "acme", platform: str = "platform") -> None:
        with self.database.writing() as session:
            add_cluster(session, code, account=account, platform_account=platform, by=COMMAND_LINE, now_ms=0)

    def price(
        self,
        unit_price: str,
        *,
        model: str = "Tesla T4",
        from_ms: int = 0,
        to_ms: int | None = None,
        sku: str = "gpu-slice",
        currency: str = "EUR",
        reason: str | None = None,
    ) -> None:
        with self.database.writing() as session:
            set_price(
                session, sku=sku, model=model, currency=currency, unit_price=Decimal(unit_price),
                valid_from_ms=from_ms, valid_to_ms=to_ms, reason=reason, by=COMMAND_LINE, now_ms=0,
            )  # fmt: skip

    def send(self, facts: Sequence[Fact], *, now_ms: int) -> None:
        for cluster in sorted({fact.cluster for fact in facts}):
            of_cluster = [canonical_bytes(fact) for fact in facts if fact.cluster == cluster]
            lines = read_lines(b"\n".join(of_cluster), Scope(cluster), now_ms=now_ms)
            with self.database.writing() as session:
                taken = ingest(session, lines, cluster=cluster, now_ms=now_ms)
            assert not taken.rejected

    def rate(self, as_of_ms: int) -> Rated:
        return rate(self.database, as_of_ms=as_of_ms, grace_ms=GRACE_MS)

    def lines(self) -> list[tuple[str, LedgerLine]]:
        """Tenant paths and lines, by day and resource."""
        with self.database.reading() as session:
            rows = session.execute(
                select(Tenant.path, LedgerLine)
                .join(LedgerLine, LedgerLine.tenant_id == Tenant.id)
                .order_by(Tenant.path, LedgerLine.resource_key, LedgerLine.charge_from_ms)
            ).all()
            session.expunge_all()
            return [(path, line) for path, line in rows]

    def hours(self) -> list[DeviceHour]:
        with self.database.reading() as session:
            rows = session.scalars(select(DeviceHour).order_by(DeviceHour.hour_ms)).all()
            session.expunge_all()
            return list(rows)

    def statement(self, tenant: str, period: str = "2026-10", viewer: Viewer = COMMAND_LINE) -> Statement:
        with self.database.reading() as session:
            return state_statement(session, viewer, parse_month(period), tenant)

    def preflight(self, account: str, period: str = "2026-10", *, now_ms: int) -> Preflight:
        with self.database.reading() as session:
            return preflight(session, find_account(session, account), parse_month(period), now_ms=now_ms)

    def try_to_close(
        self, account: str, period: str = "2026-10", *, now_ms: int, override: str | None = None
    ) -> Closed | Preflight:
        return close_period(
            self.database,
            account,
            parse_month(period),
            by=COMMAND_LINE,
            now_ms=now_ms,
            grace_ms=GRACE_MS,
            override_reason=override,
        )

    def close(
        self, account: str, period: str = "2026-10", *, now_ms: int, override: str | None = None
    ) -> Closed:
        closed = self.try_to_close(account, period, now_ms=now_ms, override=override)
        assert isinstance(closed, Closed), closed
        return closed

    def correct(
        self,
        account: str,
        period: str = "2026-10",
        *,
        now_ms: int,
        with_versions: bool = False,
        reason: str | None = None,
        is_dry: bool = False,
    ) -> Corrected:
        return correct_period(
            self.database,
            account,
            parse_month(period),
            by=COMMAND_LINE,
            now_ms=now_ms,
            with_versions=with_versions,
            reason=reason,
            is_dry=is_dry,
        )

    def adjust(self, tenant: str, amount: str, reason: str, *, now_ms: int) -> None:
        with self.database.writing() as session:
            adjust(session, tenant, parse_amount(amount), reason=reason, by=COMMAND_LINE, now_ms=now_ms)

    def verify(self, period: str = "2026-10") -> Verified:
        with self.database.reading() as session:
            return verify_period(session, parse_month(period))


@pytest.fixture
def ledger(database: Database) -> Ledger:
    made = Ledger(database)
    made.account("acme", zone="Europe/Berlin")
    made.account("platform", "platform", zone="Europe/Berlin")
    made.cluster("c")
    made.cluster("d")
    return made


@pytest.fixture
def october(
    ledger: Ledger,
    at: Callable[..., int],
    allocation: Callable[..., AllocationFact],
    presence: Callable[..., PresenceFact],
) -> Ledger:
    """Half a T4 from 09:00 to 12:00 UTC on 5 October 2026, at 3.00 EUR, rated."""
    ledger.price("3.00")
    start, end = at("09:00", 5), at("12:00", 5)
    held = allocation(
        core_percent=50,
        bound_at_ms=start,
        started_at_ms=start,
        confirmed_at_ms=end,
        ended_at_ms=end,
        end_kind="observed",
    )
    ledger.send([presence(start, end), held], now_ms=end)
    ledger.rate(end)
    return ledger
