"""The web config file: TLS, client certificates and basic auth in the format of Prometheus' exporters.

It is the file that node_exporter and its kin take with `--web.config.file`, so that one Secret serves
them all. Invariant: a key is obeyed or refused by name; none is read and then ignored, but for `http2`,
which we never speak.

Source: docs/web-configuration.md of prometheus/exporter-toolkit.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from exporter.setting import SettingsError

ClientAuthType: TypeAlias = Literal[
    "NoClientCert",
    "RequestClientCert",
    "RequireAnyClientCert",
    "RequireClientCert",
    "VerifyClientCertIfGiven",
    "RequireAndVerifyClientCert",
]
TlsVersion: TypeAlias = Literal["TLS10", "TLS11", "TLS12", "TLS13"]

CIPHER_SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}
"""Names of the field and of OpenSSL; those of TLS 1.3 cannot be chosen, there as here."""

_TLS_1_3_SUITES = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)
_HEADERS = {
    "Content-Security-Policy": (),
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
}
_BCRYPT = re.compile(r"\$2[aby]\$(0[4-9]|[12]\d|3[01])\$[./A-Za-z0-9]{53}")
_UNVERIFIED = frozenset({"RequestClientCert", "RequireAnyClientCert", "RequireClientCert"})


class TlsServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`tls_server_config`; paths are relative to the file's folder."""

    cert_file: str = ""
    key_file: str = ""
    client_auth_type: ClientAuthType = "NoClientCert"
    client_ca_file: str = ""
    client_ca: str = ""
    client_allowed_sans: tuple[str, ...] = ()
    min_version: TlsVersion = "TLS12"
    max_version: TlsVersion = "TLS13"
    cipher_suites: tuple[str, ...] = ()
    prefer_server_cipher_suites: bool = True
    cert: str = ""
    key: str = ""
    curve_preferences: tuple[str, ...] = ()

    @property
    def wants_client_certificate(self) -> bool:
        """Whether who has no certificate is sent away."""
        return self.client_auth_type == "RequireAndVerifyClientCert"


class HttpServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`http_server_config`."""

    http2: bool = True
    headers: dict[str, str] = {}


class WebConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file; without `tls_server_config` it is plain HTTP."""

    tls_server_config: TlsServerConfig | None = None
    http_server_config: HttpServerConfig | None = None
    basic_auth_users: dict[str, str] | None = None
    rate_limit: dict[str, object] | None = None

    @property
    def users(self) -> dict[str, str]:
        """Bcrypt hashes by user name; empty = no basic auth."""
        return self.basic_auth_users or {}

    @property
    def headers(self) -> dict[str, str]:
        """Headers for every answer."""
        return {} if self.http_server_config is None else self.http_server_config.headers


def read_web_config(path: Path) -> WebConfig:
    """Read and check the file; the certificates that it names are not looked at.

    Raises:
        SettingsError: With one line that names the file, the key and the way out.
    """
    import yaml  # noqa: PLC0415 - 2.5 MiB that only a node with a web config file pays

    try:
        document: object = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = str(error.strerror) if isinstance(error, OSError) else str(error)
        raise SettingsError(f"web config file {path}: cannot be read: {reason}") from error
    except yaml.YAMLError as error:
        raise SettingsError(f"web config file {path}: no YAML: {' '.join(str(error).split())}") from error
    try:
        config = msgspec.convert({} if document is None else document, WebConfig)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at ")
        key = where.partition("$")[2].strip(".`")
        raise SettingsError(f"web config file {path}: {f'{key}: ' if key else ''}{what}") from error
    for key, problem in _problems(config):
        raise SettingsError(f"web config file {path}: {key}: {problem}")
    return config


def _problems(config: WebConfig) -> list[tuple[str, str]]:
    """What cannot be obeyed, by key."""
    found: list[tuple[str, str]] = []
    if config.rate_limit:
        found.append(("rate_limit", "is not offered, parallel scrapes are capped in any case; remove it"))
    for user, secret in config.users.items():
        if not _BCRYPT.fullmatch(secret):
            way_out = "write one with: htpasswd -nBC 10 USER"
            found.append((f"basic_auth_users.{user}", f"is no bcrypt hash; {way_out}"))
        if ":" in user or not user:
            found.append((f"basic_auth_users.{user}", "a user name is not empty and has no colon"))
    for name, value in config.headers.items():
        allowed = _HEADERS.get(name)
        if allowed is None:
            found.append((f"http_server_config.headers.{name}", f"there are: {', '.join(_HEADERS)}"))
        elif (allowed and value not in allowed) or not (value.isascii() and value.isprintable()):
            words = " or ".join(allowed) or "one line of text"
            found.append((f"http_server_config.headers.{name}", f"must be {words}"))
    if config.tls_server_config is not None:
        tls = config.tls_server_config
        found += [(f"tls_server_config.{key}", problem) for key, problem in _tls_problems(tls)]
    return found


def _tls_problems(tls: TlsServerConfig) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key, value in (("cert", tls.cert), ("key", tls.key)):
        if value:
            found.append((key, f"inline PEM is not offered; write it to a file and name that in {key}_file"))
    for key, value in (("cert_file", tls.cert_file), ("key_file", tls.key_file)):
        if not value:
            found.append((key, "is missing; without TLS leave tls_server_config out"))
    if tls.curve_preferences:
        found.append(("curve_preferences", "cannot be chosen; remove it, and OpenSSL's curves are offered"))
    for key, version in (("min_version", tls.min_version), ("max_version", tls.max_version)):
        if version in {"TLS10", "TLS11"}:
            found.append((key, f"{version} is obsolete (RFC 8996); write TLS12 or TLS13"))
    if tls.min_version > tls.max_version:
        found.append(("min_version", f"{tls.min_version} is above max_version, {tls.max_version}"))
    strange = [suite for suite in tls.cipher_suites if suite not in CIPHER_SUITES.keys() | _TLS_1_3_SUITES]
    if strange:
        found.append(("cipher_suites", f'no suite "{strange[0]}"; there are: {", ".join(CIPHER_SUITES)}'))
    return found + _client_problems(tls)


def _client_problems(tls: TlsServerConfig) -> list[tuple[str, str]]:
    has_ca = bool(tls.client_ca_file or tls.client_ca)
    kind = tls.client_auth_type
    if kind in _UNVERIFIED:
        way_out = "write VerifyClientCertIfGiven or RequireAndVerifyClientCert"
        return [("client_auth_type", f"{kind} lets any certificate pass; {way_out}")]
    if tls.client_ca_file and tls.client_ca:
        return [("client_ca", "stands beside client_ca_file; keep one of them")]
    if kind == "NoClientCert":
        key = "client_ca_file" if has_ca else "client_allowed_sans"
        if has_ca or tls.client_allowed_sans:
            return [(key, "asks for client certificates: set client_auth_type: RequireAndVerifyClientCert")]
    elif not has_ca:
        return [("client_ca_file", f"is missing: {kind} needs the CA of the clients")]
    return []
