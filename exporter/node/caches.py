"""Reads every cache file of the node once a tick, and the SM figures several times in between.

Invariant: a bad file costs one counted error (when it turns bad, not once a tick) and nothing else; no
file stays open from one look to the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from exporter.hami.errors import CacheError
from exporter.hami.opening import CacheFile, FileIdentity
from exporter.hami.region import NotReady, Region
from exporter.hami.tree import scan_containers
from exporter.node.tallies import Tallies

CACHE_ERRORS = "cache_errors_total"
LOOKS = 4
LOOK_SPACING_S = 0.08
"""Four looks over 240 ms span two rounds of HAMi-core's watcher, which zeroes all slots in between."""

Wait = Callable[[float], object]


@dataclass(frozen=True, slots=True)
class CacheReading:
    """One decoded file.

    Attributes:
        path: Where it lies.
        region: What it says.
        sm_percent: The highest SM figure of all looks by (container pid, device index).
    """

    path: str
    region: Region
    sm_percent: Mapping[tuple[int, int], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DirectoryReading:
    """One container's directory; `container` is the name HAMi gave it, not always the right one."""

    pod_uid: str
    container: str
    caches: tuple[CacheReading, ...] = ()
    has_unreadable: bool = False


@dataclass(frozen=True, slots=True)
class CacheSurvey:
    """All of HAMi's tree at one tick.

    Attributes:
        has_tree: A containers directory exists; a mock node has none.
        files: How many files by (layout, result).
        ignored: Entries that are no container's directory.
        failure: Why a root could not be listed.
    """

    directories: tuple[DirectoryReading, ...] = ()
    has_tree: bool = False
    files: Mapping[tuple[str, str], int] = field(default_factory=dict)
    ignored: int = 0
    failure: str | None = None


class CacheReader:
    """Reads HAMi's trees; remembers regions (a counter left odd is waited for once) and bad files."""

    def __init__(self, roots: Sequence[Path], tallies: Tallies) -> None:
        self._roots = roots
        self._tallies = tallies
        self._known: dict[str, tuple[FileIdentity, Region]] = {}
        self._bad: dict[str, str] = {}

    def survey(self, *, looks: int, wait: Wait) -> CacheSurvey:
        """Read everything.

        Args:
            looks: How often SM figures are read; 0 = nobody needs them.
            wait: Waits the given seconds between looks.
        """
        known: dict[str, tuple[FileIdentity, Region]] = {}
        bad: dict[str, str] = {}
        files: Counter[tuple[str, str]] = Counter()
        found, ignored, failure, has_tree = [], 0, None, False
        for root in self._roots:
            try:
                scan = scan_containers(root)
            except CacheError as error:
                failure = error.detail
                continue
            has_tree = has_tree or root.is_dir()
            ignored += scan.ignored
            for directory in scan.directories:
                for path in directory.caches:
                    files[self._read(path, known, bad)] += 1
                found.append(directory)
        self._count_new(bad)
        self._known, self._bad = known, bad
        sm = self._looks(looks, wait)
        directories = tuple(
            DirectoryReading(
                each.pod_uid,
                each.container,
                tuple(
                    CacheReading(path, known[path][1], sm.get(path, {}))
                    for path in each.caches
                    if path in known
                ),
                any(path in bad for path in each.caches),
            )
            for each in found
        )
        return CacheSurvey(directories, has_tree, dict(files), ignored, failure)

    def _read(
        self, path: str, known: dict[str, tuple[FileIdentity, Region]], bad: dict[str, str]
    ) -> tuple[str, str]:
        """Read one file into `known` or `bad`; its (layout, result)."""
        try:
            with CacheFile(path) as file:
                before = self._known.get(path)
                previous = before[1] if before is not None and before[0] == file.identity else None
                region = file.read(previous=previous)
        except CacheError as error:
            bad[path] = error.reason
            return "", error.reason
        if isinstance(region, NotReady):
            return "", "not_ready"
        known[path] = (file.identity, region)
        return region.layout, "read"

    def _count_new(self, bad: Mapping[str, str]) -> None:
        for path, reason in bad.items():
            if self._bad.get(path) != reason:
                self._tallies.count(CACHE_ERRORS, reason)

    def _looks(self, looks: int, wait: Wait) -> dict[str, dict[tuple[int, int], int]]:
        highest: dict[str, dict[tuple[int, int], int]] = {}
        for look in range(looks):
            if look:
                wait(LOOK_SPACING_S)
            for path, (identity, region) in self._known.items():
                if region.live_slots:
                    kept = highest.setdefault(path, {})
                    for at, percent in _sm_percent(path, identity, region):
                        kept[at] = max(percent, kept.get(at, 0))
        return highest


def _sm_percent(path: str, identity: FileIdentity, region: Region) -> Iterable[tuple[tuple[int, int], int]]:
    try:
        with CacheFile(path) as file:
            return file.sm_util(region).items() if file.identity == identity else ()
    except CacheError:
        # It went between two looks; the next tick says so.
        return ()
