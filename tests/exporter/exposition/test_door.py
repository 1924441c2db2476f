"""The door over real sockets: TLS, client certificates, passwords, tokens, and files that are replaced."""

from __future__ import annotations

import base64
import logging
import os
import ssl
from pathlib import Path

import bcrypt
import pytest
import trustme

from exporter.exposition.door import Door
from exporter.setting import SettingsError
from tests.exporter.exposition.conftest import START

REFUSED = (ssl.SSLError, ConnectionError)


def replace(file: Path, content: bytes) -> None:
    """As a Secret is replaced: at once, by another file."""
    fresh = file.with_name(file.name + ".new")
    fresh.write_bytes(content)
    os.replace(fresh, file)  # noqa: PTH105 - the operation itself is the point


def certify(folder: Path, authority: trustme.CA, *names: str) -> trustme.LeafCert:
    """A server's certificate and key in a folder."""
    leaf = authority.issue_cert(*(names or ("127.0.0.1",)))
    replace(folder / "tls.key", leaf.private_key_pem.bytes())
    replace(folder / "tls.crt", leaf.cert_chain_pems[0].bytes())
    return leaf


def trusting(authority: trustme.CA, client: trustme.LeafCert | None = None) -> ssl.SSLContext:
    """A client's context."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if client is not None:
        client.configure_cert(context)
    return context


def door(folder: Path, more: str = "", tls: str = "") -> Door:
    """A door with a certificate of the folder and further keys."""
    (folder / "web.yml").write_text(
        f"tls_server_config:\n  cert_file: tls.crt\n  key_file: tls.key\n{tls}\n{more}\n"
    )
    return Door(folder / "web.yml")


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def password_of(user: str, password: str) -> str:
    return f"{user}: {bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()}"


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_pages_come_by_tls_and_not_without(start: START, tmp_path: Path, authority: trustme.CA) -> None:
    certify(tmp_path, authority)
    client = start(door=door(tmp_path))
    response, body = client.ask("/metrics", context=trusting(authority))
    assert response.status == 200
    assert b"process_resident_memory_bytes" in body
    with pytest.raises(REFUSED):
        client.ask("/metrics")
    assert client.ask("/metrics", context=trusting(authority))[0].status == 200


def test_a_client_that_trusts_another_authority_is_not_answered(
    start: START, tmp_path: Path, authority: trustme.CA
) -> None:
    certify(tmp_path, authority)
    client = start(door=door(tmp_path))
    with pytest.raises(ssl.SSLCertVerificationError):
        client.ask("/metrics", context=trusting(trustme.CA()))


def test_a_certificate_that_is_replaced_serves_the_next_connection(
    start: START, tmp_path: Path, authority: trustme.CA
) -> None:
    certify(tmp_path, trustme.CA())
    client = start(door=door(tmp_path))
    certify(tmp_path, authority)
    assert client.ask("/metrics", context=trusting(authority))[0].status == 200


def test_a_bad_replacement_is_logged_and_what_was_before_stays(
    start: START, tmp_path: Path, authority: trustme.CA, caplog: pytest.LogCaptureFixture
) -> None:
    certify(tmp_path, authority)
    client = start(door=door(tmp_path))
    replace(tmp_path / "tls.crt", b"no certificate")
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert client.ask("/metrics", context=trusting(authority))[0].status == 200
    [record] = caplog.records
    assert "tls_server_config.key_file" in record.getMessage()
    assert "what was read before stays in force" in record.getMessage()


def test_the_lowest_version_is_kept_to(start: START, tmp_path: Path, authority: trustme.CA) -> None:
    certify(tmp_path, authority)
    client = start(door=door(tmp_path, tls="  min_version: TLS13"))
    old = trusting(authority)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(REFUSED):
        client.ask("/metrics", context=old)
    assert client.ask("/metrics", context=trusting(authority))[0].status == 200


def test_a_chosen_cipher_suite_is_the_one_that_is_spoken(
    start: START, tmp_path: Path, authority: trustme.CA
) -> None:
    certify(tmp_path, authority)
    suites = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
    client = start(door=door(tmp_path, tls=f"  max_version: TLS12\n  cipher_suites: [{suites}]"))
    with trusting(authority).wrap_socket(client.connect(), server_hostname="127.0.0.1") as connection:
        cipher = connection.cipher()
        assert cipher is not None
        assert cipher[0].endswith("AES256-GCM-SHA384")


CLIENTS = "  client_auth_type: {}\n  client_ca_file: clients.crt\n"


@pytest.fixture
def clients(tmp_path: Path) -> trustme.CA:
    """The authority of clients, in the folder."""
    authority = trustme.CA()
    (tmp_path / "clients.crt").write_bytes(authority.cert_pem.bytes())
    return authority


def test_without_a_demanded_client_certificate_only_the_probes_are_answered(
    start: START, tmp_path: Path, authority: trustme.CA, clients: trustme.CA
) -> None:
    certify(tmp_path, authority)
    client = start(door=door(tmp_path, tls=CLIENTS.format("RequireAndVerifyClientCert")))
    prometheus = trusting(authority, clients.issue_cert("prometheus.monitoring.svc"))
    assert client.ask("/metrics", context=prometheus)[0].status == 200
    for path, status in (
        ("/metrics", 403),
        ("/", 403),
        ("/nothing", 403),
        ("/healthz", 200),
        ("/readyz", 200),
    ):
        assert client.ask(path, context=trusting(authority))[0].status == status
    stranger = trusting(authority, trustme.CA().issue_cert("prometheus.monitoring.svc"))
    with pytest.raises(REFUSED):
        client.ask("/healthz", context=stranger)


def test_a_certificate_that_may_be_given_is_checked_when_it_is(
    start: START, tmp_path: Path, authority: trustme.CA, clients: trustme.CA
) -> None:
    certify(tmp_path, authority)
    client = start(door=door(tmp_path, tls=CLIENTS.format("VerifyClientCertIfGiven")))
    assert client.ask("/metrics", context=trusting(authority))[0].status == 200
    assert client.ask("/metrics", context=trusting(authority, clients.issue_cert("a.b")))[0].status == 200
    with pytest.raises(REFUSED):
        client.ask("/metrics", context=trusting(authority, trustme.CA().issue_cert("a.b")))


@pytest.mark.parametrize("name", ["prometheus.monitoring.svc", "10.0.0.7", "ops@example.org"])
def test_of_the_authoritys_clients_only_the_allowed_names_may_read(
    start: START, tmp_path: Path, authority: trustme.CA, clients: trustme.CA, name: str
) -> None:
    certify(tmp_path, authority)
    tls = CLIENTS.format("RequireAndVerifyClientCert") + f"  client_allowed_sans: ['{name}']"
    client = start(door=door(tmp_path, tls=tls))
    assert client.ask("/metrics", context=trusting(authority, clients.issue_cert(name)))[0].status == 200
    other = trusting(authority, clients.issue_cert("other.monitoring.svc"))
    assert client.ask("/metrics", context=other)[0].status == 403


def test_with_users_everything_but_the_probes_needs_a_password(start: START, tmp_path: Path) -> None:
    (tmp_path / "web.yml").write_text(f"basic_auth_users:\n  {password_of('alice', 'sesame')}\n")
    client = start(door=Door(tmp_path / "web.yml"))
    for path in ("/metrics", "/", "/metrics/hami", "/debug/snapshot", "/nothing"):
        response, body = client.ask(path)
        assert response.status == 401
        assert response.headers["WWW-Authenticate"] == "Basic"
        assert b"slicemeter_" not in body
    assert client.ask("/metrics", Authorization=basic("alice", "sesame"))[0].status == 200
    assert client.ask("/metrics", Authorization=basic("alice", "wrong"))[0].status == 401
    assert client.ask("/healthz")[0].status == client.ask("/readyz")[0].status == 200


def test_users_are_read_again_when_the_file_is_replaced(start: START, tmp_path: Path) -> None:
    file = tmp_path / "web.yml"
    file.write_text(f"basic_auth_users:\n  {password_of('alice', 'old')}\n")
    client = start(door=Door(file))
    replace(file, f"basic_auth_users:\n  {password_of('alice', 'new')}\n".encode())
    assert client.ask("/metrics", Authorization=basic("alice", "old"))[0].status == 401
    assert client.ask("/metrics", Authorization=basic("alice", "new"))[0].status == 200


def test_a_token_opens_the_pages_and_the_next_one_does_when_it_is_replaced(
    start: START, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    client = start(door=Door(token_file=file))
    response, _ = client.ask("/metrics")
    assert (response.status, response.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert client.ask("/metrics", Authorization="Bearer first")[0].status == 200
    assert client.ask("/readyz")[0].status == 200
    replace(file, b"second")
    assert client.ask("/metrics", Authorization="Bearer first")[0].status == 401
    assert client.ask("/metrics", Authorization="Bearer second")[0].status == 200
    file.unlink()
    assert client.ask("/metrics", Authorization="Bearer second")[0].status == 200
    assert client.ask("/metrics")[0].status == 401


def test_headers_of_the_file_are_on_every_answer(start: START, tmp_path: Path) -> None:
    (tmp_path / "web.yml").write_text("http_server_config: {headers: {X-Content-Type-Options: nosniff}}\n")
    client = start(door=Door(tmp_path / "web.yml"))
    for path in ("/metrics", "/healthz", "/nothing"):
        assert client.ask(path)[0].headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    ("file", "content", "line"),
    [
        ("tls.crt", None, "tls_server_config.cert_file = {folder}/tls.crt: No such file or directory"),
        ("tls.key", None, "tls_server_config.key_file = {folder}/tls.key: No such file or directory"),
        ("tls.key", b"x", "tls_server_config.key_file = {folder}/tls.key: does not fit {folder}/tls.crt"),
        ("clients.crt", None, "tls_server_config.client_ca_file = {folder}/clients.crt: No such file"),
        (
            "clients.crt",
            b"x",
            "tls_server_config.client_ca_file = {folder}/clients.crt: holds no CA certificate",
        ),
        (
            "clients.crt",
            b"\xff",
            "tls_server_config.client_ca_file = {folder}/clients.crt: holds no CA certificate",
        ),
    ],
)
def test_at_the_start_a_bad_file_is_one_line_with_file_and_key(
    tmp_path: Path, authority: trustme.CA, clients: trustme.CA, *, file: str, content: bytes | None, line: str
) -> None:
    certify(tmp_path, authority)
    if content is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        door(tmp_path, tls=CLIENTS.format("RequireAndVerifyClientCert"))
    expected = f"web config file {tmp_path}/web.yml: {line.format(folder=tmp_path)}"
    assert str(caught.value).startswith(expected)


def test_the_key_of_another_certificate_is_refused(tmp_path: Path, authority: trustme.CA) -> None:
    certify(tmp_path, authority)
    (tmp_path / "tls.key").write_bytes(authority.issue_cert("other").private_key_pem.bytes())
    with pytest.raises(SettingsError, match=r"tls_server_config\.key_file = .*: does not fit"):
        door(tmp_path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"", "must hold one token"),
        (b"two words", "must hold one token"),
        (b"\xff", "cannot be read: it is no text"),
    ],
)
def test_a_bad_token_file_is_one_line(tmp_path: Path, content: bytes | None, words: str) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        Door(token_file=file)
    assert str(caught.value).startswith(f"metrics_token_file {file}: {words}")


def test_a_client_that_never_shakes_hands_blocks_nobody_and_is_cut(
    start: START, tmp_path: Path, authority: trustme.CA
) -> None:
    certify(tmp_path, authority)
    client = start(door=door(tmp_path), connection_deadline_seconds=1.0)
    with client.connect() as silent:
        assert client.ask("/metrics", context=trusting(authority))[0].status == 200
        assert silent.recv(1) == b""


def test_a_tls_client_that_sends_no_request_is_cut(
    start: START, tmp_path: Path, authority: trustme.CA
) -> None:
    certify(tmp_path, authority)
    client = start(door=door(tmp_path), connection_deadline_seconds=1.0)
    context = trusting(authority)
    with context.wrap_socket(client.connect(), server_hostname="127.0.0.1") as silent:
        assert client.ask("/metrics", context=context)[0].status == 200
        assert silent.recv(1) == b""
