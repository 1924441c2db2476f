"""Whatever a cost report is grouped by, its rows add up to the same: to what the lines themselves are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert
from sqlalchemy.orm import Session

from accounting.access.viewer import COMMAND_LINE, Viewer
from accounting.errors import InvalidError
from accounting.ledger.calendar import at_text, midnight_ms, parse_month
from accounting.ledger.rounding import EXACT
from accounting.periods.months import Periods
from accounting.reports.cost import CostReport, Idle, report_cost
from accounting.reports.grouping import COST_KEYS, Filters, parse_keys
from accounting.reports.spans import Span, instants_span, month_span, named_span
from accounting.store.database import Database
from accounting.store.models import LedgerLine
from accounting.tenants.registry import add_account
from accounting.tenants.tree import Kind, TenantTree, add_tenant

ZONE = "Europe/Berlin"
TREE: tuple[tuple[str, Kind], ...] = (
    ("acme", "organisation"),
    ("acme/vision", "team"),
    ("acme/vision/alpha", "project"),
    ("acme/vision/beta", "project"),
    ("acme/loner", "project"),
    ("globex", "organisation"),
    ("globex/ml", "team"),
)
PATHS = [path for path, _ in TREE] + ["acme/unmapped", "unassigned", "platform/idle"]
MONTH = month_span(parse_month("2026-10"))


@dataclass
class Books:
    """Two accounts in one zone, one in another, and a tree."""

    database: Database
    ids: dict[str, int]


@pytest.fixture
def books(database: Database) -> Books:
    with database.writing() as session:
        for code, currency, zone in (
            ("acme", "EUR", ZONE), ("globex", "USD", "Asia/Kathmandu"), ("platform", None, ZONE),
        ):  # fmt: skip
            kind = "platform" if code == "platform" else "tenant"
            add_account(
                session, code, kind=kind, currency=currency, time_zone=zone, grace_days=3,  # type: ignore[arg-type]
                by=COMMAND_LINE, now_ms=0,
            )  # fmt: skip
        for path, level in TREE:
            add_tenant(session, path, kind=level, by=COMMAND_LINE, now_ms=0)
        tree = TenantTree(session, now_ms=0)
        ids = {path: tree.at(path, _account(path)) for path in PATHS}
    return Books(database, ids)


def _account(path: str) -> str:
    root = path.partition("/")[0]
    return "acme" if root == "unassigned" else root


ZONES = {"acme": ZONE, "globex": "Asia/Kathmandu", "platform": ZONE}
CURRENCIES = {"acme": "EUR", "globex": "USD", "platform": None}


@st.composite
def lines(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Lines as any of the product's writers might leave them, of any size that fits."""
    found = []
    for number in range(draw(st.integers(0, 12))):
        path = draw(st.sampled_from(PATHS))
        account = _account(path)
        kind = draw(st.sampled_from(["usage", "energy", "idle", "distribution", "adjustment", "unallocated"]))
        is_signed = kind in {"distribution", "adjustment"}
        quantity = draw(st.integers(-(2**62) if is_signed else 0, 2**62))
        amount = draw(st.none() | st.decimals("-1e12", "1e12", places=17)) if CURRENCIES[account] else None
        found.append(
            {
                "path": path, "account": account, "kind": kind, "number": number,
                "sku": draw(st.sampled_from(["gpu-slice", "gpu-idle"])),
                "day": draw(st.integers(1, 31)),
                "cluster": draw(st.sampled_from("cd")), "node": draw(st.sampled_from("nm")),
                "device_uuid": draw(st.sampled_from(["GPU-1", "GPU-2"])),
                "model": draw(st.sampled_from(["Tesla T4", "H200", ""])),
                "namespace": draw(st.sampled_from(["", "a", "b"])),
                "pod": draw(st.sampled_from(["", "p", "q"])),
                "quantity": quantity, "amount": amount,
                "unit": "mj" if kind == "energy" else "ppm_ms",
            }
        )  # fmt: skip
    return found


def store(session: Session, books: Books, drawn: list[dict[str, Any]]) -> None:
    periods = Periods(session)
    rows = []
    for one in drawn:
        zone = ZONES[one["account"]]
        day_ms = midnight_ms(date(2026, 10, one["day"]), zone)
        rows.append(
            {
                "account": one["account"], "period_id": periods.at(one["account"], zone, day_ms).id,
                "tenant_id": books.ids[one["path"]], "kind": one["kind"], "sku": one["sku"],
                "resource_key": f"r{one['number']}", "day_ms": day_ms, "charge_from_ms": day_ms,
                "charge_to_ms": day_ms + 1, "cluster": one["cluster"], "node_uid": one["node"],
                "node": one["node"], "device_uuid": one["device_uuid"], "model": one["model"],
                "namespace": one["namespace"], "pod": one["pod"], "container": "",
                "own_quantity": one["quantity"], "quantity": one["quantity"],
                "held_not_running_quantity": 0, "degraded_quantity": 0, "unit": one["unit"],
                "currency": CURRENCIES[one["account"]], "amount": one["amount"], "revision": 0,
                "reason": "drawn",
            }
        )  # fmt: skip
    if rows:
        session.execute(insert(LedgerLine), rows)


class _UndoneError(Exception):
    pass


def undo() -> NoReturn:
    raise _UndoneError


def reported(
    books: Books, drawn: list[dict[str, Any]], keys: list[list[str]], idle: Idle = "billed", **filters: str
) -> list[CostReport]:
    """Reports over lines that are taken back afterwards."""
    found: list[CostReport] = []
    with suppress(_UndoneError), books.database.writing() as session:
        store(session, books, drawn)
        wanted = Filters(**filters)
        found += [
            report_cost(session, COMMAND_LINE, MONTH, group, filters=wanted, idle=idle) for group in keys
        ]
        undo()
    return found


def by_hand(drawn: list[dict[str, Any]]) -> dict[str, tuple[Decimal, int, int]]:
    """By currency: the amounts, the lines and the card time of usage, added one by one."""
    sums: dict[str, tuple[Decimal, int, int]] = {}
    for one in drawn:
        currency = CURRENCIES[one["account"]] or ""
        amount, count, usage = sums.get(currency, (Decimal(0), 0, 0))
        sums[currency] = (
            EXACT.add(amount, one["amount"] or Decimal(0)),
            count + 1,
            usage + (one["quantity"] if one["kind"] == "usage" else 0),
        )
    return sums


def rows_of(report: CostReport, *, totals: bool) -> dict[str, tuple[Decimal, int, int]]:
    sums: dict[str, tuple[Decimal, int, int]] = {}
    for row in report.totals if totals else report.rows:
        amount, count, usage = sums.get(row.currency or "", (Decimal(0), 0, 0))
        sums[row.currency or ""] = (
            EXACT.add(amount, row.amount or Decimal(0)),
            count + row.lines,
            usage + row.sums.charged_ppm_ms,
        )
    return sums


KEYS = st.lists(st.sampled_from(COST_KEYS), min_size=0, max_size=4, unique=True)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=25)
@given(drawn=lines(), keys=st.lists(KEYS, min_size=2, max_size=4))
def test_every_grouping_adds_up_to_the_lines(
    books: Books, drawn: list[dict[str, Any]], keys: list[list[str]]
) -> None:
    expected = by_hand(drawn)
    for report in reported(books, drawn, keys):
        assert rows_of(report, totals=False) == expected
        assert rows_of(report, totals=True) == expected
        groups = [(row.keys, row.currency) for row in report.rows]
        assert len(set(groups)) == len(groups)
        assert groups == sorted(groups, key=lambda one: (one[0], one[1] or ""))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=15)
@given(drawn=lines(), root=st.sampled_from(["acme", "acme/vision", "globex", "platform/idle"]))
def test_a_parent_is_its_children_and_itself(books: Books, drawn: list[dict[str, Any]], root: str) -> None:
    (whole,) = reported(books, drawn, [["tenant"]])
    (branch,) = reported(books, drawn, [[]], tenant=root)
    below = [row for row in whole.rows if f"{row.keys[0]}/".startswith(f"{root}/")]
    expected: dict[str, Decimal] = {}
    for row in below:
        expected[row.currency or ""] = EXACT.add(
            expected.get(row.currency or "", Decimal(0)), row.amount or 0
        )
    assert {row.currency or "": row.amount or Decimal(0) for row in branch.totals} == expected


def one_line(**fields: Any) -> dict[str, Any]:
    return {
        "path": "acme/vision/alpha", "account": "acme", "kind": "usage", "number": 0, "sku": "gpu-slice",
        "day": 5, "cluster": "c", "node": "n", "device_uuid": "GPU-1", "model": "Tesla T4", "namespace": "a",
        "pod": "p", "quantity": 7, "amount": Decimal("1.5"), "unit": "ppm_ms",
    } | fields  # fmt: skip


def test_every_level_of_the_tree_has_its_name(books: Books) -> None:
    drawn = [
        one_line(),
        one_line(number=1, path="acme/loner"),
        one_line(number=2, path="acme/vision"),
        one_line(number=3, path="acme/unmapped"),
        one_line(number=4, path="unassigned"),
    ]
    (report,) = reported(books, drawn, [["organisation", "team", "project"]])
    assert [row.keys for row in report.rows] == [
        ("", "", ""),
        ("acme", "", "acme/loner"),
        ("acme", "", "acme/unmapped"),
        ("acme", "acme/vision", ""),
        ("acme", "acme/vision", "acme/vision/alpha"),
    ]


def test_a_viewer_gets_the_same_groups_of_its_own_branch(books: Books) -> None:
    viewer = Viewer(name="token:a", role="tenant", tenant_path="acme/vision/alpha")
    with books.database.writing() as session:
        store(session, books, [one_line(), one_line(number=1, path="acme/loner")])
    scoped = books.database.seen_as(viewer.scope)
    with scoped.reading() as session:
        report = report_cost(session, viewer, MONTH, ["team", "pod"])
    assert [(row.keys, row.amount) for row in report.rows] == [(("acme/vision", "a/p"), Decimal("1.5"))]


@pytest.mark.parametrize(
    ("idle", "left"),
    [("billed", "111"), ("separate", "11"), ("excluded", "1"), ("distributed", "111")],
)
def test_idle_capacity_is_told_as_asked(books: Books, idle: Idle, left: str) -> None:
    drawn = [
        one_line(amount=Decimal(1)),
        one_line(number=1, kind="idle", amount=Decimal(10)),
        one_line(number=2, kind="distribution", amount=Decimal(100)),
    ]
    (report,) = reported(books, drawn, [[]], idle)
    assert [row.amount for row in report.totals] == [Decimal(left)]


@pytest.mark.parametrize("name", ["cluster", "namespace", "node", "model", "sku"])
def test_a_filter_lets_through_what_it_names(books: Books, name: str) -> None:
    drawn = [one_line(), one_line(number=1, **{name: "other"})]
    (report,) = reported(books, drawn, [[name]], **{name: "other"})  # type: ignore[arg-type]
    assert [row.keys for row in report.rows] == [("other",)]


def test_a_key_that_is_unknown_twice_or_too_many_is_refused() -> None:
    for texts in (["colour"], ["tenant", "tenant"], ["a,b"], [",".join(COST_KEYS)]):
        with pytest.raises(InvalidError):
            parse_keys(texts, COST_KEYS)
    assert parse_keys(["team,model", "day"], COST_KEYS) == ("team", "model", "day")


AT = 1_792_591_200_000
"""2026-10-21T14:00:00Z, a Wednesday."""


def spans() -> Iterator[tuple[Span, str, str, str]]:
    yield named_span("month", AT), "Europe/Berlin", "2026-09-30T22:00:00Z", "2026-10-21T14:00:00Z"
    yield named_span("last_month", AT), "Europe/Berlin", "2026-08-31T22:00:00Z", "2026-09-30T22:00:00Z"
    yield named_span("today", AT), "Asia/Kathmandu", "2026-10-20T18:15:00Z", "2026-10-21T14:00:00Z"
    yield named_span("yesterday", AT), "UTC", "2026-10-20T00:00:00Z", "2026-10-21T00:00:00Z"
    yield named_span("7d", AT), "UTC", "2026-10-14T00:00:00Z", "2026-10-21T14:00:00Z"
    yield named_span("7d", AT, "UTC"), "Europe/Berlin", "2026-10-14T00:00:00Z", "2026-10-21T14:00:00Z"
    yield instants_span("x", (0, 1)), "Europe/Berlin", "1970-01-01T00:00:00Z", "1970-01-01T00:00:00.001Z"


def test_named_windows_begin_at_local_midnights() -> None:
    for span, zone, start, end in spans():
        assert tuple(map(at_text, span.within(zone))) == (start, end), span.text
    for name in ("0d", "401d", "fortnight", "7D", ""):
        with pytest.raises(InvalidError, match="unknown"):
            named_span(name, AT)


def test_a_day_of_25_hours_is_one_day_back() -> None:
    # Clocks in Berlin went back on 25 October 2026.
    at_ms = 1_792_936_800_000 + 86_400_000
    start, _ = named_span("1d", at_ms).within("Europe/Berlin")
    assert start == midnight_ms(date(2026, 10, 25), "Europe/Berlin")
