"""A durable Vega run found by its id in an open store, and its journal as steps.

A run has a journal of its own in the file of the store, beside that of the store's processes. Reads only.
"""

from __future__ import annotations

from typing import Any, Final

from lyra.errors import LyraError
from lyra.observe.timeline.journal import StoredRows
from lyra.observe.timeline.timeline import STEPS_MAX, RunTimeline
from lyra.store.protocol import Store
from lyra.store.space import Space, spaces
from lyra.store.sqlite import SqliteStore
from lyra.vega.durable.record import MAIN
from lyra.vega.durable.runs import DurableRun
from lyra.vega.machine.snapshot import value_from_data
from lyra.vega.replay.timeline import brief

_SAVED: Final = {"value", "heap"}  # the keys of a value as `machine.snapshot` saves it
_MESSAGE: Final = "vega"  # the first of the two parts of a message from one process to another
_ANY: Final = 1 << 30  # functions: which one it is does not matter for its text
_SHOWN_CHARS: Final = 20_000


class VegaRows(StoredRows):
    """The journal of a run, with the values of its program as a person reads them."""

    def readable(self, value: Any) -> Any:
        if isinstance(value, dict) and value.keys() == _SAVED:
            return _shown(value)
        if isinstance(value, list):
            if len(value) == 2 and value[0] == _MESSAGE:
                return self.readable(value[1])
            return [_shown(item) if isinstance(item, dict) and item.keys() == _SAVED else item for item in value]
        return value


def _shown(saved: dict[str, Any]) -> Any:
    """A value as it is saved: itself where it is plain, else its text."""
    try:
        value = value_from_data(saved, functions=_ANY)
    except (LyraError, ValueError, LookupError, TypeError):  # of another version
        return saved
    return value if value is None or isinstance(value, (bool, int, float, str)) else brief(value, _SHOWN_CHARS)


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
    return RunTimeline(VegaRows(run.space), MAIN, steps_max=steps_max, run_id=run.id)
