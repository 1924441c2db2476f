"""Which XIDs take a card out of service, and which are the application's own fault.

The list stands once; it decides whether the exporter reports a card as down.
"""

from __future__ import annotations

APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""Errors a program causes to itself; the card goes on. Source: `reference/ledger.md §2`."""


def is_fatal(code: int) -> bool:
    """Whether a critical XID means the device is down until it is reset."""
    return code not in APPLICATION_XIDS
