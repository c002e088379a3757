"""Effects of a node through the kernel's door: rights, retries, time-outs, the journal and recovery are the kernel's.

Each request becomes one Effect of the process that runs the node. What the act gives, or how it fails, is journaled, so
that a process which is killed goes on after the last finished act; an act that was under way is made again where that
is safe, and put to a person where it is not. `DoorEffects` logs what was performed, for the other path to replay. Where
an execution has sensitive values, the journal gets requests, responses and errors sealed (`private_effects`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from lyra.core.policies.retry import Backoff
from lyra.core.policies.retry import Retry as KernelRetry
from lyra.errors import CapabilityDenied, CircuitOpen, DeadlineExceeded, EffectFailed, EffectInDoubt, LyraError
from lyra.vesper.effects.performers import NodeWorld, perform
from lyra.vesper.effects.private_effects import PrivateEffects
from lyra.vesper.effects.request import EffectError, EffectRequest
from lyra.vesper.values.tagged import from_json, to_json

if TYPE_CHECKING:
    from lyra.kernel.programs.context import Context
    from lyra.vesper.effects.replay import EffectLog
    from lyra.vesper.ir.program import StepRetry

__all__ = ["DoorEffects"]

# A node's own state machines need no right; a node that is called needs its own.
_OWN: Final = frozenset({"state.transition", "node.call"})
_RETRIED: Final = ("overloaded", "timeout", "temporary")  # a request that is wrong stays wrong


class DoorEffects:
    """The live effects of one execution."""

    def __init__(self, ctx: Context, world: NodeWorld, log: EffectLog, private: PrivateEffects | None = None) -> None:
        self._ctx = ctx
        self._world = world
        self._private = private
        self.log = log

    async def perform(self, request: EffectRequest) -> Any:
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
        private, options = self._private, self._options(request)
        if private is None:
            return from_json(await self._ctx.do(self._act(request), request.payload, **options))
        sealed = private.sealer.seal(request.payload)
        return private.sealer.open(await self._ctx.do(private.act(request, self._world, self._ctx), sealed, **options))

    def _failure(self, error: EffectFailed) -> EffectError:
        kind, facts = str(error.fields.get("kind") or error.code), error.fields.get("facts")
        if self._private is not None and isinstance(facts, str):
            message, fields = self._private.sealer.open(facts)
            return EffectError(kind, message, fields)
        return EffectError(kind, error.message, from_json(facts or {}))

    async def together(self, coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
        return await asyncio.gather(*coroutines, return_exceptions=True)

    def _act(self, request: EffectRequest) -> Any:
        world, ctx = self._world, self._ctx

        async def act(payload: Any, *, idempotency_key: str) -> Any:  # noqa: ARG001 (the journal compares it)
            try:
                key = request.idempotency_key or idempotency_key
                return to_json(await perform(world, request, ctx.grant, key))
            except EffectError as error:
                raise EffectFailed(
                    error.message or error.kind,
                    kind=error.kind,
                    status=error.fields.get("status"),
                    facts=to_json(error.fields),
                ) from error

        return act

    def _options(self, request: EffectRequest) -> dict[str, Any]:
        options: dict[str, Any] = {
            "name": f"vesper:{request.kind}",
            "idempotent": self._world.may_repeat(request),
            "needs": [] if request.kind in _OWN else [request.capability],
        }
        if request.timeout_s is not None:
            options["timeout_s"] = request.timeout_s
        if request.retry is not None:
            options["retry"] = _kernel_retry(request.retry)
        return options


def _kernel_retry(retry: StepRetry) -> KernelRetry:
    backoff = Backoff(kind=retry.backoff, initial_s=retry.initial_delay_s, factor=float(retry.base))
    return KernelRetry(max_attempts=retry.attempts, backoff=backoff, on=_RETRIED)
