"""What the pods must be charged, worked out by hand on paper and here again."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from lab.checks.card_time import charged_card_seconds
from lab.scenarios.demo import demo


def test_tenant_a_owes_three_tenths_of_a_card_for_each_pod_from_its_bind_to_its_end() -> None:
    # Bound 898, 590 and 200 s before the start, ended 72 s after it.
    assert charged_card_seconds(demo(ends=True).cluster("lab-a")) == {
        "share-a": Fraction(3, 10) * 970,
        "share-b": Fraction(3, 10) * 662,
        "share-c": Fraction(3, 10) * 272,
    }


def test_tenant_b_owes_half_a_card_for_each_pod_and_nothing_for_the_other_card() -> None:
    assert charged_card_seconds(demo(ends=True).cluster("lab-b")) == {
        "share-a": Fraction(960, 2),
        "share-b": Fraction(652, 2),
    }


def test_a_card_booked_beyond_itself_charges_no_more_than_itself() -> None:
    # With the seventh small pod (bound at second 28) the T4 is booked to 1.003125 of itself.
    charged = charged_card_seconds(demo(ends=True).cluster("lab-c"))
    booked = 2 * Fraction(4_000, 15_360) + Fraction(30, 100) + 7 * Fraction(400, 15_360)

    assert booked == Fraction(1_003_125, 1_000_000)
    # small-7 lives from 28 to 72, all of it on the over-booked card.
    assert charged["small-7"] == Fraction(400, 15_360) / booked * 44
    # refused lives from 6 to 16 beside at most two idle pods: no scaling.
    assert charged["refused"] == Fraction(4_000, 15_360) * 10


def test_a_pod_without_an_end_owes_nothing_final() -> None:
    cluster = demo(ends=True).cluster("lab-a")
    endless = replace(cluster, pods=(replace(cluster.pod("share-a"), ended_s=None),))

    with pytest.raises(ValueError, match="share-a has no end"):
        charged_card_seconds(endless)
