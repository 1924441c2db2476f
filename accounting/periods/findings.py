"""What a check of the books says when something does not hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from accounting.ledger.calendar import at_text
from contract.ids import DeviceKey

Check: TypeAlias = Literal[
    "device_hour_closes",
    "line_amount",
    "statement_adds_up",
    "hour_recomputed",
    "line_recomputed",
    "seal",
    "statement_document",
    "statement_numbers",
    "rollup",
]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that does not hold."""

    check: Check
    subject: str
    detail: str


def card_named(key: DeviceKey, at_ms: int) -> str:
    """A card and an instant, for people."""
    return f"{key.cluster}/{key.node_uid}/{key.device_uuid} {at_text(at_ms)}"
