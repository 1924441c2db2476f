"""The books of the golden month: three clusters, two accounts that pay and two that bear what is idle.

Clusters alpha and beta are billed to `acme` in euros, gamma to `lab`, which has no currency: its statements
are in card-hours. The A100's price rises on 16 October at noon in Berlin.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from sqlalchemy.orm import Session

from accounting.access.tokens import create_token
from accounting.access.viewer import COMMAND_LINE
from accounting.prices.book import set_price
from accounting.store.database import Database
from accounting.tenants.registry import add_account, add_cluster
from lab.golden.world import at

ZONE = "Europe/Berlin"
CURRENCY = "EUR"
PRICES_BEGIN_MS = at("2026-01-01T00:00Z")
A100_RISES_MS = at("2026-10-16T10:00Z")


@dataclass(frozen=True, slots=True)
class GoldenPrice:
    """A price per card-hour."""

    sku: str
    model: str
    unit_price: Decimal
    from_ms: int = PRICES_BEGIN_MS
    to_ms: int | None = None


PRICES = (
    GoldenPrice("gpu-slice", "NVIDIA A100-SXM4-80GB", Decimal("2.40"), to_ms=A100_RISES_MS),
    GoldenPrice("gpu-slice", "NVIDIA A100-SXM4-80GB", Decimal("3.00"), A100_RISES_MS),
    GoldenPrice("gpu-slice", "NVIDIA L4", Decimal("0.80")),
    GoldenPrice("gpu-idle", "NVIDIA L4", Decimal("0.20")),
)

_ACCOUNTS: tuple[tuple[str, Literal["tenant", "platform"], str | None], ...] = (
    ("acme", "tenant", CURRENCY),
    ("acme-platform", "platform", CURRENCY),
    ("lab", "tenant", None),
    ("lab-platform", "platform", None),
)
_CLUSTERS = {"alpha": "acme", "beta": "acme", "gamma": "lab"}


def open_books(database: Database, *, now_ms: int) -> dict[str, str]:
    """Register accounts, clusters and prices in an empty database.

    Returns:
        A reporter's token for each cluster.
    """
    with database.writing() as session:
        for code, kind, currency in _ACCOUNTS:
            add_account(
                session,
                code,
                kind=kind,
                currency=currency,
                time_zone=ZONE,
                grace_days=3,
                by=COMMAND_LINE,
                now_ms=now_ms,
            )
        for price in PRICES:
            set_price(
                session,
                sku=price.sku,
                model=price.model,
                currency=CURRENCY,
                unit_price=price.unit_price,
                valid_from_ms=price.from_ms,
                valid_to_ms=price.to_ms,
                by=COMMAND_LINE,
                now_ms=now_ms,
            )
        return {code: _register(session, code, account, now_ms) for code, account in _CLUSTERS.items()}


def _register(session: Session, code: str, account: str, now_ms: int) -> str:
    platform = f"{account}-platform"
    add_cluster(session, code, account=account, platform_account=platform, by=COMMAND_LINE, now_ms=now_ms)
    return create_token(session, role="reporter", by=COMMAND_LINE, now_ms=now_ms, cluster=code)
