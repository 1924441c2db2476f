"""Cache files stay open while their directory stands still, and no longer."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.hami import tree
from exporter.node.sources import caches
from exporter.node.sources.caches import CacheReader, CacheSurvey
from exporter.node.tallies import Tallies
from lab.workloads.region_writer import RegionFile

MIB = 1_048_576


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CacheReader:
    # What was made a moment ago counts as settled.
    monkeypatch.setattr(tree, "SETTLED_NS", 0)
    return CacheReader([tmp_path], Tallies())


def _region(root: Path, name: str, limit_mib: int) -> None:
    folder = root / f"uid-{name}_main"
    folder.mkdir(exist_ok=True)
    RegionFile(folder / "x.cache", uuids=["GPU-a"], limits_bytes=[limit_mib * MIB]).close()


@contextlib.contextmanager
def _dated_anew(folder: Path) -> Iterator[None]:
    """What is done inside gives a folder another change time, however coarse the clock of its file system."""
    before_ns = folder.stat().st_ctime_ns
    yield
    while folder.stat().st_ctime_ns == before_ns:
        (folder / "scratch").touch()
        (folder / "scratch").unlink()


def _look(reader: CacheReader) -> CacheSurvey:
    return reader.survey(looks=0, wait=lambda _seconds: None)


def _open_here(root: Path) -> int:
    """How many of our descriptors lead below the root."""
    links = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            links.append(str(descriptor.readlink()))
        except FileNotFoundError:
            continue
    return sum(link.startswith(str(root)) for link in links)


def test_a_file_is_opened_once_and_closed_when_its_pod_has_gone(tmp_path: Path, reader: CacheReader) -> None:
    _region(tmp_path, "a", 4_000)
    for _ in range(3):
        _look(reader)
        assert _open_here(tmp_path) == 1
    with _dated_anew(tmp_path / "uid-a_main"):
        (tmp_path / "uid-a_main" / "x.cache").unlink()
    assert _look(reader).directories[0].caches == ()
    assert _open_here(tmp_path) == 0


def test_a_file_that_took_the_place_of_another_is_read_at_once(tmp_path: Path, reader: CacheReader) -> None:
    _region(tmp_path, "a", 4_000)
    _look(reader)
    (tmp_path / "other").mkdir()
    _region(tmp_path / "other", "b", 1_000)
    with _dated_anew(tmp_path / "uid-a_main"):
        (tmp_path / "other" / "uid-b_main" / "x.cache").rename(tmp_path / "uid-a_main" / "x.cache")
    (cache,) = _look(reader).directories[0].caches
    assert cache.region.limits_bytes[0] == 1_000 * MIB
    assert _open_here(tmp_path) == 1


def test_a_kept_file_that_was_shortened_is_refused_and_closed(tmp_path: Path, reader: CacheReader) -> None:
    _region(tmp_path, "a", 4_000)
    _look(reader)
    os.truncate(tmp_path / "uid-a_main" / "x.cache", 5_000)
    found = _look(reader)
    assert (found.directories[0].caches, found.files) == ((), {("", "unknown_size"): 1})
    assert _open_here(tmp_path) == 0


def test_no_more_files_are_kept_open_than_the_bound(
    tmp_path: Path, reader: CacheReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caches, "MOST_OPEN", 2)
    for name in ("m", "n", "o"):
        _region(tmp_path, name, 4_000)
    _look(reader)
    assert _open_here(tmp_path) == 2
    # Those that sort before them take their places.
    for name in ("a", "b"):
        _region(tmp_path, name, 4_000)
    assert len(_look(reader).directories) == 5
    assert _open_here(tmp_path) == 2


def test_closing_the_reader_closes_every_file(tmp_path: Path, reader: CacheReader) -> None:
    _region(tmp_path, "a", 4_000)
    _look(reader)
    reader.close()
    assert _open_here(tmp_path) == 0


def test_what_did_not_change_is_the_same_object(tmp_path: Path, reader: CacheReader) -> None:
    _region(tmp_path, "a", 4_000)
    _region(tmp_path, "b", 4_000)
    before = _look(reader).directories
    with _dated_anew(tmp_path / "uid-b_main"):
        (tmp_path / "uid-b_main" / "x.cache").unlink()
        _region(tmp_path, "b", 2_000)
    after = _look(reader).directories
    assert after[0] is before[0]
    assert after[1] is not before[1]
