"""Walking all pages while rows are added: every row that was there from the start comes exactly once."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from accounting.access.viewer import COMMAND_LINE
from accounting.facts.ingest import ingest
from accounting.facts.reading import Scope, read_lines
from accounting.ledger.calendar import parse_month
from accounting.ledger.policies import VALUES
from accounting.periods.close import close_period
from accounting.periods.rate import rate
from accounting.prices.book import set_price
from accounting.prices.policies import set_policy
from accounting.prices.versioning import Recording, Validity
from accounting.tenants.rules import Asked, add_rule
from contract.facts import AllocationFact, Fact, PresenceFact, canonical_bytes

if TYPE_CHECKING:
    from tests.accounting.api.conftest import Api

HOUR = 3_600_000
WINDOW = "from=2026-10-05T00:00:00Z&to=2026-10-06T00:00:00Z"

Make = Callable[..., Any]


class Walk:
    """A cluster to which a pod of its own tenant on its own card may be added at any time."""

    def __init__(self, api: Api, at: Callable[..., int], allocation: Make, presence: Make) -> None:
        self.api = api
        self._at, self._allocation, self._presence = at, allocation, presence
        api.now_ms = at("12:00", 6)
        self.token = api.token("operator")
        self._rules = 0

    def add(self, *names: str) -> None:
        start, end = self._at("09:00", 5), self._at("10:00", 5)
        facts: list[Fact] = []
        for name in names:
            where = {
                "cluster": "a",
                "device_uuid": f"GPU-{name}",
                "node": f"node-{name}",
                "model": f"M {name}",
            }
            held: AllocationFact = self._allocation(
                pod_uid=f"uid-{name}", pod=name, namespace=name, tenant_key=name, core_percent=100,
                bound_at_ms=start, started_at_ms=start, confirmed_at_ms=end, ended_at_ms=end,
                end_kind="observed", **where,
            )  # fmt: skip
            present: PresenceFact = self._presence(start, end, **where)
            facts += [held, present]
        lines = read_lines(b"\n".join(map(canonical_bytes, facts)), Scope("a"), now_ms=self.api.now_ms)
        with self.api.database.writing() as session:
            assert not ingest(session, lines, cluster="a", now_ms=self.api.now_ms).rejected
        rate(self.api.database, as_of_ms=self.api.now_ms, grace_ms=900_000)

    def add_versions(self) -> None:
        """A rule before and behind all others, and a policy."""
        with self.api.database.writing() as session:
            for priority in (1_000 + self._rules, 1_000 - self._rules):
                asked = Asked(priority, "acme", tenant_key=f"nobody-{self._rules}-{priority}")
                recording = Recording(COMMAND_LINE, 0, "again")
                add_rule(session, asked, Validity(0, None), recording)
            set_policy(
                session, kind="share", value=VALUES["share"][self._rules % 2], valid_from_ms=self._rules,
                by=COMMAND_LINE, now_ms=0,
            )  # fmt: skip
        self._rules += 1

    def page(self, path: str, cursor: str | None) -> dict[str, Any]:
        joint = "&" if "?" in path else "?"
        query = f"{path}{joint}limit=1" + ("" if cursor is None else f"&cursor={cursor}")
        answer = self.api.request("GET", f"/api/v1/{query}", token=self.token)
        assert answer.status_code == 200, answer.text
        document = answer.json()
        assert isinstance(document, dict)
        return document


@pytest.fixture
def walk(
    api: Api,
    at: Callable[..., int],
    allocation: Callable[..., AllocationFact],
    presence: Callable[..., PresenceFact],
) -> Walk:
    made = Walk(api, at, allocation, presence)
    made.add("d", "h", "m", "r")
    made.add_versions()
    made.add_versions()
    return made


ROUTES = {
    "usage": (f"usage?{WINDOW}", ("pod",)),
    "usage groups": (f"usage?{WINDOW}&group_by=tenant,model", ("tenant", "model")),
    "costs": ("costs?period=2026-10", ("tenant", "currency")),
    "costs by pod and day": ("costs?period=2026-10&group_by=pod,day", ("pod", "day", "currency")),
    "capacity": (f"capacity?{WINDOW}", ("device_uuid", "hour")),
    "allocations": (f"allocations?{WINDOW}", ("id",)),
    "stranded": (f"capacity/stranded?{WINDOW}", ("device_uuid",)),
    "tenants": ("tenants", ("path",)),
    "rules": ("tenants/rules", ("rule",)),
    "policies": ("policies", ("version",)),
    "explain": ("explain?tenant=acme&day=2026-10-05", ("tenant",)),
}


@pytest.mark.parametrize("name", ROUTES)
def test_every_old_row_comes_once_while_rows_are_added(walk: Walk, name: str) -> None:
    path, key = ROUTES[name]

    def keys(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        return [tuple(row[part] for part in key) for row in rows]

    old = keys(walk.api.request("GET", f"/api/v1/{path}", token=walk.token).json()["rows"])
    assert len(set(old)) == len(old) >= 3
    seen: list[tuple[Any, ...]] = []
    cursor: str | None = None
    # New rows fall before, between and behind what was read already.
    new = iter(["a1", "z1", "i1", "b2", "y2"])
    while True:
        page = walk.page(path, cursor)
        seen += keys(page["rows"])
        cursor = page["next"]
        if cursor is None:
            break
        added = next(new, None)
        if added is not None:
            walk.add(added)
            walk.add_versions()
    assert [seen.count(one) for one in old] == [1] * len(old)
    assert [one for one in seen if one in old] == old
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("name", ROUTES)
def test_a_cursor_of_another_list_or_of_nobody_is_refused(walk: Walk, name: str) -> None:
    path, _ = ROUTES[name]
    other = walk.page(path, None)["next"]
    joint = "&" if "?" in path else "?"
    # Base64 of: not JSON, a foreign key, a NUL, a number beyond all.
    for cursor in ("x", "W10", "WyJcdTAwMDAiXQ", "WzE4NDQ2NzQ0MDczNzA5NTUxNjE2XQ", other[:-2]):
        answer = walk.api.request("GET", f"/api/v1/{path}{joint}cursor={cursor}", token=walk.token)
        assert answer.status_code == 422, cursor


def test_totals_and_reconciliation_stand_on_every_page(walk: Walk) -> None:
    for path, _ in ROUTES.values():
        whole = walk.api.request("GET", f"/api/v1/{path}", token=walk.token).json()
        first = walk.page(path, None)
        assert first["totals"] == whole["totals"], path
        assert first["reconciliation"].keys() == whole["reconciliation"].keys(), path
        assert len(first["rows"]) == 1


def test_rows_come_as_csv_with_the_next_page_in_a_link(walk: Walk) -> None:
    for path, _ in ROUTES.values():
        joint = "&" if "?" in path else "?"
        answer = walk.api.request(
            "GET", f"/api/v1/{path}{joint}limit=1", token=walk.token, headers={"Accept": "text/csv"}
        )
        assert answer.headers["content-type"] == "text/csv; charset=utf-8"
        heading, row, end = answer.text.split("\r\n")
        assert (heading.count(",") > 0, bool(row), end) == (True, True, "")
        assert "cursor=" in answer.headers["link"]
    plain = walk.api.request(
        "GET", "/api/v1/tenants", token=walk.token, headers={"Accept": "application/json, text/csv;q=0.5"}
    )
    assert plain.headers["content-type"] == "application/json"


def test_a_closed_month_has_an_etag_and_an_open_one_has_none(walk: Walk) -> None:
    for path in ("costs?period=2026-10&tenant=acme", "statements/2026-10?tenant=acme/d"):
        assert "etag" not in walk.api.request("GET", f"/api/v1/{path}", token=walk.token).headers
    with walk.api.database.writing() as session:
        set_price(
            session, sku="gpu-slice", model="", currency="EUR", unit_price=Decimal(1), valid_from_ms=0,
            by=COMMAND_LINE, now_ms=0,
        )  # fmt: skip
    closing = walk.api.now_ms + 30 * 86_400_000
    walk.api.now_ms = closing
    closed = close_period(
        walk.api.database, "acme", parse_month("2026-10"), by=COMMAND_LINE, now_ms=closing,
        grace_ms=900_000, override_reason="test",
    )  # fmt: skip
    assert closed
    for path in ("costs?period=2026-10&tenant=acme", "statements/2026-10?tenant=acme/d"):
        first = walk.api.request("GET", f"/api/v1/{path}", token=walk.token)
        etag = first.headers["etag"]
        again = walk.api.request(
            "GET", f"/api/v1/{path}", token=walk.token, headers={"If-None-Match": f'"x", W/{etag}'}
        )
        assert (again.status_code, again.content) == (304, b"")
        rate(walk.api.database, as_of_ms=closing + HOUR, grace_ms=900_000)
        assert walk.api.request("GET", f"/api/v1/{path}", token=walk.token).headers["etag"] == etag
        as_csv = walk.api.request("GET", f"/api/v1/{path}", token=walk.token, headers={"Accept": "text/csv"})
        assert as_csv.headers["etag"] != etag


def test_a_tenants_token_asks_for_its_own_statement_without_naming_itself(walk: Walk) -> None:
    token = walk.api.token("tenant", tenant_path="acme/d")
    found = walk.api.request("GET", "/api/v1/statements/2026-10", token=token).json()
    assert (found["tenant"], len(found["lines"])) == ("acme/d", 1)
    assert [group["model"] for group in found["by_tenant_and_model"]] == ["M d"]
    assert walk.api.request("GET", "/api/v1/statements/2026-10?account=acme", token=token).status_code == 404
    whole = walk.api.token("tenant", tenant_path="acme")
    found = walk.api.request("GET", "/api/v1/statements/2026-10?account=acme", token=whole).json()
    assert [group["tenant"] for group in found["by_tenant_and_model"]] == [
        "acme/d",
        "acme/h",
        "acme/m",
        "acme/r",
    ]
    assert walk.api.request("GET", "/api/v1/statements/2026-10", token=walk.token).status_code == 422


def test_usage_is_refused_by_use_where_nothing_was_measured(walk: Walk) -> None:
    answer = walk.api.request("GET", f"/api/v1/usage?{WINDOW}&basis=usage", token=walk.token)
    assert answer.status_code == 422
    assert "no usage was measured" in answer.json()["detail"]


def test_capacity_groups_close_and_add_up(walk: Walk) -> None:
    whole = walk.api.request("GET", f"/api/v1/capacity?{WINDOW}", token=walk.token).json()
    for keys in ("cluster", "node,model", "day", "device,day"):
        found = walk.api.request(
            "GET", f"/api/v1/capacity?{WINDOW}&group_by={keys}&tz=Asia/Kathmandu", token=walk.token
        ).json()
        assert found["totals"] == whole["totals"]
        for name in ("present_ppm_ms", "charged_ppm_ms", "idle_ppm_ms", "down_ppm_ms"):
            assert sum(row[name] for row in found["rows"]) == whole["totals"][name], keys


def test_the_lines_of_a_statement_come_in_pages_too(walk: Walk) -> None:
    whole = walk.page("statements/2026-10?tenant=acme", None)
    asked = walk.api.request("GET", "/api/v1/statements/2026-10?tenant=acme", token=walk.token).json()
    assert (len(whole["lines"]), whole["total"]) == (1, asked["total"])
    seen = [whole["lines"][0]["pod"]]
    cursor = whole["next"]
    while cursor is not None:
        # All is rated again meanwhile, so every line gets another number.
        walk.add_versions()
        rate(walk.api.database, as_of_ms=walk.api.now_ms, grace_ms=900_000)
        page = walk.page("statements/2026-10?tenant=acme", cursor)
        seen += [line["pod"] for line in page["lines"]]
        cursor = page["next"]
    assert seen == ["d", "h", "m", "r"]
