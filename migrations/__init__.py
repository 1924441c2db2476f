"""Alembic migrations, packed in the wheel."""
