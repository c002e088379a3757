"""Nodes as others use them: a tool of an agent, a stage of a pipeline, an import of a Vega program.

    agent = lyra.Agent("clerk", model="sim/echo", tools=[tool_of(node, runtime)])
    kernel.register_agent("price", stage_of(node, runtime))
    vega.run(source, nodes=ImportableNodes(database="sqlite:///orders.db", providers={"stripe": "https://…"}))

The node runs in its runtime, in its mode; a tool's arguments and results are JSON. A node that answers with an error
fails as a tool does, with its code, so that a model reads the reason.

`ImportableNodes` is a `NodeHost` (`lyra.core.imported_node`). A call is executed in a runtime of its own, with the
Grant of the calling process and no other right, in the mode that `vesper mode` has set in the store `modes_of`. With a
store a call survives a crash: repeated with its key, it finds the process that began, whose finished effects are
replayed. The runtime is made at the first call. Decimals, bytes and timestamps go out as texts, as in JSON.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Awaitable, Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lyra.core import codec
from lyra.core.budgets.money import Money
from lyra.core.imported_node import ImportedNode, NodeAnswer, NodeFile, NodeInputKind, NodeValueKind
from lyra.core.rights.capability import Capability, Grant
from lyra.core.tool import Tool
from lyra.errors import CheckError, LyraError, ToolError
from lyra.vesper.check.judge import program_of
from lyra.vesper.evidence.keys import evidence_key
from lyra.vesper.nodes.sections import read_node
from lyra.vesper.repository.folders import Repository, repository_around
from lyra.vesper.runtime.runtime import NodeCaller, Runtime
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
    from lyra.vesper.values.outcome import Outcome


_SCALARS: Final[dict[ValueType, dict[str, Any]]] = {
    STRING: {"type": "string"},
    INTEGER: {"type": "integer"},
    BOOLEAN: {"type": "boolean"},
    BYTES: {"type": "string", "description": "base64"},
    TIMESTAMP: {"type": "string", "description": "ISO 8601"},
    ANY: {},
}


def tool_of(node: Node, runtime: Runtime) -> Tool:
    """Return a node as a tool: named by its id, described by its intent, with the rights that it needs."""
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
    """Return the JSON schema of a node's inputs."""
    properties = {
        entry.name: {**json_schema(entry.type), **({"description": entry.description} if entry.description else {})}
        for entry in program.inputs
    }
    required = [entry.name for entry in program.inputs if entry.required]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def stage_of(node: Node, runtime: Runtime) -> Callable[[Any], Awaitable[dict[str, Any]]]:
    """Return a node as an agent of pipelines. Its inputs are looked for by name in what the stages before it gave, the
    latest first, then in the envelope's metadata."""
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
    """Return the JSON schema of the values that an input of this type takes."""
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


# ---------------------------------------------------------------- importable

_TEXT: Final = NodeValueKind("str")
_KINDS: Final[dict[ValueType, NodeValueKind]] = {
    INTEGER: NodeValueKind("int"),
    BOOLEAN: NodeValueKind("bool"),
    ANY: NodeValueKind("any"),
}


class ImportableNodes:
    """See the module. `store` is where executions are journaled, or a function that opens it at the first call."""

    def __init__(
        self,
        store: Any = "memory",
        *,
        database: str | None = None,
        providers: Mapping[str, str] | None = None,
        modes_of: str | Path | None = None,
        **options: Any,
    ) -> None:
        self._store = store
        self._options = {**options, "database": database, "providers": providers}
        self._modes_of = modes_of
        self._modes: dict[str, str] | None = None
        self._lock = threading.Lock()
        self._repository = Repository()
        self._runtime: Runtime | None = None
        self._opened: Any = None  # the store that was made for the runtime

    def read(self, file: str, text: str) -> NodeFile:
        return read_file(file, text)

    async def call(self, file: str, text: str, inputs: Mapping[str, Any], *, key: str, grant: Grant) -> NodeAnswer:
        return await asyncio.to_thread(self._call, file, text, inputs, NodeCaller(_short(key), grant))

    def _call(self, file: str, text: str, inputs: Mapping[str, Any], caller: NodeCaller) -> NodeAnswer:
        node, program = _program(file, text)
        runtime = self._open(file)
        outcome = runtime.execute(node, _node_values(inputs), self._mode(program), caller=caller)
        failure = outcome.error
        if failure is not None:
            return NodeAnswer({}, failure.code, failure.message)
        return NodeAnswer(json_shape(outcome.outputs))

    def _open(self, file: str) -> Runtime:
        """Return the runtime, which also finds the nodes beside this file."""
        with self._lock:
            self._repository.include(repository_around(file).folders)
            if self._runtime is None:
                self._opened = self._store() if callable(self._store) else None
                store = self._store if self._opened is None else self._opened
                self._runtime = Runtime(store, nodes=self._repository, **self._options)
            return self._runtime

    def _mode(self, program: NodeProgram) -> str | None:
        if self._modes is None:
            self._modes = {} if self._modes_of is None else _read_modes(str(self._modes_of))
        return self._modes.get(evidence_key(program, self._find_program)) if self._modes else None

    def _find_program(self, name: str) -> NodeProgram | None:
        node = self._repository.find(name)
        return None if node is None else program_of(node)

    def close(self) -> None:
        with self._lock:
            runtime, self._runtime = self._runtime, None
            opened, self._opened = self._opened, None
        if runtime is not None:
            runtime.close()
        if opened is not None:
            opened.close()

    def __enter__(self) -> ImportableNodes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_file(file: str, text: str) -> NodeFile:
    """Return the declarations of a `.vsp` file, or the reason why it is not a valid node."""
    try:
        _, program = _program(file, text)
    except CheckError as error:
        problems = error.fields.get("problems") or ()
        errors = [problem for problem in problems if problem.get("severity", "error") == "error"]
        if not errors:
            return NodeFile(file, text, None, error.message)
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        return NodeFile(file, text, None, f"line {errors[0].get('line', 1)}: {errors[0]['message']}{more}")
    except LyraError as error:
        return NodeFile(file, text, None, error.message)
    return NodeFile(file, text, _describe(program))


@lru_cache(256)
def _program(file: str, text: str) -> tuple[Node, NodeProgram]:
    node, issues = read_node(text, file)
    if node is None:
        raise CheckError(issues[0].message if issues else "the file is no mapping", file=file)
    return node, program_of(node)


def _describe(program: NodeProgram) -> ImportedNode:
    fields = tuple((entry.name, _output(_kind(entry.type))) for entry in program.success)
    return ImportedNode(
        node_id=program.node_id,
        intent=program.intent,
        inputs=tuple(NodeInputKind(entry.name, _kind(entry.type), entry.required) for entry in program.inputs),
        outputs=NodeValueKind("map", (_TEXT, NodeValueKind("any")), fields),
        capabilities=program.capabilities,
        is_pure=program.pure,
        schema=inputs_schema(program),
    )


def _kind(kind: ValueType) -> NodeValueKind:
    match kind:
        case Nullable():
            return _kind(kind.type)
        case DecimalType():
            return NodeValueKind("decimal")
        case Array() | SetType():
            return NodeValueKind("list", (_kind(kind.item),))
        case MapType():
            return NodeValueKind("map", (_TEXT, _kind(kind.value)))
        case RecordType():
            # Fields that need not be there are left out: a map is held against all fields of its kind.
            fields = tuple((field.name, _kind(field.type)) for field in kind.fields if field.required)
            return NodeValueKind("map", (_TEXT, NodeValueKind("any")), fields)
    return _KINDS.get(kind, _TEXT)


def _output(kind: NodeValueKind) -> NodeValueKind:
    """Return a decimal goes out as a text; one inside a list or map likewise."""
    name = "str" if kind.name == "decimal" else kind.name
    fields = tuple((field, _output(part)) for field, part in kind.fields)
    return NodeValueKind(name, tuple(_output(inner) for inner in kind.inner), fields)


def _node_values(value: Any) -> Any:
    """Return values of a program as a node takes them: an amount of money is a decimal."""
    if isinstance(value, Money):
        return Decimal(str(value.usd))
    if isinstance(value, Mapping):
        return {str(name): _node_values(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_node_values(item) for item in value]
    return value


def _short(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def _read_modes(store: str) -> dict[str, str]:
    """Return the modes of a store by the key of their evidence; empty where the store does not exist."""
    from lyra.store.space import Space
    from lyra.store.standing import refuse_foreign, vouch

    if not Path(store).is_file():
        return {}
    try:
        space = Space(store, "vesper", make=False, writes=False)
    except LyraError:
        return {}
    try:
        refuse_foreign(space, vouch(space, make_key=True))
        rows = [codec.decode(row.data) for row in space.read(kind="vesper.mode")]
    finally:
        space.close()
    return {row["digest"]: row["to"] for row in rows}
