"""SQLite judges the reader: of a text that both accept, SQLite touches no table that the reader did not name."""

from __future__ import annotations

import random
import sqlite3

import pytest

from lyra.vesper.sql.tables import query_tables
from lyra.vesper.sql.tokens import SqlRefused
from tests.cases import cases

TABLES = ("users", "secrets", "lateral", "x", "window", "rows", "first")
WORDS_TEXT = """
    SELECT FROM JOIN LEFT NATURAL ON USING WHERE IN NOT IS DISTINCT AS WITH RECURSIVE UNION ALL EXCEPT WINDOW OFFSET
    FETCH LIMIT VALUES LATERAL ONLY INDEXED BY EXISTS CASE WHEN THEN END OVER FILTER MATERIALIZED FOR REPLACE INTO TABLE
    CROSS FULL OUTER LIKE AND OR users users secrets secrets "users" "secrets" [secrets] `secrets` main window rows
    first x id a 1 't' '--' E'x' /**/ . , , ( ) ( ) = * + || count lower max ;
"""
WORDS = WORDS_TEXT.split()
FORMS = (
    "SELECT id FROM users {}",
    "SELECT {} FROM users",
    "SELECT id FROM users WHERE {}",
    "WITH x AS ({}) SELECT {} FROM x",
    "WITH x AS (SELECT id FROM secrets) SELECT {} FROM users {}",
    "SELECT * FROM users {} , secrets",
    "SELECT id FROM users u {} secrets",
    "SELECT (SELECT {}) FROM users {}",
    "SELECT * FROM (SELECT {}) {}",
)
TRIES = cases(30_000)


class Touched:
    """Allows everything, and remembers the tables of a statement."""

    def __init__(self) -> None:
        self.tables: set[tuple[int, str, str]] = set()

    def __call__(self, action: int, first: str | None, second: str | None, *_: object) -> int:
        if action in (sqlite3.SQLITE_READ, sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE):
            self.tables.add((action, (first or "").lower(), second or ""))
        return sqlite3.SQLITE_OK


@pytest.mark.parametrize("seed", range(3))
def test_sqlite_touches_no_table_that_the_reader_did_not_name(seed: int) -> None:
    draw = random.Random(seed)
    connection = sqlite3.connect(":memory:")
    for table in TABLES:
        connection.execute(f'CREATE TABLE "{table}" (id TEXT, a TEXT)')
    touched = Touched()
    connection.set_authorizer(touched)
    accepted = 0
    for _ in range(TRIES):
        query = draw.choice(FORMS)
        while "{}" in query:
            query = query.replace("{}", " ".join(draw.choices(WORDS, k=draw.randint(0, 5))), 1)
        try:
            reading = query_tables(query)
            touched.tables.clear()
            connection.execute("EXPLAIN " + query)
        except (SqlRefused, sqlite3.Error):
            continue
        accepted += 1
        for action, table, column in touched.tables:
            is_named = table in reading.tables or f"main.{table}" in reading.tables
            is_name_of_with = not column and table in reading.with_names
            assert action == sqlite3.SQLITE_READ, query
            assert is_named or is_name_of_with, (query, table)
    connection.close()
    assert accepted > TRIES // 200, "the texts are too wrong to tell anything"
