"""What a slice would cost at most: its own share of the card for some hours, at the prices of an instant."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, InvalidOperation

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer
from accounting.errors import InvalidError, NotFoundError
from accounting.ledger.calendar import at_text
from accounting.ledger.pricing import SKU_SLICE, plain_model, resolve_discount, resolve_sku
from accounting.ledger.quoting import share_bound_ppm
from accounting.ledger.rounding import EXACT, amount_of, card_hours, minor_digits
from accounting.ledger.shares import POLICIES, Grant, Policy, mig_slices
from accounting.numbers import plain_decimal
from accounting.periods.months import find_account
from accounting.prices.book import DEFAULT_BOOK, live_prices
from accounting.prices.discounts import live_discounts
from accounting.prices.policies import live_policies
from accounting.reports.documents import Document, money, shown
from accounting.store.models import BillingAccount, PresenceReport, Tenant
from accounting.store.walls import CARDS, seeing
from accounting.tenants.tree import find_tenant
from contract.units import MS_PER_HOUR, PPM

MAX_HOURS = Decimal(100_000)
MAX_MIB = 2**31
_POLICIES: dict[str, Policy] = {policy: policy for policy in POLICIES}


@dataclass(frozen=True, slots=True)
class Wanted:
    """The slice in question."""

    model: str
    mem_mib: int
    core_percent: int
    duration_ms: int
    mig: str | None = None
    card_mib: int | None = None
    """The card's registered memory; None: the smallest card that fits, of those ever reported."""


@dataclass(frozen=True, slots=True)
class Quote:
    """An upper bound of card time, and of money where the account has a currency and the model a price."""

    wanted: Wanted
    at_ms: int
    account: str
    tenant: str | None
    registered_mib: int
    policy: str
    share_ppm: int
    quantity_ppm_ms: int
    currency: str | None
    unit_price: Decimal | None
    price_version: int | None
    discount_percent: Decimal | None
    amount: Decimal | None
    """Rounded up to the currency's smallest unit."""


def parse_hours(text: str) -> int:
    """Read a number of hours, in whole milliseconds, rounded up.

    Raises:
        InvalidError: It is no number above 0 and up to `MAX_HOURS`.
    """
    try:
        hours = plain_decimal(text)
    except InvalidOperation:
        raise InvalidError(f'"{text}" is no number of hours; write it like 12 or 0.5') from None
    if not hours.is_finite() or not 0 < hours <= MAX_HOURS:
        raise InvalidError(f'"{text}" hours: above 0 and up to {MAX_HOURS}')
    return int((hours * MS_PER_HOUR).to_integral_value(ROUND_CEILING))


def make_quote(
    session: Session,
    viewer: Viewer,
    wanted: Wanted,
    *,
    at_ms: int,
    tenant_name: str | None = None,
    account_code: str | None = None,
) -> Quote:
    """Quote a slice.

    Energy is not in it: what is drawn at work depends on the work.

    Args:
        session: A reading transaction.
        viewer: Who asks; a tenant that names nobody asks for itself.
        wanted: The slice.
        at_ms: The instant whose prices and policy hold.
        tenant_name: Whose account and discount; a path, or a code that only one tenant has.
        account_code: Instead of a tenant, for whoever sees everything; may be left out where only one fits.

    Raises:
        InvalidError: Sizes that cannot be, a model of which no size is known, or no account to quote for.
        NotFoundError: No such tenant or account, or none that the viewer may see.
    """
    _require(wanted)
    tenant, account = _payer(session, viewer, tenant_name, account_code)
    model = plain_model(wanted.model)
    with seeing(session, CARDS):
        registered_mib = wanted.card_mib or _smallest(session, model, wanted.mem_mib)
        discounts = live_discounts(session)
    policy = _POLICIES[live_policies(session).value_at("share", at_ms)]
    grant = Grant(wanted.mem_mib, wanted.core_percent, mig_slices(wanted.mig))
    share_ppm = share_bound_ppm(grant, registered_mib, model, policy)
    quantity = share_ppm * wanted.duration_ms
    currency, price, discount = account.currency, None, None
    if currency is not None:
        price = resolve_sku(
            live_prices(session),
            book=DEFAULT_BOOK,
            sku=SKU_SLICE,
            model=model,
            currency=currency,
            at_ms=at_ms,
        )
    if tenant is not None:
        discount = resolve_discount(discounts, book=DEFAULT_BOOK, tenant_path=tenant.path, at_ms=at_ms)
    percent = None if discount is None else discount.percent
    amount = None if price is None else amount_of(quantity, price.unit_price, percent=percent)
    return Quote(
        wanted=wanted,
        at_ms=at_ms,
        account=account.code,
        tenant=None if tenant is None else tenant.path,
        registered_mib=registered_mib,
        policy=policy,
        share_ppm=share_ppm,
        quantity_ppm_ms=quantity,
        currency=currency,
        unit_price=None if price is None else price.unit_price,
        price_version=None if price is None else price.id,
        discount_percent=percent,
        amount=None if amount is None or currency is None else _rounded_up(amount, currency),
    )


def _rounded_up(amount: Decimal, currency: str) -> Decimal:
    step = Decimal(1).scaleb(-minor_digits(currency))
    return amount.quantize(step, rounding=ROUND_CEILING, context=EXACT)


def _require(wanted: Wanted) -> None:
    if not 0 <= wanted.mem_mib <= MAX_MIB or not 0 <= (wanted.card_mib or 1) <= MAX_MIB:
        raise InvalidError(f"memory of {wanted.mem_mib} MiB: from 0 to {MAX_MIB}")
    if not 0 <= wanted.core_percent <= 100:
        raise InvalidError(f"{wanted.core_percent} % of the cores: from 0 to 100")
    if wanted.mig is not None and not mig_slices(wanted.mig):
        raise InvalidError(f'MIG profile "{wanted.mig}" is unknown; write it like 1g.10gb')
    if wanted.card_mib is not None and wanted.mem_mib > wanted.card_mib > 0:
        raise InvalidError(f"{wanted.mem_mib} MiB of a card that has {wanted.card_mib} MiB")
    if not wanted.mem_mib and not wanted.core_percent and wanted.mig is None:
        raise InvalidError("a slice of nothing; name its memory, its cores or its MIG profile")


def _payer(
    session: Session, viewer: Viewer, tenant_name: str | None, account_code: str | None
) -> tuple[Tenant | None, BillingAccount]:
    name = tenant_name or viewer.tenant_path
    if name is not None:
        tenant = find_tenant(session, viewer, name)
        return tenant, find_account(session, tenant.account)
    if not viewer.sees_everything:
        raise NotFoundError("no tenant to quote for; name one")
    if account_code is not None:
        return None, find_account(session, account_code)
    accounts = session.scalars(select(BillingAccount).where(BillingAccount.kind == "tenant")).all()
    if len(accounts) != 1:
        codes = ", ".join(account.code for account in accounts) or "none yet"
        raise InvalidError(f"name a tenant or an account to quote for; accounts: {codes}")
    return None, accounts[0]


def _smallest(session: Session, model: str, mem_mib: int) -> int:
    """The registered memory of the smallest card of a model that fits: on a larger one a share is smaller."""
    sizes = session.execute(select(PresenceReport.model, PresenceReport.registered_mib).distinct())
    known = [mib for name, mib in sizes if plain_model(name) == model and mib > 0]
    if not known:
        raise InvalidError(
            f'no card of model "{model}" was reported; name one that was, or its memory in MiB (card_mib)'
        )
    fitting = [mib for mib in known if mib >= mem_mib]
    if not fitting:
        raise InvalidError(f'no card of model "{model}" has {mem_mib} MiB; the largest has {max(known)}')
    return min(fitting)


def quote_document(quote: Quote) -> Document:
    """A quote as JSON."""
    wanted = quote.wanted
    return {
        "at": at_text(quote.at_ms),
        "account": quote.account,
        "tenant": quote.tenant,
        "model": plain_model(wanted.model),
        "mem_mib": wanted.mem_mib,
        "core_percent": wanted.core_percent,
        "mig": wanted.mig,
        "registered_mib": quote.registered_mib,
        "policy": quote.policy,
        "share": money(Decimal(quote.share_ppm) / PPM),
        "duration_ms": wanted.duration_ms,
        "at_most_ppm_ms": quote.quantity_ppm_ms,
        "at_most_card_hours": str(card_hours(quote.quantity_ppm_ms)),
        "currency": quote.currency,
        "unit_price": money(quote.unit_price),
        "price_version": quote.price_version,
        "discount_percent": money(quote.discount_percent),
        "at_most": shown(quote.amount),
        "without": ["energy"],
    }
