"""The same function, with a word said at each agent call.

    await p.send(x)             await group.at(0, (p, x), p.send, x)
    for item in items:          for item in group.loop(0, items):
                                    group.strayed and await group.astray()

Everything else stays as it is written and is computed where it stands, once. The names that have a value at a call are
given along for the look ahead. A statement with calls in it tells when it fails. All nodes keep their lines, so
tracebacks and debuggers show the source as it is written.
"""

from __future__ import annotations

import ast
import copy
from typing import Any, Final, TypeVar

from lyra.agents.parallel.expressions import SITE
from lyra.agents.parallel.lookahead import LOOP
from lyra.agents.parallel.source.call_sites import COMPREHENSIONS, SCOPES, SIMPLE, Definition, dotted
from lyra.agents.parallel.source.function_map import LOOK, Map

__all__ = ["BASE", "MAP", "OPEN", "rewritten"]

BASE: Final = "_lyra_base"  # BaseException, whatever its name means in the function
OPEN: Final = "_lyra_open"
MAP: Final = "_lyra_map"
_GROUP: Final = "_lyra_group"
_ITEM: Final = "_lyra_item"
_Node = TypeVar("_Node", bound=ast.AST)


def rewritten(tree: Definition, map_: Map) -> Definition:
    """A copy of the function."""
    maker = _Maker(map_, is_async=isinstance(tree, ast.AsyncFunctionDef))
    made = copy.deepcopy(tree)
    given = [each.arg for each in (*made.args.posonlyargs, *made.args.args, *made.args.kwonlyargs)]
    body = maker.block(made.body)
    opened = _call(OPEN, _name(MAP), *(_name(each) for each in given))
    item = ast.withitem(opened, ast.Name(_GROUP, ast.Store()))
    first = made.body[0]
    made.body = [_placed(ast.AsyncWith([item], body) if maker.is_async else ast.With([item], body), first)]
    return made


class _Maker(ast.NodeTransformer):
    def __init__(self, map_: Map, *, is_async: bool) -> None:
        self._map = map_
        self.is_async = is_async
        self._in_comprehension = 0

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        return [made for node in statements for made in self._statement(node)]

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
                setattr(node, name, [self._part(each) for each in value])
            elif isinstance(value, ast.AST):
                setattr(node, name, self._part(value))
        return self._for(node) if isinstance(node, ast.For) and hasattr(node, LOOP) else [node]

    def _part(self, part: Any) -> Any:
        if isinstance(part, (ast.ExceptHandler, ast.match_case)):
            part.body = self.block(part.body)
            return part
        return self.visit(part) if isinstance(part, ast.AST) else part

    def _simple(self, node: ast.stmt) -> list[ast.stmt]:
        made = self.generic_visit(node)
        assert isinstance(made, ast.stmt)
        handler = ast.ExceptHandler(_name(BASE), None, [self._astray(), ast.Raise()])
        watched = _placed(ast.Try([made], [handler], [], []), node)
        if not hasattr(node, LOOK):
            return [watched]
        number = getattr(node, LOOK)
        names = [_name(each) for each in self._map.statement_names[number]]
        look = ast.Expr(_call(f"{_GROUP}.look", ast.Constant(number), *names))
        return [_placed(look, node), watched, _placed(self._if_strayed(), node)]

    def _for(self, node: ast.For) -> list[ast.stmt]:
        node.iter = self._looped(node.iter, getattr(node, LOOP))
        begin = [_placed(self._if_strayed(), node)]
        if not isinstance(node.target, ast.Name):
            begin.append(_placed(ast.Assign([node.target], _name(_ITEM)), node.target))
            node.target = _placed(ast.Name(_ITEM, ast.Store()), node.target)
        node.body = [*begin, *node.body]
        if node.orelse:
            node.orelse = [_placed(self._if_strayed(), node), *node.orelse]
        return [node, _placed(self._if_strayed(), node)]

    def _looped(self, node: ast.expr, number: int) -> ast.expr:
        given: list[ast.expr] = [node]
        keywords: list[ast.keyword] = []
        if isinstance(node, ast.Call) and dotted(node.func) in ("enumerate", "zip") and node.args:
            is_plain = not any(isinstance(each, ast.Starred) for each in node.args)
            given, keywords = ([node.func, *node.args], node.keywords) if is_plain else (given, keywords)
        return _placed(_call(f"{_GROUP}.loop", ast.Constant(number), *given, keywords=keywords), node)

    def _astray(self) -> ast.stmt:
        made = _call(f"{_GROUP}.astray")
        return ast.Expr(ast.Await(made) if self.is_async else made)

    def _if_strayed(self) -> ast.stmt:
        return ast.If(_dotted(f"{_GROUP}.strayed"), [self._astray()], [])

    # ------------------------------------------------------------ expressions

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, SCOPES):
            return node
        number = getattr(node, SITE, None)
        is_deeper = isinstance(node, COMPREHENSIONS)
        self._in_comprehension += is_deeper
        made = self.generic_visit(node)
        self._in_comprehension -= is_deeper
        if isinstance(made, ast.comprehension) and hasattr(made, LOOP):
            made.iter = self._looped(made.iter, getattr(made, LOOP))
        return made if number is None else self._at(made, number)

    def _at(self, node: Any, number: int) -> ast.expr:
        call: ast.Call = node.value if self.is_async else node
        names: ast.expr = ast.Constant(None)
        if not self._in_comprehension:
            names = ast.Tuple([_name(each) for each in self._map.names[number]], ast.Load())
        given = [ast.Constant(number), names, call.func, *call.args]
        made = _call(f"{_GROUP}.at", *given, keywords=call.keywords)
        return _placed(ast.Await(made) if self.is_async else made, node)


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _dotted(name: str) -> ast.expr:
    first, *rest = name.split(".")
    made: ast.expr = _name(first)
    for each in rest:
        made = ast.Attribute(made, each, ast.Load())
    return made


def _call(name: str, *arguments: ast.expr, keywords: list[ast.keyword] | None = None) -> ast.expr:
    return ast.Call(_dotted(name), list(arguments), keywords or [])


def _placed(node: _Node, place: ast.AST) -> _Node:
    """The node and what was made with it, at the place of the source it stands for."""
    for part in ast.walk(node):
        if isinstance(part, (ast.expr, ast.stmt, ast.arg, ast.ExceptHandler, ast.keyword)) and not hasattr(
            part, "lineno"
        ):
            ast.copy_location(part, place)
    return node
