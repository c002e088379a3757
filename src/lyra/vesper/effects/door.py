"""Effects of a node through the kernel's door: rights, retries, time-outs, the journal and recovery are the kernel's.

Each request becomes one Effect of the process that runs the node. What the act gives, or how it fails, is journaled, so
that a process which is killed goes on after the last finished act; an act that was under way is made again where that
is safe, and put to a person where it is not. `policies` says which errors are tried again and which open a circuit
breaker; no act, no pause and no response goes beyond the limits of the execution. `DoorEffects` logs what was
performed, for the other path to replay. Where an execution has sensitive values, the journal gets requests, responses
and errors sealed (`private_effects`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from lyra.errors import CapabilityDenied, CircuitOpen, DeadlineExceeded, EffectFailed, EffectInDoubt, LyraError
from lyra.kernel.base.timeouts import in_time
from lyra.vesper.effects.performers import NodeWorld, perform
from lyra.vesper.effects.policies import KERNEL_STATUS, ActPolicy, kernel_retry, policies_of
from lyra.vesper.effects.private_effects import PrivateEffects
from lyra.vesper.effects.request import EffectError, EffectRequest
from lyra.vesper.sql.tables import query_tables
from lyra.vesper.sql.tokens import SqlRefused
from lyra.vesper.values.json_values import from_json, to_json
from lyra.vesper.values.plain import UnreadableInputs, is_larger, plain_value

if TYPE_CHECKING:
    from lyra.kernel.programs.context import Context
    from lyra.vesper.effects.execution_time import ExecutionTime
    from lyra.vesper.effects.replay import EffectLog
    from lyra.vesper.ir import NodeProgram


# A node's own state machines need no right; a node that is called needs its own.
_OWN: Final = frozenset({"state.transition", "node.call"})


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
        self._policies = policies_of(program)
        self._time = time

    async def perform(self, request: EffectRequest) -> Any:
        with self._time.act():
            return await self._perform(request)

    async def _perform(self, request: EffectRequest) -> Any:
        try:
            response = await self._done(request)
        except CapabilityDenied as error:
            failure = EffectError("capability_denied", error.message)
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
        else:
            self.log.add(request, response=response)
            return response
        self.log.add(request, error=failure)
        raise failure

    async def _done(self, request: EffectRequest) -> Any:
        private, act, options = self._private, self._act(request), self._options(request)
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

    def _act(self, request: EffectRequest) -> Any:
        private = self._private
        tries = 0

        async def act(payload: Any, *, idempotency_key: str) -> Any:  # noqa: ARG001 (the journal compares it)
            nonlocal tries
            tries += 1
            try:
                response = await self._performed(request, request.idempotency_key or idempotency_key)
                return to_json(response) if private is None else private.sealer.seal(response)
            except EffectError as error:
                status = self._kernel_status(request, error, tries)
                if private is not None:
                    raise private.failed(error, status) from None
                facts = to_json(error.fields)
                raise EffectFailed(error.message or error.kind, kind=error.kind, status=status, facts=facts) from error
            except Exception as error:
                if private is None:
                    raise
                raise private.failed(private.effect_error(error), KERNEL_STATUS["ends"]) from None

        return act

    async def _performed(self, request: EffectRequest, key: str) -> Any:
        """The response, in the time and the memory that the step and the execution have."""
        left_s = self._time.left_s
        if left_s <= 0.0:
            raise EffectError("timeout", "the node has used its time")
        limit_s = left_s if request.timeout_s is None else min(request.timeout_s, left_s)
        do = perform if self._private is None else self._private.perform
        work = do(self._world, request, self._ctx.grant, key)
        try:
            response = plain_value(await in_time(self._ctx.own_process.core.clock, work, limit_s, request.step))
        except DeadlineExceeded as error:
            raise EffectError("timeout", error.message) from error
        except UnreadableInputs:
            raise EffectError("type_error", f"the response of {request.step} is no value of a node") from None
        if is_larger(response, self._program.limits.memory_mb * 1024 * 1024):
            raise EffectError("resource_limit", f"the response of {request.step} takes more memory than the node may")
        return response

    def _kernel_status(self, request: EffectRequest, error: EffectError, tries: int) -> int:
        """The status by which the kernel tries again, counts the failure, or does neither."""
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
    """The rights of an act. A query needs one for each table that its text reads, whatever its step names."""
    if request.kind in _OWN:
        return []
    if request.kind != "db.query":
        return [request.capability]
    try:
        tables = query_tables(str(request.payload["query"])).tables
    except SqlRefused as error:
        raise CapabilityDenied(f"the query is refused: {error.message}") from error
    return [f"database.read.{table}" for table in tables] or [request.capability]
