"""Reports as JSON documents: the API's answers and the commands' `--json`.

Invariant: amounts are strings, instants RFC 3339 in UTC, quantities whole numbers with their unit in the
name; every document carries its totals and a reconciliation.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TypeAlias

import msgspec

from accounting.ledger.calendar import at_text
from accounting.ledger.rounding import card_factor, card_hours, plain
from accounting.periods.coverage import Coverage
from accounting.periods.statement import Statement, StatementLine, Sums
from accounting.periods.use import UnallocatedUse, Use
from accounting.reports.paging import EVERYTHING, Asked, Key, page_of
from accounting.reports.statement_groups import group_lines
from accounting.store.book_tables import RATED_KINDS

Document: TypeAlias = dict[str, object]
"""What is encoded to JSON, at once, at the boundary."""


def encode(document: Document) -> bytes:
    """A document as JSON, keys in the order in which they were built."""
    return msgspec.json.encode(document)


def money(amount: Decimal | None) -> str | None:
    """An amount as a string without trailing zeros beyond its point."""
    return None if amount is None else plain(amount)


def shown(amount: Decimal | None) -> str | None:
    """A rounded amount with all digits of its currency."""
    return None if amount is None else format(amount, "f")


def instant(at_ms: int | None) -> str | None:
    """An instant in RFC 3339."""
    return None if at_ms is None else at_text(at_ms)


def use_document(use: Use | None) -> Document | None:
    """What was measured; null: not measured."""
    if use is None:
        return None
    return {
        "source": use.source,
        "covered_ms": use.covered_ms,
        "unknown_ms": use.unknown_ms,
        "sm_ppm_ms": use.sm_ppm_ms,
        "mem_used_mib_ms": use.mem_used_mib_ms,
        "mem_peak_mib": use.mem_peak_mib,
        "energy_active_mj": use.energy_active_mj,
        "blocked_ms": use.blocked_ms,
        "over_limit_ms": use.over_limit_ms,
    }


def unallocated_document(one: UnallocatedUse) -> Document:
    """Use without an allocation."""
    return {
        "cluster": one.cluster,
        "tenant_key": one.tenant_key,
        "namespace": one.namespace,
        "pod": one.pod,
        "container": one.container,
        "device_uuid": one.device_uuid,
        "use": use_document(one.use),
    }


def coverage_document(coverage: Coverage) -> Document:
    """Confirmed of present device time, as a ratio: the times of whole cards are not a tenant's to see."""
    return {"ratio": money(coverage.ratio)}


def card_coverage_document(coverage: Coverage) -> Document:
    """The same with its times, for operators."""
    times = {"confirmed_ms": coverage.confirmed_ms, "present_ms": coverage.present_ms}
    return times | coverage_document(coverage)


def sums_document(sums: Sums) -> Document:
    """Quantities, exactly and in card-hours."""
    return {
        "own_ppm_ms": sums.own_ppm_ms,
        "discount_ppm_ms": sums.discount_ppm_ms,
        "charged_ppm_ms": sums.charged_ppm_ms,
        "idle_ppm_ms": sums.idle_ppm_ms,
        "held_not_running_ppm_ms": sums.held_not_running_ppm_ms,
        "degraded_ppm_ms": sums.degraded_ppm_ms,
        "unallocated_ppm_ms": sums.unallocated_ppm_ms,
        "energy_mj": sums.energy_mj,
        "handed_on_ppm_ms": sums.handed_on_ppm_ms,
        "own_card_hours": str(card_hours(sums.own_ppm_ms)),
        "discount_card_hours": str(card_hours(sums.discount_ppm_ms)),
        "charged_card_hours": str(card_hours(sums.charged_ppm_ms)),
        "idle_card_hours": str(card_hours(sums.idle_ppm_ms)),
    }


def _line(line: StatementLine) -> Document:
    return {
        "line": line.line_id,
        "tenant": line.tenant,
        "day": line.day,
        "kind": line.kind,
        "sku": line.sku,
        "cluster": line.cluster,
        "node": line.node,
        "device_uuid": line.device_uuid,
        "model": line.model,
        "namespace": line.namespace,
        "pod": line.pod,
        "container": line.container,
        "resource_key": line.resource_key,
        "from": at_text(line.charge_from_ms),
        "to": at_text(line.charge_to_ms),
        "own_ppm_ms": line.own_ppm_ms,
        "discount_ppm_ms": line.discount_ppm_ms,
        "charged_ppm_ms": line.charged_ppm_ms,
        "own_card_hours": str(card_hours(line.own_ppm_ms)),
        "discount_card_hours": str(card_hours(line.discount_ppm_ms)),
        "charged_card_hours": str(card_hours(line.charged_ppm_ms)),
        "card_factor": money(card_factor(line.own_ppm_ms, line.charged_ppm_ms)),
        "held_not_running_ppm_ms": line.held_not_running_ppm_ms,
        "degraded_ppm_ms": line.degraded_ppm_ms,
        "energy_mj": line.energy_mj,
        "unit_price": money(line.unit_price),
        "price_version": line.price_version,
        "policy_version": line.policy_version,
        "discount_percent": money(line.discount_percent),
        "reason": line.reason,
        "amount": money(line.amount),
        "shown": shown(line.shown),
        "use": use_document(line.use),
        "corrects": None
        if line.corrects_period is None
        else {"period": line.corrects_period, "day": line.corrects_day, "kind": line.corrects_kind},
    }


def _line_key(line: StatementLine) -> Key:
    """The order of pages; a line that is rated again gets another number, so that decides nothing there."""
    where = (line.namespace, line.pod, line.container, line.resource_key)
    what = (line.kind, line.sku, line.corrects_day or "")
    number = 0 if line.kind in RATED_KINDS else line.line_id
    return line.day, line.tenant, *where, line.charge_from_ms, *what, number


def statement_document(statement: Statement, asked: Asked = EVERYTHING) -> Document:
    """A statement: one page of its lines, totals over all of them."""
    lines = statement.lines if asked == EVERYTHING else sorted(statement.lines, key=_line_key)
    page = page_of(lines, _line_key, asked)
    return {
        "account": statement.account,
        "tenant": statement.tenant,
        "period": statement.period,
        "time_zone": statement.time_zone,
        "from": at_text(statement.starts_at_ms),
        "to": at_text(statement.ends_at_ms),
        "state": statement.state,
        "provisional": statement.is_provisional,
        "as_of": instant(statement.as_of_ms),
        "currency": statement.currency,
        "lines": [_line(line) for line in page.rows],
        "next": page.next,
        "by_tenant_and_model": [
            {
                "tenant": group.tenant,
                "model": group.model or None,
                "lines": group.lines,
                "charged_ppm_ms": group.charged_ppm_ms,
                "charged_card_hours": str(card_hours(group.charged_ppm_ms)),
                "energy_mj": group.energy_mj,
                "amount": money(group.amount),
                "shown": shown(group.shown),
            }
            for group in group_lines(statement)
        ],
        "rounding": shown(statement.rounding),
        "total": shown(statement.total),
        "amount": money(statement.amount),
        "totals": sums_document(statement.sums),
        "use": use_document(statement.use),
        "idle_shares": [
            {
                "tenant": share.tenant,
                "cluster": share.cluster,
                "model": share.model,
                "policy": share.policy,
                "quantity_ppm_ms": share.quantity_ppm_ms,
                "amount": money(share.amount),
                "provisional": True,
            }
            for share in statement.idle_shares
        ],
        "unallocated_use": [unallocated_document(one) for one in statement.unallocated],
        "reconciliation": {
            "own_ppm_ms": statement.sums.own_ppm_ms,
            "discount_ppm_ms": statement.sums.discount_ppm_ms,
            "charged_ppm_ms": statement.sums.charged_ppm_ms,
            "idle_ppm_ms": statement.sums.idle_ppm_ms,
            "lines": len(statement.lines),
            "unrated_models": list(statement.unrated_models),
            "coverage": coverage_document(statement.coverage),
        },
    }
