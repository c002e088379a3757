"""Takes out of a generated tree what a reader would strike out, and shortens what can be said more shortly.

`drop_unused` takes out variables, constants and parameters that nothing reads. `tidy` folds nested conditions, chains
comparisons, tests whether a collection is empty by its name, and takes out an `else` behind a `return`. Neither changes
what a module does.
"""

from __future__ import annotations

import ast
import builtins
import keyword
from collections.abc import Collection, Sequence
from typing import Final

from lyra.vesper.python.layout import SourceComment
from lyra.vesper.python.syntax import negate

_ROUNDS_MAX: Final = 8  # a variable that is gone may have been the only reader of another


def drop_unused(tree: ast.Module) -> None:
    """Replace assignments to variables that nothing reads, and take out constants of the module."""
    for _ in range(_ROUNDS_MAX):
        dropper = _Dropper(names_read(tree))
        for function in tree.body:
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                dropper.visit(function)
        constants = [node for node in tree.body if _is_unread_constant(node, dropper.names_read)]
        tree.body = [node for node in tree.body if node not in constants]
        if not dropper.has_changed and not constants:
            return


def _is_unread_constant(node: ast.stmt, read: set[str]) -> bool:
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id not in read


def names_read(tree: ast.Module) -> set[str]:
    """Return all names whose value something reads."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, ast.Nonlocal):
            names.update(node.names)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


class _Dropper(ast.NodeTransformer):
    def __init__(self, names_read: set[str]) -> None:
        self.names_read = names_read
        self.has_changed = False

    def visit_Assign(self, node: ast.Assign) -> ast.stmt | None:
        return self._replace_assignment(node, node.targets[0], node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt | None:
        return node if node.value is None else self._replace_assignment(node, node.target, node.value)

    def _replace_assignment(self, node: ast.stmt, target: ast.expr, value: ast.expr) -> ast.stmt | None:
        if not isinstance(target, ast.Name) or target.id in self.names_read or target.id == "_":
            return node
        self.has_changed = True
        if isinstance(value, ast.Call | ast.Await):
            return ast.Expr(value)
        if any(isinstance(part, ast.Call | ast.Await) for part in ast.walk(value)):
            return ast.Assign([ast.Name("_", ast.Store())], value)
        return None


# ---------------------------------------------------------------- tidy

_TIDY_ROUNDS_MAX: Final = 8  # a parameter that is gone may have been the only reader of another
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
    for _ in range(_TIDY_ROUNDS_MAX):
        functions = [node for node in ast.walk(tree) if isinstance(node, _Function) and node.name.startswith("_")]
        if not sum(_drop_parameters(tree, function) for function in functions):
            return


class _Tidier(ast.NodeTransformer):
    def visit_Assign(self, node: ast.Assign) -> ast.stmt | None:
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=ast.Name(id=value)) if target == value:
                return None
            case ast.Assign(
                targets=[ast.Name(id=target)],
                value=ast.BinOp(left=ast.Name(id=left), op=ast.Add() | ast.Sub() | ast.Mult() as operator, right=right),
            ) if target == left:
                return ast.AugAssign(ast.Name(target, ast.Store()), operator, right)
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

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        # `low < value <= high` for two comparisons of a name that stand beside each other.
        if not isinstance(node.op, ast.And):
            return node
        values: list[ast.expr] = []
        for value in node.values:
            chain = _chain(values[-1], value) if values else None
            if chain is None:
                values.append(value)
            else:
                values[-1] = chain
        node.values = values
        return values[0] if len(values) == 1 else node

    def visit_If(self, node: ast.If) -> ast.stmt:
        self.generic_visit(node)
        node.test = _shorten_test(node.test)
        comments, rest = _split_comments(node.orelse)
        match rest:
            case [ast.If() as other] if comments:
                other.body[:0] = comments
                node.orelse = [other]
        comments, rest = _split_comments(node.body)
        match rest:
            case [ast.If(orelse=[]) as inner] if not node.orelse:
                node.test = ast.BoolOp(ast.And(), [*_split_conjunction(node.test), *_split_conjunction(inner.test)])
                node.body = [*comments, *inner.body]
        return _choice(node) or node


def _without_needless_else(block: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements; the `else` block of an `if` that returns or raises is moved after it."""
    statements: list[ast.stmt] = []
    for node in block:
        statements.append(node)
        if isinstance(node, ast.If) and node.orelse and isinstance(node.body[-1], ast.Return | ast.Raise):
            statements += node.orelse
            node.orelse = []
    return statements


def _split_comments(body: Sequence[ast.stmt]) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """Return the comments at the head of a block, and the rest."""
    count = 0
    while count < len(body) and isinstance(body[count], SourceComment):
        count += 1
    return list(body[:count]), list(body[count:])


def _shorten_test(test: ast.expr) -> ast.expr:
    """Return the test of an `if`, where a collection's own truth says whether it is empty."""
    match test:
        case ast.BoolOp():
            test.values = [_shorten_test(value) for value in test.values]
        case ast.UnaryOp(op=ast.Not()):
            test.operand = _shorten_test(test.operand)
        case ast.Compare(
            left=ast.Call(func=ast.Name("len"), args=[ast.Name() as collection]),
            ops=[operator],
            comparators=[ast.Constant(value=0)],
        ):
            if isinstance(operator, ast.Gt | ast.NotEq):
                return collection
            if isinstance(operator, ast.LtE | ast.Eq):
                return negate(collection)
    return test


_UPWARDS: Final[dict[type[ast.cmpop], ast.cmpop]] = {ast.Gt: ast.Lt(), ast.GtE: ast.LtE()}


def _chain(first: ast.expr, second: ast.expr) -> ast.expr | None:
    for lower, upper in ((first, second), (second, first)):
        match lower, upper:
            case (
                ast.Compare(left=ast.Name(id=name), ops=[ast.Gt() | ast.GtE() as above], comparators=[low]),
                ast.Compare(left=ast.Name(id=other), ops=[ast.Lt() | ast.LtE() as below], comparators=[high]),
            ) if name == other and all(isinstance(limit, ast.Constant | ast.Name) for limit in (low, high)):
                return ast.Compare(low, [_UPWARDS[type(above)], below], [lower.left, high])
    return None


def _split_conjunction(test: ast.expr) -> list[ast.expr]:
    return test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]


def _choice(node: ast.If) -> ast.stmt | None:
    """Return the assignment that takes the smaller or the larger of two values, if this is one."""
    _, rest = _split_comments(node.body)
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
    """Return whether a call gives all arguments by place, and those at these places need no evaluation."""
    is_positional = not node.keywords and len(node.args) == count
    return is_positional and all(isinstance(node.args[place], ast.Name | ast.Constant) for place in places)


def join_loops(statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the statements; loops over the same elements that stand side by side are one."""
    joined: list[ast.stmt] = []
    for node in statements:
        match joined[-1:], node:
            case [ast.For(target=ast.Name(id=first)) as loop], ast.For(target=ast.Name(id=second)) if ast.dump(
                loop.iter
            ) == ast.dump(node.iter):
                loop.body += [_Renamer({second: first}).visit(statement) for statement in node.body]
            case _:
                joined.append(node)
    return joined


class _Renamer(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._names.get(node.id, node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(self._names.get(node.arg, node.arg), node.annotation)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.Nonlocal:
        return ast.Nonlocal(sorted(self._names.get(text, text) for text in node.names))

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        node.name = self._names.get(node.name, node.name) if node.name else None
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self._names.get(node.name, node.name)
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.name = self._names.get(node.name, node.name)
        return self.generic_visit(node)


def shorten_names(tree: ast.Module, bases: dict[str, str], parameters: Collection[str]) -> None:
    """Give each function names of its own: names are unique in a module while it is made, and need a number only where
    a function has two of them. Parameters of the node keep their names."""
    shared = {*dir(builtins), *keyword.kwlist, *keyword.softkwlist, *parameters}
    for node in tree.body:
        shared |= _find_defined(node)
    for node in tree.body:
        if isinstance(node, _Function):
            _shorten_inside(node, bases, shared)
            used = _find_used(node)
            names: dict[str, str] = {}
            for text in sorted(used & bases.keys() - shared, key=lambda text: (bases[text], len(text), text)):
                shorter = _find_free(bases[text], (used - {text}) | shared | set(names.values()))
                if len(shorter) < len(text) or not text.endswith("_"):
                    names[text] = shorter
            for field in ("args", "body"):
                part = getattr(node, field)
                renamer = _Renamer(names)
                setattr(
                    node, field, [renamer.visit(inner) for inner in part] if field == "body" else renamer.visit(part)
                )


def _shorten_inside(function: ast.AST, bases: dict[str, str], shared: set[str]) -> None:
    """Shorten the names that only a comprehension or a lambda has; another one may use the same."""
    for node in ast.walk(function):
        match node:
            case ast.ListComp(generators=[loop]) | ast.GeneratorExp(generators=[loop]):
                own = {loop.target.id} if isinstance(loop.target, ast.Name) else set()
            case ast.Lambda():
                own = {argument.arg for argument in node.args.args}
            case _:
                continue
        used = _find_used(node)
        for text in sorted(own & bases.keys()):
            if bases[text] not in used | shared:
                _Renamer({text: bases[text]}).generic_visit(node)


def _find_free(base: str, taken: set[str]) -> str:
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}_{number}"
    return name


def _find_defined(node: ast.stmt) -> set[str]:
    """Return the names that a statement of the module defines."""
    match node:
        case ast.ImportFrom():
            return {item.asname or item.name for item in node.names}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
    return set()


def _find_used(function: ast.AST) -> set[str]:
    """Return all names in a function."""
    used: set[str] = set()
    for node in ast.walk(function):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                used.add(name)
            case ast.Nonlocal(names=names):
                used.update(names)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if node is not function:
                used.add(name)
    return used
