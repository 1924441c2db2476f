"""What HAMi's scheduler said of a pod, from the texts of its events.

Events are merged, thinned and expire after an hour, and anyone may write one in a namespace of his own. So
they give a reason and never an amount, the reasons are a closed set, and what was said last is remembered
here until the pod is bound or gone. Invariant: folding the same events in any order gives the same verdict.

Source: `reference/hami-kubernetes.md §7.5, §8`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from exporter.kube.objects import Event, parse_time_ms

VerdictKind: TypeAlias = Literal[
    "filtered", "filter_failed", "lock_refused", "binding_failed", "bound", "not_scheduled"
]

SAME_ATTEMPT_MS: Final = 2_000
"""One attempt of the filter writes an event per reason; their stamps have whole seconds."""

# In the order of HAMi's checks: the later one passed more of them, so it is the nearest to a fit.
FILTER_REASONS: Final = (
    "Other",
    "NoNodeFits",
    "CalcScoreFailed",
    "ResourceQuotaNotFit",
    "NodeInsufficientDevice",
    "CardNotHealth",
    "CardUnhealthy",
    "CardCordoned",
    "ModeNotFit",
    "CardTypeMismatch",
    "CardQosPolicyMismatch",
    "CardAppClassMismatch",
    "NumaNotFit",
    "CardUuidMismatch",
    "CardNotFoundCustomFilterRule",
    "CardTimeSlicingExhausted",
    "CardInsufficientMemory",
    "CardInsufficientCore",
    "ExclusiveDeviceAllocateConflict",
    "CardComputeUnitsExhausted",
    "CardMigTopologyInfeasible",
    "AllocatedCardsInsufficientRequest",
)
_RANK: Final = {reason: rank for rank, reason in enumerate(FILTER_REASONS)}

_KINDS: Final[dict[str, VerdictKind]] = {
    "FilteringSucceed": "filtered",
    "FilteringFailed": "filter_failed",
    "BindingSucceed": "bound",
    "BindingFailed": "binding_failed",
    "FailedScheduling": "not_scheduled",
}
_STEPS: Final[tuple[VerdictKind, ...]] = (
    "not_scheduled",
    "filtered",
    "filter_failed",
    "lock_refused",
    "binding_failed",
    "bound",
)

_BY_REASON = re.compile(r"\d+ nodes (?P<reason>[A-Za-z0-9]+)\(.*\)", re.ASCII | re.DOTALL)
_NO_NODE = re.compile(r"no available node, (?:all node scores do not meet|\d+ nodes do not meet)", re.ASCII)
_NOISE = "does not request any resource"
_LOCKED = re.compile(
    r"node (?P<within>\S+) has been locked within "
    r"|waiting for node (?P<waited>\S+) to be unlocked"
    r"|node (?P<race>\S+) is locked"
    r"|failed to set node lock(?: \(node=(?P<set>[^)\s]+)\))?",
    re.ASCII,
)


class Verdict(msgspec.Struct, frozen=True):
    """The newest word on a pod.

    Attributes:
        reason: Of `filter_failed`: one of `FILTER_REASONS`; else empty.
        node: Of `lock_refused`: the node whose lock it was; empty when the text does not say.
    """

    kind: VerdictKind
    at_ms: int
    reason: str = ""
    node: str = ""


def read_event(event: Event) -> Verdict | None:
    """The verdict that an event carries; None for events that are no word of the scheduler's."""
    at_ms = event_time_ms(event)
    kind = _KINDS.get(event.reason or "")
    if at_ms is None or kind is None:
        return None
    if kind == "filter_failed":
        reason = filter_reason(event.message or "")
        return None if reason is None else Verdict(kind, at_ms, reason)
    if kind == "binding_failed":
        node = locked_node(event.message or "")
        return Verdict(kind, at_ms) if node is None else Verdict("lock_refused", at_ms, node=node)
    return Verdict(kind, at_ms)


def filter_reason(message: str) -> str | None:
    """The reason of a `FilteringFailed`; None for the noise about pods that ask for nothing."""
    text = message.strip()
    if _NOISE in text:
        return None
    match = _BY_REASON.fullmatch(text)
    if match:
        return match["reason"] if match["reason"] in _RANK else "Other"
    if _NO_NODE.match(text):
        return "NoNodeFits"
    if text.startswith("calcScore failed"):
        return "CalcScoreFailed"
    return text if text in _RANK else "Other"


def locked_node(message: str) -> str | None:
    """The node whose lock refused a binding (empty when it is not named); None for other failures."""
    match = _LOCKED.search(message)
    if match is None:
        return None
    return match["within"] or match["waited"] or match["race"] or match["set"] or ""


def event_time_ms(event: Event) -> int | None:
    """When it last happened, Unix milliseconds."""
    texts = (
        event.series.last_observed_time if event.series else None,
        event.last_timestamp,
        event.event_time,
        event.first_timestamp,
        event.metadata.creation_timestamp,
    )
    return max((at for text in texts if (at := parse_time_ms(text)) is not None), default=None)


def newest(said: Iterable[Verdict]) -> Verdict | None:
    """The word that holds, of the latest of each kind and reason; None of nothing.

    Of one attempt's filter reasons the nearest to a fit holds. The scheduler's own `FailedScheduling`
    follows each of HAMi's and says less, so it counts only where HAMi said nothing.
    """
    words = list(said)
    words = [word for word in words if word.kind != "not_scheduled"] or words
    # Stamps have whole seconds: of two words in one second the later step holds.
    last = max(words, key=lambda word: (word.at_ms, _STEPS.index(word.kind)), default=None)
    if last is None or last.kind != "filter_failed":
        return last
    attempt = [
        word for word in words if word.kind == "filter_failed" and last.at_ms - word.at_ms <= SAME_ATTEMPT_MS
    ]
    return max(attempt, key=lambda word: _RANK.get(word.reason, 0))


class EventBook:
    """The latest of everything that was said per pod UID.

    Args:
        said: What the last run knew: an event that aged out meanwhile ends nothing.
    """

    def __init__(self, said: Mapping[str, list[Verdict]] | None = None) -> None:
        self._said: dict[str, dict[tuple[str, str], Verdict]] = {}
        for uid, verdicts in (said or {}).items():
            self._said[uid] = {(verdict.kind, verdict.reason): verdict for verdict in verdicts}

    def read(self, events: Iterable[Event]) -> None:
        """Take in events, in any order."""
        for event in events:
            uid, verdict = event.involved_object.uid, read_event(event)
            if uid and verdict is not None:
                said = self._said.setdefault(uid, {})
                known = said.get((verdict.kind, verdict.reason), verdict)
                later = max(known, verdict, key=lambda one: (one.at_ms, one.node))
                said[verdict.kind, verdict.reason] = later

    def of(self, uid: str) -> Verdict | None:
        """The word on a pod that holds."""
        return newest(self._said.get(uid, {}).values())

    def binding_failed_ms(self, uid: str) -> int | None:
        """When a binding of the pod last failed, for whatever reason."""
        said = self._said.get(uid, {})
        failures = (said[key].at_ms for key in (("lock_refused", ""), ("binding_failed", "")) if key in said)
        return max(failures, default=None)

    def forget(self, known_uids: Collection[str], now_ms: int, *, patience_ms: int = 60_000) -> None:
        """Drop what was said of pods that are not known; the pod's own update may still be on its way."""
        for uid in [uid for uid in self._said if uid not in known_uids]:
            if all(now_ms - verdict.at_ms > patience_ms for verdict in self._said[uid].values()):
                del self._said[uid]

    def dump(self) -> dict[str, list[Verdict]]:
        """What must survive a restart."""
        return {uid: list(said.values()) for uid, said in self._said.items()}
