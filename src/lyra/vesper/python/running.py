"""The state of one run of generated code: its execution, steps and time used, effects and compensations.

A generated function makes a `NodeRun` only where it needs it: when it reads the time, a predicate or an ambient object,
loops, or acts outside. It holds which contracts could not be judged. It decides nothing about a node: what happens in
which order stands in the generated function.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from copy import copy
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from lyra.errors import ContractViolation
from lyra.vesper.effects.request import (
    EffectError,
    EffectRequest,
    Effects,
    TransactionEnd,
    error_names,
    failure_code,
    request_key,
    transact,
)
from lyra.vesper.ir import TRANSACTION, StepRetry
from lyra.vesper.python.coercion import Coercer, Mismatch, to_any
from lyra.vesper.python.functions import size_of
from lyra.vesper.python.numbers import arithmetic_error
from lyra.vesper.python.operators import text_of
from lyra.vesper.values.outcome import NOT_CONFIGURED, Execution, NodeError, WrongAnswer, describe_answer, new_execution

__all__ = [
    "ABSENT",
    "DeclaredError",
    "EffectFailure",
    "NodeRun",
    "StepRetry",
    "Unverifiable",
    "WrongAnswer",
    "answer",
    "as_error",
    "attempt",
    "coerce_input",
    "coerce_output",
    "coerce_output_if_present",
    "contract_error",
    "error_facts",
    "error_fields",
    "error_object",
    "has_rows",
    "holds",
    "incomplete",
    "invalid_transition",
    "loop_limit",
    "matches",
    "present",
    "read_answer",
    "recall_old",
    "snapshot",
    "without_absent",
]

T = TypeVar("T")
_STEPS_BETWEEN_CLOCKS: Final = 256


class Absent:
    """The value of a variable that no step has assigned yet; null to those that read it."""


ABSENT: Final = Absent()


class Unverifiable(NodeError):
    """A predicate or an ambient object is missing. Inside a contract it makes the contract unverifiable."""

    def __init__(self, message: str) -> None:
        super().__init__("type_error", message)


class _BrokenContract(NodeError, ContractViolation):
    """A precondition, postcondition, invariant or constraint does not hold."""


class EffectFailure(NodeError):
    """An act outside the node failed; `names` are what rules match."""

    def __init__(self, error: EffectError, effect: str) -> None:
        super().__init__(failure_code(error.kind, effect), error.message, fields=error.fields)
        self.kind = error.kind
        self.names = error_names(error, effect)


def contract_error(code: str, text: str, phase: str) -> _BrokenContract:
    """Return the error of a contract that does not hold."""
    return _BrokenContract(code, f"does not hold: {text}", phase=phase)


class DeclaredError(NodeError):
    """The error that a node itself answers with. Rules do not look at it again."""


def answer(code: Any, fields: dict[str, Any], code_field: str = "") -> DeclaredError:
    """Return the error that a node declares: its code and its other fields; the field of the code is among them."""
    if not isinstance(code, str):
        raise NodeError("type_error", "an error code is a string")
    message = fields.get("message")
    text = message if type(message) is str else text_of(message)
    return DeclaredError(code, text, fields={code_field: code, **fields} if code_field else fields)


def coerce_output(coerce: Coercer, value: Any, where: str) -> Any:
    """Return an output in its declared type."""
    try:
        return coerce(value, where)
    except Mismatch as error:
        raise NodeError("type_error", str(error)) from None
    except ArithmeticError as error:
        raise arithmetic_error(error) from None


def read_answer(coerce: Coercer, value: Any, step: str, kind: str) -> Any:
    """Return the answer of an agent in the type that the step declares."""
    try:
        return coerce(value, step)
    except Mismatch:
        raise WrongAnswer(step, f"is no {kind}: it is {describe_answer(value)}") from None
    except ArithmeticError as error:
        raise arithmetic_error(error) from None


def coerce_output_if_present(coerce: Coercer, value: Any, where: str) -> Any:
    """Return an optional output in its declared type; ABSENT where it has no value."""
    return value if value is ABSENT else coerce_output(coerce, value, where)


def without_absent(outputs: dict[str, Any]) -> dict[str, Any]:
    """Return the outputs that have a value."""
    return {name: value for name, value in outputs.items() if value is not ABSENT}


def holds(condition: Callable[[], bool]) -> bool:
    """Return whether a condition is true; one that raises is not."""
    try:
        return condition()
    except (NodeError, ArithmeticError):
        return False


def coerce_input(coerce: Coercer, value: Any, where: str) -> Any:
    """Return an input in its declared type."""
    try:
        return coerce(value, where)
    except Mismatch as error:
        raise NodeError("invalid_input", str(error), phase="input") from None


def as_error(problem: NodeError | ArithmeticError) -> NodeError:
    """Return the node's error for what a step raised."""
    return problem if isinstance(problem, NodeError) else arithmetic_error(problem)


def incomplete(name: str) -> NodeError:
    """Return the error of a required output that has no value."""
    return NodeError("incomplete_output", f"the output {name!r} has no value")


def loop_limit(step: str, rounds: int) -> NodeError:
    """Return the error of a loop that has not ended after `max_iterations` rounds."""
    return NodeError("loop_limit", f"{step} goes on after {rounds} rounds")


def invalid_transition(machine: str, source: Any, target: Any) -> NodeError:
    """Return the error of a move that a state machine does not allow."""
    return NodeError("invalid_transition", f"{machine} does not go from {source} to {target}")


def has_rows(response: Any) -> bool:
    """Return whether a query gave anything."""
    return response is not None and response != []


def error_fields(error: NodeError, code_field: str) -> dict[str, Any]:
    """Return the error's fields as contracts see them."""
    named = {code_field: error.code} if code_field else {}
    return {**named, "message": _read_declared_message(error), **error.fields}


def _read_declared_message(error: NodeError) -> str:
    """Return the message that the error declares; how Lyra words its own errors decides no contract."""
    return error.message if "message" in error.fields else ""


def error_object(error: NodeError | None) -> dict[str, Any]:
    """Return `error` as contracts see it; None: no error occurred."""
    if error is None:
        return {"occurred": False, "code": None, "message": None, "logged": False}
    return {"occurred": True, "code": error.code, "message": _read_declared_message(error), "logged": True}


def error_facts(error: NodeError) -> dict[str, Any]:
    """Return `error` as rules see it: kind and message of a failed act, only the code of Lyra's own errors."""
    if isinstance(error, EffectFailure | WrongAnswer):
        return {**error_object(error), "code": error.kind, "message": error.message}
    return {**error_object(error), "message": ""}


def present(value: Any) -> Any:
    """Return a variable's value, or null where it has none yet."""
    return None if value is ABSENT else value


def recall_old(value: Any) -> Any:
    """Return the value that an expression had before the first step; its error, where it had none."""
    if isinstance(value, NodeError):
        raise value
    return value


def snapshot(value: Any) -> Any:
    """Return a deep copy of a value."""
    if isinstance(value, list):
        return [snapshot(element) for element in value]
    if isinstance(value, dict):
        return {key: snapshot(element) for key, element in value.items()}
    return value


class NodeRun:
    """What one run of a generated function shares between its steps."""

    __slots__ = (
        "_ambient",
        "_calls",
        "_clock_in",
        "_deadline",
        "_effects",
        "_key",
        "_steps_left",
        "_undo",
        "execution",
        "unverifiable",
    )

    def __init__(self, execution: Execution | None = None, effects: Effects | None = None) -> None:
        self.execution = new_execution() if execution is None else execution
        self.unverifiable: list[str] = []
        self._effects = effects
        self._calls: dict[str, int] = {}
        self._undo: list[Callable[[], Awaitable[None]]] = []
        self._ambient: dict[str, Any] = {}
        self._key = self.execution.trace_id
        self._steps_left = 0
        self._clock_in = _STEPS_BETWEEN_CLOCKS
        self._deadline = 0.0

    def start(self, effects: Effects | None, steps: int, time_s: float, key: Any = None) -> None:
        """Set the limits of the run, and whom its effects go to."""
        self._effects = effects or self._effects
        self._steps_left = steps
        self._deadline = self.execution.monotonic() + time_s
        if isinstance(key, str) and key:
            self._key = key

    # ------------------------------------------------------------ limits
    def tick(self, steps: int) -> None:
        """Count the steps of one round of a loop, and look at the clock now and then."""
        self._steps_left -= steps
        if self._steps_left < 0:
            raise NodeError("resource_limit", "the node takes more steps than it may")
        self._clock_in -= steps
        if self._clock_in < 0:
            self._clock_in = _STEPS_BETWEEN_CLOCKS
            self.check_time()

    def spend(self, elements: list[Any]) -> list[Any]:
        """Count the elements that a loop goes over."""
        self.tick(len(elements))
        return elements

    def call_metered(self, function: Callable[..., T], *arguments: Any, **limits: int) -> T:
        """Return the value of a function, after its arguments are counted as steps."""
        self.tick(size_of(arguments))
        return function(*arguments, **limits)

    def note_unverifiable(self, text: str) -> bool:
        """Note a contract that cannot be judged. It stops nothing, so this is true."""
        if text not in self.unverifiable:
            self.unverifiable.append(text)
        return True

    def holds(self, condition: Callable[[], bool], text: str) -> bool:
        """Return whether a contract is true. One about a value that the context lacks is noted as unverifiable and
        counts as true."""
        try:
            return condition()
        except Unverifiable:
            return self.note_unverifiable(text)
        except (NodeError, ArithmeticError):
            return False

    def check_time(self) -> None:
        if self.execution.monotonic() > self._deadline:
            raise NodeError("timeout", "the node takes more time than it may")

    # ------------------------------------------------------------ the execution's context
    @property
    def now(self) -> datetime:
        return self.execution.now.astimezone(UTC)

    @property
    def year(self) -> int:
        return self.now.year

    def ambient(self, name: str) -> Any:
        """Return an object that the caller's context supplies."""
        if name not in self._ambient:
            if name not in self.execution.ambient:
                raise Unverifiable(f"the context has no {name!r}")
            try:
                self._ambient[name] = to_any(self.execution.ambient[name], name)
            except Mismatch as error:
                raise NodeError("type_error", str(error)) from None
        return self._ambient[name]

    def ask_host(self, name: str, *arguments: Any) -> Any:
        """Return the answer of a predicate of the host program."""
        predicate = self.execution.predicates.get(name)
        if predicate is None:
            raise Unverifiable(f"there is no predicate {name!r}")
        try:
            return to_any(predicate(*arguments), name)
        except NodeError:
            raise
        except Exception as error:
            raise NodeError("type_error", f"the predicate {name} failed: {type(error).__name__}") from error

    # ------------------------------------------------------------ effects
    async def perform(
        self,
        step: str,
        kind: str,
        capability: str,
        payload: Any,
        *,
        timeout_s: float | None = None,
        retry: StepRetry | None = None,
    ) -> Any:
        """Return the response of an act outside the node."""
        effects, index, key = self._number_request(step)
        request = EffectRequest(step, index, kind, capability, payload, timeout_s, retry, key)
        try:
            response = await effects.perform(request)
        except EffectError as error:
            raise EffectFailure(error, kind) from None
        self.check_time()
        try:
            return to_any(response, step)
        except Mismatch as error:
            raise NodeError("type_error", str(error)) from None

    async def transact(
        self,
        step: str,
        capability: str,
        payload: Any,
        steps: Callable[[NodeRun], Awaitable[Any]],
        *,
        timeout_s: float | None = None,
        retry: StepRetry | None = None,
    ) -> Any:
        """Run the steps of a transaction, each time with a state of their own; what they return is committed, and what
        they raise takes back what they did."""
        effects, index, key = self._number_request(step)
        request = EffectRequest(step, index, TRANSACTION, capability, payload, timeout_s, retry, key)

        async def attempt(inner_effects: Effects) -> TransactionEnd:
            inner = copy(self)
            inner._effects, inner._calls, inner.unverifiable = inner_effects, dict(self._calls), [*self.unverifiable]
            try:
                return TransactionEnd(True, (inner, await steps(inner)))
            except (NodeError, ArithmeticError) as error:
                return TransactionEnd(False, (inner, error))

        try:
            end = await transact(effects, request, attempt)
        except EffectError as error:
            raise EffectFailure(error, TRANSACTION) from None
        inner, result = end.result
        self._calls, self._steps_left, self._clock_in = inner._calls, inner._steps_left, inner._clock_in
        self.unverifiable[:] = inner.unverifiable
        self.check_time()
        if not end.commits:
            raise result
        return result

    def _number_request(self, step: str) -> tuple[Effects, int, str]:
        """Return who performs the next request of a step, its number and its key."""
        if self._effects is None:
            raise NodeError("capability_denied", f"{step}: the node was given no effects")
        index = self._calls.get(step, 0)
        self._calls[step] = index + 1
        return self._effects, index, request_key(self._key, step, index)

    async def together(self, coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
        """Run all of them; the first error in their order is raised when all have ended."""
        results = await self._await_all(coroutines)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return results

    async def first_answer(self, coroutines: Sequence[Coroutine[Any, Any, Any]]) -> dict[str, Any] | None:
        """Run all of them; when all have ended, the first in their order that has an answer or an error ends the
        node."""
        for result in await self._await_all(coroutines):
            if isinstance(result, BaseException):
                raise result
            if result is not None:
                answer: dict[str, Any] = result
                return answer
        return None

    async def _await_all(self, coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
        at_once = getattr(self._effects, "together", None)
        results: list[Any] = []
        if at_once is not None:
            results = await at_once(coroutines)
        else:
            for coroutine in coroutines:
                try:
                    results.append(await coroutine)
                except Exception as error:  # noqa: BLE001 - raised by the callers, when all have ended
                    results.append(error)
        return results

    # ------------------------------------------------------------ compensation
    def on_undo(self, compensation: Callable[[], Awaitable[None]]) -> None:
        """Register what takes a completed step back."""
        self._undo.append(compensation)

    async def resolve_error(self, problem: NodeError | ArithmeticError) -> NodeError:
        """Return the node's error; a broken invariant takes back what was done."""
        error = as_error(problem)
        if error.code == "invariant_failed":
            await self.undo()
        return error

    async def undo(self, *first: Callable[[], Awaitable[None]]) -> None:
        """Run these compensations, then the registered ones, the latest first. Their own errors are passed over."""
        pending = self._undo[::-1]
        self._undo.clear()
        for compensation in (*first, *pending):
            try:
                await compensation()
            except (NodeError, ArithmeticError):
                continue


def attempt(compensation: Callable[[], None]) -> None:
    """Run a compensation of a pure node. Its error is passed over."""
    with suppress(NodeError, ArithmeticError):
        compensation()


def matches(error: NodeError, *rules: str) -> bool:
    """Return whether a rule for one of these errors applies; * applies to any."""
    names = error.names if isinstance(error, EffectFailure) else (error.code,)
    return NOT_CONFIGURED not in names and any(rule == "*" or rule in names for rule in rules)
