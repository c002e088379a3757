"""Effects of a node through the kernel's door: rights, retries, time-outs, the journal and recovery are the kernel's.

Each request becomes one Effect of the process that runs the node. What the act gives, or how it fails, is journaled, so
that a process which is killed goes on after the last finished act; an act that was under way is made again where that
is safe, and put to a person where it is not. `DoorEffects` logs what was performed, for the other path to replay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from lyra.core.policies.retry import Backoff
from lyra.core.policies.retry import Retry as KernelRetry
from lyra.errors import CapabilityDenied, CircuitOpen, DeadlineExceeded, EffectFailed, EffectInDoubt, LyraError
from lyra.vesper.effects.performers import NodeWorld, perform
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

    def __init__(self, ctx: Context, world: NodeWorld, log: EffectLog) -> None:
        self._ctx = ctx
        self._world = world
        self.log = log

    async def perform(self, request: EffectRequest) -> Any:
        try:
            response = from_json(await self._ctx.do(self._act(request), request.payload, **self._options(request)))
        except CapabilityDenied as error:
            failure = EffectError("capability_denied", error.message)
        except DeadlineExceeded as error:
            failure = EffectError("timeout", error.message)
        except CircuitOpen as error:
            failure = EffectError("circuit_open", error.message)
        except EffectInDoubt as error:
            failure = EffectError("in_doubt", error.message)
        except EffectFailed as error:
            kind = error.fields.get("kind") or error.code
            failure = EffectError(str(kind), error.message, from_json(error.fields.get("facts") or {}))
        except LyraError as error:
            failure = EffectError(error.code, error.message)
        else:
            self.log.add(request, response=response)
            return response
        self.log.add(request, error=failure)
        raise failure

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
