"""The node lock's value: `reference/hami-kubernetes.md §7.1`, read exactly as HAMi reads it."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.hami.annotations.flaw import REASONS_OF
from exporter.hami.annotations.node_lock import NodeLock, parse_node_lock

# 2026-11-30T11:06:44Z: 56 years with 14 leap days and 333 days after 1970, 40,004 s into the day.
ACQUIRED_AT_MS = (20_787 * 86_400 + 40_004) * 1000


def test_both_examples_of_the_reference_are_the_same_instant() -> None:
    assert parse_node_lock("2026-11-30T11:06:44Z") == NodeLock(ACQUIRED_AT_MS, None, None)
    lock = parse_node_lock("2026-11-30T19:06:44+08:00,default,gpumem-pod-a")
    assert lock == NodeLock(ACQUIRED_AT_MS, "default", "gpumem-pod-a")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2026-11-30T11:06:44Z,default", "field_count"),
        ("2026-11-30T11:06:44Z,default,a,b", "field_count"),
        ("not a time", "bad_time"),
        ("2026-11-30 11:06:44Z,default,a", "bad_time"),
        ("2026-11-30T11:06:44,default,a", "bad_time"),
        ("2026-11-30T11:06:44Z\n", "bad_time"),
        ("2026-13-30T11:06:44Z", "bad_time"),
        ("2026-11-30T24:00:00Z", "bad_time"),
        ("20261130T110644Z", "bad_time"),
    ],
)
def test_what_hami_cannot_parse_is_unreadable(text: str, reason: str) -> None:
    lock = parse_node_lock(text)
    assert not lock.is_readable
    assert [error.reason for error in lock.errors] == [reason]


def test_an_owner_is_named_even_when_the_time_is_broken() -> None:
    lock = parse_node_lock("soon,default,pod-a")
    assert (lock.acquired_at_ms, lock.namespace, lock.pod) == (None, "default", "pod-a")


def test_an_empty_text_is_no_lock() -> None:
    assert parse_node_lock("") == NodeLock(None, None, None)


@given(st.one_of(st.text(), st.text(alphabet="0123456789-:TZ+,.a")))
def test_any_text_gives_a_time_or_a_reason(text: str) -> None:
    lock = parse_node_lock(text)
    assert lock.is_readable or lock.errors or text == ""
    assert all(error.reason in REASONS_OF[error.kind] for error in lock.errors)


@given(st.datetimes(), st.integers(-14 * 60, 14 * 60))
def test_any_time_that_go_writes_is_read(moment: dt.datetime, offset_minutes: int) -> None:
    sign, minutes = ("-" if offset_minutes < 0 else "+"), abs(offset_minutes)
    text = f"{moment.isoformat(timespec='seconds')}{sign}{minutes // 60:02}:{minutes % 60:02}"
    assert parse_node_lock(text).errors == ()
