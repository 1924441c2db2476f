"""State and outbox in one SQLite file, and the push of facts to accounting."""
