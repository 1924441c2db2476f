"""The FinOps Foundation's own validator on our FOCUS 1.2, where it is installed (Python 3.12 or newer).

It is no dependency: it pins NumPy 1, and needs a pyarrow before 22. Make it an environment of its own with
`pip install focus-validator==2.2.1 'pyarrow<22'` and name its program in FOCUS_VALIDATOR.
Source: `reference/focus-mapping.md §6`.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.accounting.exports.files import exported

if TYPE_CHECKING:
    from tests.accounting.periods.conftest import Ledger

CRITERIA = (
    "ACCOUNT_NAMING",
    "NEGOTIATED_PRICING",
    "PUBLIC_PRICE_LIST",
    "USAGE_MEASUREMENT",
    "UNIT_PRICING",
    "SUB_ACCOUNT",
    "BILLING_BASED_ON_PROVISIONED_RESOURCES",
    "RESOURCE_TYPE_ASSIGNMENT",
    "MULTIPLE_PRICING_CATEGORIES",
    "TAGGING",
)

CONTRADICTION = {"InvoiceId-C-004-C"}
"""It asks InvoiceId to be null on every row, and InvoiceId-C-005-C asks the opposite: one always fails."""


@pytest.mark.slow
def test_the_official_validator_passes_1_2_but_for_its_own_contradiction(
    october: Ledger, tmp_path: Path
) -> None:
    program = os.environ.get("FOCUS_VALIDATOR")
    if program is None:
        pytest.skip("FOCUS_VALIDATOR names no focus-validator 2.2.1 (Python 3.12 or newer)")
    file = tmp_path / "october.csv"
    file.write_bytes(exported(october, "focus", version="1.2"))
    # It opens its list of currencies by a relative path.
    folder = next(Path(program).parents[1].glob("lib/python3*/site-packages"))
    words = [
        program, "--data-file", str(file), "--validate-version", "1.2", "--block-download",
        "--focus-dataset", "CostAndUsage",
        "--applicability-criteria", ",".join(f"{name}_SUPPORTED" for name in CRITERIA),
    ]  # fmt: skip
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    counts = re.search(r"Pass: (\d+) \| Fail: (\d+)", done.stdout)
    assert counts is not None, done.stdout[-2_000:] + done.stderr[-2_000:]
    assert set(re.findall(r"^- (\S+): violations", done.stdout, re.MULTILINE)) == CONTRADICTION
    assert (int(counts[1]) > 200, counts[2]) == (True, "1")
