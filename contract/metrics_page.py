"""The catalogue as a page for users: the text of `docs/metrics.md`, which `make docs` writes."""

from __future__ import annotations

from contract.catalogue import FAMILIES, Group

_HEADINGS: dict[Group, tuple[str, str]] = {
    "device": ("Devices", "One physical GPU. Exported by the node role."),
    "slice": ("Slices", "What one container holds of one device. Exported by the node role."),
    "tenant": ("Tenants", "Sums over a tenant's slices on one node, by model. Exported by the node role."),
    "node_lock": ("Node locks", "HAMi's lock on a node. Exported by the cluster role."),
    "cluster": ("Cluster", "What no node can see. Exported by the cluster role."),
    "accounting": ("Accounting", "Figures of the ledger. Exported by the accounting service."),
    "self": (
        "About ourselves",
        "Health of the exporter itself. Exported by both roles unless said otherwise.",
    ),
}

_INTRODUCTION = """\
# Metrics

Every family that Slicemeter knows. All names begin with `slicemeter_`; units are bytes, seconds, joules, and
ratios 0–1. A series that is absent was not measured: 0 is a measurement. Identity is in the `_info` series of
value 1; join them with `and on (…)` or `group_left`. `cluster` is a target label: set it by relabelling.

Families marked *planned* have their name and labels fixed and are not exported yet.

This page is made from the catalogue in the code by `make docs`.
"""


def metrics_page() -> str:
    """The page in Markdown."""
    parts = [_INTRODUCTION]
    for group, (heading, remark) in _HEADINGS.items():
        parts.append(f"## {heading}\n\n{remark}\n\n| Metric | Type | Labels | Meaning |\n|---|---|---|---|")
        for family in (family for family in FAMILIES if family.group == group):
            labels = ", ".join(f"`{label}`" for label in family.labels) or "–"
            meaning = family.help + (" *(planned)*" if family.is_planned else "")
            if family.closed:
                meaning += (
                    f" `{family.labels[-1]}`: " + ", ".join(f"`{value}`" for value in family.closed) + "."
                )
            parts.append(f"| `{family.full_name}` | {family.type} | {labels} | {meaning} |")
        parts.append("")
    return "\n".join(parts)
