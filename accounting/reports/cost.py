"""What it cost: ledger lines of a window, added up by what a person asks for.

Invariant: one table and only group-by, so children add up to their parents whatever they are grouped by;
amounts are added exactly and rounded once per row and once for the total of a currency.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal, TypeAlias

from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer, is_at_or_below, tenant_is_visible
from accounting.ledger.calendar import at_text, local_date
from accounting.ledger.intervals import Interval
from accounting.ledger.rounding import exact_sum, to_currency
from accounting.periods.coverage import Coverage
from accounting.periods.distribution import DISTRIBUTION
from accounting.periods.months import CLOSED
from accounting.periods.rating_state import rated_as_of_ms
from accounting.periods.statement import Sums, sums_of
from accounting.reports.cost_coverage import (
    coverage_of_clusters,
    coverage_of_lines,
    sealed_coverage,
    speaks_of_clusters,
)
from accounting.reports.documents import (
    Document,
    card_coverage_document,
    coverage_document,
    instant,
    money,
    shown,
    sums_document,
)
from accounting.reports.grouping import COST_KEYS, LEVELS, Branches, Filters, read_branches
from accounting.reports.handed_on import provisional_lines
from accounting.reports.ledger_sums import Source, SummedLines, source_of, sum_lines
from accounting.reports.paging import EVERYTHING, Asked, Key, page_of
from accounting.reports.spans import Span
from accounting.store.models import BillingAccount, BillingPeriod, LedgerLine, Tenant

Idle: TypeAlias = Literal["billed", "separate", "distributed", "excluded"]

IDLE: tuple[Idle, ...] = ("billed", "separate", "distributed", "excluded")
"""`billed`: as the lines stand. `separate`: all of it at `platform/idle`. `distributed`: handed on as the
policy says, also where the month is open and the parts are provisional. `excluded`: left out."""

GROUPS = COST_KEYS

_COLUMNS = {
    **dict.fromkeys((*LEVELS, "tenant"), ("tenant_id",)),
    "account": (),
    "kind": (),
    "model": (),
    "pod": ("namespace", "pod"),
    "device": ("device_uuid",),
    "day": ("day_ms",),
}
"""By key, the columns that it needs besides those that every sum tells apart; else the one of its name."""


@dataclass(frozen=True, slots=True)
class CostRow:
    """The lines of one group and currency (None: showback)."""

    keys: tuple[str, ...]
    """Its value of every key asked for; empty: none, as the team of a tenant without one."""
    currency: str | None
    lines: int
    sums: Sums
    amount: Decimal | None
    shown: Decimal | None


@dataclass(frozen=True, slots=True)
class CostReport:
    """A window of every account, as far as a viewer may see it."""

    span: str
    windows: Sequence[tuple[str, Interval]]
    """By account, from when to when."""
    group_by: tuple[str, ...]
    idle: Idle
    as_of_ms: int | None
    rows: Sequence[CostRow]
    totals: Sequence[CostRow]
    """One for each currency."""
    unrated_models: Sequence[str]
    coverage: Coverage
    discounts: Sequence[tuple[str, Decimal]]
    """By currency, what discounts took off."""
    provisional_lines: int
    """Parts of idle capacity that are no lines yet; above 0 only where they were asked for."""
    is_final: bool
    """Whether every month concerned is closed."""
    speaks_of_cards: bool
    """Whether the asker may see the times of whole cards."""


def report_cost(
    session: Session,
    viewer: Viewer,
    span: Span,
    group_by: Sequence[str] = ("tenant",),
    *,
    filters: Filters | None = None,
    idle: Idle = "billed",
) -> CostReport:
    """Add up the lines whose local day begins in a window.

    Args:
        session: A reading transaction.
        viewer: Who asks.
        span: The window, in each account's own zone unless it names one.
        group_by: Some of `COST_KEYS`.
        filters: Only what these let through.
        idle: What becomes of idle capacity.

    Raises:
        NotFoundError: No tenant of the filter's name, or none that the viewer may see.
    """
    wanted = filters or Filters()
    branches = read_branches(session, viewer, wanted.tenant)
    by = {name for key in group_by for name in _COLUMNS.get(key, (key,))}
    by |= {"cluster"}
    source = source_of(by, wanted.columns())
    sums: list[SummedLines] = []
    zones: dict[str, str] = {}
    windows: list[tuple[str, Interval]] = []
    covered, provisional = _Covered(session, viewer, wanted), 0
    is_final, as_of = True, list[int]()
    for account in _accounts(session, wanted):
        window = span.within(account.time_zone)
        where = _conditions(source, viewer, branches, account, window, wanted, idle)
        of_account = sum_lines(session, source, where, by)
        if idle == "distributed":
            parts = provisional_lines(session, account, window, branches, wanted)
            provisional += len(parts)
            of_account += parts
        if not of_account:
            continue
        zones[account.code] = account.time_zone
        windows.append((account.code, window))
        sums += of_account
        closed = _closed_months(session, account, window)
        on_lines = _conditions(LedgerLine, viewer, branches, account, window, wanted, idle)
        covered.add(of_account, on_lines, window, closed)
        as_of += [one.as_of_ms for one in closed if one.as_of_ms is not None]
        is_final = is_final and bool(closed)
    keys_of = _keys(group_by, branches, zones)
    return CostReport(
        span=span.text,
        windows=windows,
        group_by=tuple(group_by),
        idle=idle,
        as_of_ms=max(as_of) if is_final and as_of else rated_as_of_ms(session),
        rows=_grouped(sums, keys_of),
        totals=_grouped(sums, lambda _: ()),
        unrated_models=sorted({one.model for one in sums if one.currency is not None and one.unrated}),
        coverage=covered.whole(),
        discounts=_discounts(sums),
        provisional_lines=provisional,
        is_final=is_final and bool(windows),
        speaks_of_cards=viewer.sees_everything,
    )


def _accounts(session: Session, filters: Filters) -> Sequence[BillingAccount]:
    query = select(BillingAccount).order_by(BillingAccount.code)
    if filters.account is not None:
        query = query.where(BillingAccount.code == filters.account)
    return session.scalars(query).all()


def _conditions(  # noqa: PLR0917 - everything that narrows a report
    source: Source,
    viewer: Viewer,
    branches: Branches,
    account: BillingAccount,
    window: Interval,
    filters: Filters,
    idle: Idle,
) -> list[ColumnElement[bool]]:
    visible = select(Tenant.id).where(tenant_is_visible(viewer))
    where = [
        source.account == account.code,
        source.day_ms >= window[0],
        source.day_ms < window[1],
        source.tenant_id.in_(
            visible if branches.root is None else visible.where(is_at_or_below(branches.root))
        ),
    ]
    where += [getattr(source, name) == value for name, value in filters.columns().items()]
    left_out = {"separate": (DISTRIBUTION,), "excluded": (DISTRIBUTION, "idle")}.get(idle, ())
    for kind in left_out:
        corrected = source.corrects_kind
        where += [source.kind != kind, or_(corrected.is_(None), corrected != kind)]
    return where


def _keys(
    group_by: Sequence[str], branches: Branches, zones: dict[str, str]
) -> Callable[[SummedLines], tuple[str, ...]]:
    def one(line: SummedLines, key: str) -> str:
        if key == "tenant":
            return branches.paths[line.tenant_id]
        if key in LEVELS:
            return branches.level(branches.paths[line.tenant_id], key)
        if key == "day":
            return local_date(line.day_ms, zones[line.account]).isoformat()
        if key == "pod":
            return f"{line.namespace}/{line.pod}" if line.pod else ""
        return str(getattr(line, "device_uuid" if key == "device" else key))

    return lambda line: tuple(one(line, key) for key in group_by)


@dataclass(slots=True)
class _Covered:
    """The coverage of a report, gathered account by account."""

    session: Session
    viewer: Viewer
    filters: Filters
    found: Coverage = field(default_factory=lambda: Coverage(0, 0))
    _clusters: list[tuple[str, Interval]] = field(default_factory=list)

    def add(
        self,
        lines: Iterable[SummedLines],
        on_lines: Sequence[ColumnElement[bool]],
        window: Interval,
        closed: Sequence[BillingPeriod],
    ) -> None:
        """Take in an account, whose lines fulfil conditions."""
        if not speaks_of_clusters(self.viewer, self.filters) or (closed and self.filters.model):
            self._plus(coverage_of_lines(self.session, on_lines, window, closed))
        elif closed:
            self._plus(sealed_coverage(self.session, closed, self.filters.cluster))
        else:
            self._clusters += [(cluster, window) for cluster in {one.cluster for one in lines}]

    def whole(self) -> Coverage:
        """Of all accounts."""
        self._plus(coverage_of_clusters(self.session, self._clusters, self.filters.model))
        self._clusters.clear()
        return self.found

    def _plus(self, other: Coverage) -> None:
        found = self.found
        self.found = Coverage(found.confirmed_ms + other.confirmed_ms, found.present_ms + other.present_ms)


def _closed_months(session: Session, account: BillingAccount, window: Interval) -> Sequence[BillingPeriod]:
    """The months of a window, if it is made of whole ones that are all closed; else none."""
    periods = session.scalars(
        select(BillingPeriod)
        .where(
            BillingPeriod.account == account.code,
            BillingPeriod.starts_at_ms < window[1],
            BillingPeriod.ends_at_ms > window[0],
        )
        .order_by(BillingPeriod.starts_at_ms)
    ).all()
    is_whole = bool(periods) and (periods[0].starts_at_ms, periods[-1].ends_at_ms) == window
    return periods if is_whole and all(period.state == CLOSED for period in periods) else ()


def _discounts(sums: Iterable[SummedLines]) -> list[tuple[str, Decimal]]:
    taken: dict[str, list[Decimal]] = {}
    for one in sums:
        if one.discount_percent and one.currency is not None:
            taken.setdefault(one.currency, []).append(one.discount)
    return [(currency, to_currency(exact_sum(parts), currency)) for currency, parts in sorted(taken.items())]


def _grouped(sums: Sequence[SummedLines], keys_of: Callable[[SummedLines], tuple[str, ...]]) -> list[CostRow]:
    groups: dict[tuple[tuple[str, ...], str], list[SummedLines]] = {}
    for one in sums:
        groups.setdefault((keys_of(one), one.currency or ""), []).append(one)
    rows = []
    for (keys, currency), lines in sorted(groups.items()):
        rated = [line.amount for line in lines if line.amount is not None]
        # Nothing that has a price is no amount, never 0.
        amount = exact_sum(rated) if currency and rated else None
        rows.append(
            CostRow(
                keys=keys,
                currency=currency or None,
                lines=sum(line.lines for line in lines),
                sums=sums_of(lines),
                amount=amount,
                shown=None if amount is None else to_currency(amount, currency),
            )
        )
    return rows


def _key(row: CostRow) -> Key:
    return (*row.keys, row.currency or "")


def _row(row: CostRow, names: Sequence[str]) -> Document:
    return {
        **{name: value or None for name, value in zip(names, row.keys, strict=True)},
        "currency": row.currency,
        "lines": row.lines,
        "amount": money(row.amount),
        "shown": shown(row.shown),
        **sums_document(row.sums),
    }


def cost_document(report: CostReport, asked: Asked = EVERYTHING) -> Document:
    """The report as JSON: one page of rows, totals over all of them."""
    page = page_of(report.rows, _key, asked)
    covered = card_coverage_document if report.speaks_of_cards else coverage_document
    return {
        "period": report.span,
        "windows": [
            {"account": account, "from": at_text(start), "to": at_text(end)}
            for account, (start, end) in report.windows
        ],
        "group_by": report.group_by[0] if len(report.group_by) == 1 else list(report.group_by),
        "idle": report.idle,
        "as_of": instant(report.as_of_ms),
        "provisional": not report.is_final,
        "rows": [_row(row, report.group_by) for row in page.rows],
        "next": page.next,
        "totals": [_row(row, ()) for row in report.totals],
        "reconciliation": {
            "lines": sum(row.lines for row in report.rows),
            "own_ppm_ms": sum(row.sums.own_ppm_ms for row in report.totals),
            "discount_ppm_ms": sum(row.sums.discount_ppm_ms for row in report.totals),
            "charged_ppm_ms": sum(row.sums.charged_ppm_ms for row in report.totals),
            "idle_ppm_ms": sum(row.sums.idle_ppm_ms for row in report.totals),
            "handed_on_ppm_ms": sum(row.sums.handed_on_ppm_ms for row in report.totals),
            "unallocated_ppm_ms": sum(row.sums.unallocated_ppm_ms for row in report.totals),
            "energy_mj": sum(row.sums.energy_mj for row in report.totals),
            "discounts": [{"currency": one, "amount": shown(taken)} for one, taken in report.discounts],
            "provisional_lines": report.provisional_lines,
            "unrated_models": list(report.unrated_models),
            "coverage": covered(report.coverage),
        },
    }
