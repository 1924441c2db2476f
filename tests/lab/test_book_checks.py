"""The checks of the books: what accounting answers must be right to the unit, or the case fails."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

from lab.bookkeeping import Document, months_between
from lab.checks import books
from lab.checks.check import Case, Check
from lab.checks.evidence import BookEvidence, Evidence, Isolation
from lab.pages import Album, Answer, parse_page
from lab.scenarios.demo import demo

CASE = Case("a case")
CARD_S = 10**9
NOT_FOUND = '{"title":"not found","detail":"there is no tenant \\"NAME\\""}'
PAGE = (
    "# TYPE slicemeter_slice_memory_allocated_bytes gauge\n"
    'slicemeter_slice_memory_allocated_bytes{{pod="share-a",tenant="{tenant}"}} 1\n'
)


def line(pod: str, charged_ms: int, amount: str, shown: str) -> Document:
    return {"pod": pod, "charged_ppm_ms": charged_ms, "amount": amount, "shown": shown, "use": None}


def statement_of_tenant_a() -> Document:
    # 0.3 of a card for 970, 662 and 272 s, at 1,440 a card-hour, 0.4 a second: 116.4, 79.44 and 32.64.
    return {
        "currency": "EUR",
        "lines": [
            line("share-a", 291 * CARD_S, "116.4", "116.40"),
            line("share-b", 1986 * CARD_S // 10, "79.44", "79.44"),
            line("share-c", 816 * CARD_S // 10, "32.64", "32.64"),
        ],
        "rounding": "0.00",
        "total": "228.48",
        "amount": "228.48",
        "totals": {"charged_ppm_ms": 5712 * CARD_S // 10},
    }


def hour(present: int = 100, charged: int = 60, idle: int = 40, down: int = 0) -> Document:
    cluster = demo(ends=True).cluster("lab-a")
    return {
        "cluster": "lab-a",
        "node_uid": cluster.node_uid,
        "device_uuid": cluster.cards[0].uuid,
        "present_ppm_ms": present,
        "charged_ppm_ms": charged,
        "idle_ppm_ms": idle,
        "down_ppm_ms": down,
    }


def isolation(answers: dict[str, Answer] | None = None) -> Isolation:
    mine = {
        "/api/v1/tenants": Answer(200, "acme/tenant-a"),
        "/api/v1/allocations?x": Answer(200, json.dumps({"rows": [1, 2, 3], "totals": {"allocations": 3}})),
    }
    return Isolation(
        own="lab-a",
        other="lab-b",
        answers=mine if answers is None else mine | answers,
        of_the_other=Answer(404, NOT_FOUND.replace("NAME", "globex/tenant-b")),
        of_nobody=Answer(404, NOT_FOUND.replace("NAME", "nobody/no-such-tenant")),
        whole_cards=Answer(403, ""),
        without_token=Answer(401, ""),
    )


def evidence(
    statement: Document | None = None, hours: list[Document] | None = None, apart: Isolation | None = None
) -> Evidence:
    found = BookEvidence(
        statements={"lab-a": [] if statement is None else [statement], "lab-b": [], "lab-c": []},
        allocations=[{"end": "observed"}] * 16,
        capacity={"rows": [hour()] if hours is None else hours},
        verified=[],
        isolation=isolation() if apart is None else apart,
    )
    steady = {
        f"node lab-{code}": parse_page(PAGE.format(tenant=f"tenant-{code}"), 0.0) for code in ("a", "b")
    }
    return Evidence(demo(ends=True), 1_790_000_000, Album(), steady, {}, found)


def off(checks: list[Check]) -> list[str]:
    return [check.figure for check in checks if not check.is_right]


def test_a_true_statement_passes_in_card_time_in_money_and_in_cents() -> None:
    checks = list(books.tenant_owes(evidence(statement_of_tenant_a()), CASE, "lab-a"))

    assert off(checks) == []
    assert [check.expected for check in checks] == ["571.20 card-s", "228.48 EUR", "228.48 EUR"]


def test_one_second_too_many_fails_and_so_does_a_cent() -> None:
    late = statement_of_tenant_a()
    late["totals"]["charged_ppm_ms"] += 3 * CARD_S // 10
    dear = statement_of_tenant_a() | {"total": "228.49"}

    assert off(list(books.tenant_owes(evidence(late), CASE, "lab-a"))) == ["tenant-a: charged"]
    assert off(list(books.tenant_owes(evidence(dear), CASE, "lab-a"))) == ["tenant-a: statement"]


def test_a_statement_that_never_came_is_no_pass() -> None:
    assert len(off(list(books.tenant_owes(evidence(), CASE, "lab-a")))) == 2


def test_lines_that_do_not_add_up_are_found() -> None:
    wrong = statement_of_tenant_a() | {"rounding": "0.01"}
    figure = "statements whose lines and rounding are not the total"

    assert figure not in off(list(books.books_close(evidence(statement_of_tenant_a()), CASE)))
    assert figure in off(list(books.books_close(evidence(wrong), CASE)))


def test_an_hour_that_is_open_by_one_unit_is_found() -> None:
    figure = "device-hours where charged + idle + down is not present"

    assert figure not in off(list(books.books_close(evidence(), CASE)))
    assert figure in off(list(books.books_close(evidence(hours=[hour(idle=41)]), CASE)))


def test_a_run_across_the_first_of_a_month_has_two_statements_for_a_tenant() -> None:
    # Midnight in Berlin on 1 December 2026 is 23:00 UTC; Unix second 1,796,079,600.
    assert months_between(1_796_079_000, 1_796_079_600, "Europe/Berlin") == ["2026-11"]
    assert months_between(1_796_079_000, 1_796_079_601, "Europe/Berlin") == ["2026-11", "2026-12"]
    assert months_between(1_796_079_600, 1_796_079_700, "Europe/Berlin") == ["2026-12"]


def test_a_bypassing_pod_on_the_statement_is_found() -> None:
    billed = copy.deepcopy(statement_of_tenant_a())
    billed["lines"].append(line("bypass", CARD_S, "0.0007", "0.00"))

    assert off(list(books.costs_nothing(evidence(statement_of_tenant_a()), CASE, "lab-a", "bypass"))) == []
    assert off(list(books.costs_nothing(evidence(billed), CASE, "lab-a", "bypass"))) != []


def test_tenants_that_are_apart_pass() -> None:
    assert off(list(books.tenants_are_apart(evidence(), CASE))) == []


def test_a_word_a_count_or_a_telling_refusal_about_the_other_tenant_is_found() -> None:
    word = isolation({"/api/v1/usage": Answer(200, "… NVIDIA L4 …")})
    more = json.dumps({"rows": [1, 2, 3], "totals": {"allocations": 5}})
    count = isolation({"/api/v1/allocations?x": Answer(200, more)})
    telling = replace(isolation(), of_the_other=Answer(404, "you may not see globex/tenant-b"))
    silent = isolation({"/api/v1/usage": Answer(500, "")})

    def found(apart: Isolation) -> list[str]:
        return off(list(books.tenants_are_apart(evidence(apart=apart), CASE)))

    assert found(word) == ["words about the other tenant"]
    assert found(count) == ["slices it can count"]
    assert found(telling) == ["refused as if it did not exist"]
    assert found(silent) == ["answers to the tenant's own questions"]
