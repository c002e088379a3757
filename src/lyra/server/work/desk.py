"""The work desk of a server: kernel calls come in as pieces of work, workers claim them, results go back.

A thin shell over `WorkQueue`: it owns what waits (calls for their result, claims for work) and the timer of the next
lease that ends. A worker's names are kept known to the kernel by `names`. What a worker completes is acknowledged when
the kernel has it durably. All of it runs on the kernel's loop.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lyra.core.limits import WORK_CLAIM_WAIT_S_MAX, WORK_NAMES_MAX, WORK_RETURN_S
from lyra.errors import AgentFailed, ConfigError, LyraError, OutcomeUnknown, Overloaded
from lyra.kernel.base.waiting import resume
from lyra.server.work.names import SERVED_NAMES, ServedNames
from lyra.server.work.piece import PieceOfWork, Renewal, ServedName, ServingWorker, WorkLease
from lyra.server.work.queue import WorkQueue

if TYPE_CHECKING:
    from lyra.core.clock import Timer
    from lyra.kernel.kernel import Kernel


_log: Final = logging.getLogger("lyra.server")
_IDLE_LOOK_S: Final = 0.1  # between two looks whether workers hold something, while the server stops


class Claim(NamedTuple):
    """What a worker asks for. `user_id` is "" for the operator's."""

    worker_id: str
    names: frozenset[ServedName]
    idempotent: frozenset[str] = frozenset()
    user_id: str = ""
    lease_s: float = 0.0
    wait_s: float = 0.0
    announce: bool = False


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
        if not (claim.names or claim.announce) or len(claim.names) > WORK_NAMES_MAX:
            raise ConfigError(f"a worker serves 1 to {WORK_NAMES_MAX} agents and services", key="agents")
        self._names.require_free(claim.names)
        worker = self._queue.arrive(
            claim.worker_id, claim.names, idempotent=claim.idempotent, user_id=claim.user_id, now=self._now()
        )
        self._on_changed()
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
            return await self._answer_question(piece, value, error)
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

    async def _answer_question(self, piece: PieceOfWork, value: Any, error: Exception | None) -> bool:
        """Answer the question, if it is still open, by a result that came after a person was asked."""
        interrupt_id = self._questions.pop(piece.id, "")
        answer = {"decision": "fail"} if error is not None else {"decision": "skip", "data": _result_to_json(value)}
        try:
            await self._kernel.resolve_interrupt(interrupt_id, answer)
        except LyraError:  # it is answered, or its process has ended
            return False
        return True

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
