"""Where the rows of a run come from: a store, read beside the kernel that may own it, and never written.

`run_rows` gives the rows that belong to one process and to those that it started, in order. A row is an Event. Values
that were too large for their row are blobs, which `RowReader.blob` gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from lyra.core import codec
from lyra.core.event import Event
from lyra.errors import Corrupt, LyraError
from lyra.store.ended import load_all, subtract
from lyra.store.protocol import Store

Wanted = Callable[[str, str], bool]  # whether a row of this pid and kind is to be read
_NAMES_OTHERS: Final = frozenset({"process.created", "message.sent"})  # rows that may belong to two processes
_SHARED: Final = frozenset({"group.created", "group.deleted", "group.set", "group.unset"})


class RowReader(Protocol):
    """Rows of a journal in the order of their numbers."""

    @property
    def location(self) -> str: ...

    def rows(self, *, after: int = 0, upto: int | None = None, wanted: Wanted | None = None) -> Iterator[Event]: ...

    def last_seq(self) -> int:
        """Return the number of the last row there is."""
        ...

    def blob(self, digest: str) -> bytes: ...

    def readable(self, value: Any) -> Any:
        """Return a value of a row as a person reads it, where programs write theirs in their own form."""
        ...

    def read_kept_states(self) -> tuple[int, dict[str, Any]]:
        """Return what is kept of processes whose first rows were dropped, by pid, and the last row that it covers."""
        ...


class StoredRows:
    """The journal of an open store. Rows that are not wanted are not decoded."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def readable(self, value: Any) -> Any:
        return value

    @property
    def location(self) -> str:
        return self._store.location

    def rows(self, *, after: int = 0, upto: int | None = None, wanted: Wanted | None = None) -> Iterator[Event]:
        for row in self._store.read(after=after, upto=upto):
            if wanted is None or wanted(row.pid, row.kind):
                yield Event(row.seq, row.time, row.pid, row.kind, codec.decode(row.data))

    def last_seq(self) -> int:
        return self._store.last_seq()

    def blob(self, digest: str) -> bytes:
        return self._store.get_blob(digest)

    def read_kept_states(self) -> tuple[int, dict[str, Any]]:
        first_seq = self._store.first_seq()
        if first_seq <= 1:
            return 0, {}
        kept = load_all(self._store)
        states = {pid: codec.decode(data) for pid, data in kept.states.items() if pid[:1] != "~"}
        put_away = [state for state in states.values() if state.get("passed_on")]
        for state in sorted(put_away, key=lambda state: state["created_seq"]):  # from above
            parent = states.get(state["created"].get("parent"))
            if parent is not None:
                subtract(parent["spent"], state["passed_on"])
            state["spent"] = state["passed_on"]
        return kept.seq, {pid: state for pid, state in states.items() if state.get("created_seq", 0) < first_seq}


class RunRows:
    """The rows of one process and of all that it started. `pids` are those processes, in the order of their start.

    Of a process whose first rows were dropped the kept state is all there is until the row that it covers: rows up to
    there that are left are not read, since the state has them in it.
    """

    def __init__(self, reader: RowReader, pid: str) -> None:
        self.reader = reader
        self.pid = pid
        self.pids: dict[str, None] = {pid: None}
        self.first_seq = 0  # of the first row that was read
        self.kept: dict[str, Any] = {}  # what is left of processes whose rows were dropped
        self._kept_seq, states = reader.read_kept_states()
        if states:
            self._take_kept(states)

    def _take_kept(self, states: dict[str, Any]) -> None:
        parents = {pid: str((state.get("created") or {}).get("parent") or "") for pid, state in states.items()}
        for pid, state in states.items():
            above, seen = pid, {pid}
            while above != self.pid and parents.get(above) and parents[above] not in seen:
                above = parents[above]
                seen.add(above)
            if above == self.pid:
                self.pids[pid] = None
                self.kept[pid] = state

    def read(self, *, after: int = 0, upto: int | None = None) -> Iterator[Event]:
        """Yield the rows after one number and up to another."""

        def is_wanted(pid: str, kind: str) -> bool:
            return pid in self.pids or kind in _NAMES_OTHERS or kind in _SHARED

        for event in self.reader.rows(after=after, upto=upto, wanted=is_wanted):
            if event.seq <= self._kept_seq and event.pid in self.kept:
                continue
            if event.kind == "process.created" and event.data.get("parent") in self.pids:
                self.pids[event.pid] = None
            is_sent = event.kind == "message.sent" and event.data.get("sender") in self.pids
            if is_sent or event.pid in self.pids or event.kind in _SHARED:
                if not self.first_seq and event.kind not in _SHARED:
                    self.first_seq = event.seq
                yield event


def value_of(reader: RowReader, data: Any, name: str = "value") -> Any:
    """Return the value of a row: in the row itself, or in the blob that it names."""
    digest = data.get("blob")
    if not digest:
        return reader.readable(data.get(name))
    try:
        return reader.readable(codec.decode(reader.blob(digest)))
    except Corrupt:
        raise
    except LyraError:  # a server that gives rows and no blobs, or a blob that was cleaned up
        return "(a large value that cannot be read from here)"
