"""What the store raises on purpose."""

from __future__ import annotations

from accounting.errors import AccountingError


class StoreError(AccountingError):
    """A database that cannot be used as it is; the message says what to do."""
