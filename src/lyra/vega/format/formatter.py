"""The one layout of a Vega source: `format_source`.

Four spaces, one statement a line, lines of at most 100 columns where the source allows it, at most one empty line in a
row. Every comment is kept. Formatting what is formatted changes nothing, and the tree of the result is the tree of the
source. Statements and declarations are here, values in `expressions`; `layout` keeps comments and fits text into lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from lyra.errors import ParseError
from lyra.vega.format.expressions import format_first, format_parameters, format_settings, format_type, format_value
from lyra.vega.format.layout import HARD, Comments, Doc, FormatState, braces, format_block, format_lines, nest, render
from lyra.vega.syntax import ast
from lyra.vega.syntax.lexer import lex
from lyra.vega.syntax.parser import parse_all
from lyra.vega.syntax.source import Source, source_error

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
