"""`slicemeter accounting quote`: what a slice would cost at most."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.access.viewer import COMMAND_LINE
from accounting.ledger.calendar import at_text
from accounting.ledger.rounding import card_hours, plain
from accounting.reports.quote import Quote, Wanted, make_quote, parse_hours, quote_document
from slicemeter.accounting.options import now_ms, opened, parser, print_json
from slicemeter.accounting.windows import instant_of


def main(argv: Sequence[str]) -> int:
    """Print an upper bound."""
    made = parser("quote", "What a slice costs at most: neighbours on its card only make it cheaper.")
    made.add_argument("--model", required=True, help="GPU model as registered")
    made.add_argument("--memory", type=int, default=0, metavar="MIB", help="of the slice; default: 0")
    made.add_argument("--cores", type=int, default=0, metavar="PERCENT", help="of the slice; default: 0")
    made.add_argument("--mig", metavar="PROFILE", help="of a MIG slice, as 1g.10gb")
    made.add_argument("--hours", required=True, metavar="NUMBER", help="as 12 or 0.5")
    made.add_argument("--card-memory", type=int, metavar="MIB", help="of the card; default: as reported")
    made.add_argument("--tenant", help="whose account and discount")
    made.add_argument("--account", help="instead of a tenant; default: the only one")
    made.add_argument("--at", metavar="WHEN", help="a day or instant whose prices hold; default: now")
    made.add_argument("--json", action="store_true", help="print a JSON object")
    arguments = made.parse_args(argv)
    wanted = Wanted(
        arguments.model,
        arguments.memory,
        arguments.cores,
        parse_hours(arguments.hours),
        arguments.mig,
        arguments.card_memory,
    )
    with opened(arguments) as database, database.reading() as session:
        quote = make_quote(
            session,
            COMMAND_LINE,
            wanted,
            at_ms=now_ms() if arguments.at is None else instant_of(arguments.at),
            tenant_name=arguments.tenant,
            account_code=arguments.account,
        )
    if arguments.json:
        print_json(quote_document(quote))
    else:
        print(_text(quote))
    return 0


def _text(quote: Quote) -> str:
    hours = card_hours(quote.quantity_ppm_ms)
    share = f"share at most {plain(card_hours(quote.share_ppm * 3_600_000))} of a card ({quote.policy})"
    lines = [f"{share}, {hours} card-hours, as of {at_text(quote.at_ms)}"]
    if quote.currency is None:
        lines.append(f"account {quote.account} is showback: no amount")
    elif quote.unit_price is None or quote.amount is None:
        lines.append(f"unrated: no price of this model in {quote.currency} holds")
    else:
        less = "" if quote.discount_percent is None else f" less {plain(quote.discount_percent)} %"
        lines.append(
            f"at most {quote.amount} {quote.currency}, at {plain(quote.unit_price)} a card-hour{less}, "
            "without energy"
        )
    return "\n".join(lines)
