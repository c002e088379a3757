"""Facts about a tree that need no names or types: who is assigned to, what is thrown, where nothing goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lyra.vega.ast import (
    Assign,
    Block,
    Break,
    Call,
    Continue,
    ExpressionStatement,
    If,
    Name,
    Node,
    Parallel,
    Return,
    Session,
    Statement,
    Throw,
)

__all__ = ["assigned_and_thrown", "ends", "every_node"]


def every_node(roots: Sequence[Node]) -> Iterator[Node]:
    """All nodes below these, in no particular order; with a stack of its own, so depth is no concern."""
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


def ends(statement: Statement) -> bool:
    """Whether nothing behind this statement is ever reached."""
    if isinstance(statement, (Return, Throw, Break, Continue)):
        return True
    if isinstance(statement, (Block, Session, Parallel)):
        inside = statement.statements if isinstance(statement, Block) else statement.body.statements
        return any(ends(each) for each in inside)
    step: Statement | None = statement
    while isinstance(step, If):
        if not ends(step.then):
            return False
        step = step.otherwise
        if step is None:
            return False
        if isinstance(step, Block):
            return ends(step)
    if isinstance(statement, ExpressionStatement) and isinstance(statement.value, Call):
        callee = statement.value.callee
        return getattr(callee, "module", "") == "process" and getattr(callee, "name", "") == "exit"
    return False
