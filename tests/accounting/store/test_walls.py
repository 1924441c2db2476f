"""Row-level security, table by table, on two rows of each: one that is mine and one that is foreign.

The rows are made out of the catalogue, so that a table which comes later is held to the same.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import text

from accounting.access.viewer import Viewer
from accounting.ledger.calendar import Month
from accounting.store.database import Database
from accounting.store.errors import StoreError
from accounting.store.partitions import drain, make_ahead, retire
from accounting.store.roles import grant_service, is_behind_walls
from accounting.store.walls import CARDS, EVERYTHING, NOBODY, Scope, seeing
from tests.accounting.postgresql import MIGRATOR, OWNER, SERVICE, Server

pytestmark = pytest.mark.postgresql

OCTOBER = 1_790_812_800_000
NOW = 1_793_000_000_000

WITHOUT_WALLS = {"alembic_version"}
"""Tables without a policy: they hold nobody's rows. Anything else needs `migrations.walls.wall_off`."""

NOBODYS_ROWS = {"price_book", "price_version", "policy_version", "rating_state"}
"""Tables that every viewer may read whole: lists that hold for all alike."""

OF_A_TENANT = {
    "tenant", "ledger_line", "sealed_use", "billing_account", "billing_period", "statement", "correction",
    "budget", "budget_crossing", "rollup_day",
}  # fmt: skip
"""Tables of which a tenant sees its own rows."""

OF_A_CLUSTER = {
    "allocation_report", "presence_report", "node_state", "usage_fact", "unallocated_fact", "device_fact",
    "node", "exporter_source", "quarantine", "rating_mark", "cluster",
}  # fmt: skip
"""Tables that a reporter reads and writes for its own cluster."""

OF_CARDS = {
    "allocation_report", "presence_report", "node_state", "usage_fact", "unallocated_fact", "device_fact",
    "tenant", "billing_account", "cluster", "device_hour", "device_energy", "tenant_discount", "tenant_rule",
    "tenant_move", "rollup_hour",
}  # fmt: skip
"""Tables that are read whole to sweep a card."""

MINE, FOREIGN = "mine", "foreign"
Owners: TypeAlias = dict[str, set[str]]

RELATIONS = """
    SELECT c.relname, coalesce(parent.relname, c.relname) FROM pg_class c
    LEFT JOIN pg_inherits ON inhrelid = c.oid LEFT JOIN pg_class parent ON parent.oid = inhparent
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') ORDER BY c.relname
"""
COLUMNS = """
    SELECT attname, format_type(atttypid, NULL),
           CASE WHEN atttypmod > 4 AND atttypid = 'varchar'::regtype THEN atttypmod - 4 END
    FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""


@pytest.fixture(scope="module")
def name(postgresql: Server, migrated_database: str) -> Iterator[str]:
    """A database with a partition of October 2026, and in each table and partition a row of each owner."""
    with postgresql.database(migrated_database) as made:
        owner = Database(postgresql.url(made, MIGRATOR))
        with owner.writing() as session:
            make_ahead(session, now_ms=NOW)
        owner.close()
        with psycopg.connect(postgresql.url(made, OWNER), autocommit=True) as connection:
            # Neither keys nor checks nor triggers: the rows are about whose they are, nothing else.
            connection.execute("SET session_replication_role = replica")
            checks = connection.execute(
                "SELECT conrelid::regclass::text, conname FROM pg_constraint WHERE contype = 'c' "
                "AND connamespace = 'public'::regnamespace AND conparentid = 0 AND coninhcount = 0"
            ).fetchall()
            for table, check in checks:
                connection.execute(f"ALTER TABLE {table} DROP CONSTRAINT {check}".encode())
            connection.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {SERVICE}".encode())
            for relation, table in relations(connection):
                if relation == table and table not in WITHOUT_WALLS:
                    connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))
                    for begin in (0, OCTOBER):
                        fill(connection, table, MINE, begin + 1)
                        fill(connection, table, FOREIGN, begin + 2)
        yield made


def relations(connection: psycopg.Connection[tuple[object, ...]]) -> list[tuple[str, str]]:
    """Every table and partition, and the table that it is part of."""
    return [(str(one), str(table)) for one, table in connection.execute(RELATIONS).fetchall()]


def fill(connection: psycopg.Connection[tuple[object, ...]], table: str, owner: str, number: int) -> None:
    """Insert a row whose texts all say whose it is, and whose ids all have its number."""
    names, values = [], []
    for column, kind, length in connection.execute(COLUMNS, [table]).fetchall():
        names.append(sql.Identifier(str(column)))
        is_text = kind in {"character varying", "text"}
        value = owner if is_text else "\\x00" if kind == "bytea" else str(number)
        if kind == "uuid":
            value = f"00000000-0000-0000-0000-{number:012x}"
        if kind == "boolean":
            value = "true"
        if column == "id" or str(column).endswith("_id"):
            value = value if kind == "uuid" or is_text else str(number % 10)
        values.append(value[: int(str(length))] if is_text and length else value)
    statement = sql.SQL("INSERT INTO {} ({}) VALUES ({}) ON CONFLICT DO NOTHING").format(
        sql.Identifier(table), sql.SQL(", ").join(names), sql.SQL(", ").join(map(sql.Literal, values))
    )
    connection.execute(statement)


@contextmanager
def connected(
    postgresql: Server, name: str, user: str, scope: Scope | None
) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with psycopg.connect(postgresql.url(name, user)) as connection:
        if scope is not None:
            settings = [("slicemeter.viewer", scope.sees), ("slicemeter.viewer_of", scope.of)]
            for setting in settings:
                connection.execute("SELECT set_config(%s, %s, true)", setting)
        yield connection
        connection.rollback()


def seen(postgresql: Server, name: str, scope: Scope | None, user: str = SERVICE) -> Owners:
    """By table and partition: whose rows there are."""
    found: Owners = {}
    with connected(postgresql, name, user, scope) as connection:
        for relation, table in relations(connection):
            if table in WITHOUT_WALLS:
                continue
            rows = connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(relation))).fetchall()
            owners = {owner for row in rows for owner in (MINE, FOREIGN) if belongs(row, owner)}
            if rows:
                found[relation] = owners
    return found


def belongs(row: tuple[object, ...], owner: str) -> bool:
    """Tables without a text tell their rows by the number."""
    texts = [value for value in row if isinstance(value, str) and len(value) > 3]
    number = 1 if owner == MINE else 2
    return owner in texts if texts else any(value == number for value in row)


def of(owners: Owners, tables: set[str], whose: set[str]) -> Owners:
    """What would be seen of these tables and their partitions."""
    return {
        relation: whose
        for relation in owners
        if relation in tables or any(relation.startswith(f"{table}_p2") for table in tables)
        or any(relation == f"{table}_default" for table in tables)
    }  # fmt: skip


def test_every_table_and_partition_has_walls_or_holds_nobodys_rows(postgresql: Server, name: str) -> None:
    with psycopg.connect(postgresql.url(name, OWNER)) as connection:
        open_ones = {
            str(table)
            for (table,) in connection.execute(
                "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace "
                "AND relkind IN ('r', 'p') AND NOT (relrowsecurity AND relforcerowsecurity "
                "AND EXISTS (SELECT 1 FROM pg_policy "
                "WHERE polrelid = pg_class.oid AND polname = 'everything'))"
            )
        }
    assert open_ones == WITHOUT_WALLS, (
        "a table without row-level security: say in its migration who sees its rows, with "
        "migrations.walls.wall_off, and add it here to OF_A_TENANT, OF_A_CLUSTER or OF_CARDS if it is opened"
    )


@pytest.mark.parametrize("user", [SERVICE, MIGRATOR])
@pytest.mark.parametrize("scope", [None, NOBODY, Scope("tenant"), Scope("tenant", "min"), Scope("cluster")])
def test_a_connection_that_names_no_viewer_sees_no_row_through_table_or_partition(
    postgresql: Server, name: str, user: str, scope: Scope | None
) -> None:
    allowed = NOBODYS_ROWS if scope and scope.sees else set()
    if scope and scope.sees == "cluster":
        allowed = allowed | {"ingest_counter"}
    assert set(seen(postgresql, name, scope, user)) - allowed == set()


def test_whoever_sees_everything_sees_every_row(postgresql: Server, name: str) -> None:
    everything = seen(postgresql, name, EVERYTHING)
    assert everything == seen(postgresql, name, None, OWNER)
    assert {"usage_fact_default", "usage_fact_p202610", "ledger_line", "api_token"} <= set(everything)
    assert all(owners == {MINE, FOREIGN} for owners in everything.values()), everything


def test_a_tenant_sees_its_own_rows_and_what_is_nobodys(postgresql: Server, name: str) -> None:
    everything = seen(postgresql, name, EVERYTHING)
    expected = of(everything, OF_A_TENANT, {MINE}) | of(everything, NOBODYS_ROWS, {MINE, FOREIGN})
    assert seen(postgresql, name, Scope("tenant", MINE)) == expected


def test_a_reporter_sees_its_own_cluster(postgresql: Server, name: str) -> None:
    everything = seen(postgresql, name, EVERYTHING)
    expected = of(everything, OF_A_CLUSTER, {MINE}) | of(
        everything, NOBODYS_ROWS | {"ingest_counter"}, {MINE, FOREIGN}
    )
    assert seen(postgresql, name, Scope("cluster", MINE)) == expected


def test_a_card_is_swept_without_ledger_statements_tokens_or_log(postgresql: Server, name: str) -> None:
    everything = seen(postgresql, name, EVERYTHING)
    assert seen(postgresql, name, CARDS) == of(everything, OF_CARDS | NOBODYS_ROWS, {MINE, FOREIGN})


def test_who_signs_in_sees_the_one_token_of_that_prefix_and_the_one_session_of_that_cookie(
    postgresql: Server, name: str
) -> None:
    found = seen(postgresql, name, Scope("sign-in", MINE))
    assert found.pop("api_token") == {MINE}
    assert found.pop("web_session") == {MINE}
    assert set(found) - NOBODYS_ROWS <= {"cluster_trust"}


@pytest.mark.parametrize("scope", [Scope("tenant", MINE), CARDS, Scope("sign-in", MINE), None])
def test_whoever_only_reads_can_change_delete_and_insert_nothing(
    postgresql: Server, name: str, scope: Scope | None
) -> None:
    with connected(postgresql, name, SERVICE, scope) as connection:
        for relation, table in relations(connection):
            if table in WITHOUT_WALLS:
                continue
            column = sql.Identifier(str(connection.execute(COLUMNS, [relation]).fetchall()[0][0]))
            where = {"table": sql.Identifier(relation), "column": column}
            for statement in ("UPDATE {table} SET {column} = {column}", "DELETE FROM {table}"):
                assert connection.execute(sql.SQL(statement).format(**where)).rowcount == 0, relation
            with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                fill(connection, relation, MINE, 7)


def test_a_reporter_writes_no_row_of_another_cluster(postgresql: Server, name: str) -> None:
    scope = Scope("cluster", MINE)
    with connected(postgresql, name, SERVICE, scope) as connection:
        for relation, table in relations(connection):
            if table in OF_A_CLUSTER:
                changed = connection.execute(
                    sql.SQL("UPDATE {0} SET {1} = {1} WHERE {1} = 'foreign'").format(
                        sql.Identifier(relation), sql.Identifier("code" if table == "cluster" else "cluster")
                    )
                )
                assert changed.rowcount == 0
                with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                    fill(connection, relation, FOREIGN, 7)


def policies(postgresql: Server, name: str, table: str) -> list[tuple[object, ...]]:
    with psycopg.connect(postgresql.url(name, OWNER)) as connection:
        return connection.execute(
            "SELECT policyname, permissive, roles::text, cmd, qual, with_check FROM pg_policies "
            "WHERE tablename = %s ORDER BY policyname", [table],
        ).fetchall()  # fmt: skip


def test_partitions_that_are_made_drained_and_retired_have_the_walls_of_their_table(
    postgresql: Server, migrated_database: str
) -> None:
    with postgresql.database(migrated_database) as made:
        owner = Database(postgresql.url(made, MIGRATOR))
        september = OCTOBER - 3_600_000
        with owner.writing() as session:
            session.execute(
                text(f"INSERT INTO device_fact VALUES ('a', {september}, 'n', 'G', 'e', 0, 0, 0, 0, 0, 1, "
                     f"{september}, {september} + 1, 0, 1)")
            )  # fmt: skip
            make_ahead(session, now_ms=NOW)
            drain(session)
            retire(session, Month(2026, 10), now_ms=OCTOBER + 401 * 86_400_000)
        owner.close()
        wanted = policies(postgresql, made, "device_fact")
        assert len(wanted) == 3
        for part in ("device_fact_default", "device_fact_p202610", "device_fact_p202609_retired"):
            assert policies(postgresql, made, part) == wanted
        with connected(postgresql, made, MIGRATOR, None) as connection:
            assert connection.execute("SELECT * FROM device_fact_p202609_retired").fetchall() == []


def test_more_than_the_viewers_rows_are_seen_inside_a_block_only_and_never_written(
    postgresql: Server, name: str
) -> None:
    database = Database(postgresql.url(name, SERVICE))
    count = text("SELECT count(*) FROM usage_fact")
    viewer = Viewer("t", "tenant", tenant_path=MINE)
    with database.seen_as(viewer.scope).reading() as session:
        assert session.scalar(count) == 0
        with seeing(session, CARDS):
            assert session.scalar(count) == 4
        assert session.scalar(count) == 0
        with pytest.raises(ValueError, match="halfway"), seeing(session, CARDS):
            raise ValueError("halfway")
        assert session.scalar(count) == 0
    # The connection goes back into the pool without anybody's name on it.
    with database.engine.connect() as connection:
        assert connection.scalar(count) == 0
    database.close()


@pytest.mark.parametrize(
    ("role", "reason"),
    [(OWNER, "superuser or has BYPASSRLS"), (MIGRATOR, "owns the tables"), ("nobody", 'no role "nobody"')],
)
def test_a_role_for_which_no_policy_would_hold_is_not_granted_anything(
    postgresql: Server, name: str, role: str, reason: str
) -> None:
    database = Database(postgresql.url(name, MIGRATOR))
    with pytest.raises(StoreError, match=reason):
        grant_service(database, role)
    database.close()


@pytest.mark.parametrize(("role", "holds"), [(OWNER, False), (MIGRATOR, True), (SERVICE, True)])
def test_the_service_knows_whether_row_level_security_holds_for_it(
    postgresql: Server, name: str, role: str, holds: bool
) -> None:
    database = Database(postgresql.url(name, role))
    assert is_behind_walls(database) is holds
    database.close()


def test_the_services_role_reaches_no_partition_by_name_and_changes_no_schema(
    postgresql: Server, migrated_database: str
) -> None:
    with postgresql.database(migrated_database) as made:
        for statement in (
            "SELECT * FROM usage_fact_default", "DELETE FROM alembic_version",
            "UPDATE audit_log SET actor = 'x'",
            "DROP POLICY everything ON tenant", "ALTER TABLE tenant DISABLE ROW LEVEL SECURITY",
            "CREATE TABLE mine (id int)", "TRUNCATE tenant",
        ):  # fmt: skip
            with (
                connected(postgresql, made, SERVICE, EVERYTHING) as connection,
                pytest.raises(psycopg.errors.InsufficientPrivilege),
            ):
                connection.execute(statement.encode())


def test_the_owner_backs_up_and_restores_every_row_as_documented(
    postgresql: Server, name: str, need_tool: Callable[[str, str], str], tmp_path: Path
) -> None:
    programs = {tool: need_tool(tool, "postgresql-client") for tool in ("pg_dump", "pg_restore")}
    environment = os.environ | {"PGOPTIONS": "-c slicemeter.viewer=everything"}
    dumped = [
        programs["pg_dump"], "--enable-row-security", "--format=custom", f"--file={tmp_path / 'dump'}",
        postgresql.url(name, MIGRATOR),
    ]  # fmt: skip
    subprocess.run(dumped, env=environment, check=True)
    with postgresql.database() as restored:
        into = f"--dbname={postgresql.url(restored, MIGRATOR)}"
        restoring = [programs["pg_restore"], "--no-owner", "--no-privileges", into, str(tmp_path / "dump")]
        subprocess.run(restoring, check=True)
        everything = seen(postgresql, name, EVERYTHING)
        assert seen(postgresql, restored, EVERYTHING, MIGRATOR) == everything
        assert seen(postgresql, restored, None, MIGRATOR) == {}


LOOKS_PAST = {
    "accounting/access/sessions.py", "accounting/periods/explain.py", "accounting/periods/idle_view.py",
    "accounting/periods/coverage.py", "accounting/periods/ledger_stream.py",
    "accounting/periods/sealed.py", "accounting/periods/statement.py",
    "accounting/reports/allocations.py", "accounting/reports/card_hours.py",
    "accounting/reports/cost_coverage.py", "accounting/reports/grouping.py",
    "accounting/reports/handed_on.py", "accounting/reports/quote.py", "accounting/reports/slice_hours.py",
    "accounting/reports/usage.py", "accounting/reports/waste.py",
}  # fmt: skip
"""Where a viewer's answer needs more than its own rows, and is cut by what it sees outside of the block."""


def test_the_places_that_look_past_the_walls_are_known() -> None:
    root = Path(__file__).parents[3]
    found = {
        str(path.relative_to(root))
        for path in (root / "accounting").rglob("*.py")
        if re.search(r"\bseeing\(", path.read_text()) and path.name != "walls.py"
    }
    assert found == LOOKS_PAST, (
        "a `seeing` block is a hole in the second wall: cut what leaves it by the tenants that the viewer "
        "sees outside of it, show in test_isolation.py that nothing leaks, then name the file here"
    )


def test_a_tenants_lines_are_found_by_the_index_under_the_policy(postgresql: Server, name: str) -> None:
    with connected(postgresql, name, SERVICE, Scope("tenant", MINE)) as connection:
        connection.execute("SET LOCAL enable_seqscan = off")
        plan = connection.execute(
            "EXPLAIN SELECT * FROM ledger_line JOIN tenant ON tenant.id = ledger_line.tenant_id "
            "WHERE tenant.path = 'mine' AND day_ms >= 0 AND day_ms < 9"
        ).fetchall()
    text_of_plan = "\n".join(str(line) for (line,) in plan)
    assert "ix_ledger_line_tenant_id_day_ms" in text_of_plan, text_of_plan
    assert "Index Cond: ((tenant_id = " in text_of_plan, text_of_plan
