"""Which expressions of a function's source are agent calls, and in which order they are evaluated.

    await process.send(message, …)      in an `async def`
    await lyra.run(agent, message, …)    in an `async def`; with on=ctx in a program, whose journal keeps it
    lyra.run(agent, message, …)          in a plain function

Calls inside of nested functions, lambdas and generators belong to those functions.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

Definition = ast.FunctionDef | ast.AsyncFunctionDef
SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.GeneratorExp)
COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp)
SIMPLE: Final = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return)


class CallForm:
    """How agent calls look in one function. `run_names` are the names by which it knows `lyra.run`, such as `run` and
    `lyra.run`."""

    __slots__ = ("_is_async", "_run_names")

    def __init__(self, *, is_async: bool, run_names: frozenset[str]) -> None:
        self._is_async = is_async
        self._run_names = run_names

    def call(self, node: ast.AST) -> ast.Call | None:
        """The call if the node asks an agent, else None."""
        call: ast.AST = node
        if self._is_async:
            if not isinstance(node, ast.Await):
                return None
            call = node.value
        if not isinstance(call, ast.Call):
            return None
        if dotted(call.func) in self._run_names and call.args:
            return call
        is_send = self._is_async and isinstance(call.func, ast.Attribute) and call.func.attr == "send"
        return call if is_send else None

    def target(self, node: ast.AST) -> ast.expr:
        """The expression of the agent or process that is asked."""
        call = self.call(node)
        assert call is not None
        if dotted(call.func) in self._run_names:
            return call.args[0]
        assert isinstance(call.func, ast.Attribute)
        return call.func.value

    def calls(self, node: ast.AST) -> Iterator[ast.expr]:
        """The agent calls in a statement or an expression, in the order they are made."""
        for part in inside(node):
            yield from self.calls(part)
        if self.call(node) is not None:
            assert isinstance(node, ast.expr)
            yield node


def inside(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node in evaluation order, without those that run at another time."""
    if isinstance(node, SCOPES):
        return
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            yield from (value,) if key is None else (key, value)
    elif isinstance(node, (ast.ListComp, ast.SetComp)):
        yield from (*node.generators, node.elt)
    elif isinstance(node, ast.DictComp):
        yield from (*node.generators, node.key, node.value)
    elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
        yield from (part for part in (node.value,) if part is not None)
        yield from node.targets if isinstance(node, ast.Assign) else (node.target,)
    elif isinstance(node, ast.IfExp):
        yield from (node.test, node.body, node.orelse)
    else:
        yield from ast.iter_child_nodes(node)


def names_bound(*nodes: ast.AST) -> frozenset[str]:
    return frozenset(
        part.id
        for node in nodes
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, (ast.Store, ast.Del))
    )


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return ""
