"""`slicemeter accounting void NUMBER --reason TEXT`: a credit note over a statement's total."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.access.viewer import COMMAND_LINE
from accounting.periods.issuing import number_text, void
from accounting.reports.seals import voided_document
from slicemeter.accounting.options import now_ms, opened, parser, print_json


def main(argv: Sequence[str]) -> int:
    """Void a statement."""
    made = parser("void", "Void a statement by a credit note; its number is never used again.")
    made.add_argument("number", help="as SM-000001; see: slicemeter accounting statements")
    made.add_argument("--reason", required=True, help="stands on the credit note")
    made.add_argument("--reissue", action="store_true", help="issue the same statement under a new number")
    made.add_argument("--json", action="store_true", help="print a JSON object")
    arguments = made.parse_args(argv)
    with opened(arguments) as database, database.writing() as session:
        note, again = void(
            session,
            arguments.number,
            reason=arguments.reason,
            reissue=arguments.reissue,
            by=COMMAND_LINE,
            now_ms=now_ms(),
        )
        if arguments.json:
            print_json(voided_document(session, note, again))
        else:
            renewed = "" if again is None else f", and issued again as {number_text(again)}"
            print(f"{arguments.number} was voided by credit note {number_text(note)}{renewed}")
    return 0
