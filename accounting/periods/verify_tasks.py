"""The check of a month in pieces that need nothing of each other, so that several processes can share them.

Invariant: each card is read and computed once for all that is compared with it, whatever number of accounts
closed the month, as long as they closed it with the same versions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TypeAlias

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.access.viewer import COMMAND_LINE, is_at_or_below
from accounting.ledger.calendar import Month, month_bounds_ms
from accounting.ledger.intervals import Interval
from accounting.ledger.rounding import exact_sum, to_currency
from accounting.periods.compute import MS_PER_DAY, Rulebook, compute_cards
from accounting.periods.findings import Finding
from accounting.periods.months import CLOSED
from accounting.periods.rating_state import rated_as_of_ms
from accounting.periods.recompute import ComputedAs, Difference, Standing, groups_of_cards
from accounting.periods.rollups import rollup_findings
from accounting.periods.statement import state_statement
from accounting.periods.verify_cards import CardsAgain, Stored, of_month
from accounting.periods.verify_sealed import SealedAgain, closed_periods, seal_findings
from accounting.progress import Progress, unseen
from accounting.store.models import BillingAccount, BillingPeriod, LedgerLine, Tenant
from contract.ids import DeviceKey


@dataclass(frozen=True, slots=True)
class SealTask:
    """The seal, the documents and the numbers of a closed period."""

    account: str


@dataclass(frozen=True, slots=True)
class StatementTask:
    """The statement of a tenant of an open period, against its lines."""

    account: str
    tenant_id: int


@dataclass(frozen=True, slots=True)
class RollupTask:
    """The roll-ups of the month, against what they add up."""


@dataclass(frozen=True, slots=True)
class CardsTask:
    """Some cards of one cluster, computed again."""

    cards: Sequence[DeviceKey]


Task: TypeAlias = SealTask | StatementTask | RollupTask | CardsTask


@dataclass(slots=True)
class TaskFound:
    """What came of a task."""

    findings: list[Finding] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    """Differences in closed periods that facts explain which came after the seal."""
    days: int = 0
    """Days of cards that were computed again."""


class MonthCheck:
    """A month of every account, as one transaction sees it.

    Attributes:
        windows: By account, of all accounts.
        open_windows: Of those whose month is not closed.
        whole: The UTC days that the windows touch.
        closed: By account.
        as_of_ms: Up to which instant the books were rated; None: never.
    """

    def __init__(self, session: Session, month: Month) -> None:
        self._session, self._month = session, month
        accounts = session.scalars(select(BillingAccount).order_by(BillingAccount.code)).all()
        self.windows = {one.code: month_bounds_ms(month, one.time_zone) for one in accounts}
        self.as_of_ms = rated_as_of_ms(session)
        self.whole: Interval = (0, 0)
        if self.windows:
            start = min(start for start, _ in self.windows.values())
            end = max(end for _, end in self.windows.values())
            self.whole = (start - start % MS_PER_DAY, -(-end // MS_PER_DAY) * MS_PER_DAY)
        self.closed: Mapping[str, BillingPeriod] = closed_periods(session, self.windows, (CLOSED,))
        self.open_windows = {code: one for code, one in self.windows.items() if code not in self.closed}
        self._again: _Again | None = None

    @property
    def again(self) -> _Again:
        """What cards are compared with; read when it is first asked for."""
        if self._again is None:
            assert self.as_of_ms is not None
            self._again = _Again(
                self._session,
                CardsAgain(self._session, self.open_windows, self.whole, as_of_ms=self.as_of_ms),
                [
                    SealedAgain(self._session, self._session.get_one(BillingAccount, code), period)
                    for code, period in sorted(self.closed.items())
                ],
            )
        return self._again

    def perform(self, task: Task, progress: Progress = unseen) -> TaskFound:
        """Do a task.

        Args:
            task: One of this month.
            progress: Told of those that take long.
        """
        if isinstance(task, CardsTask):
            return self.again.check(task.cards)
        if isinstance(task, SealTask):
            account = self._session.get_one(BillingAccount, task.account)
            period = self.closed[task.account]
            return TaskFound(list(seal_findings(self._session, account, period, progress=progress)))
        if isinstance(task, RollupTask):
            return TaskFound(
                list(rollup_findings(self._session, self.windows, self.whole, progress=progress))
            )
        return TaskFound(list(self._statement(task.account, task.tenant_id)))

    def _statement(self, account: str, tenant_id: int) -> Iterator[Finding]:
        tenant = self._session.get_one(Tenant, tenant_id)
        stated = state_statement(self._session, COMMAND_LINE, self._month, tenant.path, account_code=account)
        self._session.expunge_all()
        if stated.currency is None or stated.total is None or stated.rounding is None:
            return
        exact = self._exact(account, tenant.path)
        shown = exact_sum(line.shown for line in stated.lines if line.shown is not None)
        wanted = to_currency(exact, stated.currency)
        if stated.total != wanted or shown + stated.rounding != stated.total:
            yield Finding(
                "statement_adds_up",
                f"{tenant.path} in {account}",
                f"lines: {exact}, shown {shown} + rounding {stated.rounding}, total {stated.total}",
            )

    def _exact(self, account: str, path: str) -> Decimal:
        """The amounts of a tenant and of all below it, as its statement has them."""
        amounts = self._session.scalars(
            select(LedgerLine.amount)
            .join(Tenant, Tenant.id == LedgerLine.tenant_id)
            .where(
                of_month({account: self.windows[account]}),
                is_at_or_below(path),
                LedgerLine.amount.is_not(None),
            )
        )
        return exact_sum(amount for amount in amounts if amount is not None)


class _Again:
    """The cards of a month, computed again for its open and its closed periods."""

    def __init__(self, session: Session, of_open: CardsAgain, sealed: Sequence[SealedAgain]) -> None:
        self._session = session
        self._of_open = of_open
        self._sealed = sealed
        self._rulebooks: dict[ComputedAs, Rulebook] = {}
        self._open_as = of_open.computed_as
        if self._open_as is not None:
            self._rulebooks[self._open_as] = of_open.rulebook
        for one in sealed:
            self._rulebooks.setdefault(one.recomputation.computed_as, one.recomputation.rulebook)
        self._clusters = frozenset(of_open.rulebook.books)

    def groups(self) -> list[Sequence[DeviceKey]]:
        """All cards that something is to be compared on, some of one cluster at a time."""
        cards = self._of_open.cards()
        for one in self._sealed:
            cards.update(one.recomputation.cards())
        return list(groups_of_cards(sorted(cards)))

    def check(self, cards: Sequence[DeviceKey]) -> TaskFound:
        """Compare some cards of one cluster with all that is stored of them."""
        found = TaskFound()
        before = self._of_open.days
        stored = self._of_open.stored(cards)
        stands = [(one, one.recomputation.stands(cards)) for one in self._sealed]
        found.findings += self._of_open.wrong_amounts(stored)
        if cards[0].cluster not in self._clusters:
            if self._open_as is not None:
                found.findings += [self._of_open.of_nobody(key) for key in cards if _is_stored(stored, key)]
            for one, standing in stands:
                for key in cards:
                    self._judge(one, one.recomputation.compare(key, standing[key], None), found)
            return found
        self._compute(cards, stored, stands, found)
        found.days += self._of_open.days - before
        return found

    def _compute(
        self,
        cards: Sequence[DeviceKey],
        stored: Stored,
        stands: Sequence[tuple[SealedAgain, Mapping[DeviceKey, Standing]]],
        found: TaskFound,
    ) -> None:
        asking: dict[ComputedAs, list[tuple[SealedAgain, Mapping[DeviceKey, Standing]]]] = defaultdict(list)
        for one, standing in stands:
            asking[one.recomputation.computed_as].append((one, standing))
        for how, rulebook in self._rulebooks.items():
            again = compute_cards(
                self._session, cards, how.run, rulebook, as_of_ms=how.as_of_ms, grace_ms=how.grace_ms
            )
            for computed in again:
                key = computed.card.key
                if how == self._open_as:
                    found.findings += self._of_open.compare(computed, stored)
                for one, standing in asking[how]:
                    self._judge(one, one.recomputation.compare(key, standing[key], computed), found)
                    if key.cluster in one.clusters:
                        found.days += (how.run[1] - how.run[0]) // MS_PER_DAY

    @staticmethod
    def _judge(one: SealedAgain, differences: Iterable[Difference], found: TaskFound) -> None:
        for difference in differences:
            judged = one.judge(difference)
            if isinstance(judged, str):
                found.late.append(judged)
            else:
                found.findings.append(judged)


def _is_stored(stored: Stored, key: DeviceKey) -> bool:
    return bool(stored.hours[key] or stored.lines[key])
