"""The page `docs/alerts.md`, made from the table of rules and the thresholds, so that it cannot lie."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator

from dashboards.rules.routing import Channel, alertmanager_config
from dashboards.rules.rule import Group
from dashboards.rules.table import groups
from dashboards.thresholds import Thresholds, as_mapping

_HEAD = """# Alerts and recording rules

<!-- made from dashboards/rules by `make docs`; do not edit -->

```
slicemeter rules build rules/ --runbooks URL --grafana URL          # plain rule files, one a group
slicemeter rules build rules/ --enable capacity --enable ledger     # also these groups; or all
slicemeter rules build rules/ --form operator --label release=prom  # one PrometheusRule object
slicemeter rules build rules/ --thresholds mine.yaml                # lines as `near_limit_ratio: 0.9`
slicemeter rules rehearse [SCENE …]                                 # play what may happen, see what arrives
```

Every alert carries `cluster` and `severity` (`critical` wakes someone, `warning` is for working hours, `info`
is shown), and `tenant` where its subject has one. Annotations: `summary`, `description` (may name other
tenants: for platform receivers), `tenant_description` (for the tenant's own receiver; names nobody else),
`runbook_url` and `dashboard_url` ([the dashboards](dashboards.md)). Set the target label `cluster` by
relabelling, also with one cluster only.
"""

_ROUTING = """
## Routing

`description` may name other tenants and their pods, and a webhook sends every annotation: give webhooks to
the platform alone, and tenants a receiver whose text you write, of `tenant_description`. The label `tenant`
is the exporters' key (`vision`) or, where an alert is about money, the path in accounting's tree
(`institute/vision`). A dead exporter silences what its node's page said, but not the node's locks, which
the cluster role sees; a card with a fatal XID silences what its slices say of speed. As a whole for
Alertmanager (0.25 or newer), with one tenant (where a key names different tenants in two clusters, match
`cluster` too):

```yaml
{config}```
"""

_REHEARSAL = """
## Rehearsal

`slicemeter rules rehearse` (or `make alert-scenarios`) plays scenes on one computer, with no GPU and no
cluster: real exporters, accounting, Prometheus and Alertmanager (Debian's packages `prometheus` and
`prometheus-alertmanager`) on loopback, every group switched on, a minute in a second by one factor for
scrapes, ranges, waits and thresholds. It prints for each scene which alerts had to arrive, after how many
of its minutes each did, and what was off: a missing alert, one too many, another text, or a tenant who read
another's name; then it exits 1. `--list` names the scenes, `--minute 3` is for slow machines, all of them
take some ten minutes.
"""

_EXAMPLE = alertmanager_config(
    {"webhook_configs": [{"url": "https://alerts.example/platform"}]},
    [Channel("vision", ("vision", "institute/vision"), "https://chat.example/hooks/vision")],
)


def alerts_page() -> str:
    """The page's text."""
    always = [group for group in groups() if group.switch is None]
    parts = [_HEAD, "\n## On by default\n\n", _table(always)]
    for group in groups():
        if group.switch is not None:
            parts += [f"\n## Group `{group.switch}` (off by default)\n\n", _table([group])]
    parts += ["\n## Recording rules\n\n", *_recordings(), "\n## Thresholds\n\n", *_thresholds()]
    parts += [_ROUTING.replace("{config}", _EXAMPLE), _REHEARSAL]
    return "".join(parts)


def _table(chosen: list[Group]) -> str:
    lines = ["| Alert | severity | for | when |\n|---|---|---|---|\n"]
    for group in chosen:
        for alert in group.alerts():
            link = f"[{alert.name}](runbooks/{alert.runbook})"
            lines.append(f"| {link} | {alert.severity} | {alert.hold} | {alert.summary} |\n")
    return "".join(lines)


def _recordings() -> Iterator[str]:
    for group in groups():
        for rule in group.recordings():
            yield f"- `{rule.name}`\n"


def _thresholds() -> Iterator[str]:
    yield "| Name | default | meaning |\n|---|---|---|\n"
    meanings = _meanings()
    for name, value in as_mapping().items():
        yield f"| `{name}` | {value} | {meanings[name]} |\n"


def _meanings() -> dict[str, str]:
    """Each threshold's own docstring: Python keeps none for fields, so the source is read."""
    [definition] = ast.parse(inspect.getsource(Thresholds)).body
    assert isinstance(definition, ast.ClassDef)
    found: dict[str, str] = {}
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            assert isinstance(field.target, ast.Name)
            assert isinstance(text.value, ast.Constant)
            found[field.target.id] = " ".join(str(text.value.value).split())
    return found
