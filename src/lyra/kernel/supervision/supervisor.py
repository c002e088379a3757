"""Supervisors: processes that start other processes, and start them again, exactly as Erlang/OTP's do.

    sup = await kernel.supervise([Child("db", connect), Child("web", serve)], strategy="rest_for_one")

A supervisor is an ordinary durable program (`supervise`) that links to its children and traps exits. What it knows is
one `ChildTable`; every event (a child's end, a command from outside, a back-off that is over) is handled to its end
before the next is looked at. The table is kept with `ctx.checkpoint` now and then, so a restart replays little, and the
journal's answers in between bring back children, restart window and half-done restarts.

    starting     in order; one that does not start: those started are stopped in reverse, and the supervisor fails
    a child ends `restart` decides (permanent, transient, temporary), then `strategy` (one, all, the rest)
    too often    more than `max_restarts` within `window_s`: all are stopped in reverse, it ends with `shutdown`
    stopping     in reverse order: CancelledError, `shutdown_s` to tidy up, then killed; supervisors as long as it takes

A dynamic supervisor (`simple_one_for_one`) has any number of children of one kind, started on demand.

Beyond OTP: a back-off before restarts, the strategies `stop` (leave it, tell the parent) and `escalate` (fail in its
place), and guards: a supervisor of one child that represents it (`kernel.spawn(…, supervision=…)`), with a pid and a
name that outlive every restart. The table is in `child`; commands come from `handle`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import msgspec

from lyra.core.faultpoint import point
from lyra.core.naming import SUPERVISE, give_name, program_names
from lyra.core.policies.policy import Backoff, RestartWindow, Supervision
from lyra.errors import (
    ConfigError,
    Corrupt,
    Denied,
    InvalidTransition,
    LimitExceeded,
    LyraError,
    NameTaken,
    NoSuchProcess,
    ProcessError,
    ProcessExit,
    error_to_data,
)
from lyra.kernel.journal.rows import error_from_row, text_of
from lyra.kernel.process.process import PLAIN_ENDS
from lyra.kernel.process.replay import comes_next
from lyra.kernel.programs.context import Context, ExitProgram, OwnContext
from lyra.kernel.programs.registry import unknown_program
from lyra.kernel.supervision.child import (
    DYNAMIC,
    INFINITY,
    KILL,
    START,
    START_MARKED,
    ChildRow,
    ChildTable,
    Order,
    Plan,
    Spec,
    check_significant,
    event_fault,
    event_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lyra.kernel.supervision.handle import Supervisors


_Kept = TypeVar("_Kept")
_CALLS_KEPT: Final = 64  # journaled calls at least between two checkpoints; more with more children
_REFUSALS: Final = (ProcessError, ConfigError, LimitExceeded, Denied)  # why a child may not start

_SCOPE: Final[
    dict[str, Callable[[list[ChildRow], ChildRow], list[ChildRow]]]
] = {  # the children that are restarted with a child that ended
    "restart": lambda _rows, row: [row],
    "restart_all": lambda rows, _row: list(rows),
    "rest_for_one": lambda rows, row: rows[rows.index(row) :],
    "escalate": lambda _rows, row: [row],  # a permanent child that ended without a failure is started again, alone
}


# ---------------------------------------------------------------------- the program
@give_name(SUPERVISE)
async def supervise(ctx: Context, plan: Any) -> Any:
    """Supervise children, as the program of every supervisor."""
    life = Run(ctx, plan if isinstance(plan, Plan) else read_kept(ctx, plan, Plan))
    supervisors: Supervisors = ctx.own_process.core.subsystems.find_by_name("supervisors")
    supervisors.began(ctx.pid, life.table, life.plan)
    try:
        return await life.run()
    finally:
        supervisors.on_ended(ctx.pid)


def _spawns(kernel: Any, args: Sequence[Any]) -> Iterator[tuple[str, ...]]:
    """Yield the children of a supervisor that begins with these arguments. Those of a supervisor below it are asked
    about when that one begins, or here where its plan is not plain data yet."""
    plan = args[0] if args else None
    if isinstance(plan, Plan):
        for spec in (*plan.children, *((plan.template,) if plan.template is not None else ())):
            program = kernel.programs.get(spec.program)
            yield from (
                (program_names(spec.program),) if program is None else kernel.lifetimes.list_spawned(program, spec.args)
            )


supervise.__lyra_spawns__ = _spawns  # type: ignore[attr-defined]


def read_kept(ctx: Context, value: Any, kind: type[_Kept]) -> _Kept:
    """Return what the journal holds for this supervisor; another kernel's rows may be anything."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise Corrupt(f"the {kind.__name__} of supervisor {ctx.pid} cannot be read: {error}", pid=ctx.pid) from error


class Run:
    """One execution of a supervisor's program."""

    def __init__(self, ctx: Context, plan: Plan) -> None:
        self._ctx = OwnContext(ctx.own_process)
        self._core = ctx.own_process.core
        self._supervisors: Supervisors = self._core.subsystems.find_by_name("supervisors")
        self.plan = plan
        kept = ctx.restored
        rows = [ChildRow(spec) for spec in plan.children]
        self.table = ChildTable(rows) if kept is None else read_kept(ctx, kept, ChildTable)
        # The table again, by what is looked for.
        self._by_id = {row.spec.id: row for row in self.table.rows}
        self._by_pid = {row.pid: row for row in self.table.rows if row.pid is not None}
        self._due = {row: None for row in self.table.rows if row.due is not None}
        limits = Supervision(max_restarts=plan.max_restarts, window_s=plan.window_s)
        self._window = RestartWindow(limits, self.table.times)
        self._backoff = None if plan.backoff is None else Backoff.of(plan.backoff)
        self._keys = ctx.own_process.keys

    async def run(self) -> Any:
        if self._ctx.restored is None:
            await self._begin()
        while True:
            ended = await self._handle(await self._next())
            if ended is not None:
                return ended.result
            await self._keep()

    async def _begin(self) -> None:
        ctx = self._ctx
        ctx.trap_exit(True)
        self.table.parent = ctx.journaled_read("parent", lambda: ctx.parent)
        for row in list(self.table.rows):
            error = await self._start(row)
            if error is not None:
                await self._stop_all()
                raise _not_started(row, error) from error
        if self.plan.nested:
            ctx.ready()

    async def _keep(self) -> None:
        """Write a checkpoint when enough has happened: its cost is that of the whole table, so it is rarer with more
        rows."""
        keys = self._ctx.own_process.keys
        if keys - self._keys >= max(_CALLS_KEPT, 2 * len(self.table.rows)):
            await self._ctx.checkpoint(self.table)
            self._keys = self._ctx.own_process.keys

    # ------------------------------------------------------------------ events

    async def _next(self) -> dict[str, Any]:
        table = self.table
        if table.pending:
            event: dict[str, Any] = table.pending.pop(0)
            fault = event_fault(event)
            if fault is not None:
                raise Corrupt(f"an event that supervisor {self._ctx.pid} has kept {fault}", pid=self._ctx.pid)
            return event
        due = min(self._due, key=lambda row: row.due or 0.0, default=None)
        if due is None or due.due is None:
            return event_of(await self._ctx.receive())
        left_s = due.due - self._now()
        if self._backoff is not None:  # no pause is longer, whatever the clock said before a restart of the kernel
            left_s = min(left_s, self._backoff.max_s)
        message = await self._ctx.receive(timeout=left_s) if left_s > 0 else None
        return {"is": "due", "id": due.spec.id} if message is None else event_of(message)

    async def _handle(self, event: dict[str, Any]) -> _Ended | None:
        kind = event["is"]
        if kind == "exit":
            return await self._exit(event)
        if kind == "command":
            await self._command(event)
        elif kind == "due":
            await self._restart_now(self._row(event["id"]))
        elif kind == "again":
            row = self._by_id.get(event["id"])
            if row is not None and row.state == "restarting" and row.due is None:
                await asyncio.sleep(0)  # others may want a turn: a start that always fails would take them all
                return await self._restart(row, "a start that failed", None)
        elif kind == "ready" and self.plan.guards:
            self._ctx.ready()
        elif kind == "message" and self.plan.guards:
            await self._pass_on(event["message"])
        return None

    async def _exit(self, event: dict[str, Any]) -> _Ended | None:
        pid, reason = event["pid"], event["reason"]
        row = self._by_pid.get(pid)
        if row is not None:
            self._set(row, None, "stopped")
            return await self._child_ended(row, pid, reason)
        if pid == self.table.parent:
            await self._shut_down(reason)
        return None  # one that was stopped on purpose, and had ended by itself just before

    async def _child_ended(self, row: ChildRow, pid: str, reason: str) -> _Ended | None:
        crashed = not (reason in ("normal", "shutdown") or reason.startswith("shutdown:"))
        again = row.spec.restart == "permanent" or (row.spec.restart == "transient" and crashed)
        if again and crashed and self.plan.strategy == "escalate":
            self._put_away(row)
            return await self._fail_as(pid, reason)
        if again and self.plan.strategy == "stop":
            again = False
            if crashed:
                self._tell_parent(pid, reason)
        if again:
            return await self._restart(row, reason, pid)
        self._put_away(row)
        if self.plan.guards:
            return await self._fail_as(pid, reason)
        await self._auto_shutdown(row)
        return None

    def _put_away(self, row: ChildRow) -> None:
        """It is not running and not going to: a temporary one is forgotten."""
        self._set(row, None, "stopped")
        temporary = row.spec.restart == "temporary" or self.plan.template is not None
        if temporary and row.spec.id in self._by_id:
            self._forget(row)

    def _set(self, row: ChildRow, pid: str | None, state: str, due: float | None = None) -> None:
        """Change a row; this is the one place where that happens."""
        if row.pid is not None:
            self._by_pid.pop(row.pid, None)
        if pid is not None:
            self._by_pid[pid] = row
        if due is not None:
            self._due[row] = None
        else:
            self._due.pop(row, None)
        row.pid, row.state, row.due = pid, state, due

    def _forget(self, row: ChildRow) -> None:
        rows = self.table.rows
        if rows[-1] is row:  # stopping goes from the end: no need to search ten thousand for each
            rows.pop()
        else:
            rows.remove(row)
        del self._by_id[row.spec.id]

    async def _auto_shutdown(self, row: ChildRow) -> None:
        when = self.plan.auto_shutdown
        if when == "never" or not row.spec.significant:
            return
        left = any(other.spec.significant and other.pid is not None for other in self.table.rows)
        if when == "any_significant" or not left:
            await self._shut_down("shutdown")

    def _tell_parent(self, pid: str, reason: str) -> None:
        parent = self.table.parent
        if parent is not None and not self.plan.guards:  # a guard's own end says it
            with suppress(NoSuchProcess, LimitExceeded):  # the parent is gone, or its mailbox is full
                self._pass_mark_on(pid, reason, parent)
                self._ctx.send(parent, {"child": pid, "supervisor": self._ctx.pid, "reason": reason})

    # ------------------------------------------------------------------ restarting

    async def _restart(self, row: ChildRow, reason: str, pid: str | None) -> _Ended | None:
        """Count it; then start again, now or after the back-off, or give up."""
        now = self._now()
        allowed = self._window.record(now)
        point("supervisor.restarting")
        self.table.times = list(self._window.times)
        self._tell("child.restarting" if allowed else "supervisor.gave_up", row, reason, pid)
        if not allowed:
            self._put_away(row)
            if self.plan.guards and pid is not None:
                return await self._fail_as(pid, reason, gave_up_after=self._allowance)
            await self._give_up(row, pid, reason)
        if self._backoff is None:
            await self._restart_now(row)
            return None
        if now - row.crashed_at > self.plan.window_s:
            row.failures = 0
        row.crashed_at = now
        row.failures += 1
        self._set(row, None, "restarting", now + self._backoff.delay(row.failures, self._ctx.random.random))
        return None

    def _now(self) -> float:
        """Return a time that only grows while the kernel runs, and continues from the wall clock after a restart."""
        return float(self._ctx.journaled_read("clock", self._supervisors.now))

    async def _restart_now(self, row: ChildRow) -> None:
        together = _SCOPE[self.plan.strategy](self.table.rows, row)
        self._set(row, None, "restarting")
        for other in reversed(together):
            if other is not row:
                await self._halt(other)
        for other in together:
            if self._by_id.get(other.spec.id) is not other:  # it was temporary
                continue
            error = await self._start(other)
            if error is not None:
                self._set(other, None, "restarting")
                self._ctx.send(self._ctx.pid, Order("again", id=other.spec.id))
                return

    async def _start(self, row: ChildRow) -> LyraError | None:
        """Start one child and link to it; an error if it did not start, or ended before it was ready."""
        spec, ctx = row.spec, self._ctx
        if not await self._program_is_known(row):
            return ProcessError("its supervisor was told to stop")
        options = {"name": spec.name, "budget": spec.budget, "grant": spec.grant, "priority": spec.priority}
        try:
            given: dict[str, Any] = {**options, "guarded": self.plan.guards, "tainted": row.tainted}
            if spec.recovery_attempts is not msgspec.UNSET:
                given["recovery_attempts"] = spec.recovery_attempts
            if spec.needs is not msgspec.UNSET:
                given["needs"] = {"shard": None, "near": None, "resources": None, "tells": True, **spec.needs}
            child = ctx._spawn(spec.program, None, spec.args, given)
        except _REFUSALS as refusal:
            return refusal
        ctx.link(child)
        error: LyraError | None = None
        if child.is_abroad:
            error = await self._until_started(child.pid)
        if spec.wait_ready and error is None:
            error = await self._until_ready(child.pid)
        if error is not None:
            return error
        self._set(row, child.pid, "running")
        row.starts += 1
        held, self.table.held = self.table.held, []
        for message in held:
            await self._pass_on(message)
        return None

    async def _program_is_known(self, row: ChildRow) -> bool:
        """Wait until this kernel knows a child's program; False if the supervisor has to stop meanwhile.

        Other commands are answered meanwhile with what it waits for. A replay waits for as many messages as
        were read then: what that kernel knew is not what this one knows.
        """
        supervisors, pid, name = self._supervisors, self._ctx.pid, row.spec.program
        while row.spec.needs is msgspec.UNSET and self._waits_for(name):  # what the shard of a child knows, it says
            self._set(row, None, "restarting")
            if not self._ctx.replaying:
                supervisors.wait_for(name, self._ctx.own_process, guards=self.plan.guards)
            event = event_of(await self._ctx.receive())
            if event["is"] == "command" and event["do"] != "stop":
                unknown = unknown_program(name, self._ctx.own_process.core.calls.programs)
                told = ProcessError(
                    f"supervisor {pid} cannot start its child {row.spec.id!r}: {unknown}",
                    hint=unknown.hint,
                    program=name,
                    id=row.spec.id,
                )
                supervisors.answer(event["token"], {"error": error_to_data(told)})
                continue
            self.table.pending.append(event)
            if self._has_to_stop(event):
                return False
        return True

    def _waits_for(self, program: str) -> bool:
        process = self._ctx.own_process
        if comes_next(process, "spawn"):
            return False
        return comes_next(process, "receive") or self._supervisors.programs.get(program) is None

    def _has_to_stop(self, event: dict[str, Any]) -> bool:
        return event.get("do") == "stop" or (event["is"] == "exit" and event["pid"] == self.table.parent)

    async def _until_ready(self, pid: str) -> ProcessError | None:
        while True:
            event = event_of(await self._ctx.receive())
            if event["is"] in ("ready", "exit") and event["pid"] == pid:
                if event["is"] == "ready":
                    return None
                self._pass_mark_on(pid, event["reason"], self._ctx.pid)
                return ProcessError(f"it ended before it was ready: {event['reason']}", reason=event["reason"])
            self.table.pending.append(event)
            if self._has_to_stop(event):
                await self._end_child(pid, KILL, "worker")
                return ProcessError("its supervisor was told to stop")

    async def _until_started(self, pid: str) -> LyraError | None:
        """Wait until a child on another shard has begun there; why not, where it was refused."""
        while True:
            event = event_of(await self._ctx.receive())
            if event["is"] == "started" and event["pid"] == pid:
                refused = event["error"]
                error = None if refused is None else error_from_row(refused)
                return error if error is None or isinstance(error, LyraError) else ProcessError(text_of(error))
            self.table.pending.append(event)
            if self._has_to_stop(event):
                await self._end_child(pid, KILL, "worker")
                return ProcessError("its supervisor was told to stop")

    # ------------------------------------------------------------------ stopping

    async def _halt(self, row: ChildRow) -> None:
        """Stop one child; a temporary one is forgotten."""
        pid = row.pid
        if pid is not None:
            await self._end_child(pid, row.spec.shutdown_s, row.spec.kind)
        self._put_away(row)

    async def _end_child(self, pid: str, shutdown_s: float | str, kind: str) -> None:
        self._tell_to_stop(pid, shutdown_s, kind)
        await self._until_gone(pid)

    def _tell_to_stop(self, pid: str, shutdown_s: float | str, kind: str) -> None:
        ctx = self._ctx
        with suppress(NoSuchProcess):  # it ended long ago, and the table has let it go
            ctx.unlink(pid)
            if shutdown_s == KILL:
                ctx.stop(pid, grace_s=0.0, reason="killed")
            elif kind == "supervisor":
                ctx.send(pid, Order("stop"))
            else:
                ctx.stop(pid, grace_s=None if shutdown_s == INFINITY else float(shutdown_s))

    async def _until_gone(self, pid: str) -> None:
        with suppress(NoSuchProcess):
            await self._ctx.process(pid).wait()

    async def _stop_all(self) -> None:
        """In reverse order; a dynamic supervisor's, which know no order, all at once."""
        if self.plan.template is not None:
            pids = list(self._by_pid)
            for pid in pids:
                self._tell_to_stop(pid, self.plan.template.shutdown_s, self.plan.template.kind)
            for pid in pids:
                await self._until_gone(pid)
            for row in list(self.table.rows):
                self._put_away(row)
        for row in reversed(list(self.table.rows)):
            await self._halt(row)

    async def _shut_down(self, reason: str) -> None:
        await self._stop_all()
        self._ctx.exit(reason)

    async def _give_up(self, row: ChildRow, pid: str | None, reason: str) -> NoReturn:
        """End in order, as OTP's do, and with an error that says which child was the last straw."""
        await self._stop_all()
        told = reason
        if pid is not None:
            with suppress(NoSuchProcess):  # it ended long ago
                ended = await self._ctx.process(pid).wait()
                told = reason if ended.error is None else text_of(ended.error)
        most = self._allowance
        why = ProcessExit(
            f"the supervisor gave up after {most}: child {row.spec.id!r} ended: {told}",
            gave_up_after=most,
            pid=self._ctx.pid,
            reason="shutdown",
            id=row.spec.id,
        )
        self._say_goodbye(why.message)
        raise ExitProgram("shutdown", why)

    def _say_goodbye(self, why: str) -> None:
        """Tell the parent why this one ends, where it wants to know and does not hear of it anyway."""
        parent, links, pid = self.table.parent, self._supervisors.links, self._ctx.pid
        if not self.plan.tells or parent is None:
            return
        remote = self._core.remote
        if not self._ctx.journaled_read(
            "watched",
            lambda: links.watches(parent, pid) or (remote is not None and remote.ties.watches(parent, pid)),
        ):
            self._tell_parent(pid, why)

    @property
    def _allowance(self) -> str:
        """The restarts that it makes before it gives up."""
        return f"{self.plan.max_restarts} restarts in {self.plan.window_s:g} s"

    async def _fail_as(self, pid: str, reason: str, *, gave_up_after: str = "") -> _Ended:
        """End as that child did; its error says `gave_up_after` how many restarts, where these were used up."""
        await self._stop_all()
        ended = await self._ctx.process(pid).wait()
        if gave_up_after and isinstance(ended.error, LyraError):
            ended.error.fields["gave_up_after"] = gave_up_after
        if ended.reason == "normal":
            child = self._core.processes.get(pid)
            if child is not None:
                self._ctx.own_process.result_status = child.result_status
            return _Ended(ended.result)
        if ended.error is None or reason != "error":
            raise ExitProgram(reason, ended.error)
        raise ended.error

    # ------------------------------------------------------------------ commands

    async def _command(self, event: dict[str, Any]) -> None:
        token, obey = event["token"], _COMMANDS.get(event["do"])
        if obey is None:
            raise Corrupt(f"supervisor {self._ctx.pid} received the unknown command {event['do']!r}", pid=self._ctx.pid)
        try:
            answer = await obey(self, event)
        except (ProcessError, ConfigError) as refusal:
            self._supervisors.answer(token, {"error": error_to_data(refusal)})
        else:
            self._supervisors.answer(token, {"value": answer})

    async def _start_child(self, event: dict[str, Any]) -> str:
        spec = self._spec_of(event)
        check_significant(spec, self.plan.auto_shutdown)
        known = self._by_id.get(spec.id)
        if known is not None and known.pid is not None:
            raise NameTaken(
                f"child {spec.id!r} runs already as {known.pid}", id=spec.id, problem="already_started", pid=known.pid
            )
        if known is not None:
            hint = "restart_child starts it again, delete_child makes room"
            raise NameTaken(f"there is a child {spec.id!r} already", hint=hint, id=spec.id, problem="already_present")
        row = ChildRow(spec, tainted=event["do"] == START_MARKED)
        self.table.rows.append(row)
        self._by_id[row.spec.id] = row
        await self._start_or_raise(row, keep=False)
        return row.pid or ""

    def _spec_of(self, event: dict[str, Any]) -> Spec:
        given, template = event["spec"], self.plan.template
        if (given is None) != (template is not None):
            wanted = "arguments: start_child(args=…)" if given is not None else "a Child to start"
            raise ConfigError(f"supervisor {self._ctx.pid} needs {wanted}", strategy=self.plan.strategy)
        if template is None:
            return given if isinstance(given, Spec) else read_kept(self._ctx, given, Spec)
        self.table.made += 1
        child_id = f"{template.id}-{self.table.made}"
        return msgspec.structs.replace(template, id=child_id, args=[*template.args, *event["args"]])

    async def _terminate_child(self, event: dict[str, Any]) -> None:
        row = self._by_pid.get(event["id"]) if self.plan.template is not None else None
        await self._halt(row if row is not None else self._row(event["id"]))

    async def _restart_child(self, event: dict[str, Any]) -> str:
        row = self._find_stopped(event["id"])
        await self._start_or_raise(row, keep=True)
        return row.pid or ""

    async def _replace_child(self, event: dict[str, Any]) -> str:
        """Stop a child that runs and start it again. A person asked for it: it does not count as a failure."""
        row = self._row(event["id"])
        if self.plan.template is not None or row.spec.restart == "temporary":
            hint = "terminate_child stops it, start_child starts another"
            raise InvalidTransition(f"child {row.spec.id!r} is never started again", hint=hint, id=row.spec.id)
        await self._halt(row)
        await self._start_or_raise(row, keep=True)
        return row.pid or ""

    async def _delete_child(self, event: dict[str, Any]) -> None:
        self._forget(self._find_stopped(event["id"]))

    async def _on_started(self, _event: dict[str, Any]) -> None:
        """All that was asked before this has happened."""

    async def _stop(self, _event: dict[str, Any]) -> None:
        await self._shut_down("shutdown")

    async def _start_or_raise(self, row: ChildRow, *, keep: bool) -> None:
        error = await self._start(row)
        if error is None:
            return
        if not keep:
            self._forget(row)
        raise _not_started(row, error) from error

    def _row(self, child_id: str) -> ChildRow:
        row = self._by_id.get(child_id)
        if row is None:
            raise NoSuchProcess(f"no child {child_id!r}", id=child_id, problem="not_found")
        return row

    def _find_stopped(self, child_id: str) -> ChildRow:
        """Return a child that is neither running nor about to."""
        if self.plan.template is not None:
            hint = "terminate_child stops and forgets one, start_child starts another"
            raise InvalidTransition("a dynamic supervisor has no stopped children", hint=hint, problem=DYNAMIC)
        row = self._row(child_id)
        if row.state != "stopped":
            raise InvalidTransition(
                f"child {child_id!r} is {row.state}", hint="terminate_child first", id=child_id, problem=row.state
            )
        return row

    # ------------------------------------------------------------------ a guard's messages

    async def _pass_on(self, message: Any) -> None:
        pid = self.table.rows[0].pid if self.table.rows else None
        if pid is None:
            self.table.held.append(message)
        else:
            with suppress(NoSuchProcess):
                await self._ctx.send(pid, message)

    def _pass_mark_on(self, pid: str, reason: str, taker: str) -> None:
        """Pass the mark of a child that ended on to the process that gets its reason."""
        if reason not in PLAIN_ENDS and not self._ctx.replaying:
            self._core.taint.pass_on(pid, taker, "the end of")

    def _tell(self, kind: str, row: ChildRow, reason: str, pid: str | None) -> None:
        if not self._ctx.replaying:
            data = {"id": row.spec.id, "reason": reason, "starts": row.starts}
            if row.tainted or (reason not in PLAIN_ENDS and pid is not None and self._core.taint.is_tainted(pid)):
                data["tainted"] = True
            self._core.publish(self._ctx.pid, kind, data)


def _not_started(row: ChildRow, error: LyraError) -> ProcessError:
    """Return the error of a start that failed. A name that is taken stays one: callers choose another."""
    kind = NameTaken if isinstance(error, NameTaken) else ProcessError
    fields = {**error.fields, "id": row.spec.id}
    return kind(f"child {row.spec.id!r} did not start: {error}", hint=error.hint, **fields)


class _Ended(msgspec.Struct):
    """The program returns this result."""

    result: Any = None


_COMMANDS: Final[dict[str, Callable[[Run, dict[str, Any]], Any]]] = {
    START: Run._start_child,
    START_MARKED: Run._start_child,
    "terminate_child": Run._terminate_child,
    "restart_child": Run._restart_child,
    "replace_child": Run._replace_child,
    "delete_child": Run._delete_child,
    "started": Run._on_started,
    "known": Run._on_started,  # a program that is not waited for any more
    "stop": Run._stop,
}
