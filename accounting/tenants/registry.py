"""Accounts and clusters: registered by a person before the first fact arrives.

Invariant: a code, once given, names the same account or cluster for ever, since it is part of every key.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.access.audit import record
from accounting.access.viewer import Viewer
from accounting.errors import ConflictError, InvalidError, NotFoundError
from accounting.ledger.tenancy import BUILT_IN
from accounting.store.models import BillingAccount, Cluster

_CODE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_ISSUER = re.compile(r"[A-Z0-9]([-A-Z0-9]{0,18}[A-Z0-9])?")
_CURRENCY = re.compile(r"[A-Z]{3}")
MAX_GRACE_DAYS = 60


def add_account(
    session: Session,
    code: str,
    *,
    kind: Literal["tenant", "platform"],
    currency: str | None,
    time_zone: str,
    grace_days: int,
    by: Viewer,
    now_ms: int,
) -> BillingAccount:
    """Register who gets a statement.

    Args:
        session: A writing transaction.
        code: Lower-case letters, digits and dashes.
        kind: `platform` bears idle capacity.
        currency: ISO 4217; None makes a showback account, with statements in card-hours.
        time_zone: IANA name; months and days are cut at its midnights.
        grace_days: How long after its end a period waits for late facts.
        by: Who registers it.
        now_ms: The clock.

    Raises:
        InvalidError: A code, currency, zone or number that cannot be.
        ConflictError: The code is taken.
    """
    _require_code("account", code)
    if code in BUILT_IN:
        # Whoever may read this account would read what no account's tenant could be found for.
        raise InvalidError(f'account "{code}": the product keeps that name for itself; choose another')
    if currency is not None and not _CURRENCY.fullmatch(currency):
        raise InvalidError(f'currency "{currency}": three capital letters, as EUR; leave it out for showback')
    try:
        ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidError(f'time zone "{time_zone}" is not known; name one as Europe/Berlin') from None
    if not 0 <= grace_days <= MAX_GRACE_DAYS:
        raise InvalidError(f"{grace_days} days of grace; it lies in 0 to {MAX_GRACE_DAYS}")
    if session.get(BillingAccount, code) is not None:
        raise ConflictError(f'account "{code}" exists already')
    account = BillingAccount(
        code=code,
        kind=kind,
        currency=currency,
        time_zone=time_zone,
        grace_days=grace_days,
        created_at_ms=now_ms,
    )
    session.add(account)
    after = {"kind": kind, "currency": currency, "time_zone": time_zone, "grace_days": grace_days}
    record(session, at_ms=now_ms, by=by, action="account add", what=code, after=after)
    return account


def set_issuer(session: Session, code: str, issuer: str, *, by: Viewer, now_ms: int) -> BillingAccount:
    """Let an account's statements bear the numbers of an issuer from now on; issued ones keep theirs.

    Args:
        session: A writing transaction.
        code: The account.
        issuer: Capital letters, digits and dashes; accounts may share one, and then share its numbers.
        by: Who sets it.
        now_ms: The clock.

    Raises:
        InvalidError: An issuer that cannot be.
        NotFoundError: No such account.
    """
    if not _ISSUER.fullmatch(issuer):
        raise InvalidError(
            f'issuer "{issuer}": up to 20 capital letters, digits and dashes, as SM; numbers read SM-000001'
        )
    account = session.get(BillingAccount, code)
    if account is None:
        raise NotFoundError(f'no account "{code}"; list them with: slicemeter accounting account list')
    before, account.issuer = account.issuer, issuer
    after: dict[str, str | int | bool | None] = {"issuer": issuer, "before": before}
    record(session, at_ms=now_ms, by=by, action="account issuer", what=code, after=after)
    return account


def add_cluster(
    session: Session, code: str, *, account: str, platform_account: str, by: Viewer, now_ms: int
) -> Cluster:
    """Register a cluster that will report.

    Args:
        session: A writing transaction.
        code: As in the exporters' configuration and in every fact.
        account: Who pays for tenants that are seen for the first time.
        platform_account: Who bears idle capacity; an account of kind `platform`.
        by: Who registers it.
        now_ms: The clock.

    Raises:
        InvalidError: A code that cannot be, or an account of the wrong kind.
        NotFoundError: An account is not registered.
        ConflictError: The code is taken.
    """
    _require_code("cluster", code)
    for named in (account, platform_account):
        if session.get(BillingAccount, named) is None:
            raise NotFoundError(
                f'no account "{named}"; register it with: slicemeter accounting account add {named}'
            )
    if session.get_one(BillingAccount, platform_account).kind != "platform":
        raise InvalidError(f'account "{platform_account}" is not of kind platform; name one that is')
    if session.get(Cluster, code) is not None:
        raise ConflictError(f'cluster "{code}" exists already')
    cluster = Cluster(code=code, account=account, platform_account=platform_account, created_at_ms=now_ms)
    session.add(cluster)
    after = {"account": account, "platform_account": platform_account}
    record(session, at_ms=now_ms, by=by, action="cluster add", what=code, after=after)
    return cluster


def list_accounts(session: Session) -> Sequence[BillingAccount]:
    """Every account, by code."""
    return session.scalars(select(BillingAccount).order_by(BillingAccount.code)).all()


def list_clusters(session: Session) -> Sequence[Cluster]:
    """Every cluster, by code."""
    return session.scalars(select(Cluster).order_by(Cluster.code)).all()


def _require_code(thing: str, code: str) -> None:
    if not _CODE.fullmatch(code):
        raise InvalidError(
            f'{thing} "{code}": up to 63 lower-case letters, digits and dashes, as in a Kubernetes label'
        )
