"""The application in this process, spoken to by HTTP, with a clock that a test may set."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal

import httpx
import pytest
from fastapi import FastAPI

from accounting.access.tokens import create_token
from accounting.access.viewer import COMMAND_LINE
from accounting.facts.ingest import ingest
from accounting.facts.reading import Scope, read_lines
from accounting.ledger.calendar import parse_month
from accounting.periods.close import Closed, close_period
from accounting.periods.rate import rate
from accounting.prices.book import set_price
from accounting.settings import Settings
from accounting.store.database import Database
from accounting.tenants.registry import add_account, add_cluster
from accounting.web.app import create_service
from contract.facts import (
    CONTENT_TYPE,
    FACTS_PATH,
    HEADER_KUBE_SYSTEM_UID,
    HEADER_SENT_AT,
    HEADER_SOURCE,
    AllocationFact,
    Fact,
    PresenceFact,
    canonical_bytes,
)

NOW_MS = 1_790_812_800_000
"""2026-10-01T00:00Z."""

AFTER_GRACE = 1_793_836_800_000
"""2026-11-05T00:00Z."""


@dataclass
class Api:
    """A client of the application."""

    app: FastAPI
    database: Database
    now_ms: int = NOW_MS

    def request(
        self,
        method: str,
        path: str,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> httpx.Response:
        sent = dict(headers or {})
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://accounting") as client:
                return await client.request(method, path, headers=sent, content=content)

        return asyncio.run(send())

    def post_facts(
        self,
        lines: bytes,
        *,
        token: str | None,
        headers: Mapping[str, str | None] | None = None,
        compress: Callable[[bytes], bytes] = gzip.compress,
    ) -> httpx.Response:
        """Post a batch as an exporter does; a header of None is left out."""
        all_headers: dict[str, str | None] = {
            "Content-Type": CONTENT_TYPE,
            "Content-Encoding": "gzip",
            HEADER_SENT_AT: str(self.now_ms),
            HEADER_KUBE_SYSTEM_UID: "kube-system-of-a",
            HEADER_SOURCE: "role=node;node_uid=uid-1;node=node-1;epoch=e1;version=0.1.0",
        }
        all_headers |= headers or {}
        sent = {name: value for name, value in all_headers.items() if value is not None}
        return self.request("POST", FACTS_PATH, token=token, headers=sent, content=compress(lines))

    def token(self, role: str, **scope: str) -> str:
        with self.database.writing() as session:
            return create_token(session, role=role, by=COMMAND_LINE, now_ms=0, **scope)  # type: ignore[arg-type]


@pytest.fixture
def api(database: Database) -> Api:
    with database.writing() as session:
        for code, kind in (("acme", "tenant"), ("platform", "platform")):
            add_account(
                session, code, kind=kind, currency="EUR", time_zone="Europe/Berlin", grace_days=3,  # type: ignore[arg-type]
                by=COMMAND_LINE, now_ms=0,
            )  # fmt: skip
        for code in ("a", "b"):
            add_cluster(session, code, account="acme", platform_account="platform", by=COMMAND_LINE, now_ms=0)
    made = Api(app=FastAPI(), database=database)
    made.app = create_service(Settings(), database=database, clock=lambda: made.now_ms)
    return made


def sell_half_a_t4(
    api: Api,
    at: Callable[..., int],
    allocation: Callable[..., AllocationFact],
    presence: Callable[..., PresenceFact],
) -> None:
    """Half a T4 for three hours of 5 October at 3.00 EUR, held by `acme/team`; told, priced and rated."""
    start, end = at("09:00", 5), at("12:00", 5)
    held = allocation(
        cluster="a", core_percent=50, bound_at_ms=start, confirmed_at_ms=end, ended_at_ms=end,
        end_kind="observed",
    )  # fmt: skip
    facts: list[Fact] = [presence(start, end, cluster="a"), held]
    lines = read_lines(b"\n".join(map(canonical_bytes, facts)), Scope("a"), now_ms=end)
    with api.database.writing() as session:
        set_price(
            session, sku="gpu-slice", model="Tesla T4", currency="EUR", unit_price=Decimal(3),
            valid_from_ms=0, by=COMMAND_LINE, now_ms=0,
        )  # fmt: skip
        assert not ingest(session, lines, cluster="a", now_ms=end).rejected
    rate(api.database, as_of_ms=end, grace_ms=900_000)


@pytest.fixture
def closed(
    api: Api,
    at: Callable[..., int],
    allocation: Callable[..., AllocationFact],
    presence: Callable[..., PresenceFact],
) -> Api:
    """Half a T4 for three hours of 5 October at 3.00 EUR; acme is closed, the platform is not."""
    sell_half_a_t4(api, at, allocation, presence)
    month = parse_month("2026-10")
    done = close_period(api.database, "acme", month, by=COMMAND_LINE, now_ms=AFTER_GRACE, grace_ms=900_000)
    assert isinstance(done, Closed)
    api.now_ms = AFTER_GRACE
    return api
