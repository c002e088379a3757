"""Which functions are worth running beside others: those that wait for somebody and touch nothing shared.

In `parallel { }` a call of a declared function runs as a process of its own when the function may reach a send or
another wait, and neither it nor what it calls assigns a global or receives messages: those belong to the process that
called it. Found by walking the trees once per function; a function under examination counts as harmless, so that
recursion ends.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lyra.vega import ast
from lyra.vega.scopes import ModuleScope, Symbol, Variable

__all__ = ["Overlap"]

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
            elif isinstance(node, ast.Assign):
                meaning = module.meanings.get(id(node.target))
                is_tied = is_tied or (isinstance(meaning, Variable) and meaning.is_global)
            callee = module.meanings.get(id(node)) if isinstance(node, (ast.Name, ast.Path)) else None
            if isinstance(callee, Symbol) and callee.kind in ("function", "tool"):
                inner = self.of(callee)
                waits, is_tied = waits or inner[0], is_tied or inner[1]
            todo.extend(_parts(node))
        return waits, is_tied


def _parts(node: Any) -> list[Any]:
    if isinstance(node, msgspec.Struct):
        return [getattr(node, field) for field in node.__struct_fields__ if field not in ("at", "end")]
    if isinstance(node, (list, tuple)):
        return list(node)
    if isinstance(node, dict):
        return list(node.values())
    return []
