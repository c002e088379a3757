"""The state machine of work that is lent to workers. Pure: the time comes in as `now`, and nothing waits here.

    waiting ──claim──▶ lent ──complete──▶ done
       ▲                 │
       ├──── lease over, may be repeated ─┤
       │                 └─ lease over, may not ──▶ doubtful ──late result──▶ done
       └───────────────── a person decides so ──────────┘

    orphaned ──its worker is back──▶ lent;  no worker comes ──▶ doubtful

A piece of work waits until a worker that serves its name claims it, and is then lent with a lease, which the worker
renews. Each time it is lent is an attempt with its own id, so that a late result of an earlier attempt is told
from one of the current attempt. A result is taken once: from the attempt that holds the piece, or from an earlier one
while no other attempt runs. A piece that loses one worker after the other is given up. Names take turns, so that a name
with much work does not starve the others. A worker that acts for one user is given work of that user alone. After a
restart, work that had been lent is orphaned, and the worker that renews or completes it has it again.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final

from lyra.core.limits import (
    WORK_ATTEMPTS_MAX,
    WORK_LEASE_S,
    WORK_LEASE_S_MAX,
    WORK_LEASE_S_MIN,
    WORK_PRESENCE_S,
    WORK_RESULTS_KEPT,
    WORK_WAITING_MAX,
    WORK_WAITING_PER_NAME_MAX,
    WORK_WORKERS_MAX,
)
from lyra.errors import NameTaken, Overloaded
from lyra.server.work.piece import LeaseEnd, PieceOfWork, Renewal, ServedName, ServingWorker, WorkLease

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
                self._forget_worker(worker)
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

    def _forget_worker(self, worker: ServingWorker) -> None:
        del self.workers[worker.id]
        for name in worker.names - self.list_served():
            self._turns.pop(name, None)

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
