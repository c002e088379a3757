"""Imported nodes in the checker: a node is a function of its inputs that gives a record of its outputs.

`import node "charge.vsp" as charge` declares `charge`, whose parameters are the node's inputs in their order; those
that need not be given may be left out. Kinds are those of `lyra.core.imported_node`. A `decimal` takes an int, a float,
a text or an amount of money; as an output it is a text, since no other kind of Vega holds it exactly.
"""

from __future__ import annotations

from lyra.core.imported_node import ImportedNode, NodeValueKind
from lyra.vega.checker.scope import Binding, Signature
from lyra.vega.checker.types import ValueKind


def binding_of_node(node: ImportedNode) -> Binding:
    """What the name of an imported node stands for."""
    signature = Signature(
        tuple((entry.name, _kind(entry.kind)) for entry in node.inputs),
        frozenset(entry.name for entry in node.inputs if not entry.is_required),
        _kind(node.outputs),
    )
    return Binding("import", ValueKind("function"), signature)


def node_heading(name: str, node: ImportedNode) -> str:
    """`charge(amount: decimal, note?: str) -> {receipt: str}`, for editors."""
    parts = [f"{entry.name}{'' if entry.is_required else '?'}: {_kind(entry.kind)}" for entry in node.inputs]
    return f"{name}({', '.join(parts)}) -> {_kind(node.outputs)}"


def _kind(kind: NodeValueKind) -> ValueKind:
    return ValueKind(
        kind.name, tuple(_kind(inner) for inner in kind.inner), tuple((name, _kind(part)) for name, part in kind.fields)
    )
