"""The data model in SQLAlchemy, its column types, the engine and transactions."""
