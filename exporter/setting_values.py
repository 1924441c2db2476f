"""From text to value: one function for each kind of setting. Pure.

Each raises ValueError for a text that cannot be; its words say what would be right, as a user reads them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from contract.ids import ClusterCode
from exporter.kube.tenant import TenantRule, TenantRuleError, parse_tenant_rules

Compat: TypeAlias = Literal["hami"]


def cluster_code(text: str) -> ClusterCode:
    """A cluster's code."""
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", text):
        raise ValueError("give the cluster's code in accounting: up to 63 of a-z, 0-9 and -")
    return ClusterCode(text)


def word(text: str) -> str:
    """Text that is not empty."""
    if not text.strip():
        raise ValueError("it must not be empty")
    return text.strip()


def words(text: str) -> tuple[str, ...]:
    """Words between commas."""
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if not words:
        raise ValueError("give at least one, separated by commas")
    return words


def path(text: str) -> Path:
    """A path."""
    return Path(word(text))


def optional_path(text: str) -> Path | None:
    """A path, or nothing."""
    return Path(text.strip()) if text.strip() else None


def paths(text: str) -> tuple[Path, ...]:
    """Paths between commas."""
    return tuple(Path(word) for word in words(text))


def optional_url(text: str) -> str | None:
    """An address, or nothing."""
    return url(text) if text.strip() else None


def url(text: str) -> str:
    """An address; a slash at its end is dropped."""
    address = text.strip().rstrip("/")
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("give an address like https://host:port")
    try:
        _ = parts.port
    except ValueError as error:
        raise ValueError("give a port between 0 and 65535") from error
    return address


def port(text: str) -> int:
    """A port; 0 = any free one."""
    if not text.isascii() or not text.isdigit() or int(text) > 65_535:
        raise ValueError("give a port between 0 and 65535 (0 = any free one)")
    return int(text)


def factor(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1_000_000:
        raise ValueError("give a whole number from 1 on")
    return int(text)


def compat(text: str) -> Compat | None:
    """Whose names to serve too, or nothing."""
    word = text.strip()
    if word not in {"", "hami"}:
        raise ValueError("give hami or nothing")
    return "hami" if word else None


def series(text: str) -> int:
    """A number of series."""
    if not text.isascii() or not text.isdigit() or not 100 <= int(text) <= 10_000_000:
        raise ValueError("give a whole number from 100 to 10000000")
    return int(text)


def seconds(low: float, high: float) -> Callable[[str], float]:
    """Makes the parser of seconds between two bounds."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not low <= value <= high:
            raise ValueError(f"give seconds between {low:g} and {high:g}")
        return value

    return parse


def tenant_rules(text: str) -> tuple[TenantRule, ...]:
    """Rules for the tenant key."""
    try:
        return parse_tenant_rules(text)
    except TenantRuleError as error:
        # The detail begins with the flag and its text, which our own line names already.
        raise ValueError(error.detail.partition('": ')[2]) from error
