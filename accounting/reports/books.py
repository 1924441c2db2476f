"""Prices, periods and what verify found, as JSON documents."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer, tenant_is_visible
from accounting.ledger.calendar import at_text, month_of
from accounting.periods.months import list_periods
from accounting.periods.rate import Rated
from accounting.periods.verify import Verified
from accounting.prices.book import list_versions
from accounting.prices.policies import list_policies
from accounting.reports.documents import Document, instant, money
from accounting.reports.paging import EVERYTHING, Asked, page_of
from accounting.store.models import (
    BillingAccount,
    LedgerLine,
    PolicyVersion,
    PriceVersion,
    Tenant,
    TenantDiscount,
)
from accounting.tenants.tree import list_tenants


def price_document(version: PriceVersion) -> Document:
    """One version of a price."""
    return {
        "version": version.id,
        "book": version.book,
        "sku": version.sku,
        "model": version.model or None,
        "currency": version.currency,
        "unit": version.unit,
        "unit_price": money(version.unit_price),
        "from": at_text(version.valid_from_ms),
        "to": instant(version.valid_to_ms),
        "recorded_at": at_text(version.recorded_at_ms),
        "supersedes": version.supersedes_id,
        "superseded_at": instant(version.superseded_at_ms),
        "reason": version.reason,
    }


def discount_document(tenant: str, version: TenantDiscount) -> Document:
    """One version of a tenant's discount."""
    return {
        "version": version.id,
        "book": version.book,
        "tenant": tenant,
        "percent": money(version.percent),
        "from": at_text(version.valid_from_ms),
        "to": instant(version.valid_to_ms),
        "recorded_at": at_text(version.recorded_at_ms),
        "supersedes": version.supersedes_id,
        "superseded_at": instant(version.superseded_at_ms),
        "reason": version.reason,
    }


def discounts_document(versions: Sequence[tuple[str, TenantDiscount]], asked: Asked = EVERYTHING) -> Document:
    """Every version of every tenant's discount."""
    page = page_of(versions, lambda one: (one[1].id,), asked)
    superseded = sum(1 for _, version in versions if version.superseded_at_ms is not None)
    return {
        "rows": [discount_document(path, version) for path, version in page.rows],
        "next": page.next,
        "totals": {"versions": len(versions)},
        "reconciliation": {"superseded": superseded, "live": len(versions) - superseded},
    }


def policy_document(version: PolicyVersion) -> Document:
    """One version of a policy."""
    return {
        "version": version.id,
        "kind": version.kind,
        "value": version.value,
        "from": at_text(version.valid_from_ms),
        "to": instant(version.valid_to_ms),
        "recorded_at": at_text(version.recorded_at_ms),
        "supersedes": version.supersedes_id,
        "superseded_at": instant(version.superseded_at_ms),
        "reason": version.reason,
    }


def policies_document(session: Session, asked: Asked = EVERYTHING) -> Document:
    """Every version of every policy: they hold for all tenants alike, so every reader may see them."""
    versions = list_policies(session)
    page = page_of(versions, lambda version: (version.id,), asked)
    return {
        "rows": [policy_document(version) for version in page.rows],
        "next": page.next,
        "totals": {"versions": len(versions)},
        "reconciliation": _live(versions),
    }


def _live(versions: Sequence[PriceVersion] | Sequence[PolicyVersion]) -> Document:
    """How many of all versions count."""
    superseded = sum(1 for version in versions if version.superseded_at_ms is not None)
    return {"versions": len(versions), "superseded": superseded, "live": len(versions) - superseded}


def prices_document(session: Session, viewer: Viewer, asked: Asked = EVERYTHING) -> Document:
    """Every version for an operator; for a tenant those that its own lines name."""
    versions = list_versions(session)
    if not viewer.sees_everything:
        named = set(
            session.scalars(
                select(LedgerLine.price_version_id)
                .join(Tenant, Tenant.id == LedgerLine.tenant_id)
                .where(tenant_is_visible(viewer), LedgerLine.price_version_id.is_not(None))
                .distinct()
            )
        )
        versions = [version for version in versions if version.id in named]
    page = page_of(versions, lambda version: (version.id,), asked)
    return {
        "rows": [price_document(version) for version in page.rows],
        "next": page.next,
        "totals": {"versions": len(versions)},
        "reconciliation": _live(versions),
    }


def visible_accounts(session: Session, viewer: Viewer) -> dict[str, BillingAccount]:
    """The accounts that a viewer's tenants are billed in, by code."""
    query = select(BillingAccount).order_by(BillingAccount.code)
    if not viewer.sees_everything:
        codes = {tenant.account for tenant in list_tenants(session, viewer)}
        query = query.where(BillingAccount.code.in_(codes))
    return {account.code: account for account in session.scalars(query)}


def periods_document(session: Session, viewer: Viewer, asked: Asked = EVERYTHING) -> Document:
    """The periods of the accounts of a viewer's tenants."""
    accounts = visible_accounts(session, viewer)
    periods = list_periods(session, sorted(accounts))
    page = page_of(periods, lambda period: (period.account, period.starts_at_ms), asked)
    return {
        "rows": [
            {
                "account": period.account,
                "period": str(month_of(period.starts_at_ms, accounts[period.account].time_zone)),
                "time_zone": accounts[period.account].time_zone,
                "currency": accounts[period.account].currency,
                "from": at_text(period.starts_at_ms),
                "to": at_text(period.ends_at_ms),
                "state": period.state,
                "as_of": instant(period.as_of_ms),
                "ingest_watermark": period.ingest_watermark,
                "override_reason": period.override_reason,
                "sha256": period.sha256,
                "closed_at": instant(period.closed_at_ms),
                "closed_by": period.closed_by,
            }
            for period in page.rows
        ],
        "next": page.next,
        "totals": {"periods": len(periods)},
        "reconciliation": {
            state: sum(1 for period in periods if period.state == state)
            for state in ("open", "closing", "closed")
        },
    }


def rated_document(rated: Rated) -> Document:
    """What a rating did."""
    return {
        "as_of": instant(rated.as_of_ms),
        "days": rated.days,
        "lines": rated.lines,
        "unknown_devices": [
            "/".join((key.cluster, key.node_uid, key.device_uuid)) for key in rated.unknown_devices
        ],
    }


def verified_document(verified: Verified) -> Document:
    """What was checked and what failed."""
    return {
        "period": verified.period,
        "holds": verified.holds,
        "empty": verified.is_empty,
        "as_of": instant(verified.as_of_ms),
        "checked": {
            "device_hours": verified.device_hours,
            "lines": verified.lines,
            "statements": verified.statements,
            "days_recomputed": verified.days_recomputed,
        },
        "findings": [
            {"check": finding.check, "subject": finding.subject, "detail": finding.detail}
            for finding in verified.findings
        ],
        "pending": [*verified.pending, *verified.late],
        "unrated_models": list(verified.unrated_models),
    }
