"""Corrections: what later facts, or versions that somebody asked for, change about a sealed period.

Invariant: nothing sealed is touched. What is missing is posted into the open period as lines that name
what they correct; sealed lines and all corrections together are what the facts give, so a second run
finds nothing to write. Source: `reference/ledger.md §9`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlalchemy import insert
from sqlalchemy.orm import Session

from accounting.access.audit import record, require_reason
from accounting.access.viewer import Viewer
from accounting.errors import ConflictError
from accounting.ledger.calendar import Month, day_bounds_ms, local_date
from accounting.ledger.rounding import exact_sum
from accounting.periods.hashing import broken_seal
from accounting.periods.months import CLOSED, Periods, find_account, named, require_period
from accounting.periods.recompute import (
    Difference,
    Recomputation,
    known_to,
    last_correction,
    unrated_models,
)
from accounting.progress import Progress, unseen
from accounting.store.database import Database
from accounting.store.models import (
    BillingAccount,
    BillingPeriod,
    Correction,
    IngestCounter,
    LedgerLine,
    PriceVersion,
    TenantMove,
    TenantRule,
)
from accounting.store.versions import Known
from accounting.tenants.tree import TenantTree

KIND = "correction"


@dataclass(frozen=True, slots=True)
class Delta:
    """One line of a correction."""

    tenant: str
    day: str
    kind: str
    sku: str
    resource_key: str
    quantity: int
    amount: Decimal | None
    reason: str


@dataclass(frozen=True, slots=True)
class Corrected:
    """What a correction found."""

    account: str
    period: str
    revision: int
    """The n-th correction of the period that wrote something; 0: this one wrote nothing."""
    into: str | None
    """The open period that its lines went to."""
    currency: str | None
    amount: Decimal
    deltas: Sequence[Delta]
    is_written: bool


@dataclass(frozen=True, slots=True)
class _Found:
    """What one reading transaction found."""

    differences: Sequence[Difference]
    reasons: Sequence[str]
    revision: int
    as_of_ms: int
    ingest_watermark: int
    known: Known


def correct_period(
    database: Database,
    account_code: str,
    month: Month,
    *,
    by: Viewer,
    now_ms: int,
    with_versions: bool = False,
    reason: str | None = None,
    is_dry: bool = False,
    progress: Progress = unseen,
) -> Corrected:
    """Post what a closed month lacks into the open one.

    Args:
        database: The books.
        account_code: Whose month.
        month: Which.
        by: Who corrects it.
        now_ms: The clock; lines are posted on its day where that lies in the open period.
        with_versions: Take up prices, policies and discounts recorded since the seal; else only facts.
        reason: Goes onto every line, beside what the versions say.
        is_dry: Only tell what would be posted.
        progress: Who wants to know how far it is.

    Raises:
        NotFoundError: No such account or period.
        InvalidError: A reason that says nothing.
        ConflictError: The period is not closed, its seal is broken, a needed price is missing, or another
            correction was posted meanwhile.
    """
    if reason is not None:
        require_reason(reason, "a correction")
    with database.reading() as session:
        account = find_account(session, account_code)
        currency = account.currency
        period = require_period(session, account, month)
        found = _find(
            session,
            account,
            period,
            month,
            with_versions=with_versions,
            reason=reason,
            progress=progress,
        )
        deltas = [
            _delta(one, why, account) for one, why in zip(found.differences, found.reasons, strict=True)
        ]
    into = None
    if deltas and not is_dry:
        with database.writing() as session:
            into = _post(session, account_code, month, found, by=by, now_ms=now_ms)
    return Corrected(
        account=account_code,
        period=str(month),
        revision=found.revision if deltas else 0,
        into=into,
        currency=currency,
        amount=exact_sum(one.amount for one in found.differences),
        deltas=deltas,
        is_written=into is not None,
    )


def _find(
    session: Session,
    account: BillingAccount,
    period: BillingPeriod,
    month: Month,
    *,
    with_versions: bool,
    reason: str | None,
    progress: Progress,
) -> _Found:
    if period.state != CLOSED:
        raise ConflictError(
            f"{month} of {account.code} is {period.state}: only a closed period is corrected, an open one is "
            "rated again"
        )
    broken = broken_seal(session, period, progress=progress)
    if broken is not None:
        raise ConflictError(
            f"{month} of {account.code}: {broken}; what was tampered with is not corrected but restored from "
            "a backup"
        )
    last = last_correction(session, period)
    known = Known.now(session) if with_versions else known_to(period, last)
    recomputation = Recomputation(session, account, period, known, progress)
    differences = list(recomputation.differences())
    models = unrated_models(differences)
    if models:
        raise ConflictError(
            f"{month} of {account.code}: no price known to the seal for {', '.join(models)}; set one and "
            "correct with --with-prices"
        )
    counter = session.get(IngestCounter, 1)
    return _Found(
        differences=differences,
        reasons=[
            _reason(session, one, reason, has_new_owners=_has_new_owners(known_to(period, last), known))
            for one in differences
        ],
        revision=1 if last is None else last.revision + 1,
        as_of_ms=recomputation.as_of_ms,
        ingest_watermark=0 if counter is None else counter.last_seq,
        known=known,
    )


def _has_new_owners(before: Known, after: Known) -> bool:
    """Whether tenant rules or moves are taken up that the seal did not know."""
    tables = (TenantRule.__tablename__, TenantMove.__tablename__)
    return any(before.newest.get(table, 0) != after.newest.get(table, 0) for table in tables)


def _reason(session: Session, one: Difference, given: str | None, *, has_new_owners: bool) -> str:
    """Why a line is posted: what was asked, and the versions that took the place of others."""
    parts = [] if given is None else [given]
    is_all_or_nothing = not one.stands.own_quantity or not one.again.own_quantity
    if has_new_owners and is_all_or_nothing:
        parts.append("tenant rules or moves recorded after the close")
    gone = sorted(one.stands.price_versions - one.again.price_versions)
    come = sorted(one.again.price_versions - one.stands.price_versions)
    for version_id in come if gone else ():
        version = session.get_one(PriceVersion, version_id)
        replaced = " and ".join(str(old) for old in gone)
        why = f": {version.reason}" if version.reason else ""
        parts.append(f"price version {version_id} instead of {replaced}{why}")
    return "; ".join(parts) or "facts that came after the close"


def _delta(one: Difference, reason: str, account: BillingAccount) -> Delta:
    return Delta(
        tenant=one.key.tenant,
        day=local_date(one.key.day_ms, account.time_zone).isoformat(),
        kind=one.key.kind,
        sku=one.key.sku,
        resource_key=one.key.resource_key,
        quantity=one.again.quantity - one.stands.quantity,
        amount=None if account.currency is None else one.amount,
        reason=reason,
    )


def _post(
    session: Session, account_code: str, month: Month, found: _Found, *, by: Viewer, now_ms: int
) -> str:
    """Write the deltas; answers into which period."""
    account = find_account(session, account_code)
    period = require_period(session, account, month)
    last = last_correction(session, period)
    if (1 if last is None else last.revision + 1) != found.revision:
        raise ConflictError(f"{month} of {account.code} was corrected meanwhile; run it again")
    into = Periods(session).open_after(account.code, account.time_zone, period.ends_at_ms)
    posted_ms = min(max(now_ms, into.starts_at_ms), into.ends_at_ms - 1)
    day_ms = day_bounds_ms(posted_ms, account.time_zone)[0]
    tenants = TenantTree(session, now_ms=now_ms)
    rows = [
        _row(session, one, tenants, account, period)
        | {"period_id": into.id, "day_ms": day_ms, "revision": found.revision, "reason": reason}
        for one, reason in zip(found.differences, found.reasons, strict=True)
    ]
    session.execute(insert(LedgerLine), rows)
    reasons = "; ".join(sorted(set(found.reasons)))
    session.add(
        Correction(
            account=account.code,
            period_id=period.id,
            revision=found.revision,
            into_period_id=into.id,
            as_of_ms=found.as_of_ms,
            ingest_watermark=found.ingest_watermark,
            versions=found.known.text,
            reason=reasons,
            corrected_at_ms=now_ms,
            corrected_by=by.name,
        )
    )
    after: dict[str, str | int | bool | None] = {
        "revision": found.revision,
        "into": named(into, account),
        "lines": len(rows),
        "amount": format(exact_sum(one.amount for one in found.differences), "f"),
        "reason": reasons,
    }
    record(session, at_ms=now_ms, by=by, action="period correct", what=f"{account_code} {month}", after=after)
    return named(into, account)


def _row(
    session: Session, one: Difference, tenants: TenantTree, account: BillingAccount, period: BillingPeriod
) -> dict[str, Any]:
    versions = one.again.price_versions or one.stands.price_versions
    version_id = next(iter(versions)) if len(versions) == 1 else None
    is_one_price = version_id is not None and one.stands.price_versions <= versions
    price = None if version_id is None else session.get_one(PriceVersion, version_id).unit_price
    return {
        "account": account.code,
        "kind": KIND,
        "sku": one.key.sku,
        "resource_key": one.key.resource_key,
        "cluster": one.card.cluster,
        "node_uid": one.card.node_uid,
        "device_uuid": one.card.device_uuid,
        "own_quantity": one.again.own_quantity - one.stands.own_quantity,
        "quantity": one.again.quantity - one.stands.quantity,
        "held_not_running_quantity": 0,
        "degraded_quantity": 0,
        "currency": account.currency,
        "price_version_id": version_id,
        "policy_version_id": None,
        "unit_price": price if is_one_price else None,
        "discount_version_id": None,
        "discount_percent": None,
        "amount": None if account.currency is None else one.amount,
        "corrects_period_id": period.id,
        "corrects_kind": one.key.kind,
        "corrects_day_ms": one.key.day_ms,
        "tenant_id": tenants.at(one.key.tenant, account.code),
        "charge_from_ms": one.described.charge_from_ms,
        "charge_to_ms": one.described.charge_to_ms,
        "node": one.described.node,
        "model": one.described.model,
        "namespace": one.described.namespace,
        "pod": one.described.pod,
        "container": one.described.container,
        "unit": one.described.unit,
    }
