"""Checking what concerns processes: `spawn`, sends, `await`, and the arms of `match` and `receive`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lyra.vega.checker.expressions import NOT_CALLED, kind_of, member_of
from lyra.vega.checker.scope import ROLES, Binding, CheckScope, ModuleCheck, nearest
from lyra.vega.checker.settings import check_supervision
from lyra.vega.checker.types import ANY, ValueKind, an
from lyra.vega.syntax import ast


def _kind_of_spawn(check: ModuleCheck, node: ast.Spawn) -> ValueKind:
    check_spawn_target(check, node.target, is_function=node.is_function)
    if node.supervision is not None:
        check_supervision(check, node.supervision.settings, node.supervision.places)
    return ValueKind("future" if node.is_async else "process")


def check_spawn_target(check: ModuleCheck, node: ast.Expression, *, is_function: bool) -> None:
    """Check that `spawn` or `child` names an agent, a supervisor or a call."""
    if is_function:
        kind_of(check, node)
        return
    assert isinstance(node, (ast.Name, ast.Path))
    name = node.name if isinstance(node, ast.Name) else f"{node.module}::{node.name}"
    binding = check.scope.find(node.name) if isinstance(node, ast.Name) else member_of(check, node)
    if binding is None:
        if isinstance(node, ast.Name):
            near = nearest(node.name, check.agents)
            hint = f"did you mean `{near}`?" if near else "an agent is declared with `agent`"
            check.error_on(node, f"unknown agent `{node.name}`", hint)
    elif binding.role in ("function", "tool"):
        check.error_on(node, f"`{name}` is {ROLES[binding.role]}, not an agent", f"write `spawn fn {name}(…)`")
    elif binding.role not in NOT_CALLED:
        check.error_on(node, f"`{name}` is {ROLES[binding.role]}, not an agent")


def _kind_of_send(check: ModuleCheck, node: ast.Send) -> ValueKind:
    binding = check.scope.find(node.target.name) if isinstance(node.target, ast.Name) else None
    if isinstance(node.target, ast.Name) and binding is not None and binding.role in NOT_CALLED:
        hint = f"start it first: `let p = spawn {node.target.name};`"
        check.error_on(node.target, f"`{node.target.name}` is no process yet", hint)
    else:
        target = kind_of(check, node.target)
        if target.name not in ("any", "process", "null"):
            less = "to compare with a negative number write `x < -1`" if target.name in ("int", "float") else None
            check.fault(node.target, f"only a process can be sent to, not {an(target)}", less)
    kind_of(check, node.message)
    _warn_if_meant_as_less(check, node)
    if node.timeout is not None:
        check.require_kind(node.timeout, ValueKind("duration"), kind_of(check, node.timeout), "`timeout`")
    if node.budget is not None:
        check.require_kind(node.budget, ValueKind("money"), kind_of(check, node.budget), "`budget`")
    return ValueKind("stream") if node.is_stream else ANY


def _warn_if_meant_as_less(check: ModuleCheck, node: ast.Send) -> None:
    """Warn about `x <-1`: it sends, and may be meant as a comparison."""
    message, text = node.message, check.source.text
    is_number = isinstance(message, ast.Literal) and type(message.value) in (int, float)
    if is_number and text[message.at - 2 : message.at] == "<-":
        shown = text[message.at : message.end]
        hint = f"to compare write `< -{shown}`; to send, put a space before `{shown}`"
        check.warn(message.at - 2, message.end, f"`<-{shown}` sends {shown}", hint)


def _kind_of_await(check: ModuleCheck, node: ast.Await) -> ValueKind:
    kind = kind_of(check, node.operand)
    if kind.name not in ("any", "future", "stream", "process"):
        check.fault(node.operand, f"only a future or a stream can be awaited, not {an(kind)}")
    return ValueKind("process") if isinstance(node.operand, ast.Spawn) else ANY


# ---------------------------------------------------------------- match and receive


def _kind_of_match(check: ModuleCheck, node: ast.Match) -> ValueKind:
    kind_of(check, node.subject)
    _check_arms(check, node.arms)
    return ANY


def _kind_of_receive(check: ModuleCheck, node: ast.Receive) -> ValueKind:
    _check_arms(check, node.arms)
    if node.after is not None and node.after_body is not None:
        check.require_kind(node.after, ValueKind("duration"), kind_of(check, node.after), "`after`")
        _check_arm_body(check, node.after_body, CheckScope(check.scope))
    return ANY


def _check_arms(check: ModuleCheck, arms: list[ast.Arm]) -> None:
    catch_all = False
    for arm in arms:
        if catch_all:
            check.warn(arm.at, arm.pattern.end, "this arm is never reached", "an arm above it takes everything")
            catch_all = False  # told once
        scope = CheckScope(check.scope)
        _check_pattern(check, arm.pattern, scope)
        _check_arm_body(check, arm, scope)
        catch_all = catch_all or isinstance(arm.pattern, (ast.Wildcard, ast.NamePattern))


def _check_arm_body(check: ModuleCheck, arm: ast.Arm, scope: CheckScope) -> None:
    if not arm.is_value:
        check.block_rule(check, arm.body, scope)
        return
    (statement,) = arm.body.statements
    assert isinstance(statement, ast.ExpressionStatement)
    outer, check.scope = check.scope, scope
    kind_of(check, statement.value)
    check.scope = outer


def _check_pattern(check: ModuleCheck, pattern: ast.Pattern, scope: CheckScope) -> None:
    if isinstance(pattern, ast.NamePattern):
        outer = check.scope.find(pattern.name)
        if pattern.name in scope.names:
            check.error_on(pattern, f"`{pattern.name}` is bound twice in this pattern")
        elif outer is not None and outer.role == "constant":
            hint = "bind a name and compare it in the arm"
            check.warn(pattern.at, pattern.end, f"this binds a new `{pattern.name}`, it is not compared", hint)
        scope.names[pattern.name] = Binding("variable")
    elif isinstance(pattern, ast.VariantPattern):
        _check_pattern(check, pattern.inner, scope)
    elif isinstance(pattern, ast.ListPattern):
        for item in pattern.items:
            _check_pattern(check, item, scope)


PROCESS_KINDS: Final[dict[type, Callable[[ModuleCheck, Any], ValueKind]]] = {
    ast.Spawn: _kind_of_spawn,
    ast.Send: _kind_of_send,
    ast.Await: _kind_of_await,
    ast.Match: _kind_of_match,
    ast.Receive: _kind_of_receive,
}
