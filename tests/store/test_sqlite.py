"""The SQLite store: its file, its errors, its log, its durability."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lyra.errors import ConfigError, Conflict, Corrupt, LyraError, StoreError, StoreFull
from lyra.store import Record, Snapshot
from lyra.store.migrations import LATEST, MIGRATIONS, SQLITE_TYPES, migration_crc
from lyra.store.sqlite import APPLICATION_ID, SqliteStore
from lyra.testing.conformance import records
from verify.home import make_folder_for


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lyra.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(path)
    yield store
    store.close()


def execute(path: Path, *statements: str) -> None:
    """Change a store's file behind its back."""
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


# ---------------------------------------------------------------- making the file
def test_a_new_file_is_private_and_says_what_it_is(path: Path, store: SqliteStore) -> None:
    """Mode 0600 for the file and its log, Lyra's application id, the newest migration, WAL."""
    store.append(records(1, 1), 0)
    for file in (path, Path(f"{path}-wal")):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert connection.execute("PRAGMA user_version").fetchone() == (LATEST,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_parents_are_made_and_nothing_is_left_beside(tmp_path: Path) -> None:
    """A path like `.lyra/lyra.db` works in an empty folder; after closing there is one file."""
    path = tmp_path / "deep" / ".lyra" / "lyra.db"
    SqliteStore(path).close()
    assert [file.name for file in path.parent.iterdir()] == ["lyra.db"]


@pytest.mark.parametrize("name", ["with space.db", "per%20cent.db", "question?mode=memory.db", "hash#.db", "ünï.db"])
def test_odd_names_are_names(tmp_path: Path, name: str) -> None:
    """Nothing in a file name is read as a setting."""
    store = SqliteStore(tmp_path / name)
    store.append(records(1, 1), 0)
    store.close()
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_a_file_that_appears_meanwhile_is_opened(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two kernels that make the same store at once end up in one file, not in two."""
    link = os.link

    def late(source: str, target: Path) -> None:
        monkeypatch.setattr(os, "link", link)
        other = SqliteStore(path)
        other.append(records(1, 3), 0)
        other.close()
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    store = SqliteStore(path)
    assert store.last_seq() == 3
    store.close()


def test_a_file_system_without_links_will_do(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where hard links are not allowed the finished file is renamed into place."""

    def refuse(source: str, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    store = SqliteStore(path)
    store.append(records(1, 1), 0)
    store.close()
    assert [file.name for file in path.parent.iterdir()] == ["lyra.db"]


# ---------------------------------------------------------------- files that are not ours
def _database(path: Path, *statements: str) -> None:
    execute(path, *statements)


FOREIGN: dict[str, Callable[[Path], object]] = {
    "text": lambda path: path.write_text("dear diary, " * 500),
    "short": lambda path: path.write_bytes(b"SQLite format 3\0"),
    "random": lambda path: path.write_bytes(bytes(range(256)) * 64),
    "sqlite": lambda path: _database(path, "CREATE TABLE journal (seq INTEGER PRIMARY KEY)"),
    "sqlite-wal": lambda path: _database(path, "PRAGMA journal_mode=WAL", "CREATE TABLE photos (x)"),
    "sqlite-other-id": lambda path: _database(path, "PRAGMA application_id=7", "CREATE TABLE x (y)"),
    "sqlite-our-id-no-tables": lambda path: _database(path, f"PRAGMA application_id={APPLICATION_ID}"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_file_of_something_else_is_refused_and_left_alone(path: Path, kind: str) -> None:
    """Opening what is not a store is Corrupt, with a sentence and a hint, and not one byte of it changes."""
    FOREIGN[kind](path)
    before = path.read_bytes()
    with pytest.raises(Corrupt) as caught:
        SqliteStore(path)
    assert str(path) in caught.value.message
    assert caught.value.hint
    assert path.read_bytes() == before


def test_an_empty_file_is_no_store(path: Path) -> None:
    """An empty file may be what is left of a store, so it is not quietly filled."""
    path.touch()
    with pytest.raises(Corrupt, match="is empty"):
        SqliteStore(path)
    assert path.stat().st_size == 0


def test_a_log_without_its_file_is_corrupt(path: Path, store: SqliteStore) -> None:
    """A log left alone is not replayed into a new file."""
    store.append(records(1, 3), 0)
    shutil.copyfile(f"{path}-wal", path.parent / "copy.db-wal")
    with pytest.raises(Corrupt, match=r"its log copy\.db-wal"):
        SqliteStore(path.parent / "copy.db")
    assert not (path.parent / "copy.db").exists()


# ---------------------------------------------------------------- migrations
def _at_migration_1(path: Path) -> None:
    """A store as the first migration alone makes it, with a few rows."""
    SqliteStore(path).close()
    execute(
        path,
        "DROP TABLE blobs",
        "DROP TABLE identity",
        "DROP TABLE signatures",
        "ALTER TABLE journal DROP COLUMN signature",
        "DELETE FROM migrations WHERE number > 1",
        "PRAGMA user_version=1",
    )


def test_an_old_store_is_upgraded(path: Path) -> None:
    """A store of migration 1 gets the later tables when opened, and keeps everything it had."""
    store = SqliteStore(path)
    store.append(records(1, 5), 0)
    store.save_snapshots(3, {"p-1": b"s"}, 0)
    store.close()
    execute(
        path,
        "DROP TABLE blobs",
        "DROP TABLE identity",
        "DROP TABLE signatures",
        "ALTER TABLE journal DROP COLUMN signature",
        "DELETE FROM migrations WHERE number > 1",
        "PRAGMA user_version=1",
    )
    store = SqliteStore(path)
    assert list(store.read()) == records(1, 5)
    assert store.load_snapshots() == Snapshot(3, {"p-1": b"s"})
    assert store.get_blob(store.put_blob(b"large")) == b"large"
    assert store.check() == []
    store.close()


def test_a_migration_is_applied_whole_or_not_at_all(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that fails in the middle leaves the store at the step before, and the next opening finishes it."""
    _at_migration_1(path)
    broken = MIGRATIONS[1]._replace(rows=(("INSERT INTO nowhere VALUES (?)", (1,)),))
    monkeypatch.setattr("lyra.store.sql.MIGRATIONS", (MIGRATIONS[0], broken))
    with pytest.raises(StoreError):
        SqliteStore(path)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'blobs'").fetchone() == (0,)
    connection.close()
    monkeypatch.undo()
    store = SqliteStore(path)
    store.put_blob(b"x")
    store.close()


def test_a_store_of_a_newer_lyra_is_refused(path: Path) -> None:
    """A higher migration number that the migrations table confirms is told as such, with what to do."""
    SqliteStore(path).close()
    number = LATEST + 1
    execute(
        path,
        f"INSERT INTO migrations VALUES ({number}, 'later', {migration_crc(number, 'later')})",
        f"PRAGMA user_version={number}",
    )
    before = path.read_bytes()
    with pytest.raises(StoreError, match="written by a newer Lyra") as caught:
        SqliteStore(path)
    assert caught.value.code == "store"
    assert "upgrade" in (caught.value.hint or "")
    assert path.read_bytes() == before


def test_a_version_that_nothing_confirms_is_damage(path: Path) -> None:
    """A flipped bit in the header's version is not taken for a newer Lyra."""
    SqliteStore(path).close()
    execute(path, f"PRAGMA user_version={LATEST + 64}")
    with pytest.raises(Corrupt):
        SqliteStore(path)


def test_released_migrations_never_change() -> None:
    """The text of each released step is pinned: a new shape is a new step."""
    texts = {step.number: zlib.crc32("\n".join(step.statements(SQLITE_TYPES)).encode()) for step in MIGRATIONS}
    assert texts == {1: 2005670226, 2: 1656491541, 3: 64078271, 4: 3228855391}


# ---------------------------------------------------------------- paths that cannot be
def _refused(path: Path | str, match: str) -> LyraError:
    with pytest.raises(StoreError, match=match) as caught:
        SqliteStore(path)
    assert caught.value.code == "store"
    return caught.value


def test_a_folder_is_not_a_store(tmp_path: Path) -> None:
    """A folder, a path through a file and a NUL are StoreErrors with a sentence each."""
    assert _refused(tmp_path, "is not a file").hint
    (tmp_path / "file").write_text("x")
    assert _refused(tmp_path / "file" / "lyra.db", "cannot be").hint
    _refused("a\0b", "NUL")


def test_settings_that_cannot_be_are_config_errors(path: Path) -> None:
    """An unknown durability and SQLite's own name for RAM are ConfigErrors."""
    with pytest.raises(ConfigError, match="durability"):
        SqliteStore(path, durability="eternal")
    with pytest.raises(ConfigError, match="memory"):
        SqliteStore(":memory:")


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A folder of an unprivileged user, as which this process acts (root, as which tests often run, may do all)."""
    root = os.geteuid() == 0
    folder = make_folder_for(65534 if root else os.geteuid(), prefix="lyra-unprivileged-")
    if root:
        os.seteuid(65534)
    yield folder
    if root:
        os.seteuid(0)
    for place in (folder, *folder.iterdir()):
        place.chmod(0o700)
    shutil.rmtree(folder)


def test_a_file_that_may_not_be_written(unprivileged: Path) -> None:
    """A read-only file or folder is a StoreError that says which rights are missing."""
    SqliteStore(unprivileged / "lyra.db").close()
    (unprivileged / "lyra.db").chmod(0o400)
    assert "writable" in (_refused(unprivileged / "lyra.db", "cannot be written").hint or "")
    (unprivileged / "lyra.db").chmod(0o600)
    unprivileged.chmod(0o500)
    _refused(unprivileged / "lyra.db", "cannot be written")
    assert "folder" in (_refused(unprivileged / "new.db", "cannot be opened or made").hint or "")
    assert "folder" in (_refused(unprivileged / "sub" / "new.db", "cannot be opened or made").hint or "")


def test_a_store_deleted_while_open(path: Path, store: SqliteStore) -> None:
    """An owner learns at its next renewal that its file is gone or another one."""
    lease = store.acquire("owner", now=0.0, ttl_s=9.0)
    path.rename(path.with_suffix(".old"))
    with pytest.raises(StoreError, match="while it was open"):
        store.renew(lease, now=1.0, ttl_s=9.0)
    shutil.copyfile(path.with_suffix(".old"), path)
    with pytest.raises(StoreError, match="while it was open"):
        store.renew(lease, now=1.0, ttl_s=9.0)


def test_a_closed_store_says_so(store: SqliteStore) -> None:
    """Every use after close is a StoreError; closing twice is harmless."""
    store.close()
    store.close()
    for use in (store.last_seq, store.read, store.check, store.holder, lambda: store.append(records(1, 1), 0)):
        with pytest.raises(StoreError, match="is closed"):
            use()


# ---------------------------------------------------------------- other writers
def test_a_locked_store_is_a_conflict(path: Path) -> None:
    """When another writer holds the file past the time-out, the batch is refused and can be tried again."""
    store = SqliteStore(path, busy_timeout_s=0.0)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    for use in (lambda: store.append(records(1, 2), 0), lambda: store.put_blob(b"x")):
        with pytest.raises(Conflict, match="locked"):
            use()
    other.execute("ROLLBACK")
    other.close()
    store.append(records(1, 2), 0)
    assert list(store.read()) == records(1, 2)
    store.close()


def test_the_database_is_the_judge(path: Path, store: SqliteStore) -> None:
    """A row that appeared behind the store's back is met as a Conflict, not overwritten."""
    store.append(records(1, 2), 0)
    other = SqliteStore(path)
    other.append(records(3, 1, kind="theirs"), 0)
    other.close()
    with pytest.raises(Conflict):
        store.append(records(3, 1, kind="ours"), 0)
    assert [row.kind for row in store.read(after=2)] == ["theirs"]


def test_a_value_sqlite_cannot_hold_is_no_conflict(store: SqliteStore) -> None:
    """Half a surrogate pair is refused as a value; nothing of its batch is written."""
    with pytest.raises(StoreError, match="cannot hold") as caught:
        store.append([*records(1, 1), Record(2, 1.0, "\ud800", "k", b"")], 0)
    assert caught.value.code == "store"
    assert store.last_seq() == 0


def test_minus_zero_keeps_its_sign(store: SqliteStore) -> None:
    """Rows come back to the bit, also where SQLite's own columns would round."""
    store.append([(1, -0.0, "p\0q", "k", b"")], 0)
    assert [(str(row.time), row.pid) for row in store.read()] == [("-0.0", "p\0q")]


# ---------------------------------------------------------------- the log
def test_a_long_reader_does_not_block_appends(path: Path, store: SqliteStore) -> None:
    """Another process that reads an old state blocks no writer, and sees its state to the end."""
    store.append(records(1, 10), 0)
    reader = sqlite3.connect(path, isolation_level=None, timeout=0.0)
    reader.execute("BEGIN")
    assert reader.execute("SELECT sum(rows) FROM journal").fetchone() == (10,)
    for first in range(11, 3011, 100):
        store.append(records(first, 100), 0)
    assert reader.execute("SELECT sum(rows) FROM journal").fetchone() == (10,)
    reader.execute("COMMIT")
    assert reader.execute("SELECT sum(rows) FROM journal").fetchone() == (3010,)
    reader.close()


def test_the_log_stays_short(path: Path, store: SqliteStore) -> None:
    """Twenty megabytes of rows, with a reader of our own left half-way, leave a log of a few."""
    reader = None
    for number in range(200):
        store.append([(number * 10 + k, 1.0, "p", "k", bytes(10_000)) for k in range(1, 11)], 0)
        if number == 20:
            reader = store.read()
            next(reader)
    assert Path(f"{path}-wal").stat().st_size < 8 << 20
    assert reader is not None


def test_compaction_keeps_the_file_from_growing(path: Path, store: SqliteStore) -> None:
    """A journal that is compacted as fast as it is written reuses its pages."""
    sizes = []
    last = 0
    for _ in range(12):
        store.append([(last + k, 1.0, "p", "k", bytes(2000)) for k in range(1, 301)], 0)
        last += 300
        store.save_snapshots(last, {"p": b"s"}, 0)
        assert store.compact(before=2.0, epoch=0) == 300
        execute(path, "PRAGMA wal_checkpoint(PASSIVE)")
        sizes.append(path.stat().st_size)
    assert sizes[-1] <= sizes[2]


# ---------------------------------------------------------------- durability
def test_durability_chooses_how_commits_reach_the_disk(path: Path) -> None:
    """`process` is NORMAL and quick enough for the loop; `power` is FULL and not."""
    for durability, synchronous, inline in (("process", 1, True), ("power", 2, False)):
        store = SqliteStore(path, durability=durability)
        assert store._ask("PRAGMA synchronous") == [(synchronous,)]
        assert store.inline is inline
        store.close()


CHILD = """
import os, signal, sys
from lyra.store.sqlite import SqliteStore
store = SqliteStore(sys.argv[1])
epoch = store.acquire("child", now=0.0, ttl_s=9.0).epoch
for seq in range(1, 201):
    store.append([(seq, 1.0, "p", "k", b"%d" % seq)], epoch)
store.save_snapshots(100, {"p": b"state"}, epoch)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nothing_acknowledged_is_lost_by_kill_9(path: Path) -> None:
    """Every row, state and lease that a killed process was told is durable is there for the next one."""
    environment = {**os.environ, "PYTHONPATH": _source()}
    done = subprocess.run([sys.executable, "-c", CHILD, str(path)], env=environment, check=False)
    assert done.returncode == -9
    store = SqliteStore(path)
    assert [row.data for row in store.read()] == [b"%d" % seq for seq in range(1, 201)]
    assert store.load_snapshots() == Snapshot(100, {"p": b"state"})
    holder = store.holder()
    assert holder is not None
    assert holder.owner == "child"
    store.close()


def _source() -> str:
    import lyra.store

    return str(Path(lyra.store.__file__).parents[2])


# ---------------------------------------------------------------- a full disk
def test_a_full_disk_loses_nothing_and_passes(store: SqliteStore) -> None:
    """StoreFull leaves no part of the batch; when there is room again the same batch goes in."""
    store.append(records(1, 5), 0)
    ((pages,),) = store._ask("PRAGMA page_count")
    store._ask(f"PRAGMA max_page_count={pages + 4}")
    batch = [(seq, 1.0, "p", "k", bytes(4000)) for seq in range(6, 56)]
    for _ in range(3):
        with pytest.raises(StoreFull) as caught:
            store.append(batch, 0)
        assert caught.value.retryable
        assert list(store.read()) == records(1, 5)
    with pytest.raises(StoreFull):
        store.put_blob(bytes(1 << 20))
    with pytest.raises(StoreFull):
        store.save_snapshots(5, {"p": bytes(1 << 20)}, 0)
    store._ask("PRAGMA max_page_count=1000000")
    store.append(batch, 0)
    assert store.last_seq() == 55
    assert store.load_snapshots() == Snapshot(0, {})
    assert store.check() == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("a small tmpfs cannot be mounted here (needs root)")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def _fill(store: SqliteStore) -> None:
    for first in range(1, 5000, 5):
        store.append([(first + k, 1.0, "p", "k", bytes(1000)) for k in range(5)], 0)


def test_a_disk_that_is_really_full(small_disk: Path) -> None:
    """On a disk of one megabyte appends end in StoreFull, acknowledged rows stay, and space that returns is used."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(500_000))
    store = SqliteStore(small_disk / "lyra.db")
    with pytest.raises(StoreFull):
        _fill(store)
    last = store.last_seq()
    assert last > 0
    assert last % 5 == 0
    assert [row.seq for row in store.read()] == list(range(1, last + 1))
    ballast.unlink()
    store.append([(last + 1, 1.0, "p", "k", b"at last")], 0)
    store.close()
    store = SqliteStore(small_disk / "lyra.db")
    assert store.last_seq() == last + 1
    assert store.check() == []
    store.close()


LIMITED = """
import resource, sys
from lyra.errors import StoreFull
from lyra.store.sqlite import SqliteStore

store = SqliteStore(sys.argv[1])
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
last = 0
try:
    while True:
        store.append([(last + 1, 1.0, "p", "k", bytes(1000))], 0)
        last += 1
except StoreFull as error:
    print(error.message)
assert last > 10 and store.last_seq() == last
try:
    SqliteStore(sys.argv[1] + ".large").put_blob(bytes(400_000))
except StoreFull as error:
    print(error.message)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
store.append([(last + 1, 1.0, "p", "k", b"at last")], 0)
assert store.check() == []
"""


def test_a_file_that_may_not_grow_is_a_full_disk(path: Path) -> None:
    """Under a limit on file sizes (EFBIG) writes end in StoreFull, and go on when the limit is raised."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.stderr == ""
    assert [line.startswith("there is no room left for") for line in done.stdout.splitlines()] == [True, True]


@pytest.mark.parametrize("number", [errno.EDQUOT, errno.EFBIG, errno.ENOSPC])
def test_a_used_up_quota_is_a_full_disk(store: SqliteStore, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """SQLite says "disk I/O error" and no more: where a file beside the store cannot grow either, it is StoreFull."""
    failed = sqlite3.OperationalError("disk I/O error")
    failed.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
    assert type(store._error(failed, writing=True)) is StoreError

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "ftruncate", refuse)
    assert type(store._error(failed, writing=True)) is StoreFull
    assert type(store._os_error(OSError(number, os.strerror(number)))) is StoreFull


def test_no_room_even_for_the_file(small_disk: Path) -> None:
    """A store that cannot be made for lack of room is StoreFull and leaves nothing behind."""
    with pytest.raises(OSError, match="No space"):
        (small_disk / "ballast").write_bytes(bytes(2 << 20))
    with pytest.raises(StoreFull):
        SqliteStore(small_disk / "lyra.db")
    assert [file.name for file in small_disk.iterdir()] == ["ballast"]


def test_who_only_reads_may_open_what_cannot_be_written(unprivileged):
    """An archived file, alone or with the log that a killed owner left; nothing is changed beside it."""
    path = unprivileged / "lyra.db"
    store = SqliteStore(path)
    lease = store.acquire("me", now=1.0, ttl_s=9.0)
    store.append([(1, 1.0, "p", "k", b"\xc0")], lease.epoch)
    for mode in (0o500, 0o700):
        if mode == 0o700:
            store.close()
        path.chmod(0o400)
        unprivileged.chmod(0o500)
        before = sorted(entry.name for entry in unprivileged.iterdir())
        reader = SqliteStore(path, writes=False)
        assert [row.seq for row in reader.read()] == [1]
        with pytest.raises(StoreError, match="cannot be written"):
            reader.acquire("you", now=100.0, ttl_s=9.0)
        reader.close()
        assert sorted(entry.name for entry in unprivileged.iterdir()) == before
        unprivileged.chmod(0o700)
        path.chmod(0o600)
