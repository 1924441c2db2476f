"""Row-level security, PostgreSQL's second wall: what a transaction says of its viewer, and who keeps it.

Every transaction of `Database` says whom it is for in two settings that end with it: `slicemeter.viewer`
(a word of `Sees`) and `slicemeter.viewer_of` (a tenant's path, a cluster's code, a token's prefix). The
policies that the migrations made let through what belongs to that viewer. Invariant: a connection that
says nothing sees no row, neither through a table nor through a partition's own name.

What a tenant pays depends on its neighbours on the card, so some reads need more than the tenant's rows:
they stand in a `seeing` block, read-only, and what leaves it is cut by what the tenant's own scope shows.
SQLite has no policies; there the settings are not made. Source: `reference/ledger.md §8`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, SessionTransaction

Sees: TypeAlias = Literal["", "everything", "tenant", "cards", "cluster", "sign-in"]


@dataclass(frozen=True, slots=True)
class Scope:
    """What a transaction may see.

    Attributes:
        sees: `everything`: operators, administrators, the command line, the rating. `tenant`: the rows of
            a subtree. `cards`: facts and hours of whole cards and what rates them, but no ledger, no
            statement, no token. `cluster`: what an exporter of that cluster writes. `sign-in`: the one
            token, or the keys of the clusters. Empty: nothing.
        of: The subtree's path, the cluster's code, or the token's prefix.
    """

    sees: Sees
    of: str = ""


NOBODY = Scope("")
EVERYTHING = Scope("everything")
CARDS = Scope("cards")

_SCOPE = "slicemeter_scope"
_DECLARE = text(
    "SELECT set_config('slicemeter.viewer', :sees, true), set_config('slicemeter.viewer_of', :of, true)"
)
_DECLARE_FOR_GOOD = text("SELECT set_config('slicemeter.viewer', 'everything', false)")
_POLICIES = text(
    "SELECT policyname, cmd, qual, with_check FROM pg_policies "
    "WHERE schemaname = current_schema() AND tablename = :table ORDER BY policyname"
)


def scope_info(scope: Scope) -> dict[str, Scope]:
    """What a session carries so that each of its transactions declares the scope."""
    return {_SCOPE: scope}


def declare(session: Session, _transaction: SessionTransaction, connection: Connection) -> None:
    """Tell the database at the begin of a transaction whom it is for; a listener of `after_begin`."""
    scope = _scope_of(session)
    connection.execute(_DECLARE, {"sees": scope.sees, "of": scope.of})


def see_everything(connection: Connection) -> None:
    """Let a migration's connection see every row for as long as it lives."""
    connection.execute(_DECLARE_FOR_GOOD)


@contextmanager
def seeing(session: Session, scope: Scope) -> Iterator[None]:
    """Read more than the viewer's own rows for the length of a block.

    Whoever opens one cuts what leaves it by what the viewer sees outside of it. Whoever sees everything
    already goes on doing so.
    """
    before = _scope_of(session)
    if before == EVERYTHING:
        yield
        return
    _change(session, scope)
    try:
        yield
    except DBAPIError:
        session.info[_SCOPE] = before  # the transaction is lost, and the setting with it
        raise
    except BaseException:
        _change(session, before)
        raise
    _change(session, before)


def _change(session: Session, scope: Scope) -> None:
    session.flush()
    session.info[_SCOPE] = scope
    connection = session.connection()
    if connection.dialect.name == "postgresql":
        connection.execute(_DECLARE, {"sees": scope.sees, "of": scope.of})


def _scope_of(session: Session) -> Scope:
    scope = session.info.get(_SCOPE, NOBODY)
    assert isinstance(scope, Scope)
    return scope


def wall_like(connection: Connection, table: str, model: str) -> None:
    """Give a partition the policies of its table, since its own name would lead past them.

    Args:
        connection: PostgreSQL, as the tables' owner.
        table: The partition, a name of ours.
        model: The table whose policies it gets.
    """
    connection.execute(text(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY"))
    for name, command, using, check in connection.execute(_POLICIES, {"table": model}).all():
        clauses = [f"USING ({using})"] if using is not None else []
        clauses += [f"WITH CHECK ({check})"] if check is not None else []
        connection.exec_driver_sql(
            f"CREATE POLICY {name} ON {table} FOR {command} {' '.join(clauses)}".replace("%", "%%")
        )
