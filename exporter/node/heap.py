"""Keeps Python's cyclic garbage collector out of the ticks.

A tick makes tens of thousands of objects and lets go of nearly as many, none of them in cycles; yet each
few hundred make the collector look, and now and then at all that the program has. Invariant: what stands
when `settle` is called is never looked at again, so it is called once everything long-lived is there.
"""

from __future__ import annotations

import gc
from typing import Final

_YOUNG: Final = 20_000
"""New objects that are still there before the youngest are looked at: far more than a tick leaves."""
_OLDER: Final = 10
_OLDEST: Final = 50


def settle() -> None:
    """Collect once, take what is left as there for good, and look seldom from now on."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _OLDER, _OLDEST)
