"""`slicemeter accounting rate`: rate the open periods now."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.periods.rate import rate
from accounting.prices.models import unpriced_models
from accounting.reports.books import rated_document
from accounting.reports.documents import instant
from accounting.settings import Settings
from slicemeter.accounting.options import (
    add_grace_option,
    add_jobs_option,
    now_ms,
    opened,
    parser,
    print_json,
)
from slicemeter.accounting.progress import Bar


def main(argv: Sequence[str]) -> int:
    """Rate whatever is due; exit 1 when slices are held on devices of unknown size.

    A model without a price is named, and no failure: what it costs is unrated until a price is set.
    """
    made = parser("rate", "Rate the days of cards that facts, prices or time changed.")
    add_grace_option(made)
    add_jobs_option(made)
    made.add_argument("--json", action="store_true", help="print a JSON object")
    arguments = made.parse_args(argv)
    settings = Settings(grace_ms=round(arguments.grace_seconds * 1000))
    with opened(arguments) as database, Bar() as progress:
        rated = rate(
            database,
            as_of_ms=now_ms(),
            grace_ms=settings.grace_ms,
            jobs=arguments.jobs,
            progress=progress,
        )
        with database.reading() as session:
            unpriced = unpriced_models(session, at_ms=rated.as_of_ms)
    if arguments.json:
        missing = [{"model": model, "currency": currency} for model, currency in unpriced]
        print_json(rated_document(rated) | {"unpriced": missing})
    else:
        print(f"rated {rated.days} days of cards as of {instant(rated.as_of_ms)}: {rated.lines} lines")
        for key in rated.unknown_devices:
            name = "/".join((key.cluster, key.node_uid, key.device_uuid))
            print(f"unrated: slices are held on {name}, which nobody reported; is an exporter running there?")
        for model, currency in unpriced:
            print(f'unrated: no price of "{model}" in {currency} holds now; see: accounting price set --help')
    return 1 if rated.unknown_devices else 0
