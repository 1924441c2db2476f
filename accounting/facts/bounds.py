"""What no fact may say, judged on the fact alone and the clock.

Invariant: the verdict never depends on another fact, so it is the same in every order of arrival. What
needs other data (a card's memory or power limit, overlapping epochs) is a flag at rating time.

Source: `reference/ledger.md §5` (bounds).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import chain
from operator import attrgetter

import msgspec

from contract.facts import (
    OLDEST_SCHEMA,
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
from contract.units import MS_PER_DAY, MS_PER_HOUR, PPM

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


def unknown_schema(schema: int) -> Refusal:
    """The refusal of a fact of a version that is not read here."""
    known = f"{SCHEMA}" if OLDEST_SCHEMA == SCHEMA else f"{OLDEST_SCHEMA} to {SCHEMA}"
    return Refusal("unknown_schema", f"schema {schema}; this server knows {known}")


def judge(fact: Fact, *, now_ms: int) -> Refusal | None:
    """The first bound that a fact breaks; None for a good one."""
    if not OLDEST_SCHEMA <= fact.schema <= SCHEMA:
        return unknown_schema(fact.schema)
    broken = _texts(fact)
    if broken is not None:
        return broken
    match fact:
        case SliceUsageFact() | UnallocatedUseFact() | DeviceUsageFact():
            broken = _hour(fact)
            begins, ends = fact.from_ms, fact.to_ms
        case AllocationFact():
            broken = _allocation(fact)
            begins = fact.bound_at_ms
            ends = max(fact.confirmed_at_ms, fact.ended_at_ms or 0, fact.started_at_ms or 0)
        case PresenceFact():
            broken = _presence(fact)
            begins, ends = fact.from_ms, fact.to_ms
        case NodeStateFact():
            broken = _ordered("from_ms", fact.from_ms, "to_ms", fact.to_ms)
            begins = min(fact.from_ms, fact.heartbeat_at_ms)
            ends = max(fact.to_ms, fact.heartbeat_at_ms)
    return broken or _plausible(begins, ends, now_ms)


def _plausible(begins: int, ends: int, now_ms: int) -> Refusal | None:
    if ends > now_ms + MAX_AHEAD_MS or begins > now_ms + MAX_AHEAD_MS:
        return Refusal("in_future", f"it speaks of {max(begins, ends) - now_ms} ms from now")
    if ends < now_ms - MAX_AGE_MS:
        return Refusal("too_old", "it ends more than 400 days ago")
    if begins < 0 or ends - begins > MAX_LENGTH_MS:
        return Refusal("too_long", f"from {begins} to {ends} are more than ten years")
    return None


class _Texts:
    """The fields of a kind of fact that may hold text, and those that must say something."""

    def __init__(self, kind: type[Fact]) -> None:
        no_text = (int, bool, int | None, dict[str, str])
        self.names = [field.name for field in msgspec.structs.fields(kind) if field.type not in no_text]
        self.all = attrgetter(*self.names)
        self.must_say = attrgetter(*(name for name in self.names if name in _MUST_SAY))


_texts_of = cache(_Texts)


def _texts(fact: Fact) -> Refusal | None:
    texts = _texts_of(type(fact))
    # Judged together first: nearly every fact is good, and there are thousands in a batch.
    together = "".join(filter(None, texts.all(fact)))
    if not (all(texts.must_say(fact)) and together.isprintable() and len(together) <= MAX_TEXT):
        for name in texts.names:
            value = getattr(fact, name)
            if not value and name in _MUST_SAY:
                return Refusal("empty", f"{name} is empty")
            broken = _text(name, value or "")
            if broken is not None:
                return broken
    return _labels(fact) if isinstance(fact, AllocationFact) and fact.labels else None


def _labels(fact: AllocationFact) -> Refusal | None:
    if len(fact.labels) > MAX_LABELS:
        return Refusal("too_many_labels", f"{len(fact.labels)} labels; at most {MAX_LABELS}")
    texts = chain.from_iterable(fact.labels.items())
    return next((broken for text in texts if (broken := _text("labels", text)) is not None), None)


def _text(name: str, value: str) -> Refusal | None:
    if len(value) > MAX_TEXT:
        return Refusal("too_long_text", f"{name} has {len(value)} characters; at most {MAX_TEXT}")
    if not value.isprintable():
        return Refusal("bad_text", f"{name} holds characters that cannot be printed")
    return None


def _within(*quantities: tuple[str, int | None, int]) -> Refusal | None:
    """The first quantity that is below 0 or above its most."""
    for name, value, most in quantities:
        if value is not None and not 0 <= value <= most:
            return Refusal("absurd_quantity", f"{name} is {value}; it lies in 0 to {most}")
    return None


def _ordered(first: str, begins: int, second: str, ends: int) -> Refusal | None:
    if ends < begins:
        return Refusal("end_before_start", f"{second} {ends} is before {first} {begins}")
    return None


def _allocation(fact: AllocationFact) -> Refusal | None:
    bound_ms, ended_ms = fact.bound_at_ms, fact.ended_at_ms
    if (ended_ms is None) != (fact.end_kind is None):
        return Refusal("end_incomplete", "an end has ended_at_ms and end_kind, or neither")
    first_ms, started_ms = fact.first_confirmed_at_ms, fact.started_at_ms
    broken = None if ended_ms is None else _ordered("bound_at_ms", bound_ms, "ended_at_ms", ended_ms)
    broken = broken or _ordered("first_confirmed_at_ms", first_ms, "confirmed_at_ms", fact.confirmed_at_ms)
    if broken is not None:
        return broken
    for name, at_ms in (("first_confirmed_at_ms", first_ms), ("started_at_ms", started_ms)):
        if at_ms is not None and at_ms < bound_ms - MS_PER_DAY:
            # A day for clocks that differ; more is no clock.
            return Refusal("end_before_start", f"{name} {at_ms} is long before bound_at_ms {bound_ms}")
    return _within(("mem_mib", fact.mem_mib, MAX_MIB), ("core_percent", fact.core_percent, MAX_CORE_PERCENT))


def _presence(fact: PresenceFact) -> Refusal | None:
    return _ordered("from_ms", fact.from_ms, "to_ms", fact.to_ms) or _within(
        ("registered_mib", fact.registered_mib, MAX_MIB),
        ("physical_mib", fact.physical_mib, MAX_MIB),
        ("slots", fact.slots, MAX_SLOTS),
    )


def _hour(fact: UsageFact) -> Refusal | None:
    hour_ms, from_ms, to_ms = fact.hour_ms, fact.from_ms, fact.to_ms
    if hour_ms % MS_PER_HOUR:
        return Refusal("hour_unaligned", f"hour_ms {hour_ms} is no start of a UTC hour")
    if to_ms <= from_ms:
        return Refusal("end_before_start", f"to_ms {to_ms} is not after from_ms {from_ms}")
    if not hour_ms <= from_ms or not to_ms <= hour_ms + MS_PER_HOUR:
        return Refusal("outside_hour", f"{from_ms} to {to_ms} leaves the hour {hour_ms}")
    length_ms = to_ms - from_ms
    broken = _within(("revision", fact.revision, MAX_REVISION), ("covered_ms", fact.covered_ms, length_ms))
    if broken is not None:
        return broken
    return _device_use(fact) if isinstance(fact, DeviceUsageFact) else _container_use(fact, length_ms)


def _container_use(fact: SliceUsageFact | UnallocatedUseFact, length_ms: int) -> Refusal | None:
    covered_ms, sm_ppm_ms = fact.covered_ms, fact.sm_ppm_ms
    if covered_ms + fact.unknown_ms > length_ms:
        return Refusal("covered_too_long", f"covered and unknown exceed the {length_ms} ms of the interval")
    if sm_ppm_ms > covered_ms * PPM:
        return Refusal("sm_too_large", f"sm_ppm_ms {sm_ppm_ms} exceeds the covered time")
    if fact.source not in SOURCES:
        return Refusal("unknown_source", f'source "{fact.source}"; it is one of {", ".join(sorted(SOURCES))}')
    return _within(
        ("unknown_ms", fact.unknown_ms, length_ms),
        ("sm_ppm_ms", sm_ppm_ms, covered_ms * PPM),
        ("sm_down_ppm_ms", fact.sm_down_ppm_ms, sm_ppm_ms),
        ("mem_peak_mib", fact.mem_peak_mib, MAX_MIB),
        ("mem_used_mib_ms", fact.mem_used_mib_ms, MAX_MIB * length_ms),
        ("energy_active_mj", fact.energy_active_mj, MAX_HOUR_MJ),
        ("blocked_ms", fact.blocked_ms, length_ms),
        ("over_limit_ms", fact.over_limit_ms, length_ms),
    )


def _device_use(fact: DeviceUsageFact) -> Refusal | None:
    most_busy = fact.covered_ms * PPM
    if fact.busy_ppm_ms > most_busy:
        return Refusal("sm_too_large", f"busy_ppm_ms {fact.busy_ppm_ms} exceeds the covered time")
    return _within(
        ("busy_ppm_ms", fact.busy_ppm_ms, most_busy),
        ("sm_unattributed_ppm_ms", fact.sm_unattributed_ppm_ms, fact.busy_ppm_ms),
        ("energy_mj", fact.energy_mj, MAX_HOUR_MJ),
        ("energy_idle_mj", fact.energy_idle_mj, fact.energy_mj),
        ("energy_unattributed_mj", fact.energy_unattributed_mj, max(fact.energy_mj - fact.energy_idle_mj, 0)),
    )
