"""A store opened only to be read: nothing in it is written, not even to bring an older version's tables up to date.

`open_to_read(target)` opens the store that a user names, beside the kernel that may own it. A store that does not exist
is not made.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

from lyra.errors import ConfigError, StoreError
from lyra.store.protocol import Store
from lyra.store.sql import Row
from lyra.store.sqlite import SqliteStore

_UNCHANGING: Final = "ro&immutable=1"  # of a SQLite URI


class SqliteReader(SqliteStore):
    """The store in the file `path`, over a connection that cannot write.

    A store that a kernel has open has a log beside it, and is read together with it. One without a log is read as a
    file that does not change: SQLite would make a log for it otherwise, and leave it there. Where a log appears,
    because a kernel opens the store meanwhile, or the file has changed, because a kernel did and has closed it, the
    reader opens it again.
    """

    _as_opened: tuple[int, int, int] = (0, 0, 0)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path, writes=False)

    @property
    def _has_log(self) -> bool:
        return os.path.exists(f"{self.path}-wal")

    def _exists(self) -> bool:
        if not super()._exists():
            raise StoreError(
                f"there is no store at {self.path}", hint="a kernel makes it when it first opens; is the path right?"
            )
        if self._open_mode in ("rw", _UNCHANGING):
            self._open_mode = "ro" if self._has_log else _UNCHANGING
            self._as_opened = self._looks()
        return True

    def _looks(self) -> tuple[int, int, int]:
        """Return what changes when the file is written or replaced."""
        try:
            facts = os.stat(self.path)
        except OSError:
            return (0, 0, 0)
        return facts.st_ino, facts.st_size, facts.st_mtime_ns

    def _ask(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        is_old = self._open_mode == _UNCHANGING and (self._has_log or self._looks() != self._as_opened)
        if is_old and self._connection is not None and not self._connection.in_transaction:
            self.close()
            self._exists()
            self._open()
        return super()._ask(statement, values)


def open_to_read(target: str) -> Store:
    """Open a store that exists, by path or URL."""
    if target == "memory":
        raise ConfigError(
            "a memory store ends with its kernel; there is nothing to look at",
            hint="name a file or a postgresql:// URL",
        )
    if target.startswith(("postgresql://", "postgres://")):
        from lyra.store.postgres import PostgresReader

        return PostgresReader(target)
    if "://" in target and not target.startswith("sqlite://"):
        from lyra.store import open_store

        return open_store(target)  # which says what there is
    return SqliteReader(target.removeprefix("sqlite://"))
