"""The web config file: what Prometheus' exporters take, taken; what cannot be obeyed, refused by key."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.exposition.web_config import TlsServerConfig, WebConfig, read_web_config
from exporter.setting import SettingsError

# The example of exporter-toolkit's documentation.
EXAMPLE = """
tls_server_config:
  cert_file: server.crt
  key_file: server.key
basic_auth_users:
  alice: $2y$10$mDwo.lAisC94iLAyP81MCesa29IzH37oigHC/42V2pdJlUprsJPze
  bob: $2y$10$hLqFl9jSjoAAy95Z/zw8Ye8wkdMBM8c5Bn1ptYqP/AXyV0.oy0S8m
"""
OPTIONAL = "VerifyClientCertIfGiven"
CERT = "{cert_file: a, key_file: b, "


def read(folder: Path, text: str) -> WebConfig:
    file = folder / "web.yml"
    file.write_text(text)
    return read_web_config(file)


def test_the_example_of_the_documentation_is_read(tmp_path: Path) -> None:
    config = read(tmp_path, EXAMPLE)
    assert config.tls_server_config == TlsServerConfig(cert_file="server.crt", key_file="server.key")
    assert set(config.users) == {"alice", "bob"}


@pytest.mark.parametrize("text", ["", "{}", "tls_server_config:\nbasic_auth_users:\nhttp_server_config:\n"])
def test_an_empty_file_is_plain_http_for_everybody(tmp_path: Path, text: str) -> None:
    config = read(tmp_path, text)
    assert (config.tls_server_config, config.users, config.headers) == (None, {}, {})


def test_every_key_that_is_obeyed_is_read(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        """
tls_server_config:
  cert_file: a
  key_file: b
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: c
  client_allowed_sans: [prometheus.monitoring.svc]
  min_version: TLS13
  max_version: TLS13
  cipher_suites: [TLS_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]
  prefer_server_cipher_suites: false
http_server_config:
  http2: false
  headers:
    X-Frame-Options: deny
    Strict-Transport-Security: max-age=1
""",
    )
    assert config.tls_server_config == TlsServerConfig(
        cert_file="a",
        key_file="b",
        client_auth_type="RequireAndVerifyClientCert",
        client_ca_file="c",
        client_allowed_sans=("prometheus.monitoring.svc",),
        min_version="TLS13",
        max_version="TLS13",
        cipher_suites=("TLS_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
        prefer_server_cipher_suites=False,
    )
    assert config.headers == {"X-Frame-Options": "deny", "Strict-Transport-Security": "max-age=1"}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("tls: {}", "Object contains unknown field `tls`"),
        ("tls_server_config: {colour: red}", "tls_server_config: Object contains unknown field `colour`"),
        ("basic_auth_users: [alice]", "basic_auth_users: Expected `object | null`, got `array`"),
        ("basic_auth_users: {yes: x}", "basic_auth_users: Expected `str`, got `bool`"),
        ("basic_auth_users: {alice: secret}", "basic_auth_users.alice: is no bcrypt hash"),
        ("tls_server_config: {cert_file: a}", "tls_server_config.key_file: is missing"),
        ("tls_server_config: {key_file: a}", "tls_server_config.cert_file: is missing"),
        (f"tls_server_config: {CERT} key: PEM}}", "tls_server_config.key: inline PEM is not offered"),
        (
            f"tls_server_config: {CERT} min_version: TLS9}}",
            "tls_server_config.min_version: Invalid enum value 'TLS9'",
        ),
        (
            f"tls_server_config: {CERT} min_version: TLS11}}",
            "tls_server_config.min_version: TLS11 is obsolete",
        ),
        (
            f"tls_server_config: {CERT} min_version: TLS13, max_version: TLS12}}",
            "tls_server_config.min_version: TLS13 is above max_version, TLS12",
        ),
        (
            f"tls_server_config: {CERT} cipher_suites: [RC4]}}",
            'tls_server_config.cipher_suites: no suite "RC4"',
        ),
        (
            f"tls_server_config: {CERT} curve_preferences: [X25519]}}",
            "tls_server_config.curve_preferences: cannot be chosen",
        ),
        (
            f"tls_server_config: {CERT} client_auth_type: RequireAnyClientCert}}",
            "tls_server_config.client_auth_type: RequireAnyClientCert lets any certificate pass",
        ),
        (
            f"tls_server_config: {CERT} client_auth_type: RequireAndVerifyClientCert}}",
            "tls_server_config.client_ca_file: is missing",
        ),
        (
            f"tls_server_config: {CERT} client_ca_file: c}}",
            "tls_server_config.client_ca_file: asks for client certificates",
        ),
        (
            f"tls_server_config: {CERT} client_allowed_sans: [c]}}",
            "tls_server_config.client_allowed_sans: asks for client certificates",
        ),
        (
            f"tls_server_config: {CERT} client_auth_type: {OPTIONAL}, client_ca: a, client_ca_file: b}}",
            "tls_server_config.client_ca: stands beside client_ca_file",
        ),
        ("http_server_config: {headers: {Server: x}}", "http_server_config.headers.Server: there are: "),
        (
            "http_server_config: {headers: {X-Frame-Options: maybe}}",
            "http_server_config.headers.X-Frame-Options: must be deny or sameorigin",
        ),
        (
            'http_server_config: {headers: {Content-Security-Policy: "a\\nb"}}',
            "http_server_config.headers.Content-Security-Policy: must be one line of text",
        ),
        ("rate_limit: {interval: 1s, burst: 20}", "rate_limit: is not offered"),
        ("a: [", "no YAML: "),
        ("- a", "Expected `object`, got `array`"),
    ],
)
def test_what_cannot_be_obeyed_is_one_line_with_file_and_key(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"web config file {tmp_path / 'web.yml'}: {line}")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none\.yml: cannot be read: No such file or directory"):
        read_web_config(tmp_path / "none.yml")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_are_a_config_or_one_line(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "web.yml"
    file.write_bytes(content)
    line = ""
    try:
        assert isinstance(read_web_config(file), WebConfig)
    except SettingsError as error:
        line = str(error)
    assert "\n" not in line
