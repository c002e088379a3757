"""The tables of the index of sessions, and the functions that write and read their rows.

Owns the schema (`SCHEMA`, `VERSION`) and the file `search.jsonl` of a session: the texts that can be searched, one a
line. Every function works inside a transaction of its caller and never opens a database: `index` does.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from lyra.sage.session.record import SessionRecord, storable

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


# ------------------------------------------------------------ rows
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
    """The query for the newest sessions, and its values but the last, which is the limit. A word without a letter or
    digit is not searched for."""
    words = [word for word in storable(search or "").split() if any(map(str.isalnum, word))][:_WORDS_MAX]
    conditions = [] if folder is None else ["folder = ?"]
    values = [] if folder is None else [storable(folder)]
    for word in words:
        is_spaced = max(word) < _UNSPACED
        conditions.append(_WITH_WORD if is_spaced else _WITH_TEXT)
        values.append(f'"{_quoted(word)}"*' if is_spaced else f"%{_LIKE_SIGN.sub(_escaped, word)}%")
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT record FROM sessions {where} ORDER BY updated_at DESC, id DESC LIMIT ?", values  # noqa: S608 - the conditions above


def _quoted(word: str) -> str:
    return word.replace('"', '""').replace("\0", "")


def _escaped(sign: re.Match[str]) -> str:
    return f"\\{sign[0]}"


@contextlib.contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction that writes: all of it, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


# ------------------------------------------------------------ the file of texts
def text_line(turn: int, text: str) -> bytes:
    return msgspec.json.encode(_SearchLine(turn, text)) + b"\n"


def append_text(path: Path, line: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, line)
    finally:
        os.close(fd)


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
