"""The names that workers serve, made known to the kernel: a proxy for each agent, a handler for each service.

While at least one worker serves a name, pipelines, `execute_agent` and `dispatch` find it. A name that the server's own
program registered is never taken over. When the last worker of a name has left, the name is unknown again, and a
pipeline that comes to it after a restart waits for it. What only workers of some users serve is there for those users
alone: to others it does not exist. The values of the work queue are here, too: a piece of work, its lease, a worker,
and what a renewal or an expired lease says.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from lyra.core.envelope import ANONYMOUS, Envelope
from lyra.core.limits import WORK_WAITING_PER_NAME_MAX
from lyra.core.trace_context import outgoing
from lyra.errors import LyraError, NameTaken
from lyra.kernel.services.registry import unknown_service
from lyra.kernel.services.service import ServiceInfo, ServiceRequest

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.pipelines.agents import StageRun
    from lyra.server.identity import Caller


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


class Claim(NamedTuple):
    """What a worker asks for. `user_id` is "" for the operator's."""

    worker_id: str
    names: frozenset[ServedName]
    idempotent: frozenset[str] = frozenset()
    user_id: str = ""
    lease_s: float = 0.0
    wait_s: float = 0.0
    announce: bool = False


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


SERVED_NAMES: Final = "work.names"  # the part of the kernel that knows the names which workers serve
_MADE_FOR: Final = "made_for"  # in a service's metadata: the user whose worker made it known
_log: Final = logging.getLogger("lyra.server")


class Desk(Protocol):
    """What a proxy calls: `WorkDesk`."""

    async def perform(self, piece: PieceOfWork) -> Any: ...

    async def find_out(self, piece: PieceOfWork) -> Any: ...

    def on_asked(self, interrupt_id: str, piece: PieceOfWork) -> None: ...

    def on_settled(self, piece_id: str, *, is_durable: bool) -> None: ...

    def users_of(self, served: ServedName) -> set[str]: ...


class WorkerAgent:
    """An agent that workers run, as the kernel knows it (`OutsideAgent`)."""

    __lyra_outside__: Final = True
    __slots__ = ("_desk", "name")

    def __init__(self, desk: Desk, name: str) -> None:
        self._desk = desk
        self.name = name

    def serves(self, user_id: str) -> bool:
        return _is_for(user_id, self._desk.users_of(ServedName("agent", self.name)))

    async def run(self, work: StageRun) -> Any:
        return await self._desk.perform(self._piece(work))

    async def find_out(self, work: StageRun) -> Any:
        return await self._desk.find_out(self._piece(work))

    def on_asked(self, interrupt_id: str, key: str) -> None:
        self._desk.on_asked(interrupt_id, PieceOfWork(key, ServedName("agent", self.name)))

    def on_settled(self, key: str, *, is_durable: bool) -> None:
        self._desk.on_settled(key, is_durable=is_durable)

    def _piece(self, work: StageRun) -> PieceOfWork:
        return PieceOfWork(
            work.key,
            ServedName("agent", self.name),
            user_id=_user_of(work.envelope),
            may_repeat=work.may_repeat,
            payload=WorkPayload(stage_run=work, traceparent=_traceparent()),
        )


def is_offered(kernel: Kernel, service: ServiceInfo, caller: Caller) -> bool:
    """Return whether a service is there for the caller: one that a worker of another user made known is not, unless a
    worker serves it for the caller, too."""
    made_for = service.metadata.get(_MADE_FOR)
    if not made_for or caller.owns(made_for):
        return True
    names = kernel.parts.get(SERVED_NAMES)
    return names is not None and names.serves(service.name, caller.user_id)


def service_for(kernel: Kernel, caller: Caller, name: str) -> ServiceInfo:
    """Return a service that is there for the caller; NoSuchService where there is none, also where it is for others
    alone."""
    service = kernel.services.get_service(name)
    if not is_offered(kernel, service, caller):
        raise unknown_service(name)
    return service


class ServedNames:
    """See the module."""

    def __init__(self, kernel: Kernel, desk: Desk) -> None:
        self._kernel = kernel
        self._desk = desk
        self._known: set[ServedName] = set()

    async def close(self) -> None:
        """Serve nothing any more: the kernel closes."""
        self._known.clear()

    def require_free(self, names: Iterable[ServedName]) -> None:
        """Refuse names that the server's own program has registered."""
        for served in names:
            if served not in self._known and self._is_taken(served):
                raise NameTaken(
                    f"the server has its own {served.kind} {served.name!r}",
                    hint="choose another name",
                    name=served.name,
                )

    def follow(self, served: set[ServedName]) -> None:
        """Make known what is served now, and forget the rest."""
        for name in self._known - served:
            self._known.discard(name)
            if name.kind == "agent":
                self._kernel.orchestrator.agents.unregister(name.name)
            elif self._kernel.services.has_handler(name.name):
                self._kernel.services.unregister_handler(name.name)
        for name in served - self._known:
            if not self._is_taken(name):
                try:
                    self._add(name)
                except LyraError as error:  # the kernel is closing, or has room for no more services
                    _log.warning("%s %s is not served: %s", name.kind, name.name, error.message)

    def serves(self, service: str, user_id: str) -> bool:
        """Return whether a worker serves a service for a user."""
        return _is_for(user_id, self._desk.users_of(ServedName("service", service)))

    def _is_taken(self, served: ServedName) -> bool:
        if served.kind == "service":
            return self._kernel.services.has_handler(served.name)
        return self._kernel.orchestrator.agents.find(served.name) is not None

    def _add(self, served: ServedName) -> None:
        if served.kind == "agent":
            self._kernel.register_agent(served.name, WorkerAgent(self._desk, served.name))
            self._known.add(served)
            return
        if served.name not in self._kernel.services.state.services:
            users = self._desk.users_of(served)
            metadata = {} if len(users) > 1 or "" in users else {_MADE_FOR: min(users)}
            self._kernel.register_service(
                {"name": served.name, "max_concurrent": WORK_WAITING_PER_NAME_MAX, "metadata": metadata}
            )
        self._kernel.register_handler(served.name, self._handler(served))
        self._known.add(served)

    def _handler(self, served: ServedName) -> Any:
        async def handle(request: ServiceRequest) -> Any:
            user_id = _user_of(request.envelope) or request.user_id
            if not self.serves(served.name, user_id):
                raise unknown_service(served.name)
            piece = PieceOfWork(
                self._kernel.entropy.id("request", 16),
                served,
                user_id=user_id,
                payload=WorkPayload(request=request, traceparent=_traceparent()),
            )
            return await self._desk.perform(piece)

        return handle


def _is_for(user_id: str, users: set[str]) -> bool:
    """Return whether workers of these users do the work of a user; a worker of no user does the work of all."""
    return "" in users or (bool(user_id) and user_id in users)


def _traceparent() -> str:
    """Return the span that is open around the running code, as a caller tells it; "" where traces are not exported."""
    headers: dict[str, str] = {}
    outgoing(headers)
    return headers.get("traceparent", "")


def _user_of(envelope: Envelope | None) -> str:
    return "" if envelope is None or envelope.user_id == ANONYMOUS else envelope.user_id
