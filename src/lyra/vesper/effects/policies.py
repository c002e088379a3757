"""What the kernel's policies do about a failed act: which errors are tried again, and which open a circuit breaker.

A step is retried by its `retry_policy`, by rules with the actions retry and backoff, and by such rules of the node. A
rule that names an error retries that error; `*` and a policy without names retry what may pass by itself: answers with
5xx, time-outs, servers that cannot be reached. A rule with the action circuit_breaker gives each step of the node a
breaker of its own, which counts calls that failed after their last try; a rule may name the error of the act or the
code that the step's rules turn it into. `KERNEL_STATUS` tells the kernel, by a status, what is to be done.
"""

from __future__ import annotations

from typing import Final

import msgspec

from lyra.core.policies.breaker import CircuitBreaker
from lyra.core.policies.retry import Backoff, error_class
from lyra.core.policies.retry import Retry as KernelRetry
from lyra.vesper.check.walk import parts_of
from lyra.vesper.effects.request import EffectError, EffectRequest, failure_code
from lyra.vesper.ir import Constant, EffectStep, ErrorRule, NodeProgram, StepRetry
from lyra.vesper.values.limits import RETRY_DELAY_S_MAX

# The kernel sorts an error by its status: 500 is tried again, 503 counts for the breaker, 400 does neither.
KERNEL_STATUS: Final = {"again": 500, "counts": 503, "ends": 400}
_PASSING: Final = frozenset({"timeout", "unreachable", "database_unavailable"})
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
        return bool(names & {error.kind, failure_code(error.kind, request.kind)}) or ("*" in names and _passes(error))

    def is_counted(self, request: EffectRequest, error: EffectError) -> bool:
        """Whether the breaker counts this error."""
        names = {error.kind, failure_code(error.kind, request.kind), *self._mapped(request, error)}
        return bool(self.counted & names) or ("*" in self.counted and _passes(error))

    def _mapped(self, request: EffectRequest, error: EffectError) -> list[str]:
        """The code that the first matching rule of the step answers with. Refusals of Lyra and of the server by 4xx
        say nothing about the server's health."""
        if not _passes(error):
            return []
        names = ("*", error.kind, failure_code(error.kind, request.kind))
        codes = [rule.answer.code for rule in self.rules if rule.error in names and rule.answer is not None]
        return [str(code.value) for code in codes[:1] if isinstance(code, Constant)]


def _passes(error: EffectError) -> bool:
    """Whether the same request may go well a moment later."""
    status = error.fields.get("status")
    if isinstance(status, int) and status:
        return status >= 500
    cause = error.__cause__
    return error.kind in _PASSING or (isinstance(cause, Exception) and error_class(cause) in _PASSING_CLASSES)


def policies_of(program: NodeProgram) -> dict[str, ActPolicy]:
    """The policy of each effect step, by its name."""
    acts = [part for part in parts_of((program.steps, program.rules)) if isinstance(part, EffectStep)]
    return {act.name: _policy(act, program) for act in acts}


def _policy(step: EffectStep, program: NodeProgram) -> ActPolicy:
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
