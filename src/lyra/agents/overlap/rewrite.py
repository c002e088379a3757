"""The same function with its calls started early and awaited at their own places.

Each call of a stretch becomes a small function of its own that computes what it needs (again: nothing is bound early)
and makes the call; in its place stands `await group.commit(number)`. A stretch of one call, or none, stays as it is.
All nodes keep their lines, so tracebacks and debuggers show the source as it is written.
"""

from __future__ import annotations

import ast
import copy
from typing import Any, Final, TypeVar

from lyra.agents.overlap.forms import CallForm, Names
from lyra.agents.overlap.stretches import Called, Loop, Other, Part, Piece, Stretch, stretches

__all__ = ["GROUP", "LOOP", "rewritten"]

GROUP: Final = "_lyra_group"
LOOP: Final = "_lyra_loop"
_OPEN: Final = "_lyra_open"
_TURN: Final = "_lyra_turn"
_ITEM: Final = "_lyra_item"
_KEPT: Final = "_lyra_kept_"
_LISTS: Final = ("body", "orelse", "finalbody")
_Node = TypeVar("_Node", bound=ast.AST)
_Definition = TypeVar("_Definition", ast.FunctionDef, ast.AsyncFunctionDef)


def rewritten(form: CallForm, body: list[ast.stmt], fresh: Names, *, is_async: bool) -> tuple[list[ast.stmt], int]:
    """The new body, and how many calls of it may be made early."""
    maker = _Maker(form, fresh, is_async)
    return maker.block(body), maker.early


class _Maker:
    def __init__(self, form: CallForm, fresh: Names, is_async: bool) -> None:
        self.form = form
        self.fresh = fresh
        self.is_async = is_async
        self.early = 0
        self.count = 0

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        return [node for part in stretches(self.form, statements, self.fresh) for node in self.part(part)]

    def part(self, part: Part) -> list[ast.stmt]:
        if isinstance(part, Other):
            return [self.inside(part.node)]
        if isinstance(part, Loop):
            return self.loop(part)
        if len(part.calls) < 2:
            return [piece.node for piece in part.pieces]
        return self.stretch(part)

    def inside(self, node: ast.stmt) -> ast.stmt:
        """A statement with blocks in it: each block for itself."""
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return node
        for name in _LISTS:
            found = getattr(node, name, None)
            if isinstance(found, list) and found:
                setattr(node, name, self.block(found))
        for part in [*getattr(node, "handlers", ()), *getattr(node, "cases", ())]:
            part.body = self.block(part.body)
        return node

    # ------------------------------------------------------------ stretches

    def stretch(self, stretch: Stretch) -> list[ast.stmt]:
        self.early += len(stretch.calls)
        self.count += 1
        thunks, rows = self.thunks(stretch, None)
        opened = _call(GROUP, ast.List(rows, ast.Load()))
        body = [self.committed(piece) for piece in stretch.pieces]
        return [*thunks, self.with_(opened, body, stretch.pieces[0].node)]

    def loop(self, loop: Loop) -> list[ast.stmt]:
        self.early += len(loop.stretch.calls)
        self.count += 1
        thunks, rows = self.thunks(loop.stretch, loop.node.target)
        opened = _call(LOOP, loop.node.iter, ast.List(rows, ast.Load()))
        node = loop.node
        node.body = [self.committed(piece) for piece in loop.stretch.pieces]
        node.iter = ast.Name(self.opened, ast.Load())
        return [*thunks, self.with_(opened, [node], node)]

    @property
    def opened(self) -> str:
        return f"{_OPEN}_{self.count}"

    def with_(self, opened: ast.expr, body: list[ast.stmt], place: ast.stmt) -> ast.stmt:
        item = ast.withitem(opened, ast.Name(self.opened, ast.Store()))
        made: ast.stmt = ast.AsyncWith([item], body) if self.is_async else ast.With([item], body)
        return _placed(made, place)

    def committed(self, piece: Piece) -> ast.stmt:
        """The statement in its own place: its calls are only waited for."""
        made = _Replace({id(call.node): self.commit(call) for call in piece.calls}).visit(_numbered(piece.node))
        assert isinstance(made, ast.stmt)
        return made

    def commit(self, call: Called) -> ast.expr:
        made: ast.expr = ast.Call(
            ast.Attribute(ast.Name(self.opened, ast.Load()), "commit", ast.Load()), [ast.Constant(call.number)], []
        )
        return _placed(ast.Await(made) if self.is_async else made, call.node)

    # ------------------------------------------------------------ calls of their own

    def thunks(self, stretch: Stretch, item: ast.expr | None) -> tuple[list[ast.stmt], list[ast.expr]]:
        """For each call a function that says who is asked, one that says where, and one that asks."""
        made: list[ast.stmt] = []
        rows: list[ast.expr] = []
        bound = frozenset().union(*(piece.bound for piece in stretch.pieces))
        for call in stretch.calls:
            name = f"_lyra_call_{self.count}_{call.number}"
            who: ast.expr = ast.Constant(None)
            if not bound & _reads(call.target) and not list(self.form.calls(call.target)):
                made.append(self.says(f"{name}_who", call, item, call.target))
                who = ast.Name(f"{name}_who", ast.Load())
            place: ast.expr = ast.Constant(None)
            if call.place is not None:
                made.append(self.says(f"{name}_on", call, item, call.place))
                place = ast.Name(f"{name}_on", ast.Load())
            made.append(self.ask(name, call, item, call.outer & bound))
            rows.append(ast.Tuple([who, place, ast.Name(name, ast.Load())], ast.Load()))
        return made, rows

    def says(self, name: str, call: Called, item: ast.expr | None, value: ast.expr) -> ast.stmt:
        """A function of the turn's item that gives the value of an expression."""
        body = [*self.bind(item, call), ast.Return(copy.deepcopy(value))]
        return _placed(_function(ast.FunctionDef, name, [_ITEM], body), call.node)

    def ask(self, name: str, call: Called, item: ast.expr | None, kept: Names) -> ast.stmt:
        """`kept` are variables that the stretch itself goes on to change: their values of now are taken along."""
        body: list[ast.stmt] = self.bind(item, call)
        given = sorted(kept)
        for each in given:
            taken = ast.Call(ast.Attribute(ast.Name(_TURN, ast.Load()), "kept", ast.Load()), [_name(_KEPT + each)], [])
            body.append(_placed(ast.Assign([ast.Name(each, ast.Store())], taken), call.node))
        for piece in call.pieces:
            values = {id(one.node): self.answer(one) for one in piece.calls}
            found = _Replace(values).visit(_numbered(piece.node))
            body.append(found)
        inner = {id(one.node): self.answer(one) for one in call.after if one.node is not call.node}
        wanted: Any = _Replace(inner).visit(_shallow(call.node))
        if not isinstance(wanted, ast.Await):  # in a plain function: on the group's loop the same gives an awaitable
            wanted = ast.Await(wanted)
        body.append(ast.Return(_placed(wanted, call.node)))
        made = _function(ast.AsyncFunctionDef, name, [_TURN, _ITEM, *(_KEPT + each for each in given)], body)
        made.args.defaults = [
            ast.Call(ast.Attribute(_name(GROUP), "peek", ast.Load()), [_lambda(_name(each))], []) for each in given
        ]
        return _placed(made, call.node)

    def answer(self, call: Called) -> ast.expr:
        asked = ast.Call(
            ast.Attribute(ast.Name(_TURN, ast.Load()), "value", ast.Load()), [ast.Constant(call.number)], []
        )
        return _placed(ast.Await(asked), call.node)

    def bind(self, item: ast.expr | None, call: Called) -> list[ast.stmt]:
        if item is None:
            return []
        return [_placed(ast.Assign([copy.deepcopy(item)], ast.Name(_ITEM, ast.Load())), call.node)]


class _Replace(ast.NodeTransformer):
    """Puts other expressions in the place of some, by the identity of those."""

    def __init__(self, others: dict[int, ast.expr]) -> None:
        self._others = others

    def visit(self, node: ast.AST) -> Any:
        found = self._others.get(getattr(node, "_lyra_id", id(node)))
        return found if found is not None else self.generic_visit(node)


def _shallow(node: ast.expr) -> ast.expr:
    """A copy of a call whose own identity is forgotten, those of the calls in it not."""
    made = _numbered(node)
    made._lyra_id = 0
    found: ast.expr = made
    return found


def _numbered(node: Any) -> Any:
    """A deep copy whose expressions remember the identity of the ones they were copied from."""
    made = copy.deepcopy(node)
    for one, other in zip(ast.walk(node), ast.walk(made), strict=True):
        if isinstance(other, ast.expr):
            other._lyra_id = id(one)  # type: ignore[attr-defined]
    return made


def _reads(node: ast.AST) -> frozenset[str]:
    return frozenset(part.id for part in ast.walk(node) if isinstance(part, ast.Name))


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _lambda(body: ast.expr) -> ast.expr:
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(nothing, body)


def _call(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def _function(kind: type[_Definition], name: str, parameters: list[str], body: list[ast.stmt]) -> _Definition:
    spec = ast.arguments(
        posonlyargs=[], args=[ast.arg(each) for each in parameters], kwonlyargs=[], kw_defaults=[], defaults=[]
    )
    made = kind(name, spec, body, [])
    made.type_params = []  # type: ignore[attr-defined]  # asked for since Python 3.12
    return made


def _placed(node: _Node, place: ast.AST) -> _Node:
    """The node and what was made with it, at the place of the source it stands for."""
    for part in ast.walk(node):
        if isinstance(part, (ast.expr, ast.stmt, ast.arg)) and not hasattr(part, "lineno"):
            ast.copy_location(part, place)
    return node
