from __future__ import annotations

import pytest
from sqlalchemy import select

from accounting.access.viewer import Viewer, only_visible
from accounting.store.database import Database
from accounting.store.models import BillingAccount, Tenant

PATHS = [
    "acme",
    "acme/team-a",
    "acme/team-a/project",
    "acme/team-ab",
    "acme/team_a",
    "acme/Team-A/x",
    "other",
    "other/team-a",
]


@pytest.fixture(autouse=True)
def _tree(database: Database) -> None:
    with database.writing() as session:
        session.add(
            BillingAccount(
                code="acme", kind="tenant", time_zone="UTC", currency="EUR", grace_days=3, created_at_ms=0
            )
        )
        session.flush()
        for path in PATHS:
            tenant = Tenant(
                path=path, code=path.rpartition("/")[2], kind="leaf", account="acme", is_unmapped=False,
                created_at_ms=0,
            )  # fmt: skip
            session.add(tenant)


def seen(database: Database, viewer: Viewer) -> list[str]:
    with database.reading() as session:
        return list(session.scalars(only_visible(select(Tenant.path), viewer).order_by(Tenant.path)))


@pytest.mark.parametrize(
    ("path", "visible"),
    [
        (
            "acme",
            ["acme", "acme/Team-A/x", "acme/team-a", "acme/team-a/project", "acme/team-ab", "acme/team_a"],
        ),
        ("acme/team-a", ["acme/team-a", "acme/team-a/project"]),
        ("acme/team_a", ["acme/team_a"]),
        ("acme/team-a/project", ["acme/team-a/project"]),
        ("acme/%", []),
        ("%", []),
        ("acm", []),
        ("nobody", []),
    ],
)
def test_a_tenant_sees_its_own_node_and_what_lies_below(
    database: Database, path: str, visible: list[str]
) -> None:
    assert seen(database, Viewer("t", "tenant", tenant_path=path)) == visible


@pytest.mark.parametrize("role", ["operator", "admin"])
def test_operators_and_admins_see_all(database: Database, role: str) -> None:
    assert seen(database, Viewer("o", role)) == sorted(PATHS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "viewer",
    [
        Viewer("r", "reporter", cluster="a"),
        Viewer("t", "tenant", tenant_path=None),
        Viewer("t", "tenant", tenant_path=""),
    ],
)
def test_a_reporter_and_a_tenant_without_a_tenant_see_nothing(database: Database, viewer: Viewer) -> None:
    assert seen(database, viewer) == []
