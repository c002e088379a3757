"""Snapshots of the journal: the fold that recovery makes, written down, so that the next start folds less.

One is made from the store's own rows, in slices between other work: every so many rows, and at the end of a long life.
States of ended processes are put away in segments meanwhile, and segments in lists (`store.ended`), but for the last
few: `EndedStates` finds one again for a caller that asks how it ended. Only one step changes the snapshot, in one
transaction: a kernel that dies before it leaves the one before. Then what is older than the retention is dropped, some
at a time. No step grows with the number of processes that have ended. Where one fails nothing is lost: the journal has
it all, and the next start is only slower. How a snapshot is read is in `recovery`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import count, islice, pairwise
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lyra.core.faultpoint import point
from lyra.errors import LyraError, Tampered
from lyra.kernel.base.subsystem import make_fresh
from lyra.kernel.journal.history import Fold, ProcessState, encode_state, state_of
from lyra.store.ended import ENDED, Segment, SegmentList, encode_entry, is_among, list_of, pack, segment_of, states_of

if TYPE_CHECKING:
    from lyra.kernel.base.core import AnyJournal, Core
    from lyra.store.protocol import Record, Snapshot, Store


T = TypeVar("T")

_log: Final = logging.getLogger("lyra.kernel")
_ROWS_A_SLICE: Final = 200
_ROWS_READ_AT_ONCE: Final = 1_000
_STATES_A_SLICE: Final = 250  # also those of a segment
_ROWS_DROPPED_AT_ONCE: Final = 5_000
_ENDED_KEPT: Final = 500  # ended processes whose states stay in the snapshot itself
_SEGMENTS_A_LIST: Final = 32  # and lists; also how many are dropped in one transaction
_ENTRIES_REMOVED_MAX: Final = 1_000  # in one transaction; an older version left more, which later snapshots join
_SEGMENTS_READ: Final = 4  # whose states are held for the next question; and so many lists
_WORTH_A_SNAPSHOT: Final = 1_000  # rows; fewer are folded faster than a snapshot is written


class EndedStates:
    """The states that were put away in a snapshot, by pid. Few are held in memory, with a short hash of each pid that a
    caller chose: one that was never used has to be told at once."""

    def __init__(
        self, get_blob: Callable[[str], bytes], segments: dict[str, Segment], hashes: dict[str, bytes] | None = None
    ) -> None:
        self._get_blob = get_blob
        self.segments = dict(sorted(segments.items()))  # and lists, as the snapshot names them
        self._lists: dict[str, SegmentList] = {}  # those that were read last, by digest
        self._states: dict[str, dict[str, bytes]] = {}
        self.brought: dict[str, Any] = {}  # processes that were asked for last; a lookup does not change the table
        self.hashes: dict[str, bytes] = {}  # by the digest of their list
        if hashes is None:
            for segment in self.segments.values():
                self._take_hashes(segment)
        else:
            self.hashes = hashes

    @classmethod
    def load(cls, get_blob: Callable[[str], bytes], entries: dict[str, bytes]) -> EndedStates:
        """Read what the entries of a snapshot tell."""
        return cls(get_blob, {key: segment_of(entry) for key, entry in entries.items()})

    def _take_hashes(self, segment: Segment) -> None:
        if segment.level and segment.others:
            content = list_of(self._get_blob, segment.digest, segment.level)
            if content.hashes:
                self.hashes[segment.digest] = content.hashes
            for below in content.segments:
                self._take_hashes(below)

    def find(self, pid: str) -> ProcessState | None:
        """Read the state of a process, if it was put away."""
        for segment in self._that_may_have(pid):
            data = self.states(segment).get(pid)
            if data is not None:
                return state_of(pid, data)
        return None

    def _that_may_have(self, pid: str) -> Iterator[Segment]:
        yield from self._among(list(self.segments.values()), pid)
        for digest, hashes in reversed(list(self.hashes.items())):
            if is_among(pid, hashes):
                yield from self._among(self.list_at(digest, 1).segments, pid)

    def _among(self, segments: Sequence[Segment], pid: str) -> Iterator[Segment]:
        for segment in reversed(segments):
            if segment.may_have(pid):
                if segment.level:
                    yield from self._among(self.list_at(segment.digest, segment.level).segments, pid)
                else:
                    yield segment

    def states(self, segment: Segment) -> dict[str, bytes]:
        return _read_once(self._states, segment.digest, lambda: states_of(self._get_blob, segment))

    def list_at(self, digest: str, level: int) -> SegmentList:
        return _read_once(self._lists, digest, lambda: list_of(self._get_blob, digest, level))

    def oldest_of(self, level: int) -> list[str]:
        """Return the keys of so many of one level that they make a list; of none where there are fewer."""
        keys = [key for key, segment in self.segments.items() if segment.level == level]
        return keys[:_SEGMENTS_A_LIST] if len(keys) >= _SEGMENTS_A_LIST else []


def _read_once(held: dict[str, T], digest: str, read: Callable[[], T]) -> T:
    """Return what was read before, or read it; the last few are held."""
    content = held.pop(digest, None)
    held[digest] = content = read() if content is None else content
    while len(held) > _SEGMENTS_READ:
        del held[next(iter(held))]
    return content


class SnapshotWriter:
    """See the module. `seq` is the last row that the newest snapshot covers."""

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
        self.ended = EndedStates(self._get_blob, {})
        self._every_events = every_events
        self._retention_s = retention_s
        self._task: asyncio.Task[None] | None = None
        self.seq = 0
        self._ends: list[int] = []  # rows at which commits ended since then, some hundred apart
        core.after_commit.append(self._rows_written)

    def covers(self, seq: int, ended: EndedStates) -> None:
        """Take over the snapshot that the kernel was opened with: its last row, and what was put away in it."""
        self.seq, self.ended = seq, EndedStates(self._get_blob, ended.segments, ended.hashes)

    @property
    def is_writing(self) -> bool:
        """Whether one is made beside other work."""
        return self._task is not None

    def _rows_written(self, seq: int) -> None:
        if seq - (self._ends[-1] if self._ends else self.seq) >= _ROWS_A_SLICE:
            self._ends.append(seq)
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
        fold = Fold([make_fresh(state) for state in core.states.values()])
        fold.seq = loaded.seq
        for part in _slices(loaded.states.items(), _STATES_A_SLICE):
            fold.take_in(part)
            await asyncio.sleep(0)  # the processes' turn
        segments = {key: segment_of(entry) for key, entry in fold.segments.items()}
        ended = EndedStates(self._get_blob, segments, self.ended.hashes)
        fold.find_ended = ended.find
        changes: dict[str, bytes | None] = {}
        for after, end in pairwise([loaded.seq, *self._list_ends(loaded.seq, upto)]):
            for rows in _slices(await core.call(_rows, store, after, end), _ROWS_A_SLICE):
                fold.add_all(rows)
                last = rows[-1].seq
                if fold.ended >= _STATES_A_SLICE or last == upto:
                    await self._put_away(fold, ended, changes, last, loaded.states)
                await asyncio.sleep(0)
        before = core.now() - self._retention_s
        states: dict[str, bytes | None] = {}
        for changed in fold.dump_in_slices(_STATES_A_SLICE, forget_before=before):
            states |= changed
            await asyncio.sleep(0)
        for pid in [pid for pid, state in states.items() if state is None]:
            self._forget(pid)
        point("snapshot.before")
        await core.call(store.save_snapshots, upto, states | changes, journal.epoch)
        point("snapshot.after")
        self.seq, self.ended = upto, ended
        self._ends = [end for end in self._ends if end > upto]
        self.archived(upto)
        while await self._drop(before):
            pass
        dropped = 1
        while dropped:
            dropped = await core.call(store.compact, before=before, epoch=journal.epoch, most=_ROWS_DROPPED_AT_ONCE)
            await asyncio.sleep(0)
        return upto

    def _list_ends(self, after: int, upto: int) -> list[int]:
        """Return the rows at which the rows in between are cut to be read: ends of commits, because the store reads and
        checks the whole of a commit for any row of it."""
        ends: list[int] = []
        for end in [*(end for end in self._ends if after < end < upto), upto]:
            ends += range(after + _ROWS_READ_AT_ONCE, end, _ROWS_READ_AT_ONCE)
            ends.append(end)
            after = end
        return ends

    async def _put_away(
        self, fold: Fold, ended: EndedStates, changes: dict[str, bytes | None], last: int, saved: Container[str]
    ) -> None:
        """Write ended processes down that the fold does not need any more. Until the snapshot names their segments they
        are blobs that nothing refers to."""
        taken = fold.put_away(keep=_ENDED_KEPT)
        for number, part in enumerate(_slices(taken.items(), _STATES_A_SLICE)):
            digest = await self._put(pack({pid: encode_state(state) for pid, state in part}))
            key = f"{ENDED}{last:016d}-{number:06d}"
            segment = Segment.describe(
                digest, (pid for pid, _ in part), ended_at=max(state.exit_at for _, state in part)
            )
            ended.segments[key], changes[key] = segment, encode_entry(segment)
            changes |= dict.fromkeys(pid for pid, _ in part if pid in saved)
            await asyncio.sleep(0)
            await self._join(ended, changes, saved)

    async def _join(self, ended: EndedStates, changes: dict[str, bytes | None], saved: Container[str]) -> None:
        """Put the oldest of each level where there are enough into a list, which takes the place of the first."""
        for level in count():
            keys = ended.oldest_of(level)
            if not keys or (keys[-1] in saved and list(changes.values()).count(None) >= _ENTRIES_REMOVED_MAX):
                return
            joined = await self._put_list(ended, [ended.segments[key] for key in keys])
            for key in keys[1:]:
                del ended.segments[key]
                changes.pop(key, None)
                if key in saved:
                    changes[key] = None
            ended.segments[keys[0]], changes[keys[0]] = joined, encode_entry(joined)
            await asyncio.sleep(0)

    async def _drop(self, before: float) -> bool:
        """Forget some of the processes that were put away and ended before this time, segment by segment, and remove
        their blobs with the entries; whether there were any."""
        changes: dict[str, bytes | None] = {}
        unneeded: list[str] = []
        ended, journal = self.ended, self._journal
        for key, segment in list(ended.segments.items()):
            left = await self._without_old(segment, before, unneeded)
            if left is None:
                del ended.segments[key]
                changes[key] = None
            elif left is not segment:
                ended.segments[key], changes[key] = left, encode_entry(left)
        if changes:
            await self._core.call(
                journal.store.save_snapshots, self.seq, changes, journal.epoch, unneeded_blobs=unneeded
            )
            await asyncio.sleep(0)
        return bool(changes)

    async def _without_old(self, segment: Segment, before: float, unneeded: list[str]) -> Segment | None:
        """Forget processes of a segment, or of some in a list, that ended before this time; gives what is left of it.
        Blobs that are not needed without them are added to `unneeded`, a list's worth at most."""
        if not segment.has_any_before(before) or len(unneeded) >= _SEGMENTS_A_LIST:
            return segment
        ended = self.ended
        left: list[Segment] = []
        if segment.level:
            for below in ended.list_at(segment.digest, segment.level).segments:
                kept = await self._without_old(below, before, unneeded)
                left += [] if kept is None else [kept]
            ended.hashes.pop(segment.digest, None)
        else:
            for pid in ended.states(segment):
                if dict.__contains__(self._core.processes, pid):
                    self._forget(pid)
            await asyncio.sleep(0)
        unneeded.append(segment.digest)
        return await self._put_list(ended, left) if left else None

    async def _put_list(self, ended: EndedStates, segments: Sequence[Segment]) -> Segment:
        content = SegmentList.from_segments(segments)
        joined = content.entry(await self._put(content.pack()))
        if content.hashes:
            ended.hashes[joined.digest] = content.hashes
        return joined

    async def _put(self, data: bytes) -> str:
        digest: str = await self._core.call(self._journal.store.put_blob, data)
        point("snapshot.segment")
        return digest

    def _get_blob(self, digest: str) -> bytes:
        data: bytes = self._core.call_now(self._journal.store.get_blob, digest)
        return data

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
    """Return the snapshot there is, and the last row now: the next one is made from there on, and ends there."""
    return store.load_snapshots(), store.last_seq()


def _slices(items: Iterable[T], size: int) -> Iterator[list[T]]:
    remaining = iter(items)
    while part := list(islice(remaining, size)):
        yield part


def _rows(store: Store, after: int, upto: int) -> list[Record]:
    return list(store.read(after=after, upto=upto))
