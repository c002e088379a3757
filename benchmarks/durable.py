"""A durable step against the same rows written by plain sqlite3 in as many transactions, and against other systems.

The baseline is as unfair to us as it can be: it gets the finished rows of our own run (the same bytes) and the sizes of
our own commits, and only calls `executemany` in WAL mode with synchronous=NORMAL. The second baseline also turns the
data of each row into msgpack. Neither has a program, a door, a hash, a checksum or a budget.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import peers
from benchmarks.measure import Figure, Goal, Row, Size, Stopwatch, Timing, at_most, interleave, ratio_at_most
from lyra.core.effect import effect
from lyra.kernel import Kernel
from lyra.store.sqlite import SqliteStore

TABLE = (
    "CREATE TABLE journal (seq INTEGER PRIMARY KEY, time REAL NOT NULL, pid TEXT NOT NULL, kind TEXT NOT NULL,"
    " data BLOB NOT NULL)"
)
INSERT = "INSERT INTO journal (seq, time, pid, kind, data) VALUES (?, ?, ?, ?, ?)"


async def act() -> int:
    return 1


repeatable = effect(act, name="bench:repeatable", idempotent=True)


async def look(path: str, number: int) -> dict[str, Any]:
    return {"number": number, "text": "an answer of ordinary length"}


async def with_arguments(ctx: Any, count: int) -> None:
    """Steps as programs really make them: arguments to hash, a mapping to write and to read back."""
    for number in range(count):
        await ctx.do(look, "notes/today.txt", number)


class CountingStore(SqliteStore):
    """A SqliteStore that remembers how many rows each commit had."""

    batches: list[int]

    def append(self, records: Any, epoch: int) -> None:
        self.batches.append(len(records))
        super().append(records, epoch)


async def once_only(ctx: Any, count: int) -> None:
    """Steps that must not be done twice: "started" is durable before each, so two commits."""
    for _ in range(count):
        await ctx.do(act)


async def as_often_as_needed(ctx: Any, count: int) -> None:
    """Steps that may be done again after a crash: one commit each."""
    for _ in range(count):
        await ctx.do(repeatable)


class Case:
    """One way to make steps, and the baselines that write the rows of its latest run."""

    def __init__(self, folder: Path, program: Callable[..., Any], processes: int, calls_per_process: int) -> None:
        self.folder = folder
        self.program = program
        self.processes = processes
        self.calls_per_process = calls_per_process
        self.rows: list[tuple[Any, ...]] = []
        self.batches: list[int] = []

    @property
    def steps(self) -> int:
        return self.processes * self.calls_per_process

    @property
    def rows_a_commit(self) -> float:
        return sum(self.batches) / len(self.batches)

    def ours(self) -> Timing:
        return asyncio.run(self._ours())

    async def _ours(self) -> Timing:
        path = self._fresh("ours.db")
        store = CountingStore(path)
        store.batches = []
        async with Kernel(store, programs=[self.program], snapshot_every_events=10**9) as kernel:
            store.batches.clear()
            with Stopwatch(self.steps) as watch:
                handles = [kernel.spawn(self.program, self.calls_per_process) for _ in range(self.processes)]
                for handle in handles:
                    assert (await handle.wait()).ok
            self.batches = list(store.batches)
            self.rows = [tuple(row) for row in store.read()]
        store.close()
        assert len(self.rows) == sum(self.batches)
        return watch.timing

    def plain(self, *, encode: bool = False) -> Timing:
        """The same rows in the same transactions; with `encode`, their data is made from plain values first."""
        connection = sqlite3.connect(self._fresh("plain.db"), isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute(TABLE)
        batches: list[list[tuple[Any, ...]]] = []
        start = 0
        for count in self.batches:
            batches.append(self.rows[start : start + count])
            start += count
        if encode:
            read = msgspec.msgpack.decode
            batches = [[(*row[:4], read(row[4])) for row in batch] for batch in batches]
        write = msgspec.msgpack.Encoder().encode
        execute, executemany = connection.execute, connection.executemany
        with Stopwatch(self.steps) as watch:
            for batch in batches:
                execute("BEGIN IMMEDIATE")
                if encode:
                    batch = [(seq, time, pid, kind, write(data)) for seq, time, pid, kind, data in batch]  # noqa: PLW2901
                executemany(INSERT, batch)
                execute("COMMIT")
        ((count,),) = execute("SELECT count(*) FROM journal").fetchall()
        connection.close()
        assert count == len(self.rows)
        return watch.timing

    def _fresh(self, name: str) -> Path:
        path = self.folder / name
        for suffix in ("", "-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        return path


def _rows(title: str, case: Case, repeats: int) -> list[Row]:
    best = interleave(
        {"ours": case.ours, "plain": case.plain, "encoded": partial(case.plain, encode=True)},
        repeats,
    )
    goals: tuple[Goal, ...] = (ratio_at_most(2), at_most(200, "µs"))
    note = f"{case.rows_a_commit:.0f} rows a commit"
    return [
        Row(title, best["ours"], "the same rows by executemany", best["plain"], goals, note),
        Row(title, best["ours"], "… encoded by the baseline too", best["encoded"], goals),
    ]


def run(size: Size) -> list[Row]:
    alone, processes, calls_per_process = size.of(2_000, 20), size.of(100, 5), size.of(100, 5)
    with tempfile.TemporaryDirectory(prefix="lyra-bench-") as name:
        folder = Path(name)
        table = [
            *_rows("one process, step after step", Case(folder, once_only, 1, alone), size.repeats),
            *_rows("one process, idempotent steps", Case(folder, as_often_as_needed, 1, alone), size.repeats),
            *_rows(
                f"{processes} processes at once", Case(folder, once_only, processes, calls_per_process), size.repeats
            ),
            *_rows(
                f"{processes} processes at once, idempotent steps",
                Case(folder, as_often_as_needed, processes, calls_per_process),
                size.repeats,
            ),
        ]
        table += _rows(
            f"{processes} processes at once, arguments and a mapping back",
            Case(folder, with_arguments, processes, calls_per_process),
            size.repeats,
        )
        ours = table[0].ours
        for peer in peers.measured(size, folder):
            theirs = None if peer.cpu_us is None else Figure(peer.cpu_us, "µs", peer.wall_us)
            table.append(Row("one process, step after step", ours, peer.name, theirs, note=peer.problem))
    return table
