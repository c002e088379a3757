"""Damage is told, or a consistent earlier state comes out; never a wrong value."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from lyra.errors import Corrupt
from lyra.store.rows import blob_digest
from lyra.store.sqlite import SqliteStore
from lyra.testing.conformance import records
from tests.cases import cases
from verify.fuzz import damage


def test_damages() -> None:
    """Flipped, overwritten and cut databases and logs open at a consistent prefix or are Corrupt."""
    count = cases(200)
    counts = damage.run(count, seed=7)
    assert sum(counts.values()) == count
    assert set(counts) == {"whole", "prefix", "corrupt"}


def test_the_same_seed_does_the_same_damage() -> None:
    """A round that fails can be run again."""
    assert damage.run(20, seed=3) == damage.run(20, seed=3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "lyra.db"
    store = SqliteStore(path)
    epoch = store.acquire("owner", now=0.0, ttl_s=9.0).epoch
    for first in range(1, 100, 2):
        store.append(records(first, 2), epoch)
    store.save_snapshots(50, {"a": b"1", "b": b"2"}, epoch)
    store.put_blob(b"blob")
    store.close()
    return path


# Each statement is a change that SQLite itself finds nothing wrong with.
SILENT = {
    "data": "UPDATE journal SET data = x'00' WHERE seq = 21",
    "one byte": "UPDATE journal SET data = CAST(replace(hex(data), '702D31', '702D32') AS BLOB) WHERE seq = 21",
    "count": "UPDATE journal SET rows = 1 WHERE seq = 21",
    "count of the last": "UPDATE journal SET rows = 1 WHERE seq = 99",
    "type": "UPDATE journal SET data = 'text' WHERE seq = 21",
    "type of the count": "UPDATE journal SET rows = 'ten' WHERE seq = 21",
    "checksum": "UPDATE journal SET crc = crc + 1 WHERE seq = 21",
    "moved batch": "UPDATE journal SET seq = 101 WHERE seq = 99",
    "missing batch": "DELETE FROM journal WHERE seq = 21",
    "missing first batch": "DELETE FROM journal WHERE seq = 1",
    "batch twice": "INSERT INTO journal SELECT 22, rows, data, crc, signature FROM journal WHERE seq = 21",
    "signature": "UPDATE journal SET signature = x'00' WHERE seq = 21",
    "type of a signature": "UPDATE journal SET signature = 'text' WHERE seq = 21",
    "key of the signatures": "UPDATE signatures SET key_id = 'another'",
    "signature of the snapshot": "UPDATE signatures SET code = x'00'",
    "no signatures": "DELETE FROM signatures",
    "swapped data": "UPDATE journal SET (data, crc) = (SELECT data, crc FROM journal WHERE seq = 31) WHERE seq = 21",
    "snapshot newer than the journal": "DELETE FROM journal WHERE seq > 40",
    "snapshot data": "UPDATE snapshots SET data = x'33' WHERE pid = 'a'",
    "snapshot pid": "UPDATE snapshots SET pid = 'c' WHERE pid = 'a'",
    "snapshot lost": "DELETE FROM snapshots WHERE pid = 'a'",
    "snapshot added": "INSERT INTO snapshots SELECT 'c', data, crc FROM snapshots WHERE pid = 'a'",
    "snapshot seq": "UPDATE meta SET snapshot_seq = 60",
    "first seq": "UPDATE meta SET first_seq = 2",
    "no meta": "DELETE FROM meta",
    "two metas": "INSERT INTO meta SELECT 2, first_seq, snapshot_seq, states, states_total, crc FROM meta",
    "epoch": "UPDATE lease SET epoch = 2",
    "owner": "UPDATE lease SET owner = 'another'",
    "expiry": "UPDATE lease SET expires_at = 0",
    "expiry type": "UPDATE lease SET expires_at = 'soon'",
    "no lease": "DELETE FROM lease",
    "blob": "UPDATE blobs SET data = x'00'",
    "blob name": f"UPDATE blobs SET digest = '{blob_digest(b'other')}'",
    "migration name": "UPDATE migrations SET name = 'else' WHERE number = 1",
    "migration lost": "DELETE FROM migrations WHERE number = 1",
    "table": "ALTER TABLE journal RENAME COLUMN rows TO lines",
    "table gone": "DROP TABLE snapshots",
}


def _use_everything(path: Path) -> None:
    store = SqliteStore(path)
    try:
        assert store.check() != []
        list(store.read())
        store.load_snapshots()
        store.holder()
        store.get_signing_key()
        for (digest,) in store._ask("SELECT digest FROM blobs"):
            store.get_blob(digest)
    finally:
        store.close()


@pytest.mark.parametrize("what", SILENT)
def test_a_change_that_sqlite_does_not_notice_is_noticed(path: Path, what: str) -> None:
    """Every column of every table is covered: a change is found at opening, by reading and by check."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(SILENT[what])
    connection.close()
    with pytest.raises(Corrupt):
        _use_everything(path)


def test_check_tells_everything_it_finds(path: Path) -> None:
    """One sentence for each damaged batch, gap, state and blob, and the walk goes on after the first."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE journal SET data = x'00' WHERE seq IN (11, 41)")
    connection.execute("DELETE FROM journal WHERE seq IN (21, 61, 63)")
    connection.execute("UPDATE snapshots SET data = x'00' WHERE pid = 'a'")
    connection.execute("UPDATE blobs SET data = x'00'")
    connection.close()
    store = SqliteStore(path)
    problems = store.check()
    store.close()
    assert problems[:4] == [
        "journal rows 11 to 12 are damaged",
        "journal rows 21 to 22 are missing",
        "journal rows 41 to 42 are damaged",
        "journal rows 61 to 64 are missing",
    ]
    assert "saved state" in problems[4]
    assert blob_digest(b"blob") in problems[5]
    assert len(problems) == 6


def test_filters_do_not_hide_damage(path: Path) -> None:
    """A batch that was altered is not quietly left out, whatever rows of it were asked for."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE journal SET data = CAST(replace(data, 'p-1', 'p-9') AS BLOB) WHERE seq = 11")
    connection.close()
    store = SqliteStore(path)
    with pytest.raises(Corrupt, match="rows 11 to 12"):
        list(store.read(pid="p-1"))
    store.close()


def test_a_damaged_blob_is_healed_by_putting_it_again(path: Path) -> None:
    """A caller that still has the content can repair it."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE blobs SET data = x'00'")
    connection.close()
    store = SqliteStore(path)
    with pytest.raises(Corrupt):
        store.get_blob(blob_digest(b"blob"))
    store.put_blob(b"blob")
    assert store.get_blob(blob_digest(b"blob")) == b"blob"
    store.close()
