"""Dashboard "Chargeback month": what each tenant pays in a period, and how final that is.

Only accounting's own families are shown, rounded as on the statement: no panel multiplies use by a
price, so every figure here equals the statement's.
"""

from __future__ import annotations

from collections.abc import Iterator

from grafanalib import core

from dashboards import uids
from dashboards.frame import BOOKS, CLUSTER, Variable, cluster_variable, view
from dashboards.names import metric
from dashboards.panels import Column, Panel, Query, Step, Tile, falling, over_time, rising, stat, table, tiles
from dashboards.queries import each
from dashboards.thresholds import DEFAULT

_NONE = "no lines in this period, or accounting is not scraped here"
_ACCOUNT = f'{CLUSTER}, account=~"$account"'


def _once(name: str, by: str, scope: str = BOOKS) -> str:
    """A figure of the books, once, whoever scrapes it."""
    return f"max by ({by}) ({metric(name)}{{{scope}}})"


_COST = _once("tenant_cost", "account, tenant, sku, currency, period")
_IDLE = _once("idle_cost", "account, sku, currency, period")
_TIME = _once("tenant_charged_card_seconds", "account, tenant, model, period")


def _tiles() -> Iterator[core.Stat]:
    yield from tiles(
        (
            Tile(
                "Charged",
                "To all tenants in view, by currency. Bad: far from the month before.",
                "none",
                f"sum by (currency) ({_COST})",
                legend="{{currency}}",
                decimals=2,
                is_named=True,
            ),
            Tile(
                "Idle",
                "Capacity that nobody held, by currency. Bad: more than is charged.",
                "none",
                f"sum by (currency) ({_IDLE})",
                legend="{{currency}}",
                decimals=2,
                is_named=True,
            ),
            Tile(
                "Card-hours charged",
                "Whole cards times hours. Bad: far from what the fleet has.",
                "none",
                f"sum({_TIME}) / 3600",
                decimals=2,
            ),
            Tile(
                "Invariants broken",
                "Sums of the ledger that disagree. Bad: any.",
                "short",
                f"max({metric('ledger_invariant_violations')}{{{CLUSTER}}})",
                (Step(None, "green"), Step(1, "red")),
            ),
            Tile(
                "Models without a price",
                "Their lines have no amount. Bad: any; the month does not close.",
                "short",
                f"max({metric('unrated_models')}{{{CLUSTER}}})",
                rising(1),
            ),
            Tile(
                "Coverage",
                "Confirmed share of device time. Bad: under 95 %; the month does not close.",
                "percentunit",
                f"min({metric('coverage_ratio')}{{{CLUSTER}}})",
                falling(DEFAULT.coverage_ratio),
            ),
        ),
        empty=_NONE,
    )
    yield stat(
        Panel(
            title="State of the period",
            description="Open figures are provisional, closed ones final. Bad: open long after its month.",
            unit="none",
            empty="no such period",
            place=(0, 4, 24, 3),
            queries=each(_once("period_info", "account, period, state"), "{{account}} {{period}}: {{state}}"),
            steps=(Step(None, "text"),),
        )
    )


def _tables() -> Iterator[core.Table]:
    yield table(
        Panel(
            title="Tenants",
            description="Amounts as on the statements. Bad: a tenant that stands out; ask its statement why.",
            unit="none",
            empty=_NONE,
            place=(0, 7, 12, 10),
            queries=[Query(f"sum by (tenant, currency) ({_COST})")],
        ),
        key=("tenant", "currency"),
        columns=(Column("A", "amount", "none", decimals=2),),
    )
    yield table(
        Panel(
            title="Tenants by SKU",
            description="What the amounts are made of. Bad: energy or idle on top of all.",
            unit="none",
            empty=_NONE,
            place=(12, 7, 12, 10),
            queries=[Query(f"sum by (tenant, sku, currency) ({_COST})")],
        ),
        key=("tenant", "sku", "currency"),
        columns=(Column("A", "amount", "none", decimals=2),),
    )
    yield table(
        Panel(
            title="Card-hours by model",
            description="Charged time of whole cards. Bad: dear models for work that fits smaller ones.",
            unit="none",
            empty=_NONE,
            place=(0, 17, 12, 9),
            queries=[Query(f"sum by (tenant, model) ({_TIME}) / 3600")],
        ),
        key=("tenant", "model"),
        columns=(Column("A", "card-hours", "none", decimals=2),),
    )
    yield table(
        Panel(
            title="Budgets",
            description="Spent share and forecast of the open month. Bad: above 90 %, or a forecast over it.",
            unit="none",
            empty="no budget is set",
            place=(12, 17, 12, 9),
            queries=[
                Query(f"max by (tenant, currency) ({metric('budget_amount')}{{{CLUSTER}}})"),
                Query(f"max by (tenant, currency) ({metric('forecast_cost')}{{{CLUSTER}}})"),
                Query(f"max by (tenant) ({metric('budget_used_ratio')}{{{CLUSTER}}})"),
            ],
        ),
        key=("tenant", "currency"),
        columns=(
            Column("A", "budget", "none", decimals=2),
            Column("B", "forecast", "none", decimals=2),
            Column("C", "spent", "percentunit", cell="gauge"),
        ),
    )
    yield table(
        Panel(
            title="What blocks the close",
            description="Of the next period of each account. Bad: any after its due time.",
            unit="short",
            empty="nothing blocks",
            place=(0, 34, 12, 7),
            queries=[Query(_once("close_blockers", "account, reason", _ACCOUNT) + " > 0")],
        ),
        key=("account", "reason"),
        columns=(Column("A", "blockers", "short"),),
    )
    yield table(
        Panel(
            title="Close is due",
            description="Seconds past the due time; negative before it. Bad: positive.",
            unit="s",
            empty="no open period",
            place=(12, 34, 12, 7),
            queries=[Query(f"time() - {_once('period_close_due_timestamp_seconds', 'account', _ACCOUNT)}")],
        ),
        key=("account",),
        columns=(Column("A", "past due", "s"),),
    )


def _curves() -> Iterator[core.TimeSeries]:
    yield over_time(
        Panel(
            title="Amounts over time",
            description="How the period's figures grew. Bad: a step; a price or a late fact made it.",
            unit="none",
            empty=_NONE,
            place=(0, 26, 12, 8),
            queries=each(f"sum by (tenant, currency) ({_COST})", "{{tenant}} {{currency}}"),
        ),
        stacked=True,
    )
    yield over_time(
        Panel(
            title="Idle over time",
            description="What nobody held. Bad: it grows faster than what is charged.",
            unit="none",
            empty=_NONE,
            place=(12, 26, 12, 8),
            queries=each(f"sum by (account, currency) ({_IDLE})", "{{account}} {{currency}}"),
        ),
        stacked=True,
    )


dashboard = view(
    uid=uids.CHARGEBACK,
    title="Chargeback month",
    description="What each tenant pays in a period, equal to its statement, and how final that is.",
    variables=(
        cluster_variable("period_info"),
        Variable("account", "Account", "account", "period_info", CLUSTER),
        Variable("period", "Period", "period", "period_info", _ACCOUNT, is_multi=False),
    ),
    panels=[*_tiles(), *_tables(), *_curves()],
    time_zone="utc",
    start="now-30d",
    marks="{{account}} {{tenant}}",
)
