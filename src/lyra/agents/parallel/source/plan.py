"""The plan of a Python file: which agent calls of its `@lyra.parallel` functions overlap, and why the others do not.

The file is read, not imported: `lyra.run` and the decorator are known by how they are imported and named. The plan says
what the source allows; whether an agent may be asked early, and whether values are plain, is decided when the function
runs. `CallOverlaps` finds which agent calls of a function can overlap by its source alone, and what keeps the others
apart.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, Final

from lyra.agents.parallel.expressions import shorten
from lyra.agents.parallel.safe_values import BUILTINS, METHODS
from lyra.agents.parallel.source.function_map import (
    COMPREHENSIONS,
    SCOPES,
    CallForm,
    Definition,
    inside,
    local_names,
    render_dotted,
)
from lyra.agents.parallel.source.source import NO_DEF, WRAPPERS, refusal
from lyra.agents.parallel.targets import RUN_OPTIONS
from lyra.errors import ParseError

_FUNCTIONS: Final = frozenset({work.__name__ for work in BUILTINS} | {"enumerate", "zip"})
# Attributes of agent processes, budgets and a program's ctx that change with every call.
_LIVE: Final = frozenset(
    {
        *("messages", "metrics", "execution", "agent_state", "memory", "alive", "state"),
        *("budget", "used", "usage", "remaining", "speculative", "restored", "replaying"),
    }
)
_OWN: Final = frozenset({"append", "extend", "items", "keys", "values", "get"})
_GONE_THROUGH: Final = frozenset({"enumerate", "zip", "range", "list", "tuple", "sorted"})


class CallSite:
    """One agent call. `after` are the calls whose answers it needs, `behind` those that its process answers first."""

    __slots__ = ("after", "behind", "chained", "in_loop", "is_of_turn", "node", "target", "ways", "whom", "why")

    def __init__(self, node: ast.expr, target: ast.expr) -> None:
        self.node = node
        self.target = target
        self.after: list[CallSite] = []
        self.behind: list[CallSite] = []
        self.chained = False  # each turn of its loop needs the turn before
        self.in_loop = False
        self.is_of_turn = False  # each turn asks another agent or process
        self.whom = ""
        self.why = ""  # why it is made in its turn in any case
        self.ways: dict[int, int] = {}  # branch around it → which way of the branch it is on

    def is_with(self, other: CallSite) -> bool:
        """Return whether both can be made in the same run."""
        return other is not self and all(other.ways.get(branch, way) == way for branch, way in self.ways.items())

    @property
    def line(self) -> int:
        return self.node.lineno

    @property
    def is_send(self) -> bool:
        call = self.node.value if isinstance(self.node, ast.Await) else self.node
        return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "send"


class _Stretch:
    """Calls without arbitrary code between them; `why` says what ends the stretch."""

    def __init__(self) -> None:
        self.calls: list[CallSite] = []
        self.why = ""


Needs = frozenset[CallSite]
_NOTHING: Final[Needs] = frozenset()


class CallOverlaps:
    def __init__(self, function: Definition, form: CallForm, run_names: frozenset[str]) -> None:
        self._form = form
        self._local = local_names(function)
        self._function = function
        self._run_names = run_names
        self._stretches: list[_Stretch] = [_Stretch()]
        self._names: dict[str, Needs] = {}
        self._decided: list[Needs] = []  # the answers that decide whether the program comes here
        self._loops: list[set[str]] = []  # for each loop around: names that a turn leaves to the next one
        self._ways: dict[int, int] = {}
        self._bound: dict[str, int] = {}  # how often a name was bound
        self._items: list[str] = []  # the loop variables
        self._cut: list[bool] = []  # for each loop around: whether it contains arbitrary code
        self._block(function.body)

    # ------------------------------------------------------------ results

    def groups(self) -> Iterator[tuple[int, list[CallSite]]]:
        for stretch in self._stretches:
            levels = _levels(stretch.calls)
            for step in sorted(set(levels.values())):
                calls = [call for call in stretch.calls if levels[call] == step]
                side_by_side = [call for call in calls if _overlaps(call, calls)]
                if side_by_side:
                    yield step, side_by_side

    def alone(self) -> Iterator[tuple[CallSite, str]]:
        before = ""
        for stretch in self._stretches:
            levels = _levels(stretch.calls)
            for call in stretch.calls:
                if not _overlaps(call, [other for other in stretch.calls if levels[other] == levels[call]]):
                    yield call, _why(call, stretch, before)
            before = stretch.why or before
        yield from self._others()

    def _others(self) -> Iterator[tuple[CallSite, str]]:
        """Agent calls that belong to an inner function, or are not awaited directly."""
        own = {id(self._form.call(call.node)) for stretch in self._stretches for call in stretch.calls}
        for node in ast.walk(self._function):
            if not isinstance(node, ast.Call) or id(node) in own:
                continue
            is_send = isinstance(node.func, ast.Attribute) and node.func.attr == "send"
            if render_dotted(node.func) in self._run_names and node.args:
                target = node.args[0]
            elif is_send and isinstance(self._function, ast.AsyncFunctionDef):
                target = node.func.value  # type: ignore[attr-defined]
            else:
                continue
            inner = next((part for part in self._scopes() if any(inner is node for inner in ast.walk(part))), None)
            if inner is None:
                yield CallSite(node, target), "it is not awaited by itself, but made where it stands"
            elif not hasattr(inner, "decorator_list") or not inner.decorator_list:
                yield (
                    CallSite(node, target),
                    f"it belongs to the function in line {inner.lineno}, which is its own affair",
                )

    def _scopes(self) -> Iterator[Any]:
        return (part for part in ast.walk(self._function) if isinstance(part, SCOPES) and part is not self._function)

    # ------------------------------------------------------------ statements

    def _block(self, statements: list[ast.stmt]) -> None:
        for node in statements:
            form = getattr(self, f"_{type(node).__name__.lower()}", None)
            if form is None:
                for part in inside(node):
                    self._needs(part)
                self._wall(node)
            else:
                form(node)

    def _wall(self, node: ast.AST, why: str = "") -> None:
        """Mark arbitrary code: no call is made early across it."""
        line = getattr(node, "lineno", 0)
        self._stretches[-1].why = why or f"`{shorten(node)}` in line {line} may do anything"
        self._stretches.append(_Stretch())
        self._cut = [True for _ in self._cut]

    def _pass(self, node: ast.Pass) -> None: ...

    _break = _continue = _pass

    def _expr(self, node: ast.Expr) -> None:
        self._needs(node.value)

    def _return(self, node: ast.Return) -> None:
        if node.value is not None:
            self._needs(node.value)

    def _assign(self, node: ast.Assign) -> None:
        needs = self._needs(node.value)
        for target in node.targets:
            self._bind(target, needs)

    def _annassign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._bind(node.target, self._needs(node.value))

    def _augassign(self, node: ast.AugAssign) -> None:
        before = self._names.get(node.target.id, _NOTHING) if isinstance(node.target, ast.Name) else _NOTHING
        self._bind(node.target, before | self._needs(node.value))

    def _bind(self, target: ast.expr, needs: Needs) -> None:
        if isinstance(target, ast.Name):
            self._names[target.id] = needs
            self._bound[target.id] = self._bound.get(target.id, 0) + 1
            for left in self._loops:
                left.discard(target.id)  # from here on it holds a value of this turn
        elif isinstance(target, (ast.Tuple, ast.List)) and all(isinstance(part, ast.Name) for part in target.elts):
            for part in target.elts:
                self._bind(part, needs)
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            self._names[target.value.id] = self._names.get(target.value.id, _NOTHING) | needs
        else:
            self._wall(target, f"`{shorten(target)} = …` in line {target.lineno} may do anything")

    def _if(self, node: ast.If) -> None:
        self._decided.append(self._needs(node.test))
        before = dict(self._names)
        self._ways[id(node)] = 1
        self._block(node.body)
        after_body, self._names = self._names, before
        self._ways[id(node)] = 2
        self._block(node.orelse)
        del self._ways[id(node)]
        for name, needs in after_body.items():
            self._names[name] = self._names.get(name, _NOTHING) | needs
        self._decided.pop()

    def _either(self, node: ast.IfExp, *, in_call: bool) -> Needs:
        needs = self._needs(node.test, in_call=in_call)
        self._decided.append(needs)
        for way, part in enumerate((node.body, node.orelse)):
            self._ways[id(node)] = way
            needs |= self._needs(part, in_call=in_call)
        del self._ways[id(node)]
        self._decided.pop()
        return needs

    def _in_turn(self, parts: list[ast.expr], *, in_call: bool) -> Needs:
        """Parts of which each is evaluated only if those before say so."""
        needs = _NOTHING
        for part in parts:
            self._decided.append(needs)
            needs |= self._needs(part, in_call=in_call)
            self._decided.pop()
        return needs

    def _while(self, node: ast.While) -> None:
        self._turns(node, [node.test], None, _NOTHING)

    def _for(self, node: ast.For) -> None:
        needs = self._go_through(node.iter)
        self._turns(node, [], node.target, needs)

    def _go_through(self, items: ast.expr) -> Needs:
        needs = self._needs(items)
        call = items if isinstance(items, ast.Call) else None
        is_known = isinstance(items, (ast.Name, ast.List, ast.Tuple, ast.Constant, ast.Subscript, ast.ListComp))
        if call is not None:
            is_named = isinstance(call.func, ast.Name) and call.func.id in _GONE_THROUGH
            is_known = is_named or (
                isinstance(call.func, ast.Attribute) and call.func.attr in (_OWN | {"split", "splitlines"})
            )
        if not is_known:
            self._wall(items, f"the loop in line {items.lineno} goes through `{shorten(items)}`, which may do anything")
        return needs

    def _turns(self, node: Any, tests: list[ast.expr], target: ast.expr | None, needs: Needs) -> None:
        """Follow a loop twice: first to see what a turn leaves to the next one, then to place its calls."""
        kept = (self._stretches, dict(self._names), self._cut)
        self._stretches, self._cut = [_Stretch()], [False]
        self._turn(node, tests, target, needs, frozenset())
        left = frozenset(name for name, need in self._names.items() if need and need != kept[1].get(name))
        is_cut = self._cut[0]
        self._stretches, self._names, self._cut = kept
        self._cut = [*self._cut, False]
        if is_cut:
            self._wall(node, f"the loop in line {node.lineno} does something in between that may do anything")
        last = len(self._stretches) - 1
        count = len(self._stretches[last].calls)
        self._turn(node, tests, target, needs, frozenset() if is_cut else left)
        if not is_cut:
            for call in self._stretches[last].calls[count:]:
                call.in_loop = True
        self._cut = self._cut[:-1]
        self._block(node.orelse)

    def _turn(
        self, node: Any, tests: list[ast.expr], target: ast.expr | None, needs: Needs, left: frozenset[str]
    ) -> None:
        self._loops.append(set(left))
        decided = needs
        for test in tests:
            decided |= self._needs(test)
        self._decided.append(decided)
        count = len(self._items)
        if target is not None:
            self._bind(target, needs)
            self._items += [part.id for part in ast.walk(target) if isinstance(part, ast.Name)]
        self._block(node.body)
        del self._items[count:]
        self._decided.pop()
        self._loops.pop()

    def _try(self, node: ast.Try) -> None:
        self._block(node.body)
        self._block(node.orelse)
        for handler in node.handlers:
            self._wall(handler, f"an error may be caught in line {handler.lineno}")
            self._block(handler.body)
        if node.handlers and node.finalbody:
            self._wall(node.finalbody[0], "an error may be on its way")
        self._block(node.finalbody)

    def _with(self, node: Any) -> None:
        for item in node.items:
            self._needs(item.context_expr)
        self._wall(node)
        self._block(node.body)
        self._wall(node, f"the end of `{shorten(node)}` in line {node.lineno} may do anything")

    _asyncwith = _with

    def _asyncfor(self, node: ast.AsyncFor) -> None:
        self._wall(node)
        self._block(node.body)
        self._wall(node)
        self._block(node.orelse)

    def _match(self, node: ast.Match) -> None:
        self._needs(node.subject)
        for case in node.cases:
            self._wall(node, f"`match` in line {node.lineno} is made in its turn")
            self._block(case.body)
        self._wall(node, f"`match` in line {node.lineno} is made in its turn")

    # ------------------------------------------------------------ expressions

    def _needs(self, node: ast.AST, *, in_call: bool = False) -> Needs:
        """Return the calls whose answers an expression needs; notes its own calls, and what may do anything."""
        if isinstance(node, ast.Name):
            if any(node.id in left for left in self._loops):
                return self._names.get(node.id, _NOTHING) | {_BEFORE}
            return self._names.get(node.id, _NOTHING)
        if isinstance(node, SCOPES):
            return _NOTHING
        if isinstance(node, COMPREHENSIONS):
            return self._comprehension(node)
        if isinstance(node, ast.IfExp):
            return self._either(node, in_call=in_call)
        if isinstance(node, ast.BoolOp):
            return self._in_turn(node.values, in_call=in_call)
        if isinstance(node, ast.Compare) and len(node.comparators) > 1:
            first = self._needs(node.left, in_call=in_call) | self._needs(node.comparators[0], in_call=in_call)
            self._decided.append(first)
            rest = self._in_turn(node.comparators[1:], in_call=in_call)
            self._decided.pop()
            return first | rest
        is_call = self._form.call(node) is not None
        needs = _NOTHING
        for part in inside(node):
            if isinstance(node, ast.Call) and part is node.func and isinstance(part, ast.Attribute):
                part = part.value  # noqa: PLW2901 - the method itself is checked below
            if not isinstance(part, (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)):
                needs |= self._needs(part, in_call=in_call or is_call)
        if is_call:
            assert isinstance(node, ast.expr)
            return frozenset({self._add_call(node, needs)})
        if isinstance(node, ast.Attribute) and (not in_call or node.attr in _LIVE):
            self._wall(node, f"`{shorten(node)}` in line {node.lineno} is read in its place: it may change until then")
        if isinstance(node, ast.Call) and not (in_call and self._form.call(ast.Await(node)) is not None):
            self._check_known_call(node, needs)
        elif isinstance(node, (ast.Await, ast.NamedExpr, ast.Set)):
            self._wall(node)
        return needs

    def _check_known_call(self, node: ast.Call, needs: Needs) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS - self._local and not node.keywords:
            return
        if isinstance(node.func, ast.Attribute) and node.func.attr in METHODS.keys() | _OWN and not node.keywords:
            if isinstance(node.func.value, ast.Name) and node.func.attr in ("append", "extend"):
                name = node.func.value.id
                self._names[name] = self._names.get(name, _NOTHING) | needs
            return
        self._wall(node)

    def _comprehension(self, node: Any) -> Needs:
        needs = _NOTHING
        kept = dict(self._names)
        stretches, count, items = len(self._stretches), len(self._stretches[-1].calls), len(self._items)
        for loop in node.generators:
            given = self._go_through(loop.iter)
            self._bind(loop.target, given)
            self._items += [part.id for part in ast.walk(loop.target) if isinstance(part, ast.Name)]
            self._decided.append(given)
            for test in loop.ifs:
                needs |= self._needs(test)
        for part in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            needs |= self._needs(part)
        for _ in node.generators:
            self._decided.pop()
        del self._items[items:]
        self._names = kept
        if len(self._stretches) == stretches:
            for call in self._stretches[-1].calls[count:]:
                call.in_loop = True
        return needs

    def _add_call(self, node: ast.expr, needs: Needs) -> CallSite:
        call = CallSite(node, self._form.target(node))
        needs |= _NOTHING.union(*self._decided)
        call.why = self._in_turn_always(node)
        if call.why:
            self._wall(node, call.why)
        stretch = self._stretches[-1]
        call.chained = _BEFORE in needs
        call.after = [other for other in stretch.calls if other in needs]
        read = {part.id for part in ast.walk(call.target) if isinstance(part, ast.Name)}
        call.is_of_turn = bool(read & set(self._items))
        call.ways = dict(self._ways)
        call.whom = f"{ast.unparse(call.target)} {[self._bound.get(name, 0) for name in sorted(read)]}"
        if call.is_send:
            call.behind = [other for other in stretch.calls if other.is_send and other.whom == call.whom]
            call.behind = [other for other in call.behind if call.is_with(other)]
        stretch.calls.append(call)
        if call.why:
            self._wall(node, call.why)
        return call

    def _in_turn_always(self, node: ast.expr) -> str:
        asked = self._form.call(node)
        assert asked is not None
        for keyword in asked.keywords:
            if keyword.arg is None:
                return "`**` is read in its place, and may say how its kernel is made"
            if render_dotted(asked.func) in self._run_names and keyword.arg not in RUN_OPTIONS:
                return f"`{keyword.arg}=` says how its kernel is made, which is then made in its turn"
        if any(isinstance(argument, ast.Starred) for argument in asked.args):
            return "`*` is read in its place"
        return ""


_BEFORE: Final = CallSite(ast.Constant(None), ast.Constant(None))  # represents a call of the turn before


def _levels(calls: list[CallSite]) -> dict[CallSite, int]:
    """1 for a call that waits for nothing of its stretch, else one more than the latest it waits for."""
    levels: dict[CallSite, int] = {}
    for call in calls:
        levels[call] = 1 + max((levels[other] for other in (*call.after, *call.behind) if other in levels), default=0)
    return levels


def _overlaps(call: CallSite, beside: list[CallSite]) -> bool:
    return _turns_overlap(call) or any(call.is_with(other) for other in beside)


def _turns_overlap(call: CallSite) -> bool:
    """Return whether turns of its own loop overlap: not if one process answers them all."""
    if not call.in_loop or call.chained:
        return False
    return not call.is_send or call.is_of_turn


def _why(call: CallSite, stretch: _Stretch, before: str) -> str:
    if call.why:
        return call.why
    if call.chained:
        return "each turn of the loop needs the answer of the one before"
    if call.after:
        lines = ", ".join(str(line) for line in sorted({other.line for other in call.after}))
        return f"it needs the answer of line {lines}"
    if call.behind:
        line = max(other.line for other in call.behind)
        return f"`{ast.unparse(call.target)}` answers line {line} first: one process is one conversation"
    if call.in_loop:
        return f"`{ast.unparse(call.target)}` answers the turns one after the other: one process is one conversation"
    waiting = sorted({other.line for other in stretch.calls if call in (*other.after, *other.behind)})
    if waiting:
        return f"those behind it wait for it: line {', '.join(map(str, waiting))}"
    walls = ", and ".join(dict.fromkeys(wall for wall in (before, stretch.why) if wall))
    return f"no other call stands beside it: {walls}" if walls else "no other call stands beside it"


_ASKING: Final = ("run", "parallel")
_RETURN_SAME: Final = frozenset(  # decorators that give back the function itself
    {"override", "final", "no_type_check", "typing.override", "typing.final", "typing.no_type_check"}
)


class CallPlan:
    """`groups` are (function, calls that overlap), `alone` (function, call, why), `refused` (function, line, why)."""

    def __init__(self) -> None:
        self.groups: list[tuple[str, int, list[CallSite]]] = []
        self.alone: list[tuple[str, CallSite, str]] = []
        self.refused: list[tuple[str, int, str]] = []


def plan_of(text: str, name: str) -> CallPlan:
    try:
        module = ast.parse(text)
    except SyntaxError as error:
        raise ParseError(f"{error.msg}", file=name, line=error.lineno or 1, column=error.offset or 1) from None
    known = _find_asking_names(module)
    given = _find_passed(module, known["parallel"])
    plan = CallPlan()
    unchanging = _RETURN_SAME | _returning_it(module)
    for function, path in _functions(module, ""):
        below = _below(function, known["parallel"], is_given=path in given)
        if below is None:
            continue
        other = next(
            (decorator for decorator in below if (render_dotted(_callee(decorator)) or "") not in unchanging), None
        )
        if other is not None:
            plan.refused.append((path, other.lineno, _no_def(other)))
        else:
            _add(function, path, known["run"], plan)
    return plan


def _below(function: Any, parallel: frozenset[str], *, is_given: bool) -> list[ast.expr] | None:
    """Return the decorators below `@lyra.parallel`; None where the function is not decorated with it."""
    decorators = function.decorator_list
    places = [index for index, decorator in enumerate(decorators) if render_dotted(_callee(decorator)) in parallel]
    if places:
        return list(decorators[places[-1] + 1 :])
    return list(decorators) if is_given else None


def _no_def(decorator: ast.expr) -> str:
    """Return why a function below another decorator is refused."""
    name = ast.unparse(_callee(decorator))
    if name in WRAPPERS:
        return f"it is a {name}; put `@{name}` above `@lyra.parallel`"
    return f"{NO_DEF}, but what `@{name}` gives"


def _returning_it(module: ast.Module) -> frozenset[str]:
    """Return the decorators of the file that return the function itself, by their source: they register or mark it."""
    names = set()
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and node.args.args:
            returned = [part.value for part in ast.walk(node) if isinstance(part, ast.Return)]
            if returned and all(
                isinstance(value, ast.Name) and value.id == node.args.args[0].arg for value in returned
            ):
                names.add(node.name)
    return frozenset(names)


def _add(function: Any, path: str, run_names: frozenset[str], plan: CallPlan) -> None:
    why = refusal(function)
    if why is not None:
        plan.refused.append((path, getattr(why[0], "lineno", function.lineno), why[1]))
        return
    form = CallForm(is_async=isinstance(function, ast.AsyncFunctionDef), run_names=run_names)
    overlaps = CallOverlaps(function, form, run_names)
    plan.groups += [(path, step, calls) for step, calls in overlaps.groups()]
    plan.alone += [(path, call, reason) for call, reason in overlaps.alone()]


def _functions(node: ast.AST, path: str) -> Iterator[tuple[Any, str]]:
    for part in ast.iter_child_nodes(node):
        name = f"{path}.{part.name}" if path and hasattr(part, "name") else getattr(part, "name", path)
        if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield part, str(name)
        inner = isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        yield from _functions(part, str(name) if inner else path)


def _find_asking_names(module: ast.Module) -> dict[str, frozenset[str]]:
    """Return the names by which the file knows `lyra.run` and `lyra.parallel`."""
    known: dict[str, set[str]] = {what: set() for what in _ASKING}
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "lyra":
                    for what, names in known.items():
                        names.add(f"{alias.asname or 'lyra'}.{what}")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "lyra":
            for alias in node.names:
                if alias.name in known:
                    known[alias.name].add(alias.asname or alias.name)
    for node in ast.walk(module):
        if isinstance(node, ast.Assign):
            for what, names in known.items():
                if render_dotted(node.value) in names:
                    known[what] = names | {target.id for target in node.targets if isinstance(target, ast.Name)}
    return {what: frozenset(names) for what, names in known.items()}


def _find_passed(module: ast.Module, parallel: frozenset[str]) -> frozenset[str]:
    """Return the functions that are passed to the decorator in a call: `f = lyra.parallel(f)`."""
    return frozenset(
        node.args[0].id
        for node in ast.walk(module)
        if isinstance(node, ast.Call)
        and render_dotted(node.func) in parallel
        and len(node.args) == 1
        and not node.keywords
        if isinstance(node.args[0], ast.Name)
    )


def _callee(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node
