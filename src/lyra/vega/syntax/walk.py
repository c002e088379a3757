"""Walking trees: the parts of a node, and everything below it, in the order of the source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from lyra.vega.syntax import ast

_CLOSED = (ast.Lambda, ast.Function, ast.Agent, ast.Tool, ast.Supervisor, ast.Test, ast.Type)


def children(node: Any) -> list[Any]:
    if isinstance(node, msgspec.Struct):
        return [getattr(node, name) for name in node.__struct_fields__ if name not in ("at", "end", "type")]
    if isinstance(node, (list, tuple)):
        return list(node)
    if isinstance(node, dict):
        return list(node.values())
    return []


def parts(root: Any) -> Iterator[Any]:
    """A node and all below it, in the order of the source."""
    todo: list[Any] = [root]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.SyntaxNode):
            yield node
        todo.extend(reversed(children(node)))


def own_parts(root: Any) -> Iterator[Any]:
    """All nodes below a node that run when it runs: those inside functions made there are left out."""
    todo: list[Any] = [root]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.SyntaxNode):
            yield node
        if node is root or not isinstance(node, _CLOSED):
            todo.extend(reversed(children(node)))
