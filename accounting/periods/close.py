"""Closing a period: freeze it, seal what stands, issue its statement.

Three steps, so that nobody waits long for the write lock: *freeze* (rate what is due, look for blockers,
hand idle capacity on, keep what the lines were rated with; from here on triggers keep the lines), *seal*
(one reading pass over the lines), *issue* (number, documents, hash, `closed`). Invariant: a crash between
two steps leaves a frozen period; whoever closes it again goes on from there, and comes to one statement.
Source: `reference/ledger.md §9`.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.access.audit import record, require_reason
from accounting.access.viewer import Viewer
from accounting.ledger.calendar import Month
from accounting.periods.batch import rate_cards
from accounting.periods.distribution import post_distribution
from accounting.periods.hashing import first_statement
from accounting.periods.issuing import issue, number_text
from accounting.periods.months import CLOSED, CLOSING, OPEN, find_account, require_period
from accounting.periods.preflight import MIN_COVERAGE, MS_PER_DAY, Preflight, preflight
from accounting.periods.rate import rate
from accounting.periods.replacing import RATED
from accounting.periods.sealing import Seal, make_seal
from accounting.progress import Progress, unseen
from accounting.store.database import Database
from accounting.store.models import (
    BillingAccount,
    BillingPeriod,
    IngestCounter,
    IssuedStatement,
    RatingMark,
    RatingState,
    SealedUse,
)
from accounting.store.versions import Known
from accounting.tenants.rules import clusters_of
from contract.ids import ClusterCode, DeviceKey, DeviceUuid, NodeUid


@dataclass(frozen=True, slots=True)
class Closed:
    """A period that is closed."""

    account: str
    period: str
    number: str
    currency: str | None
    total: Decimal | None
    sha256: str
    ingest_watermark: int
    closed_at_ms: int
    closed_by: str
    was_closed: bool
    """Whether somebody closed it before."""


def close_period(
    database: Database,
    account_code: str,
    month: Month,
    *,
    by: Viewer,
    now_ms: int,
    grace_ms: int,
    min_coverage: Decimal = MIN_COVERAGE,
    override_reason: str | None = None,
    jobs: int = 1,
    progress: Progress = unseen,
) -> Closed | Preflight:
    """Close a month of an account, or say what keeps it open.

    Args:
        database: The books.
        account_code: Whose month.
        month: Which.
        by: Who closes it.
        now_ms: The clock.
        grace_ms: What the final rating is done with, as given to the service.
        min_coverage: Of the devices' presence.
        override_reason: Why to pass over what may be passed over; None: do not.
        jobs: As in `rate`.
        progress: Who wants to know how far it is.

    Raises:
        NotFoundError: No such account or period.
        InvalidError: An override without a reason.
    """
    if override_reason is not None:
        require_reason(override_reason, "an override")
    with database.reading() as session:
        account = find_account(session, account_code)
        state = require_period(session, account, month).state
    if state == OPEN:
        rate(database, as_of_ms=now_ms, grace_ms=grace_ms, jobs=jobs, progress=progress)
        with database.writing() as session:
            blocked = _freeze(
                session,
                account_code,
                month,
                by=by,
                now_ms=now_ms,
                min_coverage=min_coverage,
                override_reason=override_reason,
            )
        if blocked is not None:
            return blocked
    with database.reading() as session:
        account = find_account(session, account_code)
        period = require_period(session, account, month)
        if period.state == CLOSED:
            return _closed(session, account, period, month, was_closed=True)
        seal = make_seal(session, account, period, progress=progress)
    with database.writing() as session:
        return _issue(session, account_code, month, seal, by=by, now_ms=now_ms)


def _freeze(
    session: Session,
    account_code: str,
    month: Month,
    *,
    by: Viewer,
    now_ms: int,
    min_coverage: Decimal,
    override_reason: str | None,
) -> Preflight | None:
    """Step 1; answers what blocks, if anything does."""
    account = find_account(session, account_code)
    period = require_period(session, account, month)
    if period.state != OPEN:
        return None
    state = session.get_one(RatingState, 1)
    for key in _due_cards(session, account, period):
        rate_cards(session, [key])
    checked = preflight(session, account, month, now_ms=now_ms, min_coverage=min_coverage)
    if checked.blocks(overridden=override_reason is not None):
        return checked
    post_distribution(session, account_code, month)
    counter = session.get(IngestCounter, 1)
    period.state = CLOSING
    period.as_of_ms = state.rated_as_of_ms
    period.grace_ms = state.grace_ms
    period.ingest_watermark = 0 if counter is None else counter.last_seq
    period.versions = Known.now(session).text
    passed_over = [one.check for one in checked.blockers]
    period.override_reason = override_reason if passed_over else None
    after = {
        "ingest_watermark": period.ingest_watermark,
        "passed_over": ", ".join(passed_over) or None,
        "reason": period.override_reason,
    }
    record(session, at_ms=now_ms, by=by, action="period freeze", what=f"{account_code} {month}", after=after)
    return None


def _due_cards(session: Session, account: BillingAccount, period: BillingPeriod) -> list[DeviceKey]:
    """Cards that facts touched since the rating a moment ago."""
    rows = session.execute(
        select(RatingMark.cluster, RatingMark.node_uid, RatingMark.device_uuid)
        .where(
            RatingMark.cluster.in_(clusters_of(session, account.code)),
            RatingMark.ingest_seq != RATED,
            RatingMark.day_ms > period.starts_at_ms - MS_PER_DAY,
            RatingMark.day_ms < period.ends_at_ms,
        )
        .distinct()
    )
    return sorted(
        DeviceKey(ClusterCode(cluster), NodeUid(node_uid), DeviceUuid(device_uuid))
        for cluster, node_uid, device_uuid in rows
    )


def _issue(
    session: Session, account_code: str, month: Month, seal: Seal, *, by: Viewer, now_ms: int
) -> Closed:
    """Step 3, once: whoever comes second finds it done."""
    account = find_account(session, account_code)
    period = require_period(session, account, month)
    if period.state == CLOSED:
        return _closed(session, account, period, month, was_closed=True)
    issued = issue(session, account, period, seal.statement, seal.document.total, by=by, now_ms=now_ms)
    session.add_all(
        SealedUse(period_id=period.id, tenant_id=tenant_id, sha256=blob.sha256, document=blob.compressed)
        for tenant_id, blob in seal.measured.items()
    )
    period.state = CLOSED
    period.sealed_columns = seal.columns
    period.sha256 = seal.sha256
    period.closed_at_ms = now_ms
    period.closed_by = by.name
    after: dict[str, str | int | bool | None] = {
        "statement": number_text(issued),
        "lines": seal.document.lines,
        "sha256": seal.sha256,
    }
    record(session, at_ms=now_ms, by=by, action="period close", what=f"{account_code} {month}", after=after)
    session.flush()
    return _closed(session, account, period, month, was_closed=False)


def _closed(
    session: Session, account: BillingAccount, period: BillingPeriod, month: Month, *, was_closed: bool
) -> Closed:
    issued = first_statement(session, period.id)
    assert isinstance(issued, IssuedStatement)
    return Closed(
        account=account.code,
        period=str(month),
        number=number_text(issued),
        currency=issued.currency,
        total=issued.total,
        sha256=period.sha256 or "",
        ingest_watermark=period.ingest_watermark or 0,
        closed_at_ms=period.closed_at_ms or 0,
        closed_by=period.closed_by or "",
        was_closed=was_closed,
    )
