"""The tree of tenants: organisation, team, project, and the leaves that keys mean by themselves.

A path begins with its account. Without a rule a slice belongs to the leaf whose code is its tenant key,
made at first sight; so equal keys of two accounts are two tenants, in whatever order their facts arrive.
What the product itself defines, `platform/idle`, `platform/shared` and `unassigned`, is built in.

Invariant: a path names one tenant for ever: a tenant that is moved or renamed goes on under another path
from an instant on, and what was before stays where it was.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, TypeAlias

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.access.audit import record
from accounting.access.viewer import Viewer, tenant_is_visible
from accounting.errors import ConflictError, InvalidError, NotFoundError
from accounting.ledger.tenancy import BUILT_IN, IDLE_PATH, code_of, path_step
from accounting.store.models import BillingAccount, Tenant
from accounting.store.postgresql import lock_making

Kind: TypeAlias = Literal["organisation", "team", "project"]

KINDS: tuple[Kind, ...] = ("organisation", "team", "project")
"""From the top down: nobody stands below a lower kind, and nothing below a project."""

LEAF, BUILTIN = "leaf", "builtin"
MAX_DEPTH = 6
MAX_PATH = 1000
_MAX_CODE = 253


def account_root(account: str) -> str:
    """The path above all tenants of an account."""
    return path_step(account)


class TenantTree:
    """Finds and makes tenants within one writing transaction, each looked up once."""

    def __init__(self, session: Session, *, now_ms: int) -> None:
        self._session = session
        self._now_ms = now_ms
        self._ids: dict[str, int] = {}
        self.unmapped: Collection[str] = ()
        """Paths of leaves that no rule or move leads elsewhere for good."""

    def at(self, path: str, account: str) -> int:
        """The id of the tenant of a path; made, with all above it, when it is new.

        Args:
            path: As its owner has it.
            account: Of a tenant that the product defines, the account that needs it first; else its own.
        """
        known = self._find(path)
        if known is not None:
            return known
        above, slash, _ = path.rpartition("/")
        if path in BUILT_IN:
            return self._add(path, None, BUILTIN, account)
        if not slash:
            return self._add(path, None, "organisation", account)
        parent_id = self.at(above, account)
        # Only a key's own leaf is made at first sight; what lies deeper came along with a move.
        is_leaf = "/" not in above
        return self._add(path, parent_id, LEAF if is_leaf else "project", account)

    def idle(self, platform_account: str) -> int:
        """The id of `platform/idle`, which bears what nobody holds."""
        return self.at(IDLE_PATH, platform_account)

    def _find(self, path: str) -> int | None:
        if path not in self._ids:
            found = self._session.scalar(select(Tenant.id).where(Tenant.path == path))
            if found is None:
                return None
            self._ids[path] = found
        return self._ids[path]

    def _add(self, path: str, parent_id: int | None, kind: str, account: str) -> int:
        lock_making(self._session.connection())
        made_meanwhile = self._find(path)
        if made_meanwhile is not None:
            return made_meanwhile
        tenant = Tenant(
            path=path,
            code=path.rpartition("/")[2] if path in BUILT_IN else code_of(path),
            parent_id=parent_id,
            kind=kind,
            account=account,
            is_unmapped=kind == LEAF and path in self.unmapped,
            created_at_ms=self._now_ms,
        )
        self._session.add(tenant)
        self._session.flush()
        self._ids[path] = tenant.id
        return tenant.id


def add_tenant(session: Session, path: str, *, kind: Kind, by: Viewer, now_ms: int) -> Tenant:
    """Add an organisation, team or project; a leaf that a key made becomes one, with all it has.

    Args:
        session: A writing transaction.
        path: From its account down, as `acme/vision/alpha`; all above it must be there.
        kind: What it is; no higher than what it stands below.
        by: Who adds it.
        now_ms: The clock.

    Raises:
        InvalidError: A path or kind that cannot be.
        NotFoundError: No such account, or no tenant above it.
        ConflictError: It is there already.
    """
    parent, account = _place(session, path, kind)
    found = session.scalar(select(Tenant).where(Tenant.path == path))
    if found is not None and found.kind != LEAF:
        raise ConflictError(f'tenant "{path}" exists already, as {found.kind}')
    if found is not None:
        found.kind, found.is_unmapped = kind, False
    else:
        found = Tenant(
            path=path,
            code=code_of(path),
            parent_id=None if parent is None else parent.id,
            kind=kind,
            account=account,
            is_unmapped=False,
            created_at_ms=now_ms,
        )
        session.add(found)
    session.flush()
    record(session, at_ms=now_ms, by=by, action="tenant add", what=path, after={"kind": kind})
    return found


def _place(session: Session, path: str, kind: Kind) -> tuple[Tenant | None, str]:
    """What a new tenant stands below (None: nothing), and its account."""
    steps = path.split("/")
    if path in BUILT_IN or not all(steps) or len(path) > MAX_PATH or not path.isprintable():
        raise InvalidError(f'tenant "{path}" cannot be; write its path from the account down: acme/vision')
    if len(steps) > MAX_DEPTH or any(len(step) > _MAX_CODE for step in steps):
        raise InvalidError(
            f'tenant "{path}": at most {MAX_DEPTH} steps of at most {_MAX_CODE} characters each'
        )
    if any(path_step(code_of(step)) != step for step in steps):
        raise InvalidError(f'tenant "{path}": write % as %25 and a slash within a step as %2F')
    account = session.get(BillingAccount, code_of(steps[0]))
    if account is None:
        raise NotFoundError(
            f'no account "{steps[0]}", and a path begins with its account; see: slicemeter accounting '
            "account list"
        )
    if len(steps) == 1:
        if kind != "organisation":
            raise InvalidError(f'tenant "{path}" is the root of its account, which is an organisation')
        return None, account.code
    above = path.rpartition("/")[0]
    parent = session.scalar(select(Tenant).where(Tenant.path == above))
    if parent is None and len(steps) == 2:
        root = TenantTree(session, now_ms=account.created_at_ms).at(above, account.code)
        parent = session.get_one(Tenant, root)
    if parent is None:
        raise NotFoundError(
            f'no tenant "{above}" to put "{path}" below; add it first: slicemeter accounting tenant add '
            f"{above} --kind team"
        )
    if not may_hold(parent.kind, kind):
        raise InvalidError(f'"{above}" is a {parent.kind}: a {kind} cannot stand below it')
    return parent, account.code


def may_hold(parent_kind: str, kind: str) -> bool:
    """Whether a tenant of one kind may stand below one of another."""
    if parent_kind not in KINDS or kind == BUILTIN:
        return False
    below = KINDS.index("project" if kind == LEAF else kind)
    return parent_kind != "project" and KINDS.index(parent_kind) <= below


def list_tenants(session: Session, viewer: Viewer) -> Sequence[Tenant]:
    """The tenants that a viewer may see, by path."""
    return session.scalars(select(Tenant).where(tenant_is_visible(viewer)).order_by(Tenant.path)).all()


def find_tenant(session: Session, viewer: Viewer, name: str) -> Tenant:
    """The tenant of this path, or of this code where only one that the viewer may see has it.

    Raises:
        NotFoundError: There is none, or none that the viewer may see.
        InvalidError: Several have this code.
    """
    wanted = name.strip("/")
    visible = select(Tenant).where(tenant_is_visible(viewer))
    exact = session.scalar(visible.where(Tenant.path == wanted))
    if exact is not None:
        return exact
    by_code = session.scalars(visible.where(Tenant.code == wanted).order_by(Tenant.path)).all()
    if len(by_code) > 1:
        paths = ", ".join(tenant.path for tenant in by_code)
        raise InvalidError(f'tenant "{wanted}" is one of several; name its path: {paths}')
    if not by_code:
        raise NotFoundError(
            f'no tenant "{wanted}"; list them with: slicemeter accounting tenant list, or GET /api/v1/tenants'
        )
    return by_code[0]


def is_tenant(session: Session, path: str) -> bool:
    """Whether this path is an account's, a built-in's or a tenant's that facts or rules have named."""
    named = session.scalar(select(Tenant.id).where(Tenant.path == path))
    account = session.scalar(select(BillingAccount.code).where(BillingAccount.code == path))
    return path in BUILT_IN or named is not None or account is not None


def scope_path(session: Session, viewer: Viewer, name: str) -> str:
    """The path of the subtree that a tenant's token may read: a known tenant, or one yet to report.

    A path (`acme/team-a`) may be named before its first fact, if its account is there; a bare code must
    be a tenant's already, since it alone does not say whose.

    Raises:
        NotFoundError: A code that no tenant has, or a path whose account is not registered.
        InvalidError: Several tenants have this code.
    """
    wanted = name.strip("/")
    account, slash, _ = wanted.partition("/")
    registered = session.scalar(select(BillingAccount.code).where(BillingAccount.code == account))
    if registered is not None or wanted in BUILT_IN:
        return wanted
    if slash:
        raise NotFoundError(
            f'no account "{account}", so no tenant "{wanted}"; see: slicemeter accounting account list'
        )
    try:
        return find_tenant(session, viewer, wanted).path
    except NotFoundError as error:
        raise NotFoundError(
            f'no tenant "{wanted}" yet; name its path, as ACCOUNT/{wanted}, or one of: '
            "slicemeter accounting tenant list"
        ) from error
