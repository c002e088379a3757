"""The rows and processes of all shards of a cluster, for the commands that show what runs.

`ClusterRows` reads the journal of each shard in PostgreSQL, and says which shards are late: their host does not answer,
or none has them open. `ClusterFold` is both folds over all of them, under addresses (`s2/p17`). For `ps` and `tree` of
the living it takes the table of each host instead of the journals, all at the same time; of a late shard the snapshot
and the rows after it, as of its last row. No command waits
longer than CLUSTER_ANSWER_S for a host that is held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack
from heapq import merge
from typing import Any, Final, TypeVar

import msgspec

from lyra.cli.render import moment, note
from lyra.cli.views.rows import Folded, StoreRows
from lyra.cluster.peers import PeerTls
from lyra.cluster.report import ClusterObserver, find_late_shards
from lyra.cluster.vega_runs import open_run
from lyra.core.event import Event
from lyra.errors import ConfigError, LyraError, NoCluster, StoreError
from lyra.observe.history.calls import CallHistory
from lyra.observe.history.processes import ProcessRecord, ProcessTable
from lyra.store.postgres import PostgresReader

T = TypeVar("T")
_TABLE_S: Final = 10.0  # for the table of a host that has just answered: it may be long


def open_cluster(url: str, tls: PeerTls | None = None) -> ClusterRows | None:
    """Open the cluster in a database; None where there is none."""
    try:
        return ClusterRows(url, tls)
    except NoCluster:
        return None


class ShardRows(StoreRows):
    """The journal of one shard. With `brief` it is folded from the newest snapshot on, without older calls."""

    def __init__(self, shard: str, store: PostgresReader, *, brief: bool = False) -> None:
        super().__init__(store)
        self.shard = shard
        self.is_brief = brief

    def rows(self, after: int = 0, *, pid: str | None = None, kind: str | None = None) -> Iterator[Event]:
        start = max(after, self._store.load_snapshots().seq) if self.is_brief and not after else after
        return super().rows(start, pid=pid, kind=kind)

    def snapshot(self) -> Any:
        return self._store if self.is_brief else super().snapshot()

    def last_time(self) -> float | None:
        """Return when the last row was written; None where there is none."""
        seq = self._store.last_seq()
        return next((row.time for row in self._store.read(after=seq - 1)), None) if seq else None


class ClusterRows:
    """See the module. `late` has a sentence for each shard that is not shown as it is at the moment."""

    def __init__(self, url: str, tls: PeerTls | None = None) -> None:
        self._stack = ExitStack()
        self._observer = ClusterObserver(url, tls)
        self._runner = self._stack.enter_context(asyncio.Runner())  # the channels to the hosts belong to its loop
        self._stack.callback(lambda: self._runner.run(self._observer.close()))
        self.location = self._observer.directory.location
        self.shards = list(self._observer.view.shards)
        self.late: dict[str, str] = {}
        self._rows: dict[str, ShardRows] = {}
        self._seqs: dict[str, int] = {}  # shard → number of the last row that was given

    def close(self) -> None:
        self._stack.close()

    def open_run(self, run: str) -> StoreRows:
        """Open the journal of a Vega run, which is beside those of the shards."""
        try:
            space, _ = open_run(self._observer.directory, run, make=False)
        except StoreError as error:
            if error.fields.get("name") != run:
                raise
            raise ConfigError(f"there is no run {run!r} in {self.location}", key="--run") from None
        self._stack.callback(space.close)
        return StoreRows(space)

    def snapshot(self) -> None:
        """Return None: each shard has its own."""

    def rows_of(self, shard: str, *, brief: bool = False) -> ShardRows | None:
        """Open the journal of a shard; None where no host has ever opened the shard."""
        if shard not in self._rows:
            try:
                store = PostgresReader(self._observer.directory.url_of(shard))
            except StoreError:
                if self._observer.view.shards[shard].format:  # a host had it open
                    raise
                return None
            self._stack.callback(store.close)
            self._rows[shard] = ShardRows(shard, store, brief=brief)
        return self._rows[shard]

    def rows(self, after: int = 0, *, pid: str | None = None, kind: str | None = None) -> Iterator[Event]:
        """Yield the rows of all shards by their time, or those of the shard of a process. Pids are addresses."""
        shards, inside = self.shards, None
        if pid is not None:
            shard, inside = self.split(pid)
            shards = [shard]
        elif after:
            raise ConfigError(
                "each shard numbers its rows itself", hint="name a process with --pid SHARD/PID", key="--after"
            )
        return merge(*[self._read(shard, after, inside, kind) for shard in shards], key=lambda event: event.time)

    def new_rows(self, pid: str | None, kind: str | None) -> list[Event]:
        """Return the rows that came since those that were given, by their time."""
        wanted, inside = (None, None) if pid is None else self.split(pid)
        shards = self.shards if wanted is None else [wanted]
        events = [event for shard in shards for event in self._read(shard, self._seqs.get(shard, 0), inside, kind)]
        return sorted(events, key=lambda event: event.time)

    def _read(self, shard: str, after: int, pid: str | None, kind: str | None) -> Iterator[Event]:
        rows = self.rows_of(shard)
        for event in () if rows is None else rows.rows(after, pid=pid, kind=kind):
            self._seqs[shard] = max(event.seq, self._seqs.get(shard, 0))
            yield Event(event.seq, event.time, f"{shard}/{event.pid}", event.kind, event.data)

    def split(self, address: str) -> tuple[str, str]:
        """Return the shard and the pid of an address; ConfigError for a bare pid."""
        shard, slash, pid = address.partition("/")
        if not slash or shard not in self.shards:
            raise ConfigError(
                f"{address!r} is no address in this cluster", hint="write SHARD/PID, such as s2/p17", key="--pid"
            )
        return shard, pid

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def find_late(self) -> None:
        """Ask all hosts, and note which shards are late."""
        self._run(self._find_late())

    async def _find_late(self) -> list[str]:
        self._observer.refresh()
        answers = await self._observer.ask_hosts("status", {})
        self.late = find_late_shards(self._observer.view, self._observer.silences_s, answers)
        return [name for name, answer in answers.items() if not isinstance(answer, LyraError)]

    def read_tables(self) -> dict[str, list[ProcessRecord]]:
        """Return the live processes of the shards whose hosts tell them, by shard; the others are late."""
        return self._run(self._read_tables())

    async def _read_tables(self) -> dict[str, list[ProcessRecord]]:
        tables: dict[str, list[ProcessRecord]] = {}
        hosts = await self._find_late()
        for host, answer in (await self._observer.ask_hosts("table", {}, timeout_s=_TABLE_S, hosts=hosts)).items():
            for shard, records in ({} if isinstance(answer, LyraError) else answer).items():
                if self._observer.view.shards[shard].host == host:
                    tables[shard] = [msgspec.convert(record, ProcessRecord) for record in records]
        for shard in self.shards:
            if shard not in tables:
                self.late.setdefault(shard, "its host did not tell its processes")
        return tables

    def describe_late(self) -> list[str]:
        """Say which shards are late, and as of when they are shown."""
        sentences = []
        for shard, reason in self.late.items():
            rows = self.rows_of(shard)
            last = None if rows is None else rows.last_time()
            shown = "nothing is known of it" if last is None else f"shown from its journal, as of {moment(last)}"
            sentences.append(f"shard {shard} is late: {reason}; {shown}")
        return sentences


class ClusterFold:
    """Both folds over all shards; see the module. `as_of` has the time of the last row of each late shard."""

    def __init__(self, source: ClusterRows, *, live: bool = False) -> None:
        self._source = source
        self._live = live
        self._folds: dict[str, Folded] = {}
        self.processes = ProcessTable()
        self.calls = CallHistory()
        self.as_of: dict[str, float | None] = {}
        self.late: list[str] = []
        self.refresh()
        for sentence in self.late:
            note(sentence)

    def refresh(self) -> None:
        """Read on, and put the shards together anew."""
        tables = self._source.read_tables() if self._live else {}
        if not self._live:
            self._source.find_late()
        self.processes, self.calls, self.as_of = ProcessTable(), CallHistory(), {}
        for shard in self._source.shards:
            if shard in tables:
                self._add_records(shard, tables[shard])
            else:
                self._add_fold(shard)
        self.late = self._source.describe_late()

    def _add_fold(self, shard: str) -> None:
        fold = self._folds.get(shard)
        if fold is None:
            rows = self._source.rows_of(shard, brief=self._live)
            if rows is None:
                return
            fold = self._folds[shard] = Folded(rows)
        else:
            fold.refresh()
        self._add_records(shard, list(fold.processes.records.values()))
        for call in fold.calls.records.values():
            address = f"{shard}/{call.pid}"
            self.calls.records[address, call.key] = msgspec.structs.replace(call, pid=address)
        self.calls.dropped += fold.calls.dropped
        if shard in self._source.late:
            rows = self._source.rows_of(shard)
            self.as_of[shard] = None if rows is None else rows.last_time()

    def _add_records(self, shard: str, records: list[ProcessRecord]) -> None:
        for record in records:
            address = f"{shard}/{record.pid}"
            parent = f"{shard}/{record.parent}" if record.parent else record.parent_elsewhere
            self.processes.records[address] = msgspec.structs.replace(record, pid=address, parent=parent)

    def describe_place(self, record: ProcessRecord) -> dict[str, Any]:
        """Return what `--json` adds to a process: its shard, and as of when it is shown; None: at this moment."""
        shard = record.pid.partition("/")[0]
        return {"shard": shard, "as_of": self.as_of.get(shard)}
