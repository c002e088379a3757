"""The values of the work queue: a piece of work, its lease, a worker, and what a renewal or an expired lease says.

Plain data; `queue` changes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from lyra.kernel.pipelines.agents import StageRun


class ServedName(NamedTuple):
    """What a worker can run: `kind` is "agent" or "service"."""

    kind: str
    name: str


@dataclass(slots=True, eq=False)
class WorkLease:
    """One attempt: which worker has the piece, and until when."""

    piece: PieceOfWork
    work_id: str
    worker_id: str
    lease_s: float
    until: float
    may_repeat: bool


@dataclass(slots=True, eq=False)
class PieceOfWork:
    """One call of an agent or a service. `payload` is for the desk; the queue does not look at it."""

    id: str
    served: ServedName
    user_id: str = ""
    may_repeat: bool = False  # also where the worker does not say so: the stage may be run again
    payload: Any = None
    state: str = "waiting"
    attempt: int = 0
    losses: int = 0  # workers that were lost with it
    lease: WorkLease | None = None
    is_cancelled: bool = False
    attempts: list[str] = field(default_factory=list)  # work ids whose result would still be taken


@dataclass(slots=True, eq=False)
class ServingWorker:
    """A worker as its last claim described it. `user_id` is "" for one that may serve every user."""

    id: str
    names: frozenset[ServedName]
    idempotent: frozenset[str] = frozenset()
    user_id: str = ""
    seen_at: float = 0.0
    claims: int = 0  # that wait for work
    holds: set[str] = field(default_factory=set)  # ids of pieces

    def may_take(self, piece: PieceOfWork) -> bool:
        return piece.served in self.names and (not self.user_id or self.user_id == piece.user_id)


class Renewal(NamedTuple):
    held: bool
    cancelled: bool


class LeaseEnd(NamedTuple):
    """A lease that ran out. `state` is what the piece is now: waiting again, doubtful, or lost (too many attempts)."""

    piece: PieceOfWork
    worker_id: str
    state: str


class WorkPayload(NamedTuple):
    """What a piece of work is about: a run of a stage, or a request to a service."""

    stage_run: StageRun | None = None
    request: Any = None  # a ServiceRequest
    traceparent: str = ""  # of the span that is open around the call

    async def begin(self, *, may_repeat: bool) -> None:
        """Journal that a worker gets it. Requests to services are not durable."""
        if self.stage_run is not None:
            await self.stage_run.begin(may_repeat)
