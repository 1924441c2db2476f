"""Lines of the ledger as rows: what CSV, JSON and Parquet hold, one row a line and one for the rounding.

Invariant: `amount` adds up to the exact sum of the month, `shown` to the total of the statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal

from accounting.exports.columns import Column, Value
from accounting.ledger.calendar import local_date
from accounting.ledger.rounding import EXACT, PPM_MS, card_factor, card_hours, to_currency
from accounting.periods.ledger_stream import Frame, Streamed
from accounting.store.models import LedgerLine

COLUMNS = (
    Column("account"),
    Column("tenant"),
    Column("period"),
    Column("state"),
    Column("day"),
    Column("kind"),
    Column("sku"),
    Column("cluster"),
    Column("node"),
    Column("device_uuid"),
    Column("model"),
    Column("namespace"),
    Column("pod"),
    Column("container"),
    Column("resource_key"),
    Column("from", "instant"),
    Column("to", "instant"),
    Column("own_card_hours", "decimal", 6),
    Column("discount_card_hours", "decimal", 6),
    Column("card_hours", "decimal", 6),
    Column("card_factor", "decimal", 6),
    Column("own_ppm_ms", "count"),
    Column("charged_ppm_ms", "count"),
    Column("held_not_running_ppm_ms", "count"),
    Column("degraded_ppm_ms", "count"),
    Column("energy_mj", "count"),
    Column("unit_price", "decimal", 17),
    Column("price_version", "count"),
    Column("policy_version", "count"),
    Column("discount_percent", "decimal", 17),
    Column("currency"),
    Column("amount", "decimal", 17),
    Column("shown", "decimal", 4, keeps_zeros=True),
    Column("sm_ppm_ms", "count"),
    Column("mem_used_mib_ms", "count"),
    Column("mem_peak_mib", "count"),
    Column("covered_ms", "count"),
    Column("energy_active_mj", "count"),
    Column("corrects_period"),
    Column("corrects_day"),
    Column("corrects_kind"),
    Column("reason"),
)

_PLACE = {column.name: place for place, column in enumerate(COLUMNS)}


def ledger_rows(frame: Frame, lines: Iterable[Streamed]) -> Iterator[list[Value]]:
    """A row for each line, then the rounding line of an account with a currency."""
    currency = frame.currency
    exact = shown_sum = Decimal(0)
    for one in lines:
        shown = None
        if one.line.amount is not None and currency is not None:
            shown = to_currency(one.line.amount, currency)
            exact = EXACT.add(exact, one.line.amount)
            shown_sum = EXACT.add(shown_sum, shown)
        yield _row(frame, one, shown)
    if currency is not None and frame.period_id is not None:
        rounding: list[Value] = [None] * len(COLUMNS)
        for name, value in (
            ("account", frame.account),
            ("tenant", frame.root),
            ("period", frame.period),
            ("state", frame.state),
            ("kind", "rounding"),
            ("currency", currency),
            ("shown", EXACT.subtract(to_currency(exact, currency), shown_sum)),
        ):
            rounding[_PLACE[name]] = value
        yield rounding


def _row(frame: Frame, one: Streamed, shown: Decimal | None) -> list[Value]:
    line, use = one.line, one.use
    own, charged = (line.own_quantity, line.quantity) if line.unit == PPM_MS else (0, 0)
    corrects_day_ms = line.corrects_day_ms
    return [
        frame.account,
        one.tenant,
        frame.period,
        frame.state,
        local_date(line.day_ms, frame.time_zone).isoformat(),
        line.kind,
        line.sku,
        line.cluster or None,
        line.node or None,
        line.device_uuid or None,
        line.model or None,
        line.namespace or None,
        line.pod or None,
        line.container or None,
        line.resource_key,
        line.charge_from_ms,
        line.charge_to_ms,
        card_hours(own),
        card_hours(own - charged),
        card_hours(charged),
        card_factor(own, charged),
        own,
        charged,
        line.held_not_running_quantity,
        line.degraded_quantity,
        _energy_mj(line),
        line.unit_price,
        line.price_version_id,
        line.policy_version_id,
        line.discount_percent,
        frame.currency,
        line.amount,
        shown,
        None if use is None else use.sm_ppm_ms,
        None if use is None else use.mem_used_mib_ms,
        None if use is None else use.mem_peak_mib,
        None if use is None else use.covered_ms,
        None if use is None else use.energy_active_mj,
        one.corrects_period,
        None if corrects_day_ms is None else local_date(corrects_day_ms, frame.time_zone).isoformat(),
        line.corrects_kind,
        line.reason,
    ]


def _energy_mj(line: LedgerLine) -> int | None:
    """Of an energy line; null on card time."""
    return None if line.unit == PPM_MS else line.quantity
