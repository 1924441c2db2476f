"""Exports of closed months: the same bytes for ever, on either database, in any order of telling."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from accounting.access.viewer import COMMAND_LINE
from accounting.focus.details import DetailTotals
from accounting.focus.lint import Linter
from accounting.periods.issuing import void
from accounting.store.database import Database
from contract.facts import AllocationFact, Fact, PresenceFact, SliceUsageFact
from contract.ids import TenantKey
from tests.accounting.conftest import _copied_file
from tests.accounting.exports.files import everything, exported, rows, total
from tests.accounting.periods.conftest import Ledger as Books

if TYPE_CHECKING:
    from tests.accounting.periods.conftest import Ledger

At = Callable[..., int]
Allocation = Callable[..., AllocationFact]
Presence = Callable[..., PresenceFact]
Usage = Callable[..., SliceUsageFact]

DAY = 86_400_000


@pytest.fixture
def november(at: At) -> int:
    """4 November 2026, 23:00 UTC: the close grace of October is over."""
    return at("23:00", 31) + 4 * DAY


@pytest.fixture
def closed(october: Ledger, november: int) -> Ledger:
    """October closed in both accounts: 4.50 EUR for the team, and as much idle."""
    october.close("acme", now_ms=november)
    october.close("platform", now_ms=november)
    return october


def late(at: At, allocation: Allocation) -> AllocationFact:
    """A quarter of the same card from 10:00 to 12:00: 2 h × 0.25 × 3.00 = 1.50."""
    return allocation(
        pod_uid="late", pod="late", mem_mib=3_840, core_percent=0, bound_at_ms=at("10:00", 5),
        confirmed_at_ms=at("12:00", 5), ended_at_ms=at("12:00", 5), end_kind="observed",
    )  # fmt: skip


def test_a_closed_month_is_the_same_bytes_after_corrections_adjustments_and_new_prices(
    closed: Ledger, at: At, allocation: Allocation, november: int
) -> None:
    before = everything(closed)
    closed.send([late(at, allocation)], now_ms=november)
    closed.price("5.00", reason="mistyped")
    closed.rate(november)
    closed.correct("acme", now_ms=november)
    closed.correct("platform", now_ms=november)
    closed.adjust("acme/team", "-1.00", "an outage", now_ms=november)
    closed.rate(november + DAY)
    assert everything(closed) == before


def test_a_correction_is_a_charge_of_the_open_month_over_the_closed_ones_time(
    closed: Ledger, at: At, allocation: Allocation, november: int
) -> None:
    closed.send([late(at, allocation)], now_ms=november)
    closed.correct("acme", now_ms=november, reason="the outbox came late")
    (row,) = rows(exported(closed, "focus", month="2026-11"))
    expected = {
        "ChargeCategory": "Usage",
        "ChargeClass": "Correction",
        "ChargePeriodStart": "2026-10-05T10:00:00Z",
        "ChargePeriodEnd": "2026-10-05T12:00:00Z",
        "BillingPeriodStart": "2026-10-31T23:00:00Z",
        "InvoiceId": "SM-acme-2026-11-provisional",
        "PricingQuantity": "0.5",
        "BilledCost": "1.5",
        "x_CorrectsPeriod": "2026-10",
        "x_UsageRevision": "1",
    }
    assert {name: row[name] for name in expected} == expected
    assert "the outbox came late" in row["ChargeDescription"]


def test_a_correction_from_one_price_to_another_has_a_cost_and_no_price(
    closed: Ledger, november: int
) -> None:
    closed.price("5.00", reason="mistyped")
    closed.correct("acme", now_ms=november, with_versions=True)
    (row,) = rows(exported(closed, "focus", month="2026-11"))
    # 1.5 card-hours at 2.00 more.
    assert (row["BilledCost"], row["ListCost"]) == ("3.0", "3.0")
    assert (row["SkuId"], row["SkuPriceId"], row["ListUnitPrice"], row["PricingQuantity"]) == (
        "gpu-slice:tesla-t4", "", "", "",
    )  # fmt: skip


def test_a_closed_month_bears_its_statements_number_and_total(closed: Ledger) -> None:
    charges = rows(exported(closed, "focus"))
    assert {row["InvoiceId"] for row in charges} == {"SM-000001"}
    assert total(charges) == Decimal("4.50")
    (period,) = rows(exported(closed, "focus", dataset="billing-period"))
    assert (period["BillingPeriodStatus"], period["BillingPeriodLastUpdated"]) == (
        "Closed", "2026-11-04T23:00:00Z",
    )  # fmt: skip
    (detail,) = rows(exported(closed, "focus", dataset="invoice-detail"))
    assert (detail["InvoiceIssueStatus"], detail["InvoiceIssueDate"], detail["BilledCost"]) == (
        "Issued", "2026-11-04T23:00:00Z", "4.5",
    )  # fmt: skip


def voided(ledger: Ledger, *, reissue: bool, now_ms: int) -> None:
    with ledger.database.writing() as session:
        void(session, "SM-000001", reason="address", reissue=reissue, by=COMMAND_LINE, now_ms=now_ms)


def documents(ledger: Ledger) -> list[tuple[str, str, str, str]]:
    return [
        (row["InvoiceId"], row["InvoiceIssueStatus"], row["ReferenceInvoiceId"], row["BilledCost"])
        for row in rows(exported(ledger, "focus", dataset="invoice-detail"))
    ]


def test_a_void_statement_without_another_is_credited_to_nothing(closed: Ledger, november: int) -> None:
    voided(closed, reissue=False, now_ms=november)
    charges = rows(exported(closed, "focus"))
    assert [(row["InvoiceId"], row["ChargeCategory"], row["BilledCost"]) for row in charges] == [
        ("SM-000001", "Usage", "4.5"),
        ("SM-000003", "Credit", "-4.5"),
    ]
    assert documents(closed) == [
        ("SM-000001", "Voided", "SM-000001", "4.5"),
        ("SM-000003", "Issued", "SM-000001", "-4.5"),
    ]


def test_a_reissued_statement_gives_its_charges_its_new_number(closed: Ledger, november: int) -> None:
    voided(closed, reissue=True, now_ms=november)
    charges = rows(exported(closed, "focus"))
    assert [(row["InvoiceId"], row["BilledCost"]) for row in charges] == [("SM-000004", "4.5")]
    assert documents(closed) == [
        ("SM-000001", "Voided", "SM-000001", "4.5"),
        ("SM-000003", "Issued", "SM-000001", "-4.5"),
        ("SM-000004", "Issued", "SM-000004", "4.5"),
    ]


@pytest.mark.parametrize("reissue", [False, True])
def test_charges_always_add_up_to_the_details_that_stand(
    closed: Ledger, november: int, *, reissue: bool
) -> None:
    voided(closed, reissue=reissue, now_ms=november)
    made = exported(closed, "focus", dataset="invoice-detail").decode()
    header, *told = csv.reader(io.StringIO(made, newline=""))
    details = DetailTotals(header)
    assert list(details.through(told)) == told
    charges = list(csv.reader(io.StringIO(exported(closed, "focus").decode(), newline="")))
    with Linter(charges[0], "cost-and-usage", "1.4", details.totals()) as linter:
        found = [one for cells in charges[1:] for one in linter.row(cells)] + list(linter.finish())
    assert found == []


NAMES = ("a-b", "a.b", "ab", "a0", "b", "a-b-c")
"""Languages sort these in other orders than bytes do."""


def fill(
    database: Database, at: At, allocation: Allocation, presence: Presence, usage: Usage, *, is_reversed: bool
) -> Books:
    """A closed October with a dozen slices, measured use, an adjustment and a void statement."""
    ledger = Books(database)
    ledger.account("acme", zone="Europe/Berlin")
    ledger.account("platform", "platform", zone="Europe/Berlin")
    ledger.cluster("c")
    ledger.price("3.00")
    facts: list[Fact] = [presence(at("00:00", 5), at("12:00", 6))]
    for number, name in enumerate(NAMES):
        facts.append(
            allocation(
                pod_uid=f"pod-{number}", pod=name, namespace=f"ns-{name}", tenant_key=TenantKey(name),
                core_percent=7, mem_mib=100, bound_at_ms=at("01:00", 5) + number * 1_234,
                confirmed_at_ms=at("10:00", 6), ended_at_ms=at("10:00", 6), end_kind="observed",
            )
        )  # fmt: skip
        hour_ms = at("02:00", 5)
        facts.append(
            usage(
                pod_uid=f"pod-{number}", hour_ms=hour_ms, from_ms=hour_ms, to_ms=hour_ms + 3_600_000,
                covered_ms=3_600_000, sm_ppm_ms=1_000 + number, mem_peak_mib=90,
            )
        )  # fmt: skip
    told: Sequence[Fact] = facts[::-1] if is_reversed else facts
    for fact in told:
        ledger.send([fact], now_ms=at("12:00", 6))
    ledger.rate(at("12:00", 6))
    ledger.adjust("acme/ab", "-0.37", "an outage", now_ms=at("12:00", 6))
    closed_ms = at("23:00", 31) + 4 * DAY
    ledger.close("acme", now_ms=closed_ms)
    ledger.close("platform", now_ms=closed_ms)
    voided(ledger, reissue=True, now_ms=closed_ms + DAY)
    return ledger


def test_the_same_ledger_is_the_same_bytes_on_either_database_and_in_any_order(  # noqa: PLR0917 - fixtures
    new_books: Callable[[], AbstractContextManager[Database]],
    migrated_file: Path,
    at: At,
    allocation: Allocation,
    presence: Presence,
    slice_usage: Usage,
) -> None:
    with new_books() as here, _copied_file(migrated_file) as there:
        one = fill(here, at, allocation, presence, slice_usage, is_reversed=True)
        other = fill(there, at, allocation, presence, slice_usage, is_reversed=False)
        mine, theirs = everything(one), everything(other)
        assert mine.keys() == theirs.keys()
        assert [name for name in mine if mine[name] != theirs[name]] == []
        measured = [row for row in rows(mine["acme", "csv"]) if row["sm_ppm_ms"]]
        assert sorted(int(row["sm_ppm_ms"]) for row in measured) == [1_000, 1_001, 1_002, 1_003, 1_004, 1_005]
