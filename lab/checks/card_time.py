"""How much card time each pod must be charged: an exact sweep by hand, in fractions.

On purpose neither the ledger's code nor its integers: segments between binds and ends, each pod its
share, all scaled down together where they hold more than the card (`reference/ledger.md §2`).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from fractions import Fraction

from lab.scenarios.plan import ClusterPlan, PodPlan


def charged_card_seconds(cluster: ClusterPlan) -> Mapping[str, Fraction]:
    """Card-seconds by pod name, for pods that hold a slice and have an end."""
    charged: dict[str, Fraction] = {}
    for card in cluster.cards:
        held = [pod for pod in cluster.pods if pod.holds_slice and pod.card == card.uuid]
        edges = sorted({edge for pod in held for edge in _life_s(pod)})
        for from_s, to_s in itertools.pairwise(edges):
            living = [pod for pod in held if _life_s(pod)[0] <= from_s and to_s <= _life_s(pod)[1]]
            booked = sum((cluster.share(pod) for pod in living), Fraction(0))
            for pod in living:
                part = cluster.share(pod) / max(booked, Fraction(1)) * (to_s - from_s)
                charged[pod.name] = charged.get(pod.name, Fraction(0)) + part
    return charged


def _life_s(pod: PodPlan) -> tuple[int, int]:
    if pod.bound_s is None or pod.ended_s is None:
        raise ValueError(f"pod {pod.name} has no end: what it owes is not final")
    return pod.bound_s, pod.ended_s
