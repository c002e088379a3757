"""The default Store: one SQLite file in WAL mode.

Owns the file: making it (complete, mode 0600, or not at all), recognising it, opening it, and turning every error of
SQLite into a `StoreError`. The rules of lease, snapshots, blobs and reading are in `sql`, those of signatures
in `signing`; the tables are in `migrations`.

`durability="process"` writes the log without waiting for the disk (`synchronous=NORMAL`): the operating system has
every acknowledged row, so `kill -9` loses nothing. `"power"` waits for the disk at each commit (`FULL`). A file that
is not a Lyra store is never written to: a read-only connection checks it first. With `writes=False` a file that cannot
be written, such as an archived one, can be opened. Only SQLite opens the file, also for that
check, because closing any other descriptor of it would drop the locks that this process holds on it.
SQLite's automatic checkpoint keeps the log short; reads are short (see `rows`), so they do not hold it back.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from lyra.core.own_files import add_own_path, has_no_room, make_folder
from lyra.errors import ConfigError, Conflict, Corrupt, StoreError, StoreFull
from lyra.store.migrations import NAMED_SINCE, SIGNED_SINCE, SQLITE_TYPES, list_declared_tables
from lyra.store.protocol import Lease, out_of_order
from lyra.store.rows import Batch, Rows, dense, seal
from lyra.store.signing import SigningStore
from lyra.store.sql import FOLLOW_BATCH, INSERT_BATCH, Row

APPLICATION_ID: Final = 0x4C797261  # "Lyra"; `file` and other tools show it

_SYNCHRONOUS: Final = {"process": "NORMAL", "power": "FULL"}
_LOG_BYTES_MAX: Final = 64 << 20  # SQLite truncates a log that one huge batch made longer

# sqlite3 raises UnicodeDecodeError when an error message quotes a damaged name: it represents that SQLite error.
_SQLITE_ERRORS: Final = (sqlite3.Error, UnicodeDecodeError)
_SqliteError = sqlite3.Error | UnicodeDecodeError

# SQLite's primary result codes, by what they mean to the caller.
_BUSY: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_REFUSED: Final = {sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_CANTOPEN}
_TAKEN: Final = {sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_ROWID}


_CONTENT: Final = ("journal", "snapshots")  # where what a store holds is


class SqliteStore(SigningStore):
    """A journal in the file `path`; parents and file are made when missing. With `writes=False` the file may be
    read-only."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: str = "process",
        busy_timeout_s: float = 5.0,
        writes: bool = True,
    ) -> None:
        if durability not in _SYNCHRONOUS:
            raise ConfigError(f"durability is {durability!r}", hint="use 'process' or 'power'")
        if os.fspath(path) == ":memory:":
            raise ConfigError("':memory:' is not a file", hint="use the target 'memory' for a store in RAM")
        if "\0" in os.fspath(path):
            raise StoreError("a path cannot hold a NUL character")
        self.path = Path(os.path.abspath(path))
        add_own_path(self.path, is_store=True, opened=True)
        self._durability = durability
        self.inline = durability == "process"  # quick enough to be called on the loop
        self._busy_timeout_s = busy_timeout_s
        self._insert, self._follow = INSERT_BATCH, FOLLOW_BATCH
        self._writes = writes
        self._open_mode = "rw"  # the `mode` parameter of the SQLite URI
        # Whether a log lay beside the file when it was opened, or this object has owned it since: a killed owner leaves
        # a log, and a copy by `.backup` has none.
        self.has_log = False
        self._last_append: tuple[int, int] | None = None  # (epoch, last seq) after the last append
        self._cursor: sqlite3.Cursor | None = None
        self._file_identity: tuple[int, int] | None = None
        self._connection: sqlite3.Connection | None = None
        try:
            if not self._exists():
                self._create()
            self._open()
        except OSError as error:
            raise self._os_error(error) from error
        except BaseException:
            self.close()
            raise

    @property
    def location(self) -> str:
        return str(self.path)

    # ------------------------------------------------------------ the file
    def _exists(self) -> bool:
        """Return whether there is a file to open; a file that cannot be opened is a StoreError that names the
        reason."""
        log = Path(f"{self.path}-wal")
        logged = self.has_log = log.exists() and log.stat().st_size > 0
        if not self.path.exists():
            if logged:  # SQLite would replay the old log into the new file
                raise self._corrupt(f"the file is gone, but its log {log.name} is still there")
            return False
        if not self.path.is_file():
            raise StoreError(f"{self.path} is not a file", hint="give the path of the store's file, not of its folder")
        if self.path.stat().st_size == 0:
            raise Corrupt(
                f"{self.path} is empty, so it is no store",
                hint="remove it and a new store is made",
                location=self.location,
            )
        if not (_has_access(self.path, os.R_OK | os.W_OK) and _has_access(self.path.parent, os.W_OK | os.X_OK)):
            if self._writes or not _has_access(self.path, os.R_OK):
                raise self._not_writable()
            # Without a log beside it the read-only file is the whole store, and this user cannot change it.
            self._open_mode = "ro" if logged else "ro&immutable=1"
        return True

    def _not_writable(self) -> StoreError:
        return StoreError(
            f"{self.path} cannot be written",
            hint="the file and its folder (for the log beside it) have to be readable and writable for this user",
        )

    def _create(self) -> None:
        """Make the file beside its place and link it in: it appears complete or, after a crash, not at all."""
        make_folder(self.path.parent)
        handle, name = tempfile.mkstemp(prefix=f".{self.path.name}.", suffix=".new", dir=self.path.parent)
        os.close(handle)
        try:
            self._attach(Path(name))
            # No other process opens this file before it is complete, so one flush at the end is enough.
            for pragma in ("journal_mode=OFF", "synchronous=OFF", f"application_id={APPLICATION_ID}"):
                self._ask(f"PRAGMA {pragma}")
            self._migrate(0)
            self._ask("PRAGMA journal_mode=WAL")
            self.close()
            _flush(name)
            with suppress(FileExistsError):  # another process made the same store first: use that one
                # Put a finished file at `place` unless a file is there; on file systems without links, rename it.
                place = self.path
                try:
                    os.link(name, place)
                except FileExistsError:
                    raise
                except OSError:
                    if place.exists():
                        raise FileExistsError(str(place)) from None
                    os.rename(name, place)
            _flush(self.path.parent)
        finally:
            self.close()
            for suffix in ("", "-wal", "-shm", "-journal"):
                Path(name + suffix).unlink(missing_ok=True)

    def _open(self) -> None:
        self._check_is_lyra_store()
        self._attach(self.path)
        self._file_identity = _identity(self.path)
        for pragma in (
            f"synchronous={_SYNCHRONOUS[self._durability]}",
            f"fullfsync={int(not self.inline)}",  # macOS: without it a flush stops at the drive's cache
            f"journal_size_limit={_LOG_BYTES_MAX}",
            "cell_size_check=ON",
            "trusted_schema=OFF",
        ):
            self._ask(f"PRAGMA {pragma}")
        if "immutable" not in self._open_mode and self._ask("PRAGMA journal_mode") != [("wal",)]:
            raise self._corrupt("its header does not say WAL")
        version = self._user_version()
        if self._open_mode == "rw":
            self._migrate(version)
            version = self._user_version()
        self._is_named, self._has_signatures = version >= NAMED_SINCE, version >= SIGNED_SINCE
        # Each table has to be declared as the migrations declare it: a flipped letter there changes what rows mean.
        declared = {statement for (statement,) in self._ask("SELECT sql FROM sqlite_master WHERE type = 'table'")}
        for table, statement in list_declared_tables(version, SQLITE_TYPES).items():
            if statement not in declared:
                raise self._corrupt(f"the table {table} is not as it was made")
        added = self._ask("SELECT type, name FROM sqlite_master WHERE type IN ('trigger', 'view') LIMIT 1")
        if added:  # no version of Lyra makes one, and a trigger changes rows after they were written
            raise self._corrupt("it has a {} {!r}".format(*added[0]))
        self._check_tail()

    def _check_is_lyra_store(self) -> None:
        """Check through a read-only connection that the file is a Lyra store and not written by a newer Lyra."""
        try:
            with closing(self._connect(self.path, "ro" if self._open_mode == "rw" else self._open_mode)) as connection:
                ((application,),) = connection.execute("PRAGMA application_id").fetchall()
                ((version,),) = connection.execute("PRAGMA user_version").fetchall()
                if application != APPLICATION_ID:
                    raise self._foreign(f"its application id is {application & 0xFFFFFFFF:#010x}")
                rows = connection.execute("SELECT number, name, crc FROM migrations ORDER BY number").fetchall()
        except _SQLITE_ERRORS as error:
            if _primary_code(error) in _BUSY | _REFUSED | {sqlite3.SQLITE_IOERR}:
                raise self._error(error) from error
            raise self._foreign(str(error)) from error
        self._check_migrations(version, rows)

    def _foreign(self, why: str) -> Corrupt:
        return Corrupt(
            f"{self.path} is not a Lyra store, or is damaged: {why}",
            hint="choose another path (this file was not changed), or restore it from a backup",
            location=self.location,
        )

    def _connect(self, path: Path, mode: str) -> sqlite3.Connection:
        return sqlite3.connect(
            f"file:{quote(str(path))}?mode={mode}",
            uri=True,
            timeout=self._busy_timeout_s,
            isolation_level=None,
            check_same_thread=False,
        )

    def _attach(self, path: Path) -> None:
        self._connection = self._connect(path, self._open_mode)
        self._cursor = self._connection.cursor()

    def _user_version(self) -> int:
        return int(self._ask("PRAGMA user_version")[0][0])

    def _migrate(self, version: int) -> None:
        for migration in self._pending(version):
            with self._writing():
                if self._user_version() >= migration.number:
                    continue  # another process has applied it
                self._apply(migration, SQLITE_TYPES)
                self._ask(f"PRAGMA user_version={migration.number}")

    # ------------------------------------------------------------ all journals of the file
    def file_id(self) -> str:
        """Return the id of the store whose file this is."""
        return self.identity().id

    def keys_of_file(self) -> set[str]:
        """Return the ids of the keys that sign the journals of this file which hold something; "" for one that is not
        signed.

        Beside its own journal a file has those of its spaces (see `space`), in tables named after them.
        """
        tables = {str(name) for (name,) in self._ask_file("SELECT name FROM sqlite_master WHERE type = 'table'")}
        stems = [name.removesuffix("journal") for name in tables if name == "journal" or name.endswith("/journal")]
        keys: set[str] = set()
        for stem in stems:
            if not any(self._ask_file(f"SELECT 1 FROM {_quote(stem + table)} LIMIT 1") for table in _CONTENT):  # noqa: S608
                continue
            table = f"{stem}signatures"
            signed = self._ask_file(f"SELECT key_id FROM {_quote(table)}") if table in tables else []  # noqa: S608
            keys.add(str(signed[0][0]) if signed else "")
        return keys

    def _ask_file(self, statement: str) -> list[Row]:
        """Return a query for the file as a whole, which a space does not read as one for its own tables."""
        return SqliteStore._ask(self, statement)

    def close(self) -> None:
        connection, self._connection, self._cursor = self._connection, None, None
        if connection is not None:
            # A log that cannot be checkpointed now (a full disk) stays beside the file and is read at the next opening.
            with suppress(sqlite3.Error):
                connection.close()

    def acquire(self, owner: str, *, now: float | None, ttl_s: float) -> Lease:
        lease = super().acquire(owner, now=now, ttl_s=ttl_s)
        self.has_log = True
        return lease

    # ------------------------------------------------------------ journal
    def append(self, records: Rows, epoch: int) -> None:
        cursor = self._cursor or self._open_cursor()
        if not records:
            self._fence(epoch)
            return
        first = dense(records)
        batches = seal(records)
        if self._signatures is not None:
            batches = self._sign(batches)
        try:
            if self._last_append != (epoch, first - 1) or not self._insert_fenced(cursor, batches, epoch):
                cursor.execute("BEGIN IMMEDIATE")
                self._check_follows(first, epoch)
                for batch in batches:
                    cursor.execute(self._insert, batch)
                cursor.execute("COMMIT")
        except BaseException as error:
            self._roll_back()
            if isinstance(error, _SQLITE_ERRORS):
                raise self._error(error, writing=True) from error
            raise
        last = first + len(records) - 1
        self._last_append = (epoch, last)
        if self._signatures is not None:
            self._wrote(last)

    def _insert_fenced(self, cursor: sqlite3.Cursor, batches: list[Batch], epoch: int) -> bool:
        """Check the fence and insert in one statement, a transaction by itself; False when nothing was inserted.

        Used only directly after an append of this connection: any other change by it clears `_last_append`. A batch
        that another connection appended since begins with the same sequence number and blocks the insert; if that
        batch was compacted away, the journal's first row is after that number, which the statement checks too.
        """
        return len(batches) == 1 and cursor.execute(self._follow, (*batches[0], epoch, batches[0][0])).rowcount == 1

    def _check_follows(self, first: int, epoch: int) -> None:
        """Raise Conflict unless `epoch` is the newest one and `first` follows the last row."""
        self._fence(epoch)
        last = self._head().last_seq
        if first != last + 1:
            raise out_of_order(first, last)

    # ------------------------------------------------------------ the hooks of SqlStore
    def _open_cursor(self) -> sqlite3.Cursor:
        """Return the connection's only cursor; each use fetches all its rows. A new cursor costs a tenth of an
        append."""
        if self._cursor is None:
            raise StoreError(f"the store {self.location} is closed")
        return self._cursor

    def _ask(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        try:
            return self._open_cursor().execute(statement, values).fetchall()
        except _SQLITE_ERRORS as error:
            raise self._error(error) from error

    def _run(self, statement: str, values: Sequence[Any] = ()) -> int:
        try:
            return self._open_cursor().execute(statement, values).rowcount
        except _SQLITE_ERRORS as error:
            raise self._error(error, writing=True) from error

    def _run_many(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        try:
            self._open_cursor().executemany(statement, values)
        except _SQLITE_ERRORS as error:
            raise self._error(error, writing=True) from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        # Check that the open file is still the one at `path`. SQLite continues writing into a file that was deleted or
        # replaced, and those rows are lost. The check costs too much for each append; the kernel's lease renewals make
        # it every few seconds.
        if self._file_identity and self._file_identity != _identity(self.path):
            raise StoreError(
                f"{self.location} was moved, deleted or replaced while it was open",
                hint="stop the owner before you touch its store; rows written since are lost",
            )
        self._run("BEGIN IMMEDIATE")
        try:
            yield
            self._run("COMMIT")
        finally:
            self._roll_back()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        self._run("BEGIN")
        try:
            yield
        finally:
            self._roll_back()

    def _roll_back(self) -> None:
        """Roll back an open transaction: none is open after a commit, nor where SQLite ended it after an error."""
        self._last_append = None
        if self._connection is not None and self._connection.in_transaction:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")

    def _engine_faults(self) -> list[str]:
        try:
            lines = [str(line) for (line,) in self._ask("PRAGMA integrity_check")]
        except Corrupt as error:
            return [error.message]
        return [f"SQLite finds: {line}" for line in lines if line != "ok"]

    # ------------------------------------------------------------ errors
    def _error(self, error: _SqliteError, *, writing: bool = False) -> StoreError:
        """SQLite's error as the StoreError that fits its code; an error without a known cause is `Corrupt`."""
        code = _primary_code(error)
        if code in _BUSY:
            return Conflict(
                f"{self.location} is locked by another writer",
                hint="try again, or find out which process holds it",
                cause=str(error),
            )
        if has_no_room(error, self.path):
            return StoreFull(
                f"there is no room left for {self.location}", hint="free some space; the store goes on where it stopped"
            )
        if code == sqlite3.SQLITE_CONSTRAINT:
            return self._translate_error(error)
        if code == sqlite3.SQLITE_READONLY:
            # The error of a read-only file: damage if a writable file's header says so, else its permissions.
            if self._open_mode != "rw":
                return self._not_writable()
            if _read_extended_code(error) == sqlite3.SQLITE_READONLY and _has_access(self.path, os.W_OK):
                return self._corrupt("its header says that it is read-only")
            return StoreError(
                f"{self.location} cannot be written: {error}", hint="was it made read-only while it was open?"
            )
        if code in _REFUSED:
            return StoreError(
                f"{self.location} cannot be opened: {error}", hint="look at the permissions of the file and its folder"
            )
        if code == sqlite3.SQLITE_IOERR:
            return StoreError(f"reading or writing {self.location} failed: {error}", hint="look at the disk under it")
        if writing and (code == sqlite3.SQLITE_TOOBIG or code is None):
            return StoreError(f"{self.location} cannot hold this value: {error}")
        return self._corrupt(str(error))

    def _translate_error(self, error: _SqliteError) -> StoreError:
        if _read_extended_code(error) in _TAKEN:
            return Conflict(f"another writer committed first in {self.location}; nothing was written", cause=str(error))
        return StoreError(f"{self.location} cannot hold this value: {error}")

    def _os_error(self, error: OSError) -> StoreError:
        reason = error.strerror or str(error)
        if has_no_room(error, self.path):
            return StoreFull(f"there is no room left for {self.location}: {reason}", hint="free some space")
        return StoreError(
            f"{self.location} cannot be opened or made: {reason}",
            hint="choose a path in a folder that this user may write to",
        )


def _quote(table: str) -> str:
    return '"' + table.replace('"', '""') + '"'


def _read_extended_code(error: _SqliteError) -> int | None:
    """SQLite's extended result code; None when the error is Python's own."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return code


def _primary_code(error: _SqliteError) -> int | None:
    code = _read_extended_code(error)
    return None if code is None else code & 0xFF


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of the file at `path`; None when there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _has_access(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def _flush(path: str | Path) -> None:
    """Flush a file or a folder's entries to disk; some file systems cannot flush a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)
