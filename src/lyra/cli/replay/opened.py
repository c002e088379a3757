"""The run that `lyra replay` and `lyra diff` look at: its store is opened to be read, and never written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from lyra.errors import ConfigError, NoSuchProcess, StoreError

if TYPE_CHECKING:
    from lyra.observe.timeline.timeline import RunTimeline
    from lyra.store.protocol import Store
    from lyra.vega.durable.runs import DurableRun


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


class OpenedRun(NamedTuple):
    """A run with the store that has its rows: of a Vega run that is a journal of its own, and `vega` the run."""

    store: Store
    timeline: RunTimeline
    vega: DurableRun | None = None


@contextmanager
def opened_run(store: Store, word: str) -> Iterator[OpenedRun]:
    """The run of a process by pid or name, or a durable run of a Vega program by its id."""
    try:
        timeline = timeline_of(store, word)
    except ConfigError:
        from lyra.vega.replay.timeline import run_in_store, timeline_of_run

        run = run_in_store(store, word)
        if run is None:
            raise
        try:
            yield OpenedRun(run.space, timeline_of_run(run), run)
        finally:
            run.space.close()
    else:
        yield OpenedRun(store, timeline)


def timeline_of(store: Store, pid: str) -> RunTimeline:
    """The run of a process, by pid or name."""
    from lyra.observe.timeline.journal import StoredRows
    from lyra.observe.timeline.timeline import RunTimeline

    try:
        return RunTimeline.named(StoredRows(store), pid)
    except NoSuchProcess as error:
        raise ConfigError(error.message, hint=error.hint) from None
