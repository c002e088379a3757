"""What counts as an agent call, and what is plain computing.

    await process.send(message, …)      in an `async def`
    await lyra.run(agent, message, …)    the same; with on=ctx in a program, where a journal may keep it
    lyra.run(agent, message, …)          in a plain function

Computing is names, constants, displays, operators, f-strings, attributes and items that are read, and a few functions
and methods of text that everybody knows. Operators and attributes are taken to be what they look like: a class whose
`+` sends mail is not for this decorator.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from lyra.agents.overlap.rules import OFF

__all__ = ["CallForm", "Names", "names_bound", "names_read", "unfit"]

_BUILTINS: Final = frozenset(
    {"len", "str", "int", "float", "bool", "abs", "min", "max", "sum", "round", "repr", "range"}
)
_METHODS: Final = frozenset(
    {
        *("strip", "lstrip", "rstrip", "upper", "lower", "title", "capitalize", "replace", "split", "splitlines"),
        *("join", "format", "startswith", "endswith", "removeprefix", "removesuffix", "find", "count"),
    }
)
# What an agent's process, a budget or a program's ctx says of itself: it changes with every call.
_LIVE: Final = frozenset(
    {
        *("messages", "metrics", "execution", "agent_state", "memory", "alive", "state"),
        *("budget", "used", "usage", "remaining", "speculative", "restored", "replaying"),
    }
)
_ASKED_WITH: Final = frozenset({"timeout", "budget", "on", "clock", "grant", "seed", "programs"})
_PLAIN: Final = (
    *(ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Tuple, ast.List, ast.Set, ast.Dict),
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.JoinedStr, ast.FormattedValue, ast.Starred),
    *(ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
)
# Where a call may not be looked for: it might not be made at all, or more than once.
_DECIDING: Final = (ast.BoolOp, ast.IfExp, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class CallForm:
    """How agent calls look in one function. `run_names` are the names by which it knows `lyra.run`, such as `run` and
    `lyra.run`; `builtins` the well-known functions that it has not given another meaning."""

    __slots__ = ("_builtins", "_is_async", "_run_names")

    def __init__(self, *, is_async: bool, run_names: frozenset[str], shadowed: frozenset[str]) -> None:
        self._is_async = is_async
        self._run_names = run_names
        self._builtins = _BUILTINS - shadowed

    def target(self, node: ast.AST) -> ast.expr | None:
        """Who is asked, when the node is an agent call."""
        call: ast.AST = node
        if self._is_async:
            if not isinstance(node, ast.Await):
                return None
            call = node.value
        if not isinstance(call, ast.Call) or any(isinstance(value, ast.Starred) for value in call.args):
            return None
        if _dotted(call.func) in self._run_names and call.args:
            return call.args[0]
        if self._is_async and isinstance(call.func, ast.Attribute) and call.func.attr == "send":
            return call.func.value
        return None

    def place(self, node: ast.AST) -> ast.expr | None:
        """Where the agent lives that a call asks: its `on=`."""
        return next((each.value for each in _keywords(node) if each.arg == "on"), None)

    def in_turn(self, node: ast.AST) -> str | None:
        """Why an agent call is made in its turn, whomever it asks."""
        call = node.value if isinstance(node, ast.Await) else node
        if not isinstance(call, ast.Call) or _dotted(call.func) not in self._run_names:
            return None
        for keyword in call.keywords:
            if keyword.arg not in _ASKED_WITH:
                shown = "**" if keyword.arg is None else f"{keyword.arg}="
                return f"`{shown}` says how its kernel is made, which is then made in its turn"
        place = self.place(node)
        if place is not None and not isinstance(place, (ast.Name, ast.Constant)):
            return "`on=` has to be a name for that"
        return None

    def calls(self, node: ast.AST) -> Iterator[ast.expr]:
        """The agent calls in an expression, in the order they are made; those inside of calls come first."""
        for part in ast.iter_child_nodes(node):
            if not isinstance(part, _DECIDING):
                yield from self.calls(part)
        if self.target(node) is not None:
            assert isinstance(node, ast.expr)
            yield node

    def unfit(self, node: ast.AST) -> ast.AST | None:
        """The first part of an expression that is neither computing nor an agent call."""
        parts: list[ast.AST]
        if self.target(node) is not None:
            call = node.value if isinstance(node, ast.Await) else node
            assert isinstance(call, ast.Call)
            parts = [call.func.value] if isinstance(call.func, ast.Attribute) else []
            parts += [*call.args, *(keyword.value for keyword in call.keywords)]
        elif isinstance(node, ast.Call) and self._is_known(node):
            parts = [*([node.func.value] if isinstance(node.func, ast.Attribute) else []), *node.args]
            parts += [keyword.value for keyword in node.keywords]
        elif isinstance(node, ast.Attribute) and node.attr in _LIVE and "live" not in OFF:
            return node
        elif isinstance(node, _PLAIN):
            parts = list(ast.iter_child_nodes(node))
            if isinstance(node, _DECIDING) and any(True for part in parts for _ in self._any_calls(part)):
                return node
        else:
            return node
        return next((found for part in parts if (found := self.unfit(part)) is not None), None)

    def _any_calls(self, node: ast.AST) -> Iterator[ast.AST]:
        return (part for part in ast.walk(node) if self.target(part) is not None)

    def _is_known(self, node: ast.Call) -> bool:
        if any(isinstance(value, ast.Starred) for value in node.args):
            return False
        if isinstance(node.func, ast.Name):
            return node.func.id in self._builtins
        return isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS


Names = frozenset[str]


def unfit(form: CallForm, node: ast.AST) -> str | None:
    """Why an expression is more than computing and agent calls; None when it is not."""
    found = form.unfit(node)
    if found is None:
        return None
    text = ast.unparse(found)
    shown = text if len(text) <= 40 else text[:37] + "…"
    changes = isinstance(found, ast.Attribute) and found.attr in _LIVE
    return f"`{shown}` changes with every call" if changes else f"`{shown}` may do anything"


def names_read(*nodes: ast.AST) -> Names:
    return frozenset(
        part.id
        for node in nodes
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)
    )


def names_bound(*nodes: ast.AST) -> Names:
    return frozenset(
        part.id
        for node in nodes
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, (ast.Store, ast.Del))
    )


def _keywords(node: ast.AST) -> list[ast.keyword]:
    call = node.value if isinstance(node, ast.Await) else node
    return call.keywords if isinstance(call, ast.Call) else []


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return ""
