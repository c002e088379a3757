"""Walking trees: the parts of a node, and everything below it, in the order of the source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from lyra.vega import ast

__all__ = ["children", "parts"]


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
        if isinstance(node, ast.Node):
            yield node
        todo.extend(reversed(children(node)))
