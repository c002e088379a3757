"""The look ahead: what a function will do next, followed statement by statement until something is not sure.

It begins at an agent call that is being made (or at a statement), with the function's variables as they are there, and
goes on with what the function itself will come to: the same values, for nothing is followed that could turn out
otherwise. Agent calls on the way are issued; loops and branches are followed, too. The program runs behind it, by
itself, and finds the answers it needs made already.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from lyra.agents.parallel.expressions import SITE, Expressions, Rows, Waits, short
from lyra.agents.parallel.pending_values import UNKNOWN, Later, Made, made_of
from lyra.agents.parallel.safe_values import Foreign, is_plain, lets_go

__all__ = ["CHECKED", "LOOP", "Expected", "Leads", "Shadow"]

CHECKED: Final = "lyra_checked"  # on the agent calls in statements that are watched for errors
LOOP: Final = "lyra_loop"  # on the loops whose items are compared in their place: their number


class Expected:
    """The items of a loop as they were foreseen; `ends` when there is none after them."""

    __slots__ = ("at", "ends", "items")

    def __init__(self, at: int) -> None:
        self.at = at
        self.items: list[Any] = []
        self.ends = False


class Leads(Protocol):
    """Whoever runs the look ahead."""

    def has_room(self) -> bool:
        """Whether one more call may be under way."""

    def issue(self, site: int, work: Any, args: list[Any], keywords: dict[str, Any]) -> Later:
        """Make a call ahead of its turn; Foreign when it has to wait for that."""

    def entered(self, loop: int) -> Expected:
        """A loop begins."""

    def left_in(self, loop: int, own: Callable[[str], Made | None]) -> tuple[Iterator[Any], Expected]:
        """What the loop that the program is in has still to go through; Foreign when nobody knows."""


class Facts(Protocol):
    """What is known of the function."""

    local: frozenset[str]
    shared: frozenset[str]
    own: frozenset[str]

    def outer(self, name: str) -> Any:
        """What a name of its module, or of the functions around it, means."""


class _Over(Exception):
    """The function returns."""


class Shadow(Expressions):
    def __init__(
        self,
        leads: Leads,
        names: dict[str, Any],
        facts: Facts,
    ) -> None:
        super().__init__(names, facts.local, facts.shared, facts.outer)
        self._leads = leads
        self._now: Later | None = None  # the answer of the call where it begins
        self._place: ast.AST | None = None
        for name in facts.own & names.keys():
            copy = made_of(names[name])
            if copy is not None:
                names[name] = copy

    def follow(self, body: list[ast.stmt], path: frozenset[int], place: ast.AST, now: Later | None) -> Waits:
        """From a place on: a call that is being made, or a statement that comes next."""
        self.path, self._place, self._now = path, place, now
        try:
            yield from self._block(body)
        except _Over:
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
            raise Foreign(f"`{short(node)}` may do anything")
        return (yield from form(node))

    def _in(self, part: Any) -> bool:
        """Whether the look begins in there."""
        parts = part if isinstance(part, list) else [part]
        return self.path is not None and any(id(each) in self.path for each in parts)

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
            raise Foreign(f"`{short(node)}` was computed in its place")
        return ""

    def _return(self, node: ast.Return) -> Waits:
        if node.value is not None:
            yield from self.value(node.value)
        raise _Over

    def _assign(self, node: ast.Assign) -> Waits:
        value = yield from self.value(node.value)
        for target in node.targets:
            yield from self.bind(target, value)
        return ""

    def _annassign(self, node: ast.AnnAssign) -> Waits:
        if node.value is None or not isinstance(node.target, ast.Name):
            raise Foreign(f"`{short(node)}` may do anything")
        yield from self.bind(node.target, (yield from self.value(node.value)))
        return ""

    def _augassign(self, node: ast.AugAssign) -> Waits:
        if not isinstance(node.target, ast.Name) or node.target.id not in self.names:
            raise Foreign(f"`{short(node)}` may do anything")
        before = self.names[node.target.id]
        value = yield from self.value(node.value)
        yield from self.bind(node.target, (yield from self.joined(node.op, before, value)))
        return ""

    def bind(self, target: ast.expr, value: Any) -> Waits:
        if isinstance(value, Rows):
            raise Foreign("an iterator is used up as it is read")
        if isinstance(target, ast.Name):
            self._let_go(target.id)
            if target.id in self.shared and isinstance(value, Made):
                raise Foreign(f"a function inside of it knows `{target.id}`, too")
            self.names[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)) and all(isinstance(each, ast.Name) for each in target.elts):
            found = yield from self.known(value)
            items = list(self.each(found))
            if len(items) != len(target.elts):
                raise Foreign("ValueError is raised there")
            for each, item in zip(target.elts, items, strict=True):
                yield from self.bind(each, item)
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            yield from self._put(target, value)
        else:
            raise Foreign(f"`{short(target)} = …` may do anything")

    def _put(self, target: ast.Subscript, value: Any) -> Waits:
        whole = self.names.get(target.value.id) if isinstance(target.value, ast.Name) else None
        if not isinstance(whole, Made) or whole.kind is not dict:
            raise Foreign(f"`{short(target)} = …` may do anything")
        at = yield from self.plain((yield from self.value(target.slice)))
        if not is_plain(at):
            raise Foreign(f"`{short(target)} = …` may do anything")
        whole.parts[at] = value

    def _let_go(self, name: str) -> None:
        old = self.names.get(name)
        if old is UNKNOWN or not (isinstance(old, (Later, Made)) or lets_go(old)):
            raise Foreign(f"what `{name}` held may do anything as it goes")

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
            items, expected = self._left(number)
        else:
            items, expected = yield from self.begun(node)
        for item in items:
            expected.items.append(item)
            yield from self.bind(node.target, item)
            if (yield from self._block(node.body)) == "break":
                return ""
        expected.ends = True
        return (yield from self._block(node.orelse))

    def begun(self, loop: ast.comprehension | ast.For) -> Waits:
        number = getattr(loop, LOOP, None)
        may_change, self.may_change = self.may_change, number is not None
        items = self.each((yield from self.value(loop.iter)))
        self.may_change = may_change
        return items, self._leads.entered(number) if number is not None else Expected(0)

    def _left(self, number: int | None) -> tuple[Iterator[Any], Expected]:
        if number is None:
            raise Foreign("nobody knows what the loop goes through next")

        def own(name: str) -> Made | None:
            found = self.names.get(name)
            return found if isinstance(found, Made) else None

        return self._leads.left_in(number, own)

    def _try(self, node: ast.Try) -> Waits:
        for handler in node.handlers:
            if self._in(handler):
                signal = yield from self._block(handler.body)
                return (yield from self._finally(node, signal))
        if self._in(node.finalbody):
            yield from self._block(node.finalbody)
            raise Foreign("whether an error goes on is seen there")
        signal = ""
        if not self._in(node.orelse):
            signal = yield from self._block(node.body)
        signal = signal or (yield from self._block(node.orelse))
        return (yield from self._finally(node, signal))

    def _finally(self, node: ast.Try, signal: str) -> Waits:
        if signal and node.finalbody:
            raise Foreign("a `finally` stands in the way")
        return signal or (yield from self._block(node.finalbody))

    def _inside_only(self, node: Any) -> Waits:
        """`with`: its body is followed once the program is in it, and not out of it."""
        if not self._in(node.body):
            raise Foreign(f"`{short(node)}` may do anything")
        yield from self._block(node.body)
        raise Foreign(f"the end of `{short(node)}` may do anything")

    _with = _asyncwith = _asyncfor = _inside_only

    def _match(self, node: ast.Match) -> Waits:
        for case in node.cases:
            if self._in(case):
                return (yield from self._block(case.body))
        raise Foreign(f"`{short(node)}` is made in its turn")

    # ------------------------------------------------------------ agent calls

    def asked(self, node: ast.expr) -> Waits:
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
            whom = yield from self.known((yield from self.value(call.func.value)))
            work: Any = (whom, "send")
        else:
            work = yield from self.value(call.func)
        args = yield from self.values(call.args)
        keywords: dict[str, Any] = {}
        for keyword in call.keywords:
            if keyword.arg is None:
                raise Foreign("`**` is read in its place")
            keywords[keyword.arg] = yield from self.value(keyword.value)
        return work, args, keywords
