"""Rewrites a function so that its agent calls and loops go through a CallGroup.

    await p.send(x)             await group.call(0, (p, x), p.send, x)
    for item in items:          for item in group.loop(0, items):
                                    group.mispredicted and await group.discard()

Everything else stays as it is written and is evaluated in its place, once. Each call passes the variables that are
bound there, for the lookahead. A statement with calls in it tells the group when it fails. All nodes keep their lines,
so tracebacks and debuggers show the source as it is written.
"""

from __future__ import annotations

import ast
import copy
from typing import Any, Final, TypeVar

from lyra.agents.parallel.source.call_sites import COMPREHENSIONS, SCOPES, SIMPLE, Definition, dotted
from lyra.agents.parallel.source.function_map import FunctionMap
from lyra.agents.parallel.source.node_marks import LOOK, LOOP, SITE

BASE: Final = "_lyra_base"  # BaseException, also where the function has redefined that name
OPEN: Final = "_lyra_open"
MAP: Final = "_lyra_map"
_GROUP: Final = "_lyra_group"
_ITEM: Final = "_lyra_item"
_Node = TypeVar("_Node", bound=ast.AST)


def rewrite_function(tree: Definition, map_: FunctionMap) -> Definition:
    """A copy of the function, rewritten."""
    rewriter = _Rewriter(map_, is_async=isinstance(tree, ast.AsyncFunctionDef))
    new = copy.deepcopy(tree)
    given = [argument.arg for argument in (*new.args.posonlyargs, *new.args.args, *new.args.kwonlyargs)]
    body = rewriter.block(new.body)
    opened = _call(OPEN, _name(MAP), *(_name(name) for name in given))
    item = ast.withitem(opened, ast.Name(_GROUP, ast.Store()))
    first = new.body[0]
    new.body = [_placed(ast.AsyncWith([item], body) if rewriter.is_async else ast.With([item], body), first)]
    return new


class _Rewriter(ast.NodeTransformer):
    def __init__(self, map_: FunctionMap, *, is_async: bool) -> None:
        self._map = map_
        self.is_async = is_async
        self._in_comprehension = 0

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        return [new for node in statements for new in self._statement(node)]

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(node, SCOPES):
            return [node]
        has_calls = any(hasattr(part, SITE) for part in ast.walk(node))
        if not has_calls:
            return [node]
        if isinstance(node, SIMPLE):
            return self._simple(node)
        for name, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(node, name, self.block(value))
            elif isinstance(value, list):
                setattr(node, name, [self._part(part) for part in value])
            elif isinstance(value, ast.AST):
                setattr(node, name, self._part(value))
        return self._for(node) if isinstance(node, ast.For) and hasattr(node, LOOP) else [node]

    def _part(self, part: Any) -> Any:
        if isinstance(part, (ast.ExceptHandler, ast.match_case)):
            part.body = self.block(part.body)
            return part
        return self.visit(part) if isinstance(part, ast.AST) else part

    def _simple(self, node: ast.stmt) -> list[ast.stmt]:
        new = self.generic_visit(node)
        assert isinstance(new, ast.stmt)
        handler = ast.ExceptHandler(_name(BASE), None, [self._discard(), ast.Raise()])
        watched = _placed(ast.Try([new], [handler], [], []), node)
        if not hasattr(node, LOOK):
            return [watched]
        number = getattr(node, LOOK)
        names = [_name(name) for name in self._map.statement_names[number]]
        look = ast.Expr(_call(f"{_GROUP}.look_ahead", ast.Constant(number), *names))
        return [_placed(look, node), watched, _placed(self._if_mispredicted(), node)]

    def _for(self, node: ast.For) -> list[ast.stmt]:
        node.iter = self._looped(node.iter, getattr(node, LOOP))
        begin = [_placed(self._if_mispredicted(), node)]
        if not isinstance(node.target, ast.Name):
            begin.append(_placed(ast.Assign([node.target], _name(_ITEM)), node.target))
            node.target = _placed(ast.Name(_ITEM, ast.Store()), node.target)
        node.body = [*begin, *node.body]
        if node.orelse:
            node.orelse = [_placed(self._if_mispredicted(), node), *node.orelse]
        return [node, _placed(self._if_mispredicted(), node)]

    def _looped(self, node: ast.expr, number: int) -> ast.expr:
        given: list[ast.expr] = [node]
        keywords: list[ast.keyword] = []
        if isinstance(node, ast.Call) and dotted(node.func) in ("enumerate", "zip") and node.args:
            is_plain = not any(isinstance(argument, ast.Starred) for argument in node.args)
            given, keywords = ([node.func, *node.args], node.keywords) if is_plain else (given, keywords)
        return _placed(_call(f"{_GROUP}.loop", ast.Constant(number), *given, keywords=keywords), node)

    def _discard(self) -> ast.stmt:
        new = _call(f"{_GROUP}.discard")
        return ast.Expr(ast.Await(new) if self.is_async else new)

    def _if_mispredicted(self) -> ast.stmt:
        return ast.If(_dotted(f"{_GROUP}.mispredicted"), [self._discard()], [])

    # ------------------------------------------------------------ expressions

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, SCOPES):
            return node
        number = getattr(node, SITE, None)
        is_deeper = isinstance(node, COMPREHENSIONS)
        self._in_comprehension += is_deeper
        new = self.generic_visit(node)
        self._in_comprehension -= is_deeper
        if isinstance(new, ast.comprehension) and hasattr(new, LOOP):
            new.iter = self._looped(new.iter, getattr(new, LOOP))
        return new if number is None else self._through_group(new, number)

    def _through_group(self, node: Any, number: int) -> ast.expr:
        call: ast.Call = node.value if self.is_async else node
        names: ast.expr = ast.Constant(None)
        if not self._in_comprehension:
            names = ast.Tuple([_name(name) for name in self._map.names[number]], ast.Load())
        given = [ast.Constant(number), names, call.func, *call.args]
        new = _call(f"{_GROUP}.call", *given, keywords=call.keywords)
        return _placed(ast.Await(new) if self.is_async else new, node)


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _dotted(path: str) -> ast.expr:
    first, *rest = path.split(".")
    new: ast.expr = _name(first)
    for name in rest:
        new = ast.Attribute(new, name, ast.Load())
    return new


def _call(name: str, *arguments: ast.expr, keywords: list[ast.keyword] | None = None) -> ast.expr:
    return ast.Call(_dotted(name), list(arguments), keywords or [])


def _placed(node: _Node, place: ast.AST) -> _Node:
    """The node and its new parts, with the line numbers of the source that it replaces."""
    for part in ast.walk(node):
        if isinstance(part, (ast.expr, ast.stmt, ast.arg, ast.ExceptHandler, ast.keyword)) and not hasattr(
            part, "lineno"
        ):
            ast.copy_location(part, place)
    return node
