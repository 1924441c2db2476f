"""What the store raises on purpose."""

from __future__ import annotations


class StoreError(Exception):
    """A database that cannot be used as it is; the message says what to do."""
