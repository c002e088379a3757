"""Rights of SQL: a step touches the tables that its rights name, on SQLite and on a real PostgreSQL server."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager

import psycopg
import pytest

from lyra import vesper
from lyra.vesper.effects import database as database_module
from lyra.vesper.effects.database import open_database
from lyra.vesper.effects.request import EffectError
from lyra.vesper.loading import ERROR
from lyra.vesper.sql.tables import QueryTables

TABLES = """
CREATE TABLE users (id TEXT PRIMARY KEY, name TEXT);
CREATE TABLE orders (id TEXT, owner TEXT REFERENCES users (id) ON UPDATE CASCADE);
CREATE TABLE secrets (id TEXT);
CREATE VIEW names AS SELECT name FROM users;
INSERT INTO users VALUES ('1', 'Ada');
INSERT INTO orders VALUES ('o1', '1');
INSERT INTO secrets VALUES ('TOPSECRET');
"""
NODE = """\
node_id: reading_v1
type: function
intent: read rows
inputs: {x: string}
outputs: {success: {rows: any}}
security: {capabilities_required: [RIGHTS]}
flow:
  - {step: look, operation: database_query, query: "QUERY", output: rows}
"""
WRITES = (
    "WITH x AS (SELECT 1 FROM users WHERE '--'='--') DELETE FROM secrets RETURNING id",
    "WITH x AS (DELETE FROM secrets RETURNING id) SELECT id FROM x",
    "SELECT id FROM users; DELETE FROM secrets",
    "INSERT INTO secrets VALUES ('evil') RETURNING id",
)
OTHER_TABLES = (
    "SELECT s.id FROM users u, secrets s",
    "SELECT s.id FROM users AS u, secrets AS s",
    "SELECT s.id FROM users u JOIN secrets s ON true",
    "SELECT id FROM users WHERE EXISTS (SELECT 1 FROM secrets)",
    "WITH x AS (SELECT id FROM secrets) SELECT id FROM x",
    "SELECT (SELECT count(*) FROM secrets) AS n FROM users",
)


def node_text(query: str, *rights: str) -> str:
    return NODE.replace("RIGHTS", ", ".join(rights)).replace("QUERY", query.replace("\\", "\\\\"))


def codes(text: str) -> set[str]:
    from lyra.vesper.check.judge import check_text

    return {issue.code for issue in check_text(text, "x.vsp") if issue.severity == ERROR}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    """A database with users, their orders, secrets and a view."""
    if request.param == "sqlite":
        path = tmp_path / "rows.db"
        with sqlite3.connect(path) as connection:
            connection.executescript(TABLES)
        connection.close()
        return f"sqlite:///{path}"
    server = request.getfixturevalue("postgres_server")
    with psycopg.connect(server.url, autocommit=True) as session:
        session.execute("DROP TABLE IF EXISTS orders, secrets, lyra_effects; DROP TABLE IF EXISTS users CASCADE")
        session.execute(TABLES)
    return server.url


def secrets_in(url: str) -> list[str]:
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            rows = connection.execute("SELECT id FROM secrets").fetchall()
        connection.close()
    else:
        with psycopg.connect(url) as session:
            rows = session.execute("SELECT id FROM secrets").fetchall()
    return [row[0] for row in rows]


@contextmanager
def without_reader(monkeypatch, *tables: str):
    """The guard alone: the reader of queries takes every text for a query of these tables."""
    with monkeypatch.context() as patched:
        patched.setattr(database_module, "query_tables", lambda _: QueryTables(tables))
        yield


@pytest.mark.parametrize("query", OTHER_TABLES)
def test_each_table_of_a_query_needs_its_right(query):
    assert codes(node_text(query, "database.read.users")) == {"undeclared_capability"}
    assert not codes(node_text(query, "database.read.users", "database.read.secrets"))


@pytest.mark.parametrize("query", WRITES)
def test_a_query_that_writes_is_an_error(query):
    assert codes(node_text(query, "database.*")) == {"query_refused"}


def test_functions_that_do_more_than_compute_are_errors():
    for call in ("pg_read_file('/etc/passwd')", "dblink('x')", "set_config('a', 'b', false)", "load_extension('x')"):
        assert codes(node_text(f"SELECT {call}, id FROM users", "database.read.users")) == {"query_refused"}


@pytest.mark.parametrize("mode", ["python_only", "direct_only", "dual_verify"])
def test_a_step_runs_with_the_rights_to_all_its_tables(url, mode):
    query = "SELECT o.id AS id FROM users u, orders o WHERE u.name = {x} AND o.owner = u.id"
    node = vesper.load(node_text(query, "database.read.users", "database.read.orders"))
    with vesper.Runtime(database=url, grant=["database.read.users", "database.read.orders"]) as runtime:
        outcome = runtime.execute(node, {"x": "Ada"}, mode)
        assert outcome.error is None, outcome.error
        assert outcome.outputs["rows"] == [{"id": "o1"}]
    with vesper.Runtime(database=url, grant=["database.read.users"]) as runtime:
        assert runtime.execute(node, {"x": "Ada"}, mode).error.code == "capability_denied"


@pytest.mark.parametrize("query", [*OTHER_TABLES, *WRITES])
def test_the_door_asks_for_every_table_of_the_text(url, query, monkeypatch):
    """A node that the checker let through by mistake still reads and writes nothing without a right."""
    from lyra.vesper.check import effects

    text = node_text(query, "database.read.users")
    with monkeypatch.context() as patched:
        patched.setattr(effects, "query_tables", lambda _: QueryTables(("users",)))
        node = vesper.load(text)
        with vesper.Runtime(database=url, grant=["database.read.users"]) as runtime:
            outcome = runtime.execute(node, {"x": "Ada"}, "direct_only")
    assert outcome.error is not None
    assert outcome.error.code == "capability_denied"
    assert secrets_in(url) == ["TOPSECRET"]


@pytest.mark.parametrize("query", WRITES)
def test_a_database_sends_no_query_that_writes(url, query):
    database = open_database(url)
    with pytest.raises(EffectError) as caught:
        database.query(query, {})
    assert caught.value.kind == "capability_denied"
    database.close()
    assert secrets_in(url) == ["TOPSECRET"]


@pytest.mark.parametrize("query", WRITES)
def test_the_database_itself_refuses_a_query_that_writes(url, query, monkeypatch):
    """Behind the reader stand SQLite's authorizer, and PostgreSQL's READ ONLY transaction of one statement."""
    database = open_database(url)
    with without_reader(monkeypatch, "users"), pytest.raises(EffectError):
        database.query(query, {})
    assert database.query("SELECT name FROM users", {}) == [{"name": "Ada"}]
    database.close()
    assert secrets_in(url) == ["TOPSECRET"]


def test_two_writing_statements_without_values_are_refused_by_postgresql(postgres_server, monkeypatch):
    """Without values a driver could send a script: COMMIT would end the READ ONLY transaction."""
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS secrets; CREATE TABLE secrets (id TEXT)")
        connection.execute("INSERT INTO secrets VALUES ('TOPSECRET')")
    database = open_database(postgres_server.url)
    with without_reader(monkeypatch), pytest.raises(EffectError):
        database.query("COMMIT; DELETE FROM secrets", {})
    database.close()
    assert secrets_in(postgres_server.url) == ["TOPSECRET"]


@pytest.fixture
def sqlite_url(tmp_path):
    with sqlite3.connect(tmp_path / "rows.db") as connection:
        connection.executescript(TABLES)
    connection.close()
    return f"sqlite:///{tmp_path}/rows.db"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM secrets",
        "SELECT 1 FROM users, sqlite_master",
        "SELECT 1 FROM users WHERE 'TOPSECRET' IN secrets",
        "WITH x AS (SELECT id FROM secrets) SELECT id FROM x",
        "WITH names AS (SELECT id FROM secrets) SELECT id FROM names",
        "SELECT count(*) FROM secrets",
        "SELECT name FROM pragma_table_list",
        "SELECT load_extension('x') FROM users",
        "SELECT hex(randomblob(2)) FROM users",
        "ATTACH ':memory:' AS other",
        "PRAGMA journal_mode",
        "CREATE TEMP VIEW v AS SELECT * FROM secrets",
        "DROP TABLE secrets",
    ],
)
def test_sqlite_is_asked_about_every_table_function_and_command(sqlite_url, query, monkeypatch):
    database = open_database(sqlite_url)
    with monkeypatch.context() as patched:
        patched.setattr(database_module, "query_tables", lambda _: QueryTables(("users",), ("names", "x")))
        with pytest.raises(EffectError) as caught:
            database.query(query, {})
    assert caught.value.kind == "capability_denied", caught.value.message
    assert database.query("SELECT name FROM users", {}) == [{"name": "Ada"}]
    database.close()


def test_a_prepared_statement_does_not_keep_the_rights_of_an_earlier_step(sqlite_url, monkeypatch):
    database = open_database(sqlite_url)
    assert database.query("SELECT id FROM secrets", {}) == [{"id": "TOPSECRET"}]
    with without_reader(monkeypatch, "users"), pytest.raises(EffectError):
        database.query("SELECT id FROM secrets", {})
    database.close()


def test_a_view_is_read_with_the_right_to_the_view(url):
    database = open_database(url)
    assert database.query("SELECT name FROM names", {}) == [{"name": "Ada"}]
    database.close()


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("WITH x AS (SELECT name FROM users) SELECT count(*) AS n FROM x", [{"n": 1}]),
        ("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 3) SELECT sum(x) AS s FROM n", None),
        ("SELECT upper(name) AS name FROM users WHERE name LIKE 'A%' AND 'a:p0 100%' <> ':p0'", [{"name": "ADA"}]),
        ("SELECT max(id) AS id, CURRENT_TIMESTAMP IS NULL AS e FROM (SELECT id FROM users) q", None),
        ("SELECT coalesce(:p0, 'x') AS v, ':p0' AS t FROM users -- :p0", [{"v": "1", "t": ":p0"}]),
    ],
)
def test_queries_that_only_read_their_tables_are_run(url, query, rows):
    database = open_database(url)
    result = database.query(query, {"p0": "1"} if " :p0" in query or "(:p0" in query else {})
    assert result
    assert rows is None or result == rows
    database.close()


def test_changes_touch_their_table_and_what_foreign_keys_join_to_it(url):
    database = open_database(url)
    assert database.change("db.write", {"table": "orders", "data": {"id": "o2", "owner": "1"}}, "k1") == {"rows": 1}
    where = {"sql": '"id" = :p0', "values": {"p0": "1"}}
    change = {"id": {"sql": ":p0", "values": {"p0": "2"}}}
    assert database.change("db.update", {"table": "users", "where": where, "set": change}, "k2") == {"rows": 1}
    assert database.query("SELECT DISTINCT owner FROM orders", {}) == [{"owner": "2"}]
    database.close()


@pytest.mark.parametrize("condition", ["(SELECT count(*) FROM secrets) > 0", "1 IN secrets"])
def test_a_condition_reads_no_other_table_of_sqlite(sqlite_url, condition):
    database = open_database(sqlite_url)
    change = {"name": {"sql": ":p0", "values": {"p0": "x"}}}
    with pytest.raises(EffectError) as caught:
        database.change("db.update", {"table": "users", "where": {"sql": condition, "values": {}}, "set": change}, "k1")
    assert caught.value.kind == "capability_denied"
    database.close()


@pytest.mark.parametrize("table", ["lyra_effects", "sqlite_master", "pg_catalog.pg_class", "a b", "*"])
def test_tables_of_the_database_itself_are_not_written(url, table):
    database = open_database(url)
    with pytest.raises(EffectError) as caught:
        database.change("db.write", {"table": table, "data": {"id": "x"}}, "k1")
    assert caught.value.kind == "capability_denied"
    database.close()
    text = node_text("SELECT 1", "database.*").replace(
        'operation: database_query, query: "SELECT 1", output: rows',
        f'operation: database_write, table: "{table}", data: {{id: "x"}}, output: rows',
    )
    assert "wrong_form" in codes(text)
