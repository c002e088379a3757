"""A Vesper node as a Vega program sees it: its inputs, its outputs and the rights that it needs, as plain data.

Vega and Vesper do not import each other. A program that says `import node "charge.vsp" as charge` reaches the node
through what its host gives it: the `load` of the compiler answers the target with a `NodeFile`, and the `nodes` of the
run (`NodeHost`) execute a call. `lyra.vesper.runtime.faces` implements both; nothing here reads or executes nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lyra.core.rights.capability import Grant


NODE_FILES: Final = ".vsp"  # how the names of their files end


class NodeValueKind(NamedTuple):
    """The kind of a value in Vega's words: `int`, `str`, `bool`, `list`, `map`, `any`, and `decimal`, which takes an
    int, a float, a text or an amount of money. `fields` are those of a record."""

    name: str
    inner: tuple[NodeValueKind, ...] = ()
    fields: tuple[tuple[str, NodeValueKind], ...] = ()


class NodeInputKind(NamedTuple):
    name: str
    kind: NodeValueKind
    is_required: bool


class ImportedNode(NamedTuple):
    """How a node is called. `schema` is the JSON schema of its inputs, for models that call it as a tool."""

    node_id: str
    intent: str
    inputs: tuple[NodeInputKind, ...]
    outputs: NodeValueKind
    capabilities: tuple[str, ...]
    is_pure: bool
    schema: Mapping[str, Any]


class NodeFile(tuple[str, str]):
    """The name and text of a node's file, with what the text declares; `node` is None for a wrong one, and `problem`
    says why."""

    node: ImportedNode | None
    problem: str

    def __new__(cls, name: str, text: str, node: ImportedNode | None, problem: str = "") -> NodeFile:
        file = super().__new__(cls, (name, text))
        file.node, file.problem = node, problem
        return file


class NodeAnswer(NamedTuple):
    """What a call came to: JSON-shaped outputs, or the code and the message of the node's error."""

    outputs: dict[str, Any]
    code: str = ""
    message: str = ""


class NodeHost(Protocol):
    """Reads and executes imported nodes."""

    def read(self, file: str, text: str) -> NodeFile: ...

    async def call(self, file: str, text: str, inputs: Mapping[str, Any], *, key: str, grant: Grant) -> NodeAnswer:
        """Execute a node with no rights but the grant's. A call that is repeated with its key after a crash continues
        with the execution that began, and repeats no finished effect."""
        ...
