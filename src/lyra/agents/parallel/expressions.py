"""ExpressionEvaluator: evaluates expressions ahead of their turn, on plain values, pending values and own lists.

Each form is a generator: it yields the calls whose answers it has to wait for, and returns the value. An expression
that might run a user's code, or fail, raises `StopLookahead`: the lookahead ends there, and the program continues
alone.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final

from lyra.agents.parallel.pending_values import UNKNOWN, OwnContainer, PendingValue, calls_of, kind_of, resolve
from lyra.agents.parallel.safe_values import (
    BUILTINS,
    METHODS,
    OPERATORS,
    StopLookahead,
    compute,
    is_data,
    is_plain,
    read,
)
from lyra.agents.parallel.source.function_map import SITE

Waits = Generator[Any, None, Any]
_STEPS: Final = 50_000  # from one call to the next, in case the program loops for ever
_MANY: Final = 10_000
_SAID: Final = (str, int, bool)

# Methods that cannot fail on a pending text, and the type of their result.
_SURE_METHODS: Final[dict[str, type]] = {
    **dict.fromkeys(("strip", "lstrip", "rstrip", "upper", "lower", "title", "capitalize", "casefold"), str),
    **dict.fromkeys(("replace", "removeprefix", "removesuffix"), str),
    **dict.fromkeys(("startswith", "endswith"), bool),
    **dict.fromkeys(("find", "count"), int),
}
_SURE_COUNTS: Final[dict[str, tuple[int, int]]] = {
    **dict.fromkeys(("strip", "lstrip", "rstrip"), (0, 1)),
    **dict.fromkeys(("removeprefix", "removesuffix", "startswith", "endswith", "find", "count"), (1, 1)),
    "replace": (2, 2),
}
_DRAINING: Final = (list, tuple, sum, min, max, any, all, sorted)


class ExpressionEvaluator(ABC):
    """`names` are the function's variables; `path` holds the nodes around the start of the lookahead, until it is
    reached."""

    def __init__(
        self, names: dict[str, Any], local: frozenset[str], shared: frozenset[str], outer: Callable[[str], Any]
    ) -> None:
        self.names = names
        self.shared = shared  # variables that an inner function uses, too
        self.path: frozenset[int] | None = None
        self.may_change = False  # mutable values may be read here: they are compared when the program comes here
        self.touched: list[Any] = []  # real lists that the program changes on the way
        self._local = local
        self._outer = outer
        self.steps = 0

    # ------------------------------------------------------------ one expression

    def value(self, node: ast.expr) -> Waits:
        self.steps += 1
        if self.steps > _STEPS:
            raise StopLookahead("it is far ahead")
        if self.path is not None and id(node) not in self.path:
            # The value of a part before the place where the lookahead begins. The program has computed it already; it
            # is computed again if the result must be the same, else it is UNKNOWN.
            if any(hasattr(part, SITE) for part in ast.walk(node)):
                return UNKNOWN
            path, self.path = self.path, None
            may_change, self.may_change = self.may_change, False
            try:
                for _ in (work := _Result(self.value(node))):
                    return UNKNOWN
                return work.value
            except StopLookahead:
                return UNKNOWN
            finally:
                self.path, self.may_change = path, may_change
        if hasattr(node, SITE):
            return (yield from self.issue_call(node))
        form = getattr(self, f"_{type(node).__name__.lower()}", None)
        if form is None:
            raise _unknown(node)
        return (yield from form(node))

    @abstractmethod
    def issue_call(self, node: ast.expr) -> Waits:
        """Return the pending value of a call that is made early."""

    def values(self, nodes: list[ast.expr]) -> Waits:
        values: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                values += list(self.items_of((yield from self.value(node.value))))
            else:
                values.append((yield from self.value(node)))
        return values

    def wait_for_value(self, value: Any) -> Waits:
        """Return the value itself, after waiting for the answers that it needs."""
        while waiting := [call for call in calls_of(value) if not call.is_answered]:
            yield tuple(waiting)
        if not isinstance(value, PendingValue):
            return value
        answer = resolve(value)
        if not is_plain(answer):
            raise StopLookahead(f"it needs an answer that is {_article(answer)}")
        return answer

    def wait_for_plain(self, value: Any) -> Waits:
        """Return the value with all its parts known, fit to compute with."""
        yield from self.wait_for_value(value)
        known = resolve(value)
        if not is_data(known):
            raise StopLookahead(f"it is computed from {_article(known)}")
        self._check(value)
        return known

    def _check(self, value: Any) -> None:
        if isinstance(value, OwnContainer):
            for part in value.values:
                self._check(part)
        elif not isinstance(value, PendingValue) and not is_plain(value):
            self.changes(value)

    def changes(self, value: Any) -> None:
        """Refuse a mutable value that may change before the program comes here, unless it is compared then."""
        if any(value is changed for changed in self.touched):
            raise StopLookahead(f"it is computed from {_article(value)} that was changed before")
        if not self.may_change:
            raise StopLookahead(f"it is computed from {_article(value)}, which may change until then")

    def truth(self, value: Any) -> Waits:
        known = yield from self.wait_for_value(value)
        if isinstance(known, OwnContainer):
            return bool(known.parts)
        return bool((yield from self.wait_for_plain(known)))

    def apply(self, work: Any, *operands: Any, sure: type | None = None) -> Waits:
        """Return the result for operands. `sure`: it cannot fail and has this type, so that it can be a pending
        value."""
        waiting = tuple(dict.fromkeys(call for value in operands for call in calls_of(value) if not call.is_answered))
        if waiting and sure is not None:
            return PendingValue(waiting, sure, lambda: work(*map(resolve, operands)))
        known: list[Any] = []
        for value in operands:
            known += ((yield from self.wait_for_plain(value)),)
        return compute(work, *known)

    # ------------------------------------------------------------ names and parts

    def _lambda(self, node: ast.Lambda) -> Waits:
        yield from ()
        if node.args.defaults or node.args.kw_defaults:
            raise _unknown(node)
        return UNKNOWN

    def _constant(self, node: ast.Constant) -> Waits:
        yield from ()
        return node.value

    def _name(self, node: ast.Name) -> Waits:
        yield from ()
        if node.id in self.names:
            return self.names[node.id]
        if node.id in self._local:
            raise StopLookahead(f"`{node.id}` may have no value")
        value = self._outer(node.id)
        if is_plain(value):
            self.changes(value)
        return value

    def _attribute(self, node: ast.Attribute) -> Waits:
        whole = yield from self.wait_for_value((yield from self.value(node.value)))
        if isinstance(whole, OwnContainer) or whole is UNKNOWN:
            raise _unknown(node)
        value = read(whole, node.attr)
        self.changes(value)
        return value

    def _subscript(self, node: ast.Subscript) -> Waits:
        whole = yield from self.wait_for_value((yield from self.value(node.value)))
        if isinstance(node.slice, ast.Slice):
            ends = [node.slice.lower, node.slice.upper, node.slice.step]
            bounds: list[Any] = []
            for end in ends:
                bounds += (None if end is None else (yield from self.wait_for_plain((yield from self.value(end)))),)
            index: Any = slice(*bounds)
        else:
            index = yield from self.wait_for_plain((yield from self.value(node.slice)))
        return self.item(whole, index)

    def item(self, whole: Any, index: Any) -> Any:
        if isinstance(whole, OwnContainer):
            part = compute(lambda: whole.parts[index])
            return OwnContainer(whole.kind, part) if isinstance(index, slice) else part
        if type(whole) in (list, dict):
            if type(whole) is dict and not all(map(is_plain, whole)):
                raise StopLookahead("it is looked up by something that is not plain")
            self.changes(whole)
        elif type(whole) is not tuple and not is_plain(whole):
            raise StopLookahead(f"it is a part of {_article(whole)}")
        return compute(lambda: whole[index])

    # ------------------------------------------------------------ displays

    def _tuple(self, node: ast.Tuple) -> Waits:
        parts = yield from self.values(node.elts)
        is_real = not any(isinstance(part, (PendingValue, OwnContainer)) or part is UNKNOWN for part in parts)
        return tuple(parts) if is_real else OwnContainer(tuple, parts)

    def _list(self, node: ast.List) -> Waits:
        return OwnContainer(list, (yield from self.values(node.elts)))

    def _dict(self, node: ast.Dict) -> Waits:
        parts: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                raise _unknown(value)
            plain_key = yield from self.wait_for_plain((yield from self.value(key)))
            if not is_plain(plain_key):
                raise _unknown(key)
            parts[plain_key] = yield from self.value(value)
        return OwnContainer(dict, parts)

    # ------------------------------------------------------------ operators

    def _binop(self, node: ast.BinOp) -> Waits:
        left = yield from self.value(node.left)
        return (yield from self.join_values(node.op, left, (yield from self.value(node.right))))

    def join_values(self, sign: ast.operator, left: Any, right: Any) -> Waits:
        kinds = (kind_of(left), kind_of(right))
        sure = str if isinstance(sign, ast.Add) and kinds == (str, str) else None
        for side in (left, right):
            if isinstance(side, OwnContainer) and side.kind is not tuple:
                raise StopLookahead("lists are joined in their place")
        return (yield from self.apply(_operator(sign), left, right, sure=sure))

    def _unaryop(self, node: ast.UnaryOp) -> Waits:
        value = yield from self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return not (yield from self.truth(value))
        if isinstance(node.op, ast.Invert):
            raise _unknown(node)
        return (yield from self.apply(_operator(node.op), value))

    def _boolop(self, node: ast.BoolOp) -> Waits:
        value: Any = UNKNOWN
        for part in node.values:
            value = yield from self.value(part)
            if self.path is not None:
                continue  # the lookahead begins behind this part
            if part is not node.values[-1] and (yield from self.truth(value)) is isinstance(node.op, ast.Or):
                break
        return value

    def _ifexp(self, node: ast.IfExp) -> Waits:
        if self.path is not None:
            for part in (node.body, node.orelse):
                if id(part) in self.path:
                    return (yield from self.value(part))
        holds = yield from self.truth((yield from self.value(node.test)))
        return (yield from self.value(node.body if holds else node.orelse))

    def _compare(self, node: ast.Compare) -> Waits:
        left = yield from self.value(node.left)
        result: Any = True
        for sign, part in zip(node.ops, node.comparators, strict=True):
            right = yield from self.value(part)
            if self.path is None:
                result = yield from self._compare_two(sign, left, right)
                if part is not node.comparators[-1] and not (yield from self.truth(result)):
                    break
            left = right
        return result

    def _compare_two(self, sign: ast.cmpop, left: Any, right: Any) -> Waits:
        if isinstance(sign, (ast.Is, ast.IsNot)):
            first, second = (yield from self.wait_for_value(left)), (yield from self.wait_for_value(right))
            known = first is not UNKNOWN and second is not UNKNOWN
            if not known or not any(value is None or type(value) is bool for value in (first, second)):
                raise StopLookahead("`is` asks for the thing itself")
            return (first is second) is isinstance(sign, ast.Is)
        is_text = (kind_of(left), kind_of(right)) == (str, str)
        sure = bool if is_text and isinstance(sign, (ast.Eq, ast.NotEq, ast.In, ast.NotIn)) else None
        return (yield from self.apply(_operator(sign), left, right, sure=sure))

    # ------------------------------------------------------------ text

    def _joinedstr(self, node: ast.JoinedStr) -> Waits:
        parts = yield from self.values(node.values)
        if any(kind_of(part) is not str for part in parts):
            raise StopLookahead("it was computed in its place")
        return (yield from self.apply(lambda *texts: "".join(texts), *parts, sure=str))

    def _formattedvalue(self, node: ast.FormattedValue) -> Waits:
        value = yield from self.value(node.value)
        turn: Any = {114: repr, 115: str, 97: ascii}.get(node.conversion)
        if node.format_spec is None:
            sure = str if kind_of(value) in _SAID else None
            return (yield from self.apply(turn or format, value, sure=sure))
        spec = yield from self.wait_for_plain((yield from self.value(node.format_spec)))
        if sum(character.isdigit() for character in spec) > 5:
            raise StopLookahead("it is too wide to be computed twice")
        return (yield from self.apply(lambda part: format(turn(part) if turn else part, spec), value))

    # ------------------------------------------------------------ calls that are known

    def _call(self, node: ast.Call) -> Waits:
        if isinstance(node.func, ast.Attribute):
            return (yield from self._method(node, node.func))
        work = yield from self.value(node.func)
        given = yield from self._evaluate_arguments(node, drains=any(work is function for function in _DRAINING))
        if not isinstance(node.func, ast.Name) or work is UNKNOWN:
            raise _unknown(node)
        if work is enumerate and len(given) in (1, 2):
            first = (yield from self.wait_for_plain(given[1])) if len(given) == 2 else 0
            if type(first) is not int:
                raise _unknown(node)
            return RowIterator(lambda items: enumerate(items, first), [self.items_of(given[0])])
        if work is zip and given:
            return RowIterator(zip, [self.items_of(value) for value in given])
        if not any(work is function for function in BUILTINS):
            raise _unknown(node)
        return (yield from self._function(work, given))

    def _evaluate_arguments(self, node: ast.Call, *, drains: bool) -> Waits:
        """Return the arguments of a call. `drains`: it reads a generator whole, so that a list does as well."""
        if drains and len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp):
            generator = node.args[0]
            if any(hasattr(part, SITE) for part in ast.walk(generator)):
                raise _unknown(node)
            return [(yield from self._listcomp(ast.ListComp(generator.elt, generator.generators)))]
        given = yield from self.values(node.args)
        for keyword in node.keywords:
            yield from self.value(keyword.value)
        if node.keywords:
            raise _unknown(node)
        return given

    def _function(self, work: Any, given: list[Any]) -> Waits:
        if work is len and len(given) == 1 and isinstance(given[0], OwnContainer):
            return len(given[0].parts)
        if work in (list, tuple) and len(given) == 1 and isinstance(given[0], (OwnContainer, RowIterator)):
            return OwnContainer(work, list(self.items_of(given[0])))
        if any(type(value) is range and len(value) > _MANY for value in given) and work is not len:
            raise StopLookahead("it is too large to be computed twice")
        kinds = [kind_of(value) for value in given]
        sure = None
        if len(given) == 1 and kinds[0] in _SAID:
            sure = {str: str, repr: str, bool: bool}.get(work) or (int if work is len and kinds[0] is str else None)
        result = yield from self.apply(work, *given, sure=sure)
        return OwnContainer(list, result) if type(result) is list else result

    def _method(self, node: ast.Call, method: ast.Attribute) -> Waits:
        whole = yield from self.value(method.value)
        given = yield from self._evaluate_arguments(node, drains=method.attr == "join")
        if isinstance(whole, PendingValue) and whole.kind is None:
            whole = yield from self.wait_for_value(whole)
        if isinstance(whole, OwnContainer):
            return self._call_own_method(node, whole, method.attr, given)
        if type(whole) is list and method.attr == "append" and len(given) == 1 and kind_of(given[0]) in _SAID:
            self.touched.append(whole)
            return None
        if type(whole) is dict and method.attr in ("items", "keys", "values") and not given:
            return getattr(dict, method.attr)(whole)
        if kind_of(whole) is not str or method.attr not in METHODS:
            raise _unknown(node)
        if method.attr == "join" and len(given) == 1:
            given = [OwnContainer(list, [*self.items_of(given[0])])]
        result = yield from self.apply(METHODS[method.attr], whole, *given, sure=_sure(method.attr, given))
        return OwnContainer(list, result) if type(result) is list else result

    def _call_own_method(self, node: ast.Call, whole: OwnContainer, name: str, given: list[Any]) -> Any:
        if whole.kind is list and name == "append" and len(given) == 1:
            whole.parts.append(given[0])
            return None
        if whole.kind is list and name == "extend" and len(given) == 1 and isinstance(given[0], (OwnContainer, tuple)):
            whole.parts += list(self.items_of(given[0]))
            return None
        if whole.kind is dict and name in ("items", "keys", "values") and not given:
            pairs = [OwnContainer(tuple, [key, part]) for key, part in whole.parts.items()]
            chosen = {"items": pairs, "keys": list(whole.parts), "values": list(whole.parts.values())}
            return OwnContainer(tuple, chosen[name])
        if whole.kind is dict and name == "get" and len(given) in (1, 2) and is_plain(given[0]):
            return whole.parts.get(*given)
        raise _unknown(node)

    # ------------------------------------------------------------ one after the other

    def items_of(self, value: Any) -> Iterator[Any]:
        """Return the items that a `for` over a value reads; a list of the function's own may grow on the way."""
        if isinstance(value, RowIterator):
            return value.rows()
        if isinstance(value, OwnContainer):
            return iter(list(value.parts)) if value.kind is dict else iter(value.parts)
        kind = type(value)
        if kind in (list, dict, set) or kind in VIEWS:
            self.changes(value)
            return iter(list(value)[:_MANY])
        if kind is tuple or is_plain(value):
            return iter(compute(iter, value))
        raise StopLookahead(f"it goes through {_article(value)}")

    def _listcomp(self, node: ast.ListComp) -> Waits:
        items: list[Any] = []

        def add() -> Waits:
            items.append((yield from self.value(node.elt)))

        yield from self._run_comprehension(node, node.generators, add)
        return OwnContainer(list, items)

    def _dictcomp(self, node: ast.DictComp) -> Waits:
        items: dict[Any, Any] = {}

        def add() -> Waits:
            key = yield from self.wait_for_plain((yield from self.value(node.key)))
            if not is_plain(key):
                raise _unknown(node.key)
            items[key] = yield from self.value(node.value)

        yield from self._run_comprehension(node, node.generators, add)
        return OwnContainer(dict, items)

    def _run_comprehension(self, node: ast.expr, loops: list[ast.comprehension], add: Callable[[], Waits]) -> Waits:
        """Evaluate a comprehension, whose variables are its own."""
        if self.path is not None:
            raise _unknown(node)
        bound = {part.id for loop in loops for part in ast.walk(loop.target) if isinstance(part, ast.Name)}
        kept = {name: self.names[name] for name in bound if name in self.names}
        local = self._local
        items, expected = yield from self.begin_loop(loops[0])
        self._local = local | bound
        try:
            for name in bound:
                self.names.pop(name, None)
            yield from self._loop(loops, items, expected, add)
        finally:
            for name in bound:
                self.names.pop(name, None)
            self.names.update(kept)
            self._local = local

    @abstractmethod
    def begin_loop(self, loop: ast.comprehension | ast.For) -> Waits:
        """Return the items of a loop that begins, and the object that keeps them for the comparison."""

    def _loop(
        self, loops: list[ast.comprehension], items: Iterator[Any], expected: Any, add: Callable[[], Waits]
    ) -> Waits:
        loop, *inner = loops
        if loop.is_async:
            raise StopLookahead("`async for` is made in its turn")
        for item in items:
            expected.items.append(item)
            yield from self.bind(loop.target, item)
            fits = True
            for test in loop.ifs:
                fits = fits and (yield from self.truth((yield from self.value(test))))
            if not fits:
                continue
            if inner:
                deeper, noted = yield from self.begin_loop(inner[0])
                yield from self._loop(inner, deeper, noted, add)
            else:
                yield from add()
        expected.ends = True

    @abstractmethod
    def bind(self, target: ast.expr, value: Any) -> Waits:
        """Give the names of a target their values."""


class RowIterator:
    """The rows of `enumerate` and `zip`, to be read once."""

    __slots__ = ("_parts", "_work")

    def __init__(self, work: Callable[..., Any], parts: list[Any]) -> None:
        self._work = work
        self._parts = parts

    def rows(self) -> Iterator[Any]:
        for row in self._work(*self._parts):
            yield OwnContainer(tuple, list(row))


class _Result:
    """Runs a generator and keeps its return value."""

    __slots__ = ("_work", "value")

    def __init__(self, work: Waits) -> None:
        self._work = work
        self.value: Any = UNKNOWN

    def __iter__(self) -> Waits:
        self.value = yield from self._work


def _sure(name: str, given: list[Any]) -> type | None:
    """Return the type of a text method's result; None if it may fail."""
    if name == "join":
        is_text = len(given) == 1 and all(kind_of(part) is str for part in given[0].parts)
        return str if is_text else None
    least, most = _SURE_COUNTS.get(name, (0, 0))
    fits = least <= len(given) <= most and all(kind_of(value) is str for value in given)
    return _SURE_METHODS.get(name) if fits else None


VIEWS: Final[tuple[type, ...]] = (type({}.keys()), type({}.values()), type({}.items()))


def shorten(node: ast.AST) -> str:
    text = ast.unparse(node).splitlines()[0]
    return text if len(text) <= 40 else text[:37] + "…"


def _operator(sign: ast.AST) -> Callable[..., Any]:
    return OPERATORS[type(sign).__name__]


def _unknown(node: ast.AST) -> StopLookahead:
    return StopLookahead(f"`{shorten(node)}` may do anything")


def _article(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
