"""What accounting says of its books: gaps, models without a price, late closes, budgets."""

from __future__ import annotations

from dashboards import uids
from dashboards.names import metric, once
from dashboards.rules.rule import Alert
from dashboards.thresholds import Thresholds

LINK = uids.alert_link(uids.CHARGEBACK)
PIPELINE_LINK = uids.alert_link(uids.PIPELINE)


def gap(limits: Thresholds) -> Alert:
    """Device time that nobody confirmed, more than a close allows."""
    return Alert(
        name="SlicemeterLedgerGap",
        expr=f"min by (cluster) ({metric('coverage_ratio')}) < {limits.coverage_ratio}",
        hold="1h",
        severity="warning",
        summary="Part of a cluster's device time is confirmed by nobody",
        description=(
            "Only {{ $value | humanizePercentage }} of the device time of cluster {{ $labels.cluster }} is "
            "confirmed: its month will not close without an override."
        ),
        dashboard=PIPELINE_LINK,
    )


def ledger_alerts(limits: Thresholds) -> tuple[Alert, ...]:
    """Unrated models, late closes, broken identities, budgets."""
    due = once("period_close_due_timestamp_seconds", "cluster, account")
    return (
        Alert(
            name="SlicemeterUnratedModel",
            expr=f"{once('unrated_models', 'cluster')} > 0",
            hold="1h",
            severity="warning",
            summary="GPU models in use have no price",
            description=(
                "{{ $value }} GPU model(s) have use and no price: their lines have no amount, and the month "
                "does not close. See: slicemeter accounting close PERIOD --check."
            ),
            dashboard=LINK,
        ),
        Alert(
            name="SlicemeterCloseLate",
            expr=f"time() - {due} > {limits.close_late_seconds}",
            hold="1h",
            severity="warning",
            summary="A month that should be closed is still open",
            description=(
                "The period of account {{ $labels.account }} was due to close "
                "{{ $value | humanizeDuration }} ago. What blocks it: slicemeter accounting close PERIOD "
                "--check."
            ),
            dashboard=LINK,
        ),
        Alert(
            name="SlicemeterReconciliationBroken",
            expr=f"{once('ledger_invariant_violations', 'cluster')} > 0",
            hold="5m",
            severity="critical",
            summary="The ledger's sums do not agree",
            description=(
                "{{ $value }} identity(ies) of the ledger are violated: close nothing, and run: slicemeter "
                "accounting verify PERIOD."
            ),
            dashboard=LINK,
        ),
        Alert(
            name="SlicemeterBudgetNearlyUsed",
            expr=f"{once('budget_used_ratio', 'cluster, tenant')} > {limits.budget_ratio}",
            hold="15m",
            severity="warning",
            summary="A tenant's budget is nearly used up",
            description=(
                "Tenant {{ $labels.tenant }} has spent {{ $value | humanizePercentage }} of its budget."
            ),
            tenant_text="{{ $value | humanizePercentage }} of your GPU budget is spent.",
            dashboard=LINK,
        ),
    )
