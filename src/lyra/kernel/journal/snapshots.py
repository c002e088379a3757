"""Snapshots of the journal: the fold that recovery makes, written down, so that the next start folds less.

One is made from the store's own rows, in slices between other work: every so many rows, and at the end of a long life.
It drops what is older than the retention. Where one fails nothing is lost: the journal has it all, and the next start
is only slower. How a snapshot is read is in `recovery`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from lyra.core.faultpoint import point
from lyra.errors import LyraError, Tampered
from lyra.kernel.journal.history import Fold

if TYPE_CHECKING:
    from lyra.kernel.base.core import AnyJournal, Core
    from lyra.store.protocol import Snapshot, Store

__all__ = ["SnapshotWriter"]

_log: Final = logging.getLogger("lyra.kernel")
_ROWS_A_SLICE: Final = 500
_WORTH_A_SNAPSHOT: Final = 1_000  # rows; fewer are folded faster than a snapshot is written


class SnapshotWriter:
    """See the module. `seq` is the last row that the newest snapshot covers."""

    __slots__ = ("_core", "_every_events", "_forget", "_retention_s", "_task", "seq")

    def __init__(
        self, core: Core[Any], forget: Callable[[str], None], *, every_events: int, retention_s: float
    ) -> None:
        self._core = core
        self._forget = forget  # takes a process out of the table whose end is older than the retention
        self._every_events = every_events
        self._retention_s = retention_s
        self._task: asyncio.Task[None] | None = None
        self.seq = 0
        core.after_commit.append(self._rows_written)

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
        fold = Fold.load(loaded.seq, loaded.states, [type(state)() for state in core.states.values()])
        for after in range(loaded.seq, upto, _ROWS_A_SLICE):
            last = min(after + _ROWS_A_SLICE, upto)
            fold.add_all(await core.call(_rows, store, after, last))
            await asyncio.sleep(0)  # the processes' turn
        before = core.now() - self._retention_s
        states = fold.dump(forget_before=before)
        for pid in [pid for pid, state in states.items() if state is None]:
            self._forget(pid)
        point("snapshot.before")
        await core.call(store.save_snapshots, upto, states, journal.epoch)
        point("snapshot.after")
        self.seq = upto
        await core.call(store.compact, before=before, epoch=journal.epoch)
        return upto

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


def _rows(store: Store, after: int, upto: int) -> list[Any]:
    return list(islice(store.read(after=after, upto=upto), _ROWS_A_SLICE))
