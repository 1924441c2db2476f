"""Bearer tokens: made once, shown once, kept as a hash.

A token reads `smt_<prefix>_<secret>`; the prefix finds its row, the SHA-256 of the whole proves it. 256
random bits need no slow hash. Invariant: no secret is ever stored, logged, or part of an error.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.access.audit import record
from accounting.access.refusal import TokenRefusedError
from accounting.access.viewer import COMMAND_LINE, ROLES, Role, Viewer
from accounting.errors import ConflictError, InvalidError, NotFoundError
from accounting.store.models import ApiToken, Cluster
from contract.units import MS_PER_DAY

MAX_LIFE_MS = 3_650 * MS_PER_DAY

_MAX_TEXT = 253
_TOKEN = re.compile(r"smt_([0-9a-f]{12})_([0-9a-f]{64})")


def new_token() -> str:
    """A random token."""
    return f"smt_{secrets.token_hex(6)}_{secrets.token_hex(32)}"


def _is_plain(text: str) -> bool:
    """Whether a column can hold it and a terminal show it."""
    return len(text) <= _MAX_TEXT and text.isprintable()


def _sha256(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def create_token(
    session: Session,
    *,
    role: Role,
    by: Viewer,
    now_ms: int,
    cluster: str | None = None,
    node_uid: str | None = None,
    tenant_path: str | None = None,
    note: str = "",
    expires_at_ms: int | None = None,
    token: str | None = None,
) -> str:
    """Make a token and return it; it cannot be read again.

    Args:
        session: A writing transaction.
        role: What its bearer may do.
        by: Who makes it.
        now_ms: The clock.
        cluster: A reporter's cluster; for no other role.
        node_uid: Only facts of this node; for a reporter.
        tenant_path: The root of the subtree to read; for a tenant.
        note: What it is for, for the list.
        expires_at_ms: None: never.
        token: One that exists already, out of a file, instead of a random one.

    Raises:
        InvalidError: A scope that the role does not have, or lacks; a given token of the wrong form.
        NotFoundError: The cluster is not registered.
        ConflictError: A given token exists already.
    """
    if (role == "reporter") != (cluster is not None):
        raise InvalidError("a reporter's token needs a cluster (--cluster CODE), and no other role has one")
    if (role == "tenant") != (tenant_path is not None):
        raise InvalidError("a tenant's token needs a tenant (--tenant PATH), and no other role has one")
    if node_uid is not None and role != "reporter":
        raise InvalidError("only a reporter's token is bound to a node (--node-uid)")
    if node_uid is not None and not (node_uid.strip() and _is_plain(node_uid)):
        raise InvalidError("a node's UID is not empty (--node-uid); kubectl shows it as metadata.uid")
    if not _is_plain(note):
        raise InvalidError(f"a token's note has at most {_MAX_TEXT} printable characters (--note)")
    if expires_at_ms is not None and not now_ms < expires_at_ms <= now_ms + MAX_LIFE_MS:
        raise InvalidError("a token expires within ten years from now (--days 1 to 3650), or never")
    if cluster is not None and session.get(Cluster, cluster) is None:
        raise NotFoundError(
            f'no cluster "{cluster}"; register it with: slicemeter accounting cluster add {cluster}'
        )
    made = new_token() if token is None else token
    match = _TOKEN.fullmatch(made)
    if match is None:
        raise InvalidError("a token reads smt_, 12 hex digits, _, 64 hex digits")
    prefix = match[1]
    if session.scalar(select(ApiToken.id).where(ApiToken.prefix == prefix)) is not None:
        raise ConflictError(f"a token smt_{prefix}_… exists already")
    session.add(
        ApiToken(
            prefix=prefix,
            sha256=_sha256(made),
            role=role,
            cluster=cluster,
            node_uid=node_uid,
            tenant_path=None if tenant_path is None else tenant_path.strip("/"),
            note=note,
            created_at_ms=now_ms,
            expires_at_ms=expires_at_ms,
        )
    )
    scope = {"role": role, "cluster": cluster, "node_uid": node_uid, "tenant": tenant_path}
    record(session, at_ms=now_ms, by=by, action="token create", what=prefix, after=scope)
    return made


def ensure_admin(session: Session, token: str, *, now_ms: int) -> bool:
    """Make the first administrator's token out of what an operator put into a file.

    Returns:
        Whether it was made; a token that is known already stays as it is, revoked ones too.

    Raises:
        InvalidError: It does not look like a token, or its prefix belongs to another.
    """
    match = _TOKEN.fullmatch(token)
    if match is None:
        raise InvalidError(
            "an administrator's token reads smt_, 12 hex digits, _, 64 hex digits; make them with: "
            "openssl rand -hex 6; openssl rand -hex 32"
        )
    row = session.scalar(select(ApiToken).where(ApiToken.prefix == match[1]))
    if row is not None and row.role == "admin" and hmac.compare_digest(row.sha256, _sha256(token)):
        return False
    create_token(session, role="admin", by=COMMAND_LINE, now_ms=now_ms, note="from a file", token=token)
    return True


def prefix_of(token: str) -> str | None:
    """The part of a token that is no secret; None: it is no token of ours."""
    match = _TOKEN.fullmatch(token)
    return None if match is None else match[1]


def authenticate(session: Session, token: str, *, now_ms: int) -> Viewer:
    """Who bears this token.

    Raises:
        TokenRefusedError: Nobody.
    """
    prefix = prefix_of(token)
    if prefix is None:
        raise TokenRefusedError
    row = session.scalar(select(ApiToken).where(ApiToken.prefix == prefix))
    if row is None or not hmac.compare_digest(row.sha256, _sha256(token)):
        raise TokenRefusedError
    return _viewer_of(row, now_ms=now_ms)


def viewer_of_prefix(session: Session, prefix: str, *, now_ms: int) -> Viewer:
    """Who has the token of a prefix: for a session that was begun with it.

    Raises:
        TokenRefusedError: It is good no more.
    """
    row = session.scalar(select(ApiToken).where(ApiToken.prefix == prefix))
    if row is None:
        raise TokenRefusedError
    return _viewer_of(row, now_ms=now_ms)


def _viewer_of(row: ApiToken, *, now_ms: int) -> Viewer:
    if row.revoked_at_ms is not None or (row.expires_at_ms is not None and row.expires_at_ms <= now_ms):
        raise TokenRefusedError
    role = next(known for known in ROLES if known == row.role)
    return Viewer(f"token:{row.prefix}", role, row.cluster, row.node_uid, row.tenant_path)


def list_tokens(session: Session) -> Sequence[ApiToken]:
    """Every token, oldest first, without its secret."""
    return session.scalars(select(ApiToken).order_by(ApiToken.id)).all()


def revoke_token(session: Session, prefix: str, *, by: Viewer, now_ms: int) -> None:
    """Make a token useless from now on.

    Raises:
        NotFoundError: No token has this prefix.
        ConflictError: It was revoked before.
    """
    prefix = prefix.removeprefix("smt_").partition("_")[0]
    row = session.scalar(select(ApiToken).where(ApiToken.prefix == prefix))
    if row is None:
        raise NotFoundError(f'no token "{prefix}"; list them with: slicemeter accounting token list')
    if row.revoked_at_ms is not None:
        raise ConflictError(f'token "{prefix}" was revoked before')
    row.revoked_at_ms = now_ms
    record(session, at_ms=now_ms, by=by, action="token revoke", what=prefix, after={})
