"""Who is signed in at the page is listed, and signed out at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from accounting.access.sessions import Limits, begin_session
from accounting.access.viewer import Viewer
from accounting.store.database import Database
from slicemeter.accounting.options import now_ms

if TYPE_CHECKING:
    from tests.slicemeter.accounting.shell import Shell

OLGA = "oidc:olga (lab-1)"


def test_who_is_signed_in_is_listed_and_signed_out(shell: Shell) -> None:
    now = now_ms()
    limits = Limits(life_ms=3_600_000, idle_ms=60_000)
    _, token, _ = shell("token", "create", "--role", "operator")
    prefix = token.split("_")[1]
    database = Database(shell.url)
    people = [
        (Viewer(OLGA, "admin"), None), (Viewer(OLGA, "admin"), None),
        (Viewer("oidc:tim (lab-2)", "tenant", tenant_path="acme/team-a"), None),
        (Viewer(f"token:{prefix}", "operator"), prefix),
    ]  # fmt: skip
    with database.writing() as session:
        cookies = [
            begin_session(session, viewer, token_prefix=of, limits=limits, now_ms=now)
            for viewer, of in people
        ]
    database.close()
    _, out, _ = shell("session", "list", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [(row["who"], row["role"], row["tenant"]) for row in rows] == [
        (OLGA, "admin", None), (OLGA, "admin", None), ("oidc:tim (lab-2)", "tenant", "acme/team-a"),
        (f"token:{prefix}", None, None),
    ]  # fmt: skip
    assert not any(cookie in out for cookie in cookies)
    assert shell("session", "end", OLGA) == (0, f"2 sessions of {OLGA} are ended\n", "")
    assert shell.json("session", "end", f"token:{prefix}") == {"ended": 1}
    code, _, error = shell("session", "end", OLGA)
    assert code == 2
    assert "no session of" in error
    assert "session list" in error
    _, table, _ = shell("session", "list")
    assert [line.split()[0] for line in table.splitlines()] == ["WHO", "oidc:tim"]
    _, log, _ = shell("audit", "list", "--json")
    assert json.loads(log.splitlines()[0])["action"] == "session end"


def test_cookies_without_tls_are_for_loopback_alone(shell: Shell) -> None:
    code, _, error = shell("serve", "--listen", "0.0.0.0:0", "--insecure-cookies")
    assert code == 2
    assert "--insecure-cookies with --listen on 0.0.0.0" in error
    assert "127.0.0.1" in error


def test_a_provider_that_is_described_wrongly_is_refused_with_the_way_out(
    shell: Shell, tmp_path: Path
) -> None:
    path = tmp_path / "oidc.toml"
    whole = (
        'issuer = "https://login.example.org"\nclient_id = "slicemeter"\n'
        'redirect_url = "https://accounting.example.org/ui/oidc/callback"\n'
        '[[mapping]]\ngroup = "team-a"\nrole = "tenant"\ntenant = "acme/team-a"\n'
    )
    for told, was, now in (
        ("no https:// address", "https://login", "http://login"),
        ("does not end with /ui/oidc/callback", "/ui/oidc/callback", "/callback"),
        ("no other has one", 'role = "tenant"', 'role = "admin"'),
        ("role tenant needs a tenant", 'tenant = "acme/team-a"', ""),
        ("nobody could sign in", whole[whole.index("[[") :], "mapping = []"),
        ("isuer", "issuer", "isuer"),
        ("Invalid enum value 'owner'", 'role = "tenant"', 'role = "owner"'),
        ("cannot read", "", ""),
        ("docs/access.md", 'issuer = "', "issuer = "),
    ):
        if told == "cannot read":
            path.unlink()
        else:
            path.write_text(whole.replace(was, now))
        code, out, error = shell("serve", "--listen", "127.0.0.1:0", "--oidc-config-file", str(path))
        assert (code, out) == (2, ""), told
        assert told in error
        assert str(path) in error
        assert len(error.splitlines()) == 1
