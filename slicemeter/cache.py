"""`slicemeter cache show`: decodes HAMi-core cache files for people and, with --json, for programs.

Invariant: every file that can be opened is shown, whatever the others hold; one that is refused makes
the exit code 2 and is named on stderr. The JSON contract is DESIGN section 6.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, TypeAlias

from exporter.hami.errors import CacheError, printable
from exporter.hami.opening import read_cache, read_gzipped_cache
from exporter.hami.region import DeviceUse, NotReady, Region, Slot

Json: TypeAlias = "bool | int | str | Sequence[Json] | Mapping[str, Json] | None"

STATUS: Final = {0: "exited", 1: "running", 2: "suspended"}
MIB: Final = 2**20
REJECTED = "reject"
_NOT_SHOWN: Final = {"missing", "unreadable"}


def main(argv: Sequence[str]) -> int:
    """Run `slicemeter cache …`; returns 0, or 2 when a file was refused."""
    parser = argparse.ArgumentParser(prog="slicemeter cache", description="Decode HAMi-core cache files.")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    show = commands.add_parser("show", help="show what each file holds")
    show.add_argument("files", nargs="+", metavar="FILE", help="a .cache file, or a .gz copy of one")
    show.add_argument("--json", action="store_true", help="one JSON object a line and file")
    options = parser.parse_args(argv)
    refused = [file for file in options.files if not _show(file, as_json=options.json)]
    return 2 if refused else 0


def _show(file: str, *, as_json: bool) -> bool:
    """Show one file; False when it was refused."""
    try:
        found = read_gzipped_cache(file) if file.endswith(".gz") else read_cache(file)
    except CacheError as error:
        print(f"slicemeter cache show: {error.detail}", file=sys.stderr)
        if error.reason not in _NOT_SHOWN:
            print(_outcome(file, REJECTED, error.reason, error.detail, as_json=as_json))
        return False
    if isinstance(found, NotReady):
        print(_outcome(file, "uninitialised", found.reason, found.detail, as_json=as_json))
    elif as_json:
        print(json.dumps({"file": file, **region_json(found)}))
    else:
        print("\n".join(region_lines(file, found)))
    return True


def _outcome(file: str, outcome: str, reason: str, detail: str, *, as_json: bool) -> str:
    if as_json:
        return json.dumps({"file": file, "outcome": outcome, "reason": reason, "detail": detail})
    name = printable(file)
    # Why a file is refused stands on stderr; people see both.
    why = "" if outcome == REJECTED else f": {detail.removeprefix(f'{name}: ')}"
    return f"{name}\n  {outcome} ({reason}){why}\n"


def region_json(region: Region) -> dict[str, Json]:
    """A region in the words of the fixtures' manifests (their key `expected`)."""
    limits, sm_limits = list(region.limits_bytes), list(region.sm_limits_percent)
    shown: dict[str, Json] = {
        "outcome": "ok",
        "layout": region.layout,
        "version": None if region.version is None else list(region.version),
        "owner_pid": region.owner_pid,
        "sem_held": region.sem_held,
        "sm_init_flag": region.sm_init_flag,
        "device_num": region.device_num,
        "devices": [
            {
                "index": device.index,
                "uuid": device.uuid,
                "memory_limit_bytes": device.memory_limit_bytes or 0,
                "sm_limit": device.sm_limit_percent,
            }
            for device in region.devices
        ],
        "proc_num": region.proc_num,
        "utilization_switch": region.utilization_switch,
        "recent_kernel": region.recent_kernel,
        "priority": region.priority,
        "slots": [_slot_json(slot) for slot in region.slots],
        "live_slots": [slot.slot for slot in region.live_slots],
        "sum_over_live_slots": {str(use.index): _sum_json(use) for use in region.usage()},
        "quality": sorted(region.quality),
    }
    if region.last_kernel_time_s is not None:
        shown["last_kernel_time_unix_s"] = region.last_kernel_time_s
    if any(limits[region.device_num :]):
        shown["limit_all_16"] = limits
    if len(set(sm_limits)) > 1:
        shown["sm_limit_all_16"] = sm_limits
    if untrusted := [slot.slot for slot in region.slots if not slot.consistent]:
        shown["must_not_be_trusted_slots"] = untrusted
    if wrapped := list(_below_zero(region.slots)):
        shown["counters_below_zero"] = wrapped
    return shown


def _slot_json(slot: Slot) -> dict[str, Json]:
    shown: dict[str, Json] = {
        "slot": slot.slot,
        "pid": slot.pid,
        "hostpid": slot.hostpid,
        "status": slot.status,
        "devices": {str(use.index): _use_json(use) for use in slot.devices},
        "consistent": slot.consistent,
    }
    if slot.seqlock is not None:
        shown["seqlock"] = slot.seqlock
    return shown


def _memory(use: DeviceUse) -> dict[str, int]:
    """The memory counters that the layout keeps, under the names of HAMi-core's structure."""
    counters = {
        "context_size": use.context_bytes,
        "module_size": use.module_bytes,
        "data_size": use.data_bytes,
        "offset": use.offset_bytes,
        "total": use.total_bytes,
        "monitorused": use.monitorused_bytes,
    }
    return {name: value for name, value in counters.items() if value is not None}


def _utilization(use: DeviceUse) -> dict[str, int]:
    percentages = {
        "sm_util": use.sm_util_percent,
        "enc_util": use.enc_util_percent,
        "dec_util": use.dec_util_percent,
    }
    return {name: value for name, value in percentages.items() if value is not None}


def _use_json(use: DeviceUse) -> dict[str, Json]:
    """A slot's counters as they stand in the file: unsigned."""
    return {name: value % 2**64 for name, value in (_memory(use) | _utilization(use)).items()}


def _sum_json(use: DeviceUse) -> dict[str, Json]:
    """Sums are signed; a sum of offsets or of codec use means nothing."""
    meaningless = {"offset", "enc_util", "dec_util"}
    sums = _memory(use) | _utilization(use)
    return {name: value for name, value in sums.items() if name not in meaningless}


def _below_zero(slots: Iterable[Slot]) -> Iterable[dict[str, Json]]:
    for slot in slots:
        for use in slot.devices:
            for name, value in _memory(use).items():
                if value < 0:
                    yield {"slot": slot.slot, "device": use.index, "field": name, "signed_value": value}


def region_lines(file: str, region: Region) -> list[str]:
    """A region as text for a terminal: the container, its devices, its processes."""
    version = "" if region.version is None else f", version {region.version[0]}.{region.version[1]}"
    held = f"held by pid {region.owner_pid}" if region.owner_pid else "held" if region.sem_held else "free"
    enforced = "on" if region.utilization_switch else "off"
    facts = [f"priority {region.priority}", f"core limit {enforced}", f"region lock {held}"]
    if region.recent_kernel < 0:
        facts.append("blocked by a higher priority")
    if region.last_kernel_time_s:
        facts.append(f"last kernel {_instant(region.last_kernel_time_s)}")
    lines = [printable(file), f"  layout {region.layout}{version}", f"  {', '.join(facts)}"]
    if region.quality:
        lines.append(f"  noticed: {', '.join(sorted(region.quality))}")
    lines += ["", *_table(_device_rows(region)), ""]
    lines += [*_table(_slot_rows(region)), ""] if region.slots else ["  no process has attached", ""]
    return lines


def _device_rows(region: Region) -> list[list[str]]:
    rows = [["device", "uuid", "memory limit", "used", "of limit", "SM limit", "SM now"]]
    uses = {use.index: use for use in region.usage()}
    limits = {device.index: device for device in region.devices}
    for index in sorted(uses.keys() | limits.keys()):
        use, device = uses.get(index), limits.get(index)
        used = use.total_bytes if use else 0
        limit = region.limits_bytes[index]
        rows.append(
            [
                str(index),
                (device.uuid if device else None) or "not known",
                _mib(limit) if limit else "none",
                _mib(used),
                f"{used / limit:.1%}" if limit else "-",
                f"{region.sm_limits_percent[index]} %",
                "-" if use is None or use.sm_util_percent is None else f"{use.sm_util_percent} %",
            ]
        )
    return rows


def _slot_rows(region: Region) -> list[list[str]]:
    rows = [
        ["slot", "pid", "host pid", "status", "device", "used", "context", "data", "NVML says", "SM", "flags"]
    ]
    live = {slot.slot for slot in region.live_slots}
    for slot in region.slots:
        status = STATUS.get(slot.status, f"unknown ({slot.status})")
        flags = [] if slot.slot in live else ["not counted"]
        flags += [] if slot.consistent else ["being written"]
        identity = [str(slot.slot), str(slot.pid), str(slot.hostpid or "not known"), status]
        for use in slot.devices:
            marks = flags + [f"{name} below zero" for name, value in _memory(use).items() if value < 0]
            sm = "-" if use.sm_util_percent is None else f"{use.sm_util_percent} %"
            figures = [use.total_bytes, use.context_bytes, use.data_bytes, use.monitorused_bytes]
            rows.append([*identity, str(use.index), *map(_mib, figures), sm, ", ".join(marks)])
        if not slot.devices:
            rows.append([*identity, "-", "-", "-", "-", "-", "-", ", ".join(flags)])
    return rows


def _table(rows: list[list[str]]) -> list[str]:
    """Columns under their titles: text to the left, figures to the right."""
    left = {"uuid", "status", "flags"}
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if title in left else cell.rjust(width)
            for cell, width, title in zip(row, widths, rows[0], strict=True)
        ]
        lines.append("  " + "  ".join(cells).rstrip())
    return lines


def _mib(value_bytes: int | None) -> str:
    return "-" if value_bytes is None else f"{value_bytes / MIB:,.1f} MiB"


def _instant(unix_s: int) -> str:
    try:
        return datetime.fromtimestamp(unix_s, UTC).isoformat().replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return f"at an impossible time ({unix_s})"
