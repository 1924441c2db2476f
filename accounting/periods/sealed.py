"""What was sealed with a period, read again: statements of a closed month come from here and the lines.

Invariant: for a closed period nothing here depends on facts, hours or clocks, so whatever is made from it
is the same bytes whenever it is made.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.periods.hashing import first_statement
from accounting.periods.months import CLOSED
from accounting.periods.sealing import SealedDocument, decode_document, decode_measured
from accounting.periods.use import Use
from accounting.store.models import BillingPeriod, SealedUse
from accounting.store.walls import EVERYTHING, seeing


@dataclass(frozen=True, slots=True)
class Sealed:
    """A closed period."""

    period_id: int
    document: SealedDocument

    def uses(self, session: Session, tenant_ids: Collection[int]) -> dict[int, Use]:
        """By line: what was measured beside the lines of these tenants."""
        rows = session.scalars(
            select(SealedUse.document).where(
                SealedUse.period_id == self.period_id, SealedUse.tenant_id.in_(tenant_ids)
            )
        )
        return {one.line_id: one.use for document in rows for one in decode_measured(document)}

    def coverage(self, devices: Collection[tuple[str, str, str]]) -> tuple[int, int]:
        """Confirmed and present time of these devices (cluster, node uid, uuid), in ms."""
        named = [
            one for one in self.document.devices if (one.cluster, one.node_uid, one.device_uuid) in devices
        ]
        return sum(one.confirmed_ms for one in named), sum(one.present_ms for one in named)


def read_sealed(session: Session, period: BillingPeriod) -> Sealed | None:
    """What closed a period; None: it is not closed."""
    if period.state != CLOSED:
        return None
    # The document is the account's: whoever asks for one tenant cuts what is of others.
    with seeing(session, EVERYTHING):
        statement = first_statement(session, period.id)
    return None if statement is None else Sealed(period.id, decode_document(statement.document))
