"""Checking what concerns processes: `spawn`, sends, `await`, and the arms of `match` and `receive`."""

from __future__ import annotations

from lyra.vega.checker.expressions import KINDS, NOT_CALLED, ExpressionChecker
from lyra.vega.checker.scope import ROLES, Binding, Scope, nearest
from lyra.vega.checker.types import ANY, Kind, an
from lyra.vega.syntax.ast import (
    Arm,
    Await,
    Expression,
    ExpressionStatement,
    ListPattern,
    Literal,
    Match,
    Name,
    NamePattern,
    Path,
    Pattern,
    Receive,
    Send,
    Spawn,
    VariantPattern,
    Wildcard,
)

__all__ = ["ProcessChecker"]


class ProcessChecker(ExpressionChecker):
    def supervision(self, settings: dict[str, Expression], places: dict[str, int]) -> None:
        raise NotImplementedError

    def _spawn(self, node: Spawn) -> Kind:
        self.target(node.target, is_function=node.is_function)
        if node.supervision is not None:
            self.supervision(node.supervision.settings, node.supervision.places)
        return Kind("future" if node.is_async else "process")

    def target(self, node: Expression, *, is_function: bool) -> None:
        """What `spawn` and `child` may start."""
        if is_function:
            self.kind(node)
            return
        assert isinstance(node, (Name, Path))
        name = node.name if isinstance(node, Name) else f"{node.module}::{node.name}"
        binding = self.scope.find(node.name) if isinstance(node, Name) else self.member(node)
        if binding is None:
            if isinstance(node, Name):
                near = nearest(node.name, self.agents)
                hint = f"did you mean `{near}`?" if near else "an agent is declared with `agent`"
                self.error_on(node, f"unknown agent `{node.name}`", hint)
        elif binding.role in ("function", "tool"):
            self.error_on(node, f"`{name}` is {ROLES[binding.role]}, not an agent", f"write `spawn fn {name}(…)`")
        elif binding.role not in NOT_CALLED:
            self.error_on(node, f"`{name}` is {ROLES[binding.role]}, not an agent")

    def _send(self, node: Send) -> Kind:
        if isinstance(node.target, Name) and self._role(node.target) in NOT_CALLED:
            hint = f"start it first: `let p = spawn {node.target.name};`"
            self.error_on(node.target, f"`{node.target.name}` is no process yet", hint)
        else:
            target = self.kind(node.target)
            if target.name not in ("any", "process", "null"):
                less = "to compare with a negative number write `x < -1`" if target.name in ("int", "float") else None
                self.fault(node.target, f"only a process can be sent to, not {an(target)}", less)
        self.kind(node.message)
        self._looks_like_less(node)
        if node.timeout is not None:
            self.wanted(node.timeout, Kind("duration"), self.kind(node.timeout), "`timeout`")
        if node.budget is not None:
            self.wanted(node.budget, Kind("money"), self.kind(node.budget), "`budget`")
        return Kind("stream") if node.is_stream else ANY

    def _looks_like_less(self, node: Send) -> None:
        """`x <-1` sends; whoever wrote it so may have wanted to compare."""
        message, text = node.message, self.source.text
        is_number = isinstance(message, Literal) and type(message.value) in (int, float)
        if is_number and text[message.at - 2 : message.at] == "<-":
            shown = text[message.at : message.end]
            hint = f"to compare write `< -{shown}`; to send, put a space before `{shown}`"
            self.warn(message.at - 2, message.end, f"`<-{shown}` sends {shown}", hint)

    def _role(self, node: Name) -> str:
        binding = self.scope.find(node.name)
        return binding.role if binding is not None else ""

    def _await(self, node: Await) -> Kind:
        kind = self.kind(node.operand)
        if kind.name not in ("any", "future", "stream", "process"):
            self.fault(node.operand, f"only a future or a stream can be awaited, not {an(kind)}")
        return Kind("process") if isinstance(node.operand, Spawn) else ANY

    # ---------------------------------------------------------------- match and receive

    def _match(self, node: Match) -> Kind:
        self.kind(node.subject)
        self._arms(node.arms)
        return ANY

    def _receive(self, node: Receive) -> Kind:
        self._arms(node.arms)
        if node.after is not None and node.after_body is not None:
            self.wanted(node.after, Kind("duration"), self.kind(node.after), "`after`")
            self._arm_body(node.after_body, Scope(self.scope))
        return ANY

    def _arms(self, arms: list[Arm]) -> None:
        catch_all = False
        for arm in arms:
            if catch_all:
                self.warn(arm.at, arm.pattern.end, "this arm is never reached", "an arm above it takes everything")
                catch_all = False  # told once
            scope = Scope(self.scope)
            self._pattern(arm.pattern, scope)
            self._arm_body(arm, scope)
            catch_all = catch_all or isinstance(arm.pattern, (Wildcard, NamePattern))

    def _arm_body(self, arm: Arm, scope: Scope) -> None:
        if not arm.is_value:
            self.block(arm.body, scope)
            return
        (statement,) = arm.body.statements
        assert isinstance(statement, ExpressionStatement)
        outer, self.scope = self.scope, scope
        self.kind(statement.value)
        self.scope = outer

    def _pattern(self, pattern: Pattern, scope: Scope) -> None:
        if isinstance(pattern, NamePattern):
            outer = self.scope.find(pattern.name)
            if pattern.name in scope.names:
                self.error_on(pattern, f"`{pattern.name}` is bound twice in this pattern")
            elif outer is not None and outer.role == "constant":
                hint = "bind a name and compare it in the arm"
                self.warn(pattern.at, pattern.end, f"this binds a new `{pattern.name}`, it is not compared", hint)
            scope.names[pattern.name] = Binding("variable")
        elif isinstance(pattern, VariantPattern):
            self._pattern(pattern.inner, scope)
        elif isinstance(pattern, ListPattern):
            for item in pattern.items:
                self._pattern(item, scope)


KINDS.update(
    {
        Spawn: ProcessChecker._spawn,
        Send: ProcessChecker._send,
        Await: ProcessChecker._await,
        Match: ProcessChecker._match,
        Receive: ProcessChecker._receive,
    }
)
