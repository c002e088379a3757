"""The work desk of a server: kernel calls come in as pieces of work, workers claim them, results go back.

A thin shell over `WorkQueue`: it owns what waits (calls for their result, claims for work) and the timer of the next
lease that ends. A worker's names are kept known to the kernel by `names`. What a worker completes is acknowledged when
the kernel has it durably. All of it runs on the kernel's loop.

`WorkQueue` is the state machine of work that is lent to workers. It is pure: the time comes in as `now`, and nothing
waits in it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from lyra.core.limits import (
    WORK_ATTEMPTS_MAX,
    WORK_CLAIM_WAIT_S_MAX,
    WORK_LEASE_S,
    WORK_LEASE_S_MAX,
    WORK_LEASE_S_MIN,
    WORK_NAMES_MAX,
    WORK_PRESENCE_S,
    WORK_RESULTS_KEPT,
    WORK_RETURN_S,
    WORK_WAITING_MAX,
    WORK_WAITING_PER_NAME_MAX,
    WORK_WORKERS_MAX,
)
from lyra.errors import AgentFailed, ConfigError, LyraError, NameTaken, OutcomeUnknown, Overloaded
from lyra.kernel.base.waiting import resume
from lyra.server.work.names import (
    SERVED_NAMES,
    Claim,
    LeaseEnd,
    PieceOfWork,
    Renewal,
    ServedName,
    ServedNames,
    ServingWorker,
    WorkLease,
)

if TYPE_CHECKING:
    from lyra.core.clock import Timer
    from lyra.kernel.kernel import Kernel


_DIGITS_MAX: Final = 9  # of a life, and of an attempt
_BROKEN_SHARE: Final = 0.5  # of its lease a worker keeps when its connection breaks; it renews after a third


class WorkQueue:
    """See the module."""

    def __init__(
        self,
        *,
        waiting_max: int = WORK_WAITING_MAX,
        waiting_per_name_max: int = WORK_WAITING_PER_NAME_MAX,
        workers_max: int = WORK_WORKERS_MAX,
        attempts_max: int = WORK_ATTEMPTS_MAX,
        presence_s: float = WORK_PRESENCE_S,
        results_kept: int = WORK_RESULTS_KEPT,
    ) -> None:
        self._waiting_max = waiting_max
        self._waiting_per_name_max = waiting_per_name_max
        self._workers_max = workers_max
        self._attempts_max = attempts_max
        self._presence_s = presence_s
        self._results_kept = results_kept
        self.life = 0  # of the server, on one store: attempts of another life have other ids
        self.pieces: dict[str, PieceOfWork] = {}
        self.workers: dict[str, ServingWorker] = {}
        self._waiting: dict[ServedName, deque[PieceOfWork]] = {}
        self._turns: dict[ServedName, int] = {}  # when each name was served last
        self._turn = 0
        self._lent: dict[str, WorkLease] = {}  # by id of the piece
        self._orphans: dict[str, float] = {}  # id of a piece → until when its worker is waited for
        self._attempts: dict[str, WorkLease] = {}  # by work id: those whose result would still be taken
        self._taken: OrderedDict[str, str] = OrderedDict()  # work id → worker, of results that were taken

    # ------------------------------------------------------------------ work comes in and is given up

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def is_lent(self) -> bool:
        """Whether a worker holds a piece."""
        return bool(self._lent)

    def offer(self, piece: PieceOfWork) -> None:
        """Put a piece of work in line; Overloaded where the line is full."""
        line = self._waiting.setdefault(piece.served, deque())
        if len(line) >= self._waiting_per_name_max or self.waiting >= self._waiting_max:
            raise Overloaded(
                f"too much work waits for a worker that serves {piece.served.name}",
                hint="start more workers, or try again later",
                name=piece.served.name,
            )
        self.pieces[piece.id] = piece
        line.append(piece)

    def cancel(self, piece_id: str) -> None:
        """Cancel a piece whose result is not wanted any more. A worker that has the piece learns it when it renews its
        lease."""
        piece = self.pieces.get(piece_id)
        if piece is None:
            return
        if piece.state == "waiting":
            self._leave_line(piece)
        if piece.lease is not None:
            piece.is_cancelled = True
            self._forget_attempts(piece, keep=piece.lease.work_id)
        else:
            self._drop(piece)

    def wait_for_holder(self, piece: PieceOfWork, until: float) -> None:
        """Take in a piece that was lent before a restart: its worker may come back until then."""
        piece.state = "orphaned"
        self.pieces[piece.id] = piece
        self._orphans[piece.id] = until

    def doubt(self, piece: PieceOfWork) -> None:
        """Take in a piece about which a person is asked; a late result of any attempt still ends it."""
        piece.state = "doubtful"
        self.pieces[piece.id] = piece

    def repeat(self, piece_id: str) -> None:
        """Put a piece that was lent before in line again, as the first."""
        piece = self.pieces[piece_id]
        piece.state = "waiting"
        self._waiting.setdefault(piece.served, deque()).appendleft(piece)

    # ------------------------------------------------------------------ workers

    def arrive(
        self,
        worker_id: str,
        names: Iterable[ServedName],
        *,
        idempotent: Iterable[str] = (),
        user_id: str = "",
        now: float,
    ) -> ServingWorker:
        """Note what a worker says that it can run; the last claim counts."""
        worker = self.workers.get(worker_id)
        if worker is None:
            if len(self.workers) >= self._workers_max:
                raise Overloaded(f"{self._workers_max} workers are connected, the most there may be")
            worker = self.workers[worker_id] = ServingWorker(worker_id, frozenset(), user_id=user_id)
        elif worker.user_id != user_id:
            raise NameTaken(f"the worker id {worker_id!r} is taken", hint="choose another worker id")
        worker.names, worker.idempotent = frozenset(names), frozenset(idempotent)
        worker.seen_at = now
        return worker

    def connection_broken(self, worker_id: str, now: float) -> None:
        """Note that a waiting claim of the worker broke off: it may be dead. One that lives renews its leases in
        time."""
        worker = self.workers.get(worker_id)
        for piece_id in worker.holds if worker is not None else ():
            lease = self._lent[piece_id]
            lease.until = min(lease.until, now + lease.lease_s * _BROKEN_SHARE)

    def list_served(self) -> set[ServedName]:
        """Return the names that at least one worker serves."""
        return {name for worker in self.workers.values() for name in worker.names}

    def users_of(self, served: ServedName) -> set[str]:
        """Return the users for whom workers serve a name; "" among them represents every user."""
        return {worker.user_id for worker in self.workers.values() if served in worker.names}

    # ------------------------------------------------------------------ leases

    def claim(self, worker_id: str, lease_s: float, now: float) -> WorkLease | None:
        """Lend the worker the next piece of work that it can do; None where there is none."""
        worker = self.workers[worker_id]
        worker.seen_at = now
        piece = self._next_for(worker)
        if piece is None:
            return None
        self._turn += 1
        self._turns[piece.served] = self._turn
        self._leave_line(piece)
        piece.attempt += 1
        return self._lend(piece, worker, lease_s, now)

    def has_work_for(self, worker: ServingWorker) -> bool:
        """Return whether a piece waits that a worker may take."""
        return self._next_for(worker) is not None

    def give_back(self, lease: WorkLease) -> None:
        """Undo a claim whose worker was not told of it."""
        piece = lease.piece
        if piece.lease is lease:
            self._release(piece)
            self._attempts.pop(lease.work_id, None)
            piece.attempt -= 1
            if piece.is_cancelled:
                self._drop(piece)
            else:
                self.repeat(piece.id)

    def _lend(
        self, piece: PieceOfWork, worker: ServingWorker, lease_s: float, now: float, *, work_id: str = ""
    ) -> WorkLease:
        seconds = min(max(lease_s or WORK_LEASE_S, WORK_LEASE_S_MIN), WORK_LEASE_S_MAX)
        may_repeat = piece.may_repeat or piece.served.name in worker.idempotent
        lease = WorkLease(piece, work_id or self._work_id(piece), worker.id, seconds, now + seconds, may_repeat)
        piece.lease = lease
        piece.state = "lent"
        self._orphans.pop(piece.id, None)
        self._forget_attempts(piece)
        self._attempts[lease.work_id] = self._lent[piece.id] = lease
        piece.attempts.append(lease.work_id)
        worker.holds.add(piece.id)
        return lease

    def _work_id(self, piece: PieceOfWork) -> str:
        return f"{piece.id}.{self.life}-{piece.attempt}" if self.life else f"{piece.id}.{piece.attempt}"

    def _adopt(self, work_id: str, worker_id: str, now: float) -> None:
        """Lend a piece to the worker that says it got it before a restart, if no other worker has it."""
        piece_id, _, number = work_id.rpartition(".")
        piece, worker = self.pieces.get(piece_id), self.workers.get(worker_id)
        if piece is None or worker is None or piece.lease is not None or not worker.may_take(piece):
            return
        life, _, attempt = number.rpartition("-")
        if not all(text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX for text in (life or "0", attempt)):
            return
        if int(life or "0") < self.life or int(attempt) > piece.attempt:
            if piece.state == "waiting":
                self._leave_line(piece)
            piece.attempt = max(piece.attempt, int(attempt))
            self._lend(piece, worker, 0.0, now, work_id=work_id)

    def piece_of(self, work_id: str) -> PieceOfWork | None:
        """Return the piece that an attempt belongs to, while a result of that attempt would be taken."""
        lease = self._attempts.get(work_id)
        return lease.piece if lease is not None else None

    def is_attempt(self, work_id: str) -> bool:
        """Return whether this server has lent it under this id, or has taken its result."""
        return work_id in self._attempts or work_id in self._taken

    def is_known(self, work_id: str) -> bool:
        """Return whether the work is here, or its result was taken."""
        return self.is_attempt(work_id) or work_id.rpartition(".")[0] in self.pieces

    def is_foreign(self, work_id: str, worker_id: str, user_id: str) -> bool:
        """Return whether the piece or the worker belongs to another user than the caller acts for; "" may see all
        pieces."""
        piece = self.piece_of(work_id) or self.pieces.get(work_id.rpartition(".")[0])
        worker = self.workers.get(worker_id)
        if user_id and piece is not None and piece.user_id != user_id:
            return True
        return worker is not None and worker.user_id != user_id

    def renew(self, work_id: str, worker_id: str, lease_s: float, now: float) -> Renewal:
        """Extend a lease. Without it (it ran out, or was never this worker's) the work is no longer this worker's."""
        if work_id not in self._attempts:
            self._adopt(work_id, worker_id, now)
        lease = self._attempts.get(work_id)
        if lease is None or lease.piece.lease is not lease or lease.worker_id != worker_id:
            return Renewal(held=False, cancelled=False)
        if lease_s:
            lease.lease_s = min(max(lease_s, WORK_LEASE_S_MIN), WORK_LEASE_S_MAX)
        lease.until = now + lease.lease_s
        self.workers[worker_id].seen_at = now
        return Renewal(held=True, cancelled=lease.piece.is_cancelled)

    def complete(self, work_id: str, worker_id: str, now: float) -> tuple[bool, PieceOfWork | None]:
        """Take a result: whether it counts, and the piece that it ends (None where it had been taken before)."""
        if work_id in self._taken:
            return self._taken[work_id] == worker_id, None
        if work_id not in self._attempts:
            self._adopt(work_id, worker_id, now)
        lease = self._attempts.get(work_id)
        if lease is None or lease.worker_id != worker_id:
            return False, None
        piece = lease.piece
        worker = self.workers.get(worker_id)
        if worker is not None:
            worker.seen_at = now
        if piece.is_cancelled:
            self._drop(piece)
            return False, None
        if piece.state == "waiting":  # the lease ran out, and no other worker has begun
            self._leave_line(piece)
        self._drop(piece)
        piece.state = "done"
        self._taken[work_id] = worker_id
        if len(self._taken) > self._results_kept:
            self._taken.popitem(last=False)
        return True, piece

    def expire(self, now: float) -> list[LeaseEnd]:
        """End the leases that are over, and forget workers that have left."""
        over = [lease for lease in self._lent.values() if lease.until <= now]
        ends = [LeaseEnd(lease.piece, lease.worker_id, self._end(lease)) for lease in over]
        for piece_id in [piece_id for piece_id, until in self._orphans.items() if until <= now]:
            del self._orphans[piece_id]
            piece = self.pieces[piece_id]
            piece.attempt = max(piece.attempt, 1)  # of the worker that did not come back
            if piece.may_repeat:
                piece.losses += 1
                self.repeat(piece_id)
            else:
                piece.state = "doubtful"
            ends.append(LeaseEnd(piece, "", piece.state))
        for worker in list(self.workers.values()):
            if not (worker.claims or worker.holds) and worker.seen_at + self._presence_s <= now:
                del self.workers[worker.id]
                for name in worker.names - self.list_served():
                    self._turns.pop(name, None)
        return [end for end in ends if end.state != "done"]

    def _end(self, lease: WorkLease) -> str:
        """Return what becomes of a piece whose lease ran out."""
        piece = lease.piece
        self._release(piece)
        if piece.is_cancelled:
            piece.state = "done"
            self._drop(piece)
        elif not lease.may_repeat:
            piece.state = "doubtful"
        elif piece.losses < self._attempts_max - 1:
            piece.losses += 1
            self.repeat(piece.id)
        else:
            piece.state = "lost"
            self._drop(piece)
        return piece.state

    def next_deadline(self) -> float | None:
        """When `expire` has something to do next."""
        leases = [lease.until for lease in self._lent.values()]
        absences = [
            worker.seen_at + self._presence_s for worker in self.workers.values() if not (worker.claims or worker.holds)
        ]
        return min([*leases, *self._orphans.values(), *absences], default=None)

    # ------------------------------------------------------------------ inside

    def _next_for(self, worker: ServingWorker) -> PieceOfWork | None:
        """Return the oldest piece of the name that was served the longest ago."""
        for name in sorted(worker.names, key=lambda name: (self._turns.get(name, 0), name)):
            for piece in self._waiting.get(name, ()):
                if worker.may_take(piece):
                    return piece
        return None

    def _leave_line(self, piece: PieceOfWork) -> None:
        line = self._waiting[piece.served]
        line.remove(piece)
        if not line:
            del self._waiting[piece.served]

    def _release(self, piece: PieceOfWork) -> None:
        if piece.lease is not None:
            worker = self.workers.get(piece.lease.worker_id)
            if worker is not None:
                worker.holds.discard(piece.id)
            piece.lease = None
            del self._lent[piece.id]

    def _forget_attempts(self, piece: PieceOfWork, *, keep: str = "") -> None:
        for work_id in piece.attempts:
            if work_id != keep:
                self._attempts.pop(work_id, None)
        piece.attempts = [keep] if keep else []

    def _drop(self, piece: PieceOfWork) -> None:
        self._release(piece)
        self._forget_attempts(piece)
        self._orphans.pop(piece.id, None)
        self.pieces.pop(piece.id, None)


_log: Final = logging.getLogger("lyra.server")
_IDLE_LOOK_S: Final = 0.1  # between two looks whether workers hold something, while the server stops


class WorkDesk:
    """See the module. One for each server."""

    def __init__(self, kernel: Kernel, queue: WorkQueue | None = None, *, return_s: float = WORK_RETURN_S) -> None:
        self._kernel = kernel
        self._queue = WorkQueue() if queue is None else queue
        self._names = kernel.parts[SERVED_NAMES] = ServedNames(kernel, self)
        self._results: dict[str, asyncio.Future[Any]] = {}  # by id of the piece: the call that waits for it
        self._settling: dict[str, list[asyncio.Future[bool]]] = {}  # by id: workers whose result becomes durable
        self._questions: dict[str, str] = {}  # by id: the interrupt that asks what became of it
        # Claims with their worker, and results of work that is not known yet (without one).
        self._waiters: list[tuple[asyncio.Future[None], ServingWorker | None]] = []
        self._timer: Timer | None = None
        self._return_s = return_s
        self._returned_at = kernel.clock.monotonic() + return_s  # until then workers of an earlier server may be back
        self._is_closed = False

    def _now(self) -> float:
        return self._kernel.clock.monotonic()

    # ------------------------------------------------------------------ the kernel's side

    async def perform(self, piece: PieceOfWork) -> Any:
        """Have a worker do a piece of work; gives its result. Giving up the call cancels the work."""
        earlier = self._queue.pieces.get(piece.id)
        if earlier is not None:  # a person decided to have it done again
            piece.attempt = earlier.attempt
            self._queue.cancel(earlier.id)
        self._tell_settled(piece.id, is_durable=True)  # a result that failed its check, and is tried again
        self._queue.offer(piece)
        return await self._result_of(piece)

    async def find_out(self, piece: PieceOfWork) -> Any:
        """Return the result of work that was lent before a restart, if its worker comes back with it."""
        self._queue.wait_for_holder(piece, self._now() + self._return_s)
        return await self._result_of(piece)

    async def _result_of(self, piece: PieceOfWork) -> Any:
        result: asyncio.Future[Any] = self._kernel.loop.create_future()
        self._results[piece.id] = result
        self._came_in(piece)
        try:
            return await result
        except asyncio.CancelledError:
            self._queue.cancel(piece.id)
            raise
        finally:
            del self._results[piece.id]

    def on_asked(self, interrupt_id: str, piece: PieceOfWork) -> None:
        """Note that a person is asked what became of a piece; a late result answers the question."""
        self._questions[piece.id] = interrupt_id
        if piece.id not in self._queue.pieces:
            self._queue.doubt(piece)
        self._on_changed()

    def on_settled(self, piece_id: str, *, is_durable: bool) -> None:
        """Tell the worker whose result it was that a call is over, and forget the piece."""
        self._tell_settled(piece_id, is_durable=is_durable)
        self._questions.pop(piece_id, None)
        self._queue.cancel(piece_id)

    def _tell_settled(self, piece_id: str, *, is_durable: bool) -> None:
        for waiter in self._settling.pop(piece_id, []):
            if not waiter.done():
                waiter.set_result(is_durable)

    # ------------------------------------------------------------------ the workers' side

    async def claim(self, claim: Claim) -> WorkLease | None:
        """Lend a worker the next piece of work that it can do, as soon as there is one; None when its wait is over."""
        worker = self._arrive(claim)
        if claim.announce:
            return None
        if self._kernel.journal is not None:
            self._queue.life = self._kernel.journal.epoch
        deadline = self._now() + min(claim.wait_s, WORK_CLAIM_WAIT_S_MAX)
        worker.claims += 1
        try:
            while not self._is_closed:
                lease = self._queue.claim(claim.worker_id, claim.lease_s, self._now())
                if lease is not None:
                    if await self._begin(lease):
                        return lease
                elif not worker.names or not await self._wait_for_change(deadline, worker):
                    return None
        except asyncio.CancelledError:
            self._queue.connection_broken(claim.worker_id, self._now())
            self._on_changed()  # another claim takes what this one was woken for
            raise
        finally:
            worker.claims -= 1
            worker.seen_at = self._now()
            self._arm()
        return None

    def _arrive(self, claim: Claim) -> ServingWorker:
        """Note what a worker serves."""
        if not (claim.names or claim.announce) or len(claim.names) > WORK_NAMES_MAX:
            raise ConfigError(f"a worker serves 1 to {WORK_NAMES_MAX} agents and services", key="agents")
        self._names.require_free(claim.names)
        worker = self._queue.arrive(
            claim.worker_id, claim.names, idempotent=claim.idempotent, user_id=claim.user_id, now=self._now()
        )
        self._on_changed()
        return worker

    async def watch(self, claim: Claim) -> bool:
        """Return whether there is work for a worker, as soon as there is some; False when its wait is over. Nothing is
        lent: of the desks that the worker watches it claims at one."""
        worker = self._arrive(claim)
        deadline = self._now() + min(claim.wait_s, WORK_CLAIM_WAIT_S_MAX)
        worker.claims += 1
        try:
            while not self._is_closed:
                if self._queue.has_work_for(worker):
                    return True
                if not worker.names or not await self._wait_for_change(deadline):
                    break
        finally:
            worker.claims -= 1
            worker.seen_at = self._now()
            self._arm()
        return False

    async def _begin(self, lease: WorkLease) -> bool:
        """Journal that the worker gets the piece, so that a restart knows; False if it is not wanted any more."""
        self._arm()
        try:
            await lease.piece.payload.begin(may_repeat=lease.may_repeat)
        except BaseException:
            self._queue.give_back(lease)
            self._on_changed()
            raise
        if lease.piece.lease is lease and not lease.piece.is_cancelled:
            return True
        self._queue.give_back(lease)
        return False

    def renew(self, work_id: str, worker_id: str, *, user_id: str = "", lease_s: float = 0.0) -> Renewal:
        """Extend a lease. For a while after a restart a lease that is not known may become known again. Another user's
        is answered as one that is not known."""
        if self._queue.is_foreign(work_id, worker_id, user_id):
            return Renewal(held=self._awaits_return, cancelled=False)
        self._require_announced(work_id, worker_id)
        renewal = self._queue.renew(work_id, worker_id, lease_s, self._now())
        self._arm()
        if not renewal.held and self._may_return(work_id):
            return Renewal(held=True, cancelled=False)
        return renewal

    def users_of(self, served: ServedName) -> set[str]:
        """Return the users for whom workers serve a name; "" among them represents every user."""
        return self._queue.users_of(served)

    def find_served(self, work_id: str) -> ServedName:
        """Tell whether the work is an agent's or a service's; an agent's where it is not known."""
        piece = self._queue.piece_of(work_id)
        return piece.served if piece is not None else ServedName("agent", "the agent")

    async def complete(
        self, work_id: str, worker_id: str, value: Any, *, error: Exception | None = None, user_id: str = ""
    ) -> bool:
        """Take the result of a piece of work: a value, or an error. Whether it counts; then it is durable. Another
        user's is answered as one that is not known."""
        while self._may_return(work_id) or (
            self._awaits_return and self._queue.is_foreign(work_id, worker_id, user_id)
        ):
            await self._wait_for_change(self._returned_at)
        if self._queue.is_foreign(work_id, worker_id, user_id):
            return False
        self._require_announced(work_id, worker_id)
        is_accepted, piece = self._queue.complete(work_id, worker_id, self._now())
        self._arm()
        if piece is None:
            return is_accepted
        call = self._results.get(piece.id)
        if call is None or call.done():
            # Answer the question, if it is still open, by a result that came after a person was asked.
            interrupt_id = self._questions.pop(piece.id, "")
            answer = {"decision": "fail"} if error is not None else {"decision": "skip", "data": _result_to_json(value)}
            try:
                await self._kernel.resolve_interrupt(interrupt_id, answer)
            except LyraError:  # it is answered, or its process has ended
                return False
            return True
        if error is None:
            call.set_result(value)
        else:
            call.set_exception(error)
        if piece.payload.stage_run is None:
            return True
        durable: asyncio.Future[bool] = self._kernel.loop.create_future()
        self._settling.setdefault(piece.id, []).append(durable)
        is_durable = await durable
        if not is_durable and self._kernel.core.stopping:
            raise Overloaded("the server is stopping", hint="deliver the result when it is back")
        return is_durable

    def _require_announced(self, work_id: str, worker_id: str) -> None:
        """Have a worker from before a restart say what it serves first: one whose places are all taken does not claim,
        and may not have noticed the restart."""
        may_be_its_own = self._queue.is_known(work_id) and not self._queue.is_attempt(work_id)
        if may_be_its_own and worker_id not in self._queue.workers and self._now() < self._returned_at:
            raise Overloaded(f"the server was restarted and does not know worker {worker_id}", worker=worker_id)

    def _may_return(self, work_id: str) -> bool:
        """Return whether work that is not known may be from before a restart, and come back with its process."""
        return self._awaits_return and not self._queue.is_known(work_id)

    @property
    def _awaits_return(self) -> bool:
        """Whether workers of an earlier server may still come back with their work."""
        return not self._is_closed and self._now() < self._returned_at

    def close(self) -> None:
        """Close as the server stops: claims that wait end without work."""
        self._is_closed = True
        self._on_changed()

    async def wait_idle(self) -> None:
        """Wait until no worker holds a piece of work."""
        while self._queue.is_lent:
            await self._wait_for_change(self._now() + _IDLE_LOOK_S)

    # ------------------------------------------------------------------ waiting and time

    async def _wait_for_change(self, deadline: float, worker: ServingWorker | None = None) -> bool:
        """Wait until something changed for this claim, or for any caller without a worker; False when the deadline has
        passed."""
        if self._now() >= deadline:
            return False
        change: asyncio.Future[None] = self._kernel.loop.create_future()
        waiter = (change, worker)
        self._waiters.append(waiter)
        timer = self._kernel.clock.call_at(deadline, lambda: resume(change))
        try:
            await change
        finally:
            timer.cancel()
            if waiter in self._waiters:
                self._waiters.remove(waiter)
        return True

    def _came_in(self, piece: PieceOfWork) -> None:
        """Wake the claim that has waited longest for such a piece, and the results that may be of it."""
        is_for_claims = piece.state == "waiting"
        kept: list[tuple[asyncio.Future[None], ServingWorker | None]] = []
        for change, worker in self._waiters:
            if worker is None:
                resume(change)
            elif is_for_claims and not change.done() and worker.may_take(piece):
                resume(change)
                is_for_claims = False
            else:
                kept.append((change, worker))
        self._waiters = kept
        self._arm()

    def _on_changed(self) -> None:
        """Wake all that wait, in the order in which they came, and see when the next lease ends."""
        self._names.follow(self._queue.list_served())
        waiters, self._waiters = self._waiters, []
        for change, _ in waiters:
            resume(change)
        self._arm()

    def _arm(self) -> None:
        deadline = self._queue.next_deadline()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if deadline is not None and not self._kernel.core.stopping:
            self._timer = self._kernel.clock.call_at(deadline, self._expire)

    def _expire(self) -> None:
        if self._kernel.core.stopping:
            return
        for end in self._queue.expire(self._now()):
            _log.warning("worker %s was lost with %s: %s", end.worker_id or "?", end.piece.id, _BECOMES[end.state])
            call = self._results.get(end.piece.id)
            if call is None or call.done():
                continue
            name = end.piece.served.name
            if end.state == "doubtful":
                call.set_exception(OutcomeUnknown(f"the worker that ran {name} was lost", name=name))
            elif end.state == "lost":
                call.set_exception(AgentFailed(f"{name} was given up: each worker that ran it was lost", name=name))
        self._on_changed()


_BECOMES: Final = {
    "waiting": "the work goes to another worker",
    "doubtful": "what became of the work is not known",
    "lost": "the work is given up",
}


def _result_to_json(value: Any) -> Any:
    """Return the result of an agent as the data of an answer."""
    output = getattr(value, "output", None)
    return value if output is None else {"output": output, "metrics": dict(value.metrics)}
