"""A month of the ledger as files for other programs: CSV, JSON, Parquet, and FOCUS.

Invariant: the same ledger gives the same bytes, on either database and whenever it is asked; a file bears
its name only when it is whole.
"""
