"""GPU models as exporters report them: which have no price, and which a price names that nobody reported."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.ledger.pricing import EVERY_MODEL, SKU_SLICE, plain_model, resolve
from accounting.prices.book import DEFAULT_BOOK, live_prices
from accounting.store.models import BillingAccount, PresenceReport


def reported_models(session: Session) -> list[str]:
    """Every model of which a card was ever reported, without the vendor's prefix; sorted."""
    names = session.scalars(select(PresenceReport.model).distinct())
    return sorted({plain_model(name) for name in names} - {EVERY_MODEL})


def unpriced_models(session: Session, *, at_ms: int) -> list[tuple[str, str]]:
    """Reported models whose slices have no price at an instant, with the account currency that lacks it."""
    currencies = session.scalars(
        select(BillingAccount.currency).where(BillingAccount.currency.is_not(None)).distinct()
    )
    prices = live_prices(session)
    return [
        (model, currency)
        for currency in sorted(code for code in currencies if code is not None)
        for model in reported_models(session)
        if resolve(prices, book=DEFAULT_BOOK, sku=SKU_SLICE, model=model, currency=currency, at_ms=at_ms)
        is None
    ]
