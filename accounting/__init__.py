"""The accounting service: facts in, ledger lines and statements out.

Layers: api, then services (reports, periods), then domains (facts, prices, tenants, access), then store.
`ledger` is pure arithmetic: no session, no clock, no framework.
"""
