"""Whatever a tenant puts in a cache file's place costs one typed error: no crash, no hang, no write."""

from __future__ import annotations

import gzip
import os
import pathlib
import random
import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.hami.errors import CACHE_REASONS, CacheContentError, CacheError, CacheOpenError
from exporter.hami.layouts import BY_FILE_SIZE, LAYOUTS, V1_2_2008952, Layout
from exporter.hami.opening import CacheFile, read_cache, read_gzipped_cache
from exporter.hami.reading import read_region
from exporter.hami.region import NotReady, Region
from lab.workloads.region_writer import RegionFile

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures" / "hami-core"
GENUINE = gzip.decompress((FIXTURES / "v1.2-2008952" / "two_processes.cache.gz").read_bytes())
EACH_LAYOUT = pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)


def genuine(layout: Layout) -> bytes:
    return gzip.decompress(min((FIXTURES / layout.name).glob("two_processes*.gz")).read_bytes())


def decode(data: bytes) -> Region | NotReady:
    return read_region(
        lambda length, offset: data[offset : offset + length],
        len(data),
        "a.cache",
        pause=lambda _seconds: None,
    )


def outcome(data: bytes) -> Region | NotReady | str:
    """What was decoded, or the reason of a typed error; any other exception fails the test."""
    try:
        return decode(data)
    except CacheContentError as error:
        return error.reason


def boundaries(layout: Layout) -> set[int]:
    """Where each field and slot begins, give or take a byte."""
    places = {0, 4, 8, 12, layout.owner_pid, layout.sem, layout.device_num, layout.uuids, layout.limit}
    places |= {layout.sm_limit, layout.procs, layout.tail, layout.struct_size, layout.file_size}
    places |= {layout.slot_offset(slot) for slot in range(0, 1025, 64)}
    places |= {layout.tail + 4 * word for word in range(12)}
    return {place + near for place in places for near in (-1, 0, 1)}


@EACH_LAYOUT
def test_every_truncation_is_not_ready_or_refused_with_a_reason(layout: Layout) -> None:
    whole = genuine(layout)
    cuts = boundaries(layout) | set(range(64)) | set(range(0, len(whole), 4099)) | set(BY_FILE_SIZE)
    for cut in sorted(cut for cut in cuts if 0 <= cut < len(whole)):
        if cut < 12:
            found = decode(whole[:cut])
            assert isinstance(found, NotReady)
            assert found.reason == "too_short"
            continue
        with pytest.raises(CacheContentError) as caught:
            decode(whole[:cut])
        assert caught.value.reason == ("header_mismatch" if cut in BY_FILE_SIZE else "unknown_size")


@pytest.mark.parametrize("cut", [0, 1, 11, 12, 4096, 280393, 1197897, 2008952])
def test_truncated_file_on_disk_is_read_like_its_bytes(cut: int, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.cache"
    path.write_bytes(GENUINE[:cut])
    if cut < 12:
        assert isinstance(read_cache(path), NotReady)
        return
    with pytest.raises(CacheContentError) as caught:
        read_cache(path)
    assert caught.value.reason in {"unknown_size", "header_mismatch"}
    assert str(path) in caught.value.detail


def is_sane(region: Region) -> bool:
    counts = 0 <= region.device_num <= 16 and 0 <= region.proc_num <= 1024
    lists = len(region.devices) == region.device_num and len(region.slots) == region.proc_num
    names = all(device.uuid is None or device.uuid.isascii() for device in region.devices)
    uses = all(use.total_bytes < 2**63 for use in region.usage(region.live_slots[:1]))
    return counts and lists and names and uses


@given(data=st.binary(max_size=4096))
def test_any_short_bytes_give_a_value_or_a_typed_error(data: bytes) -> None:
    found = outcome(data)
    assert isinstance(found, NotReady) if len(data) < 12 else found == "unknown_size"


@given(
    layout=st.sampled_from(LAYOUTS),
    seed=st.integers(min_value=0, max_value=2**32),
    keep_prefix=st.booleans(),
    process_count=st.sampled_from([-(2**31), -1, 0, 1, 3, 64, 1024, 2**31 - 1]),
)
def test_noise_of_a_known_size_gives_a_value_or_a_typed_error(
    layout: Layout, seed: int, keep_prefix: bool, process_count: int
) -> None:
    noise = bytearray(random.Random(seed).randbytes(layout.file_size))
    if keep_prefix:
        noise[: len(layout.prefix)] = layout.prefix
        for spare in layout.sem_spares:
            noise[spare : spare + 16] = bytes(16)
        for offset, _ in layout.lengthened_tails:
            noise[offset : offset + 16] = bytes(16)
    noise[layout.tail : layout.tail + 4] = process_count.to_bytes(4, "little", signed=True)
    found = outcome(bytes(noise))
    if isinstance(found, str):
        assert found == "header_mismatch" if keep_prefix else found in CACHE_REASONS
    else:
        assert isinstance(found, Region)
        assert found.proc_num == min(max(process_count, 0), 1024)
        assert is_sane(found)


@given(
    flips=st.lists(
        st.tuples(
            st.one_of(
                st.integers(0, V1_2_2008952.slot_offset(2) - 1),
                st.integers(V1_2_2008952.tail, V1_2_2008952.struct_size - 1),
            ),
            st.integers(0, 255),
        ),
        min_size=1,
        max_size=40,
    )
)
def test_a_genuine_file_with_any_bytes_changed_gives_a_value_or_a_typed_error(
    flips: list[tuple[int, int]],
) -> None:
    data = bytearray(GENUINE)
    for offset, value in flips:
        data[offset] = value
    found = outcome(bytes(data))
    if isinstance(found, str):
        assert found in CACHE_REASONS
    else:
        assert isinstance(found, NotReady) or is_sane(found)


def make_socket(path: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.mkdir(), "not_regular"),
        (os.mkfifo, "not_regular"),
        (make_socket, "not_regular"),
        (lambda path: path.symlink_to("/etc/passwd"), "symlink"),
        (lambda path: path.symlink_to(path.name), "symlink"),
        (lambda path: path.symlink_to("/dev/zero"), "symlink"),
        (lambda _path: None, "missing"),
    ],
    ids=["directory", "pipe", "socket", "link", "link-to-itself", "link-to-device", "nothing"],
)
def test_anything_but_a_regular_file_is_refused_without_blocking(
    make: object, reason: str, tmp_path: pathlib.Path
) -> None:
    assert callable(make)
    path = tmp_path / "a.cache"
    make(path)
    for read in (read_cache, read_gzipped_cache):
        with pytest.raises(CacheOpenError) as caught:
            read(path)
        assert caught.value.reason == reason
        assert str(path) in caught.value.detail


@pytest.mark.parametrize("device", ["/dev/null", "/dev/zero", "/dev/tty"])
def test_a_device_is_refused(device: str) -> None:
    with pytest.raises(CacheOpenError) as caught:
        read_cache(device)
    # /dev/tty cannot even be opened where there is no terminal.
    assert caught.value.reason == "not_regular"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.cache"
    path.write_bytes(GENUINE)
    path.chmod(0)
    with pytest.raises(CacheOpenError) as caught:
        read_cache(path)
    assert caught.value.reason == "unreadable"


def test_a_name_with_a_nul_is_refused() -> None:
    with pytest.raises(CacheOpenError) as caught:
        read_cache("a\0.cache")
    assert caught.value.reason == "unreadable"


def test_a_hostile_file_name_reaches_no_terminal(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "\x1b[2J.cache"
    path.write_bytes(b"x" * 100)
    with pytest.raises(CacheError) as caught:
        read_cache(path)
    assert "\x1b" not in caught.value.detail
    assert "\\x1b[2J.cache" in caught.value.detail


def test_a_file_that_shrinks_and_grows_while_it_is_read_never_breaks_the_reader(
    tmp_path: pathlib.Path,
) -> None:
    path = tmp_path / "a.cache"
    path.write_bytes(GENUINE)
    done = threading.Event()

    def shake() -> None:
        with path.open("r+b") as file:
            while not done.is_set():
                file.truncate(100)
                file.seek(0)
                file.write(GENUINE)
                file.flush()

    shaker = threading.Thread(target=shake)
    shaker.start()
    try:
        for _ in range(300):
            try:
                found = read_cache(path, pause=lambda _seconds: None)
            except CacheContentError as error:
                assert error.reason in {"truncated", "unknown_size", "header_mismatch"}  # noqa: PT017
            else:
                assert isinstance(found, NotReady) or is_sane(found)
    finally:
        done.set()
        shaker.join()


def test_reading_changes_neither_content_nor_times(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.cache"
    path.write_bytes(GENUINE)
    path.chmod(0o444)
    os.utime(path, ns=(1, 2))
    before = path.stat()
    assert isinstance(read_cache(path), Region)
    after = path.stat()
    assert path.read_bytes() == GENUINE
    assert (after.st_mtime_ns, after.st_ctime_ns, after.st_mode) == (
        before.st_mtime_ns,
        before.st_ctime_ns,
        before.st_mode,
    )


def test_no_descriptor_is_left_open_whatever_happens(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.cache"
    path.write_bytes(GENUINE)
    (tmp_path / "short.cache").write_bytes(b"x" * 50)
    before = len(list(pathlib.Path("/proc/self/fd").iterdir()))
    for target in (path, tmp_path / "short.cache", tmp_path, tmp_path / "none.cache"):
        for read in (read_cache, read_gzipped_cache):
            try:
                read(target)
            except CacheError:
                continue
    assert len(list(pathlib.Path("/proc/self/fd").iterdir())) == before


def test_identity_changes_with_the_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.cache"
    path.write_bytes(GENUINE)
    with CacheFile(path) as first, CacheFile(path) as same:
        assert first.identity == same.identity
        (tmp_path / "b.cache").write_bytes(GENUINE)
        (tmp_path / "b.cache").rename(path)
        with CacheFile(path) as other:
            assert other.identity != first.identity


@pytest.mark.parametrize(
    ("packed", "reason"),
    [
        (b"no gzip at all", "damaged_gzip"),
        (gzip.compress(GENUINE)[:500], "damaged_gzip"),
        (gzip.compress(GENUINE)[:-4] + b"oops", "damaged_gzip"),
        (gzip.compress(bytes(2**24)), "unknown_size"),
    ],
    ids=["plain text", "cut off", "wrong length", "unpacks to 16 MiB"],
)
def test_a_bad_gzip_is_refused(packed: bytes, reason: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.cache.gz"
    path.write_bytes(packed)
    with pytest.raises(CacheContentError) as caught:
        read_gzipped_cache(path)
    assert caught.value.reason == reason


def test_sm_use_is_looked_at_anew_and_keeps_to_the_process(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.cache"
    with RegionFile(path, uuids=["GPU-a", "GPU-b"], limits_bytes=[0, 0]) as written:
        one, two = written.attach(10, 1010), written.attach(11, 1011)
        one.set_sm(0, 30)
        with CacheFile(path) as file:
            region = file.read()
            assert isinstance(region, Region)
            assert file.sm_util(region) == {(10, 0): 30, (10, 1): 0, (11, 0): 0, (11, 1): 0}
            one.set_sm(0, 0)
            two.set_sm(1, 55)
            assert file.sm_util(region) == {(10, 0): 0, (10, 1): 0, (11, 0): 0, (11, 1): 55}
            two.exit()
            assert file.sm_util(region) == {(10, 0): 0, (10, 1): 0}
            path.write_bytes(b"")
            assert file.sm_util(region) == {}


@pytest.mark.parametrize("name", ["legacy-280392", "v0-804680"])
def test_layouts_without_utilisation_have_no_sm_use(name: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.cache"
    path.write_bytes(genuine(next(layout for layout in LAYOUTS if layout.name == name)))
    with CacheFile(path) as file:
        region = file.read()
        assert isinstance(region, Region)
        assert len(region.live_slots) == 2
        assert file.sm_util(region) == {}


def test_figures_of_far_apart_slots_are_all_read(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.cache"
    with RegionFile(path, uuids=["GPU-1"], limits_bytes=[0]) as writer:
        slots = [writer.attach(100 + number, 0) for number in range(40)]
        for number in (0, 15, 16, 39):
            slots[number].set_sm(0, number + 1)
        with CacheFile(path) as file:
            region = file.read()
            assert isinstance(region, Region)
            found = file.sm_util(region)
    assert len(found) == 40
    assert {at: percent for at, percent in found.items() if percent} == {
        (100, 0): 1,
        (115, 0): 16,
        (116, 0): 17,
        (139, 0): 40,
    }
