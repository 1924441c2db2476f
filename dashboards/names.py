"""Metric names and label sets for expressions, taken from the catalogue, so that a typing error fails."""

from __future__ import annotations

from contract.catalogue import BY_NAME, DEVICE, SLICE

N = "cluster, node"
"""Labels of a node, `cluster` first: node names repeat between clusters."""

D = ", ".join(("cluster", *DEVICE))
"""Labels of a device; UUIDs repeat between clusters, too."""

S = ", ".join(("cluster", *(label for label in SLICE if label != "tenant")))
"""Labels of a slice, without its tenant."""

ST = f"{S}, tenant"
"""Labels of a slice with its tenant, for results that are routed to that tenant."""

SOURCE = "cluster, instance"
"""Labels of one of our own programs: its series about itself carry nothing else."""


def metric(name: str) -> str:
    """The full name of a family of the catalogue.

    Raises:
        KeyError: For a name that the catalogue does not have.
    """
    return BY_NAME[name].full_name


def once(name: str, by: str, matchers: str = "", *, offset: str = "") -> str:
    """A gauge with one series for each set of labels, however many scrapes repeat it."""
    when = f" offset {offset}" if offset else ""
    return f"max by ({by}) ({metric(name)}{_braced(matchers)}{when})"


def rate(name: str, by: str, window: str, matchers: str = "") -> str:
    """A counter's rate a second with one series for each set of labels."""
    return f"max by ({by}) (rate({metric(name)}{_braced(matchers)}[{window}]))"


def increase(name: str, by: str, window: str, matchers: str = "") -> str:
    """A counter's growth with one series for each set of labels."""
    return f"max by ({by}) (increase({metric(name)}{_braced(matchers)}[{window}]))"


def _braced(matchers: str) -> str:
    return f"{{{matchers}}}" if matchers else ""
