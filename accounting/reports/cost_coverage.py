"""How much of the presence behind a cost report was confirmed.

Over the cards that its lines speak of. A report that no tenant, namespace or node narrows speaks of whole
clusters: then it is over all cards of the clusters that it has lines of, from sums that are kept by the
hour, since a large cluster's lines are too many to be asked for their cards. Invariant: of closed months it
is what was sealed with them, whatever came later.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer
from accounting.ledger.intervals import Interval
from accounting.periods.coverage import Coverage, coverage_of
from accounting.periods.sealed import read_sealed
from accounting.reports.grouping import Filters
from accounting.store.models import BillingPeriod, LedgerLine, RollupHour
from accounting.store.walls import CARDS, seeing
from contract.units import PPM

_OF_CLUSTERS = frozenset({"account", "cluster", "model"})
_SEALS_KEPT = 256

_sealed: OrderedDict[str, Mapping[str, Coverage]] = OrderedDict()
"""By the hash of a closed period, by cluster: its document names every card, and never changes."""


def speaks_of_clusters(viewer: Viewer, filters: Filters) -> bool:
    """Whether a report has the lines of whole clusters, or of all cards of a model in them."""
    return viewer.sees_everything and filters.tenant is None and filters.columns().keys() <= _OF_CLUSTERS


def coverage_of_clusters(
    session: Session, windows: Sequence[tuple[str, Interval]], model: str | None
) -> Coverage:
    """Over all cards of clusters.

    Args:
        session: A reading transaction.
        windows: Clusters, and from when to when; one that is named twice counts once.
        model: Only cards of this one.
    """
    confirmed_ms = present_ms = 0
    hour = RollupHour
    for cluster, (start, end) in sorted(set(windows)):
        query = select(func.sum(hour.confirmed_ms), func.sum(hour.present_ppm_ms // PPM)).where(
            hour.cluster == cluster, hour.hour_ms >= start, hour.hour_ms < end
        )
        if model is not None:
            query = query.where(hour.model == model)
        with seeing(session, CARDS):
            confirmed, present = session.execute(query).one()
        confirmed_ms += int(confirmed or 0)
        present_ms += int(present or 0)
    return Coverage(confirmed_ms, present_ms)


def sealed_coverage(session: Session, closed: Iterable[BillingPeriod], cluster: str | None) -> Coverage:
    """Over all cards that closed months have lines of.

    Args:
        session: A reading transaction.
        closed: The months.
        cluster: Only cards of this one.
    """
    parts = [
        coverage
        for period in closed
        for name, coverage in _sealed_by_cluster(session, period).items()
        if cluster in {None, name}
    ]
    return Coverage(sum(one.confirmed_ms for one in parts), sum(one.present_ms for one in parts))


def _sealed_by_cluster(session: Session, period: BillingPeriod) -> Mapping[str, Coverage]:
    assert period.sha256 is not None
    known = _sealed.get(period.sha256)
    if known is None:
        sealed = read_sealed(session, period)
        found: dict[str, list[int]] = {}
        for one in () if sealed is None else sealed.document.devices:
            sums = found.setdefault(one.cluster, [0, 0])
            sums[0] += one.confirmed_ms
            sums[1] += one.present_ms
        known = {name: Coverage(*sums) for name, sums in found.items()}
        _sealed[period.sha256] = known
        while len(_sealed) > _SEALS_KEPT:
            _sealed.popitem(last=False)
    return known


def coverage_of_lines(
    session: Session, where: Sequence[ColumnElement[bool]], window: Interval, closed: Sequence[BillingPeriod]
) -> Coverage:
    """Over the cards that some lines speak of.

    Args:
        session: A reading transaction.
        where: Conditions on `LedgerLine`.
        window: From when to when.
        closed: The months that it is made of, if all are closed.
    """
    devices = select(LedgerLine.cluster, LedgerLine.node_uid, LedgerLine.device_uuid)
    rows = session.execute(devices.where(*where).distinct()).all()
    if not closed:
        return coverage_of(session, rows, window)
    confirmed_ms = present_ms = 0
    named = {(row[0], row[1], row[2]) for row in rows}
    for period in closed:
        sealed = read_sealed(session, period)
        if sealed is not None:
            confirmed, present = sealed.coverage(named)
            confirmed_ms += confirmed
            present_ms += present
    return Coverage(confirmed_ms, present_ms)
