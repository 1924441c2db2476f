"""What should be registered, as one file: accounts, clusters, and whose keys are trusted.

Invariant: asked again it does nothing more, so an installation may ask each time. What is registered already
is never changed silently: a file that says otherwise is refused, but for keys, which clusters rotate.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from sqlalchemy.orm import Session

from accounting.access.service_accounts import Trust
from accounting.access.trust import (
    DEFAULT_AUDIENCE,
    DEFAULT_CLUSTER_EXPORTER,
    DEFAULT_NODE_EXPORTER,
    trust_cluster,
    trusts,
)
from accounting.access.viewer import Viewer
from accounting.errors import ConflictError, InvalidError
from accounting.store.models import BillingAccount, Cluster
from accounting.tenants.registry import add_account, add_cluster


class _Part(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Keys are written as in the chart's values; an unknown one is refused."""


class AccountPart(_Part, frozen=True):
    """An account, as `account add` takes it."""

    code: str
    kind: Literal["tenant", "platform"] = "tenant"
    currency: str | None = None
    time_zone: str = "UTC"
    grace_days: int = 3


class TrustPart(_Part, frozen=True):
    """A cluster's keys, as `cluster trust` takes them; `jwks` is the JSON text itself."""

    issuer: str
    jwks: str
    audience: str = DEFAULT_AUDIENCE
    node_exporter: str = DEFAULT_NODE_EXPORTER
    cluster_exporter: str = DEFAULT_CLUSTER_EXPORTER


class ClusterPart(_Part, frozen=True):
    """A cluster, as `cluster add` takes it, and its keys."""

    code: str
    account: str
    platform_account: str
    trust: TrustPart | None = None


class Registration(_Part, frozen=True):
    """The whole file."""

    accounts: tuple[AccountPart, ...] = ()
    clusters: tuple[ClusterPart, ...] = ()


def read_registration(text: bytes, place: str) -> Registration:
    """Read a file's JSON.

    Args:
        text: What the file holds.
        place: Its name, for the message.

    Raises:
        InvalidError: It is no JSON, or has keys or types that cannot be.
    """
    try:
        return msgspec.json.decode(text, type=Registration)
    except msgspec.MsgspecError as error:
        raise InvalidError(f"{place}: {error}; see: slicemeter accounting cluster register --help") from None


def register(session: Session, wanted: Registration, *, by: Viewer, now_ms: int) -> list[str]:
    """Add what is not there yet, and trust keys that changed; returns what was done, in words.

    Raises:
        InvalidError: A code, currency, zone or key that cannot be.
        NotFoundError: A cluster names an account that is neither registered nor in the file.
        ConflictError: What is registered differs from the file, or a key is another cluster's.
    """
    done = [
        f"account {account.code} added"
        for account in wanted.accounts
        if _account(session, account, by=by, now_ms=now_ms)
    ]
    known = {each.cluster: each for each in trusts(session)}
    for cluster in wanted.clusters:
        if _cluster(session, cluster, by=by, now_ms=now_ms):
            done.append(f"cluster {cluster.code} added")
        if cluster.trust is not None:
            trust = _trust(cluster.code, cluster.trust)
            if known.get(cluster.code) != trust:
                session.flush()
                trust_cluster(session, trust, by=by, now_ms=now_ms)
                done.append(f"cluster {cluster.code}: keys trusted")
    return done


def _account(session: Session, wanted: AccountPart, *, by: Viewer, now_ms: int) -> bool:
    there = session.get(BillingAccount, wanted.code)
    if there is None:
        add_account(
            session,
            wanted.code,
            kind=wanted.kind,
            currency=wanted.currency,
            time_zone=wanted.time_zone,
            grace_days=wanted.grace_days,
            by=by,
            now_ms=now_ms,
        )
        session.flush()
        return True
    for what in ("kind", "currency", "time_zone", "grace_days"):
        _same(f'account "{wanted.code}"', what, getattr(there, what), getattr(wanted, what))
    return False


def _cluster(session: Session, wanted: ClusterPart, *, by: Viewer, now_ms: int) -> bool:
    there = session.get(Cluster, wanted.code)
    if there is None:
        add_cluster(
            session,
            wanted.code,
            account=wanted.account,
            platform_account=wanted.platform_account,
            by=by,
            now_ms=now_ms,
        )
        session.flush()
        return True
    for what in ("account", "platform_account"):
        _same(f'cluster "{wanted.code}"', what, getattr(there, what), getattr(wanted, what))
    return False


def _same(thing: str, what: str, there: object, wanted: object) -> None:
    if there != wanted:
        name = what.replace("_", " ")
        raise ConflictError(
            f"{thing}: its {name} is {there}, the file says {wanted}; a file changes nothing that is there, "
            "so write what is"
        )


def _trust(code: str, wanted: TrustPart) -> Trust:
    return Trust(
        cluster=code,
        issuer=wanted.issuer,
        audience=wanted.audience,
        jwks=wanted.jwks,
        node_exporter=wanted.node_exporter,
        cluster_exporter=wanted.cluster_exporter,
    )
