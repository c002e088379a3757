"""Rows of a store or a server, and the folds of them that the views show: processes and calls.

`StoreRows` reads beside a kernel that may run on the store, `ServerRows` asks a server page by page, and `Folded` folds
either. Those of a cluster are in `shards`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final, Protocol

import msgspec

from lyra.core.codec import decode
from lyra.core.event import Event
from lyra.errors import Corrupt, LyraError, StoreError, Unauthenticated
from lyra.kernel.journal.history import SHARD, Fold, ProcessState
from lyra.observe.history.calls import CallHistory
from lyra.observe.history.processes import ProcessRecord, ProcessTable
from lyra.store.ended import load_all
from lyra.store.protocol import Store

_TIMEOUT_S: Final = 30.0
_PAGE: Final = 5_000


class RowSource(Protocol):
    """Rows in the order of their numbers; asked again later, it has those that came since."""

    @property
    def location(self) -> str: ...

    def rows(self, after: int = 0, *, pid: str | None = None, kind: str | None = None) -> Iterator[Event]: ...

    def snapshot(self) -> Store | None:
        """Return the store, where rows were dropped by a compaction and its snapshot tells what they made; else
        None."""
        ...


class StoreRows:
    """The journal of a store, as it stands when it is read."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def location(self) -> str:
        return self._store.location

    def rows(self, after: int = 0, *, pid: str | None = None, kind: str | None = None) -> Iterator[Event]:
        for row in self._store.read(after=after, pid=pid, kind=kind):
            yield Event(row.seq, row.time, row.pid, row.kind, decode(row.data))

    def snapshot(self) -> Store | None:
        return self._store if self._store.first_seq() > 1 else None


class ServerRows:
    """The rows that a server gives, a page at a time. One of a cluster has a place for each shard where others have the
    number of a row: it is remembered, since rows of several shards have no order by number."""

    def __init__(self, url: str) -> None:
        self.location = url
        self._place = ""

    def rows(self, after: int = 0, *, pid: str | None = None, kind: str | None = None) -> Iterator[Event]:
        wanted = {name: value for name, value in (("pid", pid), ("kind", kind)) if value is not None}
        place: int | str = self._place if after and self._place else after
        while True:
            page = self._page({**wanted, "after": place, "limit": _PAGE})
            place = page.last_seq
            if isinstance(place, str):
                self._place = place
            yield from page.events
            if not page.more:
                return

    def snapshot(self) -> Store | None:
        return None

    def _page(self, query: dict[str, Any]) -> _Page:
        import httpx2

        from lyra.server.identity import read_kept_token

        token = read_kept_token(os.environ)
        headers = {"authorization": f"Bearer {token}"} if token else {}
        try:
            answer = httpx2.get(f"{self.location}/api/history", params=query, headers=headers, timeout=_TIMEOUT_S)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise StoreError(f"the server at {self.location} cannot be reached: {error}") from None
        if answer.status_code == 401:
            raise Unauthenticated(
                f"the server at {self.location} does not know this token", hint="set LYRA_TOKEN to one of its tokens"
            )
        if answer.status_code != 200:
            raise LyraError(f"the server at {self.location} answered with {answer.status_code}")
        try:
            return msgspec.json.decode(answer.content, type=_Page)
        except msgspec.MsgspecError:
            raise LyraError(f"{self.location} does not answer as a Lyra server does") from None


class _Page(msgspec.Struct):
    events: list[Event]
    last_seq: int | str = 0
    more: bool = False


class Folded:
    """Both folds over one source. `refresh` reads the rows that came since the last time."""

    def __init__(self, source: RowSource) -> None:
        self._source = source
        self.processes = ProcessTable()
        self.calls = CallHistory()
        self.late: list[str] = []  # of a cluster: what is not shown as it is at the moment
        compacted = source.snapshot()
        self._covered = 0 if compacted is None else self._take_snapshot(compacted)
        self._seq = 0
        self.refresh()

    def describe_place(self, _record: ProcessRecord) -> dict[str, Any]:
        """Return nothing: what `--json` adds to a process of a cluster."""
        return {}

    def refresh(self) -> int:
        """Read on; gives how many rows there were."""
        count = 0
        for event in self._source.rows(self._seq):
            count += 1
            self._seq = event.seq
            try:
                self.calls.add(event)
                if event.seq > self._covered:
                    self.processes.add(event)
            except (AttributeError, KeyError, TypeError, ValueError):
                raise Corrupt(
                    f"row {event.seq} ({event.kind}) of {self._source.location} cannot be read",
                    hint="`lyra store check` looks at the whole store",
                ) from None
        return count

    def _take_snapshot(self, store: Store) -> int:
        """Take over the processes whose rows a compaction dropped; gives the row up to which the snapshot tells."""
        snapshot = load_all(store)
        states = {pid: state for pid, state in snapshot.states.items() if pid[:1] != "~"}  # not those of subsystems
        try:
            fold = Fold.load(snapshot.seq, states)
        except Corrupt:  # `lyra store check` says what is wrong
            return 0
        shard = snapshot.states.get(SHARD)
        parents = {} if shard is None else decode(shard)["parts"].get("spawns", {}).get("parents", {})
        for pid, state in fold.processes.items():
            self.processes.records[pid] = _record(pid, state)
            self.processes.records[pid].parent_elsewhere = parents.get(pid, "")
        return snapshot.seq


def _record(pid: str, state: ProcessState) -> ProcessRecord:
    exit_row = state.exit
    record = ProcessRecord(
        pid,
        program=state.created.program,
        name=state.created.name,
        parent=state.created.parent,
        created_at=state.created_at,
        spent=dict(state.spent),
        lent=dict(state.lent or {}),
        attempts={str(key): entry.crashes for key, entry in state.effects.items() if entry.crashes and not entry.done},
        mailbox={seq: {} for seq, *_ in state.inbox},
        questions={id_: pending.question or pending.message for id_, pending in state.interrupts.items()},
    )
    if record.questions:
        record.state = "waiting"
    if exit_row is not None:
        record.state, record.reason, record.ended_at = "terminated", exit_row.reason, state.exit_at
        record.error = str((msgspec.to_builtins(exit_row.error) or {}).get("message", ""))
    return record
