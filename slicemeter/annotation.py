"""`slicemeter annotation show`: what HAMi's annotations say, and what in them cannot be read.

A thin wrapper: the grammar lives in `exporter/hami/annotations`. Exit codes: 0 all was read, 1 a part of it,
2 nothing of it (or a bad command line).
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from exporter.hami.annotations.containers import (
    ContainerDevices,
    ContainerRole,
    Mapping,
    PodLayout,
    map_entries,
)
from exporter.hami.annotations.flaw import Flaw
from exporter.hami.annotations.mig_allocations import parse_mig_allocations
from exporter.hami.annotations.node_lock import parse_node_lock
from exporter.hami.annotations.node_register import Form, MigProfile, RegisteredDevice, parse_node_register
from exporter.hami.annotations.pod_devices import GrantedDevice, PodDevices, parse_pod_devices

Json: TypeAlias = "bool | int | str | list[Json] | dict[str, Json] | None"
Row: TypeAlias = dict[str, Json]

_SPEC_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)


_TWO = ";GPU-8dcd4fd1-0ba2,NVIDIA,3000,30:;"
EXAMPLES = {
    "pod-devices": "GPU-8dcd4fd1-0ba2,NVIDIA,3000,30:;",
    "pod-devices-to-allocate": "GPU-8dcd4fd1-0ba2,NVIDIA,3000,30:;",
    "node-register": "GPU-8dcd4fd1-0ba2,10,15360,100,NVIDIA-Tesla T4,0,true,0,hami-core:",
    "node-lock": "2026-10-01T08:00:00Z,team-a,train-0",
    "mig-allocations": '[{"containerIndex":0,"deviceIndex":0,"gpuUUID":"GPU-8dcd4fd1-0ba2",'
    '"profile":"1g.10gb","placement":{"start":6,"size":1}}]',
    "volcano-node-register": "GPU-8dcd4fd1-0ba2,10,15360,NVIDIA-Tesla T4,true:",
}
"""A value of each kind, for `--help`."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A decoded annotation: the JSON document, the table for people, and how much could be read."""

    document: Row
    rows: list[Row]
    readable: bool
    errors: tuple[Flaw, ...]


def main(argv: Sequence[str]) -> int:
    """Run `slicemeter annotation`; returns the exit code."""
    try:
        arguments = _parser().parse_args(list(argv))
        layout = _layout(arguments.kind, arguments.containers)
    except UsageError as error:
        print(f"slicemeter annotation: {error}", file=sys.stderr)
        return 2
    text = _stdin_text() if arguments.value == "-" else arguments.value
    shown = _SHOW[arguments.kind](text, layout)
    if arguments.json:
        print(json.dumps(shown.document, separators=(",", ":")))
    else:
        _print_table(shown)
    if not shown.errors:
        return 0
    if shown.readable:
        return 1
    first = shown.errors[0]
    detail = f"{first.reason}: {first.detail}".encode("ascii", "backslashreplace").decode()
    print(f"slicemeter annotation: nothing of this {arguments.kind} can be read: {detail}", file=sys.stderr)
    return 2


class UsageError(Exception):
    """The command line cannot be understood; the message is the one line to print."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; slicemeter annotation show --help tells more")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="slicemeter annotation", description="Decode HAMi annotations.")
    commands = parser.add_subparsers(title="commands", dest="command", required=True, metavar="COMMAND")
    show = commands.add_parser(
        "show",
        help="decode one annotation's value",
        description="Decode one annotation's value, whichever HAMi version wrote it.",
        epilog="\n".join(
            [
                "examples:",
                *(
                    f"  slicemeter annotation show {kind} {shlex.quote(value)}"
                    for kind, value in EXAMPLES.items()
                ),
                "",
                "A pod's own, with the names of its containers:",
                f"  slicemeter annotation show pod-devices --containers i:setup,main* {shlex.quote(_TWO)}",
                "",
                "Exit codes: 0 all was read, 1 a part of it, 2 nothing of it.",
            ]
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    show.add_argument("kind", metavar="KIND", choices=sorted(_SHOW), help=", ".join(sorted(_SHOW)))
    show.add_argument("value", metavar="VALUE", help="the annotation's value; - reads standard input")
    show.add_argument(
        "--containers",
        metavar="SPEC",
        help="the pod's containers in order: init containers with a leading i:, "
        "those that request a GPU with a trailing *, like i:setup,main*,sidecar",
    )
    show.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    return parser


def _layout(kind: str, spec: str | None) -> PodLayout | None:
    if spec is None:
        return None
    if kind not in _POD_KINDS:
        raise UsageError(f"--containers describes a pod; {kind} is no pod's annotation")
    return parse_layout(spec)


def parse_layout(spec: str) -> PodLayout:
    """The pod that `--containers` describes.

    Raises:
        UsageError: For a spec that describes no pod.
    """
    containers: list[ContainerRole] = []
    for word in (part.strip() for part in spec.split(",")):
        is_init = word.startswith("i:")
        name = word.removeprefix("i:").removesuffix("*")
        if not _SPEC_NAME.fullmatch(name):
            raise UsageError(
                f'--containers: "{word}" names no container; write it like i:setup,main*,sidecar'
            )
        if any(container.name == name for container in containers):
            raise UsageError(f'--containers: "{name}" is there twice; names in a pod differ')
        if is_init and containers and containers[-1].kind == "app":
            raise UsageError(
                f'--containers: "{word}" comes after an app container; init containers are first'
            )
        containers.append(ContainerRole(name, "init" if is_init else "app", word.endswith("*")))
    return PodLayout(tuple(containers))


def _stdin_text() -> str:
    """Standard input without its last line break; bytes that are no UTF-8 are shown as what they are."""
    raw = sys.stdin.buffer.read().decode("utf-8", "backslashreplace")
    return raw.removesuffix("\n").removesuffix("\r")


# -- kinds ----------------------------------------------------------------------------------------


def _pod_devices(text: str, layout: PodLayout | None) -> Shown:
    devices = parse_pod_devices(text)
    return _show_pod(devices, _mapped(devices, layout))


def _to_allocate(text: str, layout: PodLayout | None) -> Shown:
    devices = parse_pod_devices(text)
    mapping = _mapped(devices, layout)
    # Consumed entries are empty: a requester without one has its device already.
    missing = tuple(error for error in mapping.errors if error.reason != "no_entry")
    shown = _show_pod(devices, Mapping(mapping.containers, missing))
    document: Row = {"all_consumed": devices.all_consumed, **shown.document}
    return Shown(document, shown.rows, shown.readable, shown.errors)


def _mapped(devices: PodDevices, layout: PodLayout | None) -> Mapping:
    if layout is not None:
        return map_entries(devices, layout)
    unnamed = (ContainerDevices(None, entry.position, entry.devices) for entry in devices.filled)
    return Mapping(tuple(entry for entry in unnamed if entry.devices), ())


def _show_pod(devices: PodDevices, mapping: Mapping) -> Shown:
    errors = devices.errors + mapping.errors
    containers: list[Json] = [
        {"name": container.name, "devices": [_granted(device) for device in container.devices]}
        for container in mapping.containers
    ]
    rows = [
        {"container": container.name, **_granted(device)}
        for container in mapping.containers
        for device in container.devices
    ]
    return Shown({"containers": containers, "errors": _errors(errors)}, rows, bool(containers), errors)


def _granted(device: GrantedDevice) -> Row:
    mig: Json = None
    if device.mig:
        mig = {"template": device.mig.template, "slot": device.mig.slot}
    return {
        "uuid": device.uuid,
        "vendor": device.vendor,
        "memory_mib": device.memory_mib,
        "core_percent": device.core_percent,
        "mig": mig,
    }


def _node_register(form: Form) -> Callable[[str, PodLayout | None], Shown]:
    def show(text: str, _layout: PodLayout | None) -> Shown:
        register = parse_node_register(text, form)
        rows = [_registered(device) for device in register.devices]
        document: Row = {"devices": list(rows), "errors": _errors(register.errors)}
        return Shown(document, rows, bool(rows), register.errors)

    return show


def _registered(device: RegisteredDevice) -> Row:
    return {
        "uuid": device.uuid,
        "count": device.count,
        "memory_mib": device.memory_mib,
        "core_percent": device.core_percent,
        "type": device.type,
        "numa": device.numa,
        "health": device.health,
        "index": device.index,
        "mode": device.mode,
        "mig_profiles": [_profile(profile) for profile in device.mig_profiles],
    }


def _profile(profile: MigProfile) -> Row:
    placements: list[Json] = [{"start": place.start, "size": place.size} for place in profile.placements]
    return {
        "name": profile.name,
        "memory_mb": profile.memory_mb,
        "core_percent": profile.core_percent,
        "slice_count": profile.slice_count,
        "placements": placements,
    }


def _node_lock(text: str, _layout: PodLayout | None) -> Shown:
    lock = parse_node_lock(text)
    values: Row = {
        "acquired_at": _utc_text(lock.acquired_at_ms),
        "namespace": lock.namespace,
        "pod": lock.pod,
    }
    rows = [values] if lock.is_readable else []
    return Shown({**values, "errors": _errors(lock.errors)}, rows, lock.is_readable, lock.errors)


def _utc_text(at_ms: int | None) -> str | None:
    if at_ms is None:
        return None
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=at_ms)
    precision = "milliseconds" if at_ms % 1000 else "seconds"
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")


def _mig_allocations(text: str, _layout: PodLayout | None) -> Shown:
    parsed = parse_mig_allocations(text)
    rows: list[Row] = [
        {
            "container_index": allocation.container_index,
            "device_index": allocation.device_index,
            "uuid": allocation.uuid,
            "profile": allocation.profile,
            "placement": {"start": allocation.placement.start, "size": allocation.placement.size},
            "mig_uuid": allocation.mig_uuid,
            "gpu_instance_id": allocation.gpu_instance_id,
            "compute_instance_id": allocation.compute_instance_id,
        }
        for allocation in parsed.allocations
    ]
    document: Row = {"allocations": list(rows), "errors": _errors(parsed.errors)}
    return Shown(document, rows, bool(rows), parsed.errors)


_SHOW: dict[str, Callable[[str, PodLayout | None], Shown]] = {
    "pod-devices": _pod_devices,
    "pod-devices-to-allocate": _to_allocate,
    "node-register": _node_register("hami"),
    "volcano-node-register": _node_register("volcano"),
    "node-lock": _node_lock,
    "mig-allocations": _mig_allocations,
}
_POD_KINDS = ("pod-devices", "pod-devices-to-allocate")


# -- output ---------------------------------------------------------------------------------------


def _errors(errors: Sequence[Flaw]) -> list[Json]:
    return [{"segment": error.segment, "reason": error.reason, "detail": error.detail} for error in errors]


def _print_table(shown: Shown) -> None:
    if shown.rows:
        heads = list(shown.rows[0])
        cells = [heads, *([_cell(row[head]) for head in heads] for row in shown.rows)]
        widths = [max(len(line[column]) for line in cells) for column in range(len(heads))]
        for line in cells:
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    else:
        print("nothing is allocated or offered here" if not shown.errors else "nothing could be read")
    if "all_consumed" in shown.document:
        print(f"all consumed: {_cell(shown.document['all_consumed'])}")
    for error in shown.errors:
        where = f' in "{_cell(error.segment)}"' if error.segment else ""
        print(f"error: {error.reason}{where}: {_cell(error.detail)}")


def _cell(value: Json) -> str:
    """A value as a person reads it; what a terminal could take as a command is escaped."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in value)
    return str(value) if isinstance(value, int) else json.dumps(value, separators=(",", ":"))
