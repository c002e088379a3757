"""Supervisors from outside: commands in, answers out, and the handle that people hold.

`Supervisors` is the kernel's side: it starts supervisors, carries commands to them through their mailboxes and knows
the tables of those that run. A command is durable like any message; its answer is only for a caller in this life of
the kernel. What a supervisor does with a command is in `supervisor`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from lyra.core.naming import to_fixed_name
from lyra.core.policies.policy import Supervision
from lyra.errors import ConfigError, Corrupt, LyraError, NoSuchProcess, ProcessError, error_from_data
from lyra.kernel.base.subsystem import Subsystem
from lyra.kernel.base.waiting import consume_error
from lyra.kernel.process.process import Process
from lyra.kernel.programs.context import Context, ExitProgram, require_send
from lyra.kernel.programs.handle import Ack, Handle
from lyra.kernel.supervision.child import (
    START,
    START_MARKED,
    Child,
    ChildRow,
    ChildTable,
    Order,
    Plan,
    make_plan,
    make_spec,
)
from lyra.kernel.supervision.supervisor import Run, read_kept, supervise

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lyra.kernel.base.core import Core
    from lyra.kernel.process.links import Links
    from lyra.kernel.process.mailbox import Mailboxes
    from lyra.kernel.programs.lifetime import Lifetimes
    from lyra.kernel.programs.registry import Programs


# ---------------------------------------------------------------- before the replay
# A supervisor's table is rebuilt by replaying its program, which takes its turn after the kernel has opened. For
# callers that ask before, the same program runs ahead on a copy of the journal's answers, in a process that is in no
# table, and is dropped where the answers end. Nothing is performed, written or told.
def preview(process: Process, plan: Any) -> ChildTable:
    """Return what a supervisor that comes back will know once its replay is done, for callers that ask before."""
    ahead = Process(
        process.core,
        process.pid,
        process.program,
        process.parent,
        process.budget,
        process.grant,
        process.priority,
        process.context,
    )
    ahead.keys, ahead.branches, ahead.restored = process.keys, process.branches, process.restored
    ahead.replay = _Answers(process.replay or {})
    ahead.stepping = True
    ctx = Context(ahead)
    looking = Run(ctx, read_kept(ctx, plan, Plan))
    program = looking.run()
    try:
        with suppress(_CaughtUp, StopIteration, ExitProgram, LyraError):
            while program.send(None) is None:
                pass
    finally:
        program.close()
    return looking.table


class _CaughtUp(BaseException):
    """The journal has no more answers."""


class _Answers(dict[Any, Any]):
    """What a journal holds, for a look ahead: where it ends the look does too, before anything is done."""

    def pop(self, key: Any, _default: Any = None) -> Any:
        if key not in self:
            raise _CaughtUp
        return super().pop(key)

    def __bool__(self) -> bool:
        return True


class ChildInfo(msgspec.Struct, frozen=True):
    """One line of `which_children`."""

    id: str
    pid: str | None
    state: str  # running | stopped | restarting
    kind: str  # worker | supervisor
    restart: str
    significant: bool
    program: str
    starts: int  # how often it was started so far


class Supervisors(Subsystem):
    """Carries commands to supervisors and their answers back, and knows the tables of those that run."""

    NAME: ClassVar[str] = "supervisors"

    def __init__(
        self,
        core: Core[Process],
        programs: Programs,
        lifetimes: Lifetimes,
        mailboxes: Mailboxes,
        links: Links,
        until_known: Callable[[Process], Awaitable[None]],
    ) -> None:
        self._core = core
        self.programs = programs
        self._lifetimes = lifetimes
        self._mailboxes = mailboxes
        self.links = links
        self._life = ""
        self._count = 0
        self._waiters: dict[str, tuple[Process, asyncio.Future[Any]]] = {}
        self._plans: dict[str, Any] = {}  # of supervisors that recovery found and that have not begun to replay
        self.tables: dict[str, ChildTable] = {}
        self.plans: dict[str, Plan] = {}  # of the same supervisors
        self.until_known = until_known  # waits until the program of a process is known
        self.waiting: dict[str, dict[str, bool]] = {}  # program → supervisors that wait for it, whether each is a guard

    def begin(
        self, children: Iterable[Any], *, pid: str | None, name: str | None, options: dict[str, Any], **flags: Any
    ) -> SupervisorHandle:
        plan = make_plan(self.programs, supervise, children, **flags)
        if pid is not None and pid in self._core.processes:
            return self.get(pid)
        process = self._lifetimes.start(supervise, (plan,), parent=None, pid=pid, name=name, **options)
        return SupervisorHandle(self._core.face, process)

    def program(self, children: Iterable[Any], **flags: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return the program and arguments of a supervisor of these children."""
        return supervise, (make_plan(self.programs, supervise, children, **flags),)

    def guard(
        self, program: Callable[..., Any], args: tuple[Any, ...], supervision: Any
    ) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return the program and arguments of a supervisor that represents one process."""
        policy = Supervision.of(supervision)
        child = Child("process", program, args, restart="transient")
        plan = make_plan(self.programs, supervise, [child], **policy.to_data())
        plan.guards = True
        return supervise, (plan,)

    def get(self, pid_or_name: str | Handle) -> SupervisorHandle:
        """Return a supervisor by pid or name."""
        process = self._core.find_process(pid_or_name)
        if process.program != self.programs.name(supervise):
            raise ProcessError(f"process {process.pid} is not a supervisor", pid=process.pid)
        return SupervisorHandle(self._core.face, process)

    def came_back(self, process: Process, args: list[Any]) -> None:
        """Recovery found one; until its program runs, its table is what its journal says."""
        if process.program == self.programs.name(supervise) and args:
            self._plans[process.pid] = args[0]

    def table(self, process: Process) -> ChildTable | None:
        """Return what a supervisor knows; None of one that has ended, or not begun."""
        table = self.tables.get(process.pid)
        if table is not None or process.exit is not None or process.pid not in self._plans:
            return table
        try:
            return preview(process, self._plans[process.pid])
        except Corrupt:  # it will say so itself
            return None

    def began(self, pid: str, table: ChildTable, plan: Plan) -> None:
        """Its program runs: from now on this is what it knows."""
        self.tables[pid] = table
        self.plans[pid] = plan
        self._plans.pop(pid, None)

    def on_ended(self, pid: str) -> None:
        """Its program has ended, or the kernel closes."""
        self.tables.pop(pid, None)
        self.plans.pop(pid, None)

    def now(self) -> float:
        """Return what restarts are counted by."""
        return self._core.now()

    def wait_for(self, program: str, process: Process, *, guards: bool) -> None:
        """Wait for a program that a supervisor cannot continue without; it gets a message when there is one."""
        program = to_fixed_name(program)
        waiting = self.waiting.setdefault(program, {})
        if process.pid not in waiting:
            waiting[process.pid] = guards
            self._core.publish(process.pid, "process.dormant", {"program": program})
            if guards:  # callers may have begun to wait before the program was found missing
                self._core.tasks.start(self._refuse_waiters(process), name="lyra-dormant")

    async def _refuse_waiters(self, process: Process) -> None:
        try:
            await self.until_known(process)
        except ConfigError as error:
            self._lifetimes.let_go(process, error)

    def missing_program(self, pid: str) -> str | None:
        """Return the program that a guard waits for."""
        return next((program for program, waiting in self.waiting.items() if waiting.get(pid)), None)

    def on_registered(self, program: str) -> None:
        """Continue the supervisors that want to start a program that has been registered."""
        for pid in self.waiting.pop(program, ()):
            process = self._core.processes.get(pid)
            if process is not None and process.exit is None:
                self._mailboxes.deliver(process, Order("known", id=program))

    def command(self, process: Process, verb: str, child_id: str = "", **data: Any) -> Command:
        core = self._core
        if process.exit is not None:
            raise NoSuchProcess(f"supervisor {process.pid} has ended: {process.exit.reason}", pid=process.pid)
        # A command may be read in a later life of the kernel, where no caller waits for its answer.
        self._life = self._life or core.entropy.text(8)
        self._count += 1
        token = f"{self._life}.{self._count}"
        future: asyncio.Future[Any] = core.loop.create_future()
        future.add_done_callback(consume_error)
        future.add_done_callback(lambda _: self._waiters.pop(token, None))
        if not isinstance(child_id, str):
            raise ConfigError(f"a child is named by its id, not by {child_id!r}")
        self._mailboxes.deliver(process, Order(verb, token, child_id, **data))
        self._waiters[token] = process, future
        process.watch(future)
        return Command(core, process, future)

    def answer(self, token: str, answer: dict[str, Any]) -> None:
        waiter = self._waiters.pop(token, None)
        if waiter is None:
            return
        process, future = waiter
        if process.watchers is not None and future in process.watchers:
            process.watchers.remove(future)
        if not future.done():
            future.set_result(answer)


class Command:
    """A request to a supervisor, on its way; await it for the answer, once that is durable."""

    def __init__(
        self,
        core: Core[Process],
        process: Process,
        future: asyncio.Future[Any],
        read: Callable[[Any], Any] | None = None,
    ) -> None:
        self._core = core
        self._process = process
        self._future = future
        self._read = read

    def then(self, read: Callable[[Any], Any]) -> Command:
        return Command(self._core, self._process, self._future, read)

    def __await__(self) -> Generator[Any, None, Any]:
        return self._wait().__await__()

    async def _wait(self) -> Any:
        answer = await asyncio.shield(self._future)
        if self._core.journal is not None:
            await self._core.journal.wait_until_durable(self._core.journal.seq)
        if answer is None or "error" in answer:
            self._core.taint.pass_on_to_here(self._process.pid, "an answer of")
        if answer is None:
            raise self._explain_end()
        if "error" in answer:
            raise error_from_data(answer["error"])
        return answer["value"] if self._read is None else self._read(answer["value"])

    def _explain_end(self) -> BaseException:
        ended = self._process.exit
        if ended is not None and ended.error is not None:
            return ended.error
        reason = ended.reason if ended is not None else "unknown"
        return NoSuchProcess(f"supervisor {self._process.pid} ended before it answered: {reason}", reason=reason)


class Listing(list[ChildInfo]):
    """The children as of now; awaited, as of when everything asked before has happened."""

    def __init__(self, rows: Iterable[ChildInfo], again: Callable[[], Any]) -> None:
        super().__init__(rows)
        self._again = again

    def __await__(self) -> Generator[Any, None, list[ChildInfo]]:
        awaited: Generator[Any, None, list[ChildInfo]] = self._again().__await__()
        return awaited


class Counts(dict[str, int]):
    """`specs`, `active`, `supervisors`, `workers`; may be awaited like a Listing."""

    def __init__(self, counts: dict[str, int], again: Callable[[], Any]) -> None:
        super().__init__(counts)
        self._again = again

    def __await__(self) -> Generator[Any, None, dict[str, int]]:
        awaited: Generator[Any, None, dict[str, int]] = self._again().__await__()
        return awaited


class SupervisorHandle(Handle):
    """A supervisor as the outside holds it; awaiting it waits until its children are started."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, SupervisorHandle]:
        return self._wait_until_started().__await__()

    async def _wait_until_started(self) -> SupervisorHandle:
        if self._process.exit is None:
            await self._command("started")
        elif self._process.exit.error is not None:
            raise self._process.exit.error
        return self

    @property
    def _supervisors(self) -> Supervisors:
        supervisors: Supervisors = self._process.core.subsystems.find_by_name("supervisors")
        return supervisors

    def _command(self, verb: str, child_id: str = "", **data: Any) -> Command:
        self._process.core.raise_if_closed()
        if verb != "started":  # a look at its children changes nothing
            require_send(self._process)
        return self._supervisors.command(self._process, verb, child_id, **data)

    def which_children(self) -> Listing:
        """Return the children in the order in which they are started."""
        return Listing(self._infos(), lambda: self._after(self._infos))

    def count_children(self) -> Counts:
        return Counts(self._counts(), lambda: self._after(self._counts))

    def start_child(self, child: Child | Mapping[str, Any] | None = None, *, args: Iterable[Any] = ()) -> Command:
        """Add a child and start it; gives its Handle. NameTaken, if there is one of that id.

        A dynamic supervisor knows what to start; it takes `args`, which come after those of its template.
        """
        self._process.core.raise_if_closed()
        spec = None if child is None else make_spec(self._supervisors.programs, supervise, Child.of(child))
        verb = START_MARKED if self._process.core.taint.is_here else START
        return self._command(verb, spec=spec, args=list(args)).then(self._kernel.process)

    def terminate_child(self, child_id: str) -> Command:
        """Stop a child; it stays in the table (a temporary one does not) until it is restarted or deleted."""
        return self._command("terminate_child", child_id)

    def restart_child(self, child_id: str) -> Command:
        """Start a stopped child; gives its Handle."""
        return self._command("restart_child", child_id).then(self._kernel.process)

    def replace_child(self, child_id: str) -> Command:
        """Stop a child if it runs and start it again; gives its Handle. It does not count as a restart after a
        failure. A temporary child, and one of a dynamic supervisor, is never started again: InvalidTransition."""
        return self._command("replace_child", child_id).then(self._kernel.process)

    def delete_child(self, child_id: str) -> Command:
        """Forget a stopped child."""
        return self._command("delete_child", child_id)

    def stop(self) -> Ack:
        """Stop all children in reverse order, then the supervisor; awaiting it waits until that is done."""
        if self._process.exit is not None:
            return Ack(self._process.core, self._process.exit_seq)
        self._command("stop")
        return Ack(self._process.core, self._wait_until_stopped())

    async def _wait_until_stopped(self) -> int:
        await self.wait()
        return self._process.exit_seq

    async def _after(self, read: Callable[[], Any]) -> Any:
        if self._process.exit is None:
            with suppress(ProcessError):  # it may end meanwhile
                await self._command("started")
        return read()

    def _rows(self) -> list[ChildRow]:
        table = self._supervisors.table(self._process)
        return table.rows if table is not None else []

    def _infos(self) -> list[ChildInfo]:
        taint, rows = self._process.core.taint, self._rows()
        if any(row.tainted for row in rows):
            taint.mark_here(f"the children of {self._process.pid}")
        elif rows:  # of its plan
            taint.pass_on_to_here(self._process.pid, "the children of")
        return [
            ChildInfo(
                row.spec.id,
                row.pid,
                row.state,
                row.spec.kind,
                row.spec.restart,
                row.spec.significant,
                to_fixed_name(row.spec.program),
                row.starts,
            )
            for row in rows
        ]

    def _counts(self) -> dict[str, int]:
        rows = self._rows()
        return {
            "specs": len(rows),
            "active": sum(row.pid is not None for row in rows),
            "supervisors": sum(row.spec.kind == "supervisor" for row in rows),
            "workers": sum(row.spec.kind == "worker" for row in rows),
        }
