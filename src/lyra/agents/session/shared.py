"""The Runtime: what the agents of one kernel share: models, answers on their way, sessions, threads for sync tools.

One a kernel, made at first use, kept in `kernel.parts`, closed with the kernel. Everything here is of this life of the
kernel only: what has to survive is in the journal, and a replay finds no caller waiting, so its answers go nowhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.session.early_call import ahead
from lyra.agents.session.model_settings import ModelSettings
from lyra.agents.session.records import call_record
from lyra.agents.session.replies import Pending, Sink
from lyra.agents.session.session import Session
from lyra.agents.session.spans import current_span
from lyra.core import codec
from lyra.core.budgets.budget import Budget
from lyra.core.effect import Effect, canonical_hash
from lyra.core.providers import USUAL
from lyra.core.secrets.redact import redact_data
from lyra.core.secrets.secret import MASK
from lyra.core.tool import caller
from lyra.errors import AgentFailed, ConfigError, LyraError
from lyra.kernel.base.waiting import suspend
from lyra.kernel.process.process import GIVEN_UP, Process
from lyra.kernel.programs.registry import dormant_process
from lyra.kernel.supervision.supervisor import supervise
from lyra.models.client import LLMClient
from lyra.models.pricing import Price
from lyra.models.provider import LLMProvider
from lyra.models.tokens import Conversation, Estimator

if TYPE_CHECKING:
    from lyra.agents.declaration.agent import Agent
    from lyra.agents.turn.model_call import Ask
    from lyra.core.policies.policy import RateLimit
    from lyra.kernel.effects.gates import Gate, TwoGates
    from lyra.kernel.kernel import Kernel
    from lyra.models.request import Request
    from lyra.models.stream import Completion

__all__ = ["Runtime", "home", "runtime_of", "scopes"]

_AWS_SECRETS: Final = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_KEY_LEAST: Final = 8  # characters; what is shorter is no key, and would blot out half of every text
_MANY: Final = 10**9  # requests of one call: it may ask again and again
_PART: Final = "agents"
_THREADS: Final = 64  # for sync tools; they wait more than they compute

# Budgets that `with lyra.budget(…)` has opened around the code that is running.
scopes: ContextVar[tuple[Budget, ...]] = ContextVar("lyra_scopes", default=())
# Where the process lives whose call a tool is running: pids are those of a kernel.
home: ContextVar[Runtime | None] = ContextVar("lyra_home", default=None)


def runtime_of(kernel: Kernel) -> Runtime:
    found: Runtime | None = kernel.parts.get(_PART)
    if found is None:
        found = kernel.parts[_PART] = Runtime(kernel)
    return found


class Runtime:
    __slots__ = (
        "_asked",
        "_found",
        "_known",
        "_life",
        "_loaded",
        "_requests",
        "_secrets",
        "_threads",
        "_tokens",
        "awaited",
        "client",
        "has_answered",
        "is_own",
        "kernel",
        "name",
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
        self.awaited: dict[str, Pending] = {}  # questions of an earlier life whose askers are coming back
        self._asked: dict[str, set[str]] = {}  # pid → the requests it was given and has not answered
        self.sessions: dict[str, Session] = {}
        self._found: dict[str | LLMProvider, tuple[LLMProvider, str, str]] = {}
        self._loaded: set[str | LLMProvider] = set()
        self._tokens = Estimator()
        self._requests = 0
        self._life = kernel.entropy.text(8)
        self.name = ""  # of all its kernel's lives, where whoever made it knows one
        self.is_own = False  # its kernel was made for one call, and ends with it
        self._threads: ThreadPoolExecutor | None = None
        self._secrets: tuple[str, ...] = ()
        self._known: tuple[str, ...] = _in_environment()
        # Told of what this machine lacks (a key, a provider) by whoever would rather wait for one that has it.
        self.has_answered = False  # some model did, in this life
        self.unfit: Callable[[LyraError], object] | None = None

    # ------------------------------------------------------------------ asking

    def ask(
        self, process: Process, content: Any, *, budget: Any = None, stream: bool = False, request_id: str = ""
    ) -> Pending:
        """Put a question to an agent process; the answer comes to what is returned.

        One with a `request_id` of its own may be asked again under it in a later life of the kernel: what became of it
        is found then (`expect`), and it is put to nobody twice.
        """
        kernel = self.kernel
        inside = scopes.get()
        call = ahead.get()
        if call is not None:
            inside = call.around(inside)
            call.began(kernel, process.pid)
        if budget is not None:
            own = Budget.of(budget)
            shared = call is not None and own is budget  # others may draw on it, too
            inside = (*inside, call.apart(own) if call is not None and shared else own)
        known = self.awaited.pop(request_id, None) if request_id else None
        if known is not None:
            known.scopes = inside
            return known
        keyed = bool(request_id)  # whoever asked under a request_id asks again in the next life: it waits
        if not request_id:
            self._requests += 1
            # With a journal it may be read in a later life of the kernel, where it must find nobody.
            request_id = str(self._requests) if kernel.journal is None else f"{self._life}.{self._requests}"
        pending = Pending(self, request_id, process.pid, inside, Sink(kernel) if stream else None)
        if inside:
            self._limit_time(pending)
            if pending.done():
                return pending
        if process.exit is not None:
            pending.fail(_ended(process))
            return pending
        missing = kernel.missing_program(process)
        if missing is not None and not keyed and not kernel.may_become_known(missing):
            pending.fail(dormant_process(process.pid, missing))
            return pending
        pending.ahead = call
        pending.asker = caller.get()
        if kernel.taint.state.pids and pending.asker:
            self._pass_on(pending.asker, process.pid)
        self._await(pending, process)
        kernel.send_to(process, {"lyra.ask": request_id, "content": self.clean_data(content)})
        return pending

    def _await(self, pending: Pending, process: Process) -> None:
        self.pending[pending.id] = pending
        asked = self._asked.get(process.pid)
        if asked is None:
            asked = self._asked[process.pid] = set()
            process.watch((self._over, None))
        asked.add(pending.id)

    def expect(self, request_id: str, process: Process, inside: tuple[Budget, ...], *, stream: bool) -> None:
        """A question that an earlier life put to a process: whoever asked it will ask again."""
        pending = Pending(self, request_id, process.pid, inside, Sink(self.kernel) if stream else None)
        self.awaited[request_id] = pending
        self._await(pending, process)

    def _limit_time(self, pending: Pending) -> None:
        """The seconds of the scopes around a question are a deadline; each scope's begin with its first question."""
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
        """The caller of a request that has been dealt with, if it is still there; it is told once."""
        pending = self.pending.pop(request_id, None)
        if pending is not None:
            self._asked[pending.pid].discard(request_id)
            if pending.asker and self.kernel.taint.state.pids:
                self._pass_on(pending.pid, pending.asker)
        return pending

    def _pass_on(self, giver: str, taker: str) -> None:
        """An agent asks another one through its process: each is marked by what the other has read."""
        told, hears = self.sessions.get(giver), self.sessions.get(taker)
        pid = hears.pid if hears is not None else taker
        if told is not None and told.tainted and told is not hears:
            self.kernel.taint.mark(pid, f"a message from {told.pid}")

    def _over(self, process: Process) -> None:
        """A process ended: what it was asked and has not answered it never will."""
        for request_id in self._asked.pop(process.pid, ()):
            pending = self.pending.pop(request_id, None)
            if pending is not None:
                pending.fail(_ended(process))
        self.sessions.pop(process.pid, None)

    def is_waited_for(self, pid: str) -> bool:
        """Whether the tool that runs here was called by a process of that pid, or by one that it waits for."""
        at = caller.get() if home.get() is self else ""  # another kernel has a process of that pid, too
        while at and at != pid:
            session = self.sessions.get(at)
            at = session.turn[1].asker if session is not None and session.turn is not None else ""
        return bool(at)

    def give_up(self, pending: Pending) -> None:
        """Nobody waits for this answer any more: end the work on it, if it has begun."""
        process = self.kernel.processes.get(pending.running)
        if process is not None and process.kill_reason is None and process.exit is None and pending.id in self.pending:
            process.cancel(GIVEN_UP)

    def key(self, ask: Ask, of_call: str) -> str:
        """The idempotency key of a request, from the door's key of the call, `pid:number`.

        It begins with what tells this kernel's processes from all others. A call that was cut off by a crash is made
        again under the same key: so it names the process by whose calls made it, because a pid may be another one's by
        then, and ends with a mark of what is asked, because a program may come to ask something else.
        """
        journal = self.kernel.journal
        if not self.name:
            self.name = self._life if journal is None else canonical_hash(journal.store.location, (), {}).hex()[:12]
        if journal is None:
            return f"{self.name}:{of_call}"
        pid, _, number = of_call.partition(":")
        process = self.kernel.processes.get(pid)
        line = pid if process is None else process.line
        return f"{self.name}:{line}:{number}:{(ask.digest[-4:] + ask.digest[:4]).hex()}"

    # ------------------------------------------------------------------ the process's side

    def begin(self, process: Process, agent: Agent, restored: Any) -> Session:
        """The session of a process that starts or comes back; a guarded one is known by its guard's pid too."""
        session = Session(agent, Conversation(self._tokens), durable=self.kernel.journal is not None)
        if restored is not None:
            session.replay(restored)
        outer = current_span.get()
        if outer is not None:
            session.trace_id, session.parent_span = outer.trace_id, outer.span_id or None
        session.metrics.started_at = session.metrics.started_at or self.kernel.clock.now()
        self.sessions[process.pid] = session
        session.pid, session.marks = process.pid, self.kernel.taint
        self._inherit(session, process)
        guard = process.parent
        if guard is not None and guard.program == self.kernel.programs.name(supervise):
            before = self.sessions.get(guard.pid)
            if before is not None:  # it crashed and begins anew; what it has cost stays with it
                session.metrics = before.metrics
            self.sessions[guard.pid] = session
        return session

    def _inherit(self, session: Session, process: Process) -> None:
        """A helper without permissions has its caller's; one with its own may not do what those forbid either."""
        above = process.parent
        if above is not None and process.known_as != process.pid:  # its guard, which goes by its sessions
            above = above.parent
        while above is not None and above.pid not in self.sessions:
            above = above.parent
        if above is None:
            return
        asker = self.sessions[above.pid]
        session.wary = asker.is_wary
        if session.permissions is None:
            session.permissions, session.outer = asker.permissions, asker.outer
        else:
            session.outer = asker.outer if asker.permissions is None else (asker.permissions, *asker.outer)

    def record(
        self,
        process: Process,
        session: Session,
        ask: Ask,
        *,
        completion: Completion | None = None,
        error: BaseException | None = None,
    ) -> None:
        """A model call is over (answered, failed or cut off): count it, and tell whoever listens.

        One that came from the journal counts as it did.
        """
        metrics = session.metrics
        kernel = self.kernel
        if ask.attempts > 1:
            metrics.retries += ask.attempts - 1
        if ask.lost.items:
            metrics.add(ask.lost_tokens, int(ask.lost.usd))
        if completion is not None:
            if not ask.attempts:
                price = self.price(ask)
                ask.micro_usd = price.cost(completion.usage) if price is not None else None
                # Where a record keeps what was learned then, it is known already.
                learn = ask.conversation.learn if self.tokens.told is None else ask.conversation.heard
                learn(ask.model, ask.request, completion.usage)
            metrics.count(completion.usage, ask.micro_usd)
        if kernel.agents_heard and ask.attempts and kernel.listeners.hears("model.called"):
            kernel.publish(process.pid, "model.called", call_record(kernel, session, ask, completion, error))

    # ------------------------------------------------------------------ models, prices and tokens

    def find(self, model: str | LLMProvider) -> tuple[LLMProvider, str, str]:
        """(provider, its name for the model, our name for it) of what an Agent calls its model."""
        recorded = self.client.stand_in is not None  # for a while: nothing found then is kept
        found = None if recorded else self._found.get(model)
        if found is None:
            if isinstance(model, LLMProvider):
                found = (model, "", model.name)
            else:
                found = self._named(model)
            if not recorded:
                self._found[model] = found
        return found

    def load(self, model: str | LLMProvider) -> tuple[LLMProvider, str, str]:
        """`find`, and have at hand what a first question needs. Libraries and prices take a quarter of a second, which
        is not to be part of a call's time, nor to lie between an answer and its place in the journal."""
        found = self.find(model)
        if model not in self._loaded:
            provider, named, name = found
            provider.price(named)  # one that answers by a script reads it for that
            provider.load()
            self.settings.prices.of(name)
            self._loaded.add(model)
        return found

    def prepare(self, agent: Agent) -> None:
        """The same for all its models, before the time of a call begins."""
        for model in agent.models:
            with suppress(ConfigError):  # whoever asks it will hear of that
                self.load(model)

    def answers_in_order(self, agent: Agent) -> bool:
        """Whether one who is asked for the agent answers by which questions came before, as some scripts do."""
        for model in agent.models:
            with suppress(ConfigError):  # whoever asks it will hear of that
                provider, name, _ = self.find(model)
                if provider.answers_in_order(name):
                    return True
        return False

    def model_limits(self, agent: Agent) -> dict[str, RateLimit]:
        """The limits of its models themselves, which it shares with other agents."""
        names = []
        for model in agent.models:
            with suppress(ConfigError):
                names.append(self.find(model)[2])
        limits = self.settings.limits
        return {name: limits[name] for name in names if name in limits}

    def ready_in(self, agent: Agent, *, timed: bool) -> float:
        """Seconds until no limit can fail a call of the agent because it comes too soon."""
        declared = self.kernel.declared
        effects = [effect for effect in agent.effects.values() if isinstance(effect, Effect) and effect.gated]
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
            name = self.client.resolve(model)
            return self.client.provider(name.provider), name.model, f"{name.provider}/{name.model}"
        except ConfigError as mistake:
            raise self.settings.explain(mistake, model) from None

    async def lacks(self, process: Process, error: LyraError) -> None:
        """A model cannot be asked from here, whatever the program does. Where somebody waits for a machine that can,
        the process waits too: nobody hears of the error, and no journal has it."""
        if self.unfit is not None:
            self.unfit(error)
            await suspend(process, [])

    def price(self, ask: Ask) -> Price | None:
        """What the model of a call costs: as its provider says, else as published."""
        assert ask.provider is not None
        own = ask.provider.price(ask.request.model)
        return own if own is not None else self.settings.prices.of(ask.model)

    @property
    def tokens(self) -> Estimator:
        """What is known of how models count."""
        return self._tokens

    def estimate(self, model: str, request: Request) -> int:
        """Tokens that a request will take, on the high side."""
        return self._tokens.estimate(model, request)

    # ------------------------------------------------------------------ keys, which nobody may see

    @property
    def known(self) -> tuple[str, ...]:
        """The keys that this process knows: those of its providers, and those in the usual variables."""
        secrets = (*self.client.secrets(), *self.settings.secrets)
        if secrets is not self._secrets and secrets != self._secrets:
            self._secrets = secrets
            self._known = tuple(sorted({*_in_environment(), *filter(_is_key, secrets)}, key=len, reverse=True))
        return self._known

    def clean(self, text: str) -> str:
        """A text without the keys that this process knows."""
        for key in self.known:
            if key in text:
                text = text.replace(key, MASK)
        return text

    def clean_data(self, value: Any) -> Any:
        """The same for plain data. What holds no key is given back as it is."""
        if type(value) is str:
            return self.clean(value)
        known = self.known
        if not known or value is None or isinstance(value, (int, float)):
            return value
        data = codec.encode(value)
        if not any(key.encode() in data for key in known):
            return value
        return redact_data(codec.decode(data), known)

    # ------------------------------------------------------------------ tools that block

    @property
    def threads(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="lyra-tool")
        return self._threads

    async def close(self) -> None:
        for pending in list(self.pending.values()):
            pending.fail(AgentFailed("the kernel closed before the agent answered", status="closed"))
        self.pending.clear()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        if self.kernel.parts.get("models") is not self.client:
            await self.client.close()


def _in_environment() -> tuple[str, ...]:
    """The values of the variables where keys of providers usually are."""
    names = {name for usual in USUAL.values() for name in usual.key}
    found = (os.environ.get(name, "").strip() for name in (*names, *_AWS_SECRETS))
    return tuple(filter(_is_key, found))


def _is_key(value: str) -> bool:
    return len(value) >= _KEY_LEAST


def _ended(process: Process) -> LyraError:
    ended = process.exit
    assert ended is not None
    if isinstance(ended.error, LyraError):
        return ended.error
    why = f": {ended.error}" if ended.error is not None else ""
    return AgentFailed(f"agent process {process.pid} ended ({ended.reason}){why}", pid=process.pid, status=ended.reason)
