"""What of the host can be seen: HAMi's containers roots, the cache files in them, processes, MIG lock.

Invariant: nothing is opened for writing, and a file is opened under the same rules as by the exporter.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from exporter.checkup.finding import Line, Looked, finding, note, ok
from exporter.hami.errors import CacheError
from exporter.hami.opening import read_cache
from exporter.hami.region import NotReady
from exporter.hami.tree import ContainerDirectory, scan_containers

ROOTS = "container roots"
CACHES = "cache files"
PROC = "host processes"
MIG_LOCK = "mig lock"
MIG_LOCK_STALE_S = 600
"""HAMi re-slices cards within seconds; a lock this old was left behind."""
BAD_SHOWN = 3

_PARENT_OF_THREADS = "kthreadd"


@dataclass(frozen=True, slots=True)
class Tree:
    """HAMi's directories: the UIDs of pods that have one, and how many cache files there are."""

    pod_uids: frozenset[str]
    caches: int


def has_driver(proc_root: Path | None) -> bool:
    """Whether NVIDIA's kernel driver is loaded: every `/proc` of the machine shows it."""
    return ((proc_root or Path("/proc")) / "driver/nvidia/version").exists()


def look_at_tree(roots: Sequence[Path], *, is_expected: bool) -> Looked[Tree]:
    """List the roots and decode every cache file in them.

    Args:
        roots: HAMi's containers directories.
        is_expected: This node has real cards and pods that HAMi-core serves.
    """
    found: list[ContainerDirectory] = []
    lines: list[Line] = []
    missing = [root for root in roots if not root.is_dir()]
    for root in roots:
        try:
            found += scan_containers(root).directories
        except CacheError as error:
            lines.append(finding(ROOTS, error.detail, "run as root, or mount it readable"))
    names = ", ".join(map(str, roots))
    if len(missing) == len(roots):
        mount = "mount the host's directory read-only into the exporter, or set --container-roots"
        if is_expected:
            lines.append(finding(ROOTS, f"{names}: not there, but pods hold slices of real cards", mount))
        else:
            quiet = f"{names}: not there; right where HAMi-core serves nobody (mock device plugin, MIG)"
            lines.append(note(ROOTS, quiet, f"else {mount}"))
        return Looked(lines)
    if not lines:
        gone = f"; not there: {', '.join(map(str, missing))}" if missing else ""
        lines.append(ok(ROOTS, f"{names}: {len(found)} containers{gone}"))
    paths = [path for directory in found for path in directory.caches]
    lines.append(_caches(paths))
    return Looked(lines, Tree(frozenset(each.pod_uid for each in found), len(paths)))


def look_at_processes(proc_root: Path | None, *, is_expected: bool) -> Line:
    """Whether the host's processes are seen: pid 2 is the kernel's thread parent there alone.

    Args:
        proc_root: As set.
        is_expected: There are GPU processes to be found.
    """
    if proc_root is None:
        return note(
            PROC,
            "not looked up (--proc-root is empty): processes are found by HAMi-core's own host pids",
            "run in the host's pid namespace and give its /proc with --proc-root",
        )
    try:
        name = (proc_root / "2/comm").read_text().strip()
    except OSError:
        name = ""
    if name == _PARENT_OF_THREADS:
        return ok(PROC, f"{proc_root} is the host's")
    make = finding if is_expected else note
    return make(
        PROC,
        f"{proc_root} is not the host's: the pids that NVML tells mean nothing in it",
        "set hostPID: true for the exporter's pod, or mount the host's /proc and give it with --proc-root",
    )


def look_at_mig_lock(path: Path, wall: Callable[[], float] = time.time) -> Line:
    """Whether HAMi re-slices cards just now."""
    try:
        age_s = wall() - path.stat().st_mtime
    except OSError:
        return ok(MIG_LOCK, f"{path} is not there: NVML may be used")
    if age_s < MIG_LOCK_STALE_S:
        return note(
            MIG_LOCK, f"{path}: HAMi re-slices cards, NVML is let go meanwhile", "wait, then check again"
        )
    return finding(
        MIG_LOCK,
        f"{path} is there since {age_s / 60:.0f} minutes: no card is read while it exists",
        "see HAMi's device plugin; if it re-slices nothing, remove the file",
    )


def _caches(paths: Sequence[str]) -> Line:
    if not paths:
        return note(CACHES, "none: HAMi-core makes one when a container first uses its GPU")
    read: Counter[str] = Counter()
    bad: Counter[str] = Counter()
    details: list[str] = []
    for path in paths:
        try:
            region = read_cache(path)
        except CacheError as error:
            bad[error.reason] += 1
            details.append(error.detail)
        else:
            read["not ready yet" if isinstance(region, NotReady) else region.layout] += 1
    counted = ", ".join(f"{layout} ×{count}" for layout, count in sorted(read.items()))
    if not bad:
        return ok(CACHES, f"{len(paths)} read: {counted}")
    reasons = ", ".join(f"{reason} ×{count}" for reason, count in sorted(bad.items()))
    return finding(
        CACHES,
        f"{sum(bad.values())} of {len(paths)} refused: {reasons}; {'; '.join(details[:BAD_SHOWN])}"
        + (f"; read: {counted}" if counted else ""),
        "slicemeter cache show FILE says more; memory of these slices comes from NVML meanwhile",
    )
