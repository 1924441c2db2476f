"""The statement as a document: the same bytes twice, totals of the ledger, page numbers, no address."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from accounting.errors import InvalidError
from accounting.periods.coverage import Coverage
from accounting.periods.statement import Statement, StatementLine, Sums
from accounting.periods.use import Use
from accounting.reports.month_picture import month_picture
from accounting.reports.statement_basis import basis_of
from accounting.reports.statement_html import statement_html
from accounting.reports.statement_pdf import MAX_LINES, statement_pdf
from lab.golden.world import at

CARD_HOUR = 3_600_000_000_000

Make = Callable[..., Statement]


def a_use(sm_ppm_ms: int) -> Use:
    return Use(3_600_000, 0, sm_ppm_ms, 0, 100, 0, 0, 0, "nvml")


def a_line(day: int, hours: str, use: Use | None = None, **fields: Any) -> StatementLine:
    """A slice of an L4 for some card-hours of a day of October, at 2.00."""
    quantity = int(Decimal(hours) * CARD_HOUR)
    amount = (Decimal(hours) * 2).quantize(Decimal("0.01"))
    begins = at(f"2026-10-{day:02d}T00:00Z")
    known: dict[str, Any] = {
        "tenant": "acme/team", "day": f"2026-10-{day:02d}", "kind": "usage", "sku": "gpu-slice",
        "cluster": "c", "node": "gpu-1", "device_uuid": "GPU-1", "model": "NVIDIA L4", "namespace": "team",
        "pod": "train", "container": "main", "resource_key": "r", "charge_from_ms": begins,
        "charge_to_ms": begins + 3_600_000, "own_ppm_ms": quantity, "discount_ppm_ms": 0,
        "charged_ppm_ms": quantity, "held_not_running_ppm_ms": 0, "degraded_ppm_ms": 0,
        "unit_price": Decimal(2), "price_version": 7, "amount": amount, "shown": amount, "use": use,
    }  # fmt: skip
    return StatementLine(**(known | fields))


def a_statement(*lines: StatementLine, **fields: Any) -> Statement:
    charged = sum(line.charged_ppm_ms for line in lines)
    total = sum((line.amount or Decimal(0) for line in lines), Decimal("0.00"))
    known: dict[str, Any] = {
        "account": "acme", "tenant": "acme/team", "period": "2026-10", "time_zone": "UTC",
        "starts_at_ms": at("2026-10-01T00:00Z"), "ends_at_ms": at("2026-11-01T00:00Z"), "state": "closed",
        "as_of_ms": at("2026-11-04T00:00Z"), "currency": "EUR", "lines": lines,
        "sums": Sums(charged, 0, charged, 0, 0, 0), "amount": total, "rounding": Decimal("0.00"),
        "total": total, "unrated_models": (), "coverage": Coverage(98, 100), "use": None, "unallocated": (),
    }  # fmt: skip
    return Statement(**(known | fields))


@pytest.fixture
def pdf() -> Callable[[Statement], bytes]:
    try:
        import weasyprint  # noqa: F401, PLC0415 - it may not be there
    except (ImportError, OSError) as error:
        if os.environ.get("CI"):
            pytest.fail(f"PDF cannot be made: {error}")
        pytest.skip(f"WeasyPrint or Debian's libpango-1.0-0 and libpangoft2-1.0-0 are not there: {error}")
    return statement_pdf


def text_of(document: bytes, folder: Path) -> str:
    program = shutil.which("pdftotext")
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("pdftotext is not there: Debian's package poppler-utils")
        pytest.skip("pdftotext is not there: Debian's package poppler-utils")
    path = folder / "statement.pdf"
    path.write_bytes(document)
    done = subprocess.run([program, "-layout", str(path), "-"], capture_output=True, text=True, check=True)
    return done.stdout


def test_the_document_is_the_same_bytes_twice(pdf: Callable[[Statement], bytes]) -> None:
    statement = a_statement(a_line(1, "1.5", a_use(CARD_HOUR)), a_line(2, "2"))
    document = pdf(statement)
    assert document.startswith(b"%PDF-")
    assert pdf(statement) == document


def test_its_text_has_lines_total_versions_dispute_and_page_numbers(
    pdf: Callable[[Statement], bytes], tmp_path: Path
) -> None:
    statement = a_statement(
        a_line(1, "1.5", a_use(CARD_HOUR)),
        a_line(2, "2"),
        total=Decimal("1234.50"),
        rounding=Decimal("-0.01"),
    )
    text = text_of(pdf(statement), tmp_path)
    words = " ".join(text.split())
    assert "1,234.50 EUR" in words
    assert re.search(r"Rounding\s+-0\.01", text)
    assert re.search(r"Total\s+3\.5000\s+0\.0000\s+3\.5000\s+1,234\.50", text)
    assert re.search(r"train · main\s+c\s+NVIDIA L4\s+1\.5000\s+0\.0000\s+1\.5000\s+2\.00\s+3\.00", text)
    assert "not measured" in words  # the second line
    assert "gpu-slice NVIDIA L4: 2.00 EUR (version 7)" in words
    assert "98.00 % of the devices" in words
    assert "slicemeter accounting explain --tenant acme/team" in words
    pages = re.findall(r"page (\d+) of (\d+)", words)
    assert [int(number) for number, _ in pages] == list(range(1, int(pages[0][1]) + 1))


def test_a_long_statement_has_its_total_and_points_to_csv(
    pdf: Callable[[Statement], bytes], tmp_path: Path
) -> None:
    lines = [a_line(number % 28 + 1, "1") for number in range(MAX_LINES + 1)]
    words = " ".join(text_of(pdf(a_statement(*lines)), tmp_path).split())
    assert "1,001 lines, too many for paper; take them as CSV" in words
    assert "2,002.00 EUR" in words
    assert "train" not in words


def test_without_weasyprint_the_refusal_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "weasyprint", None)
    with pytest.raises(InvalidError, match=r"pip install 'slicemeter\[pdf\]'"):
        statement_pdf(a_statement())


def test_the_page_names_no_address_of_its_own() -> None:
    page = statement_html(a_statement(a_line(1, "1", pod='<img src="http://evil/">')))
    assert set(re.findall(r"https?://[^\s\"'<&]+", page)) <= {"http://evil/"}
    assert "<img" not in page


def test_bars_are_the_days_of_the_month_and_add_its_lines_up() -> None:
    picture = month_picture(
        a_statement(a_line(1, "6", a_use(3 * CARD_HOUR)), a_line(1, "6", pod="b"), a_line(31, "3"))
    )
    assert len(picture.bars) == 31
    assert picture.bars[0].text == "2026-10-01: 12 card-hours, 3 SM hours used"
    assert picture.bars[1].text == "2026-10-02: 0 card-hours, use not measured"
    assert picture.bars[30].text == "2026-10-31: 3 card-hours, use not measured"
    # The scale ends at 20: 154 pixels of it are the 20 card-hours.
    assert [line.label for line in picture.lines] == ["0", "10", "20"]
    assert (picture.bars[0].height, picture.bars[0].used_height) == (92.4, 23.1)
    assert (picture.bars[1].height, picture.bars[1].used_height) == (0, None)


def test_a_month_of_a_zone_has_its_own_days() -> None:
    berlin = a_statement(
        time_zone="Europe/Berlin", starts_at_ms=at("2026-09-30T22:00Z"), ends_at_ms=at("2026-10-31T23:00Z")
    )
    assert [bar.day for bar in month_picture(berlin).bars][::30] == ["2026-10-01", "2026-10-31"]


def test_the_basis_names_each_version_once_and_use_above_the_own_share_by_line() -> None:
    basis = basis_of(
        a_statement(
            a_line(1, "1", a_use(3 * CARD_HOUR)),  # two hours above its own share
            a_line(2, "2", a_use(CARD_HOUR)),  # an hour below: takes nothing from the day before
            a_line(3, "1", price_version=8, unit_price=Decimal("2.5"), policy_version=4),
        )
    )
    assert [(one.version, one.text, one.lines) for one in basis.prices] == [(7, "2.00", 2), (8, "2.50", 1)]
    assert (basis.policies, basis.has_default_policy) == ((4,), True)
    assert (basis.above_share_ppm_ms, basis.measured_lines, basis.slice_lines) == (2 * CARD_HOUR, 2, 3)
    assert basis_of(a_statement(a_line(1, "1"))).above_share_ppm_ms is None


def test_an_empty_month_is_a_page_too(pdf: Callable[[Statement], bytes], tmp_path: Path) -> None:
    words = " ".join(text_of(pdf(a_statement()), tmp_path).split())
    assert "Nothing was held in this period." in words
    assert replace(a_statement(), lines=()).lines == ()
