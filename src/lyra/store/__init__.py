"""The one durable place: journal, snapshots, blobs and the owner's lease.

`protocol` says what a Store is; `sqlite` is the default, `memory` forgets on exit, `postgres` serves many machines.
Stores are plain blocking objects used by one thread at a time: the kernel decides whether to call them on its loop
or from its writer thread. `open_store(target)` opens the one that a user names (a path, a URL, `"memory"`); each
implementation is imported only when it is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lyra.errors import ConfigError
from lyra.store.protocol import Identity, Lease, Record, Snapshot, Store

if TYPE_CHECKING:
    from lyra.store.signature import Signer

__all__ = ["Identity", "KeyedStore", "Lease", "Record", "Snapshot", "Store", "open_keyed", "open_store"]


class KeyedStore(NamedTuple):
    """A store in PostgreSQL that a key of its own signs, in place of the user's: hosts of several users and machines
    open it, one after the other."""

    url: str
    signer: Signer


def open_keyed(target: KeyedStore, *, durability: str = "process") -> Store:
    """Open a store that has a key of its own."""
    from lyra.store.postgres import PostgresStore

    store = PostgresStore(target.url, durability=durability)
    store.own_signer = target.signer
    return store


def open_store(target: str, *, durability: str = "process") -> Store:
    """Open the Store that a user names: `memory`, a path, `sqlite:///path` or `postgresql://…`."""
    if durability not in ("process", "power"):
        raise ConfigError(
            f"durability is {durability!r}", hint="use 'process' (survives kill -9) or 'power' (survives power loss)"
        )
    if target == "memory":
        from lyra.store.memory import MemoryStore

        return MemoryStore()
    if target.startswith(("postgresql://", "postgres://")):
        from lyra.store.postgres import PostgresStore

        return PostgresStore(target, durability=durability)
    if "://" in target and not target.startswith("sqlite://"):
        raise ConfigError(
            f"no store speaks {target.partition('://')[0]}://",
            hint="use a file path, sqlite:///path or postgresql://host/db",
        )
    from lyra.store.sqlite import SqliteStore

    return SqliteStore(target.removeprefix("sqlite://"), durability=durability)
