from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from accounting.access.refusal import TokenRefusedError
from accounting.access.tokens import (
    authenticate,
    create_token,
    ensure_admin,
    list_tokens,
    new_token,
    revoke_token,
)
from accounting.access.viewer import COMMAND_LINE, Viewer
from accounting.errors import AccountingError, ConflictError, InvalidError, NotFoundError
from accounting.store.database import Database
from accounting.store.models import ApiToken, AuditLog, Base, BillingAccount, Cluster
from accounting.tenants.registry import add_account

NOW_MS = 1_790_805_600_000


@pytest.fixture(autouse=True)
def _registered(database: Database) -> None:
    with database.writing() as session:
        session.add(
            BillingAccount(
                code="acme", kind="platform", time_zone="UTC", currency=None, grace_days=3, created_at_ms=0
            )
        )
        session.flush()
        session.add(Cluster(code="a", account="acme", platform_account="acme", created_at_ms=0))


def create(database: Database, **scope: Any) -> str:
    with database.writing() as session:
        return create_token(session, by=COMMAND_LINE, now_ms=NOW_MS, **scope)


def who(database: Database, token: str, *, now_ms: int = NOW_MS) -> Viewer:
    with database.reading() as session:
        return authenticate(session, token, now_ms=now_ms)


@pytest.mark.parametrize(
    "scope",
    [
        {"role": "reporter", "cluster": "a"},
        {"role": "reporter", "cluster": "a", "node_uid": "uid-1"},
        {"role": "tenant", "tenant_path": "acme/team-a"},
        {"role": "operator"},
        {"role": "admin"},
    ],
)
def test_a_token_gives_its_bearer_one_role_and_one_scope(database: Database, scope: dict[str, Any]) -> None:
    token = create(database, **scope)
    viewer = who(database, token)
    name = f"token:{token.split('_')[1]}"
    assert viewer == Viewer(name=name, **scope)


def test_the_database_holds_no_secret(database: Database) -> None:
    token = create(database, role="admin", note="for tests")
    secret = token.split("_")[2]
    with database.reading() as session:
        dump = [
            str(row)
            for table in Base.metadata.sorted_tables
            for row in session.connection().execute(select(table))
        ]
    assert not any(secret in line for line in dump)
    assert any(token.split("_")[1] in line for line in dump)


def changed(token: str) -> str:
    return token[:-1] + ("0" if token[-1] != "0" else "1")


@pytest.mark.parametrize("token", ["", "smt_", "secret", "smt_0123456789ab_" + "0" * 64, "smt_é_ü"])
def test_a_token_that_nobody_made_is_refused(database: Database, token: str) -> None:
    create(database, role="admin")
    with pytest.raises(TokenRefusedError):
        who(database, token)


def test_a_right_prefix_with_a_wrong_secret_is_refused(database: Database) -> None:
    with pytest.raises(TokenRefusedError):
        who(database, changed(create(database, role="admin")))


def test_a_token_ends_at_its_expiry(database: Database) -> None:
    token = create(database, role="admin", expires_at_ms=NOW_MS + 10)
    assert who(database, token, now_ms=NOW_MS + 9).role == "admin"
    with pytest.raises(TokenRefusedError):
        who(database, token, now_ms=NOW_MS + 10)


def test_a_revoked_token_is_refused_and_stays_in_the_list(database: Database) -> None:
    token = create(database, role="admin")
    prefix = token.split("_")[1]
    with database.writing() as session:
        revoke_token(session, f"smt_{prefix}", by=COMMAND_LINE, now_ms=NOW_MS + 1)
    with pytest.raises(TokenRefusedError):
        who(database, token, now_ms=NOW_MS + 2)
    with database.reading() as session:
        assert [(row.prefix, row.revoked_at_ms) for row in list_tokens(session)] == [(prefix, NOW_MS + 1)]
    with pytest.raises(ConflictError, match="revoked before"), database.writing() as session:
        revoke_token(session, prefix, by=COMMAND_LINE, now_ms=NOW_MS + 3)


def test_revoking_a_token_that_is_not_there_says_where_the_list_is(database: Database) -> None:
    with pytest.raises(NotFoundError, match="token list"), database.writing() as session:
        revoke_token(session, "0123", by=COMMAND_LINE, now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("error", "scope"),
    [
        (InvalidError, {"role": "reporter"}),
        (InvalidError, {"role": "admin", "cluster": "a"}),
        (InvalidError, {"role": "tenant"}),
        (InvalidError, {"role": "operator", "tenant_path": "acme"}),
        (InvalidError, {"role": "admin", "node_uid": "uid-1"}),
        (InvalidError, {"role": "admin", "expires_at_ms": NOW_MS}),
        (InvalidError, {"role": "admin", "expires_at_ms": NOW_MS * 2}),
        (InvalidError, {"role": "admin", "token": "smt_mine"}),
        (NotFoundError, {"role": "reporter", "cluster": "b"}),
    ],
)
def test_a_scope_that_does_not_fit_the_role_is_refused(
    database: Database, error: type[AccountingError], scope: dict[str, Any]
) -> None:
    with pytest.raises(error):
        create(database, **scope)
    with database.reading() as session:
        assert list_tokens(session) == []


def test_a_given_token_works_as_a_made_one_and_is_taken_once(database: Database) -> None:
    token = new_token()
    assert create(database, role="admin", token=token) == token
    assert who(database, token).role == "admin"
    with pytest.raises(ConflictError):
        create(database, role="admin", token=token)


def test_who_made_and_revoked_a_token_is_on_record(database: Database) -> None:
    prefix = create(database, role="reporter", cluster="a").split("_")[1]
    with database.writing() as session:
        revoke_token(session, prefix, by=Viewer("token:abc", "admin"), now_ms=NOW_MS + 1)
    with database.reading() as session:
        log = session.execute(
            select(AuditLog.at_ms, AuditLog.actor, AuditLog.action, AuditLog.object, AuditLog.after)
        ).all()
    scope = '{"cluster":"a","node_uid":null,"role":"reporter","tenant":null}'
    assert [tuple(row) for row in log] == [
        (NOW_MS, "command line", "token create", prefix, scope),
        (NOW_MS + 1, "token:abc", "token revoke", prefix, "{}"),
    ]


def test_two_tokens_never_share_a_prefix(database: Database) -> None:
    token = create(database, role="admin")
    with pytest.raises(ConflictError):
        create(database, role="admin", token=changed(token))
    with database.reading() as session:
        assert len(session.scalars(select(ApiToken)).all()) == 1


def test_the_first_administrator_comes_out_of_a_file_and_is_made_once(database: Database) -> None:
    token = new_token()
    made = []
    for _ in range(2):
        with database.writing() as session:
            made.append(ensure_admin(session, token, now_ms=NOW_MS))
    assert made == [True, False]
    assert who(database, token).role == "admin"


def test_an_administrator_who_was_revoked_does_not_come_back_with_the_file(database: Database) -> None:
    token = new_token()
    with database.writing() as session:
        ensure_admin(session, token, now_ms=NOW_MS)
        revoke_token(session, token, by=COMMAND_LINE, now_ms=NOW_MS)
        assert not ensure_admin(session, token, now_ms=NOW_MS)
    with pytest.raises(TokenRefusedError):
        who(database, token)


def test_a_token_file_that_holds_a_password_is_refused_without_repeating_it(database: Database) -> None:
    with pytest.raises(InvalidError) as refused, database.writing() as session:
        ensure_admin(session, "hunter2", now_ms=NOW_MS)
    assert "hunter2" not in str(refused.value)


def test_another_token_of_a_known_prefix_is_no_administrator(database: Database) -> None:
    token = create(database, role="operator")
    for taken in (token, changed(token)):
        with pytest.raises(ConflictError), database.writing() as session:
            ensure_admin(session, taken, now_ms=NOW_MS)


@pytest.mark.parametrize("text", ["", " ", "\x00", "uid\n", "\x1b[31m", "x" * 254])
def test_a_node_that_cannot_be_is_no_scope(database: Database, text: str) -> None:
    # An unset variable of a shell, above all: its bearer's facts would all be rejected, and so lost.
    with pytest.raises(InvalidError, match="--node-uid"):
        create(database, role="reporter", cluster="a", node_uid=text)


@pytest.mark.parametrize("note", ["\x00", "two\nlines", "\x1b[2J", "x" * 254])
def test_a_note_that_no_terminal_should_show_is_refused(database: Database, note: str) -> None:
    with pytest.raises(InvalidError, match="--note"):
        create(database, role="operator", note=note)
    with database.reading() as session:
        assert list_tokens(session) == []


def test_no_account_takes_the_name_under_which_tenants_without_one_are_kept(database: Database) -> None:
    with database.writing() as session, pytest.raises(InvalidError, match="unassigned"):
        add_account(
            session, "unassigned", kind="tenant", currency=None, time_zone="UTC", grace_days=3,
            by=COMMAND_LINE, now_ms=0,
        )  # fmt: skip
