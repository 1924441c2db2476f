"""What no fact may say, judged on the fact alone and the clock.

Invariant: the verdict never depends on another fact, so it is the same in every order of arrival. What
needs other data (a card's memory or power limit, overlapping epochs) is a flag at rating time.

Source: `reference/ledger.md §5` (bounds).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import msgspec

from contract.facts import (
    SCHEMA,
    AllocationFact,
    DeviceUsageFact,
    Fact,
    NodeStateFact,
    PresenceFact,
    SliceUsageFact,
    UnallocatedUseFact,
    UsageFact,
)
from contract.units import MS_PER_HOUR, PPM

MS_PER_DAY = 24 * MS_PER_HOUR
MAX_AGE_MS = 400 * MS_PER_DAY
MAX_LENGTH_MS = 3_660 * MS_PER_DAY
"""No pod, card or node state lasts ten years."""

MAX_AHEAD_MS = 10 * 60_000
"""A clock may be 5 minutes ahead before its requests are refused; the rest is for batching."""

_MUST_SAY = frozenset({"cluster", "pod_uid", "container", "device_uuid", "node_uid", "node", "epoch"})
MAX_TEXT = 253
MAX_LABELS = 64
MAX_MIB = 16 * 1024 * 1024
"""16 TiB on one card."""

MAX_CORE_PERCENT = 1_000
"""HAMi takes a request above 100 as 100, and so does a share; ten cards on one is no request."""

MAX_SLOTS = 100_000
MAX_HOUR_MJ = 10_000 * 3_600 * 1_000
"""A board of 10 kW for an hour."""

MAX_REVISION = 2**62
SOURCES = frozenset({"nvml", "cache", "none"})


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a fact is not taken: a closed word, and one line for a person."""

    reason: str
    detail: str


def judge(fact: Fact, *, now_ms: int) -> Refusal | None:
    """The first bound that a fact breaks; None for a good one."""
    return next(_broken(fact, now_ms), None)


def _broken(fact: Fact, now_ms: int) -> Iterator[Refusal]:
    if fact.schema != SCHEMA:
        yield Refusal("unknown_schema", f"schema {fact.schema}; this server knows {SCHEMA}")
    yield from _texts(fact)
    match fact:
        case AllocationFact():
            yield from _allocation(fact)
            begins = fact.bound_at_ms
            ends = max(fact.confirmed_at_ms, fact.ended_at_ms or 0, fact.started_at_ms or 0)
        case PresenceFact():
            yield from _presence(fact)
            begins, ends = fact.from_ms, fact.to_ms
        case NodeStateFact():
            yield from _node_state(fact)
            begins = min(fact.from_ms, fact.heartbeat_at_ms)
            ends = max(fact.to_ms, fact.heartbeat_at_ms)
        case SliceUsageFact() | UnallocatedUseFact() | DeviceUsageFact():
            yield from _hour(fact)
            begins, ends = fact.from_ms, fact.to_ms
    yield from _plausible(begins, ends, now_ms)


def _plausible(begins: int, ends: int, now_ms: int) -> Iterator[Refusal]:
    if ends > now_ms + MAX_AHEAD_MS or begins > now_ms + MAX_AHEAD_MS:
        yield Refusal("in_future", f"it speaks of {max(begins, ends) - now_ms} ms from now")
    if ends < now_ms - MAX_AGE_MS:
        yield Refusal("too_old", "it ends more than 400 days ago")
    if begins < 0 or ends - begins > MAX_LENGTH_MS:
        yield Refusal("too_long", f"from {begins} to {ends} are more than ten years")


@cache
def _text_fields(kind: type[Fact]) -> Sequence[tuple[str, bool]]:
    """The fields of a kind of fact that may hold text, and whether they must say something."""
    no_text = (int, bool, int | None, dict[str, str])
    fields = (field for field in msgspec.structs.fields(kind) if field.type not in no_text)
    return tuple((field.name, field.name in _MUST_SAY) for field in fields)


def _texts(fact: Fact) -> Iterator[Refusal]:
    for name, must_say in _text_fields(type(fact)):
        value = getattr(fact, name)
        if not value:
            if must_say:
                yield Refusal("empty", f"{name} is empty")
        elif len(value) > MAX_TEXT or not value.isprintable():
            yield from _text(name, value)
    if isinstance(fact, AllocationFact):
        if len(fact.labels) > MAX_LABELS:
            yield Refusal("too_many_labels", f"{len(fact.labels)} labels; at most {MAX_LABELS}")
        for key, value in fact.labels.items():
            yield from _text("labels", key)
            yield from _text("labels", value)


def _text(name: str, value: str) -> Iterator[Refusal]:
    if len(value) > MAX_TEXT:
        yield Refusal("too_long_text", f"{name} has {len(value)} characters; at most {MAX_TEXT}")
    if not value.isprintable():
        yield Refusal("bad_text", f"{name} holds characters that cannot be printed")


def _within(name: str, value: int | None, most: int) -> Iterator[Refusal]:
    if value is not None and not 0 <= value <= most:
        yield Refusal("absurd_quantity", f"{name} is {value}; it lies in 0 to {most}")


def _ordered(first: str, begins: int, second: str, ends: int) -> Iterator[Refusal]:
    if ends < begins:
        yield Refusal("end_before_start", f"{second} {ends} is before {first} {begins}")


def _allocation(fact: AllocationFact) -> Iterator[Refusal]:
    if (fact.ended_at_ms is None) != (fact.end_kind is None):
        yield Refusal("end_incomplete", "an end has ended_at_ms and end_kind, or neither")
    if fact.ended_at_ms is not None:
        yield from _ordered("bound_at_ms", fact.bound_at_ms, "ended_at_ms", fact.ended_at_ms)
    yield from _ordered(
        "first_confirmed_at_ms", fact.first_confirmed_at_ms, "confirmed_at_ms", fact.confirmed_at_ms
    )
    for name, at_ms in (
        ("first_confirmed_at_ms", fact.first_confirmed_at_ms),
        ("started_at_ms", fact.started_at_ms),
    ):
        if at_ms is not None and not fact.bound_at_ms - MS_PER_DAY <= at_ms:
            # A day for clocks that differ; more is no clock.
            yield Refusal("end_before_start", f"{name} {at_ms} is long before bound_at_ms {fact.bound_at_ms}")
    yield from _within("mem_mib", fact.mem_mib, MAX_MIB)
    yield from _within("core_percent", fact.core_percent, MAX_CORE_PERCENT)


def _presence(fact: PresenceFact) -> Iterator[Refusal]:
    yield from _ordered("from_ms", fact.from_ms, "to_ms", fact.to_ms)
    yield from _within("registered_mib", fact.registered_mib, MAX_MIB)
    yield from _within("physical_mib", fact.physical_mib, MAX_MIB)
    yield from _within("slots", fact.slots, MAX_SLOTS)


def _node_state(fact: NodeStateFact) -> Iterator[Refusal]:
    yield from _ordered("from_ms", fact.from_ms, "to_ms", fact.to_ms)


def _hour(fact: UsageFact) -> Iterator[Refusal]:
    if fact.hour_ms % MS_PER_HOUR:
        yield Refusal("hour_unaligned", f"hour_ms {fact.hour_ms} is no start of a UTC hour")
    if fact.to_ms <= fact.from_ms:
        yield Refusal("end_before_start", f"to_ms {fact.to_ms} is not after from_ms {fact.from_ms}")
    if not fact.hour_ms <= fact.from_ms or not fact.to_ms <= fact.hour_ms + MS_PER_HOUR:
        yield Refusal("outside_hour", f"{fact.from_ms} to {fact.to_ms} leaves the hour {fact.hour_ms}")
    length_ms = fact.to_ms - fact.from_ms
    yield from _within("revision", fact.revision, MAX_REVISION)
    yield from _within("covered_ms", fact.covered_ms, length_ms)
    if isinstance(fact, DeviceUsageFact):
        yield from _device_use(fact)
    else:
        yield from _container_use(fact, length_ms)


def _container_use(fact: SliceUsageFact | UnallocatedUseFact, length_ms: int) -> Iterator[Refusal]:
    yield from _within("unknown_ms", fact.unknown_ms, length_ms)
    if fact.covered_ms + fact.unknown_ms > length_ms:
        yield Refusal("covered_too_long", f"covered and unknown exceed the {length_ms} ms of the interval")
    if fact.sm_ppm_ms > fact.covered_ms * PPM:
        yield Refusal("sm_too_large", f"sm_ppm_ms {fact.sm_ppm_ms} exceeds the covered time")
    yield from _within("sm_ppm_ms", fact.sm_ppm_ms, fact.covered_ms * PPM)
    yield from _within("sm_down_ppm_ms", fact.sm_down_ppm_ms, fact.sm_ppm_ms)
    yield from _within("mem_peak_mib", fact.mem_peak_mib, MAX_MIB)
    yield from _within("mem_used_mib_ms", fact.mem_used_mib_ms, MAX_MIB * length_ms)
    yield from _within("energy_active_mj", fact.energy_active_mj, MAX_HOUR_MJ)
    yield from _within("blocked_ms", fact.blocked_ms, length_ms)
    yield from _within("over_limit_ms", fact.over_limit_ms, length_ms)
    if fact.source not in SOURCES:
        yield Refusal("unknown_source", f'source "{fact.source}"; it is one of {", ".join(sorted(SOURCES))}')


def _device_use(fact: DeviceUsageFact) -> Iterator[Refusal]:
    if fact.busy_ppm_ms > fact.covered_ms * PPM:
        yield Refusal("sm_too_large", f"busy_ppm_ms {fact.busy_ppm_ms} exceeds the covered time")
    yield from _within("busy_ppm_ms", fact.busy_ppm_ms, fact.covered_ms * PPM)
    yield from _within("sm_unattributed_ppm_ms", fact.sm_unattributed_ppm_ms, fact.busy_ppm_ms)
    yield from _within("energy_mj", fact.energy_mj, MAX_HOUR_MJ)
    yield from _within("energy_idle_mj", fact.energy_idle_mj, fact.energy_mj)
    rest = fact.energy_mj - fact.energy_idle_mj
    yield from _within("energy_unattributed_mj", fact.energy_unattributed_mj, max(rest, 0))
