"""The ledger of the periods' tests, to be exported."""

from tests.accounting.periods.conftest import ledger, october

__all__ = ["ledger", "october"]
