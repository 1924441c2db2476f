"""Does a month hold? Identities, sums, and what is stored against what the facts give again.

Invariant: it writes nothing. A day that is due for rating is *pending*, which is no failure; every
difference on any other day is one, with the card, day and figures named. Closed periods of the month are
checked against their seals (`verify_sealed`).
Source: DESIGN section 5 (three invariants), `reference/ledger.md §9`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.access.viewer import COMMAND_LINE
from accounting.ledger.calendar import Month, day_bounds_ms, month_bounds_ms
from accounting.ledger.intervals import Interval, overlaps
from accounting.ledger.policies import FOREVER_MS
from accounting.ledger.rounding import amount_of, exact_sum, to_currency
from accounting.periods.card import devices_held_or_present
from accounting.periods.compute import MS_PER_DAY, Computed, Rulebook, compute, read_rulebook
from accounting.periods.findings import Finding, card_named
from accounting.periods.lines import Line
from accounting.periods.months import CLOSED
from accounting.periods.replacing import RATED
from accounting.periods.statement import rated_as_of_ms, rated_grace_ms, state_statement
from accounting.periods.verify_sealed import SealedVerified, closed_periods, verify_sealed
from accounting.progress import Progress, unseen
from accounting.store.book_tables import RATED_KINDS
from accounting.store.models import (
    BillingAccount,
    DeviceHour,
    LedgerLine,
    PriceVersion,
    RatingMark,
    Tenant,
    TenantDiscount,
)
from contract.ids import ClusterCode, DeviceKey, DeviceUuid, NodeUid


@dataclass(frozen=True, slots=True)
class Verified:
    """What was checked, what failed, and what waits for the next rating."""

    period: str
    as_of_ms: int | None
    device_hours: int
    lines: int
    statements: int
    days_recomputed: int
    findings: Sequence[Finding]
    pending: Sequence[str]
    """Days of cards that facts or prices touched after they were rated."""
    unrated_models: Sequence[str]
    late: Sequence[str] = ()
    """Differences in closed periods that facts explain which came after the seal."""

    @property
    def holds(self) -> bool:
        """Whether nothing failed."""
        return not self.findings

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing to check: a month without devices, lines and statements holds nothing."""
        return not (self.device_hours or self.lines or self.statements or self.days_recomputed)


def verify_period(session: Session, month: Month, *, progress: Progress = unseen) -> Verified:
    """Check a month of every account.

    Args:
        session: A reading transaction: everything is compared in one state.
        month: The period, cut for each account at its own midnights.
        progress: Who wants to know how far it is.
    """
    windows = {
        account.code: month_bounds_ms(month, account.time_zone)
        for account in session.scalars(select(BillingAccount).order_by(BillingAccount.code))
    }
    as_of_ms = rated_as_of_ms(session)
    if not windows or as_of_ms is None:
        return Verified(str(month), as_of_ms, 0, 0, 0, 0, (), _pending(session, (0, FOREVER_MS)), ())
    whole = (min(start for start, _ in windows.values()), max(end for _, end in windows.values()))
    whole = (whole[0] - whole[0] % MS_PER_DAY, -(-whole[1] // MS_PER_DAY) * MS_PER_DAY)
    hours = session.scalars(
        select(DeviceHour).where(DeviceHour.hour_ms >= whole[0], DeviceHour.hour_ms < whole[1])
    ).all()
    closed = closed_periods(session, windows, (CLOSED,))
    sealed = SealedVerified()
    for code, period in sorted(closed.items()):
        account = session.get_one(BillingAccount, code)
        verify_sealed(session, account, period, sealed, progress=progress)
        sealed.statements += 1
    windows = {code: window for code, window in windows.items() if code not in closed}
    lines = [line for code, window in windows.items() for line in _lines(session, code, window)]
    statements = _Statements(session, month, lines)
    again = _Recomputation(session, windows, whole, hours, lines, as_of_ms=as_of_ms)
    findings = [
        *_hours_close(hours),
        *_amounts(session, lines),
        *statements.findings(),
        *again.findings(progress),
        *sealed.findings,
    ]
    return Verified(
        period=str(month),
        as_of_ms=as_of_ms,
        device_hours=len(hours),
        lines=len(lines) + sealed.lines,
        statements=statements.count + sealed.statements,
        days_recomputed=again.days + sealed.days,
        findings=findings,
        pending=_pending(session, whole),
        late=sealed.late,
        unrated_models=sorted({line.model for line in lines if line.currency and line.amount is None}),
    )


def _lines(session: Session, account: str, window: Interval) -> Sequence[LedgerLine]:
    return session.scalars(
        select(LedgerLine)
        .where(LedgerLine.account == account, LedgerLine.day_ms >= window[0], LedgerLine.day_ms < window[1])
        .order_by(LedgerLine.id)
    ).all()


def _device(cluster: str, node_uid: str, device_uuid: str) -> DeviceKey:
    return DeviceKey(ClusterCode(cluster), NodeUid(node_uid), DeviceUuid(device_uuid))


def _due(session: Session, window: Interval) -> set[tuple[DeviceKey, int]]:
    """Days of cards that are to be rated again, in the window."""
    marks = session.scalars(
        select(RatingMark).where(
            RatingMark.ingest_seq != RATED, RatingMark.day_ms >= window[0], RatingMark.day_ms < window[1]
        )
    )
    return {(_device(mark.cluster, mark.node_uid, mark.device_uuid), mark.day_ms) for mark in marks}


def _pending(session: Session, window: Interval) -> list[str]:
    return [card_named(key, day_ms) for key, day_ms in sorted(_due(session, window))]


def _hours_close(hours: Sequence[DeviceHour]) -> Iterator[Finding]:
    for row in hours:
        parts = (row.charged_ppm_ms, row.idle_ppm_ms, row.down_ppm_ms)
        if sum(parts) != row.present_ppm_ms or min(parts) < 0:
            yield Finding(
                "device_hour_closes",
                card_named(_device(row.cluster, row.node_uid, row.device_uuid), row.hour_ms),
                f"charged {parts[0]} + idle {parts[1]} + down {parts[2]} is not present {row.present_ppm_ms}",
            )


def _amounts(session: Session, lines: Sequence[LedgerLine]) -> Iterator[Finding]:
    """Each amount is its quantity at the price and less the discount of the versions that it names."""
    versions = {row.id: row.unit_price for row in session.scalars(select(PriceVersion))}
    discounts = {row.id: row.percent for row in session.scalars(select(TenantDiscount))}
    for line in lines:
        if line.kind not in RATED_KINDS:
            continue  # what moves money has no price
        wanted: Decimal | None = None
        if line.price_version_id is not None and line.currency is not None:
            wanted = amount_of(
                line.quantity,
                versions[line.price_version_id],
                unit=line.unit,
                percent=None if line.discount_version_id is None else discounts[line.discount_version_id],
            )
        if line.amount != wanted:
            yield Finding(
                "line_amount",
                f"line {line.id} of {line.account}",
                f"the amount is {line.amount}, its quantity at its price is {wanted}",
            )


class _Statements:
    """The statement of every tenant that has lines, against those lines."""

    def __init__(self, session: Session, month: Month, lines: Sequence[LedgerLine]) -> None:
        self._session = session
        self._month = month
        self._lines: dict[tuple[str, int], list[LedgerLine]] = {}
        for line in lines:
            self._lines.setdefault((line.account, line.tenant_id), []).append(line)
        self.count = len(self._lines)

    def findings(self) -> Iterator[Finding]:
        for (account, tenant_id), lines in sorted(self._lines.items()):
            tenant = self._session.get_one(Tenant, tenant_id)
            stated = state_statement(
                self._session, COMMAND_LINE, self._month, tenant.path, account_code=account
            )
            if stated.currency is None or stated.total is None or stated.rounding is None:
                continue
            exact = exact_sum(line.amount for line in lines if line.amount is not None)
            shown = exact_sum(line.shown for line in stated.lines if line.shown is not None)
            wanted = to_currency(exact, stated.currency)
            if stated.total != wanted or shown + stated.rounding != stated.total:
                yield Finding(
                    "statement_adds_up",
                    f"{tenant.path} in {account}",
                    f"lines: {exact}, shown {shown} + rounding {stated.rounding}, total {stated.total}",
                )


@dataclass(slots=True)
class _Recomputation:
    """The ledger of every card and day of the period, computed again."""

    session: Session
    windows: dict[str, Interval]
    whole: Interval
    hours: Sequence[DeviceHour]
    lines: Sequence[LedgerLine]
    as_of_ms: int
    days: int = 0

    @property
    def grace_ms(self) -> int:
        return rated_grace_ms(self.session)

    def findings(self, progress: Progress = unseen) -> Iterator[Finding]:
        """Differences on cards and days that are not due."""
        rulebook = read_rulebook(self.session)
        due = _due(self.session, (self.whole[0] - MS_PER_DAY, self.whole[1] + MS_PER_DAY))
        cards = self._cards()
        for done, key in enumerate(cards):
            progress("computing again", done, len(cards))
            today_ms = self.as_of_ms - self.as_of_ms % MS_PER_DAY
            run = (self.whole[0], min(self.whole[1], today_ms + MS_PER_DAY))
            if run[0] >= run[1]:
                continue
            computed = compute(
                self.session, key, run, rulebook, as_of_ms=self.as_of_ms, grace_ms=self.grace_ms
            )
            due_days = [day_ms for marked, day_ms in due if marked == key]
            self.days += (run[1] - run[0]) // MS_PER_DAY - len(due_days)
            yield from self._hours(computed, due_days)
            yield from self._line_findings(computed, due_days, rulebook)

    def _cards(self) -> list[DeviceKey]:
        known = set(devices_held_or_present(self.session, self.whole, grace_ms=self.grace_ms))
        known.update(_device(row.cluster, row.node_uid, row.device_uuid) for row in self.hours)
        known.update(_device(row.cluster, row.node_uid, row.device_uuid) for row in self._rated())
        return sorted(known)

    def _rated(self) -> list[LedgerLine]:
        return [line for line in self.lines if line.kind in RATED_KINDS]

    def _hours(self, computed: Computed, due_days: Sequence[int]) -> Iterator[Finding]:
        key = computed.card.key
        stored = {
            row.hour_ms: (row.present_ppm_ms, row.charged_ppm_ms, row.idle_ppm_ms, row.down_ppm_ms)
            for row in self.hours
            if _device(row.cluster, row.node_uid, row.device_uuid) == key
        }
        again = {
            hour_ms: (hour.present_ppm_ms, hour.charged_ppm_ms, hour.idle_ppm_ms, hour.down_ppm_ms)
            for hour_ms, hour in computed.hours.items()
        }
        for hour_ms in sorted(stored.keys() | again.keys()):
            is_due = hour_ms - hour_ms % MS_PER_DAY in due_days
            if not is_due and stored.get(hour_ms) != again.get(hour_ms):
                yield Finding(
                    "hour_recomputed",
                    card_named(key, hour_ms),
                    f"stored {stored.get(hour_ms)}, the facts give {again.get(hour_ms)} "
                    "(present, charged, idle, down in ppm·ms)",
                )

    def _line_findings(
        self, computed: Computed, due_days: Sequence[int], rulebook: Rulebook
    ) -> Iterator[Finding]:
        key = computed.card.key
        paths = {tenant.id: tenant.path for tenant in self.session.scalars(select(Tenant))}
        stored = {
            _stored_key(line, paths): _stored_values(line)
            for line in self._rated()
            if _device(line.cluster, line.node_uid, line.device_uuid) == key
        }
        again = {
            _computed_key(line): _computed_values(line) for line in computed.lines if self._is_of_period(line)
        }
        books = rulebook.books[key.cluster]
        zones = {one.code: one.time_zone for one in books.accounts}
        for line_key in sorted(stored.keys() | again.keys()):
            if stored.get(line_key) == again.get(line_key):
                continue
            day = day_bounds_ms(line_key.day_ms, zones[line_key.account])
            if any(overlaps(day, (due_ms, due_ms + MS_PER_DAY)) for due_ms in due_days):
                continue
            yield Finding(
                "line_recomputed",
                f"{line_key.kind} of {line_key.tenant} on {card_named(key, line_key.day_ms)}",
                f"stored {stored.get(line_key)}, the facts give {again.get(line_key)}",
            )

    def _is_of_period(self, line: Line) -> bool:
        window = self.windows.get(line.key.account, (0, 0))
        return window[0] <= line.key.day_ms < window[1]


@dataclass(frozen=True, slots=True, order=True)
class _LineKey:
    """What makes a stored line and a computed one the same."""

    account: str
    tenant: str
    kind: str
    sku: str
    resource_key: str
    day_ms: int
    charge_from_ms: int


@dataclass(frozen=True, slots=True)
class _LineValues:
    charge_to_ms: int
    own_quantity: int
    quantity: int
    held_not_running_ppm_ms: int
    degraded_ppm_ms: int
    price_version: int | None
    policy_version: int | None
    discount_version: int | None
    amount: Decimal | None


def _stored_key(line: LedgerLine, paths: dict[int, str]) -> _LineKey:
    tenant = paths[line.tenant_id]
    return _LineKey(
        line.account, tenant, line.kind, line.sku, line.resource_key, line.day_ms, line.charge_from_ms
    )


def _computed_key(line: Line) -> _LineKey:
    key = line.key
    return _LineKey(
        key.account, key.tenant, key.kind, key.sku, key.resource_key, key.day_ms, line.charge_from_ms
    )


def _stored_values(line: LedgerLine) -> _LineValues:
    return _LineValues(
        line.charge_to_ms,
        line.own_quantity,
        line.quantity,
        line.held_not_running_quantity,
        line.degraded_quantity,
        line.price_version_id,
        line.policy_version_id,
        line.discount_version_id,
        line.amount,
    )


def _computed_values(line: Line) -> _LineValues:
    return _LineValues(
        line.charge_to_ms,
        line.own_quantity,
        line.quantity,
        line.held_not_running_ppm_ms,
        line.degraded_ppm_ms,
        line.key.price_id or None,
        line.key.policy_id or None,
        line.key.discount_id or None,
        line.amount,
    )
