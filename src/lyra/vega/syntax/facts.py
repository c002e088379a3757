"""Facts about a tree that need no names or types: who is assigned to, what is thrown, where nothing continues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from lyra.vega.syntax import ast

# How fields that never hold a node are declared.
_PLAIN: Final = frozenset({"Any", "bool", "int", "str", "dict[str, int]", "list[tuple[int, str]]"})
_CHANGING_METHODS: Final = frozenset({"remove", "set"})  # of maps


@cache
def _part_names(kind: type) -> tuple[str, ...]:
    """Return the fields of a kind of node that hold nodes; of anything else, none."""
    declared = {
        name: text for base in reversed(kind.__mro__) for name, text in vars(base).get("__annotations__", {}).items()
    }
    return tuple(name for name in getattr(kind, "__struct_fields__", ()) if declared[name] not in _PLAIN)


def parts_of(node: ast.SyntaxNode) -> list[Any]:
    """Return the parts of a node: nodes, or lists and dicts of them."""
    return [part for name in _part_names(type(node)) if (part := getattr(node, name)) is not None]


def every_node(roots: Sequence[ast.SyntaxNode]) -> Iterator[ast.SyntaxNode]:
    """All nodes below these, in no particular order; with its own stack, so depth is no concern."""
    todo: list[Any] = list(roots)
    while todo:
        item = todo.pop()
        kind: type = type(item)
        if kind is list or kind is tuple:
            todo += item
        elif kind is dict:
            todo += item.values()
        elif kind is not str:  # a text between the `${…}` of a string
            yield item
            for name in _part_names(kind):
                part = getattr(item, name)
                if part is not None:
                    todo.append(part)


class NamesInUse(NamedTuple):
    """Names that some statement assigns to, names of which it changes a part (`name.a = …`, `name.set(…)`), and errors
    that it throws."""

    assigned: frozenset[str]
    changed: frozenset[str]
    thrown: frozenset[str]


def names_in_use(statements: Sequence[ast.Statement]) -> NamesInUse:
    assigned: set[str] = set()
    changed: set[str] = set()
    thrown: set[str] = set()
    for node in every_node(statements):
        if type(node) is ast.Assign:
            whole = _find_root(node.target)
            if type(whole) is ast.Name:
                (assigned if whole is node.target else changed).add(whole.name)
        elif type(node) is ast.MethodCall and node.name in _CHANGING_METHODS:
            whole = _find_root(node.target)
            if type(whole) is ast.Name:
                changed.add(whole.name)
        elif type(node) is ast.Throw:
            thrown.add(node.error)
    return NamesInUse(frozenset(assigned), frozenset(changed), frozenset(thrown))


def _find_root(target: ast.SyntaxNode) -> ast.SyntaxNode:
    """`a` of `a.b[0].c`."""
    while isinstance(target, ast.Field | ast.Index):
        target = target.target
    return target


def ends(statement: ast.Statement) -> bool:
    """Return whether nothing behind this statement is ever reached."""
    if isinstance(statement, (ast.Return, ast.Throw, ast.Break, ast.Continue)):
        return True
    if isinstance(statement, (ast.Block, ast.Session, ast.Parallel)):
        inside = statement.statements if isinstance(statement, ast.Block) else statement.body.statements
        return any(ends(block) for block in inside)
    if isinstance(statement, (ast.While, ast.For)):
        condition = statement.condition
        is_endless = condition is None or (isinstance(condition, ast.Literal) and condition.value is True)
        return is_endless and not _breaks(statement.body)
    step: ast.Statement | None = statement
    while isinstance(step, ast.If):
        if not ends(step.then):
            return False
        step = step.otherwise
        if step is None:
            return False
        if isinstance(step, ast.Block):
            return ends(step)
    if isinstance(statement, ast.ExpressionStatement) and isinstance(statement.value, ast.Call):
        callee = statement.value.callee
        return getattr(callee, "module", "") == "process" and getattr(callee, "name", "") == "exit"
    return False


def _breaks(body: ast.Block) -> bool:
    """Return whether a `break` leaves the loop that has this body; one inside another loop leaves that."""
    todo: list[Any] = [body]
    while todo:
        item = todo.pop()
        kind: type = type(item)
        if kind is ast.Break:
            return True
        if kind is list or kind is tuple:
            todo += item
        elif kind is dict:
            todo += item.values()
        elif kind is not str and kind not in (ast.While, ast.For, ast.ForIn):
            todo += parts_of(item)
    return False


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
    """Yield a node and all below it, in the order of the source."""
    todo: list[Any] = [root]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.SyntaxNode):
            yield node
        todo.extend(reversed(children(node)))


def walk_own_parts(root: Any) -> Iterator[Any]:
    """All nodes below a node that run when it runs: those inside functions made there are left out."""
    todo: list[Any] = [root]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.SyntaxNode):
            yield node
        if node is root or not isinstance(node, _CLOSED):
            todo.extend(reversed(children(node)))
