"""Replaying what a world wrote down: the same programs on the same rows must do nothing new and end the same.

`replay_ends` takes processes that ended by themselves, cuts the journal just before their last row, and opens a
fresh kernel on that prefix. `fold_agrees` holds the snapshots against a fold of the whole journal. Used at the end
of every simulated run and, with journals kept in files, for old histories (`load`, `dump`).
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from lyra.core import codec
from lyra.errors import LyraError
from lyra.kernel import Kernel
from lyra.kernel.journal import rows
from lyra.kernel.journal.history import Fold
from lyra.store.ended import load_all
from lyra.store.memory import MemoryStore
from lyra.store.protocol import Record
from lyra.testing.clock import SimClock
from lyra.testing.loop import Deadlock, SimLoop
from verify.simulation import scenes
from verify.simulation.inspections import plain
from verify.simulation.invariants import Violation
from verify.simulation.provider import Provider, use
from verify.simulation.workload import sink, worker

if TYPE_CHECKING:
    from verify.simulation.world import World

__all__ = ["Replay", "dump", "ends_to_replay", "fold_agrees", "judge_end", "load", "replay", "replay_ends"]

_PATIENCE_S: Final = 3 * 24 * 3600.0
_REPLAYS_A_WORLD: Final = 2
_WITH_OTHERS: Final = ("shutdown", "killed", "linked")
_BY_ITSELF: Final = ("normal", "error", "done")


class Replay:
    """What came of a replay."""

    def __init__(self) -> None:
        self.performed: list[str] = []
        self.diverged: list[str] = []
        self.ended: dict[str, rows.Terminated] = {}


def replay(
    journal: Iterable[Record],
    *,
    programs: Iterable[Callable[..., Any]] | None = None,
    until: str | None = None,
    now: float | None = None,
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
    clock = SimClock(now if now is not None else held[-1].time)
    loop = SimLoop(clock)
    seen = Replay()
    provider = Provider(_no_dice(), rough=False)
    provider.on_perform = lambda key, _request: seen.performed.append(key)

    async def main() -> None:
        known: Iterable[Callable[..., Any]] = programs or [worker, sink, *scenes.programs()]
        kernel = Kernel(store, clock=clock, programs=known, seed=0, lease_s=3600.0)
        for name in _agents(held):
            kernel.register_agent(name, _stand_in(seen, name))
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


def _agents(journal: list[Record]) -> set[str]:
    """The agents of the pipelines in it: a stage waits until its agent is there, also for an answer it has."""
    begun = [codec.decode(record.data) for record in journal if record.kind == "pipeline.initialized"]
    return {stage["agent"] or stage["name"] for row in begun for stage in row["config"]["agents"]}


def _stand_in(seen: Replay, name: str) -> Callable[[Any], Any]:
    async def agent(_envelope: Any) -> dict[str, Any]:
        seen.performed.append(f"{name.partition('.')[0]}:{name}")
        return {}

    return agent


def _no_dice() -> Any:
    from lyra.core.ids import make_random

    return make_random(0)


def _note(seen: Replay, event: Any) -> None:
    if event.kind == "process.diverged":
        seen.diverged.append(f"{event.pid}: {event.data['message']}")
    elif event.kind == "process.terminated":
        seen.ended.setdefault(event.pid, rows.Terminated(str(event.data["reason"])))


def replay_ends(world: World) -> Iterator[Violation]:
    """Some processes that ended by themselves, each from the journal as it was just before."""
    ends = ends_to_replay(world.ledger.rows)
    world.rng.shuffle(ends)
    for index in ends[:_REPLAYS_A_WORLD]:
        yield from judge_end(world.ledger.rows, index, blobs=world.disk._blobs)


def ends_to_replay(journal: list[Record]) -> list[int]:
    """Where in the journal the processes end that would end the same way again.

    Not those that were told to end (they do not come back), nor those with a limit in seconds, their own or one above
    them: how much of that is left is the wall clock's to say.
    """
    told = {record.pid for record in journal if record.kind == "process.stopping"}
    limited: set[str] = set()
    ends = []
    for index, record in enumerate(journal):
        if record.kind == "process.created":
            created = rows.DECODERS[record.kind].decode(record.data)
            if created.parent in limited or "seconds" in ((created.budget or {}).get("limits") or {}):
                limited.add(record.pid)
        elif (
            record.kind == "process.terminated"
            and record.pid not in told | limited
            and rows.DECODERS[record.kind].decode(record.data).reason in _BY_ITSELF
        ):
            ends.append(index)
    return ends


def judge_end(journal: list[Record], index: int, *, blobs: dict[str, bytes] | None = None) -> Iterator[Violation]:
    """Replay the process whose last row is `journal[index]`: nothing new may be asked for, and the end is the same."""
    pid = journal[index].pid
    was: rows.Terminated = rows.DECODERS["process.terminated"].decode(journal[index].data)
    now = max(record.time for record in journal[: index + 1])  # whatever it slept for is over by then
    try:
        seen = replay(journal[:index], until=pid, now=now, blobs=blobs)
    except LyraError as error:
        yield Violation("replay", f"{pid}: its journal cannot be opened: {error}")
        return
    ended = seen.ended.get(pid)
    again = [key for key in seen.performed if key.startswith(f"{pid}:")]
    diverged = [text for text in seen.diverged if text.startswith(f"{pid}:")]
    if again or diverged:
        yield Violation("replay", f"{pid} replayed: performed {again}, {diverged}")
    elif ended is None:
        yield Violation("replay", f"{pid} replayed: it did not end")
    elif ended.reason in _WITH_OTHERS and pid in _tied(journal[:index]):
        return  # the others went on too, and one that it was tied to was quicker this time
    elif ended.reason != was.reason or _value(ended) != _value(was):
        yield Violation("replay", f"{pid} ended {was.reason}, and replayed {ended.reason} or with another result")


def _tied(journal: list[Record]) -> set[str]:
    """Processes that were ever linked to others, as supervised ones are."""
    linked = [record for record in journal if record.kind == "process.linked"]
    return {end for record in linked for end in (record.pid, rows.DECODERS[record.kind].decode(record.data).to)}


def _value(row: rows.Terminated) -> Any:
    if row.blob:
        return row.blob
    return codec.decode(bytes(row.value)) if row.error is None else row.error.get("code")


def fold_agrees(world: World) -> Iterator[Violation]:
    """Snapshot and tail say the same as the whole journal."""
    parts = [type(state) for state in Kernel().states.values()]
    whole = Fold([part() for part in parts])
    whole.add_all(world.ledger.rows)
    snapshot = load_all(world.disk)
    part = Fold.load(snapshot.seq, snapshot.states, [part() for part in parts])
    part.add_all(world.disk.read(after=snapshot.seq))
    for name, state_part in part.states.items():
        if plain(state_part) != plain(whole.states[name]):
            yield Violation("state_is_fold", f"the snapshot of {name} differs from the fold of its rows")
    for pid, state in whole.processes.items():
        if pid in part.processes and part.processes[pid] != state:
            yield Violation("replay", f"the snapshot of {pid} differs from the fold of its rows")
    if part.processes.keys() == whole.processes.keys() and part.spent != whole.spent:
        yield Violation("replay", "the snapshot counts spending for no process, and none was forgotten")


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
