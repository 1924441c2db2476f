"""A light list/watch over http.client and msgspec, and the few objects we read with it."""
