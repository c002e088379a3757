"""Nodes as others use them: a tool of an agent, a stage of a pipeline.

    agent = lyra.Agent("clerk", model="sim/echo", tools=[tool_of(node, runtime)])
    kernel.register_agent("price", stage_of(node, runtime))

The node runs in its runtime, in its mode; a tool's arguments and results are JSON. A node that answers with an error
fails as a tool does, with its code, so that a model reads the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from lyra.core.rights.capability import Capability
from lyra.core.tool import Tool
from lyra.errors import ToolError
from lyra.vesper.values.json_values import json_shape
from lyra.vesper.values.types import (
    ANY,
    BOOLEAN,
    BYTES,
    INTEGER,
    STRING,
    TIMESTAMP,
    Array,
    DecimalType,
    EnumType,
    MapType,
    Nullable,
    RecordType,
    SetType,
    ValueType,
)

if TYPE_CHECKING:
    from lyra.vesper.ir import NodeProgram
    from lyra.vesper.nodes import Node
    from lyra.vesper.runtime.runtime import Runtime
    from lyra.vesper.values.outcome import Outcome

__all__ = ["inputs_schema", "json_schema", "stage_of", "tool_of"]

_SCALARS: Final[dict[ValueType, dict[str, Any]]] = {
    STRING: {"type": "string"},
    INTEGER: {"type": "integer"},
    BOOLEAN: {"type": "boolean"},
    BYTES: {"type": "string", "description": "base64"},
    TIMESTAMP: {"type": "string", "description": "ISO 8601"},
    ANY: {},
}


def tool_of(node: Node, runtime: Runtime) -> Tool:
    """A node as a tool: named by its id, described by its intent, with the rights that it needs."""
    program = runtime.program(node)

    async def run(**arguments: Any) -> Any:
        outcome = await asyncio.to_thread(runtime.execute, node, arguments)
        return json_shape(_outputs(outcome))

    return Tool(
        name=program.node_id.replace(".", "_"),
        description=program.intent,
        schema=inputs_schema(program),
        needs=tuple(Capability.parse(text) for text in program.capabilities),
        idempotent=program.pure or bool(program.idempotency_key),
        run=run,
        harmless=program.pure,
    )


def inputs_schema(program: NodeProgram) -> dict[str, Any]:
    """The JSON schema of a node's inputs."""
    properties = {
        entry.name: {**json_schema(entry.type), **({"description": entry.description} if entry.description else {})}
        for entry in program.inputs
    }
    required = [entry.name for entry in program.inputs if entry.required]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def stage_of(node: Node, runtime: Runtime) -> Callable[[Any], Awaitable[dict[str, Any]]]:
    """A node as an agent of pipelines. Its inputs are looked for by name in what the stages before it gave, the latest
    first, then in the envelope's metadata."""
    names = [entry.name for entry in runtime.program(node).inputs]

    async def stage(envelope: Any) -> dict[str, Any]:
        inputs = _inputs(envelope, names)
        outcome = await asyncio.to_thread(runtime.execute, node, inputs)
        outputs: dict[str, Any] = json_shape(_outputs(outcome))
        return outputs

    return stage


def _inputs(envelope: Any, names: list[str]) -> dict[str, Any]:
    sources: list[Mapping[str, Any]] = [*reversed(list(envelope.outputs.values())), envelope.metadata]
    known = {name: source for name in names for source in reversed(sources) if name in source}
    return {name: source[name] for name, source in known.items()}


def _outputs(outcome: Outcome) -> dict[str, Any]:
    failure = outcome.error
    if failure is None:
        return outcome.outputs
    raise ToolError(
        f"{failure.code}: {failure.message}" if failure.message else failure.code,
        reason="invalid_arguments" if failure.phase in ("input", "precondition") else "exec_failed",
        node_code=failure.code,
    )


def json_schema(kind: ValueType) -> dict[str, Any]:
    """The JSON schema of the values that an input of this type takes."""
    match kind:
        case Nullable():
            return {"anyOf": [json_schema(kind.type), {"type": "null"}]}
        case DecimalType():
            return {"type": ["number", "string"], "description": "a decimal number; as text it stays exact"}
        case EnumType():
            return {"type": "string", "enum": list(kind.values)}
        case Array():
            return {"type": "array", "items": json_schema(kind.item)}
        case SetType():
            return {"type": "array", "items": json_schema(kind.item), "uniqueItems": True}
        case MapType():
            return {"type": "object", "additionalProperties": json_schema(kind.value)}
        case RecordType():
            return {
                "type": "object",
                "properties": {field.name: json_schema(field.type) for field in kind.fields},
                "required": [field.name for field in kind.fields if field.required],
                "additionalProperties": False,
            }
    return dict(_SCALARS[kind])
