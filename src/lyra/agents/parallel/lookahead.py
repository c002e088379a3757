"""Lookahead: follows what a function will do next, statement by statement, until something is not certain.

It begins at an agent call that is being made (or at a statement), with the function's variables at that point, and
evaluates only what must turn out the same in the program. Agent calls on the way are made early; loops and branches are
followed, too. The program itself runs behind it and finds answers that are already there.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from lyra.agents.parallel.expressions import ExpressionEvaluator, RowIterator, Waits, shorten
from lyra.agents.parallel.pending_values import UNKNOWN, OwnContainer, PendingValue, container_of
from lyra.agents.parallel.safe_values import StopLookahead, can_drop, is_plain
from lyra.agents.parallel.source.function_map import CHECKED, LOOP, SITE


class ExpectedItems:
    """The foreseen items of a loop; `ends` if no more follow."""

    __slots__ = ("ends", "first", "items")

    def __init__(self, first: int) -> None:
        self.first = first  # the index of the first of them in the loop
        self.items: list[Any] = []
        self.ends = False


class CallIssuer(Protocol):
    """The object that runs a lookahead and makes its calls."""

    def has_room(self) -> bool:
        """Return whether one more call may be under way."""

    def issue(self, site: int, work: Any, args: list[Any], keywords: dict[str, Any]) -> PendingValue:
        """Make a call early; raises StopLookahead if it has to wait for its turn."""

    def enter_loop(self, loop: int) -> ExpectedItems:
        """Enter a loop that begins."""

    def read_left_items(
        self, loop: int, own: Callable[[str], OwnContainer | None]
    ) -> tuple[Iterator[Any], ExpectedItems]:
        """Return the items left of the loop that the program is in; raises StopLookahead if they are not known."""


class FunctionFacts(Protocol):
    """The facts about a function that its source tells."""

    local: frozenset[str]
    shared: frozenset[str]
    own: frozenset[str]

    def outer(self, name: str) -> Any:
        """Return the value of a name of its module, or of the functions around it."""


class _Returned(Exception):
    """The function returns."""


class Lookahead(ExpressionEvaluator):
    def __init__(
        self,
        leads: CallIssuer,
        names: dict[str, Any],
        facts: FunctionFacts,
    ) -> None:
        super().__init__(names, facts.local, facts.shared, facts.outer)
        self._leads = leads
        self._now: PendingValue | None = None  # the answer of the call at which it begins
        self._place: ast.AST | None = None
        for name in facts.own & names.keys():
            copy = container_of(names[name])
            if copy is not None:
                names[name] = copy

    def follow(self, body: list[ast.stmt], path: frozenset[int], place: ast.AST, now: PendingValue | None) -> Waits:
        """Follow the function from a place on: a call that is being made, or a statement that comes next."""
        self.path, self._place, self._now = path, place, now
        try:
            yield from self._block(body)
        except _Returned:
            return

    # ------------------------------------------------------------ statements

    def _block(self, statements: list[ast.stmt]) -> Waits:
        for node in statements:
            if self.path is not None:
                if id(node) not in self.path:
                    continue
                if node is self._place:
                    self.path = None
            signal = yield from self._statement(node)
            if signal:
                return signal
        return ""

    def _statement(self, node: ast.stmt) -> Waits:
        form = getattr(self, f"_{type(node).__name__.lower()}", None)
        if form is None or isinstance(node, ast.expr):
            raise StopLookahead(f"`{shorten(node)}` may do anything")
        return (yield from form(node))

    def _in(self, part: Any) -> bool:
        """Return whether the lookahead begins inside a part."""
        parts = part if isinstance(part, list) else [part]
        return self.path is not None and any(id(node) in self.path for node in parts)

    def _pass(self, _: ast.Pass) -> Waits:
        yield from ()
        return ""

    def _break(self, _: ast.Break) -> Waits:
        yield from ()
        return "break"

    def _continue(self, _: ast.Continue) -> Waits:
        yield from ()
        return "continue"

    def _expr(self, node: ast.Expr) -> Waits:
        value = yield from self.value(node.value)
        if value is UNKNOWN:
            raise StopLookahead(f"`{shorten(node)}` was computed in its place")
        return ""

    def _return(self, node: ast.Return) -> Waits:
        if node.value is not None:
            yield from self.value(node.value)
        raise _Returned

    def _assign(self, node: ast.Assign) -> Waits:
        value = yield from self.value(node.value)
        for target in node.targets:
            yield from self.bind(target, value)
        return ""

    def _annassign(self, node: ast.AnnAssign) -> Waits:
        if node.value is None or not isinstance(node.target, ast.Name):
            raise StopLookahead(f"`{shorten(node)}` may do anything")
        yield from self.bind(node.target, (yield from self.value(node.value)))
        return ""

    def _augassign(self, node: ast.AugAssign) -> Waits:
        if not isinstance(node.target, ast.Name) or node.target.id not in self.names:
            raise StopLookahead(f"`{shorten(node)}` may do anything")
        before = self.names[node.target.id]
        value = yield from self.value(node.value)
        yield from self.bind(node.target, (yield from self.join_values(node.op, before, value)))
        return ""

    def bind(self, target: ast.expr, value: Any) -> Waits:
        if isinstance(value, RowIterator):
            raise StopLookahead("an iterator is used up as it is read")
        if isinstance(target, ast.Name):
            self._let_go(target.id)
            if target.id in self.shared and isinstance(value, OwnContainer):
                raise StopLookahead(f"a function inside of it knows `{target.id}`, too")
            self.names[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)) and all(isinstance(part, ast.Name) for part in target.elts):
            items = list(self.items_of((yield from self.wait_for_value(value))))
            if len(items) != len(target.elts):
                raise StopLookahead("ValueError is raised there")
            for part, item in zip(target.elts, items, strict=True):
                yield from self.bind(part, item)
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            yield from self._put(target, value)
        else:
            raise StopLookahead(f"`{shorten(target)} = …` may do anything")

    def _put(self, target: ast.Subscript, value: Any) -> Waits:
        whole = self.names.get(target.value.id) if isinstance(target.value, ast.Name) else None
        if not isinstance(whole, OwnContainer) or whole.kind is not dict:
            raise StopLookahead(f"`{shorten(target)} = …` may do anything")
        key = yield from self.wait_for_plain((yield from self.value(target.slice)))
        if not is_plain(key):
            raise StopLookahead(f"`{shorten(target)} = …` may do anything")
        whole.parts[key] = value

    def _let_go(self, name: str) -> None:
        old = self.names.get(name)
        if old is UNKNOWN or not (isinstance(old, (PendingValue, OwnContainer)) or can_drop(old)):
            raise StopLookahead(f"what `{name}` held may do anything as it goes")

    # ------------------------------------------------------------ blocks

    def _if(self, node: ast.If) -> Waits:
        if self._in(node.body):
            return (yield from self._block(node.body))
        if self._in(node.orelse):
            return (yield from self._block(node.orelse))
        holds = yield from self.truth((yield from self.value(node.test)))
        return (yield from self._block(node.body if holds else node.orelse))

    def _while(self, node: ast.While) -> Waits:
        if self._in(node.orelse):
            return (yield from self._block(node.orelse))
        is_inside = self._in(node.body)
        while is_inside or (yield from self.truth((yield from self.value(node.test)))):
            is_inside = False
            signal = yield from self._block(node.body)
            if signal == "break":
                return ""
        return (yield from self._block(node.orelse))

    def _for(self, node: ast.For) -> Waits:
        if self._in(node.orelse):
            return (yield from self._block(node.orelse))
        number = getattr(node, LOOP, None)
        if self._in(node.body):
            if (yield from self._block(node.body)) == "break":
                return ""
            items, expected = self._read_left_items(number)
        else:
            items, expected = yield from self.begin_loop(node)
        for item in items:
            expected.items.append(item)
            yield from self.bind(node.target, item)
            if (yield from self._block(node.body)) == "break":
                return ""
        expected.ends = True
        return (yield from self._block(node.orelse))

    def begin_loop(self, loop: ast.comprehension | ast.For) -> Waits:
        number = getattr(loop, LOOP, None)
        may_change, self.may_change = self.may_change, number is not None
        items = self.items_of((yield from self.value(loop.iter)))
        self.may_change = may_change
        return items, self._leads.enter_loop(number) if number is not None else ExpectedItems(0)

    def _read_left_items(self, number: int | None) -> tuple[Iterator[Any], ExpectedItems]:
        if number is None:
            raise StopLookahead("the items that the loop reads next are not known")

        def find_own(name: str) -> OwnContainer | None:
            value = self.names.get(name)
            return value if isinstance(value, OwnContainer) else None

        return self._leads.read_left_items(number, find_own)

    def _try(self, node: ast.Try) -> Waits:
        for handler in node.handlers:
            if self._in(handler):
                signal = yield from self._block(handler.body)
                return (yield from self._finally(node, signal))
        if self._in(node.finalbody):
            yield from self._block(node.finalbody)
            raise StopLookahead("whether an error goes on is seen there")
        signal = ""
        if not self._in(node.orelse):
            signal = yield from self._block(node.body)
        signal = signal or (yield from self._block(node.orelse))
        return (yield from self._finally(node, signal))

    def _finally(self, node: ast.Try, signal: str) -> Waits:
        if signal and node.finalbody:
            raise StopLookahead("a `finally` stands in the way")
        return signal or (yield from self._block(node.finalbody))

    def _inside_only(self, node: Any) -> Waits:
        """Follow the body of a `with` if the program is in it already, and stop at its end."""
        if not self._in(node.body):
            raise StopLookahead(f"`{shorten(node)}` may do anything")
        yield from self._block(node.body)
        raise StopLookahead(f"the end of `{shorten(node)}` may do anything")

    _with = _asyncwith = _asyncfor = _inside_only

    def _match(self, node: ast.Match) -> Waits:
        for case in node.cases:
            if self._in(case):
                return (yield from self._block(case.body))
        raise StopLookahead(f"`{shorten(node)}` is made in its turn")

    # ------------------------------------------------------------ agent calls

    def issue_call(self, node: ast.expr) -> Waits:
        if node is self._place and self.path is not None:
            self.path = None
            assert self._now is not None
            return self._now
        call = node.value if isinstance(node, ast.Await) else node
        assert isinstance(call, ast.Call)
        may_change, self.may_change = self.may_change, hasattr(node, CHECKED)
        work, args, keywords = yield from self._arguments(call)
        self.may_change = may_change
        while not self._leads.has_room():
            yield ()
        self.steps = 0
        return self._leads.issue(getattr(node, SITE), work, args, keywords)

    def _arguments(self, call: ast.Call) -> Waits:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "send":
            target = yield from self.wait_for_value((yield from self.value(call.func.value)))
            work: Any = (target, "send")
        else:
            work = yield from self.value(call.func)
        args = yield from self.values(call.args)
        keywords: dict[str, Any] = {}
        for keyword in call.keywords:
            if keyword.arg is None:
                raise StopLookahead("`**` is read in its place")
            keywords[keyword.arg] = yield from self.value(keyword.value)
        return work, args, keywords
