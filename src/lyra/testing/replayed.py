"""Replaying what a world wrote down: the same programs on the same rows must do nothing new and end the same.

`replay_ends` takes processes that ended by themselves, cuts the journal just before their last row, and opens a fresh kernel
on that prefix. `fold_agrees` holds the snapshots against a fold of the whole journal. Used at the end of every simulated run and, with
journals kept in files, for old histories (`load`, `dump`).
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from lyra.core import codec
from lyra.kernel import Kernel, rows
from lyra.kernel.recall import Fold
from lyra.store.memory import MemoryStore
from lyra.store.protocol import Record
from lyra.testing.clock import SimClock
from lyra.testing.invariants import Violation
from lyra.testing.loop import Deadlock, SimLoop
from lyra.testing.provider import Provider, use
from lyra.testing.workload import sink, worker

if TYPE_CHECKING:
    from lyra.testing.world import World

__all__ = ["Replay", "dump", "fold_agrees", "load", "replay", "replay_ends"]

_PATIENCE_S: Final = 3 * 24 * 3600.0
_REPLAYS_A_WORLD: Final = 2


class Replay:
    """What came of a replay."""

    def __init__(self) -> None:
        self.performed: list[str] = []
        self.diverged: list[str] = []
        self.ended: dict[str, rows.Terminated] = {}


def replay(
    journal: Iterable[Record],
    *,
    programs: Iterable[Callable[..., Any]] = (worker, sink),
    until: str | None = None,
    blobs: dict[str, bytes] | None = None,
) -> Replay:
    """Open a kernel on these rows and let it run, until that process ended or nothing happens any more."""
    store = MemoryStore()
    lease = store.acquire("past", now=0.0, ttl_s=1.0)
    held = list(journal)
    store.append([tuple(row) for row in held], lease.epoch)  # type: ignore[misc]  # a Record is such a tuple
    store.release(lease)
    for data in (blobs or {}).values():
        store.put_blob(data)
    clock = SimClock(held[-1].time if held else 0.0)
    loop = SimLoop(clock)
    seen = Replay()
    provider = Provider(_no_dice(), rough=False)
    provider.on_perform = lambda key, _request: seen.performed.append(key)

    async def main() -> None:
        kernel = Kernel(store, clock=clock, programs=programs, seed=0, lease_s=3600.0)
        kernel.on_event(lambda event: _note(seen, event))
        await kernel.start()
        waited = 0.0
        while waited < _PATIENCE_S and not (until is not None and (until in seen.ended or seen.diverged)):
            await asyncio.sleep(60.0)
            waited += 600.0 if until is None else 60.0
        await kernel.close(drain_s=0.0)

    with use(provider):
        try:
            loop.run_until_complete(main())
        except Deadlock:
            pass
        finally:
            loop.close()
    for record in store.read(after=held[-1].seq if held else 0, kind="process.terminated"):
        seen.ended[record.pid] = rows.DECODERS["process.terminated"].decode(record.data)
    return seen


def _no_dice() -> Any:
    from lyra.core.ids import seeded

    return seeded(0)


def _note(seen: Replay, event: Any) -> None:
    if event.kind == "process.diverged":
        seen.diverged.append(f"{event.pid}: {event.data['message']}")
    elif event.kind == "process.terminated":
        seen.ended.setdefault(event.pid, rows.Terminated(str(event.data["reason"])))


def replay_ends(world: World) -> Iterator[Violation]:
    """Some processes that ended by themselves, each from the journal as it was just before."""
    ends = [
        (index, record)
        for index, record in enumerate(world.ledger.rows)
        if record.kind == "process.terminated"
        and rows.DECODERS[record.kind].decode(record.data).reason in ("normal", "error", "done")
    ]
    world.rng.shuffle(ends)
    for index, record in ends[:_REPLAYS_A_WORLD]:
        was = rows.DECODERS["process.terminated"].decode(record.data)
        seen = replay(world.ledger.rows[:index], until=record.pid, blobs=world.disk._blobs)
        now = seen.ended.get(record.pid)
        again = [key for key in seen.performed if key.startswith(f"{record.pid}:")]
        mine = [text for text in seen.diverged if text.startswith(f"{record.pid}:")]
        if again or mine:
            yield Violation("replay", f"{record.pid} replayed: performed {again}, {mine}")
        elif now is None:
            yield Violation("replay", f"{record.pid} replayed: it did not end")
        elif now.reason != was.reason or _value(now, world) != _value(was, world):
            yield Violation("replay", f"{record.pid} ended {was.reason}, and replayed {now.reason} or with another result")


def _value(row: rows.Terminated, world: World) -> Any:
    if row.blob:
        return row.blob
    return codec.decode(bytes(row.value)) if row.error is None else row.error.get("code")


def fold_agrees(world: World) -> Iterator[Violation]:
    """Snapshot and tail say the same as the whole journal."""
    whole = Fold()
    whole.add_all(world.ledger.rows)
    snapshot = world.disk.load_snapshots()
    part = Fold.load(snapshot.seq, snapshot.states)
    part.add_all(world.disk.read(after=snapshot.seq))
    for pid, state in whole.processes.items():
        if pid in part.processes and part.processes[pid] != state:
            yield Violation("replay", f"the snapshot of {pid} differs from the fold of its rows")


# ---------------------------------------------------------------------- journals in files


def dump(journal: Iterable[Record]) -> str:
    """One JSON line a row; data as base64, for it is msgpack."""
    return "".join(
        json.dumps([row.seq, row.time, row.pid, row.kind, base64.b64encode(bytes(row.data)).decode()]) + "\n"
        for row in journal
    )


def load(text: str) -> list[Record]:
    return [
        Record(seq, time, pid, kind, base64.b64decode(data))
        for seq, time, pid, kind, data in (json.loads(line) for line in text.splitlines() if line.strip())
    ]
