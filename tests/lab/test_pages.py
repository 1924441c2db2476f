"""Pages as the checks read them: what is not there is absent."""

from __future__ import annotations

import pytest

from lab.pages import Album, parse_page

TEXT = """\
# HELP slicemeter_slice_processes Living GPU processes of the slice.
# TYPE slicemeter_slice_processes gauge
slicemeter_slice_processes{pod="a",tenant="x"} 2
slicemeter_slice_processes{pod="b",tenant="x"} 3
# HELP slicemeter_push_total Batches.
# TYPE slicemeter_push_total counter
slicemeter_push_total{result="ok"} 7
"""


def test_series_are_found_by_part_of_their_labels_and_absent_ones_are_none() -> None:
    page = parse_page(TEXT, 5.0)

    assert page.value("slice_processes", pod="a") == 2
    assert page.total("slice_processes", tenant="x") == 5
    assert page.value("push_total", result="ok") == 7
    assert page.value("slice_processes", pod="c") is None
    assert page.value("node_lock_held") is None


def test_an_ambiguous_question_is_refused() -> None:
    with pytest.raises(ValueError, match="2 series match slice_processes"):
        parse_page(TEXT, 5.0).value("slice_processes", tenant="x")


def test_an_album_keeps_pages_in_order_and_no_more_than_it_was_told() -> None:
    album = Album(keep=2)
    for at_s in (1.0, 2.0, 3.0):
        album.add("node", parse_page(TEXT, at_s))

    assert [page.at_s for page in album.pages("node")] == [2.0, 3.0]
    assert album.pages("other") == ()
