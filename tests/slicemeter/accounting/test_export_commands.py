"""`export` and `focus lint` as a user sees them."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from accounting.focus import reading
from slicemeter.accounting import main
from tests.slicemeter.accounting.shell import Shell
from tests.slicemeter.accounting.test_report_commands import HOUR, START, tell

# Half a T4 for three hours at 3.00 an hour.
TOTAL = Decimal("4.50")


@pytest.fixture
def billed(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    # Whatever day it is: the facts lie in the past.
    monkeypatch.setattr("slicemeter.accounting.rate.now_ms", lambda: START + 30 * 24 * HOUR)
    for words in (
        "account add acme --currency EUR --time-zone Europe/Berlin",
        "account add platform --kind platform --currency EUR",
        "cluster add a --account acme --platform-account platform",
        "price set --price 3.00 --currency EUR --from 2026-01-01 --model",
    ):
        model = ["Tesla T4"] if words.startswith("price") else []
        assert shell(*words.split(), *model)[0] == 0
    tell(shell.url)
    assert shell("rate")[0] == 0
    return shell


def export(shell: Shell, out: Path, *words: str) -> tuple[int, str, str]:
    return shell("export", "2026-10", "--account", "acme", "--out", str(out), *words)


@pytest.mark.parametrize("form", ["csv", "json", "parquet", "focus", "focus-parquet"])
def test_a_file_is_written_and_counted_and_not_written_again(
    billed: Shell, tmp_path: Path, form: str
) -> None:
    out = tmp_path / "october"
    assert export(billed, out, "--format", form) == (0, "", f"{out}: {1 if 'focus' in form else 2} rows\n")
    first = out.read_bytes()
    code, _, err = export(billed, out, "--format", form)
    assert (code, err.count("\n")) == (2, 1)
    assert "--force" in err
    assert export(billed, out, "--format", form, "--force")[0] == 0
    assert out.read_bytes() == first


def test_what_is_printed_is_what_is_written(billed: Shell, tmp_path: Path) -> None:
    out = tmp_path / "october.csv"
    assert export(billed, out, "--format", "focus")[0] == 0
    words = ["accounting", "export", "2026-10", "--account", "acme", "--format", "focus", "--out", "-"]
    done = subprocess.run(
        [sys.executable, "-m", "slicemeter", *words, "--database", billed.url],
        capture_output=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == (out.read_bytes(), b"")
    rows = csv.DictReader(io.StringIO(out.read_text(encoding="utf-8")))
    assert sum(Decimal(row["BilledCost"]) for row in rows) == TOTAL


def test_nothing_is_left_where_an_export_is_refused(billed: Shell, tmp_path: Path) -> None:
    out = tmp_path / "october.csv"
    code, _, err = billed("export", "2026-10", "--tenant", "nobody", "--format", "csv", "--out", str(out))
    assert (code, "nobody" in err, list(tmp_path.glob("october*"))) == (2, True, [])
    assert list(tmp_path.glob(".october*")) == []


def test_parquet_without_its_library_names_the_extra(
    billed: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    code, _, err = export(billed, tmp_path / "october", "--format", "parquet")
    assert (code, err.count("\n")) == (2, 1)
    assert "pip install 'slicemeter[parquet]'" in err
    assert not (tmp_path / "october").exists()


@pytest.mark.parametrize("dataset", ["cost-and-usage", "invoice-detail", "billing-period"])
@pytest.mark.parametrize("form", ["focus", "focus-parquet"])
def test_the_lint_passes_what_is_exported(billed: Shell, tmp_path: Path, form: str, dataset: str) -> None:
    out = tmp_path / "october"
    assert export(billed, out, "--format", form, "--focus-dataset", dataset)[0] == 0
    code, told, err = lint(out, billed)
    assert (code, err) == (0, "")
    assert told == f"{out}: {dataset} of FOCUS 1.4, 1 rows, 0 findings\n"


def lint(file: Path, shell: Shell, *words: str) -> tuple[int, str, str]:
    try:
        code = main(["focus", "lint", str(file), *words])
    except SystemExit as exit_:
        code = int(str(exit_.code))
    output = shell.capture.readouterr()
    return code, output.out, output.err


def test_a_finding_is_exit_1_with_row_column_rule_and_way_out(billed: Shell, tmp_path: Path) -> None:
    out = tmp_path / "october.csv"
    assert export(billed, out, "--format", "focus")[0] == 0
    spoilt = tmp_path / "spoilt.csv"
    spoilt.write_text(out.read_text(encoding="utf-8").replace(",GPU-Hours,", ",gpu hours,"), encoding="utf-8")
    code, told, _ = lint(spoilt, billed)
    assert code == 1
    assert told.splitlines()[0].startswith('row 1 ConsumedUnit: unit-format: "gpu hours"; capitalise it')
    code, told, _ = lint(spoilt, billed, "--json")
    *findings, summary = (json.loads(line) for line in told.splitlines())
    assert [(one["row"], one["column"], one["rule"]) for one in findings] == [
        (1, "ConsumedUnit", "unit-format"),
        (1, "PricingUnit", "unit-format"),
    ]
    assert (code, summary["findings"], summary["rows"]) == (1, 2, 1)
    assert lint(spoilt, billed, "--limit", "1")[1].splitlines()[-1].endswith("1 of them not shown (--limit)")


def test_charges_are_compared_with_their_invoice_details(billed: Shell, tmp_path: Path) -> None:
    charges, details = tmp_path / "charges.csv", tmp_path / "details.csv"
    assert export(billed, charges, "--format", "focus")[0] == 0
    assert export(billed, details, "--format", "focus", "--focus-dataset", "invoice-detail")[0] == 0
    assert lint(charges, billed, "--invoice-detail", str(details))[0] == 0
    details.write_text(details.read_text(encoding="utf-8").replace("\n4.5,", "\n4.51,"), encoding="utf-8")
    code, told, _ = lint(charges, billed, "--invoice-detail", str(details))
    assert code == 1
    assert "invoice-total: SM-acme-2026-10-provisional: 4.5 is not 4.51" in told
    assert lint(charges, billed, "--invoice-detail", str(charges))[0] == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        (b"", "it has no heading"),
        (b"\xff\xfe\x00", "no text in UTF-8"),
        (b'a,b\n"1,2\n', "no CSV"),
        (b"PAR1 and no more", "no readable Parquet"),
    ],
)
def test_a_file_that_cannot_be_read_is_exit_2_in_one_line(
    billed: Shell, tmp_path: Path, content: bytes | None, said: str
) -> None:
    file = tmp_path / "bill"
    if content is not None:
        file.write_bytes(content)
    code, _, err = lint(file, billed)
    assert (code, err.count("\n")) == (2, 1)
    assert said in err


def test_a_cell_beyond_all_measure_is_no_csv(billed: Shell, tmp_path: Path) -> None:
    file = tmp_path / "bill.csv"
    file.write_text("a\n" + "x" * (reading.MAX_CELL_BYTES + 1), encoding="utf-8")
    code, _, err = lint(file, billed)
    assert (code, "no CSV" in err) == (2, True)


def test_times_of_the_charge_are_those_of_the_slice(billed: Shell, tmp_path: Path) -> None:
    out = tmp_path / "october.csv"
    assert export(billed, out, "--format", "focus")[0] == 0
    (row,) = csv.DictReader(io.StringIO(out.read_text(encoding="utf-8")))
    assert (row["ChargePeriodStart"], row["ChargePeriodEnd"]) == (
        "2026-10-01T09:00:00Z",
        "2026-10-01T12:00:00Z",
    )
