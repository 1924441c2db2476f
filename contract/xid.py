"""Which XIDs take a card out of service.

A card that is down is not charged until it was reset, so a code counts as fatal only if NVIDIA says that the
card itself must be reset or the node restarted. Every other code is shown and changes nothing: a code that
this table does not know yet must not give a working card away. The lists stand once; the exporter and the
alerts both read them.
"""

from __future__ import annotations

FATAL_XIDS = frozenset(
    {
        46,  # GPU stopped processing, its channels cannot be recovered
        48,  # double bit ECC error
        62,  # the power controller halted
        64,  # a row could not be remapped
        79,  # fallen off the bus
        95,  # uncontained ECC error
        110,  # security fault
        119,  # the system processor does not answer
        120,  # error of the system processor
        136,  # NVLink training failed
        140,  # uncorrectable ECC error that escaped
        143,  # the card could not be initialised
        155,  # NVLink error as defined by software
        156,  # a resource was retired, reset to go on
        158,  # fatal timeout
    }
)
"""Immediate action "reset the GPU" or "restart the machine" in NVIDIA's Xid catalog (docs.nvidia.com,
"Analyzing Xid Errors with the Xid Catalog", driver 610). Codes that need more than themselves to be
judged (74, 144-150, 154, 159) are not among them; if such a card cannot go on, NVML or HAMi's health check
says so. Nor is 109: the catalog asks for a reset, but NVIDIA's own device plugin calls it an
application's error (with 13, 31, 43, 45 and 68) and keeps the card in service, as HAMi's does."""


def is_fatal(code: int) -> bool:
    """Whether a critical XID means that the device is down until it is reset."""
    return code in FATAL_XIDS
