"""The journal: rows in order, committed in batches, and published only once they are durable.

`write` puts a row in the pending batch and gives it its sequence number. The scheduler calls `flush` after a round
whose rows a process or caller waits for, and when its slice ends: one commit for all that happened since the last.
`durable` waits until all rows written so far are in the store. Since rows reach the store in order and batches are
atomic, what survives a crash is always a prefix of what happened.

A store that is quick (`inline`) is called on the loop; any other is called from the writer thread, and rows that
arrive meanwhile form the next batch. A full disk holds the whole kernel still and is tried again; any other store
error is final.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from lyra.core import faultpoint
from lyra.core.checking.check import sendable_text
from lyra.core.faultpoint import point
from lyra.errors import InternalError, LyraError, StoreError, StoreFull
from lyra.kernel.base.tasks import thread_id
from lyra.kernel.base.waiting import AnyProcess, resume, suspend
from lyra.store.protocol import Store

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core


_RETRY_FULL_S = 1.0
_ROWS_A_COMMIT = 500  # more together are no cheaper

Row = tuple[int, float, str, str, bytes]


class Journal:
    def __init__(self, core: Core[Any], store: Store, *, epoch: int, seq: int) -> None:
        self._core = core
        self._scheduler = core.scheduler
        self._elapsed = core.elapsed
        self._wall_zero = core.wall_zero
        self.elapsed_s: float = core.elapsed()  # when the last row was written, by `Core.elapsed`
        self.thread = core.thread
        self.store = store
        self.epoch = epoch
        self.seq = seq
        self.durable_seq = seq
        self.pending: list[Row] = []
        self.waiters: list[AnyProcess | asyncio.Future[Any]] = []  # processes and their branches
        self.onlookers: list[AnyProcess | asyncio.Future[Any]] = []  # processes that wait for rows of earlier batches
        self.callers: list[asyncio.Future[Any]] = []  # callers outside any process
        self.stuck: StoreFull | None = None
        self.frozen = False
        self.commits = 0
        self._flying = False
        self._held: list[list[AnyProcess | asyncio.Future[Any]]] = []  # waiters of rows that found no room

    def write(self, pid: str, kind: str, data: bytes) -> int:
        if thread_id() != self.thread:
            self._core.raise_if_elsewhere()
        if type(pid) is not str:
            pid = sendable_text(pid, "a pid")
        if self.frozen:
            # After a failed commit rows are dropped; processes that wait for one stay suspended until the kernel ends.
            return self.seq + 1
        self.seq = seq = self.seq + 1
        self.elapsed_s = elapsed_s = self._elapsed()
        self.pending.append((seq, self._wall_zero + elapsed_s, pid, kind, data))
        if not self._scheduler.running:
            self._scheduler.poke()
        return seq

    @property
    def awaited(self) -> bool:
        """Whether the next commit is worth making now: it is waited for, or it has grown long."""
        return bool(self.waiters or self.onlookers or self.callers or self._held or len(self.pending) >= _ROWS_A_COMMIT)

    @property
    def time(self) -> float:
        """When the last row was written that is not in the store yet."""
        return self.pending[-1][1] if self.pending else self._core.now()

    async def durable(self, process: AnyProcess, seq: int) -> None:
        """Wait, inside a process, until a row that was written earlier is in the store."""
        while self.durable_seq < seq:
            await suspend(process, self.onlookers)

    async def wait_until_durable(self, seq: int) -> None:
        """Wait until a row is durable, for callers outside any process; a failure to store is raised here."""
        while self.durable_seq < seq:
            self._core.raise_if_elsewhere()
            if self.stuck is not None:
                raise _not_stored_yet(self.stuck)
            self._core.raise_if_failed()
            if self.frozen:
                raise StoreError("the kernel closed before this was stored", hint="open the store again and repeat it")
            future: asyncio.Future[None] = self._core.loop.create_future()
            self.callers.append(future)
            self._scheduler.poke()
            await future

    # ------------------------------------------------------------------ committing

    def flush(self) -> None:
        """Commit what is pending, unless a commit is on its way (then the next one takes it along)."""
        if self._flying or not self.pending:
            return
        batch, self.pending = self.pending, []
        waiters, self._held, self.waiters = [*self._held, self.waiters], [], []
        if faultpoint.hook is not None:
            point("journal.before_commit")
        if self.store.inline:
            error = None
            try:
                self.store.append(batch, self.epoch)
            except LyraError as refusal:
                error = refusal
            self._settle(batch, waiters, error)
            return
        self._flying = True
        done = self._core.writer.submit(self.store.append, batch, self.epoch)
        done.add_done_callback(lambda future: self._on_written(batch, waiters, future))

    def _on_written(self, batch: list[Row], waiters: list[list[Any]], future: asyncio.Future[None]) -> None:
        self._flying = False
        error = StoreError("the write was abandoned") if future.cancelled() else future.exception()
        if error is not None and not isinstance(error, LyraError):
            error = InternalError(f"the store failed in an unforeseen way: {error}")
        self._settle(batch, waiters, error)
        self._scheduler.poke()

    def _settle(self, batch: list[Row], waiters: list[list[Any]], error: LyraError | None) -> None:
        if error is None:
            self.durable_seq = batch[-1][0]
            self.commits += 1
            if faultpoint.hook is not None:
                point("journal.after_commit")
            self._core.on_commit(batch)
            for group in waiters:
                self._scheduler.wake_all(group)
            if self.onlookers:
                onlookers, self.onlookers = self.onlookers, []
                for waker in onlookers:
                    resume(waker)
            if self.callers:
                self.answer(None)
        elif isinstance(error, StoreFull):
            self._hold(batch, waiters, error)
        else:
            self.frozen = True
            self._core.abort(error)
            self.answer(error)

    def answer(self, error: LyraError | None) -> None:
        """Callers look again themselves: their row may be in a later batch."""
        callers, self.callers = self.callers, []
        for caller in callers:
            resume(caller, error)

    def _hold(self, batch: list[Row], waiters: list[list[Any]], error: StoreFull) -> None:
        """Nothing was written: keep the rows, hold the processes still, tell callers, try again in a while."""
        self.pending = batch + self.pending
        self._held = waiters  # the same lists: a waiter that is cancelled meanwhile removes itself from its list
        self.stuck = error
        self.answer(_not_stored_yet(error))
        self._core.publish("", "store.full", {"rows": len(self.pending), "message": error.message})
        clock = self._core.clock
        clock.call_at(clock.monotonic() + _RETRY_FULL_S, self.retry)

    def retry(self) -> None:
        """Try the held batch again."""
        if self.stuck is not None and not self.frozen:
            self.stuck = None
            self.flush()
            self._scheduler.poke()


def _not_stored_yet(full: StoreFull) -> StoreFull:
    """Tell a caller that its call has been taken and waits for room: one who repeats it makes it twice."""
    return StoreFull(
        f"{full.message}; this call is not stored yet, and is carried out when there is room",
        hint="free some space and do not repeat the call: await the same handle again, or kernel.durable(), to know"
        " that it is stored. It is lost only if this kernel ends before",
        stands=True,
    )
