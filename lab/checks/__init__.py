"""The check table: expected figures from the scenario's data alone, measured ones over HTTP alone.

The two columns meet nowhere else: no code of the exporter or the ledger computes an expected figure,
and no data of the lab fills a measured one.
"""
