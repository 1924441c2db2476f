"""One export from the books into an open file.

Invariant: a FOCUS file passes its lint, and its charges add up to the statement, or nothing is answered
but an error; lines are streamed, so that memory does not grow with the month.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import IO, Literal, TypeAlias, get_args

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer
from accounting.errors import InvalidError
from accounting.exports.columns import Column, Value
from accounting.exports.focus_charges import Charge, Charges, charge_columns
from accounting.exports.focus_documents import billing_period, document_columns, invoice_details
from accounting.exports.ledger_rows import COLUMNS, ledger_rows
from accounting.exports.writers import CsvWriter, JsonWriter, ParquetWriter, Writer
from accounting.focus.across import Totals
from accounting.focus.lint import Finding, Linter
from accounting.focus.model import DATASETS, VERSIONS, Dataset, Version
from accounting.focus.values import is_national_currency
from accounting.ledger.calendar import Month
from accounting.periods.ledger_stream import Frame, coverage_of_devices, open_frame, stream_lines
from accounting.progress import Progress, unseen
from accounting.store.models import PolicyVersion

Format: TypeAlias = Literal["csv", "json", "parquet", "focus", "focus-parquet"]

FORMATS: tuple[Format, ...] = get_args(Format)

CONTENT_TYPES: dict[Format, str] = {
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "parquet": "application/vnd.apache.parquet",
    "focus": "text/csv; charset=utf-8",
    "focus-parquet": "application/vnd.apache.parquet",
}

FILE_SUFFIXES: dict[Format, str] = {
    "csv": ".csv",
    "json": ".json",
    "parquet": ".parquet",
    "focus": ".csv",
    "focus-parquet": ".parquet",
}

_WRITERS: dict[Format, type[CsvWriter | JsonWriter | ParquetWriter]] = {
    "csv": CsvWriter,
    "json": JsonWriter,
    "parquet": ParquetWriter,
    "focus": CsvWriter,
    "focus-parquet": ParquetWriter,
}


class FocusFaultError(InvalidError):
    """What was made breaks a rule of FOCUS, so that it is not given out."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody wants exported.

    Attributes:
        month: The period.
        form: Of the file.
        tenant: With all below it; None: the whole account.
        account: Of all its tenants, or where the tenant has lines in several.
        version: Of FOCUS.
        dataset: Of FOCUS.
    """

    month: Month
    form: Format
    tenant: str | None = None
    account: str | None = None
    version: Version = VERSIONS[0]
    dataset: Dataset = DATASETS[0]

    @property
    def is_focus(self) -> bool:
        """Whether it is a FOCUS file."""
        return self.form in {"focus", "focus-parquet"}


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written."""

    frame: Frame
    rows: int


def write_export(
    session: Session, viewer: Viewer, wanted: Wanted, file: IO[bytes], *, progress: Progress = unseen
) -> Exported:
    """Write an export; the file stays open.

    Args:
        session: A reading transaction.
        viewer: Who asks.
        wanted: What for.
        file: Empty and writable; what is in it after an error is of no use.
        progress: Who wants to know how far it is.

    Raises:
        NotFoundError: No such tenant or account, or none that the viewer may see.
        InvalidError: FOCUS of an account without a national currency, or with models that have no price; a
            dataset that the version does not have; Parquet without pyarrow.
        FocusFaultError: What was made breaks a rule of FOCUS.
    """
    frame = open_frame(session, viewer, wanted.month, wanted.tenant, wanted.account)
    if wanted.is_focus:
        return _focus(session, frame, wanted, file, progress)
    writer: Writer = _WRITERS[wanted.form](file, COLUMNS)
    rows = 0
    with _finished(writer):
        for row in ledger_rows(frame, stream_lines(session, frame, with_use=True, progress=progress)):
            writer.row(row)
            rows += 1
    return Exported(frame, rows)


@contextmanager
def _finished(writer: Writer) -> Iterator[None]:
    """Finish a file when the block ends, or let go of it when it raises."""
    try:
        yield
    except BaseException:
        writer.abandon()
        raise
    writer.finish()


def _focus(session: Session, frame: Frame, wanted: Wanted, file: IO[bytes], progress: Progress) -> Exported:
    _require_currency(frame)
    if wanted.dataset != "cost-and-usage" and wanted.version == "1.2":
        raise InvalidError(
            f"FOCUS 1.2 has no dataset {wanted.dataset}; leave --focus-version out, or export cost-and-usage"
        )
    methods = {row.id: row.value for row in session.scalars(select(PolicyVersion))}
    charges = Charges(frame, coverage_of_devices(session, frame), methods)
    lines = stream_lines(session, frame, progress=progress)
    rows: Iterable[Charge]
    match wanted.dataset:
        case "cost-and-usage":
            columns, rows = charge_columns(wanted.version), charges.of(lines)
        case "invoice-detail":
            columns, rows = document_columns("invoice-detail"), invoice_details(charges, lines)
        case "billing-period":
            columns, rows = document_columns("billing-period"), [billing_period(frame)]
    checked = _Checked(_WRITERS[wanted.form](file, columns), columns, wanted)
    with _finished(checked.writer), checked.linter:
        checked.write(rows)
        _require_prices(charges)
        if wanted.dataset == "cost-and-usage":
            checked.expect(_totals(charges))
        checked.check()
    return Exported(frame, checked.linter.rows)


def _require_currency(frame: Frame) -> None:
    currency = frame.currency
    if currency is None:
        raise InvalidError(
            f'account "{frame.account}" is a showback account, and FOCUS needs a currency; export it as csv, '
            "json or parquet"
        )
    if not is_national_currency(currency):
        raise InvalidError(
            f'account "{frame.account}" is in {currency}, and FOCUS needs a national currency; export it as '
            "csv, json or parquet"
        )


def _require_prices(charges: Charges) -> None:
    if charges.unrated:
        models = ", ".join(sorted(charges.unrated))
        raise InvalidError(
            f"{charges.frame.account} {charges.frame.period}: no price for {models}, and FOCUS needs a cost "
            "for each charge; set one with: slicemeter accounting price set, or take csv, json or parquet"
        )


def _totals(charges: Charges) -> dict[str, Decimal]:
    """What the invoices of a file must come to; of a sealed account what its statement says."""
    frame = charges.frame
    total = charges.total if frame.sealed_total is None else frame.sealed_total
    found = {charges.invoice: total}
    if frame.documents and frame.documents[-1].note is not None:
        found[frame.documents[-1].note] = -total
    return found


@dataclass(slots=True)
class _Checked:
    """Writes rows of FOCUS, and lints each as it is written."""

    writer: Writer
    columns: Sequence[Column]
    wanted: Wanted
    linter: Linter = field(init=False)
    _expected: dict[str, Decimal] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        self.linter = Linter(names, self.wanted.dataset, self.wanted.version, Totals(self._expected))

    def write(self, rows: Iterable[Charge]) -> None:
        """Write all rows."""
        _refuse(self.linter.heading())
        for charge in rows:
            values: list[Value] = [charge.get(column.name) for column in self.columns]
            texts = [column.text(value) for column, value in zip(self.columns, values, strict=True)]
            _refuse(self.linter.row(texts))
            self.writer.row(values, texts)

    def expect(self, totals: dict[str, Decimal]) -> None:
        """Say what the invoices must come to."""
        if self.linter.rows:
            self._expected |= totals

    def check(self) -> None:
        """Check all rows together; an empty month is no fault."""
        _refuse(finding for finding in self.linter.finish() if finding.rule != "no-rows")


def _refuse(findings: Iterator[Finding]) -> None:
    for finding in findings:
        where = f"row {finding.row}, " if finding.row else ""
        raise FocusFaultError(
            f"the export would break FOCUS: {where}{finding.column or 'all columns'}: {finding.rule}, "
            f"{finding.detail}; {finding.way_out}"
        )
