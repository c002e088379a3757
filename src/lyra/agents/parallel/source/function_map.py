"""FunctionMap: a function as the lookahead reads it: its syntax tree, with its agent calls and loops numbered.

The rewritten function passes these numbers to the CallGroup that runs it. From the source alone follow facts about a
function's variables: which are bound for sure, and which lists are its own.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping
from types import CellType
from typing import Any, Final

from lyra.agents.parallel.safe_values import StopLookahead

_READERS: Final = frozenset(
    {
        *("len", "str", "repr", "sorted", "sum", "min", "max", "any", "all", "list", "tuple", "enumerate", "zip"),
        *("bool", "set", "frozenset", "dict"),
    }
)
_FRESH: Final = (ast.List, ast.ListComp, ast.Dict, ast.DictComp)


def parameters(tree: Definition) -> frozenset[str]:
    given = tree.args
    arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    arguments += [argument for argument in (given.vararg, given.kwarg) if argument is not None]
    return frozenset(argument.arg for argument in arguments)


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a function's own scope."""
    yield node
    for part in inside(node):
        yield from _parts(part)


def local_names(tree: Definition) -> frozenset[str]:
    names = set(parameters(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).split(".")[0])
        elif node is not tree:
            bound = getattr(node, "rest" if isinstance(node, ast.MatchMapping) else "name", None)
            if isinstance(bound, str):
                names.add(bound)
    return frozenset(names)


def find_shared_names(tree: Definition) -> frozenset[str]:
    """Return the names that inner functions use."""
    return frozenset(
        part.id
        for node in ast.walk(tree)
        if isinstance(node, SCOPES) and node is not tree
        for part in ast.walk(node)
        if isinstance(part, ast.Name)
    )


def find_own_names(tree: Definition, shadowed: frozenset[str]) -> frozenset[str]:
    """Return the names whose lists and dicts are the function's own; `shadowed` are builtins that it may have
    redefined."""
    own: set[str] = set()
    lost = set(parameters(tree) | find_shared_names(tree))
    harmless: set[int] = set()
    for statement in tree.body:
        for node in _parts(statement):
            harmless |= _harmless(node, shadowed)
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            is_binding = isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, _FRESH)
            target = targets[0] if is_binding and len(targets) == 1 and isinstance(targets[0], ast.Name) else None
            if target is not None:
                own.add(target.id)
                harmless.add(id(target))
    for statement in tree.body:
        for node in _parts(statement):
            if isinstance(node, ast.Name) and id(node) not in harmless:
                lost.add(node.id)
            elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
                lost.add(node.name)
    return frozenset(own - lost)


def _harmless(node: ast.AST, shadowed: frozenset[str]) -> set[int]:
    """Return the names in a node that are used without passing their value on, by the ids of their nodes."""
    used: list[ast.AST | None] = []
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            if not node.func.attr.startswith("_"):
                used.append(node.func.value)
            if node.func.attr == "join" and isinstance(node.func.value, (ast.Constant, ast.JoinedStr)):
                used += node.args
        elif isinstance(node.func, ast.Name) and node.func.id in _READERS - shadowed and not node.keywords:
            used += node.args
    elif isinstance(node, (ast.Subscript, ast.FormattedValue, ast.Starred)):
        used.append(node.value)
    elif isinstance(node, ast.Compare) and all(isinstance(sign, (ast.In, ast.NotIn)) for sign in node.ops):
        used += node.comparators
    elif isinstance(node, (ast.If, ast.While, ast.IfExp)):
        used.append(node.test)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        used.append(node.operand)
    elif isinstance(node, (ast.For, ast.comprehension)):
        used.append(node.iter)
    elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and isinstance(node.value, _FRESH):
        used.append(node.target)
    elif isinstance(node, ast.Return):
        return {id(part) for part in _find_returned(node.value)}
    return {id(part) for part in used if isinstance(part, ast.Name)}


def _find_returned(node: ast.AST | None) -> Iterator[ast.AST]:
    """Yield the names that a function returns: it passes them on, but only when it ends."""
    if isinstance(node, ast.Name):
        yield node
    elif isinstance(node, (ast.List, ast.Tuple)):
        for part in node.elts:
            yield from _find_returned(part)
    elif isinstance(node, ast.Dict):
        for part in node.values:
            yield from _find_returned(part)


Bound = frozenset[str]
_ENDS: Final = (ast.Return, ast.Raise, ast.Break, ast.Continue)


def _follow(block: list[ast.stmt], bound: Bound, unsure: Bound, bound_at: dict[int, Bound]) -> Bound | None:
    """Return the variables bound at the end of a block; None if the end is not reached."""
    for node in block:
        bound_at[id(node)] = bound
        after = _after(node, bound, unsure, bound_at)
        if after is None:
            for rest in block[block.index(node) + 1 :]:
                bound_at[id(rest)] = bound
                _after(rest, bound, unsure, bound_at)
            return None
        bound = after
    return bound


def _after(node: ast.stmt, bound: Bound, unsure: Bound, bound_at: dict[int, Bound]) -> Bound | None:
    if isinstance(node, ast.If):
        return _either(_follow(node.body, bound, unsure, bound_at), _follow(node.orelse, bound, unsure, bound_at))
    if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
        target = names_bound(node.target) - unsure if not isinstance(node, ast.While) else frozenset()
        _follow(node.body, bound | target, unsure, bound_at)
        _follow(node.orelse, bound, unsure, bound_at)
        return bound
    if isinstance(node, (ast.With, ast.AsyncWith)):
        targets = [item.optional_vars for item in node.items if item.optional_vars is not None]
        _follow(node.body, bound | (names_bound(*targets) - unsure), unsure, bound_at)
        return bound
    if isinstance(node, ast.Try):
        body = _follow(node.body, bound, unsure, bound_at)
        ends = [None if body is None else _follow(node.orelse, body, unsure, bound_at)]
        if body is None:
            _follow(node.orelse, bound, unsure, bound_at)
        ends += [_follow(handler.body, bound, unsure, bound_at) for handler in node.handlers]
        last = _follow(node.finalbody, bound, unsure, bound_at)
        end = _either(*ends)
        return None if end is None or last is None else end | last
    if isinstance(node, ast.Match):
        for case in node.cases:
            _follow(case.body, bound, unsure, bound_at)
        return bound
    if isinstance(node, _ENDS):
        return None
    if isinstance(node, (*SCOPES, ast.Import, ast.ImportFrom)) or hasattr(node, "body"):
        return bound
    own = [part for part in _parts(node) if not isinstance(part, COMPREHENSIONS)]
    stored = {part.id for part in own if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    inner = {
        part.id
        for inner_node in ast.walk(node)
        if isinstance(inner_node, ast.comprehension)
        for part in ast.walk(inner_node.target)
        if isinstance(part, ast.Name)
    }
    is_empty = isinstance(node, ast.AnnAssign) and node.value is None
    return bound if is_empty else bound | (frozenset(stored - inner) - unsure)


def _either(*ends: Bound | None) -> Bound | None:
    reached = [end for end in ends if end is not None]
    return frozenset.intersection(*reached) if reached else None


# Which expressions of a function's source are agent calls, and in which order they are evaluated.

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
        """Return the call if the node asks an agent, else None."""
        call: ast.AST = node
        if self._is_async:
            if not isinstance(node, ast.Await):
                return None
            call = node.value
        if not isinstance(call, ast.Call):
            return None
        if render_dotted(call.func) in self._run_names and call.args:
            return call
        is_send = self._is_async and isinstance(call.func, ast.Attribute) and call.func.attr == "send"
        return call if is_send else None

    def target(self, node: ast.AST) -> ast.expr:
        """Return the expression of the agent or process that is asked."""
        call = self.call(node)
        assert call is not None
        if render_dotted(call.func) in self._run_names:
            return call.args[0]
        assert isinstance(call.func, ast.Attribute)
        return call.func.value

    def calls(self, node: ast.AST) -> Iterator[ast.expr]:
        """Yield the agent calls in a statement or an expression, in the order they are made."""
        for part in inside(node):
            yield from self.calls(part)
        if self.call(node) is not None:
            assert isinstance(node, ast.expr)
            yield node


def inside(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a node in evaluation order, without those that run at another time."""
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


def render_dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return ""


# Attributes that are set on nodes of a function's syntax tree: the numbers of its calls, loops and statements.

SITE: Final = "lyra_site"  # the number of an agent call
CHECKED: Final = "lyra_checked"  # set on agent calls in statements that are watched for errors
LOOP: Final = "lyra_loop"  # the number of a loop whose items are compared when the program reads them
LOOK: Final = "lyra_look"  # the number of a statement at which a lookahead may begin


class FunctionMap:
    """`names` are the variables that are bound at each call; empty for a call in a comprehension."""

    def __init__(
        self,
        tree: Definition,
        form: CallForm,
        shadowed: frozenset[str] = frozenset(),
        known: Mapping[str, Any] | None = None,
        cells: Mapping[str, CellType] | None = None,
    ) -> None:
        self.body = tree.body
        self.local = local_names(tree)
        self.shared = find_shared_names(tree)
        self.own = find_own_names(tree, shadowed)
        self.sites: list[ast.expr] = []
        self.names: list[tuple[str, ...]] = []
        self.statements: list[ast.stmt] = []
        self.statement_names: list[tuple[str, ...]] = []
        self.looped: dict[int, str] = {}  # loop number → the variable that the loop reads, if it reads one
        self._known = known if known is not None else {}
        self._cells = cells if cells is not None else {}
        self._above: dict[int, ast.AST] = {}
        self._form = form
        # For each statement (by its id) the variables that are bound when it begins, on every path.
        unsure = frozenset(
            part.id for part in ast.walk(tree) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Del)
        ) | frozenset(part.name for part in ast.walk(tree) if isinstance(part, ast.ExceptHandler) and part.name)
        bound_at: dict[int, Bound] = {}
        _follow(tree.body, parameters(tree) - unsure, unsure, bound_at)
        self._bound = bound_at
        self._loops = 0
        for node in tree.body:
            self._number(node, node, in_comprehension=False)

    def _number(self, node: ast.AST, statement: ast.stmt, *, in_comprehension: bool) -> bool:
        """Number the calls in a node; gives whether there are any."""
        is_deeper = in_comprehension or isinstance(node, COMPREHENSIONS)
        has_calls = False
        for part in inside(node):
            self._above[id(part)] = node
            within = part if isinstance(part, ast.stmt) else statement
            has_calls = self._number(part, within, in_comprehension=is_deeper) or has_calls
        if self._form.call(node) is not None:
            assert isinstance(node, ast.expr)
            setattr(node, SITE, len(self.sites))
            if isinstance(statement, SIMPLE):
                setattr(node, CHECKED, True)
            self.sites.append(node)
            self.names.append(() if in_comprehension else self._names_at(statement))
            return True
        if has_calls and isinstance(node, (ast.For, *COMPREHENSIONS)):
            self._mark_loops(node, statement)
        return has_calls

    def _mark_loops(self, node: ast.AST, statement: ast.stmt) -> None:
        loops = [node] if isinstance(node, ast.For) else node.generators  # type: ignore[attr-defined]
        if not isinstance(node, ast.For) and not isinstance(statement, SIMPLE):
            return
        for loop in loops:
            setattr(loop, LOOP, self._loops)
            if isinstance(loop.iter, ast.Name):
                self.looped[self._loops] = loop.iter.id
            self._loops += 1
        if not isinstance(node, ast.For) and not hasattr(statement, LOOK):
            setattr(statement, LOOK, len(self.statements))
            self.statements.append(statement)
            self.statement_names.append(self._names_at(statement))

    def _names_at(self, statement: ast.stmt) -> tuple[str, ...]:
        return tuple(sorted(self._bound.get(id(statement), frozenset())))

    def path_to(self, place: ast.AST) -> frozenset[int]:
        """Return the ids of a node and of all nodes around it."""
        path = {id(place)}
        while (above := self._above.get(id(place))) is not None:
            place = above
            path.add(id(place))
        return frozenset(path)

    def outer(self, name: str) -> Any:
        """Return the value of a name that is not the function's own: of an enclosing function, its module, or a
        builtin."""
        if name in self._cells:
            try:
                return self._cells[name].cell_contents
            except ValueError:
                raise StopLookahead(f"`{name}` has no value yet") from None
        if name in self._known:
            return self._known[name]
        if hasattr(builtins, name) and self._known.get("__builtins__", builtins) in (builtins, builtins.__dict__):
            return getattr(builtins, name)
        raise StopLookahead(f"`{name}` has no value yet")
