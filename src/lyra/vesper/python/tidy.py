"""Tidies a generated tree, so that linters have nothing to say about its text.

Ifs in ifs become one, an `if` alone in an `else` becomes an `elif`, an assignment that only takes the smaller or larger
of two values becomes `min` or `max`, and an `else` after a `return` goes. So do assignments of a variable to itself and
parameters that a private function does not read. None of that changes what a node does.
Comments of steps move into the statement that they stand before; a tree whose steps are watched is therefore not
tidied.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Final

from lyra.vesper.python.layout import SourceComment

_ROUNDS_MAX: Final = 8  # a parameter that is gone may have been the only reader of another
_CHOICES: Final[dict[type[ast.cmpop], tuple[str, bool]]] = {  # the function, and whether the variable comes first
    ast.Gt: ("min", True),
    ast.GtE: ("min", False),
    ast.Lt: ("max", True),
    ast.LtE: ("max", False),
}
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def tidy(tree: ast.Module) -> None:
    """Tidy a module in place."""
    _Tidier().visit(tree)
    for _ in range(_ROUNDS_MAX):
        functions = [node for node in ast.walk(tree) if isinstance(node, _Function) and node.name.startswith("_")]
        if not sum(_drop_parameters(tree, function) for function in functions):
            return


class _Tidier(ast.NodeTransformer):
    def visit_Assign(self, node: ast.Assign) -> ast.stmt | None:
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=ast.Name(id=value)) if target == value:
                return None
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for field in ("body", "orelse"):
            block = getattr(node, field, None)
            if isinstance(block, list) and block:
                block[:] = _without_needless_else(block)
        body = getattr(node, "body", None)
        if isinstance(body, list) and all(isinstance(item, SourceComment) for item in body):
            body.append(ast.Pass())
        return node

    def visit_If(self, node: ast.If) -> ast.stmt:
        self.generic_visit(node)
        comments, rest = _parted(node.orelse)
        match rest:
            case [ast.If() as other] if comments:
                other.body[:0] = comments
                node.orelse = [other]
        comments, rest = _parted(node.body)
        match rest:
            case [ast.If(orelse=[]) as inner] if not node.orelse:
                node.test = ast.BoolOp(ast.And(), [*_joined(node.test), *_joined(inner.test)])
                node.body = [*comments, *inner.body]
        return _choice(node) or node


def _without_needless_else(block: list[ast.stmt]) -> list[ast.stmt]:
    """The statements; what stands in the `else` of an `if` that returns or raises stands after it."""
    statements: list[ast.stmt] = []
    for node in block:
        statements.append(node)
        if isinstance(node, ast.If) and node.orelse and isinstance(node.body[-1], ast.Return | ast.Raise):
            statements += node.orelse
            node.orelse = []
    return statements


def _parted(body: Sequence[ast.stmt]) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """The comments at the head of a block, and the rest."""
    count = 0
    while count < len(body) and isinstance(body[count], SourceComment):
        count += 1
    return list(body[:count]), list(body[count:])


def _joined(test: ast.expr) -> list[ast.expr]:
    return test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]


def _choice(node: ast.If) -> ast.stmt | None:
    """The assignment that takes the smaller or the larger of two values, if this is one."""
    _, rest = _parted(node.body)
    match node.test, rest:
        case (
            ast.Compare(left=ast.Name(id=left), ops=[operator], comparators=[right]),
            [ast.Assign(targets=[ast.Name(id=target)], value=value) as assignment],
        ) if not node.orelse and left == target and ast.dump(right) == ast.dump(value) and type(operator) in _CHOICES:
            function, is_first = _CHOICES[type(operator)]
            variable: ast.expr = ast.Name(left, ast.Load())
            values = [variable, right] if is_first else [right, variable]
            assignment.value = ast.Call(ast.Name(function, ast.Load()), values, [])
            return assignment
    return None


def _drop_parameters(tree: ast.Module, function: _Function) -> bool:
    """Take parameters that a private function does not read out of it and out of its calls; whether there were any."""
    names = {node.id for statement in function.body for node in ast.walk(statement) if isinstance(node, ast.Name)}
    parameters = function.args.args
    unread = [index for index, parameter in enumerate(parameters) if parameter.arg not in names]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_named(node.func, function.name)]
    mentions = [node for node in ast.walk(tree) if _is_named(node, function.name)]
    may_change = len(mentions) == len(calls) and not function.args.defaults and not function.args.kwonlyargs
    if not unread or not may_change or not all(_can_spare(item, unread, len(parameters)) for item in calls):
        return False
    for index in reversed(unread):
        del parameters[index]
        for item in calls:
            del item.args[index]
    return True


def _is_named(node: ast.AST, text: str) -> bool:
    return isinstance(node, ast.Name) and node.id == text


def _can_spare(node: ast.Call, places: list[int], count: int) -> bool:
    """Whether a call gives all arguments by place, and those at these places need no evaluation."""
    is_positional = not node.keywords and len(node.args) == count
    return is_positional and all(isinstance(node.args[place], ast.Name | ast.Constant) for place in places)
