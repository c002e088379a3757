"""What an execution of a node gives, and the error that ends one."""

from __future__ import annotations

from typing import Any, Final

import msgspec

# Codes that Lyra gives; a node declares others of its own.
CODES: Final = (
    "invalid_input",
    "precondition_failed",
    "postcondition_failed",
    "invariant_failed",
    "validation_failed",
    "overflow",
    "division_by_zero",
    "type_error",
    "incomplete_output",
    "invalid_transition",
    "loop_limit",
    "capability_denied",
    "timeout",
    "resource_limit",
    "effect_failed",
)


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
