"""Numbers and documents of an issuer: statements, and the credit notes that void them.

Invariant: the numbers of an issuer are 1, 2, 3 … without a hole, since a number is taken in the transaction
that stores its document; a number is never used again, and no document is ever changed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal

import msgspec
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from accounting.access.audit import record, require_reason
from accounting.access.viewer import Viewer
from accounting.errors import ConflictError, InvalidError, NotFoundError
from accounting.ledger.rounding import EXACT, to_currency
from accounting.periods.hashing import CREDIT_NOTE, STATEMENT, Blob
from accounting.store.models import BillingAccount, BillingPeriod, IssuedStatement, StatementNumber

_NUMBER = re.compile(r"(?P<issuer>.+)-(?P<number>\d{1,15})")


def number_text(issued: IssuedStatement) -> str:
    """A number as people write it: `SM-000001`."""
    return f"{issued.issuer}-{issued.number:06d}"


def issue(
    session: Session,
    account: BillingAccount,
    period: BillingPeriod,
    document: Blob,
    total: Decimal | None,
    *,
    by: Viewer,
    now_ms: int,
    revision: int = 0,
    voids: IssuedStatement | None = None,
    reason: str | None = None,
) -> IssuedStatement:
    """Store a document under the next number of its account's issuer.

    Args:
        session: The writing transaction that also does what the document is about.
        account: Whose.
        period: Of which period.
        document: What it says.
        total: In the account's currency; None in a showback account.
        by: Who issues it.
        now_ms: The clock.
        revision: How many statements of the period were voided before.
        voids: The statement that this document, a credit note, voids.
        reason: Why; of a credit note.
    """
    issued = IssuedStatement(
        issuer=account.issuer,
        number=_next_number(session, account.issuer),
        account=account.code,
        period_id=period.id,
        kind=STATEMENT if voids is None else CREDIT_NOTE,
        revision=revision,
        corrects_id=None if voids is None else voids.id,
        currency=account.currency,
        total=total,
        issued_at_ms=now_ms,
        issued_by=by.name,
        reason=reason,
        sha256=document.sha256,
        document=document.compressed,
    )
    session.add(issued)
    session.flush()
    return issued


def _next_number(session: Session, issuer: str) -> int:
    counter = session.get(StatementNumber, issuer, with_for_update=True)
    if counter is None:
        counter = StatementNumber(issuer=issuer, last_number=0)
        session.add(counter)
    counter.last_number += 1
    session.flush()
    return counter.last_number


def list_issued(
    session: Session, *, accounts: Sequence[str], period_ids: Sequence[int] | None = None
) -> Sequence[IssuedStatement]:
    """The documents of these accounts, by issuer and number."""
    statement = select(IssuedStatement).where(IssuedStatement.account.in_(accounts))
    if period_ids is not None:
        statement = statement.where(IssuedStatement.period_id.in_(period_ids))
    return session.scalars(statement.order_by(IssuedStatement.issuer, IssuedStatement.number)).all()


def find_issued(session: Session, number: str) -> IssuedStatement:
    """The document of a number.

    Raises:
        InvalidError: It is written as no number is.
        NotFoundError: No document has it.
    """
    match = _NUMBER.fullmatch(number)
    if match is None:
        raise InvalidError(f'"{number}" is no number of a statement; write it like SM-000001')
    issued = session.scalar(
        select(IssuedStatement).where(
            IssuedStatement.issuer == match["issuer"], IssuedStatement.number == int(match["number"])
        )
    )
    if issued is None:
        raise NotFoundError(f"no statement {number}; list them with: slicemeter accounting statements")
    return issued


def voided_by(session: Session, issued: IssuedStatement) -> IssuedStatement | None:
    """The credit note of a statement; None: it stands."""
    return session.scalar(select(IssuedStatement).where(IssuedStatement.corrects_id == issued.id))


def void(
    session: Session, number: str, *, reason: str, reissue: bool, by: Viewer, now_ms: int
) -> tuple[IssuedStatement, IssuedStatement | None]:
    """Void a statement by a credit note over its total, and issue the same under a new number if asked.

    Lines and period stay sealed: what is wrong with an amount is mended by a correction.

    Returns:
        The credit note, and the statement that takes the voided one's place.

    Raises:
        InvalidError: No reason, or no number.
        NotFoundError: No such statement.
        ConflictError: It is a credit note, or was voided before.
    """
    require_reason(reason, "a void")
    issued = find_issued(session, number)
    if issued.kind != STATEMENT:
        raise ConflictError(f"{number} is a credit note; only a statement can be voided")
    earlier = voided_by(session, issued)
    if earlier is not None:
        raise ConflictError(f"{number} was voided before, by credit note {number_text(earlier)}")
    account = session.get_one(BillingAccount, issued.account)
    period = session.get_one(BillingPeriod, issued.period_id)
    total = None
    if issued.total is not None and issued.currency is not None:
        # A database may give an amount back with more zeros than went in; the note's bytes must not show it.
        total = to_currency(EXACT.minus(issued.total), issued.currency)
    note = issue(
        session,
        account,
        period,
        Blob.of(_note(issued, total, reason)),
        total,
        by=by,
        now_ms=now_ms,
        revision=issued.revision,
        voids=issued,
        reason=reason,
    )
    again = None
    if reissue:
        content = Blob(issued.sha256, issued.document)
        again = issue(
            session,
            account,
            period,
            content,
            issued.total,
            by=by,
            now_ms=now_ms,
            revision=issued.revision + 1,
        )
    after = {
        "credit_note": number_text(note),
        "reissued_as": None if again is None else number_text(again),
        "reason": reason,
    }
    record(session, at_ms=now_ms, by=by, action="statement void", what=number_text(issued), after=after)
    return note, again


def _note(issued: IssuedStatement, total: Decimal | None, reason: str) -> bytes:
    return msgspec.json.encode(
        {
            "account": issued.account,
            "voids": number_text(issued),
            "voids_sha256": issued.sha256,
            "currency": issued.currency,
            "total": None if total is None else f"{total:f}",
            "reason": reason,
        }
    )


def numbers_with_holes(session: Session) -> list[str]:
    """Issuers whose numbers are not 1 to their last one."""
    counted = {
        issuer: (count, highest)
        for issuer, count, highest in session.execute(
            select(IssuedStatement.issuer, func.count(), func.max(IssuedStatement.number)).group_by(
                IssuedStatement.issuer
            )
        )
    }
    last = {row.issuer: row.last_number for row in session.scalars(select(StatementNumber))}
    return sorted(
        issuer
        for issuer in counted.keys() | last.keys()
        if counted.get(issuer) != (last.get(issuer), last.get(issuer))
    )
