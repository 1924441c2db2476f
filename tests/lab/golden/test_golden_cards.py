"""A card and a slice of the golden month hour by hour, with figures worked out from the month's comments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contract.ids import allocation_id
from lab.golden.month import A100

if TYPE_CHECKING:
    from tests.lab.golden.conftest import Accounting

HOUR = 3_600_000_000_000
"""A card-hour in ppm·ms."""
BURST = allocation_id("alpha", "00000000-0000-4000-8000-000000000002", "main", A100.uuid)
TWELFTH = {"from": "2026-10-12T00:00:00Z", "to": "2026-10-13T00:00:00Z"}


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
