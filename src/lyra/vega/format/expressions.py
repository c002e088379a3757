"""Expressions, patterns and types as documents.

Literals are copied from the source, so a number or a string stays written as it was. Parentheses that the meaning
needs are put in; those that the author put around an operator's operand to make it clear are kept; the others go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from lyra.vega.format.layout import (
    HARD,
    LINE,
    SOFT,
    Doc,
    FormatState,
    format_block,
    format_statement,
    gap,
    group,
    indent,
    join,
    nest,
    only_broken,
)
from lyra.vega.syntax import ast
from lyra.vega.syntax.expressions import POWERS

_SEND, _PREFIX, _POSTFIX = 1, 8, 9
_OPEN: Final = (ast.Lambda, ast.Match, ast.Receive, ast.Spawn)  # as a part of anything else they stand in parentheses
_SIMPLE_KEYS: Final = (ast.Literal, ast.Interpolation, ast.Name)


def format_value(state: FormatState, node: ast.Expression) -> Doc:
    return _VALUES[type(node)](state, node)


def _format_literal(state: FormatState, node: ast.SyntaxNode) -> str:
    """As it is written; what may stand between a sign and its number is left out."""
    sign = "-" if state.text[node.at] == "-" else ""
    return sign + state.comments.token_up_to(node.end)


# ---------------------------------------------------------------- parentheses


def _format_operand(state: FormatState, node: ast.Expression, least: int) -> Doc:
    """Return a part of something that binds with `least`; in parentheses where it would be read differently."""
    needs = isinstance(node, _OPEN) or _power(node) < least
    doc = format_value(state, node)
    return ["(", doc, ")"] if needs or _is_wrapped(state, node) else doc


def _is_wrapped(state: FormatState, node: ast.Expression) -> bool:
    """Return whether an operator expression stands in parentheses of its own in the source."""
    if not isinstance(node, (ast.Binary, ast.Send)):
        return False
    return state.comments.is_wrapped(node.at, node.end)


def format_first(state: FormatState, node: ast.Expression) -> Doc:
    """Return an expression at a place where `{` would begin a block and `match` a statement."""
    doc = format_value(state, node)
    return ["(", doc, ")"] if isinstance(_leftmost(node), (ast.MapLiteral, ast.Match, ast.Receive)) else doc


def _format_body(state: FormatState, node: ast.Expression) -> Doc:
    """Return an expression at a place where a block could stand instead."""
    left = _leftmost(node)
    is_plain = isinstance(left, ast.MapLiteral) and bool(left.entries) and isinstance(left.entries[0][0], _SIMPLE_KEYS)
    doc = format_value(state, node)
    return ["(", doc, ")"] if isinstance(left, ast.MapLiteral) and not is_plain else doc


# ---------------------------------------------------------------- items between brackets


def _format_items(
    state: FormatState, nodes: Sequence[Any], write: Callable[[Any], Doc], end: int, *, is_broken: bool = False
) -> Doc:
    """Items and commas, without the brackets: on one line, or each on its own; comments need the latter."""
    lines: list[Doc] = []
    has_comments = False
    for node in nodes:
        offset = node[0].at if isinstance(node, tuple) else node.at
        stop = node[1].end if isinstance(node, tuple) else node.end
        before = state.comments.before(offset)
        written = write(node)
        before += state.comments.before(stop)  # from its inside, where they have no line of their own
        doc: list[Doc] = [part for comment in before for part in (comment.text, HARD)]
        doc.append(written)
        is_last = node is nodes[-1]
        doc.append(only_broken(",") if is_last else ",")
        behind = state.comments.behind(stop)
        if behind is not None:
            doc.append("  " + behind.text)
        has_comments = has_comments or bool(before) or behind is not None
        lines.append(doc)
    rest = state.comments.before(end)
    lines.extend(comment.text for comment in rest)
    is_broken = is_broken or has_comments or bool(rest)
    return group(indent(SOFT, *join([LINE], lines)), SOFT, is_broken=is_broken) if lines else ""


def _format_list(state: FormatState, node: ast.ListLiteral) -> Doc:
    return ["[", _format_items(state, node.items, lambda item: format_value(state, item), node.end - 1), "]"]


def _format_map(state: FormatState, node: ast.MapLiteral) -> Doc:
    def entry(pair: tuple[ast.Expression, ast.Expression]) -> Doc:
        return [format_value(state, pair[0]), ": ", format_value(state, pair[1])]

    # A map that begins on a new line in the source stays so.
    is_broken = bool(node.entries) and "\n" in state.text[node.at : node.entries[0][0].at]
    return ["{", _format_items(state, node.entries, entry, node.end - 1, is_broken=is_broken), "}"]


def _format_arguments(state: FormatState, arguments: list[ast.Argument], end: int) -> Doc:
    def argument(node: ast.Argument) -> Doc:
        return [node.name, ": ", format_value(state, node.value)] if node.name else format_value(state, node.value)

    return ["(", _format_items(state, arguments, argument, end - 1), ")"]


def format_parameters(state: FormatState, parameters: list[ast.Parameter], offset: int) -> Doc:
    """Those of a declaration that begins at `at`."""
    end = state.comments.sign_behind(")", parameters[-1].end if parameters else offset)
    return ["(", _format_items(state, parameters, lambda parameter: _format_parameter(state, parameter), end), ")"]


def _format_parameter(state: FormatState, node: ast.Parameter) -> Doc:
    doc: list[Doc] = [node.name]
    if node.type is not None:
        doc += [": ", format_type(state, node.type)]
    if node.default is not None:
        doc += [" = ", format_value(state, node.default)]
    return doc


# ---------------------------------------------------------------- values


def _format_binary(state: FormatState, node: ast.Binary) -> Doc:
    """`a + b + c`: a chain of one power breaks together, before its signs."""
    power, chain = POWERS[node.operator], [node]
    while isinstance(left := chain[-1].left, ast.Binary) and POWERS[left.operator] == power:
        if _is_wrapped(state, left):
            break
        chain.append(left)
    first = _format_operand(state, chain[-1].left, power)
    steps: list[Doc] = []
    for link in reversed(chain):
        steps += [LINE, link.operator + " ", _format_operand(state, link.right, power + 1)]
    return group(first, indent(*steps))


def _format_send(state: FormatState, node: ast.Send) -> Doc:
    sign = " <~ " if node.is_stream else " <- "
    target = _format_operand(state, node.target, _SEND + 1)
    # A limit behind a message that ends with a send would belong to that one.
    is_open = isinstance(node.message, (ast.Send, ast.Lambda)) and (node.timeout is not None or node.budget is not None)
    message = format_value(state, node.message)
    doc: list[Doc] = [target, sign, ["(", message, ")"] if is_open else message]
    limits = [(name, value) for name, value in (("timeout", node.timeout), ("budget", node.budget)) if value]
    for name, value in sorted(limits, key=lambda pair: pair[1].at):
        doc.append(indent(LINE, name, " ", _format_operand(state, value, _SEND + 1)))
    return group(*doc)


def _format_index(state: FormatState, node: ast.Index) -> Doc:
    return [_format_operand(state, node.target, _POSTFIX), "[", format_value(state, node.index), "]"]


def _format_method(state: FormatState, node: ast.MethodCall) -> Doc:
    target = _format_operand(state, node.target, _POSTFIX)
    return [target, ".", node.name, _format_arguments(state, node.arguments, node.end)]


def _format_call(state: FormatState, node: ast.Call) -> Doc:
    callee = _format_operand(state, node.callee, _POSTFIX)
    if isinstance(node.callee, ast.Field):  # without parentheses it would be a method
        callee = ["(", callee, ")"]
    return [callee, _format_arguments(state, node.arguments, node.end)]


def _format_lambda(state: FormatState, node: ast.Lambda) -> Doc:
    head: Doc = ["|", *join([", "], [_format_parameter(state, parameter) for parameter in node.parameters]), "| "]
    if state.text[node.body.at] == "{" and not _is_value_body(node.body):
        return [head, format_block(state, node.body)]
    value = node.body.statements[0]
    assert isinstance(value, ast.Return)
    assert value.value is not None
    return [head, _format_body(state, value.value)]


def _format_spawn(state: FormatState, node: ast.Spawn) -> Doc:
    doc: list[Doc] = ["spawn ", "async " if node.is_async else "", "fn " if node.is_function else ""]
    doc.append(format_value(state, node.target))
    if node.supervision is not None:
        given = node.supervision
        doc += [" supervised by ", format_settings(state, given.settings, given.places, given.at, given.end - 1)]
    return doc


# ---------------------------------------------------------------- match and receive


def _format_match(state: FormatState, node: ast.Match) -> Doc:
    return ["match ", format_first(state, node.subject), " ", _format_arms(state, node.arms, node.end - 1)]


def _format_receive(state: FormatState, node: ast.Receive) -> Doc:
    arms = list(node.arms)
    if node.after is not None and node.after_body is not None:
        arms.append(node.after_body)
    return ["receive ", _format_arms(state, arms, node.end - 1, after=node.after)]


def _format_arms(state: FormatState, arms: list[ast.Arm], end: int, after: ast.Expression | None = None) -> Doc:
    lines: list[Doc] = []
    last = -1
    for arm in arms:
        is_after = after is not None and arm is arms[-1]
        before = state.comments.before(arm.at)
        head: Doc = (
            ["after ", format_value(state, after)]
            if is_after and after is not None
            else _format_pattern(state, arm.pattern)
        )
        body = _format_arm_body(state, arm)
        inside = state.comments.before(arm.end)
        for comment in before:
            lines += [gap(state, last, comment.at), comment.text]
            last = comment.end
        lines.append(gap(state, last, arm.at))
        lines += [part for comment in inside for part in (comment.text, HARD)]
        lines += [head, " => ", body]
        last = arm.end
        behind = state.comments.behind(arm.end)
        if behind is not None:
            lines.append("  " + behind.text)
            last = behind.end
    for comment in state.comments.before(end):
        lines += [gap(state, last, comment.at), comment.text]
        last = comment.end
    return ["{", nest(*lines), HARD, "}"] if lines else "{}"


def _format_arm_body(state: FormatState, arm: ast.Arm) -> Doc:
    if state.text[arm.body.at] == "{" and not arm.is_value:
        return format_block(state, arm.body)
    return [_format_inline(state, arm.body.statements[0]), ","]


def _format_pattern(state: FormatState, node: ast.Pattern) -> Doc:
    if isinstance(node, ast.NamePattern):
        return node.name
    if isinstance(node, ast.Wildcard):
        return "_"
    if isinstance(node, ast.VariantPattern):
        return [node.variant, "(", _format_pattern(state, node.inner), ")"]
    if isinstance(node, ast.ListPattern):
        return ["[", *join([", "], [_format_pattern(state, item) for item in node.items]), "]"]
    return _format_literal(state, node)


def format_type(state: FormatState, node: ast.Type) -> Doc:
    inner = [format_type(state, part) for part in node.parameters]
    if node.fields:
        fields = [[name, ": ", format_type(state, part)] for name, part in node.fields.items()]
        return group("{", indent(SOFT, *join([",", LINE], fields), only_broken(",")), SOFT, "}")
    if node.name == "fn" and inner:
        result = node.parameters[-1]
        gives: Doc = [" -> ", inner[-1]] if result.end > result.at else ""
        return ["fn(", *join([", "], inner[:-1]), ")", gives]
    if node.name == "map" and state.text[node.at] == "{":
        return "{}"
    return [node.name, "[", *join([", "], inner), "]"] if inner else node.name


def format_settings(
    state: FormatState, settings: dict[str, ast.Expression], places: dict[str, int], opened: int, closed: int
) -> Doc:
    """`{ name value … }`: on one line if it was begun there and fits."""
    lines: list[Doc] = []
    has_comments = False
    first = next(iter(places.values()), closed)
    for name, value in settings.items():
        before = state.comments.before(places[name])
        written = format_value(state, value)
        before += state.comments.before(value.end)
        doc: list[Doc] = [part for comment in before for part in (comment.text, HARD)]
        doc += [name, " ", written]
        behind = state.comments.behind(value.end)
        if behind is not None:
            doc.append("  " + behind.text)
        has_comments = has_comments or bool(before) or behind is not None
        lines.append(doc)
    rest = state.comments.before(closed)
    lines.extend(comment.text for comment in rest)
    is_broken = has_comments or bool(rest) or "\n" in state.text[opened:first]
    return group("{", indent(LINE, *join([LINE], lines)), LINE, "}", is_broken=is_broken) if lines else "{}"


def _format_inline(state: FormatState, statement: Any) -> Doc:
    """Return a statement without its `;`, as an arm holds it."""
    if isinstance(statement, ast.ExpressionStatement):
        return _format_body(state, statement.value)
    doc = format_statement(state, statement)
    assert isinstance(doc, list)
    return doc[:-1]  # without its `;`


def _is_value_body(body: ast.Block) -> bool:
    """Return whether a lambda's body is one expression: its Return begins where the body does."""
    return len(body.statements) == 1 and isinstance(body.statements[0], ast.Return) and body.statements[0].at == body.at


def _power(node: ast.Expression) -> int:
    if isinstance(node, ast.Binary):
        return POWERS[node.operator]
    if isinstance(node, ast.Send):
        return _SEND
    # The smallest int is one literal with a sign in it.
    is_negative = isinstance(node, ast.Literal) and type(node.value) is int and node.value < 0
    return _PREFIX if isinstance(node, (ast.Unary, ast.Await)) or is_negative else 10


def _leftmost(node: ast.Expression) -> ast.Expression:
    """Return the expression that a text begins with."""
    while True:
        if isinstance(node, ast.Binary):
            node = node.left
        elif isinstance(node, ast.Call):
            node = node.callee
        elif isinstance(node, (ast.Send, ast.Index, ast.Field, ast.MethodCall)):
            node = node.target
        else:
            return node


_VALUES: Final[dict[type, Callable[[FormatState, Any], Doc]]] = {
    ast.Literal: _format_literal,
    ast.Interpolation: _format_literal,
    ast.Name: lambda _, node: node.name,
    ast.Path: lambda _, node: f"{node.module}::{node.name}",
    ast.TypeLiteral: lambda state, node: format_type(state, node.type),
    ast.ListLiteral: _format_list,
    ast.MapLiteral: _format_map,
    ast.Lambda: _format_lambda,
    ast.Unary: lambda state, node: [node.operator, _format_operand(state, node.operand, _PREFIX)],
    ast.Binary: _format_binary,
    ast.Index: _format_index,
    ast.Field: lambda state, node: [_format_operand(state, node.target, _POSTFIX), ".", node.name],
    ast.Call: _format_call,
    ast.MethodCall: _format_method,
    ast.Spawn: _format_spawn,
    ast.Send: _format_send,
    ast.Await: lambda state, node: ["await ", _format_operand(state, node.operand, _PREFIX)],
    ast.Match: _format_match,
    ast.Receive: _format_receive,
}
