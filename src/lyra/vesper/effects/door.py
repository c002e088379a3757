"""Effects of a node through the kernel's door: rights, retries, time-outs, the journal and recovery are the kernel's.

Each request becomes one Effect of the process that runs the node. What the act gives, or how it fails, is journaled, so
that a process which is killed goes on after the last finished act; an act that was under way is made again where that
is safe, and put to a person where it is not. No act, no pause and no response goes beyond the limits of the execution.
`DoorEffects` logs what was performed, for the other path to replay. Where an execution has sensitive values, the
journal gets requests, responses and errors sealed (`sealing`).

A step is retried by its `retry_policy`, by rules with the actions retry and backoff, and by such rules of the node. A
rule that names an error retries that error; `*` and a policy without names retry what may pass by itself: answers with
5xx, time-outs, servers that cannot be reached. A rule with the action circuit_breaker gives each step of the node a
breaker of its own, which counts calls that failed after their last try; a rule may name the error of the act or the
code that the step's rules turn it into. `KERNEL_STATUS` tells the kernel, by a status, what is to be done.

A path measures its own work with `ExecutionTime`, which stands still while an act is under way. The door ends acts when
the whole execution has used its time, and logs that they failed. So a path that replays the log, and waits for nothing,
comes to the same end as the one that waited.

The steps of a transaction run over one open transaction of the database, and what is kept of them is one row.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.naming import give_name
from lyra.core.policies.breaker import CircuitBreaker
from lyra.core.policies.retry import Backoff, error_class
from lyra.core.policies.retry import Retry as KernelRetry
from lyra.core.rights.capability import Capability
from lyra.errors import CapabilityDenied, CircuitOpen, DeadlineExceeded, EffectFailed, EffectInDoubt, LyraError
from lyra.kernel.base.waiting import in_time
from lyra.vesper.check.steps import parts_of
from lyra.vesper.effects.compiled_path import drive
from lyra.vesper.effects.database import Database, OpenTransaction
from lyra.vesper.effects.performers import NO_DATABASE, NodeWorld, describe_missing_rights, perform
from lyra.vesper.effects.replay import EffectLog, ReplayEffects
from lyra.vesper.effects.request import EffectError, EffectRequest, TransactionBody, TransactionEnd, error_names
from lyra.vesper.effects.sealing import PrivateEffects
from lyra.vesper.ir import TRANSACTION, Constant, EffectStep, ErrorRule, NodeProgram, StepRetry, TransactionStep
from lyra.vesper.sql.tables import query_tables
from lyra.vesper.sql.tokens import SqlRefused
from lyra.vesper.values.json_values import from_json, to_json
from lyra.vesper.values.limits import RETRY_DELAY_S_MAX
from lyra.vesper.values.outcome import NOT_CONFIGURED
from lyra.vesper.values.plain import UnreadableInputs, is_larger, to_plain_value

if TYPE_CHECKING:
    from lyra.kernel.programs.context import Context


Check = Callable[[EffectRequest], None]  # CapabilityDenied where the node may not do what a request asks for


@give_name("lyra:vesper.PathBroke")
class PathBroke(Exception):
    """A path raised in the steps of a transaction what no path may raise."""


class Transactions:
    """Performs the transactions of one execution."""

    def __init__(self, database: Database, memory_mb: int, check: Check) -> None:
        self._database = database
        self._memory = memory_mb * 1024 * 1024
        self._check = check
        self.seal: Callable[[Any], str] = lambda record: json.dumps(to_json(record))
        self.open: Callable[[str], Any] = lambda text: from_json(json.loads(text))

    async def perform(self, key: str, body: TransactionBody) -> tuple[dict[str, Any], TransactionEnd | None]:
        """Return the record, and the end of the steps if they were run now."""
        last: list[tuple[dict[str, Any], TransactionEnd]] = []
        abandoned = threading.Event()

        def attempt(opened: OpenTransaction) -> str | None:
            statements = _Statements(opened, self._check)
            end = self._run(body, statements)
            record = statements.log.to_record(committed=end.commits)
            if is_larger(record, self._memory):
                raise EffectError("resource_limit", "the answers of the transaction take more memory than the node may")
            last[:] = [(record, end)]
            return self.seal(record) if end.commits else None

        try:
            text = await asyncio.to_thread(self._database.transact, key, attempt, abandoned)
        except asyncio.CancelledError:
            abandoned.set()
            raise
        if last and (not text or text == self.seal(last[0][0])):
            return last[0]
        return self.open(text), None

    def _run(self, body: TransactionBody, statements: _Statements) -> TransactionEnd:
        try:
            return drive(_await_body(body, statements))
        except (RecursionError, MemoryError):
            raise EffectError("resource_limit", "a value is nested too deeply or too large") from None
        except Exception as error:
            raise PathBroke(f"{type(error).__name__}: {error}") from error


async def _await_body(body: TransactionBody, statements: _Statements) -> TransactionEnd:
    return await body(statements)


class _Statements:
    """The effects that the steps of one attempt are given."""

    def __init__(self, opened: OpenTransaction, check: Check) -> None:
        self._opened = opened
        self._check = check
        self.log = EffectLog()

    async def perform(self, request: EffectRequest) -> Any:
        try:
            self._check(request)
            response = self._opened.perform(request.kind, request.payload)
        except CapabilityDenied as error:
            failure = EffectError("capability_denied", error.message)
        except EffectError as error:
            failure = error
        else:
            self.log.add(request, response=response)
            return response
        self.log.add(request, error=failure)
        raise failure


# A node's own state machines need no right; a node that is called needs its own.
_OWN: Final = frozenset({"state.transition", "node.call"})
_PATH_BROKE: Final = "path_broke"  # how the journal has an act in which the path raised; no rule ever meets it
_Work = Callable[[str], Awaitable[Any]]  # performs a request under a key


class DoorEffects:
    """The live effects of one execution."""

    def __init__(
        self,
        ctx: Context,
        world: NodeWorld,
        log: EffectLog,
        program: NodeProgram,
        time: ExecutionTime,
        private: PrivateEffects | None = None,
    ) -> None:
        self._ctx = ctx
        self._world = world
        self._private = private
        self.log = log
        self._program = program
        kinds = EffectStep | TransactionStep
        acts = [part for part in parts_of((program.steps, program.rules)) if isinstance(part, kinds)]
        self._policies = {act.name: _policy(act, program) for act in acts}
        self._time = time
        self.failure: Exception | None = None  # that an effect raised and that is no answer to the node

    async def perform(self, request: EffectRequest) -> Any:
        do = perform if self._private is None else self._private.perform
        with self._time.act():
            return await self._perform(request, lambda key: do(self._world, request, self._ctx.grant, key))

    async def transact(self, request: EffectRequest, body: TransactionBody) -> TransactionEnd:
        """Return how the steps of a transaction ended: as they ran just now, or over the record of an earlier time."""
        ended: list[TransactionEnd] = []
        database = self._world.database

        async def work(key: str) -> Any:
            ended.clear()
            if database is None:
                raise EffectError(NOT_CONFIGURED, NO_DATABASE)
            transactions = Transactions(database, self._program.limits.memory_mb, self._check_rights)
            if self._private is not None:
                key = self._private.key(key)
                transactions.seal, transactions.open = self._private.sealer.seal, self._private.sealer.open
            try:
                record, end = await transactions.perform(key, body)
            except PathBroke as error:
                raise EffectError(_PATH_BROKE, str(error)) from error
            ended.extend([] if end is None else [end])
            return record

        with self._time.act():
            try:
                record = await self._perform(request, work)
            except EffectError as error:
                if error.kind != _PATH_BROKE:
                    raise
                self.log.records.pop()  # the path that replaces a broken one performs it again
                raise PathBroke(error.message) from error
        return ended[0] if ended else await body(ReplayEffects(EffectLog.from_record(record)))

    def _check_rights(self, request: EffectRequest) -> None:
        try:
            for right in _needs(request):
                self._ctx.grant.check(Capability.parse(right))
        except CapabilityDenied as error:
            raise CapabilityDenied(self._explain_denied(request, error)) from error

    def _explain_denied(self, request: EffectRequest, error: CapabilityDenied) -> str:
        """Return the refusal with the rights as a node and `--grant` name them."""
        try:
            missing = describe_missing_rights(self._ctx.grant, _needs(request))
        except CapabilityDenied:
            missing = ""
        return f"{request.step} needs {missing}" if missing else error.message

    async def _perform(self, request: EffectRequest, work: _Work) -> Any:
        clock = self._ctx.own_process.core.clock
        began = clock.monotonic()
        try:
            response = await self._do(request, work)
        except CapabilityDenied as error:
            failure = EffectError("capability_denied", self._explain_denied(request, error))
        except DeadlineExceeded as error:
            failure = EffectError("timeout", error.message)
        except CircuitOpen as error:
            failure = EffectError("circuit_open", error.message)
        except EffectInDoubt as error:
            failure = EffectError("in_doubt", error.message)
        except EffectFailed as error:
            failure = self._failure(error)
        except LyraError as error:
            failure = EffectError(error.code, error.message)
        except Exception as error:
            self.failure = error
            raise
        else:
            self.log.add(request, response=response, milliseconds=1_000 * (clock.monotonic() - began))
            return response
        self.log.add(request, error=failure, milliseconds=1_000 * (clock.monotonic() - began))
        raise failure

    async def _do(self, request: EffectRequest, work: _Work) -> Any:
        private, act, options = self._private, self._act(request, work), self._options(request)
        if private is None:
            return from_json(await self._ctx.do(act, request.payload, **options))
        return private.sealer.open(await self._ctx.do(act, private.sealer.seal(request.payload), **options))

    def _failure(self, error: EffectFailed) -> EffectError:
        kind, facts = str(error.fields.get("kind") or error.code), error.fields.get("facts")
        if self._private is not None and isinstance(facts, str):
            message, fields = self._private.sealer.open(facts)
            return EffectError(kind, message, fields)
        return EffectError(kind, error.message, from_json(facts or {}))

    async def together(self, coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
        return await asyncio.gather(*coroutines, return_exceptions=True)

    def _act(self, request: EffectRequest, work: _Work) -> Any:
        private = self._private
        tries = 0

        async def act(payload: Any, *, idempotency_key: str) -> Any:  # noqa: ARG001 (the journal compares it)
            nonlocal tries
            tries += 1
            try:
                response = await self._perform_in_time(request, work, request.idempotency_key or idempotency_key)
                return to_json(response) if private is None else private.sealer.seal(response)
            except EffectError as error:
                status = self._kernel_status(request, error, tries)
                if private is not None:
                    raise private.seal_failure(error, status) from None
                facts = to_json(error.fields)
                raise EffectFailed(error.message or error.kind, kind=error.kind, status=status, facts=facts) from error
            except Exception as error:
                if private is None:
                    raise
                raise private.seal_failure(private.effect_error(error), KERNEL_STATUS["ends"]) from None

        return act

    async def _perform_in_time(self, request: EffectRequest, work: _Work, key: str) -> Any:
        """Return the response, in the time and the memory that the step and the execution have."""
        left_s = self._time.left_s
        if left_s <= 0.0:
            raise EffectError("timeout", "the node has used its time")
        limit_s = left_s if request.timeout_s is None else min(request.timeout_s, left_s)
        clock = self._ctx.own_process.core.clock
        try:
            response = to_plain_value(await in_time(clock, work(key), limit_s, request.step))
        except DeadlineExceeded as error:
            raise EffectError("timeout", error.message) from error
        except UnreadableInputs:
            raise EffectError("type_error", f"the response of {request.step} is no value of a node") from None
        if is_larger(response, self._program.limits.memory_mb * 1024 * 1024):
            raise EffectError("resource_limit", f"the response of {request.step} takes more memory than the node may")
        return response

    def _kernel_status(self, request: EffectRequest, error: EffectError, tries: int) -> int:
        """Return the status by which the kernel tries again, counts the failure, or does neither."""
        policy = self._policies.get(request.step, ActPolicy())
        if policy.is_retried(request, error) and request.retry is not None and tries < request.retry.attempts:
            pause_s = kernel_retry(request.retry).delay(tries, lambda: 0.5)
            if pause_s < self._time.left_s:
                return KERNEL_STATUS["again"]
        return KERNEL_STATUS["counts" if policy.is_counted(request, error) else "ends"]

    def _options(self, request: EffectRequest) -> dict[str, Any]:
        options: dict[str, Any] = {
            "name": f"vesper:{request.kind}",
            "idempotent": self._world.may_repeat(request),
            "needs": _needs(request),
        }
        breaker = self._policies.get(request.step, ActPolicy()).breaker
        if breaker is not None:
            options["circuit_breaker"] = breaker
            options["name"] = f"vesper:{request.kind}:{self._program.node_id}:{request.step}"
        if request.retry is not None:
            options["retry"] = kernel_retry(request.retry)
        return options


def _needs(request: EffectRequest) -> list[str]:
    """Return the rights of an act. A query needs one for each table that its text reads, whatever its step names."""
    if request.kind in _OWN:
        return []
    if request.kind == TRANSACTION:
        return [str(right) for right in request.payload["rights"]]
    if request.kind != "db.query":
        return [request.capability]
    try:
        tables = query_tables(str(request.payload["query"])).tables
    except SqlRefused as error:
        raise CapabilityDenied(f"the query is refused: {error.message}") from error
    return [f"database.read.{table}" for table in tables] or [request.capability]


# The kernel sorts an error by its status: 500 is tried again, 503 counts for the breaker, 400 does neither.
KERNEL_STATUS: Final = {"again": 500, "counts": 503, "ends": 400}
_PASSING: Final = frozenset({"timeout", "unreachable", "database_unavailable", "conflict"})
_PASSING_CLASSES: Final = frozenset({"overloaded", "timeout", "temporary"})


class ActPolicy(msgspec.Struct, frozen=True):
    """What the rules of a node say about one of its steps. `counted` are the errors that its breaker counts."""

    breaker: CircuitBreaker | None = None
    counted: frozenset[str] = frozenset()
    rules: tuple[ErrorRule, ...] = ()  # of the step

    def is_retried(self, request: EffectRequest, error: EffectError) -> bool:
        retry = request.retry
        if retry is None:
            return False
        names = frozenset(retry.errors)
        return not names.isdisjoint(error_names(error, request.kind)) or ("*" in names and _passes(error))

    def is_counted(self, request: EffectRequest, error: EffectError) -> bool:
        """Return whether the breaker counts this error."""
        names = {*error_names(error, request.kind), *self._find_answer_code(request, error)}
        return bool(self.counted & names) or ("*" in self.counted and _passes(error))

    def _find_answer_code(self, request: EffectRequest, error: EffectError) -> list[str]:
        """Return the code that the first matching rule of the step answers with. Refusals of Lyra and of the server by
        4xx say nothing about the server's health."""
        if not _passes(error):
            return []
        names = ("*", *error_names(error, request.kind))
        codes = [rule.answer.code for rule in self.rules if rule.error in names and rule.answer is not None]
        return [str(code.value) for code in codes[:1] if isinstance(code, Constant)]


def _passes(error: EffectError) -> bool:
    """Return whether the same request may go well a moment later."""
    status = error.fields.get("status")
    if isinstance(status, int) and status:
        return status >= 500
    cause = error.__cause__
    return error.kind in _PASSING or (isinstance(cause, Exception) and error_class(cause) in _PASSING_CLASSES)


def _policy(step: EffectStep | TransactionStep, program: NodeProgram) -> ActPolicy:
    rules = [rule for rule in (*step.rules, *program.rules) if rule.action == "circuit_breaker"]
    if not rules:
        return ActPolicy()
    breaker = CircuitBreaker(threshold=rules[0].threshold, reset_after=rules[0].open_s, half_open_max=1, per="call")
    return ActPolicy(breaker, frozenset(rule.error for rule in rules), step.rules)


def kernel_retry(retry: StepRetry) -> KernelRetry:
    backoff = Backoff(
        kind=retry.backoff,
        initial_s=retry.initial_delay_s,
        factor=float(retry.base),
        max_s=max(RETRY_DELAY_S_MAX, retry.initial_delay_s),
    )
    return KernelRetry(max_attempts=retry.attempts, backoff=backoff, on=("temporary",))


class ExecutionTime:
    """Called, it gives the seconds that were not spent in acts."""

    def __init__(self, time_s: float, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._deadline = monotonic() + time_s
        self._acts = 0  # that are under way
        self._since = 0.0  # when the first of them began
        self._waited_s = 0.0

    def __call__(self) -> float:
        now = self._since if self._acts else self._monotonic()
        return now - self._waited_s

    def extend(self, seconds: float) -> None:
        """Leave out time in which a debugger held the execution."""
        self._deadline += seconds
        if not self._acts:  # the time of an act is left out already
            self._waited_s += seconds

    @property
    def left_s(self) -> float:
        """Seconds until the execution has used its time."""
        return self._deadline - self._monotonic()

    @contextmanager
    def act(self) -> Iterator[None]:
        """While an act is under way."""
        if not self._acts:
            self._since = self._monotonic()
        self._acts += 1
        try:
            yield
        finally:
            self._acts -= 1
            if not self._acts:
                self._waited_s += self._monotonic() - self._since
