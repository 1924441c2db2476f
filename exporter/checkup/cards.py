"""What NVML answers for each card, and whose the processes are that it lists.

Invariant: NVML is opened once and let go at once; a card's values are judged by the sampler's own checks,
and processes are attributed by its own attribution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from types import MappingProxyType

from contract.ids import DeviceUuid
from exporter.checkup.finding import Line, Looked, finding, note, ok
from exporter.checkup.kubernetes import Kept
from exporter.hami.annotations.node_register import RegisteredDevice
from exporter.hami.annotations.tally import FlawTally
from exporter.kube.resources import T
from exporter.kube.view import View
from exporter.node.attribution.joining import Sources
from exporter.node.attribution.owners import Attribution, Attributor
from exporter.node.attribution.residents import Residents
from exporter.node.checks import REFUSED, checked
from exporter.node.sources.caches import CacheReader
from exporter.node.sources.liveness import Liveness
from exporter.node.sources.pods import PodBook
from exporter.node.sources.processes import ProcessTable
from exporter.node.tallies import Tallies
from exporter.nvidia.source import DeviceReading, DeviceSource, SourceDownError
from exporter.settings import NodeSettings

NVML = "nvml"
MAPPING = "gpu processes"
_DRIVER_LOG = "see dmesg and nvidia-smi on the node"

_CALLS: Mapping[str, str] = MappingProxyType(
    {
        "memory": "memory_total_bytes",
        "processes": "processes",
        "SM time of processes": "utilization",
        "SM time of the card": "busy",
        "energy": "energy_mj",
        "power": "power_mw",
        "temperature": "temperature_celsius",
        "clocks": "sm_clock_hz",
        "ECC errors": "ecc_corrected",
        "row remapping": "has_remapped_rows_pending",
        "throttle times": "throttle_ns",
        "XID events": "xids",
    }
)
"""What is asked of a card, and where the answer is in a reading."""


def look_at_nvml(
    source: DeviceSource, *, is_expected: bool, now_ms: int
) -> Looked[tuple[DeviceReading, ...]]:
    """Open NVML, read every card once, let go.

    Args:
        source: The cards.
        is_expected: Something else says that this node has real cards.
        now_ms: Unix milliseconds.
    """
    try:
        source.open()
        try:
            raw = source.read()
        finally:
            source.close()
    except SourceDownError as error:
        why = error.detail.removeprefix("nvml: ")
        if is_expected:
            way_out = "mount the driver's libraries: NVIDIA_VISIBLE_DEVICES=all, runtimeClassName nvidia"
            return Looked([finding(NVML, f"{why}; but this node has real cards", way_out)])
        nothing = f"{why}; nothing else says that this node has a real card, so nothing to measure"
        way_out = "on a node with real cards: NVIDIA_VISIBLE_DEVICES=all, runtimeClassName nvidia"
        return Looked([note(NVML, nothing, way_out)])
    if not raw:
        return Looked([finding(NVML, "no card listed", _DRIVER_LOG)], raw)
    lines = [ok(NVML, f"driver {raw[0].driver_version}, {len(raw)} cards")]
    readings = []
    for reading in raw:
        tallies = Tallies()
        pids = frozenset(process.pid for process in reading.processes or ())
        known = None if reading.processes is None else pids
        readings.append(checked(reading, tallies, now_us=now_ms * 1_000, known_pids=known))
        lines.append(_card(readings[-1], tallies))
    return Looked(lines, tuple(readings))


def look_at_registered(devices: Sequence[RegisteredDevice], readings: Sequence[DeviceReading]) -> Line:
    """Whether HAMi's devices and NVML's cards are the same."""
    listed = {reading.uuid for reading in readings}
    missing = sorted({device.uuid for device in devices} - listed)
    if missing:
        return finding(
            "registered cards",
            f"HAMi registered what NVML does not list: {', '.join(missing)}",
            "is NVIDIA_VISIBLE_DEVICES=all set for the exporter; did the card fall off the bus (dmesg)",
        )
    more = sorted(listed - {device.uuid for device in devices})
    if more:
        return note("registered cards", f"not offered by HAMi: {', '.join(more)}")
    return ok("registered cards", f"NVML lists all {len(devices)}")


def look_at_mapping(
    settings: NodeSettings,
    kept: Kept,
    devices: Sequence[RegisteredDevice],
    readings: Sequence[DeviceReading],
    now_ms: int,
) -> Looked[None]:
    """Attribute every process that NVML lists, as the sampler does."""
    listed = {(reading.uuid, process.pid) for reading in readings for process in reading.processes or ()}
    if not listed:
        if all(reading.processes is None for reading in readings):
            return Looked([note(MAPPING, "NVML lists no processes on these cards")])
        return Looked([ok(MAPPING, "none runs now")])
    if kept.objects("pods") is None or kept.objects("namespaces") is None:
        return Looked([note(MAPPING, "not known: pods and namespaces were not listed")])
    tallies, table = Tallies(), ProcessTable(settings.proc_root)
    with closing(CacheReader(settings.container_roots, tallies)) as caches:
        survey = caches.survey(looks=0, wait=lambda _: None)
    sources = Sources(
        at_ms=now_ms,
        sight=PodBook(settings.resources, settings.tenant_from, FlawTally()).look(
            _view(kept.objects("pods"), now_ms), [], _view(kept.objects("namespaces"), now_ms), now_ms
        ),
        registered={device.uuid: device for device in devices},
        readings={reading.uuid: reading for reading in readings},
        survey=survey,
        had_readings=True,
    )
    found = Attributor(Residents(table, Liveness()), tallies).attribute(sources)
    return Looked([_mapping(found, listed, sees_host=table.sees_host)])


def _view(objects: tuple[T, ...] | None, now_ms: int) -> View[T]:
    return View({each.metadata.uid: each for each in objects or ()}, listed=True, confirmed_at_ms=now_ms)


def _mapping(found: Attribution, listed: set[tuple[DeviceUuid, int]], *, sees_host: bool) -> Line:
    of_slices: set[int] = set()
    unallocated: dict[int, str] = {}
    for device in found.devices:
        for owner in device.owners:
            mine = {pid for pid in owner.pids if (device.device_uuid, pid) in listed}
            if owner.key.is_slice:
                of_slices |= mine
            else:
                unallocated |= dict.fromkeys(mine, f"{owner.labels.namespace}/{owner.labels.pod}")
    nobodys = found.unattributed or frozenset()
    pids = {pid for _, pid in listed}
    counted = (
        f"{len(pids)} listed by NVML: {len(of_slices)} of slices, {len(unallocated)} unallocated, "
        f"{len(nobodys)} unattributed"
    )
    if nobodys and not sees_host:
        way_out = "set hostPID: true for the exporter's pod, or give the host's /proc with --proc-root"
        return finding(MAPPING, f"{counted}; their containers cannot be seen", way_out)
    if unallocated:
        pods = ", ".join(sorted(set(unallocated.values())))
        way_out = "these pods use a card past HAMi: see what gives them NVIDIA_VISIBLE_DEVICES"
        return note(MAPPING, f"{counted}; unallocated: {pods}", way_out)
    if nobodys:
        shown = ", ".join(map(str, sorted(nobodys)[:5]))
        way_out = "processes of the host itself, or of pods that the API server does not list on this node"
        return note(MAPPING, f"{counted}; unattributed: pid {shown}", way_out)
    return ok(MAPPING, counted)


def _card(reading: DeviceReading, tallies: Tallies) -> Line:
    check = f"card {reading.index}"
    name = f"{reading.model} {reading.uuid}"
    if reading.failure is not None:
        return finding(check, f"{name}: {reading.failure}", _DRIVER_LOG)
    if reading.failed_calls:
        return finding(check, f"{name}: failed: {', '.join(reading.failed_calls)}", _DRIVER_LOG)
    refused = tallies.by_family().get(REFUSED, {})
    if refused:
        what = ", ".join(" ".join(labels) for labels in sorted(refused))
        return finding(check, f"{name}: impossible values, left out: {what}", _DRIVER_LOG)
    answers = [call for call, at in _CALLS.items() if getattr(reading, at) is not None]
    lacks = [call for call in _CALLS if call not in answers]
    mig = "" if reading.mig is None else f"; MIG: {len(reading.mig)} instances"
    told = f"{name}: {', '.join(answers) or 'nothing'}{mig}"
    if lacks:
        told += f"; not supported: {', '.join(lacks)}"
    if reading.mode == "mig":
        return ok(check, told)
    if reading.utilization is None:
        return note(check, told, "SM time of slices comes from HAMi-core's cache files instead")
    return ok(check, told)
