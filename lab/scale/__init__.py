"""A month of a large company: thousands of cards, sliced ten ways, for measuring the ledger at size.

`month` is the month as a function of a card's number, so that any part of it can be made again by itself
and nothing is kept; `loading` writes it straight into the tables of facts, past the API, since what is
measured begins after the facts are in.
"""
