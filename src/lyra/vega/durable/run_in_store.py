"""A durable Vega run found by its id in an open store, and its journal as steps.

A run has a journal of its own in the file of the store, beside that of the store's processes. Reads only.
"""

from __future__ import annotations

from lyra.observe.timeline.journal import StoredRows
from lyra.observe.timeline.timeline import STEPS_MAX, RunTimeline
from lyra.store.protocol import Store
from lyra.store.space import Space, spaces
from lyra.store.sqlite import SqliteStore
from lyra.vega.durable.record import MAIN
from lyra.vega.durable.runs import DurableRun

__all__ = ["run_in_store", "run_names", "timeline_of_run"]


def run_names(store: Store | None) -> list[str]:
    """The names of all journals beside the store's own, oldest first; some may belong to no run."""
    return spaces(store) if isinstance(store, SqliteStore) else []


def run_in_store(store: Store, name: str) -> DurableRun | None:
    """The run of this name, over a connection of its own (`run.space`); None where there is none that has begun."""
    if not isinstance(store, SqliteStore) or name not in spaces(store):
        return None
    space = Space(store.location, name, make=False, writes=False)
    try:
        run = DurableRun(space)
        if space.last_seq() and run.has_begun:
            return run
    except BaseException:
        space.close()
        raise
    space.close()
    return None


def timeline_of_run(run: DurableRun, *, steps_max: int = STEPS_MAX) -> RunTimeline:
    """The steps of the run's journal."""
    return RunTimeline(StoredRows(run.space), MAIN, steps_max=steps_max, run_id=run.id)
