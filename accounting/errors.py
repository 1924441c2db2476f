"""Accounting's one exception tree: what may go wrong because of what someone asked for or sent.

The command line prints the message as one line and exits with 2; the API answers it as a problem. So a
message names the thing, the place and the way out, and never holds a secret.
"""

from __future__ import annotations


class AccountingError(Exception):
    """Base of everything accounting raises on purpose."""


class NotFoundError(AccountingError):
    """No such thing, or none that the asker may see: the two look alike."""


class ConflictError(AccountingError):
    """It contradicts what is already there."""


class InvalidError(AccountingError):
    """It cannot be right, whatever is already there."""
