"""The PostgreSQL store: connecting, secrets, migrations, durability, a server that goes away."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from lyra.errors import ConfigError, Conflict, Corrupt, StoreError, StoreFull
from lyra.store import open_store
from lyra.store.migrations import LATEST, migration_crc
from lyra.store.postgres import _APPEND_MANY, _APPEND_ONE, PostgresStore
from lyra.store.protocol import Lease
from lyra.testing.conformance import records
from verify.servers import PostgresServer


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(postgres_url)
    yield store
    store.close()


def execute(store: PostgresStore, *statements: str) -> None:
    """Change a store's tables behind its back."""
    url = store_url(store)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"SET search_path TO {store.schema}".encode())
        for statement in statements:
            connection.execute(statement.encode())


def store_url(store: PostgresStore) -> str:
    assert store._connection is not None
    info = store._connection.info
    return f"postgresql:///{info.dbname}?host={info.host}&user={info.user}"


# ---------------------------------------------------------------- connecting
@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@127.0.0.1:1/db",
        "postgresql://127.0.0.1:1/db?user=me&password=hunter2&schema=s",
        "postgresql://me:hunter2@host.invalid/db?connect_timeout=1",
    ],
)
def test_no_server_is_an_error_without_the_password(url: str) -> None:
    """A server that is not there is a StoreError with a sentence and a hint, and no secret in any of it."""
    with pytest.raises(StoreError, match="cannot connect") as caught:
        PostgresStore(url)
    assert caught.value.hint
    assert not caught.value.retryable
    assert "hunter2" not in caught.value.render() + repr(caught.value.fields) + repr(caught.value.__cause__)


@pytest.mark.parametrize(
    "url",
    ["postgresql://me:hunter2@host:port/db", "postgresql://h/db?hunter2=1", "postgresql://me:hunter2%zz@h/db"],
)
def test_a_url_that_cannot_be_read_is_told_without_quoting_it(url: str) -> None:
    """A mistake in the URL is an error that does not repeat what may be the password."""
    with pytest.raises((ConfigError, StoreError)) as caught:
        PostgresStore(url)
    assert "hunter2" not in caught.value.render()


def test_the_location_has_no_password(postgres_url: str) -> None:
    """`location` tells host, database and schema only; the server trusts the socket, so any password connects."""
    store = PostgresStore(postgres_url + "&password=hunter2")
    assert "hunter2" not in store.location
    assert store.location.endswith(f"/postgres?schema={store.schema}")
    store.close()


def test_settings_that_cannot_be_are_config_errors(postgres_url: str) -> None:
    """An unknown durability and a schema that is no name are ConfigErrors."""
    with pytest.raises(ConfigError, match="durability"):
        PostgresStore(postgres_url, durability="eternal")
    for name in ("Robert'); DROP TABLE", "a b", "ü", "x" * 64):
        with pytest.raises(ConfigError, match="schema"):
            PostgresStore(postgres_url, schema=name)


def test_a_missing_driver_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without psycopg the error names the pip command."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError) as caught:
        open_store("postgresql://localhost/db")
    assert caught.value.hint == "install it with: pip install 'lyra-agents[postgres]'"


def test_schemas_are_separate_stores(postgres_url: str, store: PostgresStore) -> None:
    """Two schemas of one database know nothing of each other; the argument wins over the URL."""
    other = PostgresStore(postgres_url, schema=f"{store.schema}_b")
    other.append(records(1, 3), 0)
    assert (store.last_seq(), other.last_seq()) == (0, 3)
    other.close()


def test_a_schema_may_be_called_like_a_word_of_sql(postgres_url: str) -> None:
    """`?schema=user` is a store like any other."""
    with closing(PostgresStore(postgres_url, schema="user")) as made:
        made.append(records(1, 3), 0)
    with closing(PostgresStore(postgres_url, schema="user")) as again:
        assert again.last_seq() == 3


@pytest.mark.parametrize("is_slow", [False, True])
def test_an_owner_that_is_held_in_the_middle_of_a_change_keeps_nobody_out(
    postgres_url: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch, is_slow: bool
) -> None:
    """The server ends a change that stands still, of a lease or a snapshot alike: the next owner gets the lease, and
    the first one is fenced when it goes on. A change that only takes its time is not ended as soon."""
    monkeypatch.setattr("lyra.store.postgres._HELD_LONG_MS", 3_000)
    lease = store.acquire("first", now=0.0, ttl_s=1.0)
    store.append(records(1, 3), lease.epoch)
    taken: list[float] = []
    change = store._fence if is_slow else store._put_lease

    def hold(*args: Any) -> Any:
        """Stand still where the lock is held, until another owner has the lease."""
        if not taken:
            began = time.monotonic()
            with closing(PostgresStore(postgres_url)) as other:
                assert other.acquire("second", now=10.0, ttl_s=100.0).epoch == lease.epoch + 1
            taken.append(time.monotonic() - began)
        return change(*args)

    monkeypatch.setattr(store, "_fence" if is_slow else "_put_lease", hold)
    with pytest.raises(Conflict):
        if is_slow:
            store.save_snapshots(3, {"p1": b"x"}, lease.epoch)
        else:
            store.renew(lease, now=0.5, ttl_s=1.0)
    assert (2.5 if is_slow else 1.5) < taken[0] < 20.0
    monkeypatch.undo()
    with pytest.raises(Conflict):
        store.append(records(4, 1), lease.epoch)
    assert store.load_snapshots().states == {}


# ---------------------------------------------------------------- migrations
def test_an_old_store_is_upgraded(postgres_url: str, store: PostgresStore) -> None:
    """A store of migration 1 gets the later tables when opened, and keeps its rows."""
    store.append(records(1, 5), 0)
    execute(
        store,
        *("DROP TABLE blobs", "DROP TABLE identity", "DROP TABLE signatures"),
        "ALTER TABLE journal DROP COLUMN signature",
        "DELETE FROM migrations WHERE number > 1",
    )
    again = PostgresStore(postgres_url)
    assert again.get_blob(again.put_blob(b"large")) == b"large"
    assert list(again.read()) == records(1, 5)
    again.close()


def test_a_store_of_a_newer_lyra_is_refused(postgres_url: str, store: PostgresStore) -> None:
    """A higher migration number is told as such, with what to do."""
    number = LATEST + 1
    execute(store, f"INSERT INTO migrations VALUES ({number}, 'later', {migration_crc(number, 'later')})")
    with pytest.raises(StoreError, match="written by a newer Lyra"):
        PostgresStore(postgres_url)


def test_a_schema_of_something_else_is_refused(postgres_url: str) -> None:
    """A schema that holds other tables of our names is left as it is."""
    plain_url = postgres_url.partition("&schema")[0]
    with psycopg.connect(plain_url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA elsewhere")
        connection.execute("CREATE TABLE elsewhere.journal (x int)")
    with pytest.raises(StoreError, match="already exists"):
        PostgresStore(postgres_url, schema="elsewhere")
    with psycopg.connect(plain_url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'elsewhere'").fetchall()
    assert tables == [("journal",)]


# ---------------------------------------------------------------- trouble
@pytest.mark.parametrize(
    ("code", "words"),
    [("53100", "no space"), ("XX000", "could not extend file: Disk quota exceeded"), ("58030", "File too large")],
)
def test_a_full_disk_loses_nothing_and_passes(store: PostgresStore, code: str, words: str) -> None:
    """The server's "disk full" is StoreFull, nothing of the batch is there, and later it goes in."""
    store.append(records(1, 2), 0)
    execute(
        store,
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN IF NEW.seq = 3 THEN RAISE '{words}' USING ERRCODE = '{code}'; END IF; RETURN NEW; END $$",
        "CREATE TRIGGER full_disk BEFORE INSERT ON journal FOR EACH ROW EXECUTE FUNCTION full_disk()",
    )
    with pytest.raises(StoreFull):
        store.append(records(3, 5), 0)
    assert list(store.read()) == records(1, 2)
    execute(store, "DROP TRIGGER full_disk ON journal")
    store.append(records(3, 5), 0)
    assert store.last_seq() == 7


def test_a_change_behind_our_back_is_noticed(store: PostgresStore) -> None:
    """Rows, states and lease are verified here too, whatever the server thinks of them."""
    store.append(records(1, 60), 0)
    store.save_snapshots(3, {"a": b"1"}, 0)
    execute(
        store,
        "UPDATE journal SET data = 'x' WHERE seq = 1",
        "UPDATE snapshots SET data = ''",
        "UPDATE lease SET epoch = 4",
    )
    assert len(store.check()) == 3
    for use in (lambda: list(store.read()), store.load_snapshots, store.holder):
        with pytest.raises(Corrupt):
            use()


def test_a_missing_table_is_corrupt(store: PostgresStore) -> None:
    """A table of ours that is gone is damage."""
    execute(store, "DROP TABLE snapshots")
    with pytest.raises(Corrupt):
        store.load_snapshots()


def test_text_the_server_cannot_hold_is_refused(store: PostgresStore) -> None:
    """PostgreSQL has no NUL in text: such a state is a StoreError, not a Conflict, and the store goes on."""
    store.append([(1, 1.0, "p\0", "k", b"")], 0)  # inside a batch it is bytes
    with pytest.raises(StoreError) as caught:
        store.save_snapshots(1, {"p\0": b""}, 0)
    assert not isinstance(caught.value, Conflict)
    assert [row.pid for row in store.read()] == ["p\0"]


USES: dict[str, Callable[[PostgresStore, Lease], object]] = {
    "append": lambda store, lease: store.append(records(2, 1), lease.epoch),
    "append nothing": lambda store, lease: store.append([], lease.epoch),
    "read": lambda store, _: list(store.read()),
    "last_seq": lambda store, _: store.last_seq(),
    "save_snapshots": lambda store, lease: store.save_snapshots(1, {"p": b"s"}, lease.epoch),
    "load_snapshots": lambda store, _: store.load_snapshots(),
    "put_blob": lambda store, _: store.put_blob(b"x"),
    "get_blob": lambda store, _: store.get_blob(store.put_blob(b"y")),
    "acquire": lambda store, _: store.acquire("next", now=1e12, ttl_s=9.0),
    "renew": lambda store, lease: store.renew(lease, now=None, ttl_s=9.0),
    "release": lambda store, lease: store.release(lease),
    "holder": lambda store, _: store.holder(),
    "identity": lambda store, _: store.identity(),
    "clock_s": lambda store, _: store.clock_s(),
    "check": lambda store, _: store.check(),
    "compact": lambda store, lease: store.compact(before=1e12, epoch=lease.epoch),
}


@pytest.mark.parametrize("use", USES)
def test_a_lost_connection_is_made_again(store: PostgresStore, caplog: pytest.LogCaptureFixture, use: str) -> None:
    """The server drops the connection: the call that meets it connects again and does its work; a log line tells."""
    lease = store.acquire("me", now=None, ttl_s=60.0)
    store.append(records(1, 1), lease.epoch)
    assert store._connection is not None
    pid = store._connection.info.backend_pid
    with psycopg.connect(store_url(store), autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
    USES[use](store, lease)
    assert store._connection.info.backend_pid != pid
    assert store._ask("SHOW search_path") == [(store.schema,)]
    assert store._ask("SHOW synchronous_commit") == [("local",)]
    assert any("connecting again" in record.getMessage() for record in caplog.records)
    assert store.check() == []


def test_a_closed_store_says_so(store: PostgresStore) -> None:
    """Every use after close is a StoreError; closing twice is harmless."""
    store.close()
    store.close()
    with pytest.raises(StoreError, match="is closed"):
        store.append(records(1, 1), 0)


# ---------------------------------------------------------------- durability
def test_process_waits_for_the_servers_own_disk(store: PostgresStore) -> None:
    """`process` commits are flushed on the server, and appends are never made on the loop."""
    assert store._ask("SHOW synchronous_commit") == [("local",)]
    assert store.inline is False


def test_power_is_refused_where_it_cannot_be_kept(postgres_url: str) -> None:
    """A server without fsync is told apart before anything is promised."""
    with pytest.raises(ConfigError, match="fsync=off"):
        PostgresStore(postgres_url, durability="power")


def test_power_on_a_server_that_then_dies(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fsync `power` is accepted; when the server is gone, uses and new connections are StoreErrors."""
    monkeypatch.setattr("lyra.store.postgres.STORE_RECONNECT_S", 2.0)
    with PostgresServer(fsync=True) as server:
        url = server.url
        store = PostgresStore(url, durability="power")
        assert store._ask("SHOW synchronous_commit") == [("on",)]
        store.append(records(1, 3), 0)
        assert store.schema == "lyra"
    with pytest.raises(StoreError, match=r"is lost.*did not come back within 2 s"):
        store.append(records(4, 1), 0)
    store.close()
    with pytest.raises(StoreError, match="cannot connect"):
        PostgresStore(url)


# ---------------------------------------------------------------- what an append costs
@pytest.mark.parametrize("batches", [1, 3])
def test_an_append_does_not_read_the_journal(store: PostgresStore, batches: int) -> None:
    """The last row is found by the key: a commit costs the same, however long the journal is."""
    lease = store.acquire("owner", now=None, ttl_s=60.0)
    fill = "INSERT INTO journal SELECT number, 1, 'data', 0, '' FROM generate_series(1, 20000) AS number"
    execute(store, fill, "ANALYZE journal")
    row = (20_001, 1, b"data", 0, b"")
    values = row if batches == 1 else tuple([value] * batches for value in row)
    statement = _APPEND_ONE if batches == 1 else _APPEND_MANY
    assert store._connection is not None
    lines = store._connection.execute(b"EXPLAIN" + statement, (lease.epoch, *values, 20_000)).fetchall()
    plan = "\n".join(line for (line,) in lines)
    assert "journal_pkey" in plan
    assert "Seq Scan on journal" not in plan


def test_large_batches_are_compressed_with_lz4(store: PostgresStore) -> None:
    """Where the server knows lz4 a large commit is compressed with it: pglz takes ten times as long."""
    lease = store.acquire("owner", now=None, ttl_s=60.0)
    known = store._ask("SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression'")
    if known != [(True,)]:
        pytest.skip("this server does not know lz4")
    store.append(records(1, 1_000), lease.epoch)
    assert store._ask("SELECT DISTINCT pg_column_compression(data) FROM journal") == [("lz4",)]
    assert len(list(store.read())) == 1_000
