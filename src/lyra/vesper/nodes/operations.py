"""The operations of steps, in one table: their settings, and those that must be there.

A step may put its settings at its top or under `parameters`. What stands there and is no setting of the operation
is, for operations with `free` parameters, a value by name: of a query, a call, a template.
"""

from __future__ import annotations

from typing import Final

import msgspec

CUSTOM: Final = "custom."
STEP_KEYS: Final = (
    "step",
    "operation",
    "description",
    "parameters",
    "guards",
    "on_success",
    "on_error",
    "on_failure",
    "on_result",
    "error_handling",
    "timeout",
    "retry_policy",
    "output",
)


class Operation(msgspec.Struct, frozen=True):
    """What a step of this operation may and must say."""

    name: str
    settings: tuple[str, ...]
    required: tuple[str, ...] = ()
    free: bool = False  # `parameters` may hold values by names of the author's choice
    acts: bool = False  # has an effect outside the node
    text: str = ""


_TABLE: Final = (
    Operation(
        "validation",
        ("guards", "conditions", "condition", "rules", "checks", "return_error"),
        text="fails unless all guards are true",
    ),
    Operation(
        "conditional",
        ("condition", "then", "else"),
        required=("condition",),
        text="one of two blocks of steps",
    ),
    Operation(
        "state_machine_transition",
        ("state_machine", "entity", "from", "to"),
        required=("state_machine", "from", "to"),
        acts=True,
        text="moves an entity from one state to another",
    ),
    Operation("database_query", ("query",), required=("query",), free=True, acts=True, text="reads rows"),
    Operation(
        "database_write",
        ("table", "data", "consistency"),
        required=("table", "data"),
        acts=True,
        text="adds a row",
    ),
    Operation(
        "database_update",
        ("table", "where", "set", "consistency"),
        required=("table", "where", "set"),
        acts=True,
        text="changes rows",
    ),
    Operation(
        "external_api_call",
        ("provider", "endpoint", "method", "headers", "body", "url"),
        free=True,
        acts=True,
        text="calls a server",
    ),
    Operation("event_publish", ("event_type", "data"), required=("event_type",), acts=True, text="publishes an event"),
    Operation(
        "event_subscribe",
        ("event_type", "handler"),
        required=("event_type", "handler"),
        acts=True,
        text="registers a node for events, once",
    ),
    Operation(
        "data_transform",
        (
            "input",
            "transform",
            "function",
            "group_by",
            "aggregations",
            "initial",
            "as",
            "accumulator",
            "field",
            "condition",
        ),
        required=("input", "transform"),
        text="maps, filters, reduces, groups or aggregates a collection",
    ),
    Operation("string_template", ("template",), required=("template",), free=True, text="a text with values in it"),
    Operation(
        "arithmetic",
        ("expression", "scale", "rounding"),
        required=("expression",),
        free=True,
        text="the value of an expression",
    ),
    Operation(
        "return",
        ("return_success", "return_error", "success", "error"),
        free=True,
        text="ends the node",
    ),
    Operation("call_node", ("node_id", "inputs"), required=("node_id",), free=True, acts=True, text="runs a node"),
    Operation(
        "agent_call",
        ("agent", "prompt", "task", "input", "output_type"),
        required=("agent",),
        free=True,
        acts=True,
        text="asks an agent",
    ),
    Operation(
        "for_each",
        ("input", "as", "steps"),
        required=("input", "steps"),
        text="the steps for each element",
    ),
    Operation(
        "loop",
        ("condition", "max_iterations", "steps"),
        required=("condition", "steps"),
        text="the steps while a condition is true",
    ),
    Operation("parallel", ("steps",), required=("steps",), text="steps that do not need each other"),
    Operation("matrix.multiply", ("left", "right"), required=("left", "right"), text="the product of two matrices"),
)
OPERATIONS: Final[dict[str, Operation]] = {operation.name: operation for operation in _TABLE}
EFFECTS: Final = frozenset(operation.name for operation in _TABLE if operation.acts)


def operation_named(name: str) -> Operation | None:
    """The operation; `custom.<namespace>.<operation>` has free parameters."""
    if name.startswith(CUSTOM) and name.count(".") >= 2:
        return Operation(name, (), free=True, acts=True)
    return OPERATIONS.get(name)
