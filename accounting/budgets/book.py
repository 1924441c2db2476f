"""Budgets in the store: by validity, never edited, in the currency of the tenant's account."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import msgspec
from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from accounting.access.audit import record
from accounting.access.viewer import Viewer, only_visible
from accounting.errors import InvalidError
from accounting.ledger.calendar import Month, at_text, month_bounds_ms
from accounting.ledger.rounding import minor_digits, plain
from accounting.numbers import plain_decimal
from accounting.prices.versioning import Recording, Validity, make_room
from accounting.store.models import BillingAccount, Budget, Tenant
from accounting.store.versions import is_live

DEFAULT_THRESHOLDS = (50, 80, 100)
_MOST_PERCENT = 1_000
_MOST_THRESHOLDS = 20
_LARGEST = Decimal(10) ** 15


@dataclass(frozen=True, slots=True)
class Wish:
    """What a budget is to be.

    Attributes:
        amount: For each month, in the account's currency; 0 takes the budget away.
        first: The first month that it holds for.
        last: The last one; None: until further notice.
        percents: Thresholds, whole per cents of the amount.
    """

    amount: Decimal
    first: Month
    last: Month | None = None
    percents: Sequence[int] = DEFAULT_THRESHOLDS


def parse_budget(text: str) -> Decimal:
    """Read an amount of money, exactly.

    Raises:
        InvalidError: It is no number, below 0, or absurd.
    """
    try:
        amount = plain_decimal(text)
    except InvalidOperation:
        raise InvalidError(f'budget "{text}" is no amount; write it like 5000 or 5000.50') from None
    if not 0 <= amount < _LARGEST:
        raise InvalidError(f'budget "{text}" is not between 0 and {_LARGEST:f}')
    return amount


def set_budget(session: Session, tenant: Tenant, wish: Wish, recording: Recording) -> Budget:
    """Record a budget for a tenant and all below it; over the same months it supersedes, with a reason.

    One that begins within an open-ended one ends it there.

    Raises:
        InvalidError: A showback account, a threshold or amount that cannot be, or no reason to supersede.
        ConflictError: It overlaps a live one over other months.
    """
    account = session.get_one(BillingAccount, tenant.account)
    if account.currency is None:
        raise InvalidError(
            f'account "{account.code}" is of kind showback, without a currency: nothing can be spent there'
        )
    percents = _thresholds(wish.percents)
    exponent = wish.amount.as_tuple().exponent
    if isinstance(exponent, int) and -exponent > minor_digits(account.currency):
        raise InvalidError(f"budget {plain(wish.amount)} is finer than {account.currency} has digits")
    last = wish.last
    validity = Validity(
        month_bounds_ms(wish.first, account.time_zone)[0],
        None if last is None else month_bounds_ms(last, account.time_zone)[1],
    )
    validity.require("a budget")

    def described(row: Budget) -> str:
        when = Validity(row.valid_from_ms, row.valid_to_ms).text()
        return f'tenant "{tenant.path}" has a budget of {plain(row.amount)} {row.currency} {when}'

    same = (Budget.tenant_id == tenant.id,)
    room = make_room(session, Budget, same, validity, recording, described=described)
    row = Budget(
        tenant_id=tenant.id,
        amount=wish.amount,
        currency=account.currency,
        thresholds=msgspec.json.encode(percents).decode(),
        valid_from_ms=validity.from_ms,
        valid_to_ms=validity.to_ms,
        recorded_at_ms=recording.now_ms,
        recorded_by=recording.by.name,
        supersedes_id=room.supersedes_id,
        reason=recording.reason,
    )
    session.add(row)
    session.flush()
    budget_thresholds = " ".join(map(str, percents))
    after = {"amount": plain(wish.amount), "from": at_text(validity.from_ms), "thresholds": budget_thresholds}
    record(
        session, at_ms=recording.now_ms, by=recording.by, action="budget set", what=tenant.path, after=after
    )
    return row


def thresholds_of(budget: Budget) -> list[int]:
    """A budget's thresholds, whole per cents, ascending."""
    return msgspec.json.decode(budget.thresholds, type=list[int])


def budgets_at(session: Session, viewer: Viewer, at_ms: int) -> list[tuple[Budget, Tenant]]:
    """The budgets that hold at an instant, by path; only those the viewer may see, none of amount 0."""
    query = (
        select(Budget, Tenant)
        .join(Tenant, Tenant.id == Budget.tenant_id)
        .where(
            is_live(Budget, None),
            Budget.valid_from_ms <= at_ms,
            or_(Budget.valid_to_ms.is_(None), Budget.valid_to_ms > at_ms),
        )
        .order_by(Tenant.path)
    )
    rows = session.execute(only_visible(query, viewer))
    return [(budget, tenant) for budget, tenant in rows if budget.amount]


def list_budgets(session: Session, viewer: Viewer) -> list[tuple[Budget, str]]:
    """Every version with its tenant's path, in the order of recording; only those the viewer may see."""
    query = select(Budget, Tenant.path).join(Tenant, Tenant.id == Budget.tenant_id).order_by(Budget.id)
    return [(budget, path) for budget, path in session.execute(only_visible(query, viewer))]


def _thresholds(percents: Sequence[int]) -> list[int]:
    found = sorted(set(percents))
    if not found or len(found) > _MOST_THRESHOLDS or found[0] < 1 or found[-1] > _MOST_PERCENT:
        given = ", ".join(map(str, percents))
        raise InvalidError(
            f"thresholds ({given}): 1 to {_MOST_THRESHOLDS} whole per cents from 1 to {_MOST_PERCENT}"
        )
    return found
