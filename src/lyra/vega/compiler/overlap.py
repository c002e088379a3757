"""Which functions are worth running beside others: those that wait for an answer and touch nothing shared.

In `parallel { }` a call of a declared function runs as a process of its own when the function may reach a send or
another wait, and neither it nor what it calls receives messages or changes a global, a parameter or what these hold:
all that belongs to the process that called it. Found by walking the trees once per function; a function under
examination counts as free of effects, so that recursion ends.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lyra.vega.plan.names import ModuleScope, Symbol, Variable
from lyra.vega.syntax import ast

# Methods and library functions that change the value they are given.
_CHANGING: Final = frozenset({"push", "pop", "insert", "remove", "set", "add"})
_WAITING_PATHS: Final = frozenset({("process", "sleep"), ("http", "get"), ("http", "post")})


class Overlap:
    def __init__(self) -> None:
        self.known: dict[int, tuple[bool, bool]] = {}  # id(function node) → (waits, is tied to its process)

    def may(self, symbol: Symbol) -> bool:
        if symbol.kind not in ("function", "tool"):
            return False
        waits, is_tied = self.of(symbol)
        return waits and not is_tied

    def of(self, symbol: Symbol) -> tuple[bool, bool]:
        key = id(symbol.node)
        if key not in self.known:
            self.known[key] = (False, False)
            self.known[key] = self.examine(symbol.node.body, symbol.module)
        return self.known[key]

    def examine(self, root: Any, module: ModuleScope) -> tuple[bool, bool]:
        waits = is_tied = False
        todo = [root]
        while todo:
            node = todo.pop()
            if isinstance(node, (ast.Send, ast.Await)):
                waits = True
            elif isinstance(node, ast.Receive):
                is_tied = True
            elif isinstance(node, ast.Path):
                waits = waits or (node.module, node.name) in _WAITING_PATHS
                is_tied = is_tied or (node.module == "process" and node.name in ("self", "exit"))
            elif isinstance(node, ast.Name) and node.name == "exec":
                waits = True
            elif isinstance(node, (ast.Assign, ast.MethodCall, ast.Call)):
                is_tied = is_tied or _changes(node, module)
            callee = module.meanings.get(id(node)) if isinstance(node, (ast.Name, ast.Path)) else None
            if isinstance(callee, Symbol) and callee.kind in ("function", "tool"):
                inner = self.of(callee)
                waits, is_tied = waits or inner[0], is_tied or inner[1]
            todo.extend(_parts(node))
        return waits, is_tied


def _changes(node: ast.Assign | ast.MethodCall | ast.Call, module: ModuleScope) -> bool:
    """Whether a node changes something that its function did not make itself."""
    changed: Any = None
    if isinstance(node, ast.Assign):
        changed = node.target
    elif isinstance(node, ast.MethodCall):
        changed = node.target if node.name in _CHANGING else None
    elif isinstance(node.callee, ast.Path) and node.callee.name in _CHANGING and node.arguments:
        changed = node.arguments[0].value
    is_part = not isinstance(node, ast.Assign)
    while isinstance(changed, (ast.Index, ast.Field)):
        changed, is_part = changed.target, True
    meaning = module.meanings.get(id(changed)) if changed is not None else None
    return isinstance(meaning, Variable) and (meaning.is_global or (is_part and meaning.is_parameter))


def _parts(node: Any) -> list[Any]:
    if isinstance(node, msgspec.Struct):
        return [getattr(node, field) for field in node.__struct_fields__ if field not in ("at", "end")]
    if isinstance(node, (list, tuple)):
        return list(node)
    if isinstance(node, dict):
        return list(node.values())
    return []
