"""A walk over a whole tree that gathers a few facts, without recursion: depth is no concern to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lyra.vega.ast import Assign, Name, Node, Statement, Throw

__all__ = ["assigned_and_thrown", "every_node"]


def every_node(roots: Sequence[Node]) -> Iterator[Node]:
    """All nodes below these, in no particular order."""
    todo: list[Any] = list(roots)
    while todo:
        item = todo.pop()
        if isinstance(item, Node):
            yield item
            todo.extend(getattr(item, field) for field in item.__struct_fields__ if field not in ("at", "end"))
        elif isinstance(item, (list, tuple)):
            todo.extend(item)
        elif isinstance(item, dict):
            todo.extend(item.values())


def assigned_and_thrown(statements: Sequence[Statement]) -> tuple[frozenset[str], frozenset[str]]:
    """The names that are assigned to somewhere, and the names of errors that are thrown somewhere."""
    assigned: set[str] = set()
    thrown: set[str] = set()
    for node in every_node(statements):
        if isinstance(node, Assign) and isinstance(node.target, Name):
            assigned.add(node.target.name)
        elif isinstance(node, Throw):
            thrown.add(node.error)
    return frozenset(assigned), frozenset(thrown)
