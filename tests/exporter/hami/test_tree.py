"""The containers root: one directory a container, anything in it, nothing followed, nothing changed."""

from __future__ import annotations

import os
import pathlib

import pytest

from exporter.hami import tree
from exporter.hami.errors import CacheOpenError
from exporter.hami.tree import ContainerDirectory, scan_containers

UID = "6f0d3a52-0c1e-4f2a-9a55-1d4b7f0c2e11"


def test_a_missing_root_is_a_node_without_containers(tmp_path: pathlib.Path) -> None:
    scan = scan_containers(tmp_path / "vgpu" / "containers")
    assert (scan.directories, scan.ignored) == ((), 0)


def test_a_directory_is_split_at_its_first_underscore(tmp_path: pathlib.Path) -> None:
    (tmp_path / f"{UID}_main").mkdir()
    (tmp_path / f"{UID}_odd_name").mkdir()
    found = [(each.pod_uid, each.container) for each in scan_containers(tmp_path).directories]
    assert found == [(UID, "main"), (UID, "odd_name")]


def test_all_cache_files_of_a_directory_are_listed_and_nothing_else(tmp_path: pathlib.Path) -> None:
    directory = tmp_path / f"{UID}_main"
    directory.mkdir()
    for name in ("b.cache", "a.cache", "libvgpu.so", "notes.txt"):
        (directory / name).touch()
    scan = scan_containers(tmp_path)
    caches = (str(directory / "a.cache"), str(directory / "b.cache"))
    assert scan.directories == (ContainerDirectory(f"{UID}_main", UID, "main", str(directory), caches),)
    assert scan.ignored == 0


def test_a_directory_without_a_cache_file_is_a_container_that_made_no_gpu_call(
    tmp_path: pathlib.Path,
) -> None:
    (tmp_path / f"{UID}_main").mkdir()
    assert [each.caches for each in scan_containers(tmp_path).directories] == [()]


def test_foreign_entries_are_ignored_and_counted(tmp_path: pathlib.Path) -> None:
    (tmp_path / "nounderscore").mkdir()
    (tmp_path / "_nouid").mkdir()
    (tmp_path / f"{UID}_").mkdir()
    (tmp_path / f"{UID}_file").touch()
    (tmp_path / f"{UID}_main").mkdir()
    (tmp_path / f"{UID}_link").symlink_to(tmp_path / f"{UID}_main")
    scan = scan_containers(tmp_path)
    assert [each.container for each in scan.directories] == ["main"]
    assert scan.ignored == 5


def test_a_tenant_who_fills_the_directory_costs_a_bounded_look(tmp_path: pathlib.Path) -> None:
    directory = tmp_path / f"{UID}_main"
    directory.mkdir()
    for number in range(400):
        (directory / f"{number:03}.cache").touch()
    (found,) = scan_containers(tmp_path).directories
    assert len(found.caches) == 8


def test_scanning_changes_nothing(tmp_path: pathlib.Path) -> None:
    directory = tmp_path / f"{UID}_main"
    directory.mkdir()
    (directory / "a.cache").write_bytes(b"x")
    before = [(path, path.lstat().st_mtime_ns, path.lstat().st_mode) for path in sorted(tmp_path.rglob("*"))]
    scan_containers(tmp_path)
    after = [(path, path.lstat().st_mtime_ns, path.lstat().st_mode) for path in sorted(tmp_path.rglob("*"))]
    assert after == before


def test_a_root_that_is_no_directory_is_an_error_with_a_way_out(tmp_path: pathlib.Path) -> None:
    (tmp_path / "containers").touch()
    with pytest.raises(CacheOpenError, match="mount HAMi's containers directory") as caught:
        scan_containers(tmp_path / "containers")
    assert caught.value.reason == "unreadable"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list everything")
def test_a_directory_that_may_not_be_listed_is_counted_and_hides_no_other(tmp_path: pathlib.Path) -> None:
    (tmp_path / f"{UID}_closed").mkdir(mode=0)
    (tmp_path / f"{UID}_main").mkdir()
    scan = scan_containers(tmp_path)
    assert [each.container for each in scan.directories] == ["main"]
    assert scan.ignored == 1


def test_a_directory_that_did_not_change_is_not_listed_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "SETTLED_NS", 0)
    directory = tmp_path / f"{UID}_main"
    directory.mkdir()
    (directory / "a.cache").touch()
    first = scan_containers(tmp_path)
    known = {each.name: each for each in first.directories}
    assert scan_containers(tmp_path, known).directories[0] is first.directories[0]
    # A tenant may set a directory's modification time back, but not its change time.
    kept = directory.stat().st_mtime_ns
    (directory / "b.cache").touch()
    os.utime(directory, ns=(kept, kept))
    (found,) = scan_containers(tmp_path, known).directories
    assert [pathlib.Path(path).name for path in found.caches] == ["a.cache", "b.cache"]


def test_a_directory_that_has_just_changed_is_listed_again_since_it_may_change_unseen(
    tmp_path: pathlib.Path,
) -> None:
    (tmp_path / f"{UID}_main").mkdir()
    (found,) = scan_containers(tmp_path).directories
    assert found.version is None


def test_a_directory_made_again_under_its_name_is_another(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "SETTLED_NS", 0)
    directory = tmp_path / f"{UID}_main"
    directory.mkdir()
    (directory / "a.cache").touch()
    known = {each.name: each for each in scan_containers(tmp_path).directories}
    (directory / "a.cache").unlink()
    directory.rmdir()
    directory.mkdir()
    (directory / "c.cache").touch()
    (found,) = scan_containers(tmp_path, known).directories
    assert [pathlib.Path(path).name for path in found.caches] == ["c.cache"]
