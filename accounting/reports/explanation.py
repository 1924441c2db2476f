"""An explanation as JSON and for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer
from accounting.ledger.calendar import at_text, local_date, local_text
from accounting.ledger.rounding import MJ, card_factor, plain, six_digits
from accounting.periods.explain import Explanation, Neighbour, Share, Step, explain_lines
from accounting.reports.books import policy_document, price_document
from accounting.reports.documents import Document, coverage_document, instant, money, use_document
from accounting.reports.paging import EVERYTHING, Asked, Key, page_of
from accounting.reports.statement_table import columns
from accounting.reports.units import coverage_text, hours, kwh, peak_text, percent, sm_text
from accounting.store.models import LedgerLine, TenantDiscount


def _share(share: Share) -> Document:
    return {
        "policy": share.policy,
        "mem_mib": share.mem_mib,
        "registered_mib": share.registered_mib,
        "memory_ratio": money(six_digits(share.mem_mib, share.registered_mib)),
        "core_percent": share.core_percent,
        "core_ratio": money(six_digits(share.core_percent, 100)),
        "mig": share.mig,
        "own_ratio": money(six_digits(share.own_units, share.whole)),
    }


def _neighbour(one: Neighbour) -> Document:
    return {
        "tenant": one.tenant,
        "namespace": one.namespace,
        "pod": one.pod,
        "container": one.container,
        "charged_ppm_ms": one.charged_ppm_ms,
    }


def _step(step: Step) -> Document:
    return {
        "from": at_text(step.from_ms),
        "to": at_text(step.to_ms),
        "own_quantity": step.own_quantity,
        "quantity": step.quantity,
        "card_factor": money(card_factor(step.own_quantity, step.quantity)),
        "share": None if step.share is None else _share(step.share),
        "source": step.source or None,
        "container": step.pod or None,
        "neighbours": [_neighbour(one) for one in step.neighbours],
        "others": {"slices": step.others, "charged_ppm_ms": step.others_charged_ppm_ms},
        "idle_ppm_ms": step.idle_ppm_ms,
        "down_ppm_ms": step.down_ppm_ms,
        "confirmed": step.is_confirmed,
    }


def _discount(version: TenantDiscount) -> Document:
    return {
        "version": version.id,
        "percent": money(version.percent),
        "from": at_text(version.valid_from_ms),
        "to": instant(version.valid_to_ms),
        "recorded_at": at_text(version.recorded_at_ms),
        "supersedes": version.supersedes_id,
        "superseded_at": instant(version.superseded_at_ms),
        "reason": version.reason,
    }


def _line(line: LedgerLine) -> Document:
    return {
        "line": line.id,
        "account": line.account,
        "kind": line.kind,
        "sku": line.sku,
        "cluster": line.cluster,
        "node": line.node,
        "device_uuid": line.device_uuid,
        "model": line.model,
        "namespace": line.namespace,
        "pod": line.pod,
        "container": line.container,
        "from": at_text(line.charge_from_ms),
        "to": at_text(line.charge_to_ms),
        "unit": line.unit,
        "own_quantity": line.own_quantity,
        "discount_quantity": line.own_quantity - line.quantity,
        "quantity": line.quantity,
        "unit_price": money(line.unit_price),
        "discount_percent": money(line.discount_percent),
        "amount": money(line.amount),
        "currency": line.currency,
        "reason": line.reason,
    }


def explanation_document(one: Explanation) -> Document:
    """One line explained."""
    line = one.line
    return {
        **_line(line),
        "tenant": one.tenant,
        "day": local_date(line.day_ms, one.time_zone).isoformat(),
        "time_zone": one.time_zone,
        "state": one.state,
        "price_versions": [price_document(version) for version in one.prices],
        "policy_versions": [policy_document(version) for version in one.policies],
        "discount_versions": [_discount(version) for version in one.discounts],
        "steps": [_step(step) for step in one.steps],
        "measured": [{"hour": at_text(hour.hour_ms), "use": use_document(hour.use)} for hour in one.measured],
        "coverage": None if one.coverage is None else coverage_document(one.coverage),
        "corrects": [_line(origin) for origin in one.origin],
        "reconciliation": {
            "steps": len(one.steps),
            "own_quantity": sum(step.own_quantity for step in one.steps),
            "quantity": sum(step.quantity for step in one.steps),
            "adds_up": one.adds_up,
        },
    }


def _key(row: tuple[LedgerLine, str]) -> Key:
    line, path = row
    # Not its number: a line that is rated again gets another.
    return line.account, path, line.resource_key, line.charge_from_ms, line.kind, line.sku, line.revision


def explanations_document(
    session: Session, viewer: Viewer, lines: Sequence[tuple[LedgerLine, str]], asked: Asked = EVERYTHING
) -> Document:
    """The lines of a day, one page of them explained; only those of the page are swept again."""
    page = page_of(lines, _key, asked)
    found = explain_lines(session, viewer, page.rows)
    return {
        "rows": [explanation_document(one) for one in found],
        "next": page.next,
        "totals": {"lines": len(lines)},
        "reconciliation": {"lines": len(lines), "adds_up": all(one.adds_up for one in found)},
    }


def explanation_table(one: Explanation) -> str:
    """One line explained, for the terminal."""
    return "\n".join([*_heading(one), "", *_steps(one), *_measured(one), *_footing(one), ""])


def _quantity(line: LedgerLine, quantity: int) -> str:
    return kwh(quantity) if line.unit == MJ else hours(quantity)


def _heading(one: Explanation) -> list[str]:
    line, zone = one.line, one.time_zone
    what = f"{line.namespace}/{line.pod} · {line.container}" if line.pod else line.kind
    day = local_date(line.day_ms, zone).isoformat()
    heading = [
        f"line {line.id}: {line.sku} of {one.tenant}, {what}, {day} ({zone}), period {one.state}",
        f"card {line.cluster}/{line.node}/{line.device_uuid}, {line.model or 'of unknown model'}",
    ]
    if line.reason:
        heading.append(f"reason: {line.reason}")
    return [*heading, _amount(one), *_versions(one)]


def _amount(one: Explanation) -> str:
    line = one.line
    unit = "" if line.unit == MJ else " card-hours"
    text = f"{_quantity(line, line.quantity)}{unit}"
    if line.own_quantity != line.quantity:
        own, discount = hours(line.own_quantity), hours(line.own_quantity - line.quantity)
        text = f"own share {own} − sharing discount {discount} = {text}"
    if line.currency is None:
        return f"{text}, showback"
    if line.unit_price is None:
        return f"{text}, amount {money(line.amount) or 'unrated, without a price'} {line.currency}"
    less = "" if line.discount_percent is None else f" less {plain(line.discount_percent)} %"
    return f"{text} × {plain(line.unit_price)} {line.currency}{less} = {money(line.amount)} {line.currency}"


def _versions(one: Explanation) -> list[str]:
    said = []
    for name, chain in (
        ("price", [(v, f"{plain(v.unit_price)} {v.currency} a {v.unit}") for v in one.prices]),
        ("policy", [(v, f"{v.kind} {v.value}") for v in one.policies]),
        ("discount", [(v, f"{plain(v.percent)} %") for v in one.discounts]),
    ):
        for version, value in chain:
            until = "" if version.valid_to_ms is None else f" to {at_text(version.valid_to_ms)}"
            why = f", {version.reason}" if version.reason else ""
            gone = ", superseded" if version.superseded_at_ms is not None else ""
            since = at_text(version.valid_from_ms)
            said.append(f"{name} version {version.id}: {value} from {since}{until}{gone}{why}")
    return said


def _steps(one: Explanation) -> list[str]:
    if not one.steps:
        return []
    zone, rows = one.time_zone, []
    for step in one.steps:
        when = [local_text(step.from_ms, zone), local_text(step.to_ms, zone)]
        quantity = _quantity(one.line, step.quantity)
        if one.line.unit == MJ:
            rows.append([*when, step.source.replace("_", " "), step.pod, quantity])
            continue
        factor = percent(card_factor(step.own_quantity, step.quantity))
        around = [f"{n.namespace}/{n.pod} {hours(n.charged_ppm_ms)}" for n in step.neighbours]
        if step.others:
            around.append(f"{step.others} others {hours(step.others_charged_ppm_ms)}")
        figures = [hours(step.own_quantity), factor, quantity]
        beside = ", ".join(around) or "alone"
        rows.append([*when, _share_text(step.share), *figures, beside, hours(step.idle_ppm_ms)])
    energy = ["FROM", "TO", "FOR", "CONTAINER", "ENERGY"]
    card_time = ["FROM", "TO", "SHARE", "OWN", "FACTOR", "CHARGED", "BESIDE", "IDLE"]
    return [*columns(energy if one.line.unit == MJ else card_time, rows), ""]


def _share_text(share: Share | None) -> str:
    if share is None:
        return ""
    memory = f"memory {share.mem_mib}/{share.registered_mib}"
    own = percent(six_digits(share.own_units, share.whole))
    return f"{own} {share.policy} ({share.mig or memory}, cores {share.core_percent} %)"


def _measured(one: Explanation) -> list[str]:
    if not one.measured:
        return []
    rows = [
        [local_text(hour.hour_ms, one.time_zone), sm_text(hour.use), peak_text(hour.use)]
        for hour in one.measured
    ]
    return [*columns(["HOUR", "SM HOURS", "PEAK"], rows), ""]


def _footing(one: Explanation) -> list[str]:
    notes = []
    for origin in one.origin:
        was = _quantity(origin, origin.quantity)
        notes.append(f"corrects line {origin.id}: {was}, {money(origin.amount)} {origin.currency or ''}")
    if one.coverage is not None:
        notes.append(f"coverage {coverage_text(one.coverage)} of the card's day is confirmed")
    if one.is_rated:
        total = _quantity(one.line, sum(step.quantity for step in one.steps))
        held = "adds up to the line" if one.adds_up else "is not the line: facts came after it was made"
        notes.append(f"{len(one.steps)} steps: {total}, which {held}")
    return notes
