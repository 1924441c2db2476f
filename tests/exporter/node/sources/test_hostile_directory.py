"""A tenant may put anything into its container's directory: it costs its own slice and nothing else."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from contract.ids import DeviceUuid, PodUid
from exporter.hami.layouts import V1_2_2008952 as LAYOUT
from exporter.node.attribution.owners import Attribution
from exporter.node.metering.counters import OwnerKey
from exporter.node.snapshot import SliceGauges
from lab.workloads.region_writer import RegionFile
from tests.exporter.node.proc import FakeProc, systemd_path
from tests.exporter.node.tree import MIB, A, Node, card_of, pod_of

GOOD = "11111111-aaaa-4000-8000-000000000001"
EVIL = "22222222-bbbb-4000-8000-000000000002"
GOOD_ID, EVIL_ID = "5f0a" * 16, "9c3e" * 16
TICKS = 12

REWRITER = """
import os, sys
path, size = sys.argv[1], int(sys.argv[2])
noise = [os.urandom(64 << 10) for _ in range(4)]
while True:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    os.ftruncate(descriptor, size)
    for number in range(40):
        os.pwrite(descriptor, bytes.fromhex('4ef72f010100000002000000') + noise[number % 4], 0)
        os.pwrite(descriptor, noise[number % 4][:4096], size - 4096)
    os.ftruncate(descriptor, 100)
    os.close(descriptor)
"""


@pytest.fixture
def node(tmp_path: Path) -> Node:
    proc = FakeProc(tmp_path / "proc")
    proc.add(100, 7, cgroup=systemd_path(GOOD, GOOD_ID))
    proc.add(101, 7, cgroup=systemd_path(EVIL, EVIL_ID))
    root = tmp_path / "containers"
    (root / f"{GOOD}_main").mkdir(parents=True)
    (root / f"{EVIL}_main").mkdir()
    return Node(root, proc.root)


@pytest.fixture
def evil(node: Node) -> Path:
    return node.root / f"{EVIL}_main"


@pytest.fixture
def region(node: Node) -> Iterator[RegionFile]:
    path = node.root / f"{GOOD}_main" / "x.cache"
    with RegionFile(path, uuids=[A], limits_bytes=[4_000 * MIB]) as found:
        found.attach(7, 100).set_memory(0, data_bytes=64 * MIB)
        yield found


def _look(node: Node, at_ms: int = 1_000) -> Attribution:
    pods = [
        pod_of("good", f"{A},NVIDIA,4000,0:;", uid=GOOD, ids={"main": f"containerd://{GOOD_ID}"}),
        pod_of("evil", f"{A},NVIDIA,4000,0:;", uid=EVIL, ids={"main": f"containerd://{EVIL_ID}"}),
    ]
    return node.look(pods, card_of(A, {100: 70 * MIB, 101: 33 * MIB}), looks=4, at_ms=at_ms)


def _slice(found: Attribution, uid: str) -> SliceGauges:
    key = OwnerKey(PodUid(uid), "main", DeviceUuid(A), is_slice=True)
    return next(gauges for gauges in found.slices if gauges.key == key)


def _assert_the_good_slice_is_right(node: Node, at_ms: int = 1_000) -> SliceGauges:
    """The other slice's gauges, after the good one's were found unharmed."""
    found = _look(node, at_ms)
    good = _slice(found, GOOD)
    assert (good.used_bytes, good.memory_source, good.processes) == (64 * MIB, "region", 1)
    assert good.region is not None
    assert good.region.limit_bytes == 4_000 * MIB
    return _slice(found, EVIL)


def _make_link(folder: Path) -> None:
    (folder / "a.cache").symlink_to(folder.parent / f"{GOOD}_main" / "x.cache")


def _make_pipe(folder: Path) -> None:
    os.mkfifo(folder / "a.cache")


def _make_device(folder: Path) -> None:
    try:
        os.mknod(folder / "a.cache", 0o020666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root makes device nodes")


def _make_socket(folder: Path) -> None:
    here = Path.cwd()
    os.chdir(folder)  # a socket's path is short
    try:
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as listener:
            listener.bind("a.cache")
    finally:
        os.chdir(here)


def _make_sparse(folder: Path) -> None:
    with (folder / "a.cache").open("wb") as file:
        file.truncate(10_000_000_000)


def _make_directory(folder: Path) -> None:
    (folder / "a.cache").mkdir()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_make_link, "symlink"),
        (_make_pipe, "not_regular"),
        (_make_device, "not_regular"),
        (_make_socket, "not_regular"),
        (_make_sparse, "unknown_size"),
        (_make_directory, "not_regular"),
    ],
    ids=["link", "pipe", "device", "socket", "sparse", "directory"],
)
@pytest.mark.usefixtures("region")
def test_what_is_no_region_costs_one_counted_error_and_its_own_limit(
    node: Node, evil: Path, make: object, reason: str
) -> None:
    assert callable(make)
    make(evil)
    for tick in range(3):
        other = _assert_the_good_slice_is_right(node, 1_000 * (tick + 1))
        # Its memory is what NVML says of its process.
        assert (other.used_bytes, other.memory_source, other.region) == (33 * MIB, "nvml", None)
    assert node.tallies.by_family()["cache_errors_total"] == {(reason,): 1}


@pytest.mark.usefixtures("region")
def test_ten_thousand_files_cost_a_bounded_look_and_no_memory(node: Node, evil: Path) -> None:
    first = evil / "00000.cache"
    first.write_bytes(bytes(100_000))
    for number in range(1, 10_000):
        (evil / f"{number:05}.cache").hardlink_to(first)
    _assert_the_good_slice_is_right(node)
    tracemalloc.start()
    try:
        for tick in range(TICKS):
            _assert_the_good_slice_is_right(node, 2_000 + 1_000 * tick)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2 * MIB


@pytest.mark.usefixtures("region")
def test_a_file_rewritten_at_full_speed_harms_no_other_and_costs_no_memory(node: Node, evil: Path) -> None:
    arguments = [sys.executable, "-c", REWRITER, str(evil / "a.cache"), str(LAYOUT.file_size)]
    with subprocess.Popen(arguments) as rewriter:
        try:
            while not (evil / "a.cache").exists():
                assert rewriter.poll() is None
            _assert_the_good_slice_is_right(node)
            tracemalloc.start()
            for tick in range(TICKS):
                other = _assert_the_good_slice_is_right(node, 2_000 + 1_000 * tick)
                # Whatever the noise says, no card's worth of memory is ever exceeded.
                assert other.used_bytes is None or 0 <= other.used_bytes <= 81_920 * MIB
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            rewriter.kill()
    # A thousand noisy slots are decoded at most.
    assert peak_bytes < 16 * MIB


def _make_a_mess(folder: Path) -> None:
    _make_pipe(folder)
    (folder / "b.cache").write_bytes(b"\x01" * 5_000)
    (folder / "c.cache").symlink_to("/etc/passwd")


@pytest.mark.usefixtures("region")
def test_nothing_under_the_tree_changes(node: Node, evil: Path) -> None:
    _make_a_mess(evil)
    before = _picture(node.root)
    for tick in range(3):
        _assert_the_good_slice_is_right(node, 1_000 * (tick + 1))
    assert _picture(node.root) == before


@pytest.mark.usefixtures("region")
def test_a_read_only_mount_of_the_tree_is_enough(node: Node, evil: Path) -> None:
    _make_a_mess(evil)

    def look() -> str:
        if not _mount_read_only(node.root):
            return "a mount namespace of one's own is not permitted here"
        with pytest.raises(OSError, match="Read-only"):
            (node.root / "x").touch()
        for tick in range(3):
            _assert_the_good_slice_is_right(node, 1_000 * (tick + 1))
        return ""

    # The namespace is that of one thread, and gone with it: nothing is left to unmount.
    with ThreadPoolExecutor(1) as pool:
        reason = pool.submit(look).result()
    if reason:
        pytest.skip(reason)
    (node.root / "x").touch()


def _picture(root: Path) -> list[tuple[str, int, int, int, int]]:
    return [
        (str(path), status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        for path in sorted(root.rglob("*"))
        for status in [path.lstat()]
    ]


def _mount_read_only(root: Path) -> bool:
    """Mount a tree over itself, read-only, for this thread alone; whether that is permitted."""
    new_mount_namespace = 0x20000
    if ctypes.CDLL(None).unshare(new_mount_namespace) != 0:
        return False
    return all(
        subprocess.run(["mount", *words], check=False, stderr=subprocess.DEVNULL).returncode == 0
        for words in (
            ["--make-rprivate", "/"],
            ["--bind", str(root), str(root)],
            ["-o", "remount,bind,ro", str(root)],
        )
    )


def test_a_reader_never_waits_for_a_pipe_without_a_writer(node: Node, evil: Path) -> None:
    _make_pipe(evil)
    done = threading.Event()

    def look() -> None:
        _look(node)
        done.set()

    threading.Thread(target=look, daemon=True).start()
    assert done.wait(20)
