"""The pages over the golden month, and what their cards and slices rest on: figures worked out by hand."""

from __future__ import annotations

from collections.abc import Iterator
from html import unescape
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from contract.ids import allocation_id
from lab.golden.month import A100, MONTH
from tests.accounting.web.page_checks import Page

if TYPE_CHECKING:
    from tests.lab.golden.conftest import Accounting

BURST = allocation_id("alpha", "00000000-0000-4000-8000-000000000002", "main", A100.uuid)
HOUR = 3_600_000_000_000
"""A card-hour in ppm·ms."""
TWELFTH = {"from": "2026-10-12T00:00:00Z", "to": "2026-10-13T00:00:00Z"}


class Reader:
    """Somebody with a token, at a browser."""

    def __init__(self, billed: Accounting, role: str, tenant: str | None = None) -> None:
        headers = {"Authorization": f"Bearer {billed.token(role, tenant)}", "Accept": "text/html"}
        self._client = httpx.Client(base_url=billed.address, headers=headers, timeout=60)

    def get(self, path: str) -> httpx.Response:
        return self._client.get(path)

    def page(self, path: str) -> Page:
        answer = self.get(path)
        assert answer.status_code == 200, (path, answer.text)
        assert "unsafe-inline" not in answer.headers["content-security-policy"]
        page = Page(answer.text)
        assert page.faults == [], path
        return page

    def close(self) -> None:
        self._client.close()


@pytest.fixture
def operator(billed: Accounting) -> Iterator[Reader]:
    made = Reader(billed, "operator")
    yield made
    made.close()


@pytest.fixture
def green(billed: Accounting) -> Iterator[Reader]:
    made = Reader(billed, "tenant", "acme/green")
    yield made
    made.close()


def test_the_overview_says_what_each_tenant_spent_the_costliest_first(operator: Reader) -> None:
    words = operator.page(f"/ui/?period={MONTH}").words
    # red 372 h of half the A100 less the over-booked half day, and an L4 for 240 h of 0.4: 1080.30 in all.
    for tenant, amount in (("acme/red", "1,080.30"), ("acme/green", "54.01"), ("acme/blue", "48.40")):
        assert f"{amount} EUR" in words
        assert tenant in words
    spend = words[words.index("Spend by tenant") :]
    assert spend.index("acme/red") < spend.index("acme/green") < spend.index("acme/blue")
    assert "lab/red 186.2500 – showback" in words  # a quarter of a T4 for 745 hours, in no currency


def test_a_tenants_page_is_its_statement(operator: Reader, green: Reader) -> None:
    for reader in (operator, green):
        words = reader.page(f"/ui/tenant?tenant=acme/green&period={MONTH}").words
        assert "Total, EUR 54.01 EUR" in words
        # 12 hours beside red: 8.4 of own share, 7 charged, at 2.40.
        assert "acme/green NVIDIA A100-SXM4-80GB 7.0000 – 16.80 EUR" in words
    statement = green.page(f"/ui/statement?tenant=acme/green&period={MONTH}").words
    assert "54.01 EUR , of it 0.00 EUR rounding" in statement


def test_why_the_fourteenth_was_higher_is_said_in_two_clicks(operator: Reader) -> None:
    month = operator.page(f"/ui/tenant?tenant=acme&period={MONTH}")
    (day,) = [one for one in month.links if "day=2026-10-14" in one]
    page = operator.page(day)
    # Half an L4 from midnight UTC, which is 02:00 in Berlin: 22 hours at 0.5 and 0.80.
    assert "37.60 EUR , 8.80 EUR more than the day before" in page.words
    assert "green/serve acme/green new that day – 11.0000 – 8.80 EUR +8.80 EUR" in page.words
    line = next(one for one in page.links if one.startswith("/ui/line?"))
    assert "11.0000 card-hours × 0.80 EUR = 8.80 EUR" in operator.page(line).words


def test_every_line_of_a_statement_leads_to_steps_that_add_up(green: Reader) -> None:
    statement = green.page(f"/ui/statement?tenant=acme/green&period={MONTH}")
    lines = [one for one in dict.fromkeys(statement.links) if one.startswith("/ui/line?")]
    # burst, quick, edge, and serve on six days of Berlin: on the 18th its card was down all day.
    assert len(lines) == 9
    explained = [green.page(one).words for one in lines]
    assert all("which is the line" in words for words in explained)
    (burst,) = [words for words in explained if "green/burst" in words]
    assert "own share 8.4000 − sharing discount 1.4000 = 7.0000 card-hours × 2.40 EUR = 16.80 EUR" in burst
    assert "1 other 0.4167" in burst
    assert "red/train" not in burst
    assert "acme/red" not in burst


def test_a_card_page_closes_hour_by_hour_and_names_no_neighbour_to_a_tenant(
    operator: Reader, green: Reader
) -> None:
    path = f"/ui/card?cluster=alpha&device={A100.uuid}&day=2026-10-12"
    whole = operator.page(path).words
    assert "charged 18.0000 + idle 6.0000 + down 0.0000 = 24.0000 hours of the card" in whole
    assert "06:00 0.4167 0.5833 – 0.0000 0.0000 1.0000" in whole
    mine = green.get(path).text
    words = Page(mine).words
    assert "charged 12.0000 + idle 0.0000 + down 0.0000 = 12.0000 hours that you shared in" in words
    assert "06:00 0.5833 0.4167 (1) 0.0000 0.0000 1.0000" in words
    assert "red/train" not in mine
    assert "acme/red" not in mine


def test_a_slice_page_shows_what_was_held_and_used(green: Reader) -> None:
    words = green.page(f"/ui/slice?cluster=alpha&id={BURST}&period={MONTH}").words
    assert "SM hours used 7.2000" in words  # 60 % of 12 hours
    assert "Charged, card-hours 7.0000 own share 8.4000" in words
    assert "2026-10-12 06:00: 58.3 % of the card charged, 60.0 % SM time used" in words


def test_waste_names_the_hour_that_was_held_before_anything_ran(operator: Reader) -> None:
    words = operator.page(f"/ui/waste?tenant=acme/blue&period={MONTH}").words
    assert "blue/whole · main acme/blue, NVIDIA L4 13,568 MiB 48.00 h 1.0000" in words


@pytest.mark.parametrize(
    "path",
    [
        "tenant?tenant=acme/red",
        "tenant?tenant=acme",
        "statement?tenant=lab/red",
        "day?day=2026-10-12&tenant=acme/red",
        "slices?tenant=acme/blue",
        "slices?account=lab",
        "waste?tenant=acme/red",
        f"card?cluster=beta&device={A100.uuid}&day=2026-10-05",
        f"slice?cluster=gamma&id={BURST}",
        "line?line=999999",
    ],
)
def test_what_is_anothers_is_a_page_that_says_that_it_is_not_there(green: Reader, path: str) -> None:
    answer = green.get(f"/ui/{path}")
    assert answer.status_code == 404
    assert Page(answer.text).faults == []


@pytest.mark.slow
def test_every_link_of_every_page_leads_somewhere(operator: Reader, green: Reader) -> None:
    for reader, others in ((operator, ()), (green, ("acme/red", "acme/blue", "red/train", "lab/"))):
        waiting, seen, kinds = ["/ui/"], set[str](), dict[str, int]()
        while waiting:
            path = waiting.pop(0)
            kind = path.partition("?")[0]
            # Of each kind of page some are enough: they are drawn by one template. A PDF takes long.
            enough = 2 if path.startswith("/ui/") else 1
            if path in seen or kinds.get(kind, 0) >= enough or "format=pdf" in path:
                continue
            seen.add(path)
            kinds[kind] = kinds.get(kind, 0) + 1
            answer = reader.get(path)
            assert answer.status_code == 200, path
            if path.startswith("/ui/"):
                page = Page(answer.text)
                assert page.faults == [], path
                assert not [name for name in others if name in unescape(answer.text)], path
                waiting += [one for one in page.links if one.startswith("/")]
        walked = {kind.removeprefix("/ui/") for kind in kinds if kind.startswith("/ui/")}
        assert {"tenant", "day", "line", "slice", "card", "statement", "statements", "waste"} <= walked
        assert ("tenancy" in walked) == (reader is operator)


def card(billed: Accounting, token: str, **query: str) -> Any:
    asked = {"cluster": "alpha", "device": A100.uuid, **TWELFTH, **query}
    answer = billed.get("/api/v1/capacity/card", token, **asked)
    return answer.json() if answer.status_code == 200 else answer.status_code


def test_an_overbooked_hour_is_divided_by_the_shares_and_nothing_is_idle(billed: Accounting) -> None:
    document = card(billed, billed.token("operator"))
    assert len(document["rows"]) == 24
    alone, shared = document["rows"][0], document["rows"][6]
    # Red holds 0.5 of the card alone, then beside green's 0.7: 5/12 and 7/12 of every hour.
    assert [(one["tenant"], one["charged_ppm_ms"]) for one in alone["slices"]] == [("acme/red", HOUR // 2)]
    assert (alone["idle_ppm_ms"], alone["down_ppm_ms"]) == (HOUR // 2, 0)
    charged = {one["tenant"]: one["charged_ppm_ms"] for one in shared["slices"]}
    assert charged == {"acme/red": HOUR * 5 // 12, "acme/green": HOUR * 7 // 12}
    assert (shared["idle_ppm_ms"], shared["others"]) == (0, {"slices": 0, "charged_ppm_ms": 0})
    assert document["totals"] == {
        "present_ppm_ms": 24 * HOUR,
        "charged_ppm_ms": 18 * HOUR,  # 12 hours of a half, 12 of all of it
        "idle_ppm_ms": 6 * HOUR,
        "down_ppm_ms": 0,
    }


def test_a_tenant_is_shown_its_own_stretches_and_others_as_one_sum(billed: Accounting) -> None:
    document = card(billed, billed.token("tenant", "acme/green"))
    assert [row["hour"][11:13] for row in document["rows"]] == [f"{hour:02d}" for hour in range(6, 18)]
    for row in document["rows"]:
        assert [one["tenant"] for one in row["slices"]] == ["acme/green"]
        assert row["others"] == {"slices": 1, "charged_ppm_ms": HOUR * 5 // 12}
    assert "red" not in str(document)
    assert document["whole_card"] is False


def test_a_card_that_a_tenant_held_nothing_of_is_as_one_that_is_not_there(billed: Accounting) -> None:
    blue = billed.token("tenant", "acme/blue")
    assert card(billed, blue) == 404
    assert card(billed, blue, device="GPU-nowhere") == 404
    assert card(billed, billed.token("operator"), cluster="gamma") == 404


def test_a_slice_is_told_hour_by_hour_with_what_was_measured(billed: Accounting) -> None:
    asked = {"cluster": "alpha", "id": str(BURST), **TWELFTH}
    document = billed.get("/api/v1/usage/slice", billed.token("tenant", "acme/green"), **asked).json()
    assert [row["from"][11:13] for row in document["rows"]] == [f"{hour:02d}" for hour in range(6, 18)]
    for row in document["rows"]:
        assert (row["held_ms"], row["own_ppm_ms"]) == (3_600_000, HOUR * 7 // 10)
        assert row["charged_ppm_ms"] == HOUR * 7 // 12
        assert row["use"]["sm_ppm_ms"] == HOUR * 6 // 10  # 60 % of the card's SM time
    whole = billed.get("/api/v1/usage/slice", billed.token("operator"), **asked, by="day").json()
    assert [row["charged_ppm_ms"] for row in whole["rows"]] == [12 * HOUR * 7 // 12]
    for reader in ("acme/red", "lab/red"):
        answer = billed.get("/api/v1/usage/slice", billed.token("tenant", reader), **asked)
        assert answer.status_code == 404


def test_a_slice_on_a_down_card_is_charged_nothing_while_it_is_held(billed: Accounting) -> None:
    card_uuid = "GPU-00000000-0000-0000-0000-000000000003"
    serve = allocation_id("alpha", "00000000-0000-4000-8000-000000000004", "main", card_uuid)
    window = {"from": "2026-10-17T00:00:00Z", "to": "2026-10-18T00:00:00Z"}
    asked = {"cluster": "alpha", "id": str(serve), **window}
    document = billed.get("/api/v1/usage/slice", billed.token("operator"), **asked).json()
    assert document["totals"]["held_ms"] == 24 * 3_600_000
    # The node lived until 01:00: one hour of half a card is charged, the rest of the day it was down.
    assert document["totals"]["charged_ppm_ms"] == HOUR // 2
    rows = card(billed, billed.token("operator"), device=card_uuid, **window)["rows"]
    assert all(row["charged_ppm_ms"] + row["idle_ppm_ms"] + row["down_ppm_ms"] == HOUR for row in rows)
    assert rows[12]["down_ppm_ms"] == HOUR
