"""What the live table shows, as plain values: rows of slices and lines about clusters.

Pure: pages and costs in, rows out. Invariant: a figure that no page carries stays None, so the table
shows a dash and never a made-up 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

from contract.units import MIB
from lab.pages import Labels, Page

MEAN_WINDOW_S = 60.0
"""Over how much time the mean is taken: five whole duty cycles of twelve seconds."""


@dataclass(frozen=True, slots=True, order=True)
class PodKey:
    """A pod, wherever figures about it come from."""

    cluster: str
    namespace: str
    pod: str


@dataclass(frozen=True, slots=True)
class Cost:
    """What a pod has cost so far."""

    amount: Decimal
    currency: str


Costs: TypeAlias = Mapping[PodKey, Cost]


@dataclass(frozen=True, slots=True)
class SliceRow:
    """One slice. Memory in MiB, SM as shares of the card; None: nobody measured it."""

    key: PodKey
    tenant: str
    device: str
    granted_mib: float
    used_mib: float | None
    limit_mib: float | None
    sm_now: float | None
    sm_mean: float | None
    cost: Cost | None


@dataclass(frozen=True, slots=True)
class ClusterLine:
    """One cluster in a few words.

    Attributes:
        cards: `model: memory allocated of registered, cores, slots`, one a card.
        notes: What waits, is locked or bypasses.
    """

    code: str
    cards: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Address:
    """Something a person may open while the demo runs."""

    name: str
    place: str


def slice_rows(code: str, pages: Sequence[Page], costs: Costs) -> list[SliceRow]:
    """The slices on the newest of a node's pages, in order of their names.

    Args:
        code: The cluster's code.
        pages: The node exporter's pages, oldest first.
        costs: By pod.
    """
    if not pages:
        return []
    page = pages[-1]
    rows = []
    for labels, granted in page.find("slice_memory_allocated_bytes"):
        key = PodKey(code, labels["namespace"], labels["pod"])
        model = _model(page, labels["device_uuid"])
        one = {name: labels[name] for name in ("namespace", "pod", "container", "device_uuid")}
        now = [value for _, value in page.find("slice_sm_utilization_ratio", **one)]
        rows.append(
            SliceRow(
                key=key,
                tenant=labels["tenant"],
                device=model,
                granted_mib=granted / MIB,
                used_mib=_mib(page.value("slice_memory_used_bytes", **one)),
                limit_mib=_mib(page.value("slice_memory_limit_bytes", **one)),
                sm_now=now[0] if now else None,
                sm_mean=_mean(pages, one),
                cost=costs.get(key),
            )
        )
    return sorted(rows, key=lambda row: (row.tenant, row.key))


def _mean(pages: Sequence[Page], one: Labels) -> float | None:
    """SM use over the window, from the counter, as `rate()` would give it."""
    newest = pages[-1].value("slice_sm_seconds_total", **one)
    if newest is None:
        return None
    for page in pages:
        value = page.value("slice_sm_seconds_total", **one)
        age_s = pages[-1].at_s - page.at_s
        if value is not None and 0 < age_s <= MEAN_WINDOW_S:
            return max(0.0, newest - value) / age_s
    return None


def cluster_line(code: str, node: Page | None, cluster: Page | None) -> ClusterLine:
    """A cluster's cards from its node's page, its troubles from the cluster exporter's."""
    infos = [] if node is None else [labels for labels, _ in node.find("device_info")]
    cards = [_card(node, labels) for labels in sorted(infos, key=_position) if node is not None]
    return ClusterLine(code, tuple(cards), () if cluster is None else tuple(_notes(cluster)))


def _position(info: Labels) -> tuple[int, str]:
    index = info.get("index", "")
    return int(index) if index.isdigit() else 0, info["device_uuid"]


def _card(page: Page, info: Labels) -> str:
    uuid = info["device_uuid"]

    def total(name: str) -> float:
        return page.total(name, device_uuid=uuid)

    allocated, registered = total("device_memory_allocated_bytes"), total("device_memory_registered_bytes")
    return (
        f"{short_model(info['model'])}: {allocated / MIB:,.0f} of {registered / MIB:,.0f} MiB, "
        f"cores {total('device_core_allocated_ratio'):.2f}, "
        f"slots {total('device_slots_allocated'):.0f}/{total('device_slots'):.0f}"
    )


def _notes(page: Page) -> list[str]:
    notes = [
        f"{count:.0f} pod{'s' if count > 1 else ''} pending: {labels['reason']}"
        for labels, count in page.find("pending_pods")
        if count
    ]
    never = page.total("unschedulable_pods")
    if never:
        notes.append(f"{never:.0f} can never fit")
    waiting = page.total("node_lock_waiting_pods")
    if page.total("node_lock_held"):
        owner = next(
            (labels["owner_pod"] for labels, _ in page.find("node_lock_acquired_timestamp_seconds")), "?"
        )
        notes.append(f"node locked by {owner}" + (f", {waiting:.0f} waiting" if waiting else ""))
    bypassing = page.total("bypassing_pods")
    if bypassing:
        notes.append(f"{bypassing:.0f} past HAMi")
    return notes


def short_model(model: str) -> str:
    """A card's name without the words that every card has."""
    return model.removeprefix("NVIDIA-").removeprefix("NVIDIA ").removeprefix("Tesla ")


def _model(page: Page, device_uuid: str) -> str:
    models = [labels["model"] for labels, _ in page.find("device_info", device_uuid=device_uuid)]
    return short_model(models[0]) if models else device_uuid


def _mib(size_bytes: float | None) -> float | None:
    return None if size_bytes is None else size_bytes / MIB
