"""Why a cache file was refused: two kinds of refusal, each with a closed word for a metric label.

A file that is merely not ready yet is no error: readers return `NotReady` for it.
"""

from __future__ import annotations

import os
from typing import Final

from exporter.errors import ExporterError

OPEN_REASONS: Final = ("missing", "not_regular", "symlink", "unreadable")
CONTENT_REASONS: Final = ("damaged_gzip", "foreign_magic", "header_mismatch", "truncated", "unknown_size")
CACHE_REASONS: Final = OPEN_REASONS + CONTENT_REASONS
"""Every reason a cache file can be refused for, so that its counter can start at 0."""


class CacheError(ExporterError):
    """A cache file was refused; `reason` is one of `CACHE_REASONS`."""


class CacheOpenError(CacheError):
    """The path cannot be opened or is not a regular file; `reason` is one of `OPEN_REASONS`."""


class CacheContentError(CacheError):
    """The bytes are no region of a known layout; `reason` is one of `CONTENT_REASONS`."""


def printable(path: str | os.PathLike[str]) -> str:
    """A path fit for logs and terminals: a tenant chose the file's name, escape sequences included."""
    name = os.fspath(path)
    return name if name.isprintable() else ascii(name)
