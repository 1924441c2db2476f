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
    # Turned round, a sort keeps equals in their order all the same.
    by_remainder = sorted(range(len(weights)), key=remainders.__getitem__, reverse=True)
    for index in by_remainder[:left]:
        parts[index] += 1
    return parts
