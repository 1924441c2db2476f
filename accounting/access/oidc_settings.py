"""How people sign in by a company's OpenID provider: what an operator writes into `--oidc-config-file`.

Invariant: nobody is let in by default; a group that no mapping names opens nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from accounting.errors import InvalidError

CALLBACK = "/ui/oidc/callback"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_MAX_SECRET_BYTES = 4_096


class GroupMapping(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the people of a group may do.

    Attributes:
        group: Its name as the provider tells it.
        role: What its people are here.
        tenant: The subtree that a tenant's people read, as `acme/team-a`.
    """

    group: str
    role: Literal["tenant", "operator", "admin"]
    tenant: str | None = None


class OidcSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of one provider.

    Attributes:
        issuer: Its address, as its tokens name it.
        client_id: What it knows this service by.
        redirect_url: Where it sends people back to: this service's own address and `/ui/oidc/callback`.
        mapping: Groups and what they open; the first that a person is in holds.
        client_secret_file: A file with the client's secret, read anew each time; None: a public client.
        scopes: What is asked for.
        groups_claim: The claim that lists a person's groups; `a.b` is b within a.
        name_claim: The claim that the audit log names people by, besides their `sub`.
        api_audience: What `aud` of a bearer token at the API must name; None: the client's id.
        label: What the sign-in's button calls the provider.
        ca_file: CA of the provider; None: the system's.
    """

    issuer: str
    client_id: str
    redirect_url: str
    mapping: tuple[GroupMapping, ...]
    client_secret_file: Path | None = None
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    groups_claim: str = "groups"
    name_claim: str = "preferred_username"
    api_audience: str | None = None
    label: str = "single sign-on"
    ca_file: Path | None = None


def read_oidc_settings(path: Path) -> OidcSettings:
    """Read the file.

    Raises:
        InvalidError: It cannot be read, or says what cannot be.
    """
    try:
        settings = msgspec.toml.decode(
            path.read_bytes(), type=OidcSettings, dec_hook=lambda _kind, text: Path(text)
        )
    except OSError as error:
        raise InvalidError(f"cannot read {path}: {error.strerror} (--oidc-config-file)") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidError(f"{path}: {error}; docs/access.md shows such a file") from None
    for problem in _problems(settings):
        raise InvalidError(f"{path}: {problem}; docs/access.md shows such a file")
    return settings


def client_secret(settings: OidcSettings) -> str | None:
    """The client's secret, as it is now.

    Raises:
        InvalidError: The file cannot be read.
    """
    path = settings.client_secret_file
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            return file.read(_MAX_SECRET_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InvalidError(f"cannot read the client's secret in {path}: {reason}") from None


def is_trustworthy(url: str) -> bool:
    """Whether nobody on the way reads or changes what goes there: TLS, or this computer."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK))


def _problems(settings: OidcSettings) -> list[str]:
    found = [
        f'{name} "{url}" is no https:// address'
        for name, url in (("issuer", settings.issuer), ("redirect_url", settings.redirect_url))
        if not is_trustworthy(url)
    ]
    if not settings.redirect_url.endswith(CALLBACK):
        found.append(f'redirect_url "{settings.redirect_url}" does not end with {CALLBACK}')
    if "openid" not in settings.scopes:
        found.append('scopes lack "openid"')
    if not settings.client_id.strip() or not settings.groups_claim.strip():
        found.append("client_id and groups_claim are not empty")
    if not settings.mapping:
        found.append("no [[mapping]]: nobody could sign in")
    for one in settings.mapping:
        if (one.role == "tenant") != bool((one.tenant or "").strip("/")):
            found.append(f'the mapping of group "{one.group}": role tenant needs a tenant, no other has one')
        if not one.group:
            found.append("a mapping's group is not empty")
    return found
