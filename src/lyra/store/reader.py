"""A store opened only to be read: nothing in it is written, not even to bring an older version's tables up to date.

`open_to_read(target)` opens the store that a user names, beside the kernel that may own it. A store that does not exist
is not made.
"""

from __future__ import annotations

import os

from lyra.errors import ConfigError, StoreError
from lyra.store.protocol import Store
from lyra.store.sqlite import SqliteStore

__all__ = ["SqliteReader", "open_to_read"]


class SqliteReader(SqliteStore):
    """The store in the file `path`, over a connection that cannot write."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path, writes=False)

    def _exists(self) -> bool:
        if not super()._exists():
            raise StoreError(
                f"there is no store at {self.path}", hint="a kernel makes it when it first opens; is the path right?"
            )
        if self._open_mode == "rw":
            self._open_mode = "ro"
        return True


def open_to_read(target: str) -> Store:
    """Open a store that exists, by path or URL."""
    if target == "memory":
        raise ConfigError(
            "a memory store ends with its kernel; there is nothing to look at",
            hint="name a file or a postgresql:// URL",
        )
    if "://" in target and not target.startswith("sqlite://"):
        from lyra.store import open_store

        return open_store(target)
    return SqliteReader(target.removeprefix("sqlite://"))
