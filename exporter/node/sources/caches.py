"""Reads every cache file of the node once a tick, and the SM figures several times in between.

Invariants: a bad file costs one counted error (when it turns bad, not once a tick) and nothing else; a
file stays open only while its directory stands still, so that its path still leads to it; what did not
change is the same object as a tick ago; an SM figure that nobody writes any more is not given out.
"""

from __future__ import annotations

import operator
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import msgspec

from exporter.hami.errors import CacheError
from exporter.hami.opening import CacheFile, FileIdentity
from exporter.hami.reading import RegionMemory
from exporter.hami.region import NotReady, Region
from exporter.hami.tree import ContainerDirectory, scan_containers
from exporter.node.tallies import Tallies

CACHE_ERRORS = "cache_errors_total"
LOOKS = 4
LOOK_SPACING_S = 0.08
"""Four looks over 240 ms span two rounds of HAMi-core's watcher, which zeroes all slots in between."""

MOST_OPEN = 512
"""Files kept open from tick to tick; more are opened for each look."""

STILL_S = 60.0
"""A figure is not believed once its file has stood still so long; the kernel dates writes through a
mapping anew after some 35 s at the latest."""

Wait = Callable[[float], object]
At = tuple[int, int]
"""A figure's place: (container pid, device index)."""

_NO_FIGURES: Mapping[At, int] = MappingProxyType({})


class CacheReading(msgspec.Struct, frozen=True, gc=False):
    """One decoded file.

    Attributes:
        path: Where it lies.
        region: What it says.
        sm_percent: The highest SM figure of all looks by (container pid, device index).
    """

    path: str
    region: Region
    sm_percent: Mapping[At, int] = _NO_FIGURES


@dataclass(slots=True)
class _File:
    """What is remembered of one file.

    Attributes:
        file: It, kept open; None = it is opened for each look.
        reading: As it was handed out last.
        changes: How many changes its memory knew then.
        changed_s: When it was last seen to have changed.
        figures: The last figures, and when each was last seen to have changed.
    """

    identity: FileIdentity
    region: Region
    memory: RegionMemory
    modified_ns: int
    changes: int
    changed_s: float
    file: CacheFile | None = None
    reading: CacheReading | None = None
    figures: dict[At, tuple[int, float]] = field(default_factory=dict)

    def handed_out(self, path: str, sm_percent: Mapping[At, int]) -> CacheReading:
        """The reading; the very same one if nothing changed."""
        before = self.reading
        if (
            before is None
            or before.region is not self.region
            or (before.sm_percent is not sm_percent and before.sm_percent != sm_percent)
        ):
            before = self.reading = CacheReading(path, self.region, sm_percent)
        return before

    def let_go(self) -> None:
        """Close it."""
        file, self.file = self.file, None
        if file is not None:
            file.close()

    def believed(self, highest: Mapping[At, int], now_s: float) -> dict[At, int]:
        """Figures without those that stand still: whoever wrote them has stopped.

        HAMi-core leaves an old value for ever on the second device and up while it goes on writing the
        first, so there a figure must change itself.
        """
        return {
            at: percent
            for at, percent in highest.items()
            if not percent
            or now_s - self.figures[at][1] < STILL_S
            or (at[1] == 0 and now_s - self.changed_s < STILL_S)
        }


class DirectoryReading(msgspec.Struct, frozen=True, gc=False):
    """One container's directory; `container` is the name HAMi gave it, not always the right one."""

    pod_uid: str
    container: str
    caches: tuple[CacheReading, ...] = ()


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
    """Reads HAMi's trees; remembers regions (a counter left odd is waited for once) and bad files.

    Args:
        roots: HAMi's containers directories.
        tallies: Where unreadable files are counted.
        clock: Seconds that only grow.
    """

    def __init__(
        self, roots: Sequence[Path], tallies: Tallies, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._roots = roots
        self._tallies = tallies
        self._clock = clock
        self._known: dict[str, _File] = {}
        self._bad: dict[str, str] = {}
        self._readings: dict[str, DirectoryReading] = {}
        self._directories: dict[Path, dict[str, ContainerDirectory]] = {}

    def survey(self, *, looks: int, wait: Wait) -> CacheSurvey:
        """Read everything.

        Args:
            looks: How often SM figures are read; 0 = nobody needs them.
            wait: Waits the given seconds between looks.
        """
        known: dict[str, _File] = {}
        bad: dict[str, str] = {}
        files: Counter[tuple[str, str]] = Counter()
        now_s = self._clock()
        found, ignored, failure, has_tree = [], 0, None, False
        for root in self._roots:
            before = self._directories.get(root, {})
            try:
                scan = scan_containers(root, before)
            except CacheError as error:
                failure = error.detail
                continue
            has_tree = has_tree or root.is_dir()
            ignored += scan.ignored
            self._directories[root] = {each.name: each for each in scan.directories}
            for directory in scan.directories:
                is_still = before.get(directory.name) is directory
                for path in directory.caches:
                    # Without looks nobody asks when a file was written to.
                    is_the_same = is_still and not looks and self._glance(path, known, now_s)
                    if is_the_same:
                        result = known[path].region.layout, "read"
                    else:
                        result = self._read(path, known, bad, now_s, is_still=is_still)
                    files[result] += 1
                found.append(directory)
        self._count_new(bad)
        if not all(map(operator.is_, map(known.get, self._known), self._known.values())):
            self._let_go(known)
        self._known, self._bad = known, bad
        sm = self._looks(looks, wait)
        self._readings, before_all = {}, self._readings
        directories = tuple([self._reading(each, sm, before_all.get(each.path)) for each in found])
        return CacheSurvey(directories, has_tree, dict(files), ignored, failure)

    def close(self) -> None:
        """Let go of every file."""
        for each in self._known.values():
            each.let_go()

    def _reading(
        self,
        directory: ContainerDirectory,
        sm: Mapping[str, Mapping[At, int]],
        before: DirectoryReading | None,
    ) -> DirectoryReading:
        """A directory as it is handed out; the very same as before if nothing in it changed."""
        known = self._known
        caches = tuple(
            [
                known[path].handed_out(path, sm.get(path, _NO_FIGURES))
                for path in directory.caches
                if path in known
            ]
        )
        if before is None or not _are_the_same(before.caches, caches):
            before = DirectoryReading(directory.pod_uid, directory.container, caches)
        self._readings[directory.path] = before
        return before

    def _glance(self, path: str, known: dict[str, _File], now_s: float) -> bool:
        """Take a file that is kept open over into `known`; False = it must be read."""
        before = self._known.get(path)
        if before is None or before.file is None:
            return False
        try:
            region = before.file.glance(before.memory)
        except CacheError:
            return False  # reading it says why
        if region is None:
            return False
        if before.changes != before.memory.changes:
            before.changes, before.changed_s = before.memory.changes, now_s
        before.region = region
        known[path] = before
        if len(known) > MOST_OPEN:
            before.let_go()
        return True

    def _read(
        self, path: str, known: dict[str, _File], bad: dict[str, str], now_s: float, *, is_still: bool
    ) -> tuple[str, str]:
        """Read one file into `known` or `bad`; its (layout, result)."""
        before = self._known.get(path)
        file = before.file if before is not None and is_still else None
        is_kept = file is not None
        try:
            if file is None:
                file = CacheFile(path)
            else:
                file.refresh()
            found = self._region(file, before, now_s)
        except CacheError as error:
            bad[path] = error.reason
            found = None
        if found is None:
            if file is not None and not is_kept:
                file.close()
            return "", bad.get(path, "not_ready")
        known[path] = found
        if found.file is not file:
            found.let_go()
            found.file = file
        if len(known) > MOST_OPEN:
            found.let_go()
        return found.region.layout, "read"

    @staticmethod
    def _region(file: CacheFile, before: _File | None, now_s: float) -> _File | None:
        """What an open file says, remembered; None while it is not ready."""
        identity, modified_ns = file.identity, file.modified_ns
        if before is None or before.identity != identity:
            before, previous, memory = None, None, RegionMemory()
        else:
            previous, memory = before.region, before.memory
        region = file.read(previous=previous, memory=memory)
        if isinstance(region, NotReady):
            return None
        if before is None:
            return _File(identity, region, memory, modified_ns, memory.changes, now_s)
        if before.changes != memory.changes or before.modified_ns != modified_ns:
            before.changes, before.modified_ns, before.changed_s = memory.changes, modified_ns, now_s
        before.region = region
        return before

    def _let_go(self, known: Mapping[str, _File]) -> None:
        """Close what was not read this time, and what became another file."""
        for path, before in self._known.items():
            if known.get(path) is not before:
                before.let_go()

    def _count_new(self, bad: Mapping[str, str]) -> None:
        for path, reason in bad.items():
            if self._bad.get(path) != reason:
                self._tallies.count(CACHE_ERRORS, reason)

    def _looks(self, looks: int, wait: Wait) -> dict[str, dict[At, int]]:
        highest: dict[str, dict[At, int]] = {}
        if not looks:
            return highest
        files = [(path, known) for path, known in self._known.items() if known.region.live_slots]
        for look in range(looks):
            if look:
                wait(LOOK_SPACING_S)
            now_s = self._clock()
            for path, known in files:
                kept, figures = highest.setdefault(path, {}), known.figures
                for at, percent in _sm_percent(path, known):
                    kept[at] = max(percent, kept.get(at, 0))
                    if at not in figures or figures[at][0] != percent:
                        figures[at] = (percent, now_s)
        now_s = self._clock()
        found = {}
        for path, kept in highest.items():
            known = self._known[path]
            known.figures = {at: known.figures[at] for at in kept}
            found[path] = known.believed(kept, now_s)
        return found


def _are_the_same(one: Sequence[CacheReading], other: Sequence[CacheReading]) -> bool:
    return len(one) == len(other) and all(map(operator.is_, one, other))


def _sm_percent(path: str, known: _File) -> Iterable[tuple[At, int]]:
    try:
        if known.file is not None:
            return known.file.sm_util(known.region).items()
        with CacheFile(path) as again:
            return again.sm_util(known.region).items() if again.identity == known.identity else ()
    except CacheError:
        # It went between two looks; the next tick says so.
        return ()
