"""Many new rows at once: what is written is what was given, on both databases."""

from __future__ import annotations

import hashlib

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, select

from accounting.store.append import append_rows
from accounting.store.database import Database
from accounting.store.models import Quarantine

ROWS = 250
"""More than those for which PostgreSQL is not sent a COPY."""

NAMES = ("cluster", "reason", "detail", "fact", "fact_sha256", "at_ms")
ODD = (
    "\\N",
    "\\",
    "\t",
    "a\tb",
    "line\nfeed",
    "return\r",
    "\\.",
    "None",
    "",
    "\\\\N\t",
    "ü\u2028\N{PILE OF POO}",
)


@given(texts=st.lists(st.sampled_from(ODD) | st.text(st.characters(exclude_characters="\0", codec="utf-8"))))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_comes_back_as_it_was_given(database: Database, texts: list[str]) -> None:
    texts = [*texts, *("plain" for _ in range(ROWS - len(texts)))]
    keys = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(len(texts))]
    with database.writing() as session:
        session.execute(delete(Quarantine))
        rows = [("a", "unknown", text, text, key, 1) for text, key in zip(texts, keys, strict=True)]
        append_rows(session, Quarantine, NAMES, rows)
    with database.reading() as session:
        columns = select(Quarantine.fact_sha256, Quarantine.detail, Quarantine.fact)
        found = {key: (detail, fact) for key, detail, fact in session.execute(columns)}
    assert found == {key: (text, text) for key, text in zip(keys, texts, strict=True)}
