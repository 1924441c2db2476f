"""Preflights, closed periods, corrections, numbered documents and the audit log, as JSON documents."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer
from accounting.errors import NotFoundError
from accounting.ledger.calendar import Month, at_text
from accounting.ledger.rounding import to_currency
from accounting.periods.close import Closed
from accounting.periods.correct import Corrected
from accounting.periods.issuing import list_issued, number_text
from accounting.periods.months import named
from accounting.periods.preflight import Preflight
from accounting.reports.documents import Document, card_coverage_document, money, shown
from accounting.reports.paging import EVERYTHING, Asked, page_of
from accounting.store.models import (
    AuditLog,
    BillingAccount,
    BillingPeriod,
    IssuedStatement,
    LedgerLine,
    Tenant,
)
from accounting.tenants.tree import account_root


def preflight_document(found: Preflight) -> Document:
    """Whether a period could be closed now, and all that keeps it from that."""
    return {
        "account": found.account,
        "period": found.period,
        "state": found.state,
        "clear": found.is_clear,
        "lines": found.lines,
        "coverage": card_coverage_document(found.coverage),
        "min_coverage": money(found.min_coverage),
        "blockers": [
            {
                "check": one.check,
                "detail": one.detail,
                "way_out": one.way_out,
                "can_override": one.can_override,
            }
            for one in found.blockers
        ],
    }


def closed_document(closed: Closed) -> Document:
    """A closed period."""
    return {
        "account": closed.account,
        "period": closed.period,
        "state": "closed",
        "statement": closed.number,
        "currency": closed.currency,
        "total": shown(closed.total),
        "sha256": closed.sha256,
        "ingest_watermark": closed.ingest_watermark,
        "closed_at": at_text(closed.closed_at_ms),
        "closed_by": closed.closed_by,
        "was_closed": closed.was_closed,
    }


def corrected_document(corrected: Corrected) -> Document:
    """What a correction posted, or would post."""
    return {
        "account": corrected.account,
        "period": corrected.period,
        "correction": corrected.revision or None,
        "into": corrected.into,
        "currency": corrected.currency,
        "amount": money(corrected.amount),
        "written": corrected.is_written,
        "lines": [
            {
                "tenant": one.tenant,
                "day": one.day,
                "kind": one.kind,
                "sku": one.sku,
                "resource_key": one.resource_key,
                "quantity": one.quantity,
                "amount": money(one.amount),
                "reason": one.reason,
            }
            for one in corrected.deltas
        ],
    }


def adjustment_document(session: Session, line: LedgerLine) -> Document:
    """A manual adjustment and the month that it went into."""
    account = session.get_one(BillingAccount, line.account)
    return {
        "line": line.id,
        "account": line.account,
        "tenant": session.get_one(Tenant, line.tenant_id).path,
        "period": named(session.get_one(BillingPeriod, line.period_id), account),
        "amount": money(line.amount),
        "currency": line.currency,
        "reason": line.reason,
    }


def voided_document(session: Session, note: IssuedStatement, again: IssuedStatement | None) -> Document:
    """The credit note of a statement, and what was issued in its place."""
    return {
        "credit_note": issued_document(session, note),
        "reissued": None if again is None else issued_document(session, again),
    }


def issued_document(session: Session, issued: IssuedStatement) -> Document:
    """A numbered document, without what it says."""
    account = session.get_one(BillingAccount, issued.account)
    corrects = None if issued.corrects_id is None else session.get(IssuedStatement, issued.corrects_id)
    note = session.scalar(select(IssuedStatement).where(IssuedStatement.corrects_id == issued.id))
    total = None
    if issued.total is not None and issued.currency is not None:
        total = to_currency(issued.total, issued.currency)
    return {
        "number": number_text(issued),
        "kind": issued.kind,
        "state": "issued" if note is None else "voided",
        "account": issued.account,
        "period": named(session.get_one(BillingPeriod, issued.period_id), account),
        "currency": issued.currency,
        "total": shown(total),
        "issued_at": at_text(issued.issued_at_ms),
        "issued_by": issued.issued_by,
        "sha256": issued.sha256,
        "voids": None if corrects is None else number_text(corrects),
        "voided_by": None if note is None else number_text(note),
        "reason": issued.reason,
    }


def issued_list_document(
    session: Session,
    viewer: Viewer,
    *,
    account: str | None = None,
    month: Month | None = None,
    asked: Asked = EVERYTHING,
) -> Document:
    """The numbered documents of the accounts that a viewer sees as a whole.

    Raises:
        NotFoundError: No such account, or none whose whole the viewer may see.
    """
    accounts = [
        one
        for one in session.scalars(select(BillingAccount).order_by(BillingAccount.code))
        if (viewer.sees_everything or viewer.tenant_path == account_root(one.code))
        and account in {None, one.code}
    ]
    if account is not None and not accounts:
        raise NotFoundError(f'no account "{account}"; list them with: slicemeter accounting account list')
    rows = sorted(
        (
            issued_document(session, issued)
            for issued in list_issued(session, accounts=[one.code for one in accounts])
        ),
        key=lambda row: str(row["number"]),
    )
    if month is not None:
        rows = [row for row in rows if row["period"] == str(month)]
    page = page_of(rows, lambda row: (str(row["number"]),), asked)
    states: Document = {
        state: sum(1 for row in rows if row["state"] == state) for state in ("issued", "voided")
    }
    return {
        "rows": page.rows,
        "next": page.next,
        "totals": {"statements": len(rows)},
        "reconciliation": states,
    }


def audit_document(session: Session, *, limit: int, before_seq: int | None = None) -> Document:
    """The newest entries of the audit log, newest first."""
    statement = select(AuditLog).order_by(AuditLog.seq.desc()).limit(limit)
    if before_seq is not None:
        statement = statement.where(AuditLog.seq < before_seq)
    return {
        "rows": [
            {
                "seq": row.seq,
                "at": at_text(row.at_ms),
                "actor": row.actor,
                "action": row.action,
                "object": row.object,
                "after": row.after,
            }
            for row in session.scalars(statement)
        ]
    }
