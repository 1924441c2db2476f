"""Stable addresses of the dashboards, chosen by hand, and the links that lead to them.

Alerts and panels link to dashboards by these; a uid never changes, since people keep them in bookmarks.
"""

from __future__ import annotations

FLEET = "slicemeter-fleet"
CARD = "slicemeter-card"
TENANT = "slicemeter-tenant"
POD = "slicemeter-pod"
NEIGHBOURS = "slicemeter-neighbours"
ENERGY = "slicemeter-energy"
CHARGEBACK = "slicemeter-chargeback"
PIPELINE = "slicemeter-pipeline"

VARIABLE_OF_LABEL = {"device_uuid": "device"}
"""Dashboard variables are named as the label they narrow, but for these."""


def alert_link(uid: str, *labels: str) -> str:
    """The path of a dashboard with its variables set from an alert's labels.

    Args:
        uid: The dashboard.
        labels: Labels of the alert that the dashboard has a variable for.
    """
    variables = "&".join(
        f"var-{VARIABLE_OF_LABEL.get(label, label)}={{{{ $labels.{label} }}}}" for label in labels
    )
    return f"/d/{uid}?{variables}" if variables else f"/d/{uid}"


def panel_link(uid: str, *labels: str) -> str:
    """The same from a panel's data link, with the time range kept."""
    variables = "".join(
        f"&var-{VARIABLE_OF_LABEL.get(label, label)}=${{__field.labels.{label}}}" for label in labels
    )
    return f"/d/{uid}?${{__url_time_range}}&var-datasource=${{datasource}}{variables}"


def row_link(uid: str, *columns: str) -> str:
    """The same from a cell of a table, whose row has the labels as columns."""
    variables = "".join(
        f"&var-{VARIABLE_OF_LABEL.get(column, column)}=${{__data.fields.{column}}}" for column in columns
    )
    return f"/d/{uid}?${{__url_time_range}}&var-datasource=${{datasource}}{variables}"
