"""The families of money on the service's page: the figures of the statements, open and closed.

Invariant: a scrape shows what was published last and reads nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from accounting.budgets.standing import Outlook, Standing
from accounting.figures.book import Figures
from contract.catalogue import BY_NAME
from contract.units import MS_PER_SECOND

_EXPORTED = (
    "tenant_cost",
    "tenant_charged_card_seconds",
    "idle_cost",
    "period_info",
    "tenant_mapping_info",
    "budget_amount",
    "budget_used_ratio",
    "forecast_cost",
    "unrated_models",
    "close_blockers",
    "period_close_due_timestamp_seconds",
    "ledger_invariant_violations",
)


class Money(Collector):
    """Shows the newest figures; nothing before the first were published.

    # HELP slicemeter_tenant_cost Cost in the period, rounded as on the statement.
    # TYPE slicemeter_tenant_cost gauge
    slicemeter_tenant_cost{account="red",tenant="red/a",sku="gpu-slice",currency="EUR",period="2026-10"} 54.01
    """

    def __init__(self) -> None:
        self._figures: Figures | None = None

    def publish(self, figures: Figures) -> None:
        """Show these from now on."""
        self._figures = figures

    def describe(self) -> Iterator[Metric]:
        """The families, without figures."""
        return iter(_families().values())

    def collect(self) -> Iterator[Metric]:
        """The families with the figures published last."""
        figures = self._figures
        families = _families()
        if figures is not None:
            _fill(families, figures)
        return iter(families.values())


def _families() -> dict[str, GaugeMetricFamily]:
    return {
        name: GaugeMetricFamily(BY_NAME[name].full_name, BY_NAME[name].help, labels=BY_NAME[name].labels)
        for name in _EXPORTED
    }


def _fill(families: dict[str, GaugeMetricFamily], figures: Figures) -> None:
    def add(name: str, labels: Sequence[str], value: float) -> None:
        families[name].add_metric(labels, value)

    for shown in figures.periods:
        account, period = shown.account, shown.period
        add("period_info", (account, period, shown.state), 1)
        for cost, amount in shown.sums.of_tenants():
            add("tenant_cost", (account, cost.tenant, cost.sku, cost.currency, period), float(amount))
        for cost, amount in shown.sums.idle():
            add("idle_cost", (account, cost.sku, cost.currency, period), float(amount))
        for (tenant, model), seconds in shown.sums.card_seconds.items():
            add("tenant_charged_card_seconds", (account, tenant, model, period), seconds)
    for close in figures.closes:
        add("period_close_due_timestamp_seconds", (close.account,), close.due_ms / MS_PER_SECOND)
        for reason, count in close.blockers.items():
            add("close_blockers", (close.account, reason), count)
    for mapping in figures.mappings:
        add("tenant_mapping_info", mapping, 1)
    for one in figures.budgets:
        add("budget_amount", (one.tenant, one.currency, one.period), float(one.amount))
        add("budget_used_ratio", (one.tenant,), float(one.used_ratio))
    for outlook in _outlooks(figures):
        add("forecast_cost", (outlook.tenant, outlook.currency), float(outlook.forecast))
    add("unrated_models", (), len(figures.unrated_models))
    add("ledger_invariant_violations", (), figures.violations)


def _outlooks(figures: Figures) -> Iterator[Outlook | Standing]:
    """Budgets' tenants, and those with lines of their own that are none of them, each once."""
    yield from figures.budgets
    with_budget = {(each.tenant, each.currency) for each in figures.budgets}
    seen = set(with_budget)
    for outlook in figures.outlooks:
        if (outlook.tenant, outlook.currency) not in seen:
            seen.add((outlook.tenant, outlook.currency))
            yield outlook
