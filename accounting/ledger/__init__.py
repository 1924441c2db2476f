"""The ledger's arithmetic, pure: merging witnesses, sweeping a card, pricing, rounding.

Values in, values out: no session, no clock, no framework.
"""
