"""What the cluster role must remember over a restart, as one record.

Invariant: a counter that was ever on a page is in it, so that none goes back after a kill. Most of it is what
the witness follows, 1.4 KiB a slice and much alike: 14 MB for 10,000 slices, compressed a twelfth of it, and
written only when something was said or counted, or when the confirmations in it grow old (`Keeper`).
"""

from __future__ import annotations

import zlib
from typing import Final

import msgspec

from exporter.cluster.events import Verdict
from exporter.cluster.locks import LockState
from exporter.cluster.pending import WaitingCount, WaitingSince
from exporter.delivery.witness import WitnessState

FORMAT = 1
FULLY_EVERY_MS: Final = 30_000
"""How old the confirmations in a stored record may be: an end that nobody saw is no better known."""

_COMPRESSION = 1


class ClusterState(msgspec.Struct, kw_only=True):
    """Everything that is stored.

    Attributes:
        format: Of this record; another one is not read.
        locks: By node UID.
        said: What HAMi's scheduler said, by pod UID: an event that aged out ends nothing.
        waiting: Pods that wait, by UID.
        waiting_counts: Waiting time counted so far.
        annotation_errors: By `kind/reason`.
        since_ms: When these counters began at 0, Unix time.
    """

    format: int = FORMAT
    locks: dict[str, LockState] = {}
    said: dict[str, list[Verdict]] = {}
    waiting: dict[str, WaitingSince] = {}
    waiting_counts: list[WaitingCount] = []
    annotation_errors: dict[str, int] = {}
    since_ms: int | None = None
    witness: WitnessState = msgspec.field(default_factory=WitnessState)


_decoder = msgspec.json.Decoder(ClusterState)


def encode_state(state: ClusterState) -> bytes:
    """The record's bytes."""
    return zlib.compress(msgspec.json.encode(state), _COMPRESSION)


def decode_state(stored: bytes) -> ClusterState | None:
    """The record, or None when these bytes are none of this format."""
    try:
        # Before compression the record was plain JSON.
        state = _decoder.decode(stored if stored.startswith(b"{") else zlib.decompress(stored))
    except (msgspec.MsgspecError, UnicodeDecodeError, zlib.error):
        return None
    return state if state.format == FORMAT else None


class Keeper:
    """Says when a state has to be stored."""

    def __init__(self) -> None:
        self._counters: bytes | None = None
        self._kept_ms = 0

    def is_due(self, state: ClusterState, now_ms: int, *, is_said: bool) -> bool:
        """Whether a kill now would lose more than confirmations of the last half minute.

        Args:
            state: As it is.
            now_ms: Unix milliseconds; a clock that was set back makes it due.
            is_said: Facts were said since the last time.
        """
        counters = _without_witness(state)
        is_young = 0 <= now_ms - self._kept_ms < FULLY_EVERY_MS
        return is_said or counters != self._counters or not is_young

    def kept(self, state: ClusterState, now_ms: int, *, is_stored: bool) -> None:
        """It was stored, or could not be: then it stays due."""
        self._counters, self._kept_ms = _without_witness(state) if is_stored else None, now_ms


def _without_witness(state: ClusterState) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(state, witness=WitnessState()))
