"""Who uses a card: its memory, its processes, and the stamped samples of their and the card's SM use.

Invariant: no record between two reads is lost and none is handed out twice; an idle card gives an empty
tuple, an unknown one None. Source: `reference/metering.md §2`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from exporter.nvidia.asking import Asker, number_of
from exporter.nvidia.source import PROCESS_UTILIZATION, BusySample, ProcessMemory, UtilizationSample

FIRST_LOOK_US: Final = 1_000_000
"""Asking from 0 would average over the driver's whole buffer; one second back is one sample period."""

_MEMORY_V2: Final = 0x02000028
_GPU_UTILIZATION_SAMPLES: Final = 1
_NO_INSTANCE: Final = 0xFFFFFFFF
_PROCESS_LISTS: Final = (
    ("compute processes", "nvmlDeviceGetComputeRunningProcesses"),
    ("graphics processes", "nvmlDeviceGetGraphicsRunningProcesses"),
    ("MPS processes", "nvmlDeviceGetMPSComputeRunningProcesses"),
)
_NEWER, _OLDER = PROCESS_UTILIZATION


def memory_of(asker: Asker, handle: Any, what: str = "memory") -> Any:
    """NVML's memory record of a card or, as `what`, of its MIG instances.

    Older drivers do not tell driver-reserved memory apart.
    """
    nvml, newer = asker.nvml, f"{what} v2"
    memory = asker.ask(newer, lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=_MEMORY_V2))
    if memory is None and asker.lacks(newer):
        memory = asker.ask(what, lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    return memory


def processes(asker: Asker) -> tuple[ProcessMemory, ...] | None:
    """Compute, graphics and MPS processes; one on several lists has the largest figure of them."""
    found: dict[int, ProcessMemory] = {}
    supported = False
    for what, name in _PROCESS_LISTS:
        # The third version came with driver 510; the second is as large.
        for version in ("_v3", "_v2"):
            call = f"{what} ({version.strip('_')})"
            records = asker.ask(call, partial(getattr(asker.nvml, name + version), asker.card.handle), ())
            if records is not None or not asker.lacks(call):
                break
        if records is None:
            if not asker.lacks(call):
                return None
            continue
        supported = True
        for record in records:
            process = ProcessMemory(
                record.pid,
                record.usedGpuMemory,
                _instance(record.gpuInstanceId),
                _instance(record.computeInstanceId),
            )
            known = found.get(record.pid)
            if known is None or (process.used_bytes or -1) > (known.used_bytes or -1):
                found[record.pid] = process
    return tuple(found[pid] for pid in sorted(found)) if supported else None


def _instance(number: int) -> int | None:
    return None if number == _NO_INSTANCE else number


def utilization(asker: Asker, latest_us: int) -> tuple[UtilizationSample, ...] | None:
    """Records since the last read; one stamp is asked for again, so that none between is lost.

    Args:
        asker: Asks the card.
        latest_us: No believable stamp is later.
    """
    nvml, card = asker.nvml, asker.card
    since_us, handle = card.utilization_us - 1, card.handle
    # The newer call is the only one that answers on some Blackwell cards; older drivers lack it.
    records = asker.ask(_NEWER, lambda: nvml.nvmlDeviceGetProcessesUtilizationInfo(handle, since_us), ())
    if records is None and asker.lacks(_NEWER):
        records = asker.ask(_OLDER, lambda: nvml.nvmlDeviceGetProcessUtilization(handle, since_us), ())
    if records is None:
        return None
    fresh = {
        (record.pid, record.timeStamp): UtilizationSample(record.pid, record.timeStamp, record.smUtil)
        for record in records
        if record.timeStamp > since_us and (record.pid, record.timeStamp) not in card.counted
    }
    newest_us = _newest(card.utilization_us, (stamp_us for _, stamp_us in fresh), latest_us)
    if newest_us > card.utilization_us:
        card.counted.clear()
    card.counted |= {key for key in fresh if key[1] >= newest_us}
    card.utilization_us = newest_us
    return tuple(sorted(fresh.values(), key=lambda sample: (sample.stamp_us, sample.pid)))


def busy(asker: Asker, latest_us: int) -> tuple[BusySample, ...] | None:
    """Samples of the whole card since the last read; an idle card can run the buffer dry."""
    nvml, card = asker.nvml, asker.card
    found = asker.ask(
        "utilization samples",
        lambda: nvml.nvmlDeviceGetSamples(card.handle, _GPU_UTILIZATION_SAMPLES, card.busy_us),
        (0, ()),
    )
    if found is None:
        return None
    kind, samples = found
    stamped = {}
    for sample in samples:
        percent = number_of(kind, sample.sampleValue)
        if percent is not None and sample.timeStamp > card.busy_us:
            stamped[sample.timeStamp] = BusySample(sample.timeStamp, percent)
    card.busy_us = _newest(card.busy_us, stamped, latest_us)
    return tuple(stamped[stamp_us] for stamp_us in sorted(stamped))


def _newest(known_us: int, stamps_us: Iterable[int], latest_us: int) -> int:
    """The newest stamp that is not in the future: one absurd record must not silence the next ones."""
    return max([known_us, *(stamp_us for stamp_us in stamps_us if stamp_us <= latest_us)])
