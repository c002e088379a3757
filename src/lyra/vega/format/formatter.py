"""The one layout of a Vega source: `format_source`.

Four spaces, one statement a line, lines of at most 100 columns where the source allows it, at most one empty line in a
row. Every comment is kept. Formatting what is formatted changes nothing, and the tree of the result is the tree of the
source. `layout` fits text into lines, `format_comments` hands out comments, `format_expressions` writes values; this
module writes statements and declarations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from lyra.errors import ParseError
from lyra.vega.format.comments import Comment, Comments
from lyra.vega.format.expressions import ExpressionFormatter
from lyra.vega.format.layout import HARD, LINE, Doc, group, indent, join, nest, render
from lyra.vega.syntax.ast import (
    Agent,
    Assign,
    Block,
    Break,
    Child,
    Const,
    Continue,
    Defer,
    Expression,
    ExpressionStatement,
    For,
    ForIn,
    Function,
    If,
    Import,
    Let,
    Match,
    Mock,
    MockReply,
    Parallel,
    Receive,
    Return,
    Session,
    Statement,
    Supervisor,
    Test,
    Throw,
    Tool,
    Try,
    While,
)
from lyra.vega.syntax.lexer import lex
from lyra.vega.syntax.parser import parse_all
from lyra.vega.syntax.source import Source, source_error

__all__ = ["WIDTH", "format_source"]

WIDTH: Final = 100
_NAMED_ERROR: Final = re.compile(r"throw\s+Error\b")


def format_source(text: str, name: str = "<vega>") -> str:
    """The source in its one layout; ParseError if it cannot be read."""
    source = Source(name, text)
    parsed = parse_all(source)
    if parsed.problems:
        raise source_error(ParseError, parsed.problems)
    formatter = _Formatter(Comments(source, lex(source)))
    try:
        lines = formatter.lines(parsed.module.statements, len(text) + 1)
    except RecursionError:  # the parser bounds the depth; only a caller who is deep already gets here
        raise source_error(ParseError, [source.problem(0, 1, "this is nested too deeply to be formatted")]) from None
    return render(lines, WIDTH).lstrip("\n") + "\n" if lines else ""


class _Formatter(ExpressionFormatter):
    # ---------------------------------------------------------------- lines of a block

    def lines(self, nodes: Sequence[Any], end: int, write: Callable[[Any], Doc] | None = None) -> list[Doc]:
        """Each node on lines of its own, with its comments and the empty lines between; begins with a new line."""
        out: list[Doc] = []
        last = -1
        for node in nodes:
            before = self.comments.before(node.at)
            doc = (write or self.statement)(node)
            inside = self.comments.before(node.end)  # no place of their own: they go before the node
            last = self._comment_lines(out, before, last)
            out.append(self.gap(last, node.at))
            for comment in inside:
                out += [comment.text, HARD]
            out.append(doc)
            last = node.end
            behind = self.comments.behind(node.end)
            if behind is not None:
                out.append("  " + behind.text)
                last = behind.end
        self._comment_lines(out, self.comments.before(end), last)
        return out

    def _comment_lines(self, out: list[Doc], comments: list[Comment], last: int) -> int:
        for comment in comments:
            out += [self.gap(last, comment.at), comment.text]
            last = comment.end
        return last

    def braces(self, lines: list[Doc]) -> Doc:
        return ["{", nest(*lines), HARD, "}"] if lines else "{}"

    def block(self, block: Block) -> Doc:
        return self.braces(self.lines(block.statements, block.end - 1))

    # ---------------------------------------------------------------- statements

    def statement(self, node: Statement) -> Doc:
        return _STATEMENTS[type(node)](self, node)

    def inline(self, statement: Any) -> Doc:
        if isinstance(statement, ExpressionStatement):
            return self.body(statement.value)
        doc = self.statement(statement)
        assert isinstance(doc, list)
        return doc[:-1]  # without its `;`

    def _let(self, node: Let) -> Doc:
        return [*self._let_open(node), ";"]

    def _let_open(self, node: Let) -> list[Doc]:
        doc: list[Doc] = ["let ", node.name]
        if node.type is not None:
            doc += [": ", self.type_(node.type)]
        if node.value is not None:
            doc += [" = ", self.value(node.value)]
        return doc

    def _assign(self, node: Assign) -> Doc:
        return [self.first(node.target), " = ", self.value(node.value), ";"]

    def _expression(self, node: ExpressionStatement) -> Doc:
        if isinstance(node.value, (Match, Receive)):
            return self.value(node.value)
        return [self.first(node.value), ";"]

    def _break(self, _: Break) -> Doc:
        return ["break", ";"]

    def _continue(self, _: Continue) -> Doc:
        return ["continue", ";"]

    def _return(self, node: Return) -> Doc:
        return ["return ", self.value(node.value), ";"] if node.value is not None else ["return", ";"]

    def _throw(self, node: Throw) -> Doc:
        if node.value is None:
            return ["throw ", node.error, "()" if node.error.isupper() else "", ";"]
        if node.error == "Error" and not _NAMED_ERROR.match(self.text, node.at):
            return ["throw ", self.value(node.value), ";"]
        return ["throw ", node.error, "(", self.value(node.value), ")", ";"]

    def _if(self, node: If) -> Doc:
        doc: list[Doc] = []
        step: Block | If | None = node
        while isinstance(step, If):
            doc += ["if ", self.first(step.condition), " ", self.block(step.then)]
            step = step.otherwise
            if step is not None:
                doc.append(" else ")
        if step is not None:
            doc.append(self.block(step))
        return doc

    def _while(self, node: While) -> Doc:
        return ["while ", self.first(node.condition), " ", self.block(node.body)]

    def _for(self, node: For) -> Doc:
        doc: list[Doc] = ["for "]
        if isinstance(node.start, Let):
            doc += self._let_open(node.start)
        elif node.start is not None:
            doc.append(self._clause(node.start))
        doc.append(";")
        if node.condition is not None:
            doc += [" ", self.first(node.condition)]
        doc.append(";")
        if node.step is not None:
            doc += [" ", self._clause(node.step)]
        return [*doc, " ", self.block(node.body)]

    def _clause(self, node: Statement) -> Doc:
        """An assignment or expression in the head of `for`."""
        if isinstance(node, Assign):
            return [self.first(node.target), " = ", self.value(node.value)]
        assert isinstance(node, ExpressionStatement)
        return self.first(node.value)

    def _for_in(self, node: ForIn) -> Doc:
        return ["for ", node.name, " in ", self.first(node.source), " ", self.block(node.body)]

    def _try(self, node: Try) -> Doc:
        doc: list[Doc] = ["try ", self.block(node.body)]
        for catch in node.catches:
            binding = f"({catch.binding})" if catch.binding else ""
            doc += [f" catch {catch.error}{binding} ", self.block(catch.body)]
        if node.finally_body is not None:
            doc += [" finally ", self.block(node.finally_body)]
        return doc

    def _parallel(self, node: Parallel) -> Doc:
        return ["parallel ", self.block(node.body)]

    def _session(self, node: Session) -> Doc:
        return ["session budget ", self.first(node.budget), " ", self.block(node.body)]

    def _defer(self, node: Defer) -> Doc:
        return ["defer ", self.block(node.body)]

    def _mock(self, node: Mock) -> Doc:
        def reply(each: MockReply) -> Doc:
            return ["on ", self.comments.string_in(each.at), " reply ", self.value(each.reply)]

        return [f"mock {node.agent} ", self.braces(self.lines(node.replies, node.end - 1, reply))]

    # ---------------------------------------------------------------- declarations

    def _head(self, node: Function | Tool) -> list[Doc]:
        doc: list[Doc] = [node.name, self.parameters(node.parameters, node.at)]
        if node.result is not None:
            doc += [" -> ", self.type_(node.result)]
        return doc

    def _function(self, node: Function) -> Doc:
        return ["fn ", *self._head(node), " ", self.block(node.body)]

    def _tool(self, node: Tool) -> Doc:
        doc: list[Doc] = ["tool ", *self._head(node)]
        if not node.settings:
            return [*doc, " ", self.block(node.body)]
        lines = [[name, " ", self.value(value)] for name, value in node.settings.items()]
        return [*doc, nest(*[part for line in lines for part in (HARD, line)]), HARD, self.block(node.body)]

    def _agent(self, node: Agent) -> Doc:
        parts: list[Any] = [_Part(self, node, name) for name in node.fields]
        parts = sorted([*parts, *node.tools], key=lambda part: part.at)

        def write(part: Any) -> Doc:
            return part.doc(self) if isinstance(part, _Part) else self._tool(part)

        return [f"agent {node.name} ", self.braces(self.lines(parts, node.end - 1, write))]

    def settings(self, settings: dict[str, Expression], places: dict[str, int], opened: int, closed: int) -> Doc:
        """`{ name value … }`: on one line if it was begun there and fits."""
        lines: list[Doc] = []
        has_comments = False
        first = next(iter(places.values()), closed)
        for name, value in settings.items():
            before = self.comments.before(places[name])
            written = self.value(value)
            before += self.comments.before(value.end)
            doc: list[Doc] = [part for comment in before for part in (comment.text, HARD)]
            doc += [name, " ", written]
            behind = self.comments.behind(value.end)
            if behind is not None:
                doc.append("  " + behind.text)
            has_comments = has_comments or bool(before) or behind is not None
            lines.append(doc)
        rest = self.comments.before(closed)
        lines.extend(comment.text for comment in rest)
        is_broken = has_comments or bool(rest) or "\n" in self.text[opened:first]
        return group("{", indent(LINE, *join([LINE], lines)), LINE, "}", is_broken=is_broken) if lines else "{}"

    def _supervisor(self, node: Supervisor) -> Doc:
        parts: list[Any] = [_Setting(name, node.settings[name], place) for name, place in node.places.items()]
        parts = sorted([*parts, *node.children], key=lambda part: part.at)

        def write(part: Any) -> Doc:
            if isinstance(part, Child):
                return [f"child {part.name} = ", "fn " if part.is_function else "", self.value(part.target)]
            return [part.name, " ", self.value(part.value)]

        return [f"supervisor {node.name} ", self.braces(self.lines(parts, node.end - 1, write))]

    def _const(self, node: Const) -> Doc:
        kind: Doc = [": ", self.type_(node.type)] if node.type is not None else ""
        return ["const ", node.name, kind, " = ", self.value(node.value), ";"]

    def _import(self, node: Import) -> Doc:
        words = {"vega": "", "mcp": "tools from mcp "}.get(node.kind, f"{node.kind} ")
        target = self.comments.string_in(node.at)
        alias = f" as {node.name}" if self.comments.has_word("as", node.at, node.end) else ""
        return f"import {words}{target}{alias};"

    def _test(self, node: Test) -> Doc:
        return ["test ", self.comments.string_in(node.at), " ", self.block(node.body)]


class _Setting:
    """A setting of a supervisor as a line of its block."""

    def __init__(self, name: str, value: Expression, at: int) -> None:
        self.name, self.value, self.at, self.end = name, value, at, value.end


class _Part:
    """A field of an agent as a line of its block: a value, or settings in braces."""

    def __init__(self, formatter: _Formatter, agent: Agent, name: str) -> None:
        self.name, self.value, self.at = name, agent.fields[name], agent.places[name]
        if isinstance(self.value, dict):
            self.opened, closed = formatter.comments.brace_behind(self.at)
            self.end = closed + 1
            self.places = {setting: agent.places[f"{name}.{setting}"] for setting in self.value}
        else:
            self.end = self.value.end

    def doc(self, formatter: _Formatter) -> Doc:
        if isinstance(self.value, dict):
            return [self.name, " ", formatter.settings(self.value, self.places, self.opened, self.end - 1)]
        return [self.name, " ", formatter.value(self.value)]


_STATEMENTS: Final[dict[type, Callable[[Any, Any], Doc]]] = {
    Let: _Formatter._let,
    Const: _Formatter._const,
    Assign: _Formatter._assign,
    ExpressionStatement: _Formatter._expression,
    Break: _Formatter._break,
    Continue: _Formatter._continue,
    Return: _Formatter._return,
    Throw: _Formatter._throw,
    If: _Formatter._if,
    While: _Formatter._while,
    For: _Formatter._for,
    ForIn: _Formatter._for_in,
    Block: _Formatter.block,
    Try: _Formatter._try,
    Parallel: _Formatter._parallel,
    Session: _Formatter._session,
    Defer: _Formatter._defer,
    Mock: _Formatter._mock,
    Function: _Formatter._function,
    Tool: _Formatter._tool,
    Agent: _Formatter._agent,
    Supervisor: _Formatter._supervisor,
    Import: _Formatter._import,
    Test: _Formatter._test,
}
