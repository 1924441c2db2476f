"""How much of the presence of devices was confirmed: what a report says about its own ground."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

from sqlalchemy import func, select, tuple_
from sqlalchemy.orm import Session

from accounting.ledger.intervals import Interval
from accounting.store.models import DeviceHour
from accounting.store.walls import CARDS, seeing
from contract.units import PPM


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of the presence of the devices concerned a witness confirmed."""

    confirmed_ms: int
    present_ms: int

    @property
    def ratio(self) -> Decimal | None:
        """Confirmed of present; None where nothing was present."""
        if not self.present_ms:
            return None
        return (Decimal(self.confirmed_ms) / Decimal(self.present_ms)).quantize(Decimal("0.000001"))


class OfDevice(Protocol):
    """What speaks of one device."""

    @property
    def cluster(self) -> str:
        """Its cluster."""

    @property
    def node_uid(self) -> str:
        """Its node."""

    @property
    def device_uuid(self) -> str:
        """Its UUID."""


def coverage_of(session: Session, lines: Sequence[OfDevice], window: Interval) -> Coverage:
    """Over the devices that lines speak of, in a window: confirmed and present time."""
    devices = sorted({(line.cluster, line.node_uid, line.device_uuid) for line in lines})
    confirmed_ms = present_ms = 0
    for start in range(0, len(devices), 300):
        chunk = devices[start : start + 300]
        query = select(
            func.coalesce(func.sum(DeviceHour.confirmed_ms), 0),
            func.coalesce(func.sum(DeviceHour.present_ppm_ms // PPM), 0),
        ).where(
            tuple_(DeviceHour.cluster, DeviceHour.node_uid, DeviceHour.device_uuid).in_(chunk),
            DeviceHour.hour_ms >= window[0],
            DeviceHour.hour_ms < window[1],
        )
        with seeing(session, CARDS):
            row = session.execute(query).one()
        confirmed_ms += int(row[0])
        present_ms += int(row[1])
    return Coverage(confirmed_ms, present_ms)
