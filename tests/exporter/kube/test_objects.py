from __future__ import annotations

import msgspec
import pytest

from exporter.kube.objects import parse_time_ms
from exporter.kube.resources import Unreadable, pods

# 2026-10-01T00:00:00Z is 20,727 days after the epoch: 56 years, 14 leap days, 273 days into 2026.
MIDNIGHT_MS = (56 * 365 + 14 + 273) * 86_400_000


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("2026-10-01T00:00:00Z", MIDNIGHT_MS),
        ("2026-10-01T00:00:01.250000Z", MIDNIGHT_MS + 1_250),
        ("2026-10-01T02:00:00+02:00", MIDNIGHT_MS),
        ("2026-10-01T00:00:00", None),
        ("yesterday", None),
        ("", None),
        (None, None),
    ],
)
def test_times_are_read_as_unix_milliseconds_or_not_at_all(
    text: str | None, milliseconds: int | None
) -> None:
    assert parse_time_ms(text) == milliseconds


@pytest.mark.parametrize(
    ("raw", "uid"),
    [(b'{"metadata":{"uid":"u","name":"a","labels":5}}', "u"), (b'{"metadata":7}', ""), (b"[]", "")],
)
def test_of_an_unreadable_object_the_uid_is_kept_where_it_can_be(raw: bytes, uid: str) -> None:
    decoded = pods().decode(msgspec.Raw(raw))
    assert isinstance(decoded, Unreadable)
    assert decoded.uid == uid


def test_fields_that_we_do_not_need_are_skipped_whatever_they_hold() -> None:
    raw = b'{"metadata":{"name":"a","managedFields":[{"x":[1,{}]}]},"spec":{"volumes":"?"},"x":null}'
    decoded = pods().decode(msgspec.Raw(raw))
    assert not isinstance(decoded, Unreadable)
    assert decoded.metadata.name == "a"
