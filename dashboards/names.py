"""Metric names and label sets for expressions, taken from the catalogue, so that a typing error fails."""

from __future__ import annotations

from contract.catalogue import BY_NAME, DEVICE, SLICE

D = ", ".join(("cluster", *DEVICE))
"""Labels of a device, `cluster` first: node names and UUIDs repeat between clusters."""

S = ", ".join(("cluster", *(label for label in SLICE if label != "tenant")))
"""Labels of a slice, without its tenant."""

ST = f"{S}, tenant"
"""Labels of a slice with its tenant, for results that are routed to that tenant."""


def metric(name: str) -> str:
    """The full name of a family of the catalogue.

    Raises:
        KeyError: For a name that the catalogue does not have.
    """
    return BY_NAME[name].full_name
