"""Break a journal in seeded ways and see that no wrong value ever comes out of it.

`run(n, seed)` makes a few SQLite stores as a crash or a clean stop would leave them, then `n` times copies one,
flips, overwrites or cuts bytes of its database or its log, opens it and reads everything. The verdict on each copy is
one of

    whole     nothing was lost
    prefix    the store is as it was after some earlier commit
    corrupt   the store said so, at opening or while reading

Anything else (a wrong row, a hole, a state that was never saved, another exception) is an AssertionError that names
seed, round and damage. `python -m verify.fuzz.damage 5000 1` is the long form. It works on copies in a temporary
folder and nowhere else.
"""

from __future__ import annotations

import shutil
import sqlite3
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lyra.core.ids import ProcessRandom, make_random
from lyra.errors import Corrupt, StoreError
from lyra.store.protocol import Lease, Record, Snapshot, Store
from lyra.store.signature import Signer
from lyra.store.sqlite import SqliteStore

__all__ = ["Case", "cases", "run"]

_BATCHES: Final = 40
_KEY: Final = Signer(bytes(32))
_SPAN_BYTES_MAX: Final = 6000  # longer than a page, so that one blow can hit two


@dataclass(slots=True)
class Case:
    """A store in files, with everything that was ever true of it."""

    name: str
    path: Path
    is_signed: bool = False
    rows: list[Record] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=lambda: [Snapshot(0, {})])
    leases: list[Lease | None] = field(default_factory=lambda: [None])
    blobs: dict[str, bytes] = field(default_factory=dict)

    @property
    def files(self) -> list[Path]:
        log = Path(f"{self.path}-wal")
        return [self.path, log] if log.exists() and log.stat().st_size else [self.path]


# ---------------------------------------------------------------- stores to break
def cases(folder: Path, seed: int) -> list[Case]:
    """Stores as they lie on disk after a crash with the log in four conditions, and after a clean stop."""
    return [
        _crashed(folder / "log-only", seed, checkpoints={}),
        _crashed(folder / "restarted-log", seed, checkpoints={15: "RESTART", 30: "RESTART"}),
        _crashed(folder / "folded-log", seed, checkpoints={25: "PASSIVE"}),
        _crashed(folder / "half-folded-log", seed, checkpoints={35: "PASSIVE"}, reader_from=20),
        _crashed(folder / "stopped", seed, checkpoints={_BATCHES - 1: "TRUNCATE"}),
        _crashed(folder / "signed-folded-log", seed, checkpoints={25: "PASSIVE"}, is_signed=True),
        _crashed(folder / "signed-stopped", seed, checkpoints={_BATCHES - 1: "TRUNCATE"}, is_signed=True),
    ]


def _crashed(
    folder: Path, seed: int, *, checkpoints: dict[int, str], reader_from: int = -1, is_signed: bool = False
) -> Case:
    """Use a store, copy its files while it is open, as if the process had died there."""
    live = folder / "live" / "lyra.db"
    case = Case(folder.name, folder / "lyra.db", is_signed)
    store = SqliteStore(live)
    if is_signed:
        store.sign_with(_KEY)
        store.begin_signing(0)
    operator = sqlite3.connect(live, isolation_level=None)
    reader = sqlite3.connect(live, isolation_level=None)
    # Only the checkpoints asked for: the store's own would come at a moment of SQLite's choosing.
    store._ask("PRAGMA wal_autocheckpoint=0")
    try:
        for step in range(_BATCHES):
            if step == reader_from:
                reader.execute("BEGIN")
                reader.execute("SELECT count(*) FROM journal").fetchall()
            _use(store, case, step, make_random(seed * 1000 + step))
            if step in checkpoints:
                operator.execute(f"PRAGMA wal_checkpoint({checkpoints[step]})").fetchall()
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{live}{suffix}", f"{case.path}{suffix}")
    finally:
        reader.close()
        operator.close()
        store.close()
    return case


def _use(store: Store, case: Case, step: int, draw: ProcessRandom) -> None:
    """One step of a life: rows always, now and then a lease, a snapshot, a blob, a compaction."""
    if step % 8 == 0:
        case.leases.append(store.acquire(f"owner-{step}", now=float(step), ttl_s=8.0))
    epoch = case.leases[-1].epoch if case.leases[-1] else 0
    first = len(case.rows) + 1
    batch = [
        Record(seq, step + draw(), f"p-{seq % 7}", f"kind.{draw.randrange(5)}", draw.randbytes(draw.randrange(400)))
        for seq in range(first, first + draw.randrange(1, 20))
    ]
    if step % 10 == 4:  # one row that spills over several pages
        batch[0] = batch[0]._replace(data=draw.randbytes(9000))
    store.append(batch, epoch)
    case.rows.extend(batch)
    if step % 5 == 3:
        states = {f"p-{number}": draw.randbytes(draw.randrange(200)) for number in range(step % 7)}
        store.save_snapshots(len(case.rows), {**states, "p-0": None}, epoch)
        case.snapshots.append(store.load_snapshots())
    if step % 9 == 5:
        data = draw.randbytes(3000)
        case.blobs[store.put_blob(data)] = data
    if step in (14, 29):
        store.compact(before=step - 6.0, epoch=epoch)


# ---------------------------------------------------------------- blows
def _strike(files: list[Path], draw: ProcessRandom) -> str:
    """Damage one of the files in one way; the words say how."""
    path = draw.choice(files)
    content = bytearray(path.read_bytes())
    size = len(content)
    if not size:
        return f"{path.name}: already empty"
    # Headers are small and matter most, so a third of the blows go there.
    offset = draw.randrange(min(100, size)) if draw() < 0.33 else draw.randrange(size)
    way = draw.choice(("bit", "byte", "byte", "zeros", "noise", "copy", "cut"))
    span = draw.randrange(1, _SPAN_BYTES_MAX)
    if way == "bit":
        content[offset] ^= 1 << draw.randrange(8)
    elif way == "byte":
        content[offset] ^= draw.randrange(1, 256)
    elif way == "cut":
        del content[offset:]
    else:
        end = min(offset + span, size)
        source = draw.randrange(size)
        blow = {
            "zeros": bytes(end - offset),
            "noise": draw.randbytes(end - offset),
            "copy": bytes(content[source : source + end - offset]),
        }[way]
        content[offset : offset + len(blow)] = blow
    path.write_bytes(content)
    return f"{path.name}: {way} at {offset} of {size}" + (f" for {span}" if way in ("zeros", "noise", "copy") else "")


# ---------------------------------------------------------------- the verdict
def _judge(case: Case, path: Path) -> str:
    try:
        store = SqliteStore(path)
    except Corrupt:
        return "corrupt"
    try:
        if case.is_signed:
            store.sign_with(_KEY)
        return _read_all(case, store)
    except Corrupt:
        return "corrupt"
    finally:
        store.close()


def _read_all(case: Case, store: Store) -> str:
    """Compare everything with what was once true; then write, because damage must not turn new rows into wrong ones."""
    first, last = store.first_seq(), store.last_seq()
    rows = list(store.read())
    assert rows == case.rows[first - 1 : last], "the rows are not the ones that were written"
    snapshot = store.load_snapshots()
    assert snapshot in case.snapshots, "a snapshot that was never saved"
    assert first - 1 <= snapshot.seq <= last, "the rows after the snapshot are not all there"
    holder = store.holder()
    assert holder in case.leases, "a lease that was never held"
    blobs = 0
    for digest, data in case.blobs.items():
        blobs += _same_blob(store, digest, data)
    _go_on(store, last)
    lost = last < len(case.rows) or snapshot != case.snapshots[-1] or holder != case.leases[-1]
    return "prefix" if lost or blobs < len(case.blobs) else "whole"


def _same_blob(store: Store, digest: str, data: bytes) -> bool:
    try:
        assert store.get_blob(digest) == data, "a blob that was never put"
    except Corrupt:
        raise
    except StoreError:
        return False
    return True


def _go_on(store: Store, last: int) -> None:
    lease = store.acquire("afterwards", now=1e9, ttl_s=1.0)
    more = [Record(last + number, 1e9, "p-new", "after", bytes(500)) for number in range(1, 60)]
    store.append(more, lease.epoch)
    assert list(store.read(after=last)) == more, "new rows did not come back"
    list(store.read())


def run(n: int, seed: int) -> Counter[str]:
    """`n` damages from `seed`; the verdicts, counted and printed."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="lyra-damage-") as name:
        folder = Path(name)
        stores = cases(folder, seed)
        for case in stores:
            assert _judge(case, _copied(case, folder / "sound")) == "whole", f"{case.name} is not sound to begin with"
        for number in range(n):
            draw = make_random(seed * 1_000_003 + number)
            case = draw.choice(stores)
            path = _copied(case, folder / "copy")
            files = [path, Path(f"{path}-wal")][: len(case.files)]
            blows = [_strike(files, draw) for _ in range(draw.choice((1, 1, 1, 2, 3)))]
            counts[_verdict(case, path, f"seed {seed}, round {number}, {case.name}, {'; '.join(blows)}")] += 1
    print(f"damage: {n} rounds, seed {seed}: {dict(sorted(counts.items()))}")
    return counts


def _verdict(case: Case, path: Path, where: str) -> str:
    try:
        return _judge(case, path)
    except Exception as error:
        raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error


def _copied(case: Case, folder: Path) -> Path:
    """The case's files in an otherwise empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in case.files:
        shutil.copyfile(file, folder / file.name)
    return folder / case.path.name


if __name__ == "__main__":
    run(int(sys.argv[1]), int(sys.argv[2]))
