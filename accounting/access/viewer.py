"""Who asks, and the one place where a query is narrowed to what they may see.

Invariant: every query whose answer reaches a person goes through `tenant_is_visible`, and in a transaction
of the viewer's `scope`. What a viewer may not see looks like what does not exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVarTuple

from sqlalchemy import ColumnElement, Select, false, func, or_, true

from accounting.store.models import Tenant
from accounting.store.walls import EVERYTHING, NOBODY, Scope

Role: TypeAlias = Literal["reporter", "tenant", "operator", "admin"]

ROLES: tuple[Role, ...] = ("reporter", "tenant", "operator", "admin")
READERS: tuple[Role, ...] = ("tenant", "operator", "admin")

Columns = TypeVarTuple("Columns")


@dataclass(frozen=True, slots=True)
class Viewer:
    """What a token's bearer is.

    Attributes:
        name: For the audit log: `token:` and the token's prefix, or who runs the command.
        role: Its one role.
        cluster: A reporter's cluster.
        node_uid: A node exporter's node; None for a reporter of the whole cluster.
        tenant_path: The root of the subtree that a tenant's token may read.
    """

    name: str
    role: Role
    cluster: str | None = None
    node_uid: str | None = None
    tenant_path: str | None = None

    @property
    def sees_everything(self) -> bool:
        """Whether no query is narrowed for it."""
        return self.role in {"operator", "admin"}

    @property
    def scope(self) -> Scope:
        """What the database lets its transactions see: the second wall."""
        if self.sees_everything:
            return EVERYTHING
        if self.role == "reporter" and self.cluster:
            return Scope("cluster", self.cluster)
        if self.role == "tenant" and self.tenant_path:
            return Scope("tenant", self.tenant_path)
        return NOBODY


COMMAND_LINE = Viewer(name="command line", role="admin")
"""Whoever can open the database file by hand may do everything anyway."""


def is_at_or_below(path: str) -> ColumnElement[bool]:
    """The condition on `Tenant` rows of one node of the tree and all that lies below it."""
    below = f"{path}/"
    # Not LIKE: SQLite's takes a tenant "Team" for the tenant "team".
    return or_(Tenant.path == path, func.substr(Tenant.path, 1, len(below)) == below)


def tenant_is_visible(viewer: Viewer) -> ColumnElement[bool]:
    """The condition on `Tenant` rows that a viewer may see: its own node and what lies below."""
    if viewer.sees_everything:
        return true()
    if viewer.role != "tenant" or not viewer.tenant_path:
        return false()
    return is_at_or_below(viewer.tenant_path)


def only_visible(statement: Select[*Columns], viewer: Viewer) -> Select[*Columns]:
    """Narrow a query that selects from, or joins, `Tenant` to what the viewer may see."""
    return statement.where(tenant_is_visible(viewer))
