"""The run that `lyra replay` and `lyra diff` look at: its store is opened to be read, and never written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lyra.errors import ConfigError, NoSuchProcess, StoreError

if TYPE_CHECKING:
    from lyra.observe.timeline.timeline import RunTimeline
    from lyra.store.protocol import Store

__all__ = ["opened_store", "store_target", "timeline_of"]


def store_target(target: str) -> str:
    """The path or URL of the store; a reference such as `env:NAME` is looked up."""
    from lyra.core.secrets.secret import Secret, is_reference

    if target.startswith(("http://", "https://")):
        raise ConfigError(
            f"{target} is a server, not a store",
            hint="name the store that it owns, or open the page /runs of the server in a browser",
        )
    return Secret.parse(target).reveal() if is_reference(target) else target


@contextmanager
def opened_store(target: str) -> Iterator[Store]:
    """The store, to be read beside the kernel that may own it. A wrong one is a mistake of the command line."""
    from lyra.store.reader import open_to_read

    try:
        store = open_to_read(store_target(target))
    except StoreError as error:
        raise ConfigError(error.message, hint=error.hint) from None
    try:
        yield store
    finally:
        store.close()


def timeline_of(store: Store, pid: str) -> RunTimeline:
    """The run of a process, by pid or name."""
    from lyra.observe.timeline.journal import StoredRows
    from lyra.observe.timeline.timeline import RunTimeline

    try:
        return RunTimeline.named(StoredRows(store), pid)
    except NoSuchProcess as error:
        raise ConfigError(error.message, hint=_vega_hint(store, pid) or error.hint) from None


def _vega_hint(store: Store, pid: str) -> str:
    """Where a durable Vega run of that name is looked at."""
    from lyra.store.space import spaces
    from lyra.store.sqlite import SqliteStore

    if isinstance(store, SqliteStore) and pid in spaces(store):
        return f"{pid} is a durable run of a Vega program: vega replay {pid} --db {store.location}"
    return ""
