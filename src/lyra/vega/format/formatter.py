"""The one layout of a Vega source: `format_source`.

Four spaces, one statement a line, lines of at most 100 columns where the source allows it, at most one empty line in a
row. Every comment is kept. Formatting what is formatted changes nothing, and the tree of the result is the tree of the
source. Each kind of statement, expression, pattern and type has a function here that writes it; `layout` keeps comments
and fits text into lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from lyra.errors import ParseError
from lyra.vega.format.layout import (
    HARD,
    LINE,
    SOFT,
    Comments,
    Doc,
    FormatState,
    braces,
    format_block,
    format_lines,
    format_statement,
    gap,
    group,
    indent,
    join,
    nest,
    only_broken,
    render,
)
from lyra.vega.syntax import ast
from lyra.vega.syntax.expressions import POWERS
from lyra.vega.syntax.lexer import lex
from lyra.vega.syntax.parser import parse_all
from lyra.vega.syntax.source import Source, source_error

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


WIDTH: Final = 100


def format_source(text: str, name: str = "<vega>") -> str:
    """Return the source in its one layout; ParseError if it cannot be read."""
    source = Source(name, text)
    parsed = parse_all(source)
    if parsed.problems:
        raise source_error(ParseError, parsed.problems)
    state = FormatState(text, Comments(source, lex(source)), STATEMENTS)
    try:
        lines = format_lines(state, parsed.module.statements, len(text) + 1)
    except RecursionError:  # the parser bounds the depth, so the caller's own stack was deep already
        raise source_error(ParseError, [source.problem(0, 1, "this is nested too deeply to be formatted")]) from None
    return render(lines, WIDTH).lstrip("\n") + "\n" if lines else ""


# ---------------- Statements and declarations as documents: one function each, found by the kind of node

_NAMED_ERROR: Final = re.compile(r"throw\s+Error\b")


# ---------------------------------------------------------------- lines of a block

# ---------------------------------------------------------------- statements


def _format_let_open(state: FormatState, node: ast.Let) -> list[Doc]:
    doc: list[Doc] = ["let ", node.name]
    if node.type is not None:
        doc += [": ", format_type(state, node.type)]
    if node.value is not None:
        doc += [" = ", format_value(state, node.value)]
    return doc


def _format_expression(state: FormatState, node: ast.ExpressionStatement) -> Doc:
    if isinstance(node.value, (ast.Match, ast.Receive)):
        return format_value(state, node.value)
    return [format_first(state, node.value), ";"]


def _format_return(state: FormatState, node: ast.Return) -> Doc:
    return ["return ", format_value(state, node.value), ";"] if node.value is not None else ["return", ";"]


def _format_throw(state: FormatState, node: ast.Throw) -> Doc:
    if node.value is None:
        return ["throw ", node.error, "()" if node.error.isupper() else "", ";"]
    if node.error == "Error" and not _NAMED_ERROR.match(state.text, node.at):
        return ["throw ", format_value(state, node.value), ";"]
    return ["throw ", node.error, "(", format_value(state, node.value), ")", ";"]


def _format_if(state: FormatState, node: ast.If) -> Doc:
    doc: list[Doc] = []
    step: ast.Block | ast.If | None = node
    while isinstance(step, ast.If):
        doc += ["if ", format_first(state, step.condition), " ", format_block(state, step.then)]
        step = step.otherwise
        if step is not None:
            doc.append(" else ")
    if step is not None:
        doc.append(format_block(state, step))
    return doc


def _format_while(state: FormatState, node: ast.While) -> Doc:
    return ["while ", format_first(state, node.condition), " ", format_block(state, node.body)]


def _format_for(state: FormatState, node: ast.For) -> Doc:
    doc: list[Doc] = ["for "]
    if isinstance(node.start, ast.Let):
        doc += _format_let_open(state, node.start)
    elif node.start is not None:
        doc.append(_format_clause(state, node.start))
    doc.append(";")
    if node.condition is not None:
        doc += [" ", format_first(state, node.condition)]
    doc.append(";")
    if node.step is not None:
        doc += [" ", _format_clause(state, node.step)]
    return [*doc, " ", format_block(state, node.body)]


def _format_clause(state: FormatState, node: ast.Statement) -> Doc:
    """Return an assignment or expression in the head of `for`."""
    if isinstance(node, ast.Assign):
        return [format_first(state, node.target), " = ", format_value(state, node.value)]
    assert isinstance(node, ast.ExpressionStatement)
    return format_first(state, node.value)


def _format_for_in(state: FormatState, node: ast.ForIn) -> Doc:
    return ["for ", node.name, " in ", format_first(state, node.source), " ", format_block(state, node.body)]


def _format_try(state: FormatState, node: ast.Try) -> Doc:
    doc: list[Doc] = ["try ", format_block(state, node.body)]
    for catch in node.catches:
        binding = f"({catch.binding})" if catch.binding else ""
        doc += [f" catch {catch.error}{binding} ", format_block(state, catch.body)]
    if node.finally_body is not None:
        doc += [" finally ", format_block(state, node.finally_body)]
    return doc


def _format_session(state: FormatState, node: ast.Session) -> Doc:
    return ["session budget ", format_first(state, node.budget), " ", format_block(state, node.body)]


def _format_mock(state: FormatState, node: ast.Mock) -> Doc:
    def reply(node: ast.MockReply) -> Doc:
        return ["on ", state.comments.string_in(node.at), " reply ", format_value(state, node.reply)]

    return [f"mock {node.agent} ", braces(state, format_lines(state, node.replies, node.end - 1, reply))]


# ---------------------------------------------------------------- declarations


def _format_head(state: FormatState, node: ast.Function | ast.Tool) -> list[Doc]:
    doc: list[Doc] = [node.name, format_parameters(state, node.parameters, node.at)]
    if node.result is not None:
        doc += [" -> ", format_type(state, node.result)]
    return doc


def _format_tool(state: FormatState, node: ast.Tool) -> Doc:
    doc: list[Doc] = ["tool ", *_format_head(state, node)]
    if not node.settings:
        return [*doc, " ", format_block(state, node.body)]
    lines = [[name, " ", format_value(state, value)] for name, value in node.settings.items()]
    return [*doc, nest(*[part for line in lines for part in (HARD, line)]), HARD, format_block(state, node.body)]


def _format_agent(state: FormatState, node: ast.Agent) -> Doc:
    parts: list[Any] = [_FieldLine(state, node, name) for name in node.fields]
    parts = sorted([*parts, *node.tools], key=lambda part: part.at)

    def write(part: Any) -> Doc:
        return part.doc(state) if isinstance(part, _FieldLine) else _format_tool(state, part)

    return [f"agent {node.name} ", braces(state, format_lines(state, parts, node.end - 1, write))]


def _format_supervisor(state: FormatState, node: ast.Supervisor) -> Doc:
    parts: list[Any] = [_SettingLine(name, node.settings[name], place) for name, place in node.places.items()]
    parts = sorted([*parts, *node.children], key=lambda part: part.at)

    def write(part: Any) -> Doc:
        if isinstance(part, ast.Child):
            return [f"child {part.name} = ", "fn " if part.is_function else "", format_value(state, part.target)]
        return [part.name, " ", format_value(state, part.value)]

    return [f"supervisor {node.name} ", braces(state, format_lines(state, parts, node.end - 1, write))]


def _format_const(state: FormatState, node: ast.Const) -> Doc:
    kind: Doc = [": ", format_type(state, node.type)] if node.type is not None else ""
    return ["const ", node.name, kind, " = ", format_value(state, node.value), ";"]


def _format_import(state: FormatState, node: ast.Import) -> Doc:
    words = {"vega": "", "mcp": "tools from mcp "}.get(node.kind, f"{node.kind} ")
    target = state.comments.string_in(node.at)
    alias = f" as {node.name}" if state.comments.has_word("as", node.at, node.end) else ""
    return f"import {words}{target}{alias};"


class _SettingLine:
    """A setting of a supervisor as a line of its block."""

    def __init__(self, name: str, value: ast.Expression, offset: int) -> None:
        self.name, self.value, self.at, self.end = name, value, offset, value.end


class _FieldLine:
    """A field of an agent as a line of its block: a value, or settings in braces."""

    def __init__(self, state: FormatState, agent: ast.Agent, name: str) -> None:
        self.name, self.value, self.at = name, agent.fields[name], agent.places[name]
        if isinstance(self.value, dict):
            self.opened, closed = state.comments.brace_behind(self.at)
            self.end = closed + 1
            self.places = {setting: agent.places[f"{name}.{setting}"] for setting in self.value}
        else:
            self.end = self.value.end

    def doc(self, state: FormatState) -> Doc:
        if isinstance(self.value, dict):
            return [self.name, " ", format_settings(state, self.value, self.places, self.opened, self.end - 1)]
        return [self.name, " ", format_value(state, self.value)]


# Each kind of statement → its rule.
STATEMENTS: Final[dict[type, Callable[[FormatState, Any], Doc]]] = {
    ast.Let: lambda state, node: [*_format_let_open(state, node), ";"],
    ast.Const: _format_const,
    ast.Assign: lambda state, node: [format_first(state, node.target), " = ", format_value(state, node.value), ";"],
    ast.ExpressionStatement: _format_expression,
    ast.Break: lambda *_: ["break", ";"],
    ast.Continue: lambda *_: ["continue", ";"],
    ast.Return: _format_return,
    ast.Throw: _format_throw,
    ast.If: _format_if,
    ast.While: _format_while,
    ast.For: _format_for,
    ast.ForIn: _format_for_in,
    ast.Block: format_block,
    ast.Try: _format_try,
    ast.Parallel: lambda state, node: ["parallel ", format_block(state, node.body)],
    ast.Session: _format_session,
    ast.Defer: lambda state, node: ["defer ", format_block(state, node.body)],
    ast.Mock: _format_mock,
    ast.Function: lambda state, node: ["fn ", *_format_head(state, node), " ", format_block(state, node.body)],
    ast.Tool: _format_tool,
    ast.Agent: _format_agent,
    ast.Supervisor: _format_supervisor,
    ast.Import: _format_import,
    ast.Test: lambda state, node: ["test ", state.comments.string_in(node.at), " ", format_block(state, node.body)],
}
