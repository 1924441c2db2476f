"""An independent decoder (dissect.cstruct, from the C text of the structures) reads the same values."""

from __future__ import annotations

import gzip
import json
import pathlib
from typing import Any

import pytest
from dissect.cstruct import cstruct

from exporter.hami.opening import read_gzipped_cache
from exporter.hami.region import Region

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures" / "hami-core"

RECORDS = {
    "legacy-280392": "typedef uint64 memory_t; struct slot { int32 pid; int32 hostpid; memory_t used[16];"
    " uint64 monitorused[16]; int32 status; int32 gap; };",
    "v0-804680": "struct memory_t { int64 context; int64 module; int64 data; int64 offset; int64 total; };"
    " struct slot { int32 pid; int32 hostpid; memory_t used[16]; uint64 monitorused[16];"
    " int32 status; int32 gap; };",
    "v0-1197896": "struct memory_t { int64 context; int64 module; int64 data; int64 offset; int64 total; };"
    " struct util_t { uint64 dec; uint64 enc; uint64 sm; };"
    " struct slot { int32 pid; int32 hostpid; memory_t used[16]; uint64 monitorused[16]; util_t util[16];"
    " int32 status; int32 gap; };",
}
MEMORY_V1 = (
    "struct memory_t { int64 context; int64 module; int64 data; int64 offset; int64 total; uint64 gap[3]; };"
    " struct util_t { uint64 dec; uint64 enc; uint64 sm; uint64 gap[3]; };"
)
SLOT_V12 = (
    " struct slot { int32 pid; int32 hostpid; memory_t used[16]; uint64 monitorused[16]; util_t util[16];"
    " int32 status; int32 gap; uint64 seqlock; uint64 spare[2]; };"
)
RECORDS["v1.1-2008952"] = MEMORY_V1 + SLOT_V12
RECORDS["v1.2-2008952"] = MEMORY_V1 + SLOT_V12
RECORDS["v1.1-2008984"] = MEMORY_V1 + (
    " struct slot { int32 pid; int32 hostpid; uint64 seqlock; memory_t used[16]; uint64 monitorused[16];"
    " util_t util[16]; int32 status; int32 gap; uint64 spare[2]; };"
)
BODY = (
    "uint64 device_num; char uuids[1536]; uint64 limit[16]; uint64 sm_limit[16]; slot procs[{slots}]; "
    "char unused_slots[{rest}]; int32 proc_num; int32 utilization_switch; int32 recent_kernel;"
    " int32 priority;"
)
OLD_HEAD = "int32 magic; int32 sm_init_flag; uint64 owner_pid; char sem[32];"
NEW_HEAD = "int32 magic; uint32 major; uint32 minor; int32 sm_init_flag; uint64 owner_pid; char sem[32];"
STRIDES = {"legacy-280392": 272, "v0-804680": 784, "v0-1197896": 1168}


def oracle(layout: str, data: bytes, slots: int) -> Any:
    """Parse a region from its C declaration; only the first `slots` slots, for the oracle is slow."""
    rest = (1024 - slots) * STRIDES.get(layout, 1960)
    head = OLD_HEAD if layout in STRIDES else NEW_HEAD
    if layout == "v1.1-2008984":
        head += "char sem_postinit[32];"
    tail = "" if layout in STRIDES else "uint64 last_kernel_time;"
    parser = cstruct()
    parser.load(
        RECORDS[layout] + "struct region {" + head + BODY.format(slots=slots, rest=rest) + tail + "};"
    )
    return parser.region(data)


def cases() -> list[Any]:
    found = []
    for manifest in sorted(FIXTURES.glob("*/manifest.json")):
        for case in json.loads(manifest.read_text())["cases"]:
            if case["expected"]["outcome"] == "ok" and case["expected"]["proc_num"]:
                # a file keeps the layout that it was made in
                layout = case["expected"]["layout"]
                found.append(
                    pytest.param(
                        manifest.parent / case["file"],
                        layout,
                        case["expected"]["proc_num"],
                        id=f"{layout}/{case['case']}",
                    )
                )
    return found


@pytest.mark.parametrize(("path", "layout", "slots"), cases())
def test_reader_and_oracle_agree(path: pathlib.Path, layout: str, slots: int) -> None:
    ours = read_gzipped_cache(path)
    assert isinstance(ours, Region)
    theirs = oracle(layout, gzip.decompress(path.read_bytes()), slots)
    assert (ours.layout, ours.owner_pid, ours.device_num) == (layout, theirs.owner_pid, theirs.device_num)
    assert ours.proc_num == theirs.proc_num
    assert (ours.utilization_switch, ours.recent_kernel, ours.priority) == (
        theirs.utilization_switch,
        theirs.recent_kernel,
        theirs.priority,
    )
    assert ours.limits_bytes == tuple(theirs.limit)
    assert ours.sm_limits_percent == tuple(theirs.sm_limit)
    assert [device.uuid for device in ours.devices] == [
        bytes(theirs.uuids[96 * index : 96 * index + 96]).split(b"\0")[0].decode()
        for index in range(ours.device_num)
    ]
    for slot, their_slot in zip(ours.slots, theirs.procs, strict=True):
        assert (slot.pid, slot.hostpid, slot.status) == (
            their_slot.pid,
            their_slot.hostpid,
            their_slot.status,
        )
        assert slot.seqlock == getattr(their_slot, "seqlock", None)
        for index in range(16):
            use, record = slot.on(index), their_slot.used[index]
            total = record if layout == "legacy-280392" else record.total
            assert (use.total_bytes if use else 0) == total
            assert (use.monitorused_bytes if use else 0) == their_slot.monitorused[index]
            if use and use.data_bytes is not None:
                assert (use.context_bytes, use.module_bytes, use.data_bytes, use.offset_bytes) == (
                    record.context,
                    record.module,
                    record.data,
                    record.offset,
                )
            if use and use.sm_util_percent is not None:
                util = their_slot.util[index]
                assert (use.sm_util_percent, use.enc_util_percent, use.dec_util_percent) == (
                    util.sm,
                    util.enc,
                    util.dec,
                )
