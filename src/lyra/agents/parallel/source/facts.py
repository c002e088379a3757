"""What the source of a function says of its variables: which are bound for sure, and which lists are its own.

A list (or dict) is a function's own when it made it and nobody else can hold it: the name is given nothing but lists
made on the spot, and is used for nothing that would hand the list itself to somebody.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from lyra.agents.parallel.source.call_sites import COMPREHENSIONS, SCOPES, Definition, inside, names_bound

__all__ = ["bound_before", "local_names", "own_names", "shared_names"]

_READERS: Final = frozenset(
    {
        *("len", "str", "repr", "sorted", "sum", "min", "max", "any", "all", "list", "tuple", "enumerate", "zip"),
        *("bool", "set", "frozenset", "dict"),
    }
)
_FRESH: Final = (ast.List, ast.ListComp, ast.Dict, ast.DictComp)


def parameters(tree: Definition) -> frozenset[str]:
    given = tree.args
    found = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    found += [each for each in (given.vararg, given.kwarg) if each is not None]
    return frozenset(each.arg for each in found)


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a function's own scope."""
    yield node
    for part in inside(node):
        yield from _parts(part)


def local_names(tree: Definition) -> frozenset[str]:
    found = set(parameters(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).split(".")[0])
        elif node is not tree:
            said = getattr(node, "rest" if isinstance(node, ast.MatchMapping) else "name", None)
            if isinstance(said, str):
                found.add(said)
    return frozenset(found)


def shared_names(tree: Definition) -> frozenset[str]:
    """The names that functions inside of it mention."""
    return frozenset(
        part.id
        for node in ast.walk(tree)
        if isinstance(node, SCOPES) and node is not tree
        for part in ast.walk(node)
        if isinstance(part, ast.Name)
    )


def own_names(tree: Definition, shadowed: frozenset[str]) -> frozenset[str]:
    made: set[str] = set()
    lost = set(parameters(tree) | shared_names(tree))
    fine: set[int] = set()
    for statement in tree.body:
        for node in _parts(statement):
            fine |= _harmless(node, shadowed)
            target = _made_here(node)
            if target is not None:
                made.add(target.id)
                fine.add(id(target))
    for statement in tree.body:
        for node in _parts(statement):
            if isinstance(node, ast.Name) and id(node) not in fine:
                lost.add(node.id)
            elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
                lost.add(node.name)
    return frozenset(made - lost)


def _made_here(node: ast.AST) -> ast.Name | None:
    """The name that is given a list made on the spot."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    is_binding = isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, _FRESH)
    return targets[0] if is_binding and len(targets) == 1 and isinstance(targets[0], ast.Name) else None


def _harmless(node: ast.AST, shadowed: frozenset[str]) -> set[int]:
    """The parts of a node that are used without being given away."""
    found: list[ast.AST | None] = []
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            if not node.func.attr.startswith("_"):
                found.append(node.func.value)
            if node.func.attr == "join" and isinstance(node.func.value, (ast.Constant, ast.JoinedStr)):
                found += node.args
        elif isinstance(node.func, ast.Name) and node.func.id in _READERS - shadowed and not node.keywords:
            found += node.args
    elif isinstance(node, (ast.Subscript, ast.FormattedValue, ast.Starred)):
        found.append(node.value)
    elif isinstance(node, ast.Compare) and all(isinstance(sign, (ast.In, ast.NotIn)) for sign in node.ops):
        found += node.comparators
    elif isinstance(node, (ast.If, ast.While, ast.IfExp)):
        found.append(node.test)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        found.append(node.operand)
    elif isinstance(node, (ast.For, ast.comprehension)):
        found.append(node.iter)
    elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and isinstance(node.value, _FRESH):
        found.append(node.target)
    elif isinstance(node, ast.Return):
        return {id(part) for part in _given_back(node.value)}
    return {id(part) for part in found if isinstance(part, ast.Name)}


def _given_back(node: ast.AST | None) -> Iterator[ast.AST]:
    """What a function returns is not its own any more, but then it is over."""
    if isinstance(node, ast.Name):
        yield node
    elif isinstance(node, (ast.List, ast.Tuple)):
        for part in node.elts:
            yield from _given_back(part)
    elif isinstance(node, ast.Dict):
        for part in node.values:
            yield from _given_back(part)


# ---------------------------------------------------------------- bound for sure

Bound = frozenset[str]
_ENDS: Final = (ast.Return, ast.Raise, ast.Break, ast.Continue)


def bound_before(tree: Definition) -> dict[int, Bound]:
    """For each statement (by its id) the variables that have a value when it begins, whatever happened before."""
    unsure = frozenset(
        part.id for part in ast.walk(tree) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Del)
    ) | frozenset(part.name for part in ast.walk(tree) if isinstance(part, ast.ExceptHandler) and part.name)
    found: dict[int, Bound] = {}
    _follow(tree.body, parameters(tree) - unsure, unsure, found)
    return found


def _follow(block: list[ast.stmt], bound: Bound, unsure: Bound, found: dict[int, Bound]) -> Bound | None:
    """What is bound at the end of a block; None when that is not reached."""
    for node in block:
        found[id(node)] = bound
        after = _after(node, bound, unsure, found)
        if after is None:
            for rest in block[block.index(node) + 1 :]:
                found[id(rest)] = bound
                _after(rest, bound, unsure, found)
            return None
        bound = after
    return bound


def _after(node: ast.stmt, bound: Bound, unsure: Bound, found: dict[int, Bound]) -> Bound | None:
    if isinstance(node, ast.If):
        return _either(_follow(node.body, bound, unsure, found), _follow(node.orelse, bound, unsure, found))
    if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
        target = names_bound(node.target) - unsure if not isinstance(node, ast.While) else frozenset()
        _follow(node.body, bound | target, unsure, found)
        _follow(node.orelse, bound, unsure, found)
        return bound
    if isinstance(node, (ast.With, ast.AsyncWith)):
        targets = [item.optional_vars for item in node.items if item.optional_vars is not None]
        _follow(node.body, bound | (names_bound(*targets) - unsure), unsure, found)
        return bound
    if isinstance(node, ast.Try):
        body = _follow(node.body, bound, unsure, found)
        ends = [None if body is None else _follow(node.orelse, body, unsure, found)]
        if body is None:
            _follow(node.orelse, bound, unsure, found)
        ends += [_follow(handler.body, bound, unsure, found) for handler in node.handlers]
        last = _follow(node.finalbody, bound, unsure, found)
        end = _either(*ends)
        return None if end is None or last is None else end | last
    if isinstance(node, ast.Match):
        for case in node.cases:
            _follow(case.body, bound, unsure, found)
        return bound
    if isinstance(node, _ENDS):
        return None
    if isinstance(node, (*SCOPES, ast.Import, ast.ImportFrom)) or hasattr(node, "body"):
        return bound
    own = [part for part in _parts(node) if not isinstance(part, COMPREHENSIONS)]
    stored = {part.id for part in own if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    inner = {
        part.id
        for each in ast.walk(node)
        if isinstance(each, ast.comprehension)
        for part in ast.walk(each.target)
        if isinstance(part, ast.Name)
    }
    is_empty = isinstance(node, ast.AnnAssign) and node.value is None
    return bound if is_empty else bound | (frozenset(stored - inner) - unsure)


def _either(*ends: Bound | None) -> Bound | None:
    reached = [end for end in ends if end is not None]
    return frozenset.intersection(*reached) if reached else None
