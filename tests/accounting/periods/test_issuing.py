"""Numbers without holes, voids and credit notes (`ledger.md §9, §15`)."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from accounting.access.viewer import COMMAND_LINE
from accounting.errors import ConflictError, InvalidError, NotFoundError
from accounting.periods.issuing import list_issued, number_text, void

if TYPE_CHECKING:
    from tests.accounting.periods.conftest import Ledger

At = Callable[..., int]
DAY = 86_400_000


@pytest.fixture
def closed(october: Ledger, at: At) -> Ledger:
    october.close("acme", now_ms=at("23:00", 31) + 4 * DAY)
    return october


def issued(ledger: Ledger) -> list[tuple[str, str, Decimal | None, str | None]]:
    with ledger.database.reading() as session:
        rows = list_issued(session, accounts=["acme", "platform"])
        return [(number_text(one), one.kind, one.total, one.reason) for one in rows]


def test_statement_numbers_have_no_holes_and_no_reuse_and_a_void_leaves_a_credit_note(
    closed: Ledger, at: At
) -> None:
    with closed.database.writing() as session:
        note, again = void(
            session, "SM-000001", reason="wrong address", reissue=True, by=COMMAND_LINE, now_ms=1
        )
        assert (number_text(note), again is not None) == ("SM-000002", True)
    closed.close("platform", now_ms=at("23:00", 31) + 4 * DAY)
    assert issued(closed) == [
        ("SM-000001", "statement", Decimal("4.50"), None),
        ("SM-000002", "credit_note", Decimal("-4.50"), "wrong address"),
        ("SM-000003", "statement", Decimal("4.50"), None),
        ("SM-000004", "statement", Decimal("4.50"), None),
    ]
    assert closed.verify().holds


def test_a_number_of_a_transaction_that_failed_is_given_out_again(closed: Ledger) -> None:
    def crash() -> None:
        with closed.database.writing() as session:
            void(session, "SM-000001", reason="r", reissue=False, by=COMMAND_LINE, now_ms=1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        crash()
    with closed.database.writing() as session:
        note, _ = void(session, "SM-000001", reason="r", reissue=False, by=COMMAND_LINE, now_ms=1)
        assert number_text(note) == "SM-000002"


@pytest.mark.parametrize(
    ("number", "reason", "error", "message"),
    [
        ("SM-000001", " ", InvalidError, "needs its reason"),
        ("SM-000009", "r", NotFoundError, "no statement SM-000009"),
        ("nonsense", "r", InvalidError, "is no number of a statement"),
    ],
)
def test_a_void_that_cannot_be_is_refused(
    closed: Ledger, number: str, reason: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message), closed.database.writing() as session:
        void(session, number, reason=reason, reissue=False, by=COMMAND_LINE, now_ms=1)


def test_a_statement_is_voided_once_and_a_credit_note_never(closed: Ledger) -> None:
    with closed.database.writing() as session:
        void(session, "SM-000001", reason="r", reissue=False, by=COMMAND_LINE, now_ms=1)
    for number, message in (("SM-000001", "by credit note SM-000002"), ("SM-000002", "is a credit note")):
        with pytest.raises(ConflictError, match=message), closed.database.writing() as session:
            void(session, number, reason="r", reissue=False, by=COMMAND_LINE, now_ms=1)
