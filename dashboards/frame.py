"""What all dashboards share: variables in one order, links between the views, alerts on the time axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grafanalib import core

from dashboards.names import metric
from dashboards.panels import DATASOURCE

TAG = "slicemeter"

CLUSTER = 'cluster=~"$cluster"'
NODE = f'{CLUSTER}, node=~"$node"'
CARD = f'{NODE}, device_uuid=~"$device"'
TENANT = f'{CLUSTER}, tenant=~"$tenant"'
NAMESPACE = f'{TENANT}, namespace=~"$namespace"'
MINE = f'{CARD}, tenant=~"$tenant", namespace=~"$namespace"'
POD = f'{NODE}, tenant=~"$tenant", namespace=~"$namespace", pod=~"$pod"'
BOOKS = f'{CLUSTER}, account=~"$account", period=~"$period"'

Panels = Sequence[core.Panel]


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable that narrows by a label, and is itself narrowed by those before it.

    Attributes:
        name: As in `$name`.
        label: What a person reads.
        label_name: The label whose values it offers.
        source: The family (without prefix) that has the label.
        within: Matchers of the variables before it.
        is_multi: Whether several, or all, may be chosen.
    """

    name: str
    label: str
    label_name: str
    source: str
    within: str = ""
    is_multi: bool = True

    def template(self) -> core.Template:
        """As grafanalib writes it."""
        narrowed = f"{{{self.within}}}" if self.within else ""
        return core.Template(
            name=self.name,
            label=self.label,
            type="query",
            query=f"label_values({metric(self.source)}{narrowed}, {self.label_name})",
            dataSource=DATASOURCE,
            multi=self.is_multi,
            includeAll=self.is_multi,
            allValue=".*" if self.is_multi else None,
        )


def cluster_variable(source: str = "build_info") -> Variable:
    """The first of all variables."""
    return Variable("cluster", "Cluster", "cluster", source)


def node_variable(source: str = "device_info") -> Variable:
    """A node of the chosen clusters."""
    return Variable("node", "Node", "node", source, CLUSTER)


def tenant_variable(within: str = CLUSTER) -> Variable:
    """A tenant that has slices there."""
    return Variable("tenant", "Tenant", "tenant", "slice_info", within)


def namespace_variable(within: str = CLUSTER) -> Variable:
    """A namespace of the chosen tenants."""
    return Variable("namespace", "Namespace", "namespace", "slice_info", f'{within}, tenant=~"$tenant"')


def pod_variable() -> Variable:
    """A pod of the chosen namespaces."""
    within = f'{NODE}, tenant=~"$tenant", namespace=~"$namespace"'
    return Variable("pod", "Pod", "pod", "slice_info", within)


def device_variable() -> Variable:
    """A card of the chosen nodes."""
    return Variable("device", "Device", "device_uuid", "device_info", NODE)


def view(
    *,
    uid: str,
    title: str,
    description: str,
    variables: Sequence[Variable],
    panels: Panels,
    time_zone: str = "browser",
    start: str = "now-1h",
    marks: str = "{{node}} {{namespace}}/{{pod}}",
) -> core.Dashboard:
    """A dashboard in the house's frame.

    Args:
        uid: From `dashboards.uids`.
        title: A noun phrase.
        description: The question that it answers.
        variables: Beside the data source, in the order in which they narrow.
        panels: What it shows.
        time_zone: `browser` for operations, `utc` for books.
        start: Where the time range begins when it is opened.
        marks: What an alert's mark on the time axis says.
    """
    datasource = core.Template(name="datasource", label="Data source", type="datasource", query="prometheus")
    return core.Dashboard(
        title=title,
        uid=uid,
        description=description,
        tags=[TAG],
        timezone=time_zone,
        refresh="30s",
        time=core.Time(start, "now"),
        links=[
            core.DashboardLink(
                title="GPU accounting",
                asDropdown=True,
                tags=[TAG],
                includeVars=True,
                keepTime=True,
                icon="dashboard",
            )
        ],
        annotations=core.Annotations(list=[_alerts(marks), _xids()]),
        templating=core.Templating(list=[datasource, *(each.template() for each in variables)]),
        panels=list(panels),
    )


def _alerts(text: str) -> dict[str, object]:
    firing = f'ALERTS{{alertname=~"Slicemeter.*", alertstate="firing", {CLUSTER}}}'
    return _mark("Firing alerts", "red", firing, "{{alertname}}", text)


def _xids() -> dict[str, object]:
    recent = f"time() - {metric('device_xid_last_timestamp_seconds')}{{{CLUSTER}}} < 60"
    return _mark("XID errors", "purple", recent, "XID {{code}}", "{{node}} {{device_uuid}}")


def _mark(name: str, colour: str, expr: str, title: str, text: str) -> dict[str, object]:
    return {
        "name": name,
        "enable": True,
        "iconColor": colour,
        "datasource": {"type": "prometheus", "uid": DATASOURCE},
        "expr": expr,
        "titleFormat": title,
        "textFormat": text,
    }
