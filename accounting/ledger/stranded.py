"""How much of a card neither memory nor cores are held of: for planning, never billed.

Under `dominant` two slices can fill a card, one with its memory and one with its cores, while much of
each is free: idle says 0, and a third slice would still fit. Source: `reference/ledger.md §2`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from accounting.ledger.shares import Grant, card_units, core_units, share_units
from accounting.ledger.sweep import Segment
from contract.ids import SliceKey


@dataclass(frozen=True, slots=True)
class Free:
    """Card time of which some resource was free while the card was up, in ppm·ms; rounded down."""

    up_ppm_ms: int
    memory_ppm_ms: int
    cores_ppm_ms: int
    stranded_ppm_ms: int
    """Free of both: 1 − max(Σ memory, Σ cores)."""
    idle_ppm_ms: int


def free_of(segments: Iterable[Segment], grants: Mapping[SliceKey, Grant]) -> Free:
    """Add up what was free on a card's segments; times when it was down are left out."""
    up = memory_free = cores_free = stranded = idle = 0
    for segment in segments:
        if segment.down_ppm_ms:
            continue
        size, model = segment.registered_mib, segment.model
        whole = card_units(size, model)
        held = [grants[part.slice_key] for part in segment.parts]
        memory = min(whole, sum(share_units(grant, size, model, "memory") for grant in held))
        cores = min(whole, sum(core_units(grant, size, model) for grant in held))
        present = segment.present_ppm_ms
        up += present
        memory_free += present * (whole - memory) // whole
        cores_free += present * (whole - cores) // whole
        stranded += present * (whole - max(memory, cores)) // whole
        idle += segment.idle_ppm_ms
    return Free(up, memory_free, cores_free, stranded, idle)
