"""Dashboard "Tenant": what a tenant holds, what it uses of that, and what this month costs so far.

The exporters' tenant is a key; accounting's is a place in its tree. Costs are found through accounting's
own mapping of one to the other, so that the amount is the statement's.
"""

from __future__ import annotations

from collections.abc import Iterator

from grafanalib import core

from dashboards import uids
from dashboards.frame import (
    CLUSTER,
    NAMESPACE,
    TENANT,
    cluster_variable,
    namespace_variable,
    tenant_variable,
    view,
)
from dashboards.names import ST, metric
from dashboards.panels import Column, Panel, Query, Step, Tile, over_time, rising, stat, table, tiles
from dashboards.queries import each, growth, mean_speed, speed, total
from dashboards.thresholds import DEFAULT

_NONE = "this tenant holds no slice in range"
_POD = ("cluster", "node", "tenant", "namespace", "pod")
_MODELS = "sum by (model)"


def _tiles() -> Iterator[core.Stat]:
    yield from tiles(
        (
            Tile(
                "Slices held",
                "Slices at this moment. Bad: more than the tenant knows of.",
                "short",
                f"count({metric('slice_info')}{{{NAMESPACE}}}) or vector(0)",
            ),
            Tile(
                "Memory held",
                "Memory granted to its slices. Bad: much more than is used.",
                "bytes",
                total("slice_memory_allocated_bytes", NAMESPACE),
            ),
            Tile(
                "Memory used",
                "Memory in use by living processes. Bad: far below what is held.",
                "bytes",
                total("slice_memory_used_bytes", NAMESPACE),
            ),
            Tile(
                "Cores held",
                "Whole cards reserved in cores. Bad: much more than the SM time used.",
                "none",
                total("slice_core_allocated_ratio", NAMESPACE),
            ),
            Tile(
                "SM time in use",
                "Whole cards in use. Bad: near 0 while much is held.",
                "none",
                speed("slice_sm_seconds_total", NAMESPACE),
            ),
            Tile(
                "Pods waiting",
                "Its pods that wait for slices. Bad: above 0 for long.",
                "short",
                f"sum({metric('pending_pods')}{{{NAMESPACE}}}) or vector(0)",
                rising(1),
            ),
        ),
        empty=_NONE,
    )
    mapped = f'{metric("tenant_mapping_info")}{{{CLUSTER}, tenant_key=~"$tenant"}}'
    opened = f'{metric("period_info")}{{{CLUSTER}, state="open"}}'
    yield stat(
        Panel(
            title="Cost of the open month so far",
            description="Accounting's own figure, by currency. Bad: far from what was planned.",
            unit="none",
            empty="accounting is not scraped here, or the tenant has no cost yet",
            place=(0, 4, 12, 4),
            queries=each(
                f"sum by (currency) ({metric('tenant_cost')}{{{CLUSTER}}}\n"
                f"and on (tenant) {mapped}\nand on (account, period) {opened})",
                "{{currency}}",
            ),
            link=("This month", uids.panel_link(uids.CHARGEBACK)),
        )
    )
    yield stat(
        Panel(
            title="Budget used",
            description="Spent share of its budget. Bad: above the part of the month that is over.",
            unit="percentunit",
            empty="no budget is set",
            place=(12, 4, 12, 4),
            queries=each(
                f"{metric('budget_used_ratio')}{{{CLUSTER}}} and on (tenant) {mapped}", "{{tenant}}"
            ),
            steps=rising(DEFAULT.budget_ratio, 1),
        )
    )


def _curves() -> Iterator[core.TimeSeries]:
    yield over_time(
        Panel(
            title="SM time by pod",
            description="Whole cards in use, from counters. Bad: flat at 0 for a slice that is held.",
            unit="none",
            empty=_NONE,
            place=(0, 8, 12, 8),
            queries=each(
                speed("slice_sm_seconds_total", NAMESPACE, "cluster, node, tenant, namespace, pod"),
                "{{namespace}}/{{pod}}",
            ),
            link=("This pod", uids.panel_link(uids.POD, *_POD)),
        ),
        stacked=True,
    )
    yield over_time(
        Panel(
            title="Memory held and used",
            description="All its slices together. Bad: a wide gap between the two for days.",
            unit="bytes",
            empty=_NONE,
            place=(12, 8, 12, 8),
            queries=[
                Query(total("slice_memory_allocated_bytes", NAMESPACE), "held"),
                Query(total("slice_memory_used_bytes", NAMESPACE), "used"),
            ],
        )
    )
    yield over_time(
        Panel(
            title="Held by model",
            description="Memory held by GPU model. Bad: the dearest model for work that fits a smaller one.",
            unit="bytes",
            empty=_NONE,
            place=(0, 24, 12, 7),
            queries=each(f"{_MODELS} ({metric('tenant_memory_allocated_bytes')}{{{TENANT}}})", "{{model}}"),
        ),
        stacked=True,
    )
    yield over_time(
        Panel(
            title="Energy",
            description="Power of its slices, active and idle part. Bad: mostly idle.",
            unit="watt",
            empty="no board reports its energy",
            place=(12, 24, 12, 7),
            queries=each(speed("slice_energy_joules_total", NAMESPACE, "kind"), "{{kind}}"),
        ),
        stacked=True,
    )


def _slices() -> core.Table:
    return table(
        Panel(
            title="Slices of this tenant",
            description="What each holds and uses. Bad: held for long with SM time near 0.",
            unit="short",
            empty=_NONE,
            place=(0, 16, 24, 8),
            queries=[
                Query(total("slice_memory_allocated_bytes", NAMESPACE, ST)),
                Query(total("slice_memory_used_bytes", NAMESPACE, ST)),
                Query(total("slice_memory_peak_bytes", NAMESPACE, ST)),
                Query(total("slice_core_allocated_ratio", NAMESPACE, ST)),
                Query(mean_speed("slice_sm_seconds_total", NAMESPACE, ST)),
                Query(growth("slice_energy_joules_total", NAMESPACE, ST)),
            ],
            link=("This pod", uids.row_link(uids.POD, *_POD)),
        ),
        key=("cluster", "node", "tenant", "namespace", "pod", "container", "device_uuid"),
        columns=(
            Column("A", "memory held", "bytes"),
            Column("B", "memory used", "bytes"),
            Column("C", "memory peak", "bytes"),
            Column("D", "cores held", "percentunit"),
            Column("E", "SM mean", "percentunit", cell="gauge"),
            Column("F", "energy", "joule"),
        ),
    )


def _refused() -> Iterator[core.TimeSeries]:
    yield over_time(
        Panel(
            title="Waiting by reason",
            description="Its pods that wait, by HAMi's reason. Bad: a reason that does not go away.",
            unit="short",
            empty="none of its pods waits",
            place=(0, 31, 12, 7),
            queries=each(total("pending_pods", NAMESPACE, "namespace, reason"), "{{namespace}} {{reason}}"),
            steps=(Step(None, "green"),),
        ),
        stacked=True,
    )
    yield over_time(
        Panel(
            title="Use without an allocation",
            description="GPU memory of its pods that hold no grant. Bad: anything.",
            unit="bytes",
            empty="none of its pods uses a card without a grant",
            place=(12, 31, 12, 7),
            queries=each(
                total("unallocated_memory_used_bytes", NAMESPACE, "namespace, pod"), "{{namespace}}/{{pod}}"
            ),
            steps=rising(DEFAULT.unallocated_memory_bytes),
        )
    )


dashboard = view(
    uid=uids.TENANT,
    title="Tenant",
    description="What a tenant holds, what it uses of that, and what this month costs so far.",
    variables=(cluster_variable("slice_info"), tenant_variable(), namespace_variable()),
    panels=[*_tiles(), *_curves(), _slices(), *_refused()],
    start="now-24h",
)
