"""Who comes in: the web config file and the token file as they are now, certificates included.

Files are read again when they changed (Secrets are replaced under a running pod). Invariants: what is
wrong at the start ends the program with one line; what becomes wrong later is logged once, and what was
right before stays in force, so that a slip never opens a door and never shuts one.
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeAlias, TypeVar

from exporter.errors import ExporterError
from exporter.exposition.credentials import Credentials
from exporter.exposition.web_config import CIPHER_SUITES, TlsServerConfig, WebConfig, read_web_config
from exporter.setting import SettingsError

T = TypeVar("T")
PeerCertificate: TypeAlias = Mapping[str, object]
"""A verified certificate, as `ssl.SSLSocket.getpeercert` gives it; empty = none was shown."""

_Stamps: TypeAlias = tuple[tuple[int, int, int] | None, ...]
_VERSIONS: Final = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}

_log = logging.getLogger(__name__)


class _Watched(Generic[T]):
    """A value read from files, read again when one of them changed."""

    def __init__(self, load: Callable[[], tuple[T, Iterable[Path]]]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._value, self._paths, self._stamps = self._read()

    def now(self) -> T:
        """The value, as good as the files last were."""
        with self._lock:
            stamps = _stamps(self._paths)
            if stamps != self._stamps:
                self._stamps = stamps
                try:
                    self._value, self._paths, self._stamps = self._read()
                except ExporterError as error:
                    _log.error("%s; what was read before stays in force", error)
            return self._value

    def _read(self) -> tuple[T, tuple[Path, ...], _Stamps]:
        """Read twice, since only the first reading tells which files to stamp before the second."""
        paths = tuple(self._load()[1])
        stamps = _stamps(paths)
        return self._load()[0], paths, stamps


def _stamps(paths: Iterable[Path]) -> _Stamps:
    return tuple(_stamp(path) for path in paths)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for a connection.

    Attributes:
        tls: None = plain HTTP.
        credentials: Who may read.
        headers: For every answer.
        wants_client_certificate: Who shows none may only probe.
        allowed_sans: Names of which a shown certificate must have one; empty = any name.
    """

    tls: ssl.SSLContext | None
    credentials: Credentials
    headers: Mapping[str, str]
    wants_client_certificate: bool = False
    allowed_sans: frozenset[str] = frozenset()

    def trusts(self, certificate: PeerCertificate) -> bool:
        """Whether the client's certificate, or the lack of one, is good enough to read pages."""
        if not certificate:
            return not self.wants_client_certificate
        return not self.allowed_sans or not self.allowed_sans.isdisjoint(_names(certificate))


def _names(certificate: PeerCertificate) -> set[str]:
    """DNS names, addresses, e-mails and URIs of a certificate."""
    names = certificate.get("subjectAltName")
    return {str(value) for _, value in names} if isinstance(names, tuple) else set()


class Door:
    """The rules as the files say now.

    Args:
        web_config_file: TLS and basic auth; None = neither.
        token_file: A bearer token that opens the pages too; None = none.

    Raises:
        SettingsError: A file cannot be read or obeyed.
    """

    def __init__(self, web_config_file: Path | None = None, token_file: Path | None = None) -> None:
        self._web_config_file = web_config_file
        self._token_file = token_file
        self._rules = _Watched(self._load)

    def rules(self) -> Rules:
        """What holds for a connection that comes now."""
        return self._rules.now()

    def _load(self) -> tuple[Rules, list[Path]]:
        paths = [path for path in (self._web_config_file, self._token_file) if path is not None]
        config = WebConfig() if self._web_config_file is None else read_web_config(self._web_config_file)
        token = None if self._token_file is None else _read_token(self._token_file)
        credentials = Credentials(config.users, token)
        tls = config.tls_server_config
        if tls is None or self._web_config_file is None:
            return Rules(None, credentials, config.headers), paths
        context, files = _context(tls, self._web_config_file)
        rules = Rules(
            context,
            credentials,
            config.headers,
            tls.wants_client_certificate,
            frozenset(tls.client_allowed_sans),
        )
        return rules, [*paths, *files]


def _read_token(path: Path) -> str:
    try:
        token = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = str(error.strerror) if isinstance(error, OSError) else "it is no text"
        raise SettingsError(f"metrics_token_file {path}: cannot be read: {reason}") from error
    if not token or len(token.split()) != 1:
        raise SettingsError(f"metrics_token_file {path}: must hold one token and nothing else")
    return token


def _context(tls: TlsServerConfig, config_file: Path) -> tuple[ssl.SSLContext, list[Path]]:
    """A context, and the files it was made of."""
    certificate, key = config_file.parent / tls.cert_file, config_file.parent / tls.key_file
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version, context.maximum_version = _VERSIONS[tls.min_version], _VERSIONS[tls.max_version]
    if tls.prefer_server_cipher_suites:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    suites = [CIPHER_SUITES[suite] for suite in tls.cipher_suites if suite in CIPHER_SUITES]
    if suites:
        context.set_ciphers(":".join(suites))
    for name, path in (("cert_file", certificate), ("key_file", key)):
        try:
            path.read_bytes()
        except OSError as error:
            raise _wrong(config_file, name, path, str(error.strerror)) from error
    try:
        # The empty password keeps OpenSSL from asking a terminal for one.
        context.load_cert_chain(certificate, key, password="")
    except OSError as error:
        what = f"does not fit {certificate}: certificate and unencrypted key must be PEM and belong together"
        raise _wrong(config_file, "key_file", key, what) from error
    files = [certificate, key]
    if tls.client_auth_type != "NoClientCert":
        # Asked for, but not at once demanded: probes of the kubelet have no certificate.
        context.verify_mode = ssl.CERT_OPTIONAL
        files += _trust_clients(context, tls, config_file)
    return context, files


def _trust_clients(context: ssl.SSLContext, tls: TlsServerConfig, config_file: Path) -> list[Path]:
    """Load the authority of client certificates; the file it was read from, if it was one."""
    path = config_file.parent / tls.client_ca_file if tls.client_ca_file else None
    key = "client_ca" if path is None else "client_ca_file"
    try:
        pem = tls.client_ca if path is None else path.read_text("utf-8")
    except OSError as error:
        raise _wrong(config_file, key, path, str(error.strerror)) from error
    except UnicodeDecodeError:
        pem = ""
    try:
        context.load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError) as error:
        raise _wrong(config_file, key, path, "holds no CA certificate in PEM") from error
    return [] if path is None else [path]


def _wrong(config_file: Path, key: str, path: Path | None, what: str) -> SettingsError:
    value = "" if path is None else f" = {path}"
    return SettingsError(f"web config file {config_file}: tls_server_config.{key}{value}: {what}")
