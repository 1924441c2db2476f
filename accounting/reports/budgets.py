"""Budgets, their standing and forecasts as documents, the same over HTTP and on the command line."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.budgets.book import thresholds_of
from accounting.budgets.standing import Outlook, Standing
from accounting.ledger.rounding import EXACT, exact_sum, plain
from accounting.reports.documents import Document, instant, shown
from accounting.store.models import Budget


def standing_document(standing: Standing) -> Document:
    """One budget in one period."""
    return {
        "budget": standing.budget_id,
        "tenant": standing.tenant,
        "account": standing.account,
        "period": standing.period,
        "currency": standing.currency,
        "amount": plain(standing.amount),
        "spent": shown(standing.spent),
        "left": shown(standing.left),
        "used_of_budget": plain(standing.used_ratio),
        "forecast": shown(standing.forecast),
        "is_final": standing.is_final,
        "thresholds": [
            {"percent": each.percent, "crossed_at": instant(each.crossed_at_ms)}
            for each in standing.crossings
        ],
    }


def budget_document(budget: Budget, tenant: str) -> Document:
    """One version of a budget."""
    return {
        "budget": budget.id,
        "tenant": tenant,
        "amount": plain(budget.amount),
        "currency": budget.currency,
        "thresholds": thresholds_of(budget),
        "from": instant(budget.valid_from_ms),
        "to": instant(budget.valid_to_ms),
        "recorded_at": instant(budget.recorded_at_ms),
        "recorded_by": budget.recorded_by,
        "supersedes": budget.supersedes_id,
        "superseded_at": instant(budget.superseded_at_ms),
        "reason": budget.reason,
    }


def outlook_document(outlook: Outlook) -> Document:
    """One tenant's month, so far and when it is over."""
    return {
        "tenant": outlook.tenant,
        "account": outlook.account,
        "period": outlook.period,
        "currency": outlook.currency,
        "spent": shown(outlook.spent),
        "forecast": shown(outlook.forecast),
    }


def outlook_totals(outlooks: Sequence[Outlook]) -> list[Document]:
    """The sums of each currency."""
    currencies = sorted({each.currency for each in outlooks})
    return [
        {
            "currency": currency,
            "spent": shown(EXACT.plus(exact_sum(o.spent for o in outlooks if o.currency == currency))),
            "forecast": shown(EXACT.plus(exact_sum(o.forecast for o in outlooks if o.currency == currency))),
        }
        for currency in currencies
    ]
