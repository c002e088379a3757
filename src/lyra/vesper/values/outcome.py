"""What an execution of a node is given and what it gives: its context, its outcome, the error that ends it.

An `Execution` fixes the time, the trace id, the ambient objects and the predicates of the host program before the first
step. Both paths are given the same object, so that they cannot differ by when they ran. It holds no state: ids of a
sequence come from their number (`uuid(0)`, `uuid(1)`), and a path counts for itself. `monotonic` measures time limits
and nothing else; a test passes a function of its own. `outcome_data` is an outcome as a journal keeps it.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from lyra.core.clock import SystemClock
from lyra.vesper.values.json_values import from_json, to_json

# Codes that Lyra gives; a node declares others of its own.
CODES: Final = (
    *("invalid_input", "precondition_failed", "postcondition_failed", "invariant_failed", "validation_failed"),
    *("overflow", "division_by_zero", "type_error", "unknown_zone", "not_a_number", "incomplete_output"),
    *("invalid_transition", "loop_limit", "capability_denied", "timeout", "resource_limit", "effect_failed"),
    *("not_configured",),
)
NOT_CONFIGURED: Final = "not_configured"  # a mistake of the host program: no rule of a node is ever met by it


class NodeFailure(msgspec.Struct, frozen=True):
    """Why a node answered with an error."""

    code: str
    message: str = ""
    phase: str = "flow"  # input, precondition, flow, postcondition or invariant
    fields: dict[str, Any] = {}  # the declared error fields, the code and the message among them


class Outcome(msgspec.Struct, frozen=True):
    """How an execution ended: the success fields, or a failure."""

    status: str  # success or error
    outputs: dict[str, Any] = {}
    error: NodeFailure | None = None
    path: str = ""  # python, direct or reference
    unverifiable: tuple[str, ...] = ()  # texts of contracts that could not be judged
    trace_id: str = ""  # set by the runtime


class NodeError(Exception):
    """Ends an execution with an error of this code. Paths raise it inside; callers see an Outcome."""

    def __init__(
        self, code: str, message: str = "", *, phase: str = "flow", fields: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message or code)
        self.code = code
        self.message = message
        self.phase = phase
        self.fields = fields or {}


WRONG_ANSWER: Final = "the answer of"  # how the message of a WrongAnswer begins


class WrongAnswer(NodeError):
    """An act answered with a value that its step does not take. Every path words it like this, so rules may read it."""

    kind = "type_error"

    def __init__(self, step: str, problem: str) -> None:
        super().__init__("type_error", f"{WRONG_ANSWER} {step} {problem}")


def describe_answer(value: Any) -> str:
    """Return what an answer is, without its values: the kinds of its fields, the names of few of them."""
    if not isinstance(value, Mapping):
        return _kind_of(value)
    fields = [f"{str(name)[:_NAME_SHOWN]}: {_kind_of(item)}" for name, item in list(value.items())[:_FIELDS_SHOWN]]
    return f"{{{', '.join(fields)}{', …' * (len(value) > _FIELDS_SHOWN)}}}"


_FIELDS_SHOWN: Final = 20
_NAME_SHOWN: Final = 40  # characters
_KINDS: Final[dict[type, str]] = {bool: "boolean", int: "integer", str: "string", list: "array", type(None): "null"}


def _kind_of(value: Any) -> str:
    return "map" if isinstance(value, Mapping) else _KINDS.get(type(value), "decimal")


def outcome_data(outcome: Outcome) -> dict[str, Any]:
    failure = outcome.error
    error = None if failure is None else [failure.code, failure.message, failure.phase, to_json(failure.fields)]
    return {
        "status": outcome.status,
        "outputs": to_json(outcome.outputs),
        "error": error,
        "path": outcome.path,
        "unverifiable": list(outcome.unverifiable),
    }


def outcome_from(data: Mapping[str, Any]) -> Outcome:
    error = data["error"]
    failure = None if error is None else NodeFailure(error[0], error[1], error[2], from_json(error[3]))
    return Outcome(data["status"], from_json(data["outputs"]), failure, data["path"], tuple(data["unverifiable"]))


def build_refusal(code: str, message: str, *, phase: str = "flow") -> Outcome:
    """Return the outcome of an execution that was refused before any path ran."""
    return Outcome("error", error=NodeFailure(code, message, phase, {"error_code": code, "message": message}))


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """What both paths of one execution are given."""

    now: datetime  # aware, UTC
    trace_id: str = ""
    predicates: Mapping[str, Callable[..., Any]] = {}  # of the host program, by name
    ambient: Mapping[str, Any] = {}  # objects such as user, order and request, as JSON-shaped values
    monotonic: Callable[[], float] = SystemClock.monotonic  # seconds; for time limits

    def uuid(self, number: int) -> str:
        """Return the id of that number in this execution's sequence."""
        digest = hashlib.sha256(f"{self.trace_id}:{number}".encode()).digest()
        return str(uuid.UUID(bytes=digest[:16], version=4))


def new_execution(
    *,
    trace_id: str = "",
    predicates: Mapping[str, Callable[..., Any]] | None = None,
    ambient: Mapping[str, Any] | None = None,
) -> Execution:
    """Return an execution that starts now by the machine's clock."""
    now = datetime.fromtimestamp(SystemClock.now(), UTC)
    return Execution(now=now, trace_id=trace_id, predicates=predicates or {}, ambient=ambient or {})
