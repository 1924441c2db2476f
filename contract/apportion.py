"""Largest remainder: split a whole number by weights so that the parts add up to it exactly.

The exporter splits joules and scales SM time with it, the ledger splits card time and money. One
function, so that two screens can never disagree by a unit.
"""

from __future__ import annotations

from collections.abc import Sequence


def apportion(total: int, weights: Sequence[int]) -> list[int]:
    """Split `total` in proportion to `weights`.

    Every part is first floored; the units left over go one by one to the largest remainders. Ties go
    to the earlier index, so callers sort by a stable key first.

    Args:
        total: A whole number of the smallest unit, not negative.
        weights: Not negative; at least one above 0 unless `total` is 0.

    Returns:
        Whole numbers, as many as weights, whose sum is `total`.

    Raises:
        ValueError: For a negative total or weight, or weights that are all 0 with a total to split.

    Source: `reference/ledger.md §4` (largest remainder).
    """
    if total < 0 or min(weights, default=0) < 0:
        raise ValueError(f"cannot split {total} by {list(weights)}: negative numbers")
    whole = sum(weights)
    if whole == 0:
        if total:
            raise ValueError(f"cannot split {total} by weights that are all 0")
        return [0] * len(weights)
    parts = [total * weight // whole for weight in weights]
    left = total - sum(parts)
    if not left:
        return parts
    remainders = [total * weight % whole for weight in weights]
    # A reversed sort keeps the order of equals.
    by_remainder = sorted(range(len(weights)), key=remainders.__getitem__, reverse=True)
    for index in by_remainder[:left]:
        parts[index] += 1
    return parts


class Apportioner:
    """Splits many totals by the same weights, each as `apportion` does, dividing the weights only once.

    A month of a large cluster has hundreds of millions of parts; nearly all are of a total that is a
    number of equal units (milliseconds of card time), split by weights that stay for a while.
    """

    __slots__ = ("_quotients", "_remainders", "_unit", "_whole")

    def __init__(self, unit: int, weights: Sequence[int]) -> None:
        """Prepare to split multiples of `unit`.

        Args:
            unit: A whole number, not negative.
            weights: Not negative; at least one above 0.

        Raises:
            ValueError: For a negative unit or weight, or weights that are all 0.
        """
        if unit < 0 or any(weight < 0 for weight in weights):
            raise ValueError(f"cannot split multiples of {unit} by {list(weights)}: negative numbers")
        whole = sum(weights)
        if not whole:
            raise ValueError(f"cannot split multiples of {unit} by weights that are all 0")
        pairs = [divmod(unit * weight, whole) for weight in weights]
        self._unit, self._whole = unit, whole
        self._quotients = [quotient for quotient, _ in pairs]
        self._remainders = [remainder for _, remainder in pairs]

    def split(self, count: int) -> list[int]:
        """`apportion(count * unit, weights)`, for a count that is not negative."""
        whole = self._whole
        over = [count * remainder for remainder in self._remainders]
        parts = [
            count * quotient + rest // whole for quotient, rest in zip(self._quotients, over, strict=True)
        ]
        left = count * self._unit - sum(parts)
        if left:
            fractions = [rest % whole for rest in over]
            # Stable also when reversed, so that ties go to the earlier index.
            for index in sorted(range(len(parts)), key=fractions.__getitem__, reverse=True)[:left]:
                parts[index] += 1
        return parts
