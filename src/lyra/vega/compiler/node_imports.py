"""`import node`: the rows of a program's imports that hold nodes, and the arguments of their calls.

A row is [`node`, the target as written, the name that the call goes by, the node's file, its text, then the names of
its inputs]. So a compiled file and a durable run keep the node as it was when the program was compiled. A node that
the host could not read has the first three only, and can be called by position alone.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lyra.core.imported_node import NodeFile, NodeInputKind
from lyra.vega.compiler.arguments import match_arguments
from lyra.vega.compiler.expressions import compile_into
from lyra.vega.plan.names import ModuleScope, Symbol
from lyra.vega.syntax import ast
from lyra.vega.values.values import UNSET

if TYPE_CHECKING:
    from lyra.vega.compiler.compiler import Linker
    from lyra.vega.compiler.function_code import FunctionCode


def import_node(linker: Linker, module: ModuleScope, symbol: Symbol) -> None:
    """Add a node to the imports of the program; one that two files import is there once."""
    node = symbol.node
    loaded = linker.load(node.target, module.source.name) if linker.load is not None else None
    row = [node.kind, node.target, node.name]
    if isinstance(loaded, NodeFile) and loaded.node is not None:
        file, text = loaded
        row += [os.path.abspath(file), text, *(entry.name for entry in loaded.node.inputs)]
        symbol.inputs = loaded.node.inputs
    same = next((other for other in linker.program.imports if other[3:] == row[3:] and other[0] == "node"), None)
    if same is not None and len(row) > 3:
        symbol.key = same[2]
        return
    taken = {other[2] for other in linker.program.imports}
    while symbol.key in taken:
        symbol.key += "_"
    row[2] = symbol.key
    linker.program.imports.append(row)


def compile_node_arguments(out: FunctionCode, node: ast.Call, symbol: Symbol) -> tuple[int, int]:
    """The arguments of a call in a run of registers, in the order of the node's inputs: the first, and how many. Inputs
    that are not given are left out at the end, and unset before it."""
    inputs: tuple[NodeInputKind, ...] = symbol.inputs or ()
    order = match_arguments(out, node, [entry.name for entry in inputs], symbol.name)
    for index, entry in enumerate(inputs):
        if index not in order and entry.is_required:
            raise out.fail(node, f"`{symbol.name}` needs `{entry.name}`")
    count = max(order, default=-1) + 1
    first = out.register(max(1, count))
    for index, argument in order.items():
        compile_into(out, argument, first + index)
    for index in range(count):
        if index not in order:
            out.constant(UNSET, first + index)
    return first, count
