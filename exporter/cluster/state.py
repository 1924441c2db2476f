"""What the cluster role must remember over a restart, as one record.

Invariant: a counter that was ever on a page is in it, so that none goes back after a kill.
"""

from __future__ import annotations

import msgspec

from exporter.cluster.events import Verdict
from exporter.cluster.locks import LockState
from exporter.cluster.pending import WaitingCount, WaitingSince
from exporter.delivery.witness import WitnessState

FORMAT = 1


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
    return msgspec.json.encode(state)


def decode_state(stored: bytes) -> ClusterState | None:
    """The record, or None when these bytes are none of this format."""
    try:
        state = _decoder.decode(stored)
    except msgspec.MsgspecError:
        return None
    return state if state.format == FORMAT else None
