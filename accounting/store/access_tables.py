"""Tables of access: tokens and sessions by their hashes, answers for retries, and the log of changes."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from accounting.store.base import Base, Ms, Name, OptionalMs, Word, one_of


class ApiToken(Base):
    """A bearer token, known only by its hash, with the one thing that it may do."""

    __tablename__ = "api_token"
    __table_args__ = (
        UniqueConstraint("prefix"),
        one_of("role", "reporter", "tenant", "operator", "admin"),
        CheckConstraint("(role = 'reporter') = (cluster IS NOT NULL)", name="reporter_has_cluster"),
        CheckConstraint("(role = 'tenant') = (tenant_path IS NOT NULL)", name="tenant_has_path"),
        CheckConstraint("node_uid IS NULL OR role = 'reporter'", name="node_is_reporter"),
    )

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    prefix: Mapped[Word]
    sha256: Mapped[str] = mapped_column(String(64))
    role: Mapped[Word]
    cluster: Mapped[str | None] = mapped_column(String(63), ForeignKey("cluster.code"))
    node_uid: Mapped[str | None]
    tenant_path: Mapped[str | None] = mapped_column(String(1000))
    """The root of the subtree that may be read; the tenant may appear later than its token."""
    note: Mapped[Name]
    created_at_ms: Mapped[Ms]
    expires_at_ms: Mapped[OptionalMs]
    revoked_at_ms: Mapped[OptionalMs]


class WebSession(Base):
    """A person who signed in to the web page, known by the hash of the cookie.

    What it may do is the token's, looked up each time, or what the provider's groups said at the sign-in.
    """

    __tablename__ = "web_session"
    __table_args__ = (
        one_of("role", "tenant", "operator", "admin"),
        CheckConstraint(
            "(token_prefix IS NULL) = (person IS NOT NULL) AND (person IS NULL) = (role IS NULL)",
            name="token_or_person",
        ),
        CheckConstraint(
            "(tenant_path IS NOT NULL) = (role IS NOT NULL AND role = 'tenant')", name="tenant_has_path"
        ),
        Index(None, "expires_at_ms"),
    )

    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    token_prefix: Mapped[str | None] = mapped_column(String(32), ForeignKey("api_token.prefix"))
    person: Mapped[str | None]
    """Who the provider says it is, as the audit log names them."""
    role: Mapped[str | None] = mapped_column(String(32))
    tenant_path: Mapped[str | None] = mapped_column(String(1000))
    began_at_ms: Mapped[Ms]
    seen_at_ms: Mapped[Ms]
    """The latest request, to within a few minutes."""
    expires_at_ms: Mapped[Ms]


class ClusterTrust(Base):
    """By which keys and names exporters of a cluster sign in with their projected ServiceAccount tokens."""

    __tablename__ = "cluster_trust"
    __table_args__ = (
        CheckConstraint("node_exporter <> cluster_exporter", name="two_accounts"),
        Index(None, "issuer"),
    )

    cluster: Mapped[str] = mapped_column(String(63), ForeignKey("cluster.code"), primary_key=True)
    issuer: Mapped[str] = mapped_column(String(500))
    """The `iss` of its tokens; clusters may share it."""
    audience: Mapped[str] = mapped_column(String(500))
    jwks: Mapped[str] = mapped_column(Text)
    """Its public keys, as its API server publishes them."""
    node_exporter: Mapped[str] = mapped_column(String(320))
    """`namespace/name` of the ServiceAccount whose tokens speak for their own node."""
    cluster_exporter: Mapped[str] = mapped_column(String(320))
    """`namespace/name` of the one whose tokens speak for the whole cluster."""
    trusted_at_ms: Mapped[Ms]
    trusted_by: Mapped[Name]


class AuditLog(Base):
    """Who changed what; a trigger refuses updates and deletes."""

    __tablename__ = "audit_log"

    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    at_ms: Mapped[Ms]
    actor: Mapped[Name]
    action: Mapped[Word]
    object: Mapped[str] = mapped_column(String(1000))
    after: Mapped[str] = mapped_column(Text)
    """JSON of what the object is now; empty when it is gone."""


class KeptAnswer(Base):
    """What a request with an idempotency key was answered, written in the transaction that obeyed it."""

    __tablename__ = "kept_answer"
    __table_args__ = (Index(None, "answered_at_ms"),)

    asked_by: Mapped[Name] = mapped_column(primary_key=True)
    idempotency_key: Mapped[Name] = mapped_column(primary_key=True)
    request_sha256: Mapped[str] = mapped_column(String(64))
    """Of method, path and body: the key belongs to this request alone."""
    status: Mapped[int]
    answer: Mapped[str] = mapped_column(Text)
    answered_at_ms: Mapped[Ms]
