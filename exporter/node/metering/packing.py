"""The node role's whole running state as one packed row, and back.

Invariant: what is packed and taken up again goes on counting where it stopped; a row of another version
is refused as a whole, so that counters never mix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from contract.facts import UsageFact
from contract.ids import EpochId
from exporter.delivery.witness import Witness, WitnessState
from exporter.node.clock import Instant
from exporter.node.metering.counters import DeviceCounters, OwnerCounters, TenantCounters
from exporter.node.metering.hours import HourBooks, HourDevice, HourUse, Origin, pieces, shares
from exporter.node.metering.meter import Meter
from exporter.node.sources.hardware import CardHistory
from exporter.node.tallies import TallyCount

VERSION: Final = 2


class NodeState(msgspec.Struct, kw_only=True):
    """Everything that must survive the process; `since_ms` = when the tallies began at 0, Unix time."""

    version: int
    last: Instant | None
    placed_ms: int
    owners: list[OwnerCounters]
    devices: list[DeviceCounters]
    tenants: list[TenantCounters]
    uses: list[HourUse]
    hour_devices: list[HourDevice]
    tallies: list[TallyCount]
    since_ms: int = 0
    origin: Origin
    had_readings: bool
    witness: WitnessState
    histories: list[CardHistory] = []
    annotation_errors: dict[str, int] = {}


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(NodeState)


def pack(
    meter: Meter,
    witness: Witness,
    *,
    had_readings: bool,
    histories: Sequence[CardHistory] = (),
    annotation_errors: Mapping[str, int] | None = None,
) -> bytes:
    """The state as one row."""
    return _encoder.encode(
        NodeState(
            version=VERSION,
            last=meter.last,
            placed_ms=meter.placed_ms,
            owners=list(meter.owners.values()),
            devices=list(meter.devices.values()),
            tenants=list(meter.tenants.values()),
            uses=meter.books.uses,
            hour_devices=meter.books.devices,
            tallies=meter.tallies.packed(),
            since_ms=meter.tallies.since_ms,
            origin=meter.origin,
            had_readings=had_readings,
            witness=witness.dump(),
            histories=list(histories),
            annotation_errors=dict(annotation_errors or {}),
        )
    )


def unpack(row: bytes) -> NodeState | None:
    """A packed row; None when it is not this version's."""
    try:
        state = _decoder.decode(row)
    except msgspec.MsgspecError:
        return None
    return state if state.version == VERSION else None


def resume(meter: Meter, state: NodeState, epoch: EpochId) -> list[UsageFact]:
    """Go on where a state stopped, under a new epoch.

    The time in between is a gap: unknown, and its energy nobody's. So is the window that was still open.

    Returns:
        The last facts of the old epoch.
    """
    meter.last, meter.placed_ms, meter.was_restored = state.last, state.placed_ms, True
    meter.owners = {owner.key: owner for owner in state.owners}
    meter.devices = {device.device_uuid: device for device in state.devices}
    meter.tenants = {(tenant.tenant, tenant.model): tenant for tenant in state.tenants}
    meter.books = HourBooks(state.uses, state.hour_devices)
    meter.origin = state.origin
    for device in meter.devices.values():
        _give_up_open_window(meter, device)
    return meter.begin_epoch(Origin(state.origin.cluster, state.origin.node_uid, epoch))


def _give_up_open_window(meter: Meter, device: DeviceCounters) -> None:
    """Its records went with the process that had read them; its time belongs to the old epoch."""
    cut = pieces(meter.placed_ms - device.open_ms, meter.placed_ms)
    device.energy_mj += device.open_energy_mj
    device.energy_unattributed_mj += device.open_energy_mj
    for piece, part in zip(cut, shares(device.open_energy_mj, cut), strict=True):
        of_device = meter.books.device(device.device_uuid, piece)
        of_device.energy_mj += part
        of_device.energy_unattributed_mj += part
    for key, owner in meter.owners.items():
        if key.device_uuid != device.device_uuid or owner.ended_boot_ms is not None:
            continue
        owner.unknown_ms["gap"] += device.open_ms
        for piece in cut if owner.is_measured else ():
            meter.books.use(key, owner, piece).unknown_ms += piece.to_ms - piece.from_ms
    device.open_ms = device.open_energy_mj = 0
