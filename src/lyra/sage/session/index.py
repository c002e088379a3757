"""The SessionIndex: all sessions of a user in one SQLite file, listed by time and searched by their words.

Owns `sessions/index.db`. Every row of it is also in the folder of its session: `record.json` (`record`), and
`search.jsonl` with the prompts and answers. The index is therefore only a quick way to find them: a damaged file is
renamed to `index.db.damaged-N` and the index is rebuilt from the folders. Several processes use the file at once
(write-ahead log, waiting for locks); a process whose file was replaced meanwhile opens the new one. Never opens the
store of a session.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote

import msgspec

from lyra.config.files import alone
from lyra.core.checking.check import did_you_mean
from lyra.core.own_files import STORE_SUFFIXES, add_own_path, has_no_room, make_folder
from lyra.core.secrets.redact import redact
from lyra.errors import ConfigError, Conflict, NoSuchSession, StoreError, StoreFull
from lyra.sage.session.record import (
    RECORD_FILE,
    SessionRecord,
    is_session_id,
    read_record,
    sessions_folder,
    storable,
    write_record,
)

T = TypeVar("T")

INDEX_FILE: Final = "index.db"
_BUSY_TIMEOUT_S: Final = 10.0
_TEXT_LENGTH_MAX: Final = 20_000  # characters of one prompt or answer that can be searched
_NAMED_MAX: Final = 5  # sessions that an error about an ambiguous prefix names
_DAMAGED_MAX: Final = 1_000  # files that are kept for a look at what was wrong
_RECORD: Final = msgspec.json.Decoder(SessionRecord)


Records = list[SessionRecord]  # the class has a method named `list`


class _Damaged(sqlite3.DatabaseError):
    """The file is a database, and not of the form that the index has."""


class SessionIndex:
    """`root` is the folder of all sessions. `rebuilt`: the index was damaged or missing and was made from the folders
    of sessions that exist."""

    __slots__ = ("_connection", "_identity", "_lock", "path", "rebuilt", "root")

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or sessions_folder()
        self.path = self.root / INDEX_FILE
        self.rebuilt = False
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._identity = (0, 0)
        try:
            make_folder(self.root, private=True)
            add_own_path(self.path, is_store=True, opened=True)
            self._perform(lambda _connection: None)
        except OSError as error:
            raise ConfigError(
                f"sessions cannot be kept in {self.root}: {error.strerror or error}",
                hint="set XDG_DATA_HOME to a folder that you can write to",
                place=str(self.root),
                key="XDG_DATA_HOME",
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    # ------------------------------------------------------------ writing
    def upsert(self, record: SessionRecord) -> None:
        """Write the record into the folder of its session and into the index."""
        folder = self._folder_of(record.id)
        make_folder(folder, private=True)
        write_record(folder, record)
        self._write(lambda connection: put_record(connection, record))

    def add_text(self, id: str, turn: int, text: str) -> None:  # noqa: A002 - the record's field
        """Make a prompt or an answer of a turn (from 1) findable. The same text of a turn is kept once."""
        passage = storable(redact(text[:_TEXT_LENGTH_MAX]))
        if not passage.strip():
            return
        file = self._folder_of(id) / TEXT_FILE

        def add(connection: sqlite3.Connection) -> None:
            if put_passage(connection, id, turn, passage) is not None:
                line = text_line(turn, passage)
                fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                try:
                    os.write(fd, line)
                finally:
                    os.close(fd)

        self._write(add)

    def remove(self, id: str) -> None:  # noqa: A002 - the record's field
        """Remove a session: its folder with everything in it, and its rows."""
        folder = self._folder_of(id)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(folder / RECORD_FILE)  # first: a rebuilt index no longer finds the session
        if os.path.islink(folder):
            os.unlink(folder)
        elif folder.exists():
            shutil.rmtree(folder)
        self._write(lambda connection: delete_session(connection, id))

    # ------------------------------------------------------------ reading
    def list(self, folder: str | None = None, limit: int = 50, search: str | None = None) -> Records:
        """Return the newest sessions first; of one folder, or with all these words (each may be the start of a longer
        one) in the title, the prompts or the answers, if asked."""
        query, values = select_query(folder, search)
        return self._records(query, (*values, max(limit, 0)))

    def get(self, prefix: str) -> SessionRecord:
        """Return the session with this id, or the only one whose id begins so. Conflict where several do."""
        query = "SELECT record FROM sessions WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"
        records = self._records(query, (prefix, f"{prefix}~", _NAMED_MAX + 1)) if prefix.isascii() else []
        if prefix and (len(records) == 1 or (records and records[0].id == prefix)):
            return records[0]
        if prefix and records:
            more = " and more" if len(records) > _NAMED_MAX else ""
            names = [record.id for record in records[:_NAMED_MAX]]
            raise Conflict(
                f"{prefix!r} begins several session ids: {', '.join(names)}{more}",
                hint="give more of the id",
                ids=names,
            )
        near = did_you_mean(prefix, (record.id for record in self.list(limit=1_000)))
        raise NoSuchSession(
            f"there is no session {prefix[:80]!r}",
            hint=f"did you mean {near}?" if near else "`sage sessions list` shows the sessions",
            session=prefix[:80],
        )

    def latest(self, folder: str) -> SessionRecord | None:
        """Return the session of a folder that was used last."""
        records = self.list(folder, limit=1)
        return records[0] if records else None

    def _records(self, query: str, values: tuple[Any, ...]) -> Records:
        def read(connection: sqlite3.Connection) -> Records:
            try:
                return [_RECORD.decode(data) for (data,) in connection.execute(query, values)]
            except msgspec.MsgspecError as error:
                raise _Damaged(str(error)) from error

        return self._perform(read)

    def _folder_of(self, id: str) -> Path:  # noqa: A002
        if not is_session_id(id):
            raise NoSuchSession(f"{id[:80]!r} is not a session's id", session=id[:80])
        return self.root / id

    # ------------------------------------------------------------ the file
    def _write(self, action: Callable[[sqlite3.Connection], object]) -> None:
        def act(connection: sqlite3.Connection) -> None:
            with writing(connection):
                action(connection)

        self._perform(act)

    def _perform(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Run the action on the open index; where its file is damaged, on a new one."""
        with self._lock:
            try:
                try:
                    return action(self._open())
                except sqlite3.DatabaseError as error:
                    if not _is_damage(error) and not self._lacks_a_table():
                        raise
                    self._rename_damaged()
                return action(self._open())
            except StoreError:
                self.close()
                raise
            except sqlite3.Error as error:
                self.close()
                kind = StoreFull if has_no_room(error, self.path) else StoreError
                raise kind(
                    f"the index of sessions {self.path} cannot be used: {error}", place=str(self.path)
                ) from error

    def _open(self) -> sqlite3.Connection:
        identity = _identity(self.path)
        if self._connection is None or identity != self._identity:
            self.close()
            if identity is None:
                self._create()
            self._connection = _connect(self.path)
            self._identity = _identity(self.path) or (0, 0)
            ((version,),) = self._connection.execute("PRAGMA user_version").fetchall()
            if version > VERSION:
                raise StoreError(f"{self.path} was made by a newer Lyra", place=str(self.path))
            if self._lacks_a_table():
                raise _Damaged("a table is missing")
        return self._connection

    def _lacks_a_table(self) -> bool:
        if self._connection is None:
            return False
        try:
            self._connection.execute("SELECT 1 FROM sessions, passages, words LIMIT 0")
        except sqlite3.OperationalError as error:
            return error.sqlite_errorcode == sqlite3.SQLITE_ERROR
        return False

    def _rename_damaged(self) -> None:
        """Rename the damaged file, unless another process has done so meanwhile. The next opening makes a new one."""
        identity = self._identity if self._connection is not None else _identity(self.path)
        self.close()
        with alone(self.path):
            if _identity(self.path) != identity:
                return
            numbers = range(1, _DAMAGED_MAX)
            number = next((n for n in numbers if not os.path.lexists(f"{self.path}.damaged-{n}")), _DAMAGED_MAX)
            for suffix in STORE_SUFFIXES:
                with contextlib.suppress(FileNotFoundError):
                    os.rename(f"{self.path}{suffix}", f"{self.path}.damaged-{number}{suffix}")

    def _create(self) -> None:
        """Make the index from the folders of the sessions; it appears complete or not at all."""
        with alone(self.path):
            if _identity(self.path) is not None:
                return  # another process was first
            new = self.root / f".{INDEX_FILE}.new"
            new.unlink(missing_ok=True)
            os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            with contextlib.closing(_connect(new)) as connection:
                connection.executescript(f"PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; BEGIN; {SCHEMA} COMMIT;")
                self._fill(connection)
                connection.execute("PRAGMA journal_mode=WAL")
            for suffix in filter(None, STORE_SUFFIXES):  # of an index that was deleted: SQLite would replay them
                Path(f"{self.path}{suffix}").unlink(missing_ok=True)
            os.rename(new, self.path)

    def _fill(self, connection: sqlite3.Connection) -> None:
        with writing(connection):
            for entry in sorted(os.scandir(self.root), key=lambda entry: entry.name):
                if not is_session_id(entry.name) or not entry.is_dir(follow_symlinks=False):
                    continue
                folder = self.root / entry.name
                record = read_record(folder)
                if record is None:
                    continue
                self.rebuilt = True
                put_record(connection, record)
                for turn, text in read_texts(folder / TEXT_FILE):
                    put_passage(connection, record.id, turn, text)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        state = os.stat(path)
    except FileNotFoundError:
        return None
    return state.st_dev, state.st_ino


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode=rw",
        uri=True,
        timeout=_BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA trusted_schema=OFF")
    except BaseException:
        connection.close()
        raise
    return connection


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Return whether the content of the file is wrong, unlike a full disk or a lock."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF
    return isinstance(error, _Damaged) or code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)


VERSION: Final = 1
TEXT_FILE: Final = "search.jsonl"
_TEXT_FILE_BYTES_MAX: Final = 32 * 1024 * 1024
_WORDS_MAX: Final = 20
_RECORD_TURN: Final = 0  # the passage with the title and the previews

SCHEMA: Final = f"""
CREATE TABLE sessions(
    id TEXT PRIMARY KEY, folder TEXT NOT NULL, updated_at REAL NOT NULL, record BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX sessions_by_time ON sessions(updated_at, id);
CREATE INDEX sessions_by_folder ON sessions(folder, updated_at, id);
CREATE TABLE passages(number INTEGER PRIMARY KEY, id TEXT NOT NULL, turn INTEGER NOT NULL, text TEXT NOT NULL);
CREATE INDEX passages_by_session ON passages(id, turn);
CREATE VIRTUAL TABLE words USING fts5(
    text, content='passages', content_rowid='number', tokenize='unicode61 remove_diacritics 2'
);
PRAGMA user_version={VERSION};
"""
_WITH_WORD: Final = "id IN (SELECT id FROM passages JOIN words ON words.rowid = number WHERE words MATCH ?)"
_WITH_TEXT: Final = "id IN (SELECT id FROM passages WHERE text LIKE ? ESCAPE '\\')"
_LIKE_SIGN: Final = re.compile(r"[%_\\]")
_UNSPACED: Final = "\u2e80"  # from here on are scripts that write no spaces between words


class _SearchLine(msgspec.Struct):
    turn: int
    text: str


def put_record(connection: sqlite3.Connection, record: SessionRecord) -> None:
    """Insert the row of a session, or replace it."""
    connection.execute(
        "INSERT INTO sessions(id, folder, updated_at, record) VALUES(?, ?, ?, ?) ON CONFLICT(id) DO UPDATE SET"
        " folder = excluded.folder, updated_at = excluded.updated_at, record = excluded.record",
        (record.id, record.folder, record.updated_at, msgspec.json.encode(record)),
    )
    text = "\n".join((record.title, record.first_prompt, record.last_prompt, record.folder))
    number = put_passage(connection, record.id, _RECORD_TURN, text)
    if number is not None:
        _delete(connection, "id = ? AND turn = ? AND number <> ?", (record.id, _RECORD_TURN, number))


def put_passage(connection: sqlite3.Connection, session: str, turn: int, text: str) -> int | None:
    """Make a text of a turn findable; None if the turn has just this text already."""
    values = (session, turn, text)
    if connection.execute("SELECT 1 FROM passages WHERE id = ? AND turn = ? AND text = ?", values).fetchone():
        return None
    number = connection.execute("INSERT INTO passages(id, turn, text) VALUES(?, ?, ?)", values).lastrowid
    connection.execute("INSERT INTO words(rowid, text) VALUES(?, ?)", (number, text))
    return number


def delete_session(connection: sqlite3.Connection, session: str) -> None:
    _delete(connection, "id = ?", (session,))
    connection.execute("DELETE FROM sessions WHERE id = ?", (session,))


def _delete(connection: sqlite3.Connection, condition: str, values: tuple[str | int, ...]) -> None:
    rows = connection.execute(f"SELECT number, text FROM passages WHERE {condition}", values).fetchall()  # noqa: S608 - the conditions above
    connection.executemany("INSERT INTO words(words, rowid, text) VALUES('delete', ?, ?)", rows)
    connection.executemany("DELETE FROM passages WHERE number = ?", [(number,) for number, _ in rows])


def select_query(folder: str | None, search: str | None) -> tuple[str, list[str]]:
    """Return the query for the newest sessions, and its values but the last, which is the limit. A word without a
    letter or digit is not searched for."""
    words = [word for word in storable(search or "").split() if any(map(str.isalnum, word))][:_WORDS_MAX]
    conditions = [] if folder is None else ["folder = ?"]
    values = [] if folder is None else [storable(folder)]
    for word in words:
        is_spaced = max(word) < _UNSPACED
        conditions.append(_WITH_WORD if is_spaced else _WITH_TEXT)
        values.append(f'"{_quote(word)}"*' if is_spaced else f"%{_LIKE_SIGN.sub(_escape, word)}%")
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT record FROM sessions {where} ORDER BY updated_at DESC, id DESC LIMIT ?", values  # noqa: S608 - the conditions above


def _quote(word: str) -> str:
    return word.replace('"', '""').replace("\0", "")


def _escape(sign: re.Match[str]) -> str:
    return f"\\{sign[0]}"


@contextlib.contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[None]:
    """Open a transaction that writes: all of it, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def text_line(turn: int, text: str) -> bytes:
    return msgspec.json.encode(_SearchLine(turn, text)) + b"\n"


def read_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Turn and text of each line; a line that was torn by a crash is left out."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    with open(fd, "rb") as file:
        data = file.read(_TEXT_FILE_BYTES_MAX)
    for line in data.splitlines():
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
            text = msgspec.json.decode(line, type=_SearchLine)
            yield text.turn, text.text
