"""Keeps Python's cyclic garbage collector out of the ticks, and memory that is free out of the process.

A tick makes tens of thousands of objects and lets go of nearly as many, none of them in cycles; yet each
few hundred make the collector look, and now and then at all that the program has. A page is some megabytes
that are free again a moment later; glibc would keep them. Invariant: what stands when `settle` is called is
never looked at again, so it is called once everything long-lived is there.
"""

from __future__ import annotations

import ctypes
import gc
from typing import Final

_YOUNG: Final = 20_000
"""New objects that are still there before the youngest are looked at: far more than a tick leaves."""
_OLDER: Final = 10
_OLDEST: Final = 50

_PYTHONS_OWN: Final = gc.get_threshold()

_MMAP_THRESHOLD: Final = -3
"""glibc's M_MMAP_THRESHOLD: larger blocks go back to the system when they are freed."""
_LARGE_BYTES: Final = 64 << 10
_ARENA_MAX: Final = -8
_ARENAS: Final = 2
"""Each scrape has a thread of its own, and each thread would like a heap of its own."""


def begin() -> None:
    """Let large blocks go back when they are freed, from the start on."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # glibc; set by hand, the bound does not grow with what was freed
        library.mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        library.mallopt(_ARENA_MAX, _ARENAS)


def settle() -> None:
    """Collect once, take what is left as there for good, and look seldom from now on."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _OLDER, _OLDEST)
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


def end() -> None:
    """Let the collector work as it did before: the process may go on with something else."""
    gc.unfreeze()
    gc.set_threshold(*_PYTHONS_OWN)
