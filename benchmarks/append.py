"""The store alone: `SqliteStore.append` (fence, order, checksums, batches) against `executemany` of the rows."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from functools import partial
from itertools import count as counter
from pathlib import Path

from benchmarks.durable import INSERT, TABLE
from benchmarks.measure import Row, Size, Stopwatch, Timing, interleave
from lyra.store.sqlite import SqliteStore

_DATA = b"\x82\xa3key\x07\xa5value\xd9\x20" + b"x" * 32
_names = counter()


def _records(rows: int) -> list[tuple[int, float, str, str, bytes]]:
    now = time.time()
    return [(seq, now, "p17", "effect.finished", _DATA) for seq in range(1, rows + 1)]


def ours(folder: Path, rows: int, batch: int) -> Timing:
    records = _records(rows)
    store = SqliteStore(folder / f"{next(_names)}.db")
    lease = store.acquire("bench", now=time.time(), ttl_s=600.0)
    with Stopwatch(rows) as watch:
        for start in range(0, rows, batch):
            store.append(records[start : start + batch], lease.epoch)
    assert store.last_seq() == rows
    store.close()
    return watch.timing


def plain(folder: Path, rows: int, batch: int) -> Timing:
    records = _records(rows)
    connection = sqlite3.connect(folder / f"{next(_names)}.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute(TABLE)
    with Stopwatch(rows) as watch:
        for start in range(0, rows, batch):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(INSERT, records[start : start + batch])
            connection.execute("COMMIT")
    connection.close()
    return watch.timing


def run(size: Size) -> list[Row]:
    table = []
    with tempfile.TemporaryDirectory(prefix="lyra-bench-") as name:
        folder = Path(name)
        for batch in (1, 10, 100, 1_000):
            rows = size.of(max(2_000, 20 * batch), batch)
            best = interleave(
                {"ours": partial(ours, folder, rows, batch), "plain": partial(plain, folder, rows, batch)}, size.repeats
            )
            table.append(Row(f"append a row, {batch} a commit", best["ours"], "executemany", best["plain"]))
    return table
