"""Takes variables that are never read out of a generated tree.

What is assigned to them is still evaluated where it calls anything: it may raise, or act outside.
"""

from __future__ import annotations

import ast
from typing import Final

__all__ = ["drop_unused", "names_read"]

_ROUNDS_MAX: Final = 8  # a variable that is gone may have been the only reader of another


def drop_unused(tree: ast.Module) -> None:
    """Replace assignments to variables that nothing reads, and take out constants of the module."""
    for _ in range(_ROUNDS_MAX):
        dropper = _Dropper(names_read(tree))
        for function in tree.body:
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                dropper.visit(function)
        constants = [node for node in tree.body if _is_unread_constant(node, dropper.names_read)]
        tree.body = [node for node in tree.body if node not in constants]
        if not dropper.has_changed and not constants:
            return


def _is_unread_constant(node: ast.stmt, read: set[str]) -> bool:
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id not in read


def names_read(tree: ast.Module) -> set[str]:
    """All names whose value something reads."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, ast.Nonlocal):
            names.update(node.names)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


class _Dropper(ast.NodeTransformer):
    def __init__(self, names_read: set[str]) -> None:
        self.names_read = names_read
        self.has_changed = False

    def visit_Assign(self, node: ast.Assign) -> ast.stmt | None:
        return self._replaced(node, node.targets[0], node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt | None:
        return node if node.value is None else self._replaced(node, node.target, node.value)

    def _replaced(self, node: ast.stmt, target: ast.expr, value: ast.expr) -> ast.stmt | None:
        if not isinstance(target, ast.Name) or target.id in self.names_read or target.id == "_":
            return node
        self.has_changed = True
        if isinstance(value, ast.Call | ast.Await):
            return ast.Expr(value)
        if any(isinstance(part, ast.Call | ast.Await) for part in ast.walk(value)):
            return ast.Assign([ast.Name("_", ast.Store())], value)
        return None
