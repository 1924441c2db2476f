"""Lists the cache files under HAMi's containers root, following no link and changing nothing.

HAMi's device plugin makes one directory per container, `<podUID>_<containerName>`; neither part can
hold an underscore before the first one. The random uuid in a cache file's name says nothing. The tenant
may put anything into that directory, so what is looked at there is bounded, and a listing is kept only
while the directory's change time, which no tenant can set, stands still.
Source: `reference/hami-core-cache-format.md` section 6.
"""

from __future__ import annotations

import operator
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from exporter.hami.errors import CacheOpenError

CACHE_SUFFIX: Final = ".cache"
MOST_ENTRIES: Final = 256
"""Entries looked at in one container's directory; HAMi itself makes two."""
MOST_CACHES: Final = 8
"""Cache files taken from one container's directory; a healthy one has one."""
SETTLED_NS: Final = 2_000_000_000
"""A directory that changed less than this ago may change again under the same time stamp."""


@dataclass(frozen=True, slots=True)
class ContainerDirectory:
    """A container's directory and its cache files (any kind of entry with that suffix), by name.

    Attributes:
        name: What it is called.
        version: Inode and change time under which it was listed; None = it must be listed again.
    """

    name: str
    pod_uid: str
    container: str
    path: str
    caches: tuple[str, ...]
    version: tuple[int, int] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class TreeScan:
    """What stands under the root.

    Attributes:
        ignored: Entries that are no container's directory, or could not be listed.
    """

    directories: tuple[ContainerDirectory, ...]
    ignored: int


def scan_containers(
    root: str | os.PathLike[str], known: Mapping[str, ContainerDirectory] | None = None
) -> TreeScan:
    """List every container's cache files under `root`; a missing root is an empty node.

    Args:
        root: HAMi's containers directory.
        known: Directories of an earlier scan of this root by name; those that did not change are not
            listed again.

    Raises:
        CacheOpenError: The root exists but cannot be listed.
    """
    directories: list[ContainerDirectory] = []
    ignored = 0
    try:
        entries = os.scandir(root)
    except FileNotFoundError:
        return TreeScan((), 0)
    except OSError as error:
        raise CacheOpenError(
            "unreadable", f"{os.fspath(root)}: {error.strerror}; mount HAMi's containers directory read-only"
        ) from error
    with entries:
        for entry in entries:
            pod_uid, underscore, container = entry.name.partition("_")
            if not (pod_uid and underscore and container and entry.is_dir(follow_symlinks=False)):
                ignored += 1
                continue
            try:
                directory = _listed(entry, pod_uid, container, known or {})
            except FileNotFoundError:
                continue  # the pod's directory went between the two listings
            except OSError:
                ignored += 1
                continue
            directories.append(directory)
    directories.sort(key=operator.attrgetter("path"))
    return TreeScan(tuple(directories), ignored)


def _listed(
    entry: os.DirEntry[str], pod_uid: str, container: str, known: Mapping[str, ContainerDirectory]
) -> ContainerDirectory:
    status = entry.stat(follow_symlinks=False)
    version = (status.st_ino, status.st_ctime_ns)
    former = known.get(entry.name)  # asking an entry for its path makes a string
    if former is not None and former.version == version:
        return former
    is_settled = status.st_ctime_ns < time.time_ns() - SETTLED_NS
    caches = tuple(_caches(entry.path))
    return ContainerDirectory(
        entry.name, pod_uid, container, entry.path, caches, version if is_settled else None
    )


def _caches(directory: str) -> Iterator[str]:
    with os.scandir(directory) as entries:
        looked_at = islice(entries, MOST_ENTRIES)
        paths = sorted(entry.path for entry in looked_at if entry.name.endswith(CACHE_SUFFIX))
    yield from paths[:MOST_CACHES]
