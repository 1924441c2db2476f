from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from alembic import command
from sqlalchemy import create_engine, func, select, text
from sqlalchemy.exc import DatabaseError, IntegrityError, OperationalError

from accounting.store.database import Database
from accounting.store.errors import StoreError
from accounting.store.migrate import alembic_config, current_revision, upgrade
from accounting.store.models import Base, IngestCounter, PolicyVersion, PriceBook
from accounting.store.postgresql import sort_text_by_bytes
from tests.accounting.postgresql import Server

pytestmark = pytest.mark.postgresql

CATALOGUE = {
    "column": """SELECT relname, attname, format_type(atttypid, atttypmod), attnotnull, collname,
                 pg_get_expr(adbin, adrelid)
                 FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
                 LEFT JOIN pg_collation l ON l.oid = attcollation
                 LEFT JOIN pg_attrdef d ON d.adrelid = attrelid AND d.adnum = attnum
                 WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND attnum > 0
                 AND NOT attisdropped""",
    "constraint": """SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
                     WHERE connamespace = 'public'::regnamespace""",
    "index": "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "trigger": """SELECT tgrelid::regclass::text, tgname, pg_get_triggerdef(oid) FROM pg_trigger
                  WHERE NOT tgisinternal""",
    "function": """SELECT proname, prosrc FROM pg_proc p WHERE pronamespace = 'public'::regnamespace
                   AND NOT EXISTS (SELECT 1 FROM pg_depend WHERE objid = p.oid AND deptype = 'e')""",
    "policy": "SELECT tablename, policyname, qual FROM pg_policies",
}


@pytest.fixture
def empty(postgresql: Server) -> Iterator[Database]:
    with postgresql.database() as name:
        database = Database(postgresql.url(name))
        yield database
        database.close()


@pytest.fixture
def books(postgresql: Server, migrated_database: str) -> Iterator[Database]:
    with postgresql.database(migrated_database) as name:
        database = Database(postgresql.url(name))
        yield database
        database.close()


def catalogue(database: Database) -> set[tuple[object, ...]]:
    """Everything in the schema but alembic's own table."""
    found: set[tuple[object, ...]] = set()
    with database.reading() as session:
        for kind, query in CATALOGUE.items():
            found |= {(kind, *row) for row in session.execute(text(query))}
    return {one for one in found if "alembic_version" not in str(one)}


def test_upgrade_downgrade_upgrade_ends_where_it_began(empty: Database) -> None:
    upgrade(empty)
    first = catalogue(empty)
    assert {one[1] for one in first if one[0] == "column"} >= {"ledger_line", "usage_fact_default"}
    command.downgrade(alembic_config(empty), "base")
    assert catalogue(empty) == set()
    assert current_revision(empty) is None
    upgrade(empty)
    assert catalogue(empty) == first


def test_the_migrations_make_the_models_checks_too(books: Database, empty: Database) -> None:
    # `alembic check` compares no check constraints, so their definitions are compared.
    engine = create_engine(empty.engine.url)
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        sort_text_by_bytes(connection)
    engine.dispose()

    def checks(database: Database) -> dict[str, str]:
        return {
            str(one[2]): str(one[3])
            for one in catalogue(database)
            if one[0] == "constraint" and "_default" not in str(one[1]) and str(one[2]).startswith("ck_")
        }

    assert checks(books) == checks(empty)
    assert len(checks(books)) > 30


def test_every_text_column_sorts_by_bytes_whatever_the_database_does(books: Database) -> None:
    columns = [one for one in catalogue(books) if one[0] == "column"]
    assert {one[5] for one in columns} == {None, "C"}
    assert all(one[5] == "C" for one in columns if "character" in str(one[3]) or one[3] == "text")


def test_an_hour_of_a_fact_is_refused_under_its_key_twice_in_any_partition(books: Database) -> None:
    insert = text("INSERT INTO device_fact VALUES ('a', 0, 'n', 'GPU-1', 'e', 0, 0, 0, 0, 0, 1, 0, 1, 0, 1)")
    with books.writing() as session:
        session.execute(insert)
    with (
        pytest.raises(IntegrityError, match=r"device_fact_default_pkey|pk_device_fact"),
        books.writing() as session,
    ):
        session.execute(insert)


def test_live_versions_that_overlap_are_refused_by_the_database(books: Database) -> None:
    def policy(valid_from_ms: int, valid_to_ms: int | None) -> PolicyVersion:
        return PolicyVersion(
            kind="share", value="dominant", valid_from_ms=valid_from_ms, valid_to_ms=valid_to_ms,
            recorded_at_ms=0, recorded_by="t",
        )  # fmt: skip

    with books.writing() as session:
        session.add_all([policy(100, 200), policy(200, None)])
    with pytest.raises(IntegrityError, match="ex_policy_version_overlap"), books.writing() as session:
        session.add(policy(50, 101))


def test_the_audit_log_takes_no_change_and_no_deletion(books: Database) -> None:
    with books.writing() as session:
        session.execute(
            text(
                "INSERT INTO audit_log (at_ms, actor, action, object, after) VALUES (1, 'a', 'b', 'c', '{}')"
            )
        )
    for statement in ("UPDATE audit_log SET actor = 'x'", "DELETE FROM audit_log"):
        with pytest.raises(DatabaseError, match="audit_log is insert-only"), books.writing() as session:
            session.execute(text(statement))


def test_a_reader_can_change_nothing(books: Database) -> None:
    with pytest.raises(DatabaseError, match="read-only"), books.reading() as session:
        session.execute(text("INSERT INTO price_book VALUES ('standard', 0)"))


def test_a_reader_sees_one_state_while_others_write(books: Database) -> None:
    count = select(func.count()).select_from(PriceBook)
    with books.reading() as reader:
        assert reader.scalar(count) == 0
        with books.writing() as session:
            session.add(PriceBook(code="standard", created_at_ms=0))
        assert reader.scalar(count) == 0


def test_writers_of_two_clusters_work_at_the_same_time(books: Database) -> None:
    with books.writing(cluster="a"), books.writing(cluster="b") as second:
        assert second.scalar(select(IngestCounter.last_seq)) == 0


@pytest.mark.parametrize("scope", ["a", None])
def test_a_writer_waits_for_one_of_its_cluster_and_for_one_of_the_books(
    books: Database, scope: str | None
) -> None:
    order: list[str] = []

    def second() -> None:
        with books.writing(cluster="a"):
            order.append("second")

    with books.writing(cluster=scope) as session:
        thread = threading.Thread(target=second)
        thread.start()
        waiting = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
        while not session.scalar(waiting):
            assert thread.is_alive()
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_a_task_has_its_turn_only_when_no_other_process_is_at_it(books: Database) -> None:
    order: list[str] = []

    def second() -> None:
        with books.turn("rate"):
            order.append("second")

    with books.turn("rate"):
        thread = threading.Thread(target=second)
        thread.start()
        waiting = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
        with books.turn("another task"), books.writing() as session:
            while not session.scalar(waiting):
                assert thread.is_alive()
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_a_server_that_is_not_there_is_refused_by_name_and_without_its_password(postgresql: Server) -> None:
    database = Database(f"postgresql://someone:s3cret@127.0.0.1:{postgresql.port}/nowhere")
    with pytest.raises(
        StoreError, match=r"nowhere.* cannot be used: .*does not exist.*name another"
    ) as refused:
        current_revision(database)
    assert "s3cret" not in str(refused.value)
    assert "\n" not in str(refused.value)
    assert isinstance(refused.value.__cause__, OperationalError)
