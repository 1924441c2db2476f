"""The tree of tenants, the rules and moves that lead to it, and what one more would change, as documents."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer
from accounting.ledger.calendar import at_text
from accounting.ledger.rounding import card_hours, to_currency
from accounting.ledger.tenancy import ANYTHING, BUILT_IN
from accounting.periods.whatif import Bill, Change, Foretold, PassedOn, Passing
from accounting.reports.documents import Document, instant, money, shown
from accounting.reports.paging import EVERYTHING, Asked, page_of
from accounting.store.models import Tenant, TenantMove, TenantRule
from accounting.tenants.rules import list_rules, live_tenancy, read_labels
from accounting.tenants.touched import known_claims
from accounting.tenants.tree import BUILTIN, KINDS, LEAF, list_tenants

_BUILT_IN_WHY = {
    "platform/idle": "built in: what nobody holds",
    "platform/shared": "built in: what nobody can be named for, and what a rule leads here",
    "unassigned": "built in: what has no tenant key",
}


def tenants_document(session: Session, viewer: Viewer, asked: Asked = EVERYTHING) -> Document:
    """The tenants that a viewer may see, each below the one above it."""
    tenants = list_tenants(session, viewer)
    page = page_of(tenants, lambda tenant: (tenant.path,), asked)
    return {
        "rows": [tenant_document(tenant) for tenant in page.rows],
        "next": page.next,
        "totals": {
            "tenants": len(tenants),
            "unmapped": sum(1 for tenant in tenants if tenant.is_unmapped),
        },
        "reconciliation": {
            kind: sum(1 for tenant in tenants if tenant.kind == kind) for kind in (*KINDS, LEAF, BUILTIN)
        },
    }


def tenant_document(tenant: Tenant) -> Document:
    """A node of the tree, and why it is there if nobody put it there."""
    return {
        "path": tenant.path,
        "code": tenant.code,
        "kind": tenant.kind,
        "account": tenant.account,
        "unmapped": tenant.is_unmapped,
        "why": why(tenant),
        "first_seen_at": at_text(tenant.created_at_ms),
    }


def why(tenant: Tenant) -> str | None:
    """Why a tenant is there that nobody added."""
    if tenant.path in BUILT_IN:
        return _BUILT_IN_WHY[tenant.path]
    if tenant.kind != LEAF:
        return None
    if tenant.is_unmapped:
        return f'UNMAPPED: tenant key "{tenant.code}" matches no rule for good'
    return f'tenant key "{tenant.code}" came here before a rule or move led it elsewhere'


def rule_document(row: TenantRule, path: str | None) -> Document:
    """One version of a rule; what it does not ask for is null."""
    return {
        "rule": row.id,
        "priority": row.priority,
        "cluster": _asked(row.cluster),
        "tenant_key": _asked(row.tenant_key),
        "namespace": _asked(row.namespace),
        "labels": read_labels(row.labels),
        "tenant": path,
        "withdrawn": path is None,
        "from": at_text(row.valid_from_ms),
        "to": instant(row.valid_to_ms),
        "recorded_at": at_text(row.recorded_at_ms),
        "recorded_by": row.recorded_by,
        "supersedes": row.supersedes_id,
        "superseded_at": instant(row.superseded_at_ms),
        "reason": row.reason,
    }


def _asked(glob: str) -> str | None:
    return None if glob == ANYTHING else glob


def rules_document(session: Session, asked: Asked = EVERYTHING) -> Document:
    """Every version of every rule; of the live ones whether anything that was ever reported matches."""
    claims = known_claims(session)
    live = {rule.id: rule for rule in live_tenancy(session).rules}
    versions = list_rules(session)
    page = page_of(versions, lambda one: (one[0].priority, one[0].id), asked)
    rows = []
    for row, path in page.rows:
        rule = live.get(row.id)
        matches = None if rule is None else any(rule.matches(claim) for claim in claims)
        rows.append(rule_document(row, path) | {"live": rule is not None, "matches": matches})
    totals: Document = {"versions": len(versions), "live": len(live)}
    return {"rows": rows, "next": page.next, "totals": totals, "reconciliation": dict(totals)}


def move_document(row: TenantMove, from_path: str, to_path: str | None) -> Document:
    """One version of a move."""
    return {
        "move": row.id,
        "tenant": from_path,
        "now": to_path,
        "withdrawn": to_path is None,
        "from": at_text(row.valid_from_ms),
        "to": instant(row.valid_to_ms),
        "recorded_at": at_text(row.recorded_at_ms),
        "recorded_by": row.recorded_by,
        "supersedes": row.supersedes_id,
        "superseded_at": instant(row.superseded_at_ms),
        "reason": row.reason,
    }


def moves_document(
    moves: Sequence[tuple[TenantMove, str, str | None]], asked: Asked = EVERYTHING
) -> Document:
    """Every version of every move."""
    page = page_of(moves, lambda one: (one[0].id,), asked)
    live = sum(1 for move, _, to in moves if move.superseded_at_ms is None and to is not None)
    return {
        "rows": [move_document(*one) for one in page.rows],
        "next": page.next,
        "totals": {"versions": len(moves)},
        "reconciliation": {"versions": len(moves), "live": live},
    }


def foretold_document(told: Foretold) -> Document:
    """What would change in the open months, by tenant and from whom to whom."""
    currencies = {one.key.account: one.currency for one in told.changes}
    return {
        "saved": False,
        "as_of": instant(told.as_of_ms),
        "cards": told.cards,
        "changes": [_change(one) for one in told.changes],
        "passed_on": [
            _passed_on(key, how_much, currencies) for key, how_much in sorted(told.passings.items())
        ],
        "closed": [{"account": account, "period": period} for account, period in told.closed],
        "reconciliation": {
            "difference_ppm_ms": sum(_ppm_ms(one) for one in told.changes),
            "passed_on_ppm_ms": sum(one.after.charged_ppm_ms for one in told.passings.values()),
        },
    }


def _ppm_ms(change: Change) -> int:
    return change.would.charged_ppm_ms - change.stands.charged_ppm_ms


def _change(change: Change) -> Document:
    difference = change.would.amount - change.stands.amount
    return {
        "tenant": change.key.tenant,
        "account": change.key.account,
        "period": change.key.period,
        "currency": change.currency,
        "stands": _bill(change.stands, change.currency),
        "would": _bill(change.would, change.currency),
        "difference": {
            "ppm_ms": _ppm_ms(change),
            "card_hours": str(card_hours(_ppm_ms(change))),
            "energy_mj": change.would.energy_mj - change.stands.energy_mj,
            "amount": None if change.currency is None else money(difference),
        },
        "unrated_models": sorted(change.would.unrated_models),
    }


def _bill(bill: Bill, currency: str | None) -> Document:
    return {
        "ppm_ms": bill.charged_ppm_ms,
        "card_hours": str(card_hours(bill.charged_ppm_ms)),
        "energy_mj": bill.energy_mj,
        "amount": None if currency is None else money(bill.amount),
        "shown": None if currency is None else shown(to_currency(bill.amount, currency)),
    }


def _passed_on(key: PassedOn, how_much: Passing, currencies: dict[str, str | None]) -> Document:
    return {
        "period": key.period,
        "from": key.from_tenant,
        "to": key.to_tenant,
        "containers": len(how_much.containers),
        "ppm_ms": how_much.after.charged_ppm_ms,
        "card_hours": str(card_hours(how_much.after.charged_ppm_ms)),
        "energy_mj": how_much.after.energy_mj,
        "from_currency": currencies.get(key.from_account),
        "from_amount": _paid(how_much.before, currencies.get(key.from_account)),
        "to_currency": currencies.get(key.to_account),
        "to_amount": _paid(how_much.after, currencies.get(key.to_account)),
    }


def _paid(bill: Bill, currency: str | None) -> str | None:
    return None if currency is None else money(bill.amount)
