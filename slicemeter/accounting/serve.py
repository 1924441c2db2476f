"""`slicemeter accounting serve`: run the service."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from accounting.access.oidc_settings import read_oidc_settings
from accounting.access.tokens import ensure_admin
from accounting.api.money import Money
from accounting.api.serving import Rater, address_of, listen, run
from accounting.budgets.standing import Standing, note_crossings
from accounting.errors import InvalidError
from accounting.figures.book import FigureBook
from accounting.periods.batch import Stop
from accounting.periods.rate import rate
from accounting.settings import Settings
from accounting.store.database import Database
from accounting.store.migrate import current_revision, require_current, upgrade
from accounting.store.partitions import make_ahead
from accounting.store.roles import is_behind_walls
from accounting.web.app import create_service
from slicemeter.accounting.options import add_jobs_option, now_ms, parser, seconds
from slicemeter.accounting.people import add_people_options, require_loopback

_log = logging.getLogger(__name__)

DEFAULT_LISTEN = "127.0.0.1:8476"


def main(argv: Sequence[str]) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    defaults = Settings()
    made = parser("serve", "Run the service: facts in, ledger and statements out.")
    made.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default=DEFAULT_LISTEN,
        help=f"default: {DEFAULT_LISTEN}; port 0: any",
    )
    made.add_argument(
        "--rate-interval",
        metavar="SECONDS",
        type=seconds,
        default=defaults.rate_interval_seconds,
        help="how often the open periods are rated; default: %(default)g",
    )
    made.add_argument(
        "--grace-seconds",
        metavar="SECONDS",
        type=seconds,
        default=defaults.grace_ms / 1000,
        help="how long a slice is held after its latest confirmation when nobody saw it end; at least three "
        "times the exporters' push interval; default: %(default)g",
    )
    made.add_argument(
        "--admin-token-file",
        metavar="FILE",
        type=Path,
        help="a file with the token of the first administrator, made known at the start",
    )
    made.add_argument(
        "--metrics-token-file",
        metavar="FILE",
        type=Path,
        help="a file with a token that opens /metrics, read again when replaced; an operator's does too",
    )
    made.add_argument(
        "--open-metrics",
        action="store_true",
        help="let anybody who reaches the service read /metrics, and so what every tenant pays",
    )
    add_people_options(made)
    add_jobs_option(made)
    arguments = made.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    for chatty in ("alembic", "httpx"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    settings = Settings(
        grace_ms=round(arguments.grace_seconds * 1000),
        rate_interval_seconds=arguments.rate_interval,
        metrics_token_file=arguments.metrics_token_file,
        are_metrics_open=arguments.open_metrics,
        are_cookies_secure=not arguments.insecure_cookies,
        session_hours=arguments.session_hours,
        session_idle_minutes=arguments.session_idle_minutes,
        oidc=None if arguments.oidc_config_file is None else read_oidc_settings(arguments.oidc_config_file),
    )
    database = Database(arguments.database)

    book, money = FigureBook(), Money()

    def rate_now(stop: Stop) -> None:
        rated = rate(database, as_of_ms=now_ms(), grace_ms=settings.grace_ms, jobs=arguments.jobs, stop=stop)
        if not rated.is_complete:
            return
        with database.reading() as session:
            figures = book.read(session, now_ms=now_ms())
        money.publish(figures)
        tell_crossings(database, figures.budgets)

    try:
        if current_revision(database) is None:
            upgrade(database)
            with database.writing() as session:
                make_ahead(session, now_ms=now_ms())
        require_current(database)
        if not is_behind_walls(database):
            _log.warning(
                "the database role is a superuser or has BYPASSRLS, so row-level security does not hold; "
                "serve as a plain role, see: slicemeter accounting migrate --help"
            )
        if arguments.admin_token_file is not None:
            _make_admin(database, arguments.admin_token_file)
        with listen(arguments.listen) as listening:
            if arguments.insecure_cookies:
                require_loopback(listening)
            app = create_service(settings, database=database, clock=now_ms, money=money)
            print(f"listening on {address_of(listening)}", flush=True)
            run(app, listening, Rater(rate_now, interval_seconds=settings.rate_interval_seconds))
    finally:
        database.close()
    return 0


def tell_crossings(database: Database, budgets: Sequence[Standing]) -> None:
    """Write down budgets' thresholds that were crossed, and tell each once, in the log."""
    if not any(standing.fresh() for standing in budgets):
        return
    with database.writing() as session:
        told = note_crossings(session, budgets, now_ms())
    for standing, percent in told:
        spent = f"{standing.spent} of {standing.amount:f} {standing.currency}"
        _log.warning(
            "budget of %s: %d %% crossed, %s in %s", standing.tenant, percent, spent, standing.period
        )


def _make_admin(database: Database, path: Path) -> None:
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InvalidError(f"cannot read the administrator's token in {path}: {reason}") from None
    with database.writing() as session:
        ensure_admin(session, token, now_ms=now_ms())
