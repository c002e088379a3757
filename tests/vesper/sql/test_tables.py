"""Which tables a query reads, and which texts are refused because that is not certain."""

from __future__ import annotations

import pytest

from lyra.vesper.sql.tables import query_columns, query_tables, table_problem
from lyra.vesper.sql.tokens import SqlRefused, sql_tokens
from lyra.vesper.values.limits import SQL_NESTING_MAX
from tests.cases import each


@each(
    [
        ("SELECT 1", ""),
        ("SELECT 1 /* FROM x */", ""),
        ("select x from main.a -- FROM c", "main.a"),
        ('SELECT * FROM "a"', "a"),
        ('SELECT * FROM "A", B', "A b"),
        ("SELECT * FROM [a] JOIN `b` ON 1", "a b"),
        ("SELECT s.id FROM users u, secrets s", "users secrets"),
        ("SELECT s.id FROM users AS u, secrets AS s", "users secrets"),
        ("SELECT * FROM a NATURAL LEFT OUTER JOIN b CROSS JOIN c, d", "a b c d"),
        ("SELECT * FROM a JOIN b ON left(a.x, 1) = b.x LEFT JOIN c USING (x) WHERE a.y > 1", "a b c"),
        ("SELECT * FROM (a JOIN b ON 1) x, (c)", "a b c"),
        ("SELECT * FROM a, LATERAL (SELECT * FROM b) l", "a b"),
        ("SELECT * FROM a, generate_series(1, 3) n(x)", "a"),
        ("SELECT (SELECT max(x) FROM b) FROM a WHERE EXISTS (SELECT 1 FROM c)", "a b c"),
        ("SELECT * FROM a WHERE x IN (SELECT y FROM b) AND z NOT IN c AND w IN main.d", "a b c main.d"),
        ("SELECT * FROM a WHERE x IS NOT DISTINCT FROM y", "a"),
        ("SELECT x IS DISTINCT FROM y FROM a", "a"),
        ("SELECT extract(year FROM t), substring(x FROM 1 FOR 2), trim(BOTH ' ' FROM x) FROM a", "a"),
        ("SELECT * FROM a UNION ALL SELECT * FROM b EXCEPT (SELECT * FROM c) ORDER BY 1", "a b c"),
        ("SELECT * FROM ((SELECT * FROM a) UNION SELECT * FROM b) x LIMIT 3", "a b"),
        ("WITH x AS (SELECT * FROM a), y(n) AS (SELECT * FROM x) SELECT * FROM y JOIN b ON 1", "a b"),
        ("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 9) SELECT x FROM n", ""),
        ("WITH secrets AS (SELECT * FROM secrets) SELECT * FROM secrets", "secrets"),
        ("WITH x AS (SELECT 1) SELECT * FROM main.x", "main.x"),
        ("SELECT (WITH x AS (SELECT 1) SELECT * FROM x) FROM a, x", "a x"),
        ("SELECT 1 FROM users WHERE '--' = '--' AND x IN secrets", "users secrets"),
        ("SELECT 'FROM b', 'it''s', \"FROM\", E'\\n' FROM a", "a"),
        ("SELECT count(*) FILTER (WHERE x > 1) OVER (PARTITION BY y ORDER BY z) FROM a WINDOW w AS (ORDER BY x)", "a"),
        (
            "SELECT CAST(x AS numeric(10, 2)), y::text, CASE WHEN (x) THEN (1) END FROM a GROUP BY (x) HAVING (x > 1)",
            "a",
        ),
        ('SELECT comment, "table" FROM a OFFSET 3;', "a"),
        ("SELECT replace(x, 'a', 'b') FROM a FETCH FIRST 3 ROWS ONLY", "a"),
        ("VALUES (1), (2)", ""),
    ]
)
def test_the_tables_that_a_query_reads(query: str, tables: str) -> None:
    assert sorted(query_tables(query).tables) == sorted(tables.split())


@each(
    [
        "",
        "INSERT INTO a SELECT * FROM b",
        "INSERT OR IGNORE INTO a VALUES (1)",
        "REPLACE INTO a VALUES (1)",
        "UPDATE a SET x = 1",
        "DELETE FROM a",
        "DROP TABLE IF EXISTS a",
        "PRAGMA table_info(a)",
        "ATTACH 'x' AS y",
        "EXPLAIN SELECT 1",
        "TABLE secrets",
        "SELECT * FROM (TABLE secrets) x",
        "SELECT 1; DELETE FROM a",
        "WITH x AS (SELECT 1 FROM users WHERE '--'='--') DELETE FROM secrets RETURNING id",
        "WITH x AS (SELECT 1 FROM users) INSERT INTO [secrets] VALUES ('evil') RETURNING id",
        "WITH x AS (SELECT 1 FROM users) DELETE FROM `secrets` RETURNING id",
        "WITH x AS (DELETE FROM secrets RETURNING id) SELECT * FROM x",
        "SELECT * FROM (DELETE FROM secrets RETURNING id) x",
        "SELECT (UPDATE secrets SET x = 1) FROM a",
        "SELECT * INTO copy FROM users",
        "SELECT * FROM users FOR UPDATE",
        "SELECT * FROM users, sqlite_master",
        "SELECT * FROM pg_shadow",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM pragma_table_list",
        "SELECT * FROM lyra_effects",
        "SELECT * FROM 'secrets'",
        "SELECT * FROM a WHERE x IN 'secrets'",
        'SELECT * FROM "*"',
        'SELECT * FROM "a.b"',
        "SELECT * FROM a.b.c",
        "SELECT pg_read_file('/etc/passwd') FROM users",
        "SELECT \"pg_read_file\"('/etc/passwd') FROM users",
        "SELECT pg_catalog.pg_read_file('/etc/passwd') FROM users",
        "SELECT pg_catalog.count(*) FROM users",
        "SELECT load_extension('x') FROM users",
        "SELECT [load_extension]('x') FROM users",
        "SELECT set_config('a', 'b', false), dblink('x') FROM users",
        "SELECT * FROM dblink('x')",
        "SELECT * FROM users window, secrets",
        "SELECT * FROM users offset, secrets",
        "SELECT * FROM users fetch, secrets",
        "SELECT * FROM users indexed, secrets",
        "SELECT * FROM lateral secrets",
        "SELECT 1 FROM users FROM secrets",
        "SELECT 1 WHERE JOIN secrets",
        "SELECT * FROM users ROWS FROM (dblink('x'))",
        "SELECT /* /* */ FROM secrets */ FROM users",
        "SELECT 1 /* FROM users",
        "SELECT E'\\' FROM secrets --' FROM users",
        "SELECT $a$ FROM users $a$",
        "SELECT U&'\\0041' FROM users",
        "SELECT `a` ` (SELECT 1 FROM secrets) ` FROM users",
        "SELECT [a(SELECT 1 FROM secrets)] FROM users",
        "SELECT 'a FROM users",
        "SELECT 1 -- x\r FROM secrets",
        "SELECT 1 FROM u\u017fers",
        "\u017fELECT 1",
        "SELECT (1 FROM users",
        "SELECT 1) FROM users",
        "SELECT " + "(" * (SQL_NESTING_MAX + 1) + "1" + ")" * (SQL_NESTING_MAX + 1),
    ]
)
def test_what_is_not_certain_is_refused(query: str) -> None:
    with pytest.raises(SqlRefused) as caught:
        query_tables(query)
    assert caught.value.message


def test_a_refused_change_says_which_steps_change_rows() -> None:
    for query in ("DELETE FROM a", "WITH x AS (SELECT 1) DELETE FROM a", "WITH x AS (DELETE FROM a) SELECT 1"):
        with pytest.raises(SqlRefused) as caught:
            query_tables(query)
        assert "database_update" in caught.value.hint


def test_names_of_tables() -> None:
    assert not table_problem("users")
    assert not table_problem("shop.users")
    for name in ("", "*", "a b", "a.b.c", "sqlite_master", "lyra_effects", "pg_catalog.users", 'a"b'):
        assert table_problem(name), name


def test_tokens_keep_quoted_texts_whole() -> None:
    tokens = sql_tokens("SELECT 'a''b', \"c\"\"d\", :p0, 1.5e3 -- end")
    values = [(token.kind, token.value) for token in tokens if token.kind not in ("word", "operator")]
    assert values == [("text", "a'b"), ("name", 'c"d'), ("placeholder", ":p0"), ("number", "1.5e3")]


@each(
    [
        ("SELECT a, s.B, c AS d, count(*) AS n FROM s", "a b d n"),
        ('SELECT DISTINCT "A" FROM s UNION SELECT b FROM t', "a"),
        ("SELECT 1 AS one", "one"),
        ("SELECT * FROM s", None),
        ("SELECT s.* FROM s", None),
        ("SELECT a, count(*) FROM s", None),
        ("SELECT a b FROM s", None),
        ("WITH x AS (SELECT a FROM s) SELECT a FROM x", None),
        ("SELECT a FROM (", None),
    ]
)
def test_the_columns_that_a_query_gives(query: str, columns: str | None) -> None:
    """None where a name is not written out."""
    assert query_columns(query) == (None if columns is None else tuple(columns.split()))
