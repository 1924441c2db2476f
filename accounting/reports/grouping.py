"""What a report may be grouped and narrowed by, and where in the tree of tenants a row belongs.

Invariant: every key splits the same rows, so whatever a report is grouped by, its rows add up to the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer
from accounting.errors import InvalidError
from accounting.ledger.tenancy import is_at_or_below
from accounting.store.models import Tenant
from accounting.store.walls import CARDS, seeing
from accounting.tenants.tree import LEAF, find_tenant, list_tenants

LEVELS = ("organisation", "team", "project")
COST_KEYS = (
    *LEVELS,
    "tenant",
    "account",
    "cluster",
    "namespace",
    "pod",
    "node",
    "device",
    "model",
    "sku",
    "kind",
    "day",
)
USAGE_KEYS = (*LEVELS, "tenant", "cluster", "namespace", "pod", "node", "device", "model")
CAPACITY_KEYS = ("cluster", "node", "device", "model", "day")

MAX_KEYS = 4


def parse_keys(texts: Sequence[str], allowed: Sequence[str]) -> tuple[str, ...]:
    """Read `team,model`, or the same in several parameters.

    Raises:
        InvalidError: A key that the report does not have, one twice, or too many.
    """
    keys = tuple(key for text in texts for key in text.split(",") if key)
    for key in keys:
        if key not in allowed:
            raise InvalidError(f'group_by "{key}" is unknown here; there are {", ".join(allowed)}')
    if len(set(keys)) < len(keys) or len(keys) > MAX_KEYS:
        raise InvalidError(f"group_by takes each key once, and at most {MAX_KEYS}")
    return keys


@dataclass(frozen=True, slots=True)
class Filters:
    """Only what is named; None: everything. A tenant means it and all below it."""

    tenant: str | None = None
    account: str | None = None
    cluster: str | None = None
    namespace: str | None = None
    node: str | None = None
    model: str | None = None
    sku: str | None = None

    def columns(self) -> dict[str, str]:
        """Those that are columns of a line or card, by name."""
        named = {
            "account": self.account,
            "cluster": self.cluster,
            "namespace": self.namespace,
            "node": self.node,
            "model": self.model,
            "sku": self.sku,
        }
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Branches:
    """The tenants that a viewer may see and a filter lets through, and what stands above them."""

    paths: Mapping[int, str]
    """By id."""
    kinds: Mapping[str, str]
    """By path, of all tenants."""
    root: str | None = None
    """What the filter names; None: nothing."""
    _known: dict[tuple[str, str], str] = field(default_factory=dict, compare=False)

    def level(self, path: str, level: str) -> str:
        """The nearest organisation, team or project at or above a tenant; empty: there is none."""
        key = (path, level)
        if key not in self._known:
            self._known[key] = self._find(path, level)
        return self._known[key]

    def _find(self, path: str, level: str) -> str:
        at = path
        while at:
            kind = self.kinds.get(at, "")
            if kind == level or (kind == LEAF and level == "project"):
                return at
            at = at.rpartition("/")[0]
        return ""


def read_branches(session: Session, viewer: Viewer, tenant: str | None = None) -> Branches:
    """The tenants that a report of a viewer speaks of.

    Args:
        session: A reading transaction.
        viewer: Who asks.
        tenant: Only this one and all below it: a path, or a code that only one tenant has.

    Raises:
        NotFoundError: No such tenant, or none that the viewer may see.
        InvalidError: Several tenants have the code.
    """
    root = None if tenant is None else find_tenant(session, viewer, tenant).path
    paths = {
        one.id: one.path
        for one in list_tenants(session, viewer)
        if root is None or is_at_or_below(one.path, root)
    }
    # What stands above a viewer's tenants is in their paths; only its kind is read beside.
    with seeing(session, CARDS):
        kinds = {row.path: row.kind for row in session.execute(select(Tenant.path, Tenant.kind))}
    return Branches(paths, kinds, root)
