"""MIG instances of a card: which there are, and how much of their memory is in use.

Handle calls cost 50 to 100 ms each on some systems, so instances are listed seldom and one without a
process is not asked. Invariant: an instance is what the driver says it is, its profile's name included.
Source: `reference/metering.md §2`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from exporter.nvidia.asking import Asker, ListedInstance
from exporter.nvidia.source import MigInstance, ProcessMemory
from exporter.nvidia.usage import memory_of

LIST_EVERY_S: Final = 60.0
"""An instance that nobody uses yet is seen after this; one with a process at once."""

_WORD: Final = "MIG "
_MEMORY: Final = "memory of MIG instances"


def instances(
    asker: Asker, processes: tuple[ProcessMemory, ...] | None, now_s: float
) -> tuple[MigInstance, ...] | None:
    """The card's instances; None when they cannot be listed.

    Args:
        asker: Asks the card.
        processes: All of the card's; None = not known.
        now_s: The monotonic clock.
    """
    listing = asker.card.mig
    used = {process.gpu_instance_id for process in processes or ()} - {None}
    known = {instance.gpu_instance_id for instance in listing.instances}
    is_due = listing.listed_at_s is None or now_s - listing.listed_at_s >= LIST_EVERY_S
    if is_due or not used <= known:
        found = _list(asker)
        if found is None:
            return None
        listing.instances, listing.listed_at_s = found, now_s
    return tuple(
        _read(asker, instance, is_used=processes is None or instance.gpu_instance_id in used)
        for instance in listing.instances
    )


def _list(asker: Asker) -> tuple[ListedInstance, ...] | None:
    nvml, handle = asker.nvml, asker.card.handle
    most = asker.ask("MIG instances", lambda: nvml.nvmlDeviceGetMaxMigDeviceCount(handle))
    if most is None:
        return None
    failed = len(asker.failed)
    found = tuple(_instances(asker, most))
    return found if len(asker.failed) == failed else None


def _instances(asker: Asker, most: int) -> Iterator[ListedInstance]:
    nvml, card = asker.nvml, asker.card
    for index in range(most):
        ask = partial(nvml.nvmlDeviceGetMigDeviceHandleByIndex, card.handle, index)
        handle = asker.ask("MIG handles", ask, idle=False)
        if not handle:
            continue
        uuid = _of(asker, "UUID of MIG instances", nvml.nvmlDeviceGetUUID, handle)
        gpu_instance = _of(asker, "GPU instance ids", nvml.nvmlDeviceGetGpuInstanceId, handle)
        compute_instance = _of(asker, "compute instance ids", nvml.nvmlDeviceGetComputeInstanceId, handle)
        if uuid is None or gpu_instance is None or compute_instance is None:
            continue
        name = _of(asker, "names of MIG instances", nvml.nvmlDeviceGetName, handle) or ""
        # "NVIDIA A100-SXM4-80GB MIG 1g.10gb"
        profile = name.rpartition(_WORD)[2] if _WORD in name else ""
        total = getattr(memory_of(asker, handle, _MEMORY), "total", None)
        yield ListedInstance(handle, uuid, profile, gpu_instance, compute_instance, total)


def _read(asker: Asker, instance: ListedInstance, *, is_used: bool) -> MigInstance:
    used_bytes: int | None = 0
    if is_used:
        used_bytes = getattr(memory_of(asker, instance.handle, _MEMORY), "used", None)
    return MigInstance(
        uuid=instance.uuid,
        profile=instance.profile,
        gpu_instance_id=instance.gpu_instance_id,
        compute_instance_id=instance.compute_instance_id,
        memory_total_bytes=instance.memory_total_bytes,
        memory_used_bytes=used_bytes,
    )


def _of(asker: Asker, what: str, call: Any, handle: Any) -> Any:
    return asker.ask(what, lambda: call(handle))
