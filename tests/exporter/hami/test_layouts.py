"""Every offset equals the one that a C compiler gave for HAMi-core's own structure."""

from __future__ import annotations

import json
import pathlib

import pytest

from exporter.hami.layouts import BY_FILE_SIZE, LAYOUTS, Layout

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures" / "hami-core"
EACH_LAYOUT = pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)


def compiled(layout: Layout) -> dict[str, dict[str, list[int]]]:
    manifest = json.loads((FIXTURES / layout.name / "manifest.json").read_text())
    assert manifest["struct_size"] == layout.struct_size
    assert manifest["file_size"] == layout.file_size
    assert manifest["version_fields"] == (list(layout.version) if layout.version else None)
    offsets: dict[str, dict[str, list[int]]] = manifest["offset_and_size"]
    return offsets


def test_there_is_a_layout_for_each_folder_of_fixtures() -> None:
    assert {layout.name for layout in LAYOUTS} == {
        path.parent.name for path in FIXTURES.glob("*/manifest.json")
    }


@EACH_LAYOUT
def test_offsets_of_the_region_equal_the_compilers(layout: Layout) -> None:
    region = compiled(layout)["region"]
    device_num = region.get("device_num") or region["num"]
    ours = {
        "sm_init_flag": layout.sm_init_flag,
        "owner_pid": layout.owner_pid,
        "sem": layout.sem,
        "uuids": layout.uuids,
        "limit": layout.limit,
        "sm_limit": layout.sm_limit,
        "procs": layout.procs,
        "proc_num": layout.tail,
        "utilization_switch": layout.tail + 4,
        "recent_kernel": layout.tail + 8,
        "priority": layout.tail + 12,
        "last_kernel_time": layout.last_kernel_time,
        "sem_postinit": layout.sem_postinit,
    }
    theirs = {name: region[name][0] if name in region else None for name in ours}
    assert ours == theirs
    assert layout.device_num == device_num[0]
    assert region["procs"][1] == 1024 * layout.slot_stride
    assert region["initialized_flag"] == [0, 4]
    assert region["uuids"][1] == 16 * 96


@EACH_LAYOUT
def test_offsets_of_a_slot_equal_the_compilers(layout: Layout) -> None:
    slot = compiled(layout)["process_slot"]
    assert slot["pid"] == [0, 4]
    assert slot["hostpid"] == [4, 4]
    assert slot["used"] == [layout.used, 16 * layout.record_stride]
    assert slot["monitorused"] == [layout.monitorused, 128]
    assert slot["status"] == [layout.status, 4]
    if layout.has_seqlock:
        assert slot["seqlock"] == [layout.seqlock, 8]
    else:
        # v1.1-2008952 has reserved zeros where processes of a newer library keep their counter.
        assert layout.seqlock in {None, slot.get("unused", [None])[0]}
    if layout.util is None:
        assert "device_util" not in slot
    else:
        assert slot["device_util"] == [layout.util, 16 * layout.util_stride]


@EACH_LAYOUT
def test_device_records_have_the_compilers_fields(layout: Layout) -> None:
    records = compiled(layout)
    if layout.kinds == 1:
        assert "device_memory" not in records
        return
    assert [records["device_memory"][name] for name in ("context_size", "module_size", "data_size")] == [
        [0, 8],
        [8, 8],
        [16, 8],
    ]
    assert records["device_memory"]["offset"] == [24, 8]
    assert records["device_memory"]["total"] == [32, 8]
    if layout.util is not None:
        assert records["device_util"] == {"dec_util": [0, 8], "enc_util": [8, 8], "sm_util": [16, 8]}


def test_layouts_of_one_file_size_share_every_offset_that_is_read_before_they_are_told_apart() -> None:
    for candidates in BY_FILE_SIZE.values():
        assert (
            len({(each.procs, each.slot_stride, each.tail, each.tail_struct.size) for each in candidates})
            == 1
        )


@EACH_LAYOUT
def test_the_tail_of_every_shorter_layout_is_watched_for(layout: Layout) -> None:
    """A lengthened file keeps its old tail; the version words tell it apart or the tail's place does."""
    shorter = [
        other
        for other in LAYOUTS
        if other.struct_size < layout.struct_size and other.version == layout.version
    ]
    assert [offset for offset, _ in layout.lengthened_tails] == [other.tail for other in shorter]
    for offset, slot in layout.lengthened_tails:
        assert layout.slot_offset(slot) <= offset < layout.slot_offset(slot + 1)
