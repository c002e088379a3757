"""A Job is one Vega process at work: its fiber, the kernel's ctx, and what its open effects have to remember.

Also the protocols of what a durable run adds to it: the record, the saver of processes, the barrier of a resume.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from lyra.agents.session.early_call import TimeWon
from lyra.kernel.base.waiting import PARKED
from lyra.kernel.process.links import Down
from lyra.kernel.programs.context import Context
from lyra.vega.machine.fiber import Done, Fiber, OutOfFuel, VmEffect
from lyra.vega.runtime.convert import from_python
from lyra.vega.runtime.light_processes import ScheduledFiber
from lyra.vega.values.values import Fault, Process

if TYPE_CHECKING:
    import asyncio

    from lyra.core.budgets.budget import Budget, Usage
    from lyra.kernel.process.process import Process as KernelProcess
    from lyra.vega.runtime.agents.slot import AgentSlot, AgentTurn
    from lyra.vega.runtime.early_budget import SpeculativeCalls
    from lyra.vega.runtime.world import World


# Whether the code that runs is one of the statements of a `parallel`, all of which go by one clock.
beside: ContextVar[bool] = ContextVar("vega_beside", default=False)


class VegaContext(Context):
    """The ctx of a process whose rights are limited: a right may call a process by the name that it has in Vega."""

    __slots__ = ("_world",)

    def __init__(self, process: KernelProcess, world: World) -> None:
        super().__init__(process)
        self._world = world

    def may_send(self, target: str, receiver: KernelProcess | None, *more: str) -> None:
        super().may_send(target, receiver, *more, *self._world.names_of(target))


class VegaJob:
    """Most processes only ever have the first three: the rest is made when it is needed."""

    __slots__ = ("_has_turn", "_outcome", "_state", "ctx", "fiber", "process", "world")

    def __init__(self, world: World, ctx: Context, fiber: Fiber) -> None:
        self.world = world
        self.ctx = ctx if ctx.own_process.grant.is_all else VegaContext(ctx.own_process, world)
        self.process = ctx.own_process
        self.fiber = fiber
        self._state: JobState | None = None
        self._has_turn = False  # the light processes give the turn back to the kernel program
        self._outcome: VmEffect | Done | OutOfFuel | None = None  # with what its fiber asked for

    @property
    def scheduled_fiber(self) -> ScheduledFiber:
        """The fiber, on a kernel without a journal."""
        fiber = self.fiber
        assert type(fiber) is ScheduledFiber
        return fiber

    @property
    def state(self) -> JobState:
        if self._state is None:
            self._state = JobState()
        return self._state

    @property
    def has_state(self) -> bool:
        return self._state is not None

    @property
    def can_be_saved(self) -> bool:
        """Whether all there is of the process is its fiber: nothing that it began is under way elsewhere."""
        state = self._state
        if state is not None and (state.groups or state.ahead or state.spans or state.mocked):
            return False
        mine = f"{self.ctx.own_process.pid}/"
        return not any(name.startswith(mine) for name in self.world.streams)

    async def give_back(self, wanted: Callable[[], float] = lambda: inf) -> None:
        """Wait before a check that depends on the clock, as long as overlapping calls have brought the program here
        sooner. Code that itself runs early makes no such check."""
        if beside.get():
            return
        if self._state is not None and self._state.lead.seconds > 0.0:
            await self._state.lead.give_back(wanted)

    def callers(self) -> Iterator[AgentTurn]:
        """Yield the calls that wait for this process, innermost first: it runs in a tool that they use."""
        process: KernelProcess | None = self.process
        while process is not None:
            turns = self.world.turns.get(process.pid)
            if turns:
                yield turns[0]
                process = turns[0].asker
            else:
                process = process.parent

    def outer(self, slot: AgentSlot) -> AgentTurn | None:
        """Return the innermost of those that are calls of the same agent. Deadlock where the very conversation that is
        to be asked waits for this process."""
        nearest = None
        for turn in self.callers():
            if turn.slot is slot and slot.plan.keeps:
                name = slot.plan.name
                problem = f"{name} is asked by its own tool, and answers one message after the other"
                raise Fault("Deadlock", f"{problem}; let the tool ask another process of {name}")
            if nearest is None and turn.slot.plan is slot.plan:
                nearest = turn
        if nearest is None:
            self._check_streams(slot)
        return nearest

    def _check_streams(self, slot: AgentSlot) -> None:
        """Raise Deadlock where this process reads so many streams of the agent that a further call would never get a
        turn: a stream holds its turn until it is read to its end."""
        plan = slot.plan
        if plan.turns is None or not plan.turns.locked():
            return
        streams = (opened for opened, _ in self.world.streams.values())
        mine = sum(opened.is_read_by(self.process) and opened.slot.plan is plan for opened in streams)
        if plan.concurrency is not None and mine >= plan.concurrency:
            problem = f"{plan.name} is asked while a stream of it is read, and its concurrency is {plan.concurrency}"
            raise Fault("Deadlock", f"{problem}; read the stream to its end first, or raise the concurrency")

    def waiting(self, pid: str) -> AbstractContextManager[None]:
        """While it waits for another process, the picture of the run shows that."""
        picture = self.world.picture
        return _UNSEEN if picture is None else picture.waiting(self, self.world.kernel.processes.get(pid))

    def take(self, message: Any) -> None:
        """Put what the kernel delivered into the fiber's mailbox; signals that programs do not see are dropped."""
        kind = type(message)
        if kind is tuple:
            self.fiber.deliver(message[0])
        elif kind is Down:
            self.fiber.deliver(["DOWN", Process(message.pid), message.message or message.reason])
        elif kind is list and len(message) == 2 and message[0] == "vega":
            self.fiber.deliver(self.world.read(message[1]))
        elif kind is dict and message.keys() == _STOPPED:  # a supervisor left one down, or gave up
            self.fiber.deliver(["DOWN", Process(message["child"]), self._why(message["child"], message["reason"])])
        elif kind in _PLAIN:
            self.fiber.deliver(from_python(message))

    def _why(self, pid: str, reason: str) -> str:
        """Return the text of its error; a journal's replay might not find the process any more, and says the word."""
        ended = None if self.world.is_durable else self.world.kernel.lookup(pid)
        return reason if ended is None or ended.exit is None else describe_end(reason, ended.exit.error)

    # ------------------------------------------------------------ waiting for a message
    # `await job` in the kernel program of the fiber: meanwhile LightProcesses steps the fiber. The result is what the
    # fiber asks for next, or None where a message has come.

    def __await__(self) -> Generator[Any, None, VmEffect | Done | OutOfFuel | None]:
        return self  # type: ignore[return-value]  # the part of a generator that await uses

    def __iter__(self) -> VegaJob:
        return self

    def __next__(self) -> Any:
        process, fiber = self.process, self.scheduled_fiber
        if self._has_turn:
            self._has_turn = False
            outcome, self._outcome = self._outcome, None
            raise StopIteration(outcome)
        if process.inbox:
            fiber.state = "running"
            self.take(process.kernel.mailboxes.take(process, process.receive_key))
            raise StopIteration(None)
        fiber.state = "waiting"
        process.receiver = process
        return PARKED

    def throw(self, error: Any, value: Any = None, _trace: Any = None) -> Any:
        """Called by the interpreter when an error arrives meanwhile."""
        self.close()
        raise error if value is None else value

    def close(self) -> None:
        self.scheduled_fiber.state = "running"
        self.process.receiver = None
        self._has_turn, self._outcome = False, None

    def hand_back(self, outcome: VmEffect | Done | OutOfFuel | None) -> None:
        """LightProcesses meets something that only the kernel program of the fiber can do."""
        self._has_turn, self._outcome = outcome is not None or not self.process.inbox, outcome
        self.scheduled_fiber.state = "running"
        self.process.state = "ready"
        self.process.kernel.scheduler.push(self.process)


class JobState:
    """What rarer effects need: the receive that waits and when it is over, open sessions, spans and groups."""

    __slots__ = (
        "ahead",
        "due",
        "groups",
        "lead",
        "mocked",
        "numbers",
        "printed",
        "receiving",
        "sessions",
        "spans",
        "told",
    )

    def __init__(self) -> None:
        self.numbers = 0
        self.printed = 0  # lines, where they are kept
        self.receiving = -1
        self.due = 0.0
        self.sessions: list[tuple[Budget, ...]] = []
        self.groups: dict[int, list[asyncio.Task[Any]]] = {}
        self.ahead: dict[int, SpeculativeCalls] = {}
        self.lead = TimeWon()  # over its line-by-line run
        self.spans: list[Any] = []
        self.told: tuple[Any, int] = (None, 0)  # the effect before which it last told its trace something, how often
        self.mocked: dict[str, list[str]] = {}  # streams of mocks: their words, last first

    def count_trace_entry(self, key: Any) -> int:
        """Count how often the program has told its trace something since the effect before this one."""
        self.told = (key, self.told[1] + 1 if self.told[0] == key else 1)
        return self.told[1]

    def number(self) -> int:
        """Return the process's own count, so that a replay gives the same numbers."""
        self.numbers += 1
        return self.numbers


_UNSEEN: Final = nullcontext()
_STOPPED: Final = frozenset({"child", "supervisor", "reason"})
_PLAIN = frozenset({type(None), bool, int, float, str, list, dict})


def describe_end(reason: str, error: BaseException | None) -> str:
    """Return why a process ended, as a DOWN message says it."""
    return reason if error is None else str(error)


class SupervisedChild(NamedTuple):
    """A child of a supervisor: its name in the kernel, and the process, where the kernel still has it."""

    name: str
    process: KernelProcess | None


# What a durable run gives to its World: the record, the saver of processes, and the barrier of a run that resumes.
# `lyra.vega.durable` has the implementations, a replay has records that write nothing, and a run without a journal
# none.


class RunRecord(Protocol):
    """What a run keeps of itself beside the journal of its processes."""

    def print(self, pid: str, number: int, text: str) -> None:
        """Print the line with this number, among those that the process prints."""

    def name(self, name: str, pid: str) -> None:
        """Note that a process was registered under a name."""

    def get_session_costs(self, session: str) -> dict[str, int]:
        """Return what conversations have spent in a session so far."""

    def pay(self, sessions: list[str], usage: Usage) -> None:
        """Note that a conversation spends in these sessions."""

    def leave(self, session: str) -> None:
        """Note that the program has left a session."""


class ProcessSaver(Protocol):
    """Writes the state of one process now and then, so that a replay begins there."""

    def is_due(self) -> bool:
        """Return whether the process is to be saved before its next step."""

    async def save(self) -> None:
        """Save the process."""


class ResumeBarrier(Protocol):
    """Holds the processes of a run that resumes until all of them have replayed their journals."""

    async def hold(self, job: VegaJob, kind: str) -> None:
        """Before an effect: one that is not in the journal waits."""

    async def wait(self, process: KernelProcess) -> None:
        """Wait until all processes have replayed."""

    async def wait_for_caller(self, process: KernelProcess) -> None:
        """Before the first step of a function that was called early: wait until its caller has come to the call."""

    def call(self, pid: str) -> None:
        """Note that a caller has come to the call of a function."""
