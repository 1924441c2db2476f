"""Which clusters' keys are trusted: registered by a person, replaced when a cluster rotates its own.

Invariant: of two trusted clusters that share issuer and audience no two share a key, so a token is of one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.access.audit import record
from accounting.access.service_accounts import MAX_JWKS, Trust, key_identities, read_keys
from accounting.access.viewer import Viewer
from accounting.errors import ConflictError, InvalidError, NotFoundError
from accounting.store.models import Cluster, ClusterTrust

DEFAULT_AUDIENCE = "slicemeter-accounting"
DEFAULT_NODE_EXPORTER = "slicemeter/slicemeter-node"
DEFAULT_CLUSTER_EXPORTER = "slicemeter/slicemeter-cluster"

_MAX_TEXT = 500
_ACCOUNT = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def trust_cluster(session: Session, trust: Trust, *, by: Viewer, now_ms: int) -> None:
    """Let exporters of a cluster sign in with tokens of that cluster, from now on by these keys alone.

    Raises:
        InvalidError: Keys, names or addresses that cannot be.
        NotFoundError: The cluster is not registered.
        ConflictError: Another cluster has one of these keys.
    """
    if session.get(Cluster, trust.cluster) is None:
        raise NotFoundError(
            f'no cluster "{trust.cluster}"; register it with: slicemeter accounting cluster add'
        )
    _require(trust)
    mine = key_identities(trust.jwks)
    for other in trusts(session):
        same = (other.issuer, other.audience) == (trust.issuer, trust.audience)
        if same and other.cluster != trust.cluster and mine & key_identities(other.jwks):
            raise ConflictError(
                f'cluster "{other.cluster}" has one of these keys, this issuer and audience already: nobody '
                "could say whose a token is; name another --audience, in the exporters' projected token too"
            )
    row = session.get(ClusterTrust, trust.cluster) or ClusterTrust(cluster=trust.cluster)
    row.issuer, row.audience, row.jwks = trust.issuer, trust.audience, trust.jwks
    row.node_exporter, row.cluster_exporter = trust.node_exporter, trust.cluster_exporter
    row.trusted_at_ms, row.trusted_by = now_ms, by.name
    session.add(row)
    after = {
        "issuer": trust.issuer, "audience": trust.audience, "node_exporter": trust.node_exporter,
        "cluster_exporter": trust.cluster_exporter, "keys": ", ".join(key_names(trust)),
    }  # fmt: skip
    record(session, at_ms=now_ms, by=by, action="cluster trust", what=trust.cluster, after=after)


def distrust_cluster(session: Session, cluster: str, *, by: Viewer, now_ms: int) -> None:
    """Refuse a cluster's own tokens from now on; static tokens stay as they are.

    Raises:
        NotFoundError: Its keys are not registered.
    """
    row = session.get(ClusterTrust, cluster)
    if row is None:
        raise NotFoundError(
            f'no keys of cluster "{cluster}" are trusted; see: slicemeter accounting cluster list'
        )
    session.delete(row)
    record(session, at_ms=now_ms, by=by, action="cluster distrust", what=cluster, after={})


def trusts(session: Session) -> Sequence[Trust]:
    """The clusters whose keys are trusted, by code."""
    rows = session.scalars(select(ClusterTrust).order_by(ClusterTrust.cluster))
    return [
        Trust(row.cluster, row.issuer, row.audience, row.jwks, row.node_exporter, row.cluster_exporter)
        for row in rows
    ]


def key_names(trust: Trust) -> list[str]:
    """What the cluster calls its keys."""
    return [str(key.key_id or "without a name") for key in read_keys(trust.jwks)]


def _require(trust: Trust) -> None:
    for option, text in (("--issuer", trust.issuer), ("--audience", trust.audience)):
        if not text.strip() or len(text) > _MAX_TEXT or not text.isprintable():
            raise InvalidError(f"{option}: one line of at most {_MAX_TEXT} printable characters")
    for option, account in (
        ("--node-exporter", trust.node_exporter),
        ("--cluster-exporter", trust.cluster_exporter),
    ):
        if not _ACCOUNT.fullmatch(account):
            raise InvalidError(f'{option} "{account}": write NAMESPACE/NAME of a ServiceAccount')
    if trust.node_exporter == trust.cluster_exporter:
        raise InvalidError(
            "the node and the cluster exporter need a ServiceAccount each (--node-exporter, "
            "--cluster-exporter): one that speaks for the whole cluster would speak for every node"
        )
    if len(trust.jwks) > MAX_JWKS:
        raise InvalidError(f"--jwks: at most {MAX_JWKS} characters")
    read_keys(trust.jwks)
