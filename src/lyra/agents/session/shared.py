"""Runtime: the objects that the agents of one kernel share.

Its parts are the models and the keys that no text may hold (`models`), and the
questions that wait for an answer (`open_questions`). The runtime itself keeps the sessions of the processes, tells of
their model calls, and has threads for sync tools. Made at first use, kept in `kernel.parts`, closed with the kernel.
Nothing here outlives the kernel: what has to survive is in the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from weakref import WeakKeyDictionary

from lyra.agents.session.models import AgentModels
from lyra.agents.session.open_questions import OpenQuestions
from lyra.agents.session.records import begin_session, call_record, is_root, session_record, tell_model_call
from lyra.agents.session.session import AgentSession
from lyra.core.effect import Effect, canonical_hash
from lyra.core.tool import JobLog, Tool, caller
from lyra.errors import LyraError
from lyra.kernel.base.waiting import suspend
from lyra.kernel.process.process import GIVEN_UP, Process
from lyra.kernel.process.replay import steps_to_replay
from lyra.kernel.supervision.supervisor import supervise
from lyra.models.tokens import ConversationTokens
from lyra.observe.exports import export_as_configured

if TYPE_CHECKING:
    from lyra.agents.declaration.agent import AgentDeclaration
    from lyra.agents.session.model_call import ModelCall
    from lyra.kernel.interrupts.interrupt import Interrupt
    from lyra.kernel.kernel import Kernel
    from lyra.models.client import LLMClient
    from lyra.models.stream import Completion


_PART: Final = "agents"
_THREADS: Final = 64  # for sync tools, which wait more than they compute

# The runtime whose process has called the running tool: pids are unique in one kernel only.
home: ContextVar[AgentRuntime | None] = ContextVar("lyra_home", default=None)


def runtime_of(kernel: Kernel) -> AgentRuntime:
    runtime: AgentRuntime | None = kernel.parts.get(_PART)
    if runtime is None:
        runtime = kernel.parts[_PART] = AgentRuntime(kernel)
    return runtime


class AgentRuntime:
    """See the module. `ask`, `clean`, `clean_data` and `estimate` are those of its parts, for the layers above."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.sessions: dict[str, AgentSession] = {}
        self.models = AgentModels(kernel)
        self.settings = self.models.settings
        self.keys = self.models.keys
        self.questions = OpenQuestions(kernel, self.sessions, self.keys)
        self.ask = self.questions.ask
        self.clean = self.keys.clean
        self.clean_data = self.keys.clean_data
        self.estimate = self.models.estimate
        self.job_log: JobLog | None = None  # keeps what is known of commands in the background
        self.notices: dict[str, NoticeSource] = {}  # by pid: what else its model is told before its next answer
        self._tool_effects: WeakKeyDictionary[AgentDeclaration, dict[str, tuple[Tool, Effect]]] = WeakKeyDictionary()
        self.name = ""  # for idempotency keys: the same after a restart; made from the store unless it is set
        # Called with the pid of a process whose answer its provider has cut off.
        self.cut_listeners: list[Callable[[str], None]] = []
        self.is_own = False  # the kernel was made for one call, and ends with it
        self._threads: ThreadPoolExecutor | None = None
        self.has_answered = False  # a model has answered since the kernel started
        # Called when this machine lacks a key or a provider, where the run should wait for a machine that has it.
        self.unfit: Callable[[LyraError], object] | None = None
        export_as_configured(kernel)
        if kernel.core.remote is not None:
            from lyra.agents.session.agent_abroad import attend_questions

            attend_questions(self.questions, kernel.core.remote.asks)

    @property
    def client(self) -> LLMClient:
        """Reaches the providers of models."""
        return self.models.client

    @property
    def known(self) -> tuple[str, ...]:
        """The API keys that this process knows: its providers', and those in the usual environment variables."""
        return self.keys.known

    # ------------------------------------------------------------------ processes

    def find_session(self, pid: str) -> AgentSession | None:
        """Return the session of a process. That of one which comes back, and has not taken over its turns yet, is read
        from the journal."""
        session, known = self.sessions.get(pid), self.kernel.processes.get(pid)
        process = None if known is None else known.stands_for or known
        if process is None or (session is not None and not process.replay):
            return session
        agent = self.find_agent(pid)
        if agent is None or process.exit is not None:
            return session
        reading = AgentSession(agent, ConversationTokens(self.models.tokens), durable=False)
        reading.pid, reading.marks = process.pid, self.kernel.taint
        if session is not None:
            reading.messages, reading.metrics = list(session.messages), session.metrics.copy()
            reading.execution = session.execution
        elif process.restored is not None:
            reading.replay(process.restored)
        for name, value in steps_to_replay(process):
            reading.take_over(name, value)
        return reading

    def find_agent(self, pid: str) -> AgentDeclaration | None:
        """Return the agent that a process runs, also of one that has ended; None where it runs something else."""
        session, process = self.sessions.get(pid), self.kernel.processes.get(pid)
        if session is not None or process is None:
            return None if session is None else session.agent
        program = self.kernel.programs.get((process.stands_for or process).program)
        agent: AgentDeclaration | None = getattr(program, "__lyra_agent__", None)
        return agent

    def session_to_read(self, pid: str) -> AgentSession | None:
        """Return the session of a process whose text goes to the process that runs here."""
        session = self.find_session(pid)
        if session is not None and session.tainted:
            self.kernel.taint.mark_here(f"a message from {session.pid}")
        return session

    def is_out_of_time(self, pid: str) -> bool:
        """Return whether the seconds of a process's budget have passed."""
        process = self.kernel.processes.get(pid)
        return process is not None and process.out_of_time

    def is_waited_for(self, pid: str) -> bool:
        """Return whether the process waits for the running tool: it has called it, or asked the agent that has."""
        waiting = caller.get() if home.get() is self else ""  # another kernel may have a process of that pid, too
        while waiting and waiting != pid:
            session = self.sessions.get(waiting)
            waiting = session.turn[1].asker if session is not None and session.turn is not None else ""
        return bool(waiting)

    async def lacks(self, process: Process, error: LyraError) -> None:
        """Report that a model cannot be asked from this machine. Where the run should wait for a machine that can
        (`unfit`), the process is suspended: the error is neither raised nor journaled."""
        if self.unfit is not None:
            self.unfit(error)
            await suspend(process, [])

    def key(self, call: ModelCall, of_call: str) -> str:
        """Return the idempotency key of a request, from the door's key of the call.

        It begins with the name of the durable run or with the id of the store, and its generation; that of a process
        from before the store had an id begins with a hash of the store's location, as it did then. A call that was cut
        off by a crash is made again under the same key. So the key names the process by its line of spawn calls,
        because the pid may belong to another process by then, and ends with a hash of the question, because the program
        may ask another one.
        """
        core = self.kernel.core
        journal = core.journal
        if journal is None and not self.name and "~" not in of_call:  # a pid that the kernel gave
            return of_call
        generation, call_name = core.call_named(of_call)
        if journal is None:
            return f"{self.name or core.store_id}:{call_name}"
        name = self.name or core.store_id
        if not self.name and call_name == of_call:
            name = canonical_hash(journal.store.location, (), {}).hex()[:12]
        elif generation:
            name = f"{name}.{generation}"
        pid, _, number = call_name.partition(":")
        process = self.kernel.processes.get(pid)
        line = pid if process is None else f"{process.line}~{process.life}" if process.life else process.line
        return f"{name}:{line}:{number}:{(call.digest[-4:] + call.digest[:4]).hex()}"

    # ------------------------------------------------------------------ the process's side

    def begin(self, process: Process, agent: AgentDeclaration, restored: Any) -> AgentSession:
        """Return the session of a process that starts or comes back; a supervised one is known by its guard's pid
        too."""
        tool_effects = self._tool_effects.get(agent)
        if tool_effects is None:
            tool_effects = self._tool_effects[agent] = {}
        core = self.kernel.core
        durable = core.journal is not None
        session = AgentSession(
            agent, ConversationTokens(self.models.tokens), durable=durable, tool_effects=tool_effects
        )
        if restored is not None:
            session.replay(restored)
        begin_session(self.kernel, session, process)
        session.metrics.started_at = session.metrics.started_at or self.kernel.clock.now()
        self.sessions[process.pid] = session
        session.pid, session.marks = process.pid, self.kernel.taint
        guard = process.parent
        if guard is not None:
            self._inherit(session, process)
        if guard is not None and guard.program == self.kernel.programs.name(supervise):
            before = self.sessions.get(guard.pid)
            if before is not None:  # it crashed and begins anew; its costs so far still count
                session.metrics = before.metrics
            self.sessions[guard.pid] = session
        if "agent.began" in core.agents_heard:
            core.publish(process.pid, "agent.began", session_record(session, root=is_root(process)))
        return session

    def end(self, process: Process, session: AgentSession, began_at: float, failure: BaseException | None) -> None:
        """Publish that the process of a session ends, or stands still until its store is opened again."""
        kernel = self.kernel
        if "agent.ended" in kernel.core.agents_heard:
            is_paused = kernel.stopping and kernel.journal is not None
            status = "paused" if is_paused else "error" if isinstance(failure, Exception) else "ok"
            latency_ms = int((kernel.clock.now() - began_at) * 1000)
            record = session_record(session, root=is_root(process))
            kernel.publish(process.pid, "agent.ended", {**record, "latency_ms": latency_ms, "status": status})

    def _inherit(self, session: AgentSession, process: Process) -> None:
        """Give a helper its caller's permissions and hooks; one with its own permissions may not do what the caller's
        forbid either."""
        parent = process.parent
        if parent is not None and process.known_as != process.pid:  # its guard, which has the same session
            parent = parent.parent
        while parent is not None and parent.pid not in self.sessions:
            parent = parent.parent
        if parent is None:
            return
        asker = self.sessions[parent.pid]
        session.wary = asker.is_wary
        if session.hooks is None:
            session.hooks = asker.hooks
        session.subagent_type = session.agent.name.removeprefix(f"{asker.agent.name}.")
        if session.permissions is None:
            session.permissions, session.outer = asker.permissions, asker.enclosing
        else:
            session.outer = asker.enclosing if asker.permissions is None else (asker.permissions, *asker.enclosing)

    def record(
        self,
        process: Process,
        session: AgentSession,
        call: ModelCall,
        *,
        completion: Completion | None = None,
        error: BaseException | None = None,
    ) -> None:
        """Count a model call that is over (answered, failed or cut off), and publish its record.

        A call whose answer came from the journal counts as it did then, and is not published.
        """
        metrics = session.metrics
        if call.attempts > 1:
            metrics.retries += call.attempts - 1
        if call.lost.packed:
            metrics.add(call.lost_tokens, int(call.lost.usd) + call.unsettled_micro_usd)
            metrics.estimated_calls += call.lost_tokens.estimated and completion is None
        if completion is not None:
            if not call.attempts:
                price = call.find_price()
                call.micro_usd = price.cost(completion.usage) if price is not None else None
                # Estimates that are kept in a record were learned from this call already.
                learn = call.conversation.learn if self.models.tokens.told is None else call.conversation.note_usage
                if not completion.usage.estimated:
                    learn(call.model, call.request, completion.usage)
            metrics.count(completion.usage, call.micro_usd)
        if call.attempts and "model.called" in process.core.agents_heard:
            self.tell(process, session, call, completion=completion, error=error)

    def tell(
        self,
        process: Process,
        session: AgentSession,
        call: ModelCall,
        *,
        completion: Completion | None = None,
        error: BaseException | None = None,
    ) -> None:
        """Publish the record of a model call that is over, if a listener wants it."""
        core = process.core
        if call.attempts and "model.called" in core.agents_heard:
            record = call_record(self.kernel, session, call, completion, error)
            tell_model_call(self, record["span_id"], call, completion)
            core.publish(process.pid, "model.called", record)

    # ------------------------------------------------------------------ tools that block

    @property
    def threads(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="lyra-tool")
        return self._threads

    async def close(self) -> None:
        self.questions.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        await self.models.close()


# Notices: short messages for an agent's model beside those of its callers, such as the end of work in the background,
# or what its user says while it works.


class Notice(NamedTuple):
    """`key` names it: a source that is told of a key has that notice no more. `by_user`: these are the user's words."""

    key: str
    text: str
    by_user: bool = False


class NoticeSource(Protocol):
    def waiting(self) -> list[Notice]:
        """Return the notices that were not taken yet."""
        ...

    def on_taken(self, keys: Iterable[str]) -> None:
        """Note that the process has taken these; on a replay it takes them again, which must change nothing."""
        ...


# What an agent process and the processes below it wait for, and how the turn it is in is stopped.


def questions_below(kernel: Kernel, pid: str) -> list[Interrupt]:
    """Return the open questions of a process and of those below it, the oldest first."""
    pending = kernel.interrupts.list_interrupts(status="pending")
    return [interrupt for interrupt in pending if is_below(kernel, kernel.interrupts.asker(interrupt), pid)]


def is_below(kernel: Kernel, pid: str, top: str) -> bool:
    """Return whether a process is the one at the top, or one below it."""
    process = kernel.processes.get(pid)
    while process is not None:
        if top in (process.pid, process.known_as):
            return True
        process = process.parent
    return pid == top


def stop_turn(kernel: Kernel, pid: str) -> bool:
    """Stop the turn that an agent process is in, whose caller is not there any more, and withdraw its message; the
    process continues with its next one. False where it is in none, or is not back where the restart has cut it off."""
    runtime = runtime_of(kernel)
    session, known = runtime.sessions.get(pid), kernel.processes.get(pid)
    process = None if known is None else known.stands_for or known
    if session is None or process is None or process.exit is not None or process.kill_reason is not None:
        return False
    if session.execution is None or not session.execution.running or process.replay is not None:
        return False
    if session.request_id:
        kernel.withdrawals.withdraw(process, session.request_id)
    return process.cancel(GIVEN_UP)
