"""What a path asks for when a step acts outside the node, and the error that such an act ends with.

A path awaits `effects.perform(request)` and is given the response, or an EffectError. Who performs it (a live host, a
replay of a journal, a comparison) also does what lasts longer than one call: retries by `request.retry`, their delays,
time-outs and circuit breakers. Rules of a step with the actions retry, backoff and circuit_breaker are therefore passed
over by paths; a path obeys map_to and return_error (the rule's answer ends the node) and compensate.

Compensation: a completed effect step that has compensate rules with steps registers them. When an error meets a
compensate rule, that rule's steps run first, then the registered ones of completed steps, the latest first; an
invariant that fails after the entry runs the registered ones too, before the rules of the node. The rules of a step are
about its request and response: an invariant that fails after it does not meet them. Invariants are not judged inside a
compensation: one that is broken must not stop what takes its cause back. An error inside a compensation is passed over.
Where the entry fails, nothing was done, and nothing is taken back. The steps of the rule that was met read and assign
the flow's variables. Registered ones have variables of their own, as they were when their step was completed: in a
loop, each round is taken back with its own values; `error` is null in them. In rules, `error.code` is the kind of a
failed act's error, and `error.message` is empty where Lyra itself raised the error, as it is in contracts.
`transact(effects, request, body)` is for steps of a transaction, which are one act: a method `transact` of the effects,
where there is one, may run the body several times, each time with other effects, and takes back what it did in all but
the last. A body works on variables of its own; the path takes them over when it has ended with `commits`.
`effects.together(coroutines)`, where there is such a method, runs the steps of a Parallel at once and gives results and
exceptions in their order; without it they run in written order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from lyra.vesper.ir import EffectStep, NodeProgram, StepRetry, TransactionStep, TransitionStep
from lyra.vesper.values.outcome import CODES


class EffectRequest(msgspec.Struct, frozen=True):
    """An act outside the node. `call_index` counts the requests of one step within the execution, from 0."""

    step: str
    call_index: int
    kind: str
    capability: str
    payload: Any
    timeout_s: float | None = None
    retry: StepRetry | None = None
    idempotency_key: str = ""


class EffectError(Exception):
    """The act failed. `kind` is what rules match: timeout, a server's error code, a callee's code, a code of Lyra."""

    def __init__(self, kind: str, message: str = "", fields: dict[str, Any] | None = None) -> None:
        super().__init__(message or kind)
        self.kind = kind
        self.message = message
        self.fields = fields or {}


class Effects(Protocol):
    """Performs the acts of one execution."""

    async def perform(self, request: EffectRequest) -> Any: ...


class TransactionEnd(NamedTuple):
    """How one run of a transaction's steps ended. `result` is the path's own."""

    commits: bool
    result: Any


TransactionBody = Callable[[Effects], Awaitable[TransactionEnd]]


async def transact(effects: Effects, request: EffectRequest, body: TransactionBody) -> TransactionEnd:
    """Return how the steps of a transaction ended. Effects that know no transactions perform one request at a time."""
    run = getattr(effects, "transact", None)
    end: TransactionEnd = await (body(effects) if run is None else run(request, body))
    return end


def failure_code(kind: str, effect: str) -> str:
    """Return the node's error code for an effect that failed and met no rule: a callee's code, a code of Lyra, else
    `effect_failed`."""
    return kind if effect == "node.call" or kind in CODES else "effect_failed"


def error_names(error: EffectError, effect: str) -> tuple[str, ...]:
    """Return the names by which rules may match a failed act: its code, its kind, and the status of a server's answer,
    as in http_402 or http_4xx."""
    names = (failure_code(error.kind, effect), error.kind)
    status = error.fields.get("status") if effect == "http.call" else None
    if type(status) is not int or not 300 <= status <= 599:
        return names
    return (*names, f"http_{status}", f"http_{status // 100}xx")


def request_key(base: str, step: str, call_index: int) -> str:
    """Return the idempotency key of a request; `base` is the execution's key input, or its trace id."""
    return f"{base}/{step}/{call_index}"


def retry_of(step: EffectStep | TransitionStep | TransactionStep, program: NodeProgram) -> StepRetry | None:
    """Return how a step's request may be repeated: by its own policy, else by the node's rules that repeat. The first
    of them says how often; the errors of all are tried again."""
    own = None if isinstance(step, TransitionStep) else step.retry
    rules = [rule.retry or StepRetry() for rule in program.rules if rule.action in ("retry", "backoff")]
    policies = [own, *rules] if own is not None else rules
    if not policies:
        return None
    first = policies[0]
    if own is not None and "*" in own.errors:
        return own
    errors = dict.fromkeys(error for policy in policies for error in policy.errors)
    return msgspec.structs.replace(first, errors=tuple(errors))
