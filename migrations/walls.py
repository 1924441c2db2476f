"""Row-level security in the words of a migration: what each table lets through, and to whom.

A migration that makes a table says here who sees its rows, in the same revision; without that a test
fails. Invariant: these texts never change, since revisions that ran used them; another wall is another name.
What the settings mean: `accounting.store.walls`.
"""

from __future__ import annotations

from typing import TypeAlias

from alembic import op

from accounting.store.postgresql import sort_text_by_bytes

SEES = "(SELECT current_setting('slicemeter.viewer', true))"
"""Sub-selects: the setting is read once for each query, not for each row."""

OF = "(SELECT current_setting('slicemeter.viewer_of', true))"

EVERYTHING = f"{SEES} = 'everything'"
CARDS = f"{SEES} = 'cards'"
SIGN_IN = f"{SEES} = 'sign-in'"
ANYBODY = f"{SEES} IN ('everything', 'tenant', 'cards', 'cluster', 'sign-in')"
OF_THE_CLUSTER = f"{SEES} = 'cluster' AND cluster = {OF}"
OF_THE_TENANT = f"{SEES} = 'tenant' AND tenant_id = ANY (ARRAY(SELECT id FROM tenant))"  # noqa: S608
"""Of a row with a `tenant_id`: the sub-select sees the viewer's own tenants only."""

OF_THE_TENANTS_ACCOUNT = f"{SEES} = 'tenant' AND account = ANY (ARRAY(SELECT code FROM billing_account))"  # noqa: S608

Readers: TypeAlias = dict[str, str]
"""Name of a policy to the condition under which a row may be read."""


def wall_off(table: str, *, read: Readers | None = None, write: Readers | None = None) -> None:
    """Close a table to all but whoever sees everything, and open it by conditions; nothing on SQLite.

    Args:
        table: A table of this schema; its partitions need walls of their own.
        read: Who else may read which rows.
        write: Who else may read, make, change and delete which rows.
    """
    if op.get_bind().dialect.name != "postgresql":
        return
    # PostgreSQL alters no column that a policy speaks of.
    sort_text_by_bytes(op.get_bind())
    op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY everything ON {table} USING ({EVERYTHING})")
    for name, condition in (read or {}).items():
        op.execute(f"CREATE POLICY {name} ON {table} FOR SELECT USING ({condition})")
    for name, condition in (write or {}).items():
        op.execute(f"CREATE POLICY {name} ON {table} USING ({condition})")


def open_again(table: str, *policies: str) -> None:
    """Take the walls of a table away, by the names of their policies besides `everything`."""
    if op.get_bind().dialect.name != "postgresql":
        return
    for name in ("everything", *policies):
        op.execute(f"DROP POLICY {name} ON {table}")
    op.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY, DISABLE ROW LEVEL SECURITY")
