"""The opening and closing of a kernel: from owning its store to giving it back.

Opening: own the store (`journal.lease`), bring its processes back (`recovery`), begin to run. Closing: let effects in
flight finish, write the rest and a snapshot, stop the programs, give the store back. A kernel without a store does the
same without those steps, and its processes end. Both orders stand in one function each; what fails on the way leaves
the store as another kernel can open it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from lyra.core import codec
from lyra.core.faultpoint import point
from lyra.errors import ProcessError
from lyra.kernel.journal.journal import Journal
from lyra.kernel.journal.lease import Ownership, owner_name
from lyra.kernel.programs.handle import make_stopped_error
from lyra.kernel.stored_rights import refuse_contacts
from lyra.store import KeyedStore, open_keyed, open_store

if TYPE_CHECKING:
    from lyra.kernel.base.core import AnyJournal, Core
    from lyra.kernel.journal.snapshots import SnapshotWriter
    from lyra.kernel.process.process import Process
    from lyra.kernel.programs.lifetime import Lifetimes
    from lyra.kernel.recovery import Recovery
    from lyra.store.protocol import Store


class StoreTarget(NamedTuple):
    """Which store a kernel opens, and how it holds it."""

    # `"memory"` is a kernel without a journal; a Store object of any kind is one with.
    store: str | KeyedStore | Store
    durability: str
    lease_s: float
    lease_wait_s: float

    def open(self) -> Store | None:
        if isinstance(self.store, (str, KeyedStore)):
            return self.open_own()
        return self.store

    def open_own(self) -> Store | None:
        """Return a connection that the caller closes; None without a store, or with one that was handed in."""
        if isinstance(self.store, KeyedStore):
            return open_keyed(self.store, durability=self.durability)
        if isinstance(self.store, str) and self.store != "memory":
            return open_store(self.store, durability=self.durability)
        return None

    def release(self, store: Store) -> None:
        if isinstance(self.store, (str, KeyedStore)):  # a Store that was handed in belongs to the caller
            store.close()


class Opening:
    """See the module. A kernel is opened once, and closed once."""

    def __init__(
        self,
        core: Core[Process],
        target: StoreTarget,
        *,
        lifetimes: Lifetimes,
        recovery: Recovery,
        snapshots: SnapshotWriter,
        parts: Mapping[str, Any],
    ) -> None:
        self._core = core
        self.target = target
        self._lifetimes = lifetimes
        self._recovery = recovery
        self._snapshots = snapshots
        self._parts = parts  # of the layers above, which are closed with the kernel
        self._closing: asyncio.Future[None] | None = None
        self.ownership: Ownership | None = None  # None without a store

    async def start(self, owned: Callable[[], object] | None) -> None:
        """Own the store, bring its processes back, begin to run: see `Kernel.start`."""
        core = self._core
        if core.started or core.stopping:
            raise ProcessError("a kernel is opened once", hint="make a new one: Kernel(…)")
        core.begin()
        store = await self._open_store()
        if store is None:
            return
        try:
            ownership = await self._take_ownership(store)
            if owned is not None:
                owned()
            assert ownership.lease is not None
            core.journal = Journal(core, store, epoch=ownership.lease.epoch, seq=0)
            await self._recovery.load(store, refuse_contacts if ownership.standing == "unsigned" else None)
            for on_restored in core.subsystems.on_restored:
                on_restored()
        except BaseException:
            core.started = core.open = False
            core.journal = None
            if self.ownership is not None:
                await self.ownership.give_up()
            core.close_writer()
            self.target.release(store)
            raise
        core.write_early_settings()
        ownership.keep()
        core.scheduler.poke()
        point("recovery.done")

    async def _open_store(self) -> Store | None:
        """Open the store; that of a shard beside the loop, on which other shards run."""
        if not isinstance(self.target.store, KeyedStore):
            return self.target.open()
        core = self._core
        try:
            return await core.writer.submit(self.target.open)
        except BaseException:
            core.started = core.open = False
            core.close_writer()
            raise

    async def _take_ownership(self, store: Store) -> Ownership:
        target = self.target
        ownership = self.ownership = Ownership(self._core, store, lease_s=target.lease_s, wait_s=target.lease_wait_s)
        nonce = self._core.entropy.text(8)
        self._core.generation = await ownership.generation(nonce)
        await ownership.take(owner_name(nonce, target.lease_s, self._core.generation))
        ownership.open_signed()
        return ownership

    async def close(self, drain_s: float, repeatable_s: float | None, *, snapshot: bool) -> None:
        """Stop in order: see `Kernel.close`. A second caller waits for the first."""
        self._core.raise_if_elsewhere()
        if self._closing is not None:
            await asyncio.shield(self._closing)
            return
        self._closing = asyncio.get_running_loop().create_future()
        try:
            await self._close(drain_s, repeatable_s, snapshot=snapshot)
        finally:
            self._closing.set_result(None)

    async def _close(self, drain_s: float, repeatable_s: float | None, *, snapshot: bool) -> None:
        core = self._core
        if not core.started:
            core.stopping = True
            return
        if core.failure is None:
            await core.drain(drain_s, repeatable_s=repeatable_s)
        core.stopping = True
        for stop in core.subsystems.stop:
            stop()
        self._snapshots.stop()
        journal = core.journal
        try:
            if journal is not None and core.failure is None:
                await journal.wait_until_durable(journal.seq)
                if snapshot and self._core.failure is None:
                    await self._snapshots.write_at_close()
                if self._core.in_flight and self._core.failure is None:  # the next kernel sees that it was no crash
                    await journal.wait_until_durable(journal.write("", "kernel.closed", codec.encode({})))
        finally:  # also when the last rows find no room: no caller was told that they are durable
            await self._shut(journal)

    async def _shut(self, journal: AnyJournal | None) -> None:
        core = self._core
        core.scheduler.stopped = True
        if journal is not None:
            journal.frozen = True
        self._stop_programs()
        for part in self._parts.values():
            await part.close()
        await core.tasks.close()
        if self.ownership is not None and journal is not None:
            self.ownership.stop()
            # A call that was given up still uses the connection; two threads must not.
            if journal.store.inline:
                core.close_writer()
            await self.ownership.give_up()
            core.close_writer()
            self.target.release(journal.store)

    def _stop_programs(self) -> None:
        """Raise CancelledError in each live program where it waits, and wherever its clean-up would; nothing that it
        still does is performed or written."""
        core, lifetimes = self._core, self._lifetimes
        for guests in core.processes.guests:
            guests.stop()
        for process in list(core.processes.present()):
            if process.exit is not None:
                continue
            if core.journal is None:
                process.kill_reason = "shutdown"
            lifetimes.close_program(process)
            lifetimes.stop_branches(process)
            if core.journal is None and process.exit is None:
                lifetimes.finish(process, "shutdown")
            lifetimes.let_go(process, core.failure or make_stopped_error(process.pid))
