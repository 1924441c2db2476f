"""The tree of tenants: who a slice's time belongs to, and who may be asked about.

Without a rule a slice belongs to the leaf whose code is its tenant key, made at first sight under the
account of the cluster: `ACCOUNT/KEY`. So equal keys of two accounts are two tenants, in whatever order
their facts arrive. What the product itself defines, `platform/idle`, `platform/shared` and `unassigned`,
is built in.

Invariant: a path names one tenant for ever, and depends on nothing but account and key.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer, tenant_is_visible
from accounting.errors import InvalidError, NotFoundError
from accounting.store.models import BillingAccount, Tenant

IDLE_PATH = "platform/idle"
SHARED_PATH = "platform/shared"
UNASSIGNED_PATH = "unassigned"
BUILT_IN = frozenset({IDLE_PATH, SHARED_PATH, UNASSIGNED_PATH})


def account_root(account: str) -> str:
    """The path above all tenants that an account's keys mean."""
    return _segment(account)


def leaf_path(account: str, tenant_key: str) -> str:
    """The path of the tenant that a key means when no rule says otherwise."""
    if not tenant_key:
        return UNASSIGNED_PATH
    path = f"{_segment(account)}/{_segment(tenant_key)}"
    return f"{path}~" if path in BUILT_IN else path


def _segment(code: str) -> str:
    """A code as one step of a path: a slash in it must not open a new level."""
    return code.replace("%", "%25").replace("/", "%2F")


class TenantTree:
    """Finds and makes tenants within one writing transaction, each looked up once."""

    def __init__(self, session: Session, *, now_ms: int) -> None:
        self._session = session
        self._now_ms = now_ms
        self._ids: dict[str, int] = {}

    def leaf(self, account: str, tenant_key: str) -> int:
        """The id of the tenant of a key in an account; made when it is new."""
        if not tenant_key:
            return self._built_in(UNASSIGNED_PATH, account)
        path = leaf_path(account, tenant_key)
        known = self._find(path)
        if known is not None:
            return known
        root = self._find(_segment(account))
        if root is None:
            root = self._add(_segment(account), account, None, "node", account, is_unmapped=False)
        return self._add(path, tenant_key, root, "leaf", account, is_unmapped=True)

    def idle(self, platform_account: str) -> int:
        """The id of `platform/idle`, which bears what nobody holds."""
        return self._built_in(IDLE_PATH, platform_account)

    def bearer(self, account: str, path: str, tenant_key: str | None) -> int:
        """The id of who bears a line: the leaf of a key, or (None) a built-in path in its account."""
        return self._built_in(path, account) if tenant_key is None else self.leaf(account, tenant_key)

    def _built_in(self, path: str, account: str) -> int:
        known = self._find(path)
        if known is not None:
            return known
        return self._add(path, path.rpartition("/")[2], None, "builtin", account, is_unmapped=False)

    def _find(self, path: str) -> int | None:
        if path not in self._ids:
            found = self._session.scalar(select(Tenant.id).where(Tenant.path == path))
            if found is None:
                return None
            self._ids[path] = found
        return self._ids[path]

    def _add(
        self, path: str, code: str, parent_id: int | None, kind: str, account: str, *, is_unmapped: bool
    ) -> int:
        tenant = Tenant(
            path=path,
            code=code,
            parent_id=parent_id,
            kind=kind,
            account=account,
            is_unmapped=is_unmapped,
            created_at_ms=self._now_ms,
        )
        self._session.add(tenant)
        self._session.flush()
        self._ids[path] = tenant.id
        return tenant.id


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
