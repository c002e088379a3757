"""A host: the kernels of the shards that are its own at the moment, and the beat that keeps it in the cluster.

    beat        renew the host's row, read the directory, work out the plan (`placement`), act on it
    take        compare-and-set in the directory, then open a kernel on the shard's store: it waits out the lease of a
                dead owner, and comes back as after any restart
    ask         a host below its share that has nothing to open asks one above its own for a shard: that one closes
                the kernel (effects in flight end, the lease is released) and assigns the shard to the one that asked

A host that cannot reach PostgreSQL keeps its kernels: each stops by itself before its lease is over. It takes no shards
of others before it has beaten for a whole lease again: they could not renew their rows either. A host that was
held still finds its shards assigned to others when it wakes, and its kernels fenced; it closes them and goes on with
what the plan gives it. One whose loop a program holds up is slow, not dead: a thread renews its row for a while.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from glob import glob
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lyra._version import __version__
from lyra.cluster import placement
from lyra.cluster.calls import answer_call, elsewhere
from lyra.cluster.directory import DRAINING, Directory, HostRow, View, check_name
from lyra.cluster.peers import CallsUnderWay, Carrier
from lyra.cluster.report import ClusterReport, make_report
from lyra.cluster.sage_tasks import register_tasks
from lyra.cluster.vega_runs import register_runs
from lyra.core.clock import Clock, SystemClock
from lyra.core.ids import unique_id
from lyra.core.limits import CLUSTER_ANSWER_S, HOST_HELD_UP_S, SHARD_RETRY_S_MAX
from lyra.errors import Conflict, LyraError, NoSuchProcess
from lyra.kernel.base.tasks import Pulse, Tasks, Writer
from lyra.kernel.base.waiting import resume
from lyra.kernel.kernel import Kernel
from lyra.kernel.remote.posts import POSTS_FORMAT, Remote
from lyra.kernel.seams import Seams
from lyra.store.migrations import LATEST
from lyra.vesper.evidence.shared import SharedEvidence

if TYPE_CHECKING:
    from lyra.kernel.assembly import KernelParts

_log: Final = logging.getLogger("lyra.cluster")
_LOOK_S: Final = 0.05
FORMAT: Final = 1_000 * LATEST + POSTS_FORMAT  # of the shards that this version opens: their tables, their posts
BEATS_A_LEASE: Final = 6
_BEATS_A_LOOK: Final = 60  # between two readings of the whole directory
_JOIN_LEASES: Final = 1.2
_GAP: Final = 0.75  # of a lease without a beat: other hosts may have had none either
DRAIN_S: Final = 30.0  # that effects in flight get to end before their shard moves
_CALL_S: Final = 10.0
_GIVE_S: Final = 600.0  # the giver lets effects in flight end first
_ASKING: Final = "?"  # in place of a shard: one is asked for

# Shard, what to open and the seams of a shard → a Kernel that is not open.
MakeKernel = Callable[[str, Any, Seams], Kernel]
SetUp = Callable[[Kernel], Awaitable[None] | None]
# The kernel of a shard that is about to close, and the seconds that what is in flight there gets to end.
BeforeClose = Callable[[Kernel, float], Awaitable[None]]


class Host:
    """See the module. `async with Host(…) as host:` joins, and leaves in order."""

    def __init__(
        self,
        directory: Directory,
        carrier: Carrier,
        *,
        name: str,
        address: str = "",
        programs: Iterable[Any] = (),
        setup: SetUp | None = None,
        before_close: BeforeClose | None = None,
        make_kernel: MakeKernel | None = None,
        resources: Mapping[str, float] | None = None,
        drain_s: float = DRAIN_S,
        durability: str = "process",
        clock: Clock | None = None,
        in_threads: bool = True,
    ) -> None:
        self.name = check_name(name, "a host's name")
        self.directory = directory
        self.carrier = carrier
        self.kernels: dict[str, Kernel] = {}  # those that are open
        self.view: View = directory.view()
        self.row = HostRow(
            self.name,
            unique_id(),
            address,
            __version__,
            FORMAT,
            resources={**find_resources(), **(resources or {})},
        )
        self._programs = tuple(programs)
        self._setup = setup
        self._before_close = before_close
        self._make_kernel = make_kernel or self._make_plain_kernel
        self._drain_s = drain_s
        self._durability = durability
        self._clock = clock or SystemClock()
        self._kernel_clock = clock  # None: each kernel takes that of its loop
        self._in_threads = in_threads
        self._writer: Writer | None = None
        self._tasks = Tasks()
        self._busy: set[str] = set()  # shards that are being opened, closed or given away
        self._giving: set[str] = set()  # those of them that are given away
        self._moved: set[str] = set()  # those that were opened, closed or given away since the last beat began
        self._is_leaving = self._is_closed = False
        self._beaten = asyncio.Event()  # set after each beat; a new one is made for the next
        self._beaten_s = self._steady_s = self._clock.monotonic()  # the last beat, and the first one without a gap
        self._beats = 0
        self._pulse: Pulse | None = None
        self._calls = CallsUnderWay()
        self._beside: dict[str, Any] = {}
        self._faults: dict[str, _Fault] = {}  # shards that are this host's and cannot be opened
        self.problem = self._told = ""  # why the last beat failed, and what the log says of it

    # ------------------------------------------------------------------ joining and leaving

    async def __aenter__(self) -> Host:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        self._writer = Writer(asyncio.get_running_loop()) if self._in_threads else None
        try:
            self.view = await self._join()
        except BaseException:
            if self._writer is not None:
                self._writer.close()
            raise
        self._beaten_s = self._steady_s = self._clock.monotonic()
        if self._in_threads:
            self._pulse = Pulse(self._renew_beside, self.view.lease_s / BEATS_A_LEASE)
        self._tasks.start(self._beat_on(), name=f"lyra-host {self.name}")

    async def _join(self) -> View:
        """Enter the directory. The row of an earlier start that was killed is waited for; where it is still renewed
        after that time, another host has this name."""
        until_s = self._clock.monotonic() + _JOIN_LEASES * self.view.lease_s
        while True:
            try:
                return await self._ask(self.directory.join, self.row)  # type: ignore[no-any-return]
            except Conflict:
                if self._clock.monotonic() >= until_s:
                    raise
            await self._pause(self.view.lease_s / BEATS_A_LEASE)

    async def close(self) -> None:
        """Give the shards away, or leave them free where no host takes them, and leave the cluster. The host beats on
        until effects in flight have ended, so that it is not taken for dead meanwhile. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = self._is_leaving = True
        with suppress(LyraError):
            await self._ask(self.directory.set_state, self.name, DRAINING)
        while self._busy - {_ASKING}:
            await self._pause(0.02)
        own = {shard for shard, row in self.view.shards.items() if row.host == self.name} | self.kernels.keys()
        await asyncio.gather(*[self._leave_shard(shard) for shard in own])
        if self._pulse is not None:
            await self._ask(self._pulse.close)
        await self._tasks.close()
        with suppress(LyraError):
            await self._ask(self.directory.leave, self.row)
        await self._calls.close()
        await self.carrier.close()
        if self._writer is not None:
            self._writer.close()

    async def leave(self) -> None:
        """Have the other hosts take the shards while this one keeps renewing its row, then leave the cluster. Where
        none is taken for longer than a shard takes to close, the rest are left free."""
        with suppress(LyraError):
            await self._ask(self.directory.set_state, self.name, DRAINING)
            self.view = await self._ask(self.directory.view)
        count, waited_s = len(self.kernels), 0.0
        while self.kernels and not self.problem and placement.surplus(self.view, self.name):
            if waited_s > self._drain_s + 2 * self.view.lease_s:
                break
            await self._pause(_LOOK_S)
            waited_s = 0.0 if len(self.kernels) < count else waited_s + _LOOK_S
            count = len(self.kernels)
        await self.close()

    async def _ask(self, fn: Callable[..., Any], *args: Any) -> Any:
        return fn(*args) if self._writer is None else await self._writer.submit(fn, *args)

    async def _pause(self, seconds: float) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._clock.call_at(self._clock.monotonic() + seconds, lambda: resume(done))
        try:
            await done
        finally:
            timer.cancel()

    # ------------------------------------------------------------------ the beat

    async def _beat_on(self) -> None:
        while True:
            try:
                await self.beat()
                self.problem = self._told = ""
            except Exception as error:  # noqa: BLE001 - whatever one beat meets, the next one comes
                if str(error) != self._told:
                    _log.warning("host %s: %s", self.name, error)
                self._told = str(error)
                self.problem = str(error)
                if isinstance(error, Conflict):
                    await self._rejoin()
            await self._pause(self.view.lease_s / BEATS_A_LEASE)

    async def beat(self) -> None:
        """Renew, look, and begin what the plan says."""
        load = {f"processes.{shard}": float(kernel.live) for shard, kernel in self.kernels.items()}
        self.row = msgspec.structs.replace(self.row, load={"processes": sum(load.values()), **load})
        moving = set(self._busy)  # the view may be older than the end of what they are at
        self._moved.clear()
        before = self.view
        self.view = view = await self._ask(self.directory.renew, self.row, self._choose_known())
        moving |= self._busy | self._moved
        is_steady = self._note_beat(view.lease_s)
        known = view.hosts.get(self.name)
        if known is not None and known.state != self.row.state:
            self.row = msgspec.structs.replace(self.row, state=known.state)
        if self._calls.is_waiting:
            self._calls.give_up({row.address for row in view.alive()})
        if self._beats % _BEATS_A_LOOK == 0:
            self.carrier.forget({row.address for row in view.alive()})
        self._hurry_posts(before, view)
        if not self._is_leaving:
            await self._act(view, moving, is_steady)
        beaten, self._beaten = self._beaten, asyncio.Event()
        beaten.set()

    def _choose_known(self) -> View:
        """Return what the directory need not tell again: nothing now and then, so that rows that were changed by hand,
        or restored, are seen."""
        self._beats += 1
        return self.view if self._beats % _BEATS_A_LOOK else View(0.0, self.view.lease_s, {}, {})

    def _note_beat(self, lease_s: float) -> bool:
        """Note that a beat was made; returns whether there was none missing for a whole lease."""
        now_s = self._clock.monotonic()
        if now_s - self._beaten_s > _GAP * lease_s:
            self._steady_s = now_s
        self._beaten_s = now_s
        if self._pulse is not None:
            self._pulse.put_off()
        return now_s - self._steady_s >= lease_s

    def _renew_beside(self) -> None:
        """Renew the host's row while its loop is held up; called in a thread of its own."""
        if self._clock.monotonic() - self._beaten_s < HOST_HELD_UP_S:
            self.directory.renew(self.row, self.view)

    def _hurry_posts(self, before: View, view: View) -> None:
        """Carry waiting posts now to shards that have another host."""
        if view.shards is before.shards:
            return
        for shard, row in view.shards.items():
            known = before.shards.get(shard)
            if known is not None and known.host != row.host:
                for kernel in self.kernels.values():
                    kernel.core.remote.hurry(shard)

    async def _act(self, view: View, moving: set[str], is_steady: bool) -> None:
        """Begin to take, give, open and close shards as a view of the directory asks for."""
        for shard, row in view.shards.items():
            kernel = self.kernels.get(shard)
            if shard in moving:
                continue
            if row.host != self.name:
                self._faults.pop(shard, None)
            if row.host == self.name and kernel is None:
                fault = self._faults.get(shard)
                if fault is None or self._clock.monotonic() >= fault.again_s:
                    self._begin(shard, self._open_shard(shard))
            elif kernel is not None and (row.host != self.name or kernel.failure is not None):
                self._begin(shard, self._close_shard(shard, 0.0))
        what = placement.plan(view, self.name)
        for shard in what.take:
            row = view.shards[shard]
            may_live = row.host in view.hosts and not is_steady  # its host could not renew its row, maybe, as this one
            if shard in moving or may_live:
                continue
            if await self._ask(self.directory.assign, shard, self.name, row.moves):
                self._begin(shard, self._open_shard(shard))
        if what.ask and not moving and not self._busy:
            self._begin(_ASKING, self._ask_for_shard(what.ask))

    @property
    def is_busy(self) -> bool:
        """Whether a shard is being opened, closed or given away."""
        return bool(self._busy)

    async def look(self) -> View:
        """Return the directory as it is now, which the next beat would show."""
        return await self._ask(self.directory.view)  # type: ignore[no-any-return]

    async def set_state(self, host: str, state: str) -> None:
        """Tell a host, which may be another one, to drain or to take shards again."""
        await self._ask(self.directory.set_state, host, state)

    async def read_report(self) -> ClusterReport:
        """Return how the cluster is, as this host sees it; where the database is away, as it was last."""
        problem = ""
        try:
            view, silences_s = await self._ask(self.directory.view), await self._ask(self.directory.read_silences)
        except LyraError as error:
            view, silences_s, problem = self.view, {}, f"the database of the cluster cannot be reached: {error.message}"

        async def ask(row: HostRow) -> Any:
            if row.name == self.name:
                return await self.answer("status", {})
            try:
                return await self.carrier.call(row.address, "status", {}, timeout_s=CLUSTER_ANSWER_S)
            except LyraError as error:
                return error

        alive = view.alive()
        answers = dict(zip([row.name for row in alive], await asyncio.gather(*map(ask, alive)), strict=True))
        report = make_report(view, silences_s, answers)
        return msgspec.structs.replace(report, problems=[problem, *report.problems]) if problem else report

    async def until_beaten(self) -> None:
        """Return after the next beat."""
        await self._beaten.wait()

    async def _rejoin(self) -> None:
        """Enter the directory again under the same name: the row was removed while this host could not renew it.

        Where another host of this name lives, the shards that are assigned to the name are that one's: this host closes
        its kernels, and enters when the other one has left."""
        try:
            self.row = msgspec.structs.replace(self.row, life=unique_id())
            self.view = await self._ask(self.directory.join, self.row)
        except Conflict as error:
            self.problem = error.message
            for shard in list(self.kernels):
                self._begin(shard, self._close_shard(shard, 0.0))
        except LyraError as error:
            self.problem = error.message

    def _begin(self, shard: str, work: Any) -> None:
        if shard in self._busy or self._is_leaving:
            work.close()
            return
        self._busy.add(shard)
        task = self._tasks.start(work, name=f"lyra-host {self.name} {shard}")
        task.add_done_callback(lambda _: self._end_move(shard))

    def _end_move(self, shard: str) -> None:
        self._moved.add(shard)
        self._busy.discard(shard)

    # ------------------------------------------------------------------ shards

    def _make_plain_kernel(self, _shard: str, store: Any, seams: Seams) -> Kernel:
        lease_s = self.view.lease_s
        return Kernel(
            store,
            self._kernel_clock,
            programs=self._programs,
            durability=self._durability,
            lease_s=lease_s,
            lease_wait_s=lease_s + 1.0,
            seams=seams,
        )

    async def _open_shard(self, shard: str) -> None:
        kernel = None
        try:
            store = await self._ask(self.directory.store_of, shard)
            known = self.view.shards.get(shard)
            if known is None or known.format < self.row.format:  # before its tables are brought up to date
                await self._ask(self.directory.note, shard, "" if known is None else known.note, self.row.format)
            kernel = self._make_kernel(shard, store, Seams(remote=lambda parts: self._make_remote(parts, shard)))
            await kernel.start()
            if self.directory.url:
                register_runs(kernel, self.directory, self.view.lease_s)
            register_tasks(kernel)
            if self._setup is not None:
                began = self._setup(kernel)
                if began is not None:
                    await began
        except Exception as error:  # noqa: BLE001 - one shard that fails in any way keeps no other one shut
            if kernel is not None and kernel.started:
                await self._close_kernel(shard, kernel, 0.0)
            await self._note_fault(shard, error)
            return
        self.kernels[shard] = kernel
        self._faults.pop(shard, None)
        _log.info("host %s has shard %s", self.name, shard)
        if known is not None and known.note:
            with suppress(LyraError):
                await self._ask(self.directory.note, shard, "", self.row.format)

    async def _note_fault(self, shard: str, error: Exception) -> None:
        """Note why a shard cannot be opened, and when that is tried again: later each time, unless another kernel holds
        its store."""
        note = error.message if isinstance(error, LyraError) else f"{type(error).__name__}: {error}"
        before = self._faults.get(shard)
        longest_s = self.view.lease_s if isinstance(error, Conflict) else SHARD_RETRY_S_MAX
        delay_s = self.view.lease_s / BEATS_A_LEASE if before is None else 2 * before.delay_s
        delay_s = min(delay_s, longest_s)
        self._faults[shard] = _Fault(note, delay_s, self._clock.monotonic() + delay_s)
        if before is None or before.note != note:
            _log.warning("host %s cannot open shard %s: %s", self.name, shard, error)
            with suppress(LyraError):
                await self._ask(self.directory.note, shard, note, 0)

    def _make_remote(self, parts: KernelParts, shard: str) -> Remote:
        async def deliver(to: str, first: int, posts: list[bytes]) -> int:
            data = {"shard": to, "from": shard, "first": first, "posts": posts}
            return int(await self.call_shard(to, "take", data))

        key = self.directory.signer.derive(b"vesper inputs")
        remote = Remote(parts, shard, self.view.shards, deliver, [partial(SharedEvidence, key=key)])
        remote.beside = self._beside
        remote.revoked.key = hmac.digest(self.directory.secret.reveal().encode(), b"what shards sign", "sha256")
        remote.services.call = self.call_shard
        remote.shares.call = self.call_shard
        remote.rates.call = self.call_shard
        remote.asks.call = self.call_shard
        remote.services.is_open = lambda name: self.view.address_of(name) is not None
        remote.acts.place = lambda needs: placement.place(self.view, needs, here=shard)
        return remote

    async def _close_shard(self, shard: str, drain_s: float) -> None:
        kernel = self.kernels.get(shard)
        if kernel is not None:
            await self._close_kernel(shard, kernel, drain_s)
            if self.kernels.get(shard) is kernel:
                del self.kernels[shard]
            _log.info("host %s has given shard %s back", self.name, shard)

    async def _close_kernel(self, shard: str, kernel: Kernel, drain_s: float) -> None:
        try:
            drain_s = drain_s if kernel.failure is None else 0.0
            if self._before_close is not None:
                await self._before_close(kernel, drain_s)
            await kernel.close(drain_s=drain_s)
        except Exception as error:  # noqa: BLE001 - its lease runs out by itself
            _log.warning("host %s could not close shard %s in order: %s", self.name, shard, error)

    async def _leave_shard(self, shard: str) -> None:
        await self._close_shard(shard, self._drain_s)
        row = self.view.shards.get(shard)
        if row is not None and row.host == self.name:
            with suppress(LyraError):
                await self._ask(self.directory.assign, shard, "", row.moves)

    async def _ask_for_shard(self, giver: str) -> None:
        """Ask a host above its share for a shard, and open it."""
        data = {"to": self.name, "format": self.row.format}
        with suppress(LyraError):
            address = self.view.hosts[giver].address
            shard = await self._calls.call(self.carrier, address, "give", data, timeout_s=_GIVE_S)
            if shard is not None and shard not in self.kernels:
                self._begin(str(shard), self._open_shard(str(shard)))  # unless a beat has seen it first

    async def give(self, taker: str, opens: int) -> str | None:
        """Give a shard to a host that asks for one and opens stores of this form; None where there is none to give."""
        view = await self._ask(self.directory.view)
        free = [
            shard
            for shard in self.kernels
            if shard not in self._busy and shard in view.shards and view.shards[shard].format <= opens
        ]
        if not free or self._is_leaving or placement.surplus(view, self.name) <= len(self._giving):
            return None
        shard = min(free, key=lambda name: self.kernels[name].live)
        self._busy.add(shard)
        self._giving.add(shard)
        try:
            await self._close_shard(shard, self._drain_s)
            given = await self._ask(self.directory.assign, shard, taker, view.shards[shard].moves)
        finally:
            self._giving.discard(shard)
            self._end_move(shard)
        return shard if given else None

    # ------------------------------------------------------------------ calls

    def kernel_of(self, shard: str) -> Kernel:
        """Return the kernel of a shard that is open here; Conflict with the field `elsewhere` where it is not."""
        kernel = self.kernels.get(shard)
        if kernel is None or kernel.failure is not None or not kernel.open:
            raise elsewhere(self, shard)
        return kernel

    async def answer(self, method: str, data: Any) -> Any:
        """Answer a call of another host or of a client."""
        return await answer_call(self, method, data)

    async def call_shard(self, shard: str, method: str, data: dict[str, Any], *, timeout_s: float = _CALL_S) -> Any:
        """Call the host that has a shard, which may be this one; once. Conflict where none has it at the moment."""
        if shard in self.kernels:
            return await self.answer(method, data)
        row = self.view.shards.get(shard)
        if row is None:
            raise NoSuchProcess(f"there is no shard {shard!r}", shard=shard)
        address = self.view.address_of(shard)
        if address is None or row.host == self.name:
            raise Conflict(f"shard {shard} is open on no host at the moment", elsewhere=True, shard=shard)
        return await self._calls.call(self.carrier, address, method, data, timeout_s=timeout_s)


class _Fault(NamedTuple):
    """Why a shard could not be opened, how long the pause after that is, and when it is over by the host's clock."""

    note: str
    delay_s: float
    again_s: float


def find_resources() -> dict[str, float]:
    """Return what this machine has: processors, and the graphics cards that it shows."""
    cards = glob("/dev/nvidia[0-9]*")
    return {"cpu": float(os.cpu_count() or 1), **({"gpu": float(len(cards))} if cards else {})}
