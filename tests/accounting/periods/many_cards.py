"""Books in which the whole month of many cards is due: enough that a rating of it takes a while."""

from __future__ import annotations

from sqlalchemy import func, insert, select

from accounting.access.viewer import COMMAND_LINE
from accounting.periods.months import OPEN
from accounting.store.database import Database
from accounting.store.models import BillingPeriod, LedgerLine, PresenceReport, RatingMark
from accounting.tenants.registry import add_account, add_cluster

DAYS = 31
STARTS_MS = 1_727_740_800_000
"""1 October 2024, UTC: past, whatever the real clock says."""
ENDS_MS = STARTS_MS + DAYS * 86_400_000


def fill(database: Database, cards: int) -> None:
    """Cards that were there all of one October and that nobody held: a line of idle capacity each day."""
    presence: list[dict[str, object]] = []
    marks: list[dict[str, object]] = []
    for number in range(cards):
        device: dict[str, object] = {
            "cluster": "c",
            "node_uid": f"node-{number // 8:04d}",
            "device_uuid": f"GPU-{number:05d}",
        }
        presence.append(
            device
            | {
                "witness": "cluster",
                "from_ms": STARTS_MS,
                "to_ms": ENDS_MS,
                "node": f"gpu-{number // 8:04d}",
                "state": "healthy",
                "reason": None,
                "model": "Tesla T4",
                "vendor": "NVIDIA",
                "registered_mib": 15_360,
                "physical_mib": None,
                "slots": 10,
                "ingest_seq": 1,
            }
        )
        marks += [device | {"day_ms": STARTS_MS + day * 86_400_000, "ingest_seq": 1} for day in range(DAYS)]
    with database.writing() as session:
        for code in ("acme", "platform"):
            add_account(
                session, code, kind="tenant" if code == "acme" else "platform", currency=None,
                time_zone="UTC", grace_days=3, by=COMMAND_LINE, now_ms=0,
            )  # fmt: skip
        add_cluster(session, "c", account="acme", platform_account="platform", by=COMMAND_LINE, now_ms=0)
        session.execute(insert(PresenceReport), presence)
        session.execute(insert(RatingMark), marks)


def due_cards(database: Database) -> set[str]:
    """The cards that are still to be rated."""
    with database.reading() as session:
        return set(session.scalars(select(RatingMark.device_uuid).where(RatingMark.ingest_seq > 0)))


def lines_by_card(database: Database) -> dict[str, int]:
    """How many lines each card has, in open periods."""
    with database.reading() as session:
        rows = session.execute(
            select(LedgerLine.device_uuid, func.count())
            .join(BillingPeriod, BillingPeriod.id == LedgerLine.period_id)
            .where(BillingPeriod.state == OPEN)
            .group_by(LedgerLine.device_uuid)
        )
        return {str(device_uuid): int(lines) for device_uuid, lines in rows}
