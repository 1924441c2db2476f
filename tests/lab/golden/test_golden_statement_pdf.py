"""The golden month as PDF: twice the same bytes, and its text says what was worked out by hand."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.golden.month import MONTH

if TYPE_CHECKING:
    from tests.lab.golden.conftest import Accounting


def require(program: str, package: str) -> str:
    found = shutil.which(program)
    if found is not None:
        return found
    reason = f"{program} is not there: Debian's package {package}"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.mark.parametrize(
    ("tenant", "total"), [("acme/red", "1,080.30"), ("acme/green", "54.01"), ("acme/blue", "48.40")]
)
def test_the_document_is_the_same_twice_and_says_the_total(
    billed: Accounting, tmp_path: Path, tenant: str, total: str
) -> None:
    program = require("pdftotext", "poppler-utils")
    reader = billed.token("tenant", tenant)
    answer = billed.get(f"/api/v1/statements/{MONTH}", reader, tenant=tenant, format="pdf")
    if answer.status_code == 422 and not os.environ.get("CI"):
        pytest.skip(answer.json()["detail"])
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/pdf")
    again = billed.get(f"/api/v1/statements/{MONTH}", reader, tenant=tenant, format="pdf")
    assert again.content == answer.content
    path = tmp_path / "statement.pdf"
    path.write_bytes(answer.content)
    done = subprocess.run([program, "-layout", str(path), "-"], capture_output=True, text=True, check=True)
    assert f"{total} EUR" in done.stdout
    assert re.search(rf"^ *Total .* {re.escape(total)} ", done.stdout, re.MULTILINE)
    # Every shown amount of a line, and the rounding line, add up to the total.
    lines = re.findall(r"main +(?:alpha|beta) .* ([\d,]+\.\d\d) +(?:not measured|\d)", done.stdout)
    rounding = re.findall(r"Rounding +(-?[\d.]+)", done.stdout)
    shown = [Decimal(text.replace(",", "")) for text in [*lines, *rounding]]
    assert sum(shown) == Decimal(total.replace(",", ""))
