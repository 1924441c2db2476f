"""Months of every zone on both databases, and a process that lives in another zone than its accounts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from accounting.ledger.calendar import month_bounds_ms, parse_month
from contract.facts import AllocationFact, PresenceFact

if TYPE_CHECKING:
    from accounting.store.database import Database
    from tests.accounting.periods.conftest import Ledger

HOUR = 3_600_000
MINUTE = 60_000
CARD_HOUR = 3_600_000_000_000

Allocation = Callable[..., AllocationFact]
Presence = Callable[..., PresenceFact]


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1000


@pytest.mark.parametrize(
    ("zone", "month", "begins", "half_hours"),
    [
        # 30 days of 24 h, and the hour that the clocks give back on 1 November: 721 h.
        ("America/New_York", "2026-11", "2026-11-01T04:00", 2 * 721),
        # The clocks go back by half an hour on 5 April: 720.5 h.
        ("Australia/Lord_Howe", "2026-04", "2026-03-31T13:00", 2 * 720 + 1),
        # Quarter-hour offset, no change: 31 × 24.
        ("Asia/Kathmandu", "2026-10", "2026-09-30T18:15", 2 * 744),
        # The clocks lose an hour on 29 March: 743 h.
        ("Europe/Berlin", "2026-03", "2026-02-28T23:00", 2 * 743),
    ],
)
def test_months_and_lines_are_cut_at_local_midnight_and_tile_with_the_right_number_of_hours(
    *,
    ledger: Ledger,
    allocation: Allocation,
    presence: Presence,
    zone: str,
    month: str,
    begins: str,
    half_hours: int,
) -> None:
    ledger.account("here", zone=zone)
    ledger.account("platform-here", "platform", zone=zone)
    ledger.cluster("e", account="here", platform="platform-here")
    start, end = ms(begins), ms(begins) + half_hours * 30 * MINUTE
    # Half a card, held from two hours before the month to two hours after it.
    held_from, held_to = start - 2 * HOUR, end + 2 * HOUR
    ledger.send(
        [
            presence(held_from, held_to, cluster="e"),
            allocation(
                cluster="e", core_percent=50, bound_at_ms=held_from, confirmed_at_ms=held_to,
                ended_at_ms=held_to, end_kind="observed",
            ),
        ],
        now_ms=held_to,
    )  # fmt: skip
    ledger.rate(held_to)
    for path, kind in (("here/team", "usage"), ("platform/idle", "idle")):
        lines = sorted(
            (line.charge_from_ms, line.charge_to_ms, line.quantity)
            for owner, line in ledger.lines()
            if line.kind == kind and line.account in {"here", "platform-here"}
        )
        assert lines[0][0] == held_from, path
        assert lines[-1][1] == held_to
        assert all(one[1] == other[0] for one, other in pairwise(lines))
        # The month's two edges are edges of lines: nothing crosses them.
        inside = [line for line in lines if start <= line[0] < end]
        assert (inside[0][0], inside[-1][1]) == (start, end)
        assert sum(line[2] for line in inside) == half_hours * CARD_HOUR // 4
        assert sum(line[2] for line in lines) == (half_hours + 8) * CARD_HOUR // 4
    assert month_bounds_ms(parse_month(month), zone) == (start, end)
    assert ledger.verify(month).holds


RUN = """
import json, sys, time
from datetime import datetime
from decimal import Decimal
from accounting.access.viewer import COMMAND_LINE
from accounting.facts.ingest import ingest
from accounting.facts.reading import Scope, read_lines
from accounting.ledger.calendar import parse_month
from accounting.periods.close import close_period
from accounting.periods.rate import rate
from accounting.prices.book import set_price
from accounting.store.database import Database
from accounting.tenants.registry import add_account, add_cluster
from slicemeter.accounting import main

url, end_ms = sys.argv[1], int(sys.argv[2])
by = {"by": COMMAND_LINE, "now_ms": 0}
database = Database(url)
with database.writing() as session:
    for code, kind in (("acme", "tenant"), ("platform", "platform")):
        zone = {"time_zone": "Europe/Berlin", "grace_days": 3, "currency": "EUR"}
        add_account(session, code, kind=kind, **zone, **by)
    add_cluster(session, "c", account="acme", platform_account="platform", **by)
    price = {"sku": "gpu-slice", "model": "", "currency": "EUR", "valid_from_ms": 0}
    set_price(session, **price, unit_price=Decimal("0.40"), **by)
    facts = read_lines(sys.stdin.buffer.read(), Scope("c"), now_ms=end_ms)
    assert not ingest(session, facts, cluster="c", now_ms=end_ms).rejected
rate(database, as_of_ms=end_ms, grace_ms=900_000)
closing_ms = end_ms + 4 * 86_400_000
for account in ("acme", "platform"):
    month = parse_month("2026-10")
    close_period(database, account, month, by=COMMAND_LINE, now_ms=closing_ms, grace_ms=900_000)
database.close()
print(json.dumps([time.tzname[0], datetime.fromtimestamp(0).hour]))
for whose in (["--tenant", "acme/team"], ["--account", "platform"]):
    assert main(["statement", "2026-10", *whose, "--format", "json", "--database", url]) == 0
assert main(["verify", "2026-10", "--json", "--database", url]) == 0
"""


def state_in(zone: str, url: str, facts: bytes, end_ms: int) -> tuple[Any, list[Any]]:
    """Where the process thought it was, and the statements and the verification that it printed."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, url, str(end_ms)],
        input=facts, capture_output=True, env=os.environ | {"TZ": zone}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    place, *documents = [json.loads(line) for line in done.stdout.decode().splitlines()]
    return place, documents


@pytest.fixture
def several_books(new_books: Any) -> Iterator[Callable[[], Database]]:
    from contextlib import ExitStack  # noqa: PLC0415 - only here

    with ExitStack() as stack:
        yield lambda: stack.enter_context(new_books())


def test_one_card_held_all_october_bills_745_hours_in_any_zone_of_the_process(
    several_books: Callable[[], Database], allocation: Allocation, presence: Presence
) -> None:
    from contract.facts import canonical_bytes  # noqa: PLC0415 - only here

    start, end = ms("2026-09-30T22:00"), ms("2026-10-31T23:00")
    held = allocation(
        core_percent=100, bound_at_ms=start, confirmed_at_ms=end, ended_at_ms=end, end_kind="observed"
    )
    facts = b"\n".join([canonical_bytes(presence(start, end)), canonical_bytes(held)])
    found = {
        zone: state_in(
            zone, str(several_books().engine.url.render_as_string(hide_password=False)), facts, end
        )
        for zone in ("UTC", "Pacific/Kiritimati", "America/St_Johns")
    }
    # The processes really were elsewhere: 14 hours ahead of UTC, and 3½ behind it.
    assert {zone: place for zone, (place, _) in found.items()} == {
        "UTC": ["UTC", 0],
        "Pacific/Kiritimati": ["+14", 13],  # in 1970 it was 10:40 behind, on the other side of the date line
        "America/St_Johns": ["NST", 20],
    }
    (team, platform, verified), *others = [documents for _, documents in found.values()]
    assert all(other == [team, platform, verified] for other in others)
    # 31 days of 24 hours and the one that the clocks give back on the 25th; 745 × 0.40 = 298.00.
    assert team["totals"]["charged_ppm_ms"] == 745 * CARD_HOUR
    assert team["totals"]["charged_card_hours"] == "745.000000"
    assert (team["total"], Decimal(team["amount"])) == ("298.00", Decimal(298))
    assert (team["from"], team["to"]) == ("2026-09-30T22:00:00Z", "2026-10-31T23:00:00Z")
    assert len(team["lines"]) == 31
    assert platform["lines"] == []
    assert verified["holds"] is True
