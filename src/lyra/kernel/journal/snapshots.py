"""Snapshots of the journal: the fold that recovery makes, written down, so that the next start folds less.

One is made from the store's own rows, in slices between other work: every so many rows, and at the end of a long life.
States of ended processes are put away in segments meanwhile (`store.ended`), but for the last few: `EndedStates` finds
one again for a caller that asks how it ended. Only the last step changes the snapshot, in one transaction: a kernel
that dies in between leaves the one before. It drops what is older than the retention. Where one fails nothing is lost:
the journal has it all, and the next start is only slower. How a snapshot is read is in `recovery`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lyra.core.faultpoint import point
from lyra.errors import LyraError, Tampered
from lyra.kernel.journal.history import Fold, ProcessState, encode_state, state_of
from lyra.store.ended import ENDED, Segment, entry_of, pack, segment_of, states_of

if TYPE_CHECKING:
    from lyra.kernel.base.core import AnyJournal, Core
    from lyra.store.protocol import Snapshot, Store


T = TypeVar("T")

_log: Final = logging.getLogger("lyra.kernel")
_ROWS_A_SLICE: Final = 200
_STATES_A_SLICE: Final = 250  # also those of a segment
_ROWS_DROPPED_AT_ONCE: Final = 5_000
_ENDED_KEPT: Final = 1_000  # ended processes whose states stay in the snapshot itself
_SEGMENTS_READ: Final = 4  # whose states are held for the next question
_WORTH_A_SNAPSHOT: Final = 1_000  # rows; fewer are folded faster than a snapshot is written


class EndedStates:
    """The states that were put away in a snapshot, by pid. Few are held in memory."""

    __slots__ = ("_read", "_states_of", "brought", "segments")

    def __init__(self, states_of: Callable[[Segment], dict[str, bytes]], entries: dict[str, bytes]) -> None:
        self._states_of = states_of
        self.segments = {key: segment_of(entry) for key, entry in sorted(entries.items())}
        self._read: dict[str, dict[str, bytes]] = {}  # the segments that were read last
        self.brought: dict[str, Any] = {}  # processes that were asked for last; a lookup does not change the table

    def find(self, pid: str) -> ProcessState | None:
        """Read the state of a process, if it was put away."""
        for key in reversed(self.segments):
            if self.segments[key].may_have(pid):
                data = self.read(key).get(pid)
                if data is not None:
                    return state_of(pid, data)
        return None

    def read(self, key: str) -> dict[str, bytes]:
        states = self._read.pop(key, None)
        self._read[key] = states = self._states_of(self.segments[key]) if states is None else states
        while len(self._read) > _SEGMENTS_READ:
            del self._read[next(iter(self._read))]
        return states


class SnapshotWriter:
    """See the module. `seq` is the last row that the newest snapshot covers."""

    __slots__ = ("_core", "_every_events", "_forget", "_retention_s", "_task", "archived", "ended", "seq")

    def __init__(
        self,
        core: Core[Any],
        forget: Callable[[str], None],
        archived: Callable[[int], None],
        *,
        every_events: int,
        retention_s: float,
    ) -> None:
        self._core = core
        self._forget = forget  # takes a process out of the table whose end is older than the retention
        self.archived = archived  # told the last row that a snapshot covers: the store can be asked for what ended
        self.ended = EndedStates(self._states_of, {})
        self._every_events = every_events
        self._retention_s = retention_s
        self._task: asyncio.Task[None] | None = None
        self.seq = 0
        core.after_commit.append(self._rows_written)

    def covers(self, seq: int, segments: dict[str, bytes]) -> None:
        """Take over the snapshot that the kernel was opened with: its last row, and the segments that it names."""
        self.seq, self.ended = seq, EndedStates(self._states_of, segments)

    @property
    def is_writing(self) -> bool:
        """Whether one is made beside other work."""
        return self._task is not None

    def _rows_written(self, seq: int) -> None:
        if seq - self.seq >= self._every_events and self._task is None:
            self._task = self._core.tasks.start(self._in_background(), name="lyra-snapshot")

    async def _in_background(self) -> None:
        try:
            await self.write()
        except LyraError as error:
            # Not the end of anything: the journal has it all, the next restart is only slower. One that was changed by
            # another program will not open then.
            if isinstance(error, Tampered):
                _log.warning("%s", error.message)
            self._core.publish("", "snapshot.failed", {"message": error.message})
            self.seq = self._journal.durable_seq
        finally:
            self._task = None

    async def write_at_close(self) -> None:
        """Write one if the next start would be slow without it."""
        if self._journal.durable_seq - self.seq >= _WORTH_A_SNAPSHOT:
            await self.write()

    async def write(self) -> int:
        """Fold the journal up to now and write it down; then drop what is older than the retention."""
        core, journal = self._core, self._journal
        store = journal.store
        loaded: Snapshot
        upto: int
        loaded, upto = await core.call(_newest, store)
        fold = Fold([type(state)() for state in core.states.values()])
        fold.seq = loaded.seq
        for part in _slices(loaded.states.items(), _STATES_A_SLICE):
            fold.take_in(part)
            await asyncio.sleep(0)  # the processes' turn
        ended = EndedStates(self._states_of, fold.segments)
        fold.find_ended = ended.find
        segments: dict[str, bytes | None] = {}
        for after in range(loaded.seq, upto, _ROWS_A_SLICE):
            last = min(after + _ROWS_A_SLICE, upto)
            fold.add_all(await core.call(_rows, store, after, last))
            if fold.ended >= _STATES_A_SLICE or last == upto:
                await self._put_away(fold, ended, segments, last, loaded.states)
            await asyncio.sleep(0)
        before = core.now() - self._retention_s
        for key in [key for key, segment in ended.segments.items() if segment.ended_at < before]:
            await self._drop(ended, key, segments)
        states: dict[str, bytes | None] = {}
        for changed in fold.dump_in_slices(_STATES_A_SLICE, forget_before=before):
            states |= changed
            await asyncio.sleep(0)
        for pid in [pid for pid, state in states.items() if state is None]:
            self._forget(pid)
        point("snapshot.before")
        await core.call(store.save_snapshots, upto, states | segments, journal.epoch)
        point("snapshot.after")
        self.seq, self.ended = upto, ended
        self.archived(upto)
        dropped = 1
        while dropped:
            dropped = await core.call(store.compact, before=before, epoch=journal.epoch, most=_ROWS_DROPPED_AT_ONCE)
            await asyncio.sleep(0)
        return upto

    async def _put_away(
        self, fold: Fold, ended: EndedStates, segments: dict[str, bytes | None], last: int, saved: Container[str]
    ) -> None:
        """Write ended processes down that the fold does not need any more. Until the snapshot names their segments they
        are blobs that nothing refers to."""
        taken = fold.put_away(keep=_ENDED_KEPT)
        store = self._journal.store
        for number, part in enumerate(_slices(taken.items(), _STATES_A_SLICE)):
            data = pack({pid: encode_state(state) for pid, state in part})
            digest: str = await self._core.call(store.put_blob, data)
            point("snapshot.segment")
            key = f"{ENDED}{last:016d}-{number:06d}"
            entry = entry_of(digest, (pid for pid, _ in part), ended_at=max(state.exit_at for _, state in part))
            segments[key], ended.segments[key] = entry, segment_of(entry)
            segments |= dict.fromkeys(pid for pid, _ in part if pid in saved)
            await asyncio.sleep(0)

    async def _drop(self, ended: EndedStates, key: str, segments: dict[str, bytes | None]) -> None:
        """Forget the processes of a segment: all of them ended before the retention."""
        for pid in ended.read(key):
            if dict.__contains__(self._core.processes, pid):
                self._forget(pid)
        del ended.segments[key]
        segments[key] = None
        await asyncio.sleep(0)

    def _states_of(self, segment: Segment) -> dict[str, bytes]:
        states: dict[str, bytes] = self._core.call_now(states_of, self._journal.store.get_blob, segment)
        return states

    @property
    def _journal(self) -> AnyJournal:
        journal = self._core.journal
        assert journal is not None
        return journal

    def stop(self) -> None:
        """Leave one that is being made: the kernel closes."""
        if self._task is not None:
            self._task.cancel()
            self._task = None


def _newest(store: Store) -> tuple[Snapshot, int]:
    """The snapshot there is, and the last row now: the next one is made from there on, and ends there."""
    return store.load_snapshots(), store.last_seq()


def _slices(items: Iterable[T], size: int) -> Iterator[list[T]]:
    remaining = iter(items)
    while part := list(islice(remaining, size)):
        yield part


def _rows(store: Store, after: int, upto: int) -> list[Any]:
    return list(islice(store.read(after=after, upto=upto), _ROWS_A_SLICE))
