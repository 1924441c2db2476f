"""Reports for people and programs: usage, cost, capacity, statements as table, CSV, JSON and HTML."""
