from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import InvalidError
from accounting.reports.paging import Asked, Key, page_of

keys = st.tuples(st.integers(-9, 9), st.text("abc", max_size=2))


def same(key: Key) -> Key:
    return key


@given(st.sets(keys), st.integers(1, 4), st.lists(keys))
def test_walking_all_pages_while_rows_are_added_returns_every_old_row_once(
    old: set[tuple[int, str]], limit: int, added: list[tuple[int, str]]
) -> None:
    rows: set[Key] = set(old)
    seen: list[Key] = []
    cursor = None
    while True:
        page = page_of(sorted(rows), same, Asked(limit, cursor))
        assert len(page.rows) <= limit
        seen += page.rows
        cursor = page.next
        if cursor is None:
            break
        rows.update(added[:1])
        added = added[1:]
    assert len(seen) == len(set(seen))
    assert old <= set(seen)
    assert seen == sorted(seen)


@pytest.mark.parametrize("cursor", ["", "%%%", "e30", "WzEsMl0", "WyJhIiwiYiJd", "é"])
def test_cursor_of_another_list_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidError, match="cursor"):
        page_of([(1, "a")], same, Asked(1, cursor))


def test_everything_is_one_page() -> None:
    page = page_of([(1, "a"), (2, "b")], same, Asked())
    assert (list(page.rows), page.next) == ([(1, "a"), (2, "b")], None)
