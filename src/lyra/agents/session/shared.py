"""Runtime: the objects that the agents of one kernel share: models, pending answers, sessions, threads for sync tools.

Made at first use, kept in `kernel.parts`, closed with the kernel. Nothing here outlives the kernel: what has to survive
is in the journal. A replay finds no caller waiting, so its answers are not delivered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from lyra.agents.session.agent_cache import cache_of
from lyra.agents.session.call_details import tell_model_call
from lyra.agents.session.early_call import current_early_call
from lyra.agents.session.model_settings import ModelSettings
from lyra.agents.session.provider_keys import check_model_name, is_key, keys_in_environment
from lyra.agents.session.records import call_record, session_record
from lyra.agents.session.replies import Pending, Sink
from lyra.agents.session.session import AgentSession
from lyra.agents.session.spans import begin_session
from lyra.core import codec
from lyra.core.budgets.budget import Budget
from lyra.core.effect import canonical_hash
from lyra.core.limits import DOUBT_WAIT_S
from lyra.core.secrets.known_keys import KnownKeys
from lyra.core.secrets.process_keys import add_key_source
from lyra.core.secrets.redact import redact_data
from lyra.core.tool import caller
from lyra.core.trace_context import format_traceparent
from lyra.errors import AgentFailed, CapabilityDenied, ConfigError, EffectFailed, EffectInDoubt, LyraError, ProcessExit
from lyra.kernel.base.acting import acting
from lyra.kernel.base.waiting import suspend
from lyra.kernel.process.process import GIVEN_UP, Process
from lyra.kernel.programs.milestone import is_unfinished
from lyra.kernel.programs.registry import dormant_process
from lyra.kernel.supervision.supervisor import supervise
from lyra.models.client import LLMClient
from lyra.models.pricing import Price
from lyra.models.provider import LLMProvider
from lyra.models.tokens import ConversationTokens, Estimator
from lyra.observe.exports import export_as_configured

if TYPE_CHECKING:
    from lyra.agents.declaration.agent import AgentDeclaration
    from lyra.agents.session.model_call import ModelCall
    from lyra.agents.session.notices import NoticeSource
    from lyra.core.effect import Effect
    from lyra.core.policies.policy import RateLimit
    from lyra.core.tool import JobLog, Tool
    from lyra.kernel.effects.gates import Gate, TwoGates
    from lyra.kernel.interrupts.interrupt import Interrupt
    from lyra.kernel.kernel import Kernel
    from lyra.models.request import Request
    from lyra.models.stream import Completion

__all__ = ["AgentRuntime", "home", "runtime_of", "scopes"]

_NO_KEY: Final = "leave the key out; what needs one gets it from its own settings"
_MANY: Final = 10**9  # requests of one call that may ask its model any number of times
_PART: Final = "agents"
_PRICE_AFTER_S: Final = 0.1  # the request has been sent by then
_THREADS: Final = 64  # for sync tools, which wait more than they compute

# The budgets that `with lyra.budget(…)` has opened around the running code.
scopes: ContextVar[tuple[Budget, ...]] = ContextVar("lyra_scopes", default=())
# The runtime whose process has called the running tool: pids are unique in one kernel only.
home: ContextVar[AgentRuntime | None] = ContextVar("lyra_home", default=None)


def runtime_of(kernel: Kernel) -> AgentRuntime:
    runtime: AgentRuntime | None = kernel.parts.get(_PART)
    if runtime is None:
        runtime = kernel.parts[_PART] = AgentRuntime(kernel)
    return runtime


_log: Final = logging.getLogger("lyra.agents")


class AgentRuntime:
    __slots__ = (
        "__weakref__",
        "_asked",
        "_doubts",
        "_forget_keys",
        "_has_read_doubts",
        "_keys",
        "_known",
        "_life",
        "_loaded",
        "_priced",
        "_requests",
        "_resolved",
        "_secrets",
        "_threads",
        "_tokens",
        "_tool_effects",
        "awaited",
        "client",
        "followers",
        "has_answered",
        "is_own",
        "job_log",
        "kernel",
        "name",
        "notices",
        "pending",
        "sessions",
        "settings",
        "unfit",
    )

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.settings = ModelSettings(kernel.config, kernel.clock)
        self.client: LLMClient = kernel.parts.get("models") or LLMClient(self.settings.providers)
        self.pending: dict[str, Pending] = {}
        self.awaited: dict[str, Pending] = {}  # questions from before a restart, whose callers will ask again
        self.followers: dict[str, list[Pending]] = {}  # by pid: readers of the turn that is under way
        self._asked: dict[str, set[str]] = {}  # pid → its requests without an answer
        self.sessions: dict[str, AgentSession] = {}
        self.job_log: JobLog | None = None  # keeps what is known of commands in the background
        self.notices: dict[str, NoticeSource] = {}  # by pid: what else its model is told before its next answer
        self._resolved: dict[str | LLMProvider, tuple[LLMProvider, str, str]] = {}
        self._loaded: set[str | LLMProvider] = set()
        self._priced: set[str] = set()  # models whose price has been looked up, or will be in a moment
        self._tokens = Estimator()
        self._requests = 0
        self._life = kernel.entropy.text(8)
        self._tool_effects: WeakKeyDictionary[AgentDeclaration, dict[str, tuple[Tool, Effect]]] = WeakKeyDictionary()
        self.name = ""  # for idempotency keys: the same after a restart; made from the store unless it is set
        self.is_own = False  # the kernel was made for one call, and ends with it
        self._threads: ThreadPoolExecutor | None = None
        self._secrets: tuple[str, ...] = ()
        self._known: tuple[str, ...] = keys_in_environment()
        self._forget_keys = add_key_source(self, lambda runtime: runtime.known)
        self._keys: tuple[tuple[str, ...], KnownKeys] | None = None
        self.has_answered = False  # a model has answered since the kernel started
        # Called when this machine lacks a key or a provider, where the run should wait for a machine that has it.
        self.unfit: Callable[[LyraError], object] | None = None
        self._doubts: dict[str, Interrupt] = {}  # pid → what a person has to say about an effect in it or below it
        kernel.core.subsystems.stop.append(self._withdraw_queued)
        kernel.interrupts.on_doubt.append(self._in_doubt)
        kernel.core.after_abort.append(self._store_lost)
        self._has_read_doubts = kernel.journal is None
        export_as_configured(kernel)

    # ------------------------------------------------------------------ asking

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
    ) -> Pending:
        """Put a question to an agent process; the answer comes to the Pending that is returned.

        A question with a `request_id` may be asked again under it after a restart: it then gets the outcome of the
        first (`expect`), and the agent is not asked twice.
        """
        kernel = self.kernel
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
            known.reader = self._reader()
            if known.id not in self.pending:  # it was answered meanwhile
                self.mark_reader(known)
            return known
        keyed = bool(request_id)  # its caller asks again after a restart, so it waits for the program
        if keyed:
            kernel.withdrawals.passed(process, request_id)
        else:
            self._requests += 1
            # A journal may be read after a restart, where the id must not be that of another question.
            request_id = str(self._requests) if kernel.journal is None else f"{self._life}.{self._requests}"
        pending = Pending(self, request_id, process.pid, inside, Sink(kernel) if stream else None)
        pending.is_keyed = keyed
        if inside:
            self._limit_time(pending)
            if pending.done():
                return pending
        if process.exit is not None:
            pending.fail(_process_ended(process))
            return pending
        if kernel.failure is not None:
            pending.fail(kernel.failure)
            return pending
        missing = kernel.missing_program(process)
        if missing is not None and not keyed and not kernel.may_become_known(missing):
            pending.fail(dormant_process(process.pid, missing))
            return pending
        pending.early_call = early_call
        pending.asker = caller.get()
        pending.reader = self._reader()
        if kernel.taint.state.pids and pending.asker:
            self._pass_on(pending.asker, process.pid)
        self._await(pending, process)
        more: dict[str, Any] = {} if only is None else {"only": list(only)}
        if tools:
            more["tools"] = self.clean_data(tools)
        if kernel.journal is not None and pending.span is not None and pending.span.span_id:
            more["trace"] = format_traceparent(pending.span)  # after a restart the turn goes on in the caller's trace
        kernel.send_to(process, {"lyra.ask": request_id, "content": self.clean_data(content), **more})
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
        """The answer to a question that was put into the mailbox of a process by other means than `ask`, in this life
        of the kernel or an earlier one. To be called before the process takes the question."""
        pending = Pending(self, request_id, process.pid, inside, sink)
        pending.is_keyed = True
        self._await(pending, process)
        return pending

    def follow(self, process: Process) -> Pending | None:
        """The turn that a process is in, also one that began before a restart; None if it is in none.

        Its caller is not there any more, or awaits an answer of its own: giving this one up changes nothing for the
        turn.
        """
        run = process.stands_for or process
        session = self.sessions.get(process.pid)
        execution = session.execution if session is not None else None
        running = execution is not None and execution.running and process.exit is None
        if not (running or run.inbox or process.inbox or is_unfinished(run, "turn")):
            return None
        pending = Pending(self, "", process.pid, (), None)
        pending.reader = self._reader()
        if process.exit is not None:
            pending.fail(_process_ended(process))
            return pending
        if process.pid not in self.followers:
            self.followers[process.pid] = []
            process.watch((self._on_followed_end, None))
        self.followers[process.pid].append(pending)
        self.limit_doubt(pending)
        return pending

    def _reader(self) -> str:
        """The pid of the process that asks here, which gets the answer; empty outside any."""
        reader = acting()
        return caller.get() or (reader.pid if reader is not None and reader.kernel is self.kernel else "")

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

    def session_to_read(self, pid: str) -> AgentSession | None:
        """The session of a process whose text goes to the process that runs here."""
        session = self.sessions.get(pid)
        if session is not None and session.tainted:
            self.kernel.taint.mark_here(f"a message from {session.pid}")
        return session

    def _pass_on(self, giver: str, taker: str) -> None:
        """Pass the taint of a process on to the one that it asks, or that asks it."""
        source, target = self.sessions.get(giver), self.sessions.get(taker)
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
        self.sessions.pop(process.pid, None)
        self._doubts.pop(process.pid, None)

    def _in_doubt(self, interrupt: Interrupt) -> None:
        """A process stands still until a person says what became of an effect; so do those that wait for it."""
        process = self.kernel.processes.get(self.kernel.interrupts.asker(interrupt))
        while process is not None:
            self._doubts[process.known_as] = interrupt
            asked = (self.pending.get(request_id) for request_id in self._asked.get(process.known_as, ()))
            for pending in (*asked, *self.followers.get(process.known_as, ())):
                if pending is not None and pending.is_impatient:
                    self._limit_doubt(pending, interrupt)
            process = process.parent

    def limit_doubt(self, pending: Pending) -> None:
        """Fail a question that comes to stand behind an effect in doubt, after `DOUBT_WAIT_S`."""
        pending.is_impatient = True
        if not self._has_read_doubts:
            self._read_doubts()
        interrupt = self._doubts.get(pending.pid)
        if interrupt is not None and interrupt.status == "pending":
            self._limit_doubt(pending, interrupt)

    def _read_doubts(self) -> None:
        """The doubts of earlier lives, whose questions are still open."""
        self._has_read_doubts = True
        for interrupt in self.kernel.interrupts._all(None):
            if interrupt.kind == "in_doubt" and interrupt.status == "pending":
                _log.warning("process %s waits for a person: %s (%s)", interrupt.pid, interrupt.question, interrupt.id)
                self._in_doubt(interrupt)

    def _limit_doubt(self, pending: Pending, interrupt: Interrupt) -> None:
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

        clock = self.kernel.clock
        clock.call_at(clock.monotonic() + DOUBT_WAIT_S, look)

    def is_out_of_time(self, pid: str) -> bool:
        """Whether the seconds of a process's budget have passed."""
        process = self.kernel.processes.get(pid)
        return process is not None and process.out_of_time

    def is_waited_for(self, pid: str) -> bool:
        """Whether the process waits for the running tool: it has called it, or asked the agent that has."""
        waiting = caller.get() if home.get() is self else ""  # another kernel may have a process of that pid, too
        while waiting and waiting != pid:
            session = self.sessions.get(waiting)
            waiting = session.turn[1].asker if session is not None and session.turn is not None else ""
        return bool(waiting)

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
        """What the turn has asked of other agents is withdrawn with it, before its cancellation comes there."""
        for inner in [other for other in self.pending.values() if other.asker in (pending.pid, pending.running)]:
            asked = self.kernel.processes.get(inner.pid)
            if inner.id not in known and asked is not None and not inner.done():
                known.add(inner.id)
                self.kernel.withdrawals.withdraw(asked, inner.id)
                self._withdraw_below(inner, known)

    def key(self, call: ModelCall, of_call: str) -> str:
        """The idempotency key of a request, from the door's key of the call, `store:pid:number`.

        It begins with the name of the durable run or with the id of the store; that of a process from before the store
        had an id begins with a hash of the store's location, as it did then. A call that was cut off by a crash is made
        again under the same key. So the key names the process by its line of spawn calls, because the pid may belong to
        another process by then, and ends with a hash of the question, because the program may ask another one.
        """
        core, journal = self.kernel.core, self.kernel.journal
        call_name = core.call_named(of_call)
        if journal is None:
            return f"{self.name or core.store_id}:{call_name}"
        name = self.name or core.store_id
        if not self.name and call_name == of_call:
            name = canonical_hash(journal.store.location, (), {}).hex()[:12]
        pid, _, number = call_name.partition(":")
        process = self.kernel.processes.get(pid)
        line = pid if process is None else f"{process.line}~{process.life}" if process.life else process.line
        return f"{name}:{line}:{number}:{(call.digest[-4:] + call.digest[:4]).hex()}"

    # ------------------------------------------------------------------ the process's side

    def begin(self, process: Process, agent: AgentDeclaration, restored: Any) -> AgentSession:
        """The session of a process that starts or comes back; a supervised one is known by its guard's pid too."""
        tool_effects = self._tool_effects.get(agent)
        if tool_effects is None:
            tool_effects = self._tool_effects[agent] = {}
        durable = self.kernel.journal is not None
        session = AgentSession(agent, ConversationTokens(self._tokens), durable=durable, tool_effects=tool_effects)
        if restored is not None:
            session.replay(restored)
        begin_session(self.kernel, session, process.line, root=_is_root(process))
        session.metrics.started_at = session.metrics.started_at or self.kernel.clock.now()
        self.sessions[process.pid] = session
        session.pid, session.marks = process.pid, self.kernel.taint
        self._inherit(session, process)
        guard = process.parent
        if guard is not None and guard.program == self.kernel.programs.name(supervise):
            before = self.sessions.get(guard.pid)
            if before is not None:  # it crashed and begins anew; its costs so far still count
                session.metrics = before.metrics
            self.sessions[guard.pid] = session
        if self.kernel.agents_heard and self.kernel.listeners.hears("agent.began"):
            self.kernel.publish(process.pid, "agent.began", session_record(session, root=_is_root(process)))
        return session

    def end(self, process: Process, session: AgentSession, began_at: float, failure: BaseException | None) -> None:
        """Publish that the process of a session ends, or stands still until its store is opened again."""
        kernel = self.kernel
        if kernel.agents_heard and kernel.listeners.hears("agent.ended"):
            is_paused = kernel.stopping and kernel.journal is not None
            status = "paused" if is_paused else "error" if isinstance(failure, Exception) else "ok"
            latency_ms = int((kernel.clock.now() - began_at) * 1000)
            record = session_record(session, root=_is_root(process))
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
        if call.lost.items:
            metrics.add(call.lost_tokens, int(call.lost.usd) + call.unsettled_micro_usd)
            metrics.estimated_calls += call.lost_tokens.estimated and completion is None
        if completion is not None:
            if not call.attempts:
                price = self.price(call)
                call.micro_usd = price.cost(completion.usage) if price is not None else None
                # Estimates that are kept in a record were learned from this call already.
                learn = call.conversation.learn if self.tokens.told is None else call.conversation.heard
                if not completion.usage.estimated:
                    learn(call.model, call.request, completion.usage)
            metrics.count(completion.usage, call.micro_usd)
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
        kernel = self.kernel
        if kernel.agents_heard and call.attempts and kernel.listeners.hears("model.called"):
            record = call_record(kernel, session, call, completion, error)
            tell_model_call(self, record["span_id"], call, completion)
            kernel.publish(process.pid, "model.called", record)

    # ------------------------------------------------------------------ models, prices and tokens

    def find(self, model: str | LLMProvider) -> tuple[LLMProvider, str, str]:
        """(provider, its name for the model, Lyra's name for it) of a model as an Agent names it."""
        recorded = self.client.stand_in is not None  # a temporary provider: not to be kept
        resolved = None if recorded else self._resolved.get(model)
        if resolved is None:
            if isinstance(model, LLMProvider):
                resolved = (model, "", model.name or type(model).__name__)
            else:
                resolved = self._named(model)
            if not recorded:
                self._resolved[model] = resolved
        return resolved

    def load(self, model: str | LLMProvider, *, priced: bool = True) -> tuple[LLMProvider, str, str]:
        """`find`, and load libraries and prices before the first question. That takes a quarter of a second, which must
        not count as the call's time, nor lie between an answer and its row in the journal. A call that no money budget
        holds is not `priced` before it is made: `price_later` looks the price up while the answer is waited for."""
        resolved = provider, named, name = self.find(model)
        if model not in self._loaded:
            provider.price(named)  # a scripted provider reads its script for this
            provider.load()
            self._loaded.add(model)
        if priced and name not in self._priced:
            self.settings.prices.of(name)
            self._priced.add(name)
        return resolved

    def price_later(self, call: ModelCall) -> None:
        """Look up the price of a model while its first answer is waited for."""
        if call.model not in self._priced:
            self._priced.add(call.model)
            if not call.model.startswith("sim/"):
                self.kernel.loop.call_later(_PRICE_AFTER_S, self.price, call)

    def prepare(self, agent: AgentDeclaration) -> None:
        """Load all models of an agent, before the time of a call begins."""
        for model in agent.models:
            with suppress(ConfigError):  # the call itself will raise it
                self.load(model)

    def answers_in_order(self, agent: AgentDeclaration) -> bool:
        """Whether a model of the agent answers by the order of its questions, as some scripts do."""
        for model in agent.models:
            with suppress(ConfigError):  # the call itself will raise it
                provider, name, _ = self.find(model)
                if provider.answers_in_order(name):
                    return True
        return False

    def model_limits(self, agent: AgentDeclaration) -> dict[str, RateLimit]:
        """The rate limits of its models, which it shares with other agents."""
        names = []
        for model in agent.models:
            with suppress(ConfigError):
                names.append(self.find(model)[2])
        limits = self.settings.limits
        return {name: limits[name] for name in names if name in limits}

    def ready_in(self, agent: AgentDeclaration, *, timed: bool) -> float:
        """Seconds until no limit can fail a call of the agent because it comes too soon."""
        declared = self.kernel.declared
        effects = [effect for effect in cache_of(agent).model_effects.values() if effect.gated]
        gates: list[Gate | TwoGates] = [declared.gate(effect) for effect in effects]
        for name, limit in self.model_limits(agent).items():
            shared = declared.gates.get((name, limit, None))
            gates += [] if shared is None else [shared]
        asks_once = not agent.toolbox and not agent.sources and agent.output is None
        requests = agent.retry.max_attempts if asks_once else _MANY
        return max((gate.ready_in(requests, timed=timed) for gate in gates), default=0.0)

    def _named(self, model: str) -> tuple[LLMProvider, str, str]:
        try:
            self.settings.need(model)
            check_model_name(model, self.known)
            name = self.client.resolve(model)
            return self.client.provider(name.provider), name.model, f"{name.provider}/{name.model}"
        except ConfigError as mistake:
            raise self.settings.explain(mistake, model) from None

    async def lacks(self, process: Process, error: LyraError) -> None:
        """A model cannot be asked from this machine. Where the run should wait for a machine that can (`unfit`), the
        process is suspended: the error is neither raised nor journaled."""
        if self.unfit is not None:
            self.unfit(error)
            await suspend(process, [])

    def price(self, call: ModelCall) -> Price | None:
        """The price of a call's model: its provider's own, else the published one."""
        assert call.provider is not None
        own = call.provider.price(call.request.model)
        return own if own is not None else self.settings.prices.of(call.model)

    @property
    def tokens(self) -> Estimator:
        """The token estimates, corrected by the counts of providers."""
        return self._tokens

    def estimate(self, model: str, request: Request) -> int:
        """Tokens that a request will take; rather too many than too few."""
        return self._tokens.estimate(model, request)

    # ------------------------------------------------------------------ keys, which no text may hold

    @property
    def known(self) -> tuple[str, ...]:
        """The API keys that this process knows: its providers', and those in the usual environment variables."""
        secrets = (*self.client.secrets(), *self.settings.secrets)
        if secrets is not self._secrets and secrets != self._secrets:
            self._secrets = secrets
            self._known = tuple(sorted({*keys_in_environment(), *filter(is_key, secrets)}, key=len, reverse=True))
        return self._known

    @property
    def known_keys(self) -> KnownKeys:
        """The same, prepared to be found in texts."""
        known = self.known
        if self._keys is None or self._keys[0] is not known:
            self._keys = (known, KnownKeys.of(known))
        return self._keys[1]

    def clean(self, text: str) -> str:
        """A text that is shown or written down, with known keys masked. For a text that runs or is stored there is
        `check_no_key`, which refuses it."""
        return self.known_keys.mask(text)

    def check_no_key(self, value: Any, what: str) -> None:
        """Raise CapabilityDenied if there is a known key in the value. It is for what a program is about to act with:
        masked, it would be another value than the one that was asked for."""
        if self.known_keys.holds(value):
            raise CapabilityDenied(f"{what} holds a key of a model provider, which programs may not use", hint=_NO_KEY)

    def without_key(self, value: Any, what: str) -> Any:
        """A value that a program reads, where there is no known key in it; EffectFailed otherwise. The journal cannot
        keep the key, and a program may write what it has read: masked, that would be another text."""
        if self.known_keys.holds(value):
            raise EffectFailed(f"{what} holds a key of a model provider, which programs may not read")
        return value

    def clean_data(self, value: Any) -> Any:
        """Plain data with known keys masked; the same object where there is none in it."""
        if type(value) is str:
            return self.clean(value)
        keys = self.known_keys
        if not keys or value is None or isinstance(value, (int, float)):
            return value
        data = codec.encode(value)
        return redact_data(codec.decode(data), self.known) if keys.may_be_in(data) else value

    # ------------------------------------------------------------------ tools that block

    @property
    def threads(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="lyra-tool")
        return self._threads

    def _withdraw_queued(self) -> None:
        """The kernel closes, and callers are told that their questions failed: those that no process has begun to
        answer are withdrawn. A caller that asks again after a restart is not told."""
        for pending in self.pending.values():
            process = self.kernel.processes.get(pending.pid)
            if not pending.running and not pending.is_keyed and process is not None:
                pending.abandoned = True
                self.kernel.withdrawals.withdraw(process, pending.id)

    def closed_before(self, pending: Pending) -> LyraError:
        """What the caller of an answer that did not come in this kernel's life is told."""
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

    async def close(self) -> None:
        for pending in list(self.pending.values()):
            pending.fail(self.kernel.failure or self.closed_before(pending))
        self.pending.clear()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        if self.kernel.parts.get("models") is not self.client:
            await self.client.close()
        self._forget_keys()


def _is_root(process: Process) -> bool:
    """Whether no other process asked for this one; a guard of its own does not count."""
    parent = process.parent if process.known_as == process.pid or process.parent is None else process.parent.parent
    return parent is None


def _process_ended(process: Process) -> LyraError:
    ended = process.exit
    assert ended is not None
    if isinstance(ended.error, LyraError):
        return ended.error
    why = f": {ended.error}" if ended.error is not None else ""
    return AgentFailed(f"agent process {process.pid} ended ({ended.reason}){why}", pid=process.pid, status=ended.reason)
