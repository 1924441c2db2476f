"""The golden month: October 2026 in Europe/Berlin, three clusters, totals that can be worked out by hand.

`month` is the scenario, as data. `facts` tells what exporters would have reported of it up to any instant,
`batches` puts that into requests as exporters send them, `books` opens the accounts and sets the prices.
Nothing here computes a share or an amount: what must come out is worked out in the tests.
"""
