"""From readings at moments to counters and hour books, exact in whole units."""
