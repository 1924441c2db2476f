"""How each route of the API is called, so that the walk of foreign askers reaches all of them.

A new route fails `test_isolation.py` until it stands here: say how it is called with names that may be the
asker's own or somebody else's (`Names`), once for each form that reads something else.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import quote

from contract.facts import CONTENT_TYPE, HEADER_KUBE_SYSTEM_UID, HEADER_SENT_AT, HEADER_SOURCE

MONTH = "2026-10"
DAY = "2026-10-01"
_WINDOW = "from=2026-10-01T00:00:00Z&to=2026-10-02T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Names:
    """What a caller may name: of itself, of somebody else, or of nobody."""

    tenant: str
    account: str
    cluster: str
    model: str
    line: int
    """The id of a ledger line."""
    statement: str
    """The number of an issued statement."""
    namespace: str = "nowhere"
    node: str = "nowhere"
    row: int = 1
    """The id of a row of another kind: a rule, a move, a budget."""
    device: str = "GPU-nowhere"
    slice: str = "00000000-0000-4000-8000-000000000000"
    """The id of an allocation."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request."""

    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None


Calls: TypeAlias = Callable[[Names], Sequence[Call]]


def _get(*templates: str) -> Calls:
    """Calls of one route: each template's fields are those of `Names`."""

    def calls(names: Names) -> list[Call]:
        filled = {
            "tenant": quote(names.tenant, safe=""), "account": quote(names.account, safe=""),
            "cluster": quote(names.cluster, safe=""), "model": quote(names.model, safe=""),
            "namespace": quote(names.namespace, safe=""), "node": quote(names.node, safe=""),
            "line": names.line, "statement": names.statement, "row": names.row,
            "device": quote(names.device, safe=""), "slice": names.slice,
        }  # fmt: skip
        return [Call(f"/api/v1/{template.format(**filled)}") for template in templates]

    return calls


def _post(template: str, **body: str | int | bool) -> Calls:
    """A call with a JSON body whose texts are templates too."""

    def calls(names: Names) -> list[Call]:
        filled = {name: getattr(names, name) for name in names.__dataclass_fields__}
        told = {
            name.rstrip("_"): value.format(**filled) if isinstance(value, str) else value
            for name, value in body.items()
        }
        headers = {"Content-Type": "application/json", "Idempotency-Key": f"walk-{template}"}
        return [Call(f"/api/v1/{template.format(**filled)}", headers, json.dumps(told).encode())]

    return calls


def _facts(_names: Names) -> list[Call]:
    headers = {
        "Content-Type": CONTENT_TYPE, "Content-Encoding": "gzip", HEADER_SENT_AT: "1790855999000",
        HEADER_KUBE_SYSTEM_UID: "kube-system-of-a",
        HEADER_SOURCE: "role=cluster;epoch=walk;version=0.1.0",
    }  # fmt: skip
    return [Call("/api/v1/facts", headers, gzip.compress(b""))]


_EXPORTS = [
    f"exports/{MONTH}?{whose}&format={form}"
    for whose in ("tenant={tenant}", "account={account}", "tenant={tenant}&account={account}")
    for form in (
        "csv",
        "json",
        "focus",
        "focus&focus_dataset=invoice-detail",
        "focus&focus_dataset=billing-period",
    )
]
_GROUPS = (
    "tenant,account",
    "organisation,team,project",
    "cluster,node,device",
    "namespace,pod",
    "sku,kind,day",
)
_FILTERS = (
    "tenant={tenant}", "account={account}", "cluster={cluster}", "namespace={namespace}", "node={node}",
    "model={model}",
)  # fmt: skip
_COSTS = (
    *(f"costs?period={MONTH}&group_by={group}" for group in _GROUPS),
    *(f"costs?period={MONTH}&idle={idle}" for idle in ("separate", "distributed", "excluded")),
    *(f"costs?{_WINDOW}&{which}" for which in _FILTERS), f"costs?{_WINDOW}&basis=usage&sku=gpu-slice",
)  # fmt: skip
_USAGE = (
    f"usage?{_WINDOW}", f"usage?{_WINDOW}&limit=1", f"usage?{_WINDOW}&basis=usage&sku=gpu-slice",
    *(f"usage?{_WINDOW}&group_by={group}" for group in ("tenant,project", "cluster,node,device,model")),
    *(f"usage?{_WINDOW}&{which}" for which in _FILTERS),
)  # fmt: skip
_ALLOCATIONS = (
    f"allocations?{_WINDOW}", f"allocations?{_WINDOW}&limit=1",
    *(f"allocations?{_WINDOW}&{which}" for which in (*_FILTERS, "sku=gpu-slice")),
)  # fmt: skip
_CAPACITY = (
    f"capacity?{_WINDOW}", f"capacity?{_WINDOW}&group_by=cluster,model",
    *(f"capacity?{_WINDOW}&{which}" for which in ("cluster={cluster}", "node={node}", "model={model}")),
)  # fmt: skip

ROUTES: dict[str, Calls] = {
    "GET /api/v1/statements": _get(
        "statements", "statements?account={account}", f"statements?account={{account}}&period={MONTH}"
    ),
    "GET /api/v1/statements/{period}": _get(
        *(f"statements/{MONTH}?tenant={{tenant}}&format={form}" for form in ("json", "csv", "html")),
        f"statements/{MONTH}?account={{account}}",
        f"statements/{MONTH}?tenant={{tenant}}&account={{account}}",
    ),
    "GET /api/v1/usage": _get(*_USAGE),
    "GET /api/v1/costs": _get(*_COSTS),
    "GET /api/v1/capacity": _get(*_CAPACITY),
    "GET /api/v1/capacity/stranded": _get(
        f"capacity/stranded?{_WINDOW}", f"capacity/stranded?{_WINDOW}&cluster={{cluster}}"
    ),
    "GET /api/v1/capacity/card": _get(f"capacity/card?{_WINDOW}&cluster={{cluster}}&device={{device}}"),
    "GET /api/v1/usage/slice": _get(
        *(f"usage/slice?{_WINDOW}&cluster={{cluster}}&id={{slice}}&by={by}" for by in ("hour", "day"))
    ),
    "GET /api/v1/allocations": _get(*_ALLOCATIONS),
    "GET /api/v1/tenants": _get("tenants", "tenants?limit=1"),
    "POST /api/v1/tenants": _post("tenants", path="{tenant}/below", kind="project"),
    "GET /api/v1/tenants/rules": _get("tenants/rules"),
    "POST /api/v1/tenants/rules": _post(
        "tenants/rules", priority=1, tenant="{tenant}", from_="2026-11-01T00:00:00Z"
    ),
    "POST /api/v1/tenants/rules/{priority}/end": _post("tenants/rules/{row}/end", at="2026-11-01T00:00:00Z"),
    "POST /api/v1/tenants/rules/{rule}/withdraw": _post("tenants/rules/{row}/withdraw", reason="walked"),
    "GET /api/v1/tenants/moves": _get("tenants/moves"),
    "POST /api/v1/tenants/moves": _post(
        "tenants/moves", tenant="{tenant}", code="moved", from_="2026-11-01T00:00:00Z"
    ),
    "POST /api/v1/tenants/moves/{move}/withdraw": _post("tenants/moves/{row}/withdraw", reason="walked"),
    "GET /api/v1/prices": _get("prices"),
    "POST /api/v1/prices": _post(
        "prices", model="{model}", currency="EUR", unit_price="1.00", from_="2026-01-01T00:00:00Z"
    ),
    "GET /api/v1/policies": _get("policies"),
    "POST /api/v1/policies": _post("policies", kind="share", value="memory", from_="2026-01-01T00:00:00Z"),
    "GET /api/v1/discounts": _get("discounts"),
    "POST /api/v1/discounts": _post(
        "discounts", tenant="{tenant}", percent="5", from_="2026-01-01T00:00:00Z"
    ),
    "GET /api/v1/waste": _get(
        f"waste?{_WINDOW}",
        f"waste?{_WINDOW}&by=tenant",
        *(f"waste?{_WINDOW}&{which}" for which in (*_FILTERS, "sku=gpu-slice")),
    ),
    "GET /api/v1/budgets": _get("budgets", f"budgets?period={MONTH}"),
    "GET /api/v1/budgets/versions": _get("budgets/versions"),
    "POST /api/v1/budgets": _post("budgets", tenant="{tenant}", amount="5000", first="2026-10"),
    "GET /api/v1/forecast": _get("forecast", f"forecast?period={MONTH}"),
    "GET /api/v1/periods": _get("periods"),
    "GET /api/v1/periods/{period}/preflight": _get(f"periods/{MONTH}/preflight?account={{account}}"),
    "GET /api/v1/periods/{period}/correction": _get(f"periods/{MONTH}/correction?account={{account}}"),
    "POST /api/v1/periods/{period}/close": _post(f"periods/{MONTH}/close", account="{account}"),
    "POST /api/v1/periods/{period}/correct": _post(f"periods/{MONTH}/correct", account="{account}"),
    "POST /api/v1/adjustments": _post("adjustments", tenant="{tenant}", amount="-1.50", reason="walked"),
    "POST /api/v1/statements/{number}/void": _post("statements/{statement}/void", reason="walked"),
    "POST /api/v1/rate": _post("rate"),
    "GET /api/v1/audit": _get("audit"),
    "GET /api/v1/quality": _get("quality", "quality?days=30"),
    "GET /api/v1/verify/{period}": _get(f"verify/{MONTH}"),
    "GET /api/v1/explain/{line}": _get("explain/{line}"),
    "GET /api/v1/explain": _get(f"explain?tenant={{tenant}}&day={DAY}"),
    "GET /api/v1/quote": _get(
        "quote?model={model}&core_percent=50&hours=2",
        "quote?model={model}&mig=1g.10gb&hours=2&card_mib=81920",
        "quote?model={model}&mem_mib=4000&hours=2",
        "quote?model={model}&core_percent=50&hours=2&tenant={tenant}",
        "quote?model={model}&core_percent=50&hours=2&account={account}",
    ),
    "GET /api/v1/exports/{period}": _get(*_EXPORTS),
    "GET /api/v1/reporter": _get("reporter"),
    "POST /api/v1/facts": _facts,
}
"""By method and path of the OpenAPI description."""

BESIDE = ("/healthz", "/readyz", "/metrics", "/api/v1/openapi.json", "/", "/docs", "/api/v1/nowhere")
"""What answers, or does not, beside the described routes."""

SHAPE = {
    "with_prices",
    "dry_run",
    "from",
    "to",
    "window",
    "tz",
    "limit",
    "cursor",
    "before",
    "focus_version",
    "focus_dataset",
}
"""Query parameters that say when, how much and in which form: they name nothing that is anybody's."""
