"""The questions that callers have put to agents and that have no answer yet.

`ask` puts one into the mailbox of an agent's process and gives a `Pending` (`replies`), to which the process brings the
answer. A question lives as long as its caller waits: one that is given up is withdrawn, with all that its turn has
asked of other agents. Callers of an earlier life ask again under the same id (`expect`, `attend`); readers that did not
ask may follow a turn that is under way (`follow`). Nothing here outlives the kernel: a replay finds no caller waiting,
so its answers are not delivered.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Literal

from lyra.agents.session.early_call import current_early_call
from lyra.agents.session.replies import Pending, Sink
from lyra.core.budgets.budget import Budget
from lyra.core.limits import DOUBT_WAIT_S
from lyra.core.naming import SUPERVISE
from lyra.core.tool import caller
from lyra.core.trace_context import format_traceparent
from lyra.errors import AgentFailed, ConfigError, EffectInDoubt, LyraError, ProcessExit
from lyra.kernel.base.acting import acting
from lyra.kernel.process.process import GIVEN_UP, Process
from lyra.kernel.process.replay import is_unfinished
from lyra.kernel.programs.registry import dormant_process

if TYPE_CHECKING:
    from lyra.agents.session.models import ProviderKeys
    from lyra.agents.session.session import AgentSession
    from lyra.kernel.interrupts.interrupt import Interrupt
    from lyra.kernel.kernel import Kernel


# The budgets that `with lyra.budget(…)` has opened around the running code.
scopes: ContextVar[tuple[Budget, ...]] = ContextVar("lyra_scopes", default=())


class OpenQuestions:
    def __init__(self, kernel: Kernel, sessions: dict[str, AgentSession], keys: ProviderKeys) -> None:
        self.kernel = kernel
        self._core = kernel.core
        self._sessions = sessions  # by pid; a session goes with its process
        self._keys = keys
        self.pending: dict[str, Pending] = {}
        self.awaited: dict[str, Pending] = {}  # questions from before a restart, whose callers will ask again
        self.followers: dict[str, list[Pending]] = {}  # by pid: readers of the turn that is under way
        self._asked: dict[str, set[str]] = {}  # pid → its requests without an answer
        self._requests = 0
        self._life = kernel.entropy.text(8)
        kernel.core.subsystems.stop.append(self._withdraw_queued)
        self.doubts = Doubts(kernel, self._waiting_for)
        kernel.core.after_abort.append(self._store_lost)

    def ask(
        self,
        process: Process,
        content: Any,
        *,
        budget: Any = None,
        stream: bool = False,
        request_id: str = "",
        only: Iterable[str] | None = None,
        tools: list[dict[str, Any]] | None = None,
        reader: Process | Literal["here"] | None = "here",
    ) -> Pending:
        """Put a question to an agent process; the answer comes to the Pending that is returned.

        A question with a `request_id` may be asked again under it after a restart: it then gets the outcome of the
        first (`expect`), and the agent is not asked twice. `reader` is the process that runs here, where the caller
        knows it.
        """
        kernel, core = self.kernel, self._core
        inside = scopes.get()
        early_call = current_early_call.get()
        if early_call is not None:
            inside = early_call.around(inside)
            early_call.began(kernel, process.pid)
        if budget is not None:
            own = Budget.of(budget)
            shared = early_call is not None and own is budget  # a Budget object of the caller: others may draw on it
            inside = (*inside, early_call.scope_for(own) if early_call is not None and shared else own)
        known = self.awaited.pop(request_id, None) if request_id else None
        if known is not None:
            known.scopes = inside
            known.reader = caller.get() or self._reader(reader)
            if known.id not in self.pending:  # it was answered meanwhile
                self.mark_reader(known)
            return known
        keyed = bool(request_id)  # its caller asks again after a restart, so it waits for the program
        if keyed:
            kernel.withdrawals.forget_withdrawn(process, request_id)
        else:
            self._requests += 1
            # A journal may be read after a restart, where the id must not be that of another question.
            request_id = str(self._requests) if core.journal is None else f"{self._life}.{self._requests}"
        pending = Pending(self, request_id, process.pid, inside, Sink(kernel) if stream else None)
        pending.is_keyed = keyed
        if inside:
            self._limit_time(pending)
            if pending.done():
                return pending
        if process.exit is not None:
            pending.fail(_process_ended(process))
            return pending
        if core.failure is not None:
            pending.fail(core.failure)
            return pending
        may_lack = not keyed and (process.coroutine is None or process.program == SUPERVISE)
        missing = kernel.missing_program(process) if may_lack else None
        if missing is not None and not kernel.may_become_known(missing):
            pending.fail(dormant_process(process.pid, missing))
            return pending
        pending.early_call = early_call
        asker = pending.asker = caller.get()
        pending.reader = asker or self._reader(reader)
        if asker and core.taint.state.pids:
            self._pass_on(asker, process.pid)
        self._await(pending, process)
        message: dict[str, Any] = {"lyra.ask": request_id, "content": self._keys.clean_data(content)}
        if only is not None:
            message["only"] = list(only)
        if tools:
            message["tools"] = self._keys.clean_data(tools)
        if core.journal is not None and pending.span is not None and pending.span.span_id:
            message["trace"] = format_traceparent(pending.span)  # after a restart the turn continues in this trace
        core.mailboxes.send(process, message)
        return pending

    def _await(self, pending: Pending, process: Process) -> None:
        self.pending[pending.id] = pending
        asked = self._asked.get(process.pid)
        if asked is None:
            asked = self._asked[process.pid] = set()
            process.watch((self._on_process_end, None))
        asked.add(pending.id)

    def expect(self, request_id: str, process: Process, inside: tuple[Budget, ...], *, stream: bool) -> None:
        """Await the answer to a question from before a restart, whose caller will ask again."""
        sink = Sink(self.kernel) if stream else None
        self.awaited[request_id] = self.attend(request_id, process, inside=inside, sink=sink)

    def attend(
        self, request_id: str, process: Process, *, inside: tuple[Budget, ...] = (), sink: Sink | None = None
    ) -> Pending:
        """Return the answer to a question that was put into the mailbox of a process by other means than `ask`, in this
        life of the kernel or an earlier one. To be called before the process takes the question."""
        pending = Pending(self, request_id, process.pid, inside, sink)
        pending.is_keyed = True
        self._await(pending, process)
        return pending

    def follow(self, process: Process) -> Pending | None:
        """Return the turn that a process is in, also one that began before a restart; None if it is in none.

        Its caller is not there any more, or awaits its own answer: giving this one up changes nothing for the
        turn.
        """
        run = process.stands_for or process
        session = self._sessions.get(process.pid)
        execution = session.execution if session is not None else None
        running = execution is not None and execution.running and process.exit is None
        if not (running or run.inbox or process.inbox or is_unfinished(run, "turn")):
            return None
        pending = Pending(self, "", process.pid, (), None)
        pending.reader = caller.get() or self._reader("here")
        if process.exit is not None:
            pending.fail(_process_ended(process))
            return pending
        if process.pid not in self.followers:
            self.followers[process.pid] = []
            process.watch((self._on_followed_end, None))
        self.followers[process.pid].append(pending)
        self.doubts.limit(pending)
        return pending

    def _reader(self, reader: Process | Literal["here"] | None) -> str:
        """Return the pid of the process that runs here, which gets the answer; empty outside any."""
        process = acting() if reader == "here" else reader
        return process.pid if process is not None and process.core is self._core else ""

    def _on_followed_end(self, process: Process) -> None:
        for pending in self.take_followers(process.pid):
            pending.fail(_process_ended(process))

    def _limit_time(self, pending: Pending) -> None:
        """Apply the seconds of the scopes around a question as a deadline; they run from a scope's first question."""
        first: Budget | None = None
        for scope in [scope for innermost in pending.scopes for scope in innermost.chain()]:
            if scope.seconds is not None and scope.on_exceed == "block":
                if scope.due_s is None:
                    scope.due_s = self.kernel.clock.monotonic() + scope.seconds
                if first is None or first.due_s is None or scope.due_s < first.due_s:
                    first = scope
        if first is not None and first.due_s is not None and first.seconds is not None:
            pending.limit_time(first.due_s, first.seconds)

    def take(self, request_id: str) -> Pending | None:
        """Remove the Pending of a request that is finished; None if its caller is not there any more."""
        pending = self.pending.pop(request_id, None)
        if pending is not None:
            self._asked[pending.pid].discard(request_id)
            if pending.reader:
                self.mark_reader(pending)
        return pending

    def take_followers(self, pid: str) -> list[Pending]:
        """Remove the Pendings of those that follow the turn which is finished."""
        followers = self.followers.pop(pid, [])
        for pending in followers:
            self.mark_reader(pending)
        return followers

    def mark_reader(self, pending: Pending) -> None:
        """Pass the mark of an agent on to the process that reads its answer."""
        if pending.reader and self.kernel.taint.state.pids:
            self._pass_on(pending.pid, pending.reader)

    def _pass_on(self, giver: str, taker: str) -> None:
        """Pass the taint of a process on to the one that it asks, or that asks it."""
        source, target = self._sessions.get(giver), self._sessions.get(taker)
        pid = target.pid if target is not None else taker
        if source is None:  # its process has ended
            self.kernel.taint.pass_on(giver, pid, "the end of")
        elif source.tainted and source is not target:
            self.kernel.taint.mark(pid, f"a message from {source.pid}")

    def _on_process_end(self, process: Process) -> None:
        """Fail the questions that the process has not answered."""
        for request_id in self._asked.pop(process.pid, ()):
            pending = self.pending.pop(request_id, None)
            if pending is not None:
                self.mark_reader(pending)
                pending.fail(_process_ended(process))
        self._sessions.pop(process.pid, None)
        self.doubts.forget(process.pid)

    def _waiting_for(self, pid: str) -> Iterator[Pending]:
        """Yield the answers of a process that callers wait for."""
        for request_id in self._asked.get(pid, ()):
            pending = self.pending.get(request_id)
            if pending is not None:
                yield pending
        yield from self.followers.get(pid, ())

    # ------------------------------------------------------------------ giving up

    def give_up(self, pending: Pending) -> None:
        """End the work on an answer whose caller has left, if it has begun. A later kernel does not take it up."""
        if pending.id in self.pending:
            asked = self.kernel.processes.get(pending.pid)
            if asked is not None:
                pending.withdrawn_seq = self.kernel.withdrawals.withdraw(asked, pending.id)
            if pending.running:
                self._withdraw_below(pending, {pending.id})
        process = self.kernel.processes.get(pending.running)
        if process is not None and process.kill_reason is None and process.exit is None and pending.id in self.pending:
            process.cancel(GIVEN_UP)

    def _withdraw_below(self, pending: Pending, known: set[str]) -> None:
        """Withdraw what the turn has asked of other agents, before its cancellation comes there."""
        for inner in [other for other in self.pending.values() if other.asker in (pending.pid, pending.running)]:
            asked = self.kernel.processes.get(inner.pid)
            if inner.id not in known and asked is not None and not inner.done():
                known.add(inner.id)
                self.kernel.withdrawals.withdraw(asked, inner.id)
                self._withdraw_below(inner, known)

    def _withdraw_queued(self) -> None:
        """Withdraw the questions that no process has begun to answer as the kernel closes: their callers are told that
        they failed. A caller that asks again after a restart is not told."""
        for pending in self.pending.values():
            process = self.kernel.processes.get(pending.pid)
            if not pending.running and not pending.is_keyed and process is not None:
                pending.abandoned = True
                self.kernel.withdrawals.withdraw(process, pending.id)

    def make_closed_error(self, pending: Pending) -> LyraError:
        """Return what the caller of an answer that did not come in this kernel's life is told."""
        if self.kernel.journal is None:
            return AgentFailed("the kernel closed before the agent answered", status="closed")
        if pending.running:
            return ProcessExit(
                f"the kernel closed while agent process {pending.pid} worked on the answer; "
                "the turn goes on when the store is opened again",
                hint="open the store again",
                pid=pending.pid,
            )
        return AgentFailed(
            f"the kernel closed before agent process {pending.pid} took the message, which is withdrawn",
            hint="send it again when the store is open again",
            status="closed",
            pid=pending.pid,
        )

    def _store_lost(self, error: LyraError) -> None:
        """Another kernel has the store, or it is gone: no answer will come here."""
        followers = [pending for waiting in self.followers.values() for pending in waiting]
        for pending in [*self.pending.values(), *self.awaited.values(), *followers]:
            pending.fail(error)
        self.pending.clear()

    def close(self) -> None:
        """Tell the callers that are left that the kernel has closed."""
        for pending in list(self.pending.values()):
            pending.fail(self.kernel.failure or self.make_closed_error(pending))
        self.pending.clear()


def _process_ended(process: Process) -> LyraError:
    ended = process.exit
    assert ended is not None
    if isinstance(ended.error, LyraError):
        return ended.error
    why = f": {ended.error}" if ended.error is not None else ""
    return AgentFailed(f"agent process {process.pid} ended ({ended.reason}){why}", pid=process.pid, status=ended.reason)


# Effects in doubt, and the questions to agents that come to stand behind one.

_log: Final = logging.getLogger("lyra.agents")


class Doubts:
    def __init__(self, kernel: Kernel, waiting: Callable[[str], Iterable[Pending]]) -> None:
        self._kernel = kernel
        self._waiting = waiting  # the answers of a process that callers wait for
        self._by_pid: dict[str, Interrupt] = {}  # what a person has to say about an effect in a process or below it
        self._has_read = kernel.journal is None
        kernel.interrupts.on_doubt.append(self._arisen)

    def _arisen(self, interrupt: Interrupt) -> None:
        """Note a doubt: a process stands still until a person says what became of an effect; so do those that wait for
        it."""
        process = self._kernel.processes.get(self._kernel.interrupts.asker(interrupt))
        while process is not None:
            self._by_pid[process.known_as] = interrupt
            for pending in self._waiting(process.known_as):
                if pending.is_impatient:
                    self._limit(pending, interrupt)
            process = process.parent

    def limit(self, pending: Pending) -> None:
        """Fail a question that comes to stand behind an effect in doubt, after `DOUBT_WAIT_S`."""
        pending.is_impatient = True
        if not self._has_read:
            self._read()
        interrupt = self._by_pid.get(pending.pid)
        if interrupt is not None and interrupt.status == "pending":
            self._limit(pending, interrupt)

    def forget(self, pid: str) -> None:
        """Forget a process that has ended."""
        self._by_pid.pop(pid, None)

    def _read(self) -> None:
        """Read the doubts of earlier lives, whose questions are still open."""
        self._has_read = True
        for interrupt in self._kernel.interrupts._all(None):
            if interrupt.kind == "in_doubt" and interrupt.status == "pending":
                _log.warning("process %s waits for a person: %s (%s)", interrupt.pid, interrupt.question, interrupt.id)
                self._arisen(interrupt)

    def _limit(self, pending: Pending, interrupt: Interrupt) -> None:
        patient = "send(…, wait_for_person=True) waits for that" if pending.id else "then await `current` again"

        def look() -> None:
            if interrupt.status == "pending":
                pending.give_up_with(
                    EffectInDoubt(
                        f"agent process {pending.pid} waits for a person: {interrupt.question}",
                        hint=f"kernel.resolve_interrupt({interrupt.id!r}, {{'decision': …}}) answers it; {patient}",
                        pid=pending.pid,
                        id=interrupt.id,
                    )
                )

        clock = self._kernel.clock
        clock.call_at(clock.monotonic() + DOUBT_WAIT_S, look)


# Who answers the questions of a kernel that its user cannot reach: those of `lyra.run`, `lyra.stream` and teams.

_NO_PERSON: Final = "no person can answer here (give `answer=`, or run the agent in a Kernel of your own)"


def attend(kernel: Kernel, answer: Callable[[Interrupt], Any] | None) -> None:
    """Have the questions of a kernel's programs answered by a function, or refused."""
    if answer is not None and not callable(answer):
        raise ConfigError(f"answer is a function of the question, not {answer!r}", key="answer")

    def on_raised(interrupt: Interrupt) -> None:
        if answer is None:
            _refuse(kernel, interrupt, _NO_PERSON)
        else:
            kernel.tasks.start(_ask_caller(kernel, answer, interrupt), name="lyra-answer")

    kernel.interrupts.on_raised.append(on_raised)


def _refuse(kernel: Kernel, interrupt: Interrupt, why: str) -> None:
    _log.warning("process %s asked: %s (%s): %s", interrupt.pid, interrupt.question, interrupt.kind, why)
    with suppress(LyraError):  # it is over already
        kernel.interrupts._withdraw(interrupt.id, why)


async def _ask_caller(kernel: Kernel, answer: Callable[[Interrupt], Any], interrupt: Interrupt) -> None:
    """Put a question to the caller's function. True and False approve and deny; text is the answer to a question."""
    try:
        value = answer(interrupt.copy())
        if inspect.isawaitable(value):
            value = await value
        if isinstance(value, bool):
            value = {"approved": value, "decision": "allow" if value else "deny"}
        elif isinstance(value, str):
            value = {"text": value, "decision": value if interrupt.kind != "clarification" else ""}
        if value is None:
            _refuse(kernel, interrupt, "`answer` gave no answer")
        else:
            kernel.interrupts._answer(interrupt, value)
    except Exception as error:  # noqa: BLE001 - a question that its answerer fails at is refused, not left open
        _refuse(kernel, interrupt, f"`answer` failed: {type(error).__name__}: {error}")
