"""Nodes that Vega programs import: what they declare, and their calls.

    vega.run(source, nodes=ImportableNodes(database="sqlite:///orders.db", providers={"stripe": "https://…"}))

`ImportableNodes` is a `NodeHost` (`lyra.core.imported_node`). A call is executed in a runtime of its own, with the
Grant of the calling process and no other right, in the mode that `vesper mode` has set in the store `modes_of`. With a
store a call survives a crash: repeated with its key, it finds the process that began, whose finished effects are
replayed. The runtime is made at the first call. Decimals, bytes and timestamps go out as texts, as in JSON.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lyra.core import codec
from lyra.core.budgets.money import Money
from lyra.core.imported_node import ImportedNode, NodeAnswer, NodeFile, NodeInputKind, NodeValueKind
from lyra.errors import CheckError, LyraError
from lyra.vesper.check.judge import program_of
from lyra.vesper.nodes.sections import read_node
from lyra.vesper.repository.folders import Repository, repository_around
from lyra.vesper.runtime.faces import inputs_schema
from lyra.vesper.runtime.runtime import NodeCaller, Runtime
from lyra.vesper.values.json_values import json_shape
from lyra.vesper.values.types import (
    ANY,
    BOOLEAN,
    INTEGER,
    Array,
    DecimalType,
    MapType,
    Nullable,
    RecordType,
    SetType,
    ValueType,
)

if TYPE_CHECKING:
    from lyra.core.rights.capability import Grant
    from lyra.vesper.ir import NodeProgram
    from lyra.vesper.nodes import Node


_TEXT: Final = NodeValueKind("str")
_SCALARS: Final[dict[ValueType, NodeValueKind]] = {
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

    def read(self, file: str, text: str) -> NodeFile:
        return read_file(file, text)

    async def call(self, file: str, text: str, inputs: Mapping[str, Any], *, key: str, grant: Grant) -> NodeAnswer:
        return await asyncio.to_thread(self._call, file, text, inputs, NodeCaller(_short(key), grant))

    def _call(self, file: str, text: str, inputs: Mapping[str, Any], caller: NodeCaller) -> NodeAnswer:
        node, program = _program(file, text)
        runtime = self._opened(file)
        outcome = runtime.execute(node, _node_values(inputs), self._mode(program), caller=caller)
        failure = outcome.error
        if failure is not None:
            return NodeAnswer({}, failure.code, failure.message)
        return NodeAnswer(json_shape(outcome.outputs))

    def _opened(self, file: str) -> Runtime:
        """The runtime, which also finds the nodes beside this file."""
        with self._lock:
            self._repository.include(repository_around(file).folders)
            if self._runtime is None:
                store = self._store() if callable(self._store) else self._store
                self._runtime = Runtime(store, nodes=self._repository, **self._options)
            return self._runtime

    def _mode(self, program: NodeProgram) -> str | None:
        if self._modes is None:
            self._modes = {} if self._modes_of is None else _kept_modes(str(self._modes_of))
        return self._modes.get(program.digest)

    def close(self) -> None:
        with self._lock:
            runtime, self._runtime = self._runtime, None
        if runtime is not None:
            runtime.close()

    def __enter__(self) -> ImportableNodes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_file(file: str, text: str) -> NodeFile:
    """What the text of a `.vsp` file declares, or why it is no node."""
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
    return NodeFile(file, text, _described(program))


@lru_cache(256)
def _program(file: str, text: str) -> tuple[Node, NodeProgram]:
    node, issues = read_node(text, file)
    if node is None:
        raise CheckError(issues[0].message if issues else "the file is no mapping", file=file)
    return node, program_of(node)


def _described(program: NodeProgram) -> ImportedNode:
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
    return _SCALARS.get(kind, _TEXT)


def _output(kind: NodeValueKind) -> NodeValueKind:
    """A decimal goes out as a text; one inside a list or map likewise."""
    name = "str" if kind.name == "decimal" else kind.name
    fields = tuple((field, _output(part)) for field, part in kind.fields)
    return NodeValueKind(name, tuple(_output(inner) for inner in kind.inner), fields)


def _node_values(value: Any) -> Any:
    """Values of a program as a node takes them: an amount of money is a decimal."""
    if isinstance(value, Money):
        return Decimal(str(value.usd))
    if isinstance(value, Mapping):
        return {str(name): _node_values(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_node_values(item) for item in value]
    return value


def _short(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def _kept_modes(store: str) -> dict[str, str]:
    """The modes that a store has, by the digest of the node; none where there is no such store."""
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
