"""The declarative base: one metadata, and a name for every constraint.

Named constraints are what a migration can drop and what an error message can show.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from sqlalchemy import CheckConstraint, MetaData, String
from sqlalchemy.orm import DeclarativeBase, mapped_column
from sqlalchemy.types import TypeEngine

from accounting.store.columns import LONG_ID, UnixMs

CODE_LENGTH = 63
"""Codes of clusters and accounts: as long as a Kubernetes label value."""

NAME_LENGTH = 253
"""Kubernetes names, UIDs, UUIDs of devices, tenant keys."""

Ms = Annotated[int, mapped_column(UnixMs())]
"""An instant."""

OptionalMs = Annotated[int | None, mapped_column(UnixMs())]

Code = Annotated[str, mapped_column(String(CODE_LENGTH))]
Name = Annotated[str, mapped_column(String(NAME_LENGTH))]
Word = Annotated[str, mapped_column(String(32))]
"""One word out of a closed list."""


class Base(DeclarativeBase):
    """What every table is made on."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[type, TypeEngine[int] | TypeEngine[str]]] = {
        int: LONG_ID,
        str: String(NAME_LENGTH),
    }


def one_of(column: str, *words: str) -> CheckConstraint:
    """A column that holds one word out of a closed list."""
    listed = ", ".join(f"'{word}'" for word in words)
    return CheckConstraint(f"{column} IN ({listed})", name=f"{column}_known")


def not_negative(*columns: str) -> CheckConstraint:
    """Columns that are 0 or more."""
    return CheckConstraint(" AND ".join(f"{column} >= 0" for column in columns), name="not_negative")
