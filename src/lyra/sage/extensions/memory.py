"""SharedMemories: what Sage remembers between sessions, in one file of its user, by folder.

    memory = sage_memory(recall=config.sage.recall)
    HeadlessOptions(…, memory=memory)

Sessions have stores of their own; this file is what they share: `$XDG_DATA_HOME/lyra/memory.db`. It has the methods of
`kernel.memories`, so the tools Remember and Recall, `/memory` and the recall in prompts work on it. Recall is off until
the user turns it on (`[sage] recall = true`): then a few items that fit a message are put into its prompt, within a
bound of characters, known keys masked (`lyra.agents.turn.memory`). Texts are redacted before they are kept. An item
that was learned from text of outside carries that mark to each session that reads it.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from lyra.agents.declaration.memory import Memory
from lyra.core.checking.check import check_integer, sendable_text, short_text
from lyra.core.clock import Clock, SystemClock
from lyra.core.limits import MEMORY_TEXT_MAX, NAME_LENGTH_MAX
from lyra.core.own_files import add_own_path, has_no_room, make_folder
from lyra.core.ranking import TextIndex
from lyra.core.secrets.redact import redact
from lyra.core.secrets.visible import without_invisible
from lyra.core.user_folders import data_folder
from lyra.errors import ConfigError, StoreError, StoreFull
from lyra.kernel.base.acting import require
from lyra.kernel.shared.memories import MemoryItem

FILE_NAME: Final = "memory.db"
ITEMS_MAX: Final = 1_000  # of one scope; then the oldest goes
RECALLED_ITEMS: Final = 8  # in one prompt
RECALLED_TOKENS: Final = 500
_BUSY_TIMEOUT_S: Final = 10.0
_VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS items (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    scope TEXT NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL,
    time REAL NOT NULL, tainted INTEGER NOT NULL,
    UNIQUE (scope, kind, text)
)
"""
_COLUMNS: Final = "id, scope, kind, text, time, tainted"


def sage_memory(*, recall: bool, env: Mapping[str, str] | None = None) -> Memory:
    """Return the memory of a session: its scope is the session's folder, and without `recall` no item is put into a
    prompt."""
    folder = data_folder(os.environ if env is None else env)
    items = RECALLED_ITEMS if recall else 0
    return Memory(items=items, tokens=RECALLED_TOKENS, tools=True, home=SharedMemories(folder / FILE_NAME))


class SharedMemories:
    """The items in one file, which several processes may use at once. It is opened when it is first needed."""

    def __init__(self, path: Path, *, clock: Clock | None = None) -> None:
        self.path = path
        self._clock = clock or SystemClock()
        self._connection: sqlite3.Connection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ------------------------------------------------------------ as kernel.memories
    def add(self, scope: str, text: str, *, kind: str = "fact", pid: str = "", tainted: bool = False) -> MemoryItem:  # noqa: ARG002 - `pid` is for a kernel's own
        """Remember something; gives the item, the one from before where it was known."""
        _word(scope, "a scope")
        _word(kind, "a kind of memory")
        require("db.write", f"memories.{scope}")
        clean = redact(without_invisible(sendable_text(short_text(text, "a memory", most=MEMORY_TEXT_MAX), "a memory")))
        clean = clean.strip()
        if not clean:
            raise ConfigError("there is nothing in this memory", key="text")
        with self._open() as connection:
            connection.execute(
                "INSERT INTO items (scope, kind, text, time, tainted) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (scope, kind, clean, self._clock.now(), int(tainted)),
            )
            connection.execute(
                "DELETE FROM items WHERE scope = ? AND id NOT IN "
                "(SELECT id FROM items WHERE scope = ? ORDER BY id DESC LIMIT ?)",
                (scope, scope, ITEMS_MAX),
            )
            query = f"SELECT {_COLUMNS} FROM items WHERE scope = ? AND kind = ? AND text = ?"  # noqa: S608 - a constant
            return _item(connection.execute(query, (scope, kind, clean)).fetchone())

    def forget(self, number: int, *, scope: str) -> bool:
        """Drop an item; False where there was none."""
        require("db.write", f"memories.{scope}")
        with self._open() as connection:
            return connection.execute("DELETE FROM items WHERE id = ? AND scope = ?", (number, scope)).rowcount > 0

    def items(self, scope: str, *, kind: str | None = None) -> list[MemoryItem]:
        """Return all items of a scope, oldest first."""
        require("db.read", f"memories.{scope}")
        if not self.path.exists():  # most people keep nothing: no file is made for a look
            return []
        with self._open() as connection:
            query = f"SELECT {_COLUMNS} FROM items WHERE scope = ? ORDER BY id LIMIT ?"  # noqa: S608 - a constant
            rows = connection.execute(query, (scope, ITEMS_MAX)).fetchall()
        return [item for item in map(_item, rows) if kind is None or item.kind == kind]

    def search(self, scope: str, question: str, *, most: int = 8, kind: str | None = None) -> list[MemoryItem]:
        """Return the items that share words with the question, the best first."""
        check_integer(most, "most", least=1)
        items = {item.id: item for item in self.items(scope, kind=kind)}
        index = TextIndex()
        for item in items.values():
            index.add(item.id, item.text)
        return [items[number] for number, _ in index.search(question, most)]

    # ------------------------------------------------------------ the file
    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection, in a transaction. The file is its user's own, and no agent or command can write it."""
        try:
            if self._connection is None:
                self._connection = self._connect()
            with self._connection:
                yield self._connection
        except sqlite3.Error as error:
            self.close()
            if has_no_room(error, self.path):
                raise StoreFull(f"there is no room left for {self.path}", hint="free some space") from None
            raise StoreError(
                f"what Sage remembers cannot be used: {error}", place=str(self.path), hint="move the file away"
            ) from None

    def _connect(self) -> sqlite3.Connection:
        make_folder(self.path.parent, private=True)
        add_own_path(self.path, is_store=True, opened=True)
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(self.path, timeout=_BUSY_TIMEOUT_S)
        try:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version not in (0, _VERSION):
                raise sqlite3.DatabaseError(f"it is of version {version}, and this Lyra reads version {_VERSION}")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(_SCHEMA)
            connection.execute(f"PRAGMA user_version = {_VERSION}")
        except sqlite3.Error:
            connection.close()
            raise
        return connection


def _item(row: tuple[int, str, str, str, float, int]) -> MemoryItem:
    number, scope, kind, text, time, tainted = row
    return MemoryItem(number, scope, kind, text, time, tainted=bool(tainted))


def _word(value: str, what: str) -> None:
    if not value or short_text(value, what, most=NAME_LENGTH_MAX).strip() != value:
        raise ConfigError(f"{what} is a short word", key=what)
