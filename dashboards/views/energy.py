"""Dashboard "Energy": where the joules go: active, idle, unallocated and of no known pod.

The parts add up to the boards' own counters, exactly: what is not a slice's is shown as such.
"""

from __future__ import annotations

from collections.abc import Iterator

from grafanalib import core

from dashboards import uids
from dashboards.frame import NODE, cluster_variable, node_variable, view
from dashboards.names import D, metric
from dashboards.panels import Column, Panel, Query, Tile, over_time, table, tiles
from dashboards.queries import each, growth, speed, total

_NONE = "no board reports its energy"


def _tiles() -> Iterator[core.Stat]:
    def kind(name: str) -> str:
        return growth("slice_energy_joules_total", f'{NODE}, kind="{name}"')

    yield from tiles(
        (
            Tile(
                "Energy",
                "All boards in range. Bad: it does not follow the work.",
                "joule",
                growth("device_energy_joules_total", NODE),
            ),
            Tile(
                "Active part",
                "While slices ran kernels. Bad: small against the whole.",
                "joule",
                kind("active"),
            ),
            Tile(
                "Idle part of slices",
                "Held memory while nobody ran. Bad: most of the energy.",
                "joule",
                kind("idle"),
            ),
            Tile(
                "Past HAMi",
                "Pods without an allocation. Bad: anything.",
                "joule",
                f"{growth('unallocated_energy_joules_total', NODE)} or vector(0)",
            ),
            Tile(
                "Of no known pod",
                "Nobody's. Bad: much on cards that slices hold.",
                "joule",
                growth("device_energy_unattributed_joules_total", NODE),
            ),
            Tile(
                "Power now",
                "All boards. Bad: near the room's limit.",
                "watt",
                speed("device_energy_joules_total", NODE),
            ),
        ),
        empty=_NONE,
    )


def _curves() -> Iterator[core.TimeSeries]:
    yield over_time(
        Panel(
            title="Where the power goes",
            description="The parts add up to the boards. Bad: idle or nobody's part on top of all.",
            unit="watt",
            empty=_NONE,
            place=(0, 4, 12, 8),
            queries=[
                Query(speed("slice_energy_joules_total", NODE, "kind"), "slices, {{kind}}"),
                Query(speed("unallocated_energy_joules_total", NODE), "past HAMi"),
                Query(speed("device_energy_unattributed_joules_total", NODE), "no known pod"),
                Query(speed("device_energy_joules_total", NODE), "boards"),
            ],
        ),
        stacked=True,
        lines=("boards",),
    )
    yield over_time(
        Panel(
            title="Power by tenant",
            description="Active and idle part together. Bad: a tenant that draws power and uses no SM time.",
            unit="watt",
            empty=_NONE,
            place=(12, 4, 12, 8),
            queries=each(speed("slice_energy_joules_total", NODE, "tenant"), "{{tenant}}"),
        ),
        stacked=True,
    )
    yield over_time(
        Panel(
            title="Temperature",
            description="Of each GPU. Bad: rising at equal power: look at the cooling.",
            unit="celsius",
            empty="no card reports its temperature",
            place=(0, 20, 12, 7),
            queries=each(total("device_temperature_celsius", NODE, D), "{{node}} {{device_uuid}}"),
        )
    )
    yield over_time(
        Panel(
            title="Clocks held down",
            description="Share of the time by reason. Bad: thermal or power brake.",
            unit="percentunit",
            empty="no card reports why clocks are held down",
            place=(12, 20, 12, 7),
            queries=each(speed("device_throttle_seconds_total", NODE, f"{D}, reason"), "{{node}} {{reason}}"),
        )
    )


def _tenants() -> core.Table:
    by = "cluster, tenant"

    def kind(name: str) -> Query:
        return Query(growth("slice_energy_joules_total", f'{NODE}, kind="{name}"', by))

    joules = growth("slice_energy_joules_total", NODE, by)
    per_second = f"{joules} / ({growth('slice_sm_seconds_total', NODE, by)} > 0)"
    return table(
        Panel(
            title="Tenants",
            description="Energy in range, and what a second of SM time cost. Bad: many joules a second.",
            unit="short",
            empty=_NONE,
            place=(0, 12, 24, 8),
            queries=[
                kind("active"),
                kind("idle"),
                Query(growth("slice_sm_seconds_total", NODE, by)),
                Query(per_second),
            ],
            link=("This tenant", uids.row_link(uids.TENANT, "cluster", "tenant")),
        ),
        key=("cluster", "tenant"),
        columns=(
            Column("A", "active", "joule"),
            Column("B", "idle", "joule"),
            Column("C", "SM time", "s"),
            Column("D", "joules a second", "joule"),
        ),
    )


def _boards() -> core.Table:
    return table(
        Panel(
            title="Boards",
            description="Power, temperature and clocks now. Bad: a board that stands out.",
            unit="short",
            empty=_NONE,
            place=(0, 27, 24, 8),
            queries=[
                Query(total("device_power_watts", NODE, D)),
                Query(total("device_temperature_celsius", NODE, D)),
                Query(total("device_clock_hertz", f'{NODE}, domain="sm"', D)),
                Query(f"max by ({D}) ({metric('device_utilization_ratio')}{{{NODE}}})"),
            ],
            link=("Who shares this card", uids.row_link(uids.CARD, "cluster", "node", "device_uuid")),
        ),
        key=("cluster", "node", "device_uuid"),
        columns=(
            Column("A", "power", "watt"),
            Column("B", "temperature", "celsius"),
            Column("C", "SM clock", "hertz"),
            Column("D", "any kernel ran", "percentunit"),
        ),
    )


dashboard = view(
    uid=uids.ENERGY,
    title="Energy",
    description="Where the joules go: active, idle, past HAMi and of no known pod.",
    variables=(cluster_variable("device_info"), node_variable()),
    panels=[*_tiles(), *_curves(), _tenants(), _boards()],
    start="now-6h",
)
