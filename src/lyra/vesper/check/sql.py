"""SQL of database steps: values are bound, never put into the text.

`query_of` replaces each placeholder of a query by a named parameter (`:p0`) and gives the expressions to bind. A
placeholder alone inside quotes loses the quotes; one inside a longer quoted text is refused, since it would not be
bound. `row` writes an expression over the columns of a row, such as `balance - {amount}`, as SQL.
"""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import Final

from lyra.core.checking.document import Path
from lyra.errors import ParseError
from lyra.vesper.check.infer import QUERY_RESULT, Typing, map_of
from lyra.vesper.check.state import CheckState, NameScope, TextSite
from lyra.vesper.check.steps import parts_of
from lyra.vesper.expressions.parser import parse_expression, parse_template
from lyra.vesper.expressions.terms import (
    BinaryTerm,
    ListTerm,
    LiteralTerm,
    MemberTerm,
    NameTerm,
    NullTestTerm,
    PlaceholderTerm,
    Term,
    UnaryTerm,
    children,
)
from lyra.vesper.ir import (
    AssignStep,
    Constant,
    EffectStep,
    FieldOf,
    ForEachStep,
    ItemOf,
    MapOf,
    NodeProgram,
    NodeVariable,
    Projection,
    TypedExpression,
)
from lyra.vesper.loading import ERROR, WARNING
from lyra.vesper.nodes.reader import close_to
from lyra.vesper.sql.tables import query_columns
from lyra.vesper.sql.tokens import PLACEHOLDER_MARK, SqlRefused, SqlToken, sql_tokens
from lyra.vesper.values.types import STRING

_KEYS_OF_JSON: Final = ("text", "mark", "placeholder", "|", "&")  # after PostgreSQL's operators ?, ?| and ?&
_OPERATORS: Final = {"==": "=", "!=": "<>", "AND": "AND", "OR": "OR", "IN": "IN"}


def mentions_column(term: Term, column: str) -> bool:
    """Return whether a term is arithmetic on its own column: `balance - {amount}`, not the text `in-{place}`."""
    if not isinstance(term, BinaryTerm) or term.operator not in ("+", "-", "*", "/", "%"):
        return False
    return _has_name(term, column)


def _has_name(term: Term, name: str) -> bool:
    if isinstance(term, PlaceholderTerm):
        return False
    return (isinstance(term, NameTerm) and term.name == name) or any(_has_name(child, name) for child in children(term))


class Sql:
    """Writes the SQL of one node's steps."""

    def __init__(self, state: CheckState, typing: Typing) -> None:
        self.state = state
        self.typing = typing
        self._table = ""  # of the expression that is being written

    def query_of(
        self, text: str, path: Path, scope: NameScope, named: dict[str, TypedExpression]
    ) -> tuple[str, dict[str, TypedExpression]]:
        """Return the query with parameters `:p0` …, and their values; an empty text after a remark. `named` are the
        values of `:name` in the text."""
        try:
            template = parse_template(text)
        except ParseError as error:
            self.state.syntax(error, TextSite(path))
            return "", {}
        values: dict[str, TypedExpression] = {}
        parts: list[str] = []
        for part in template.parts:
            if isinstance(part, str):
                parts.append(part.replace("\x00", "\x01"))  # a NUL of the file is no mark, and is refused
                continue
            name = f"p{len(values)}"
            values[name] = self.typing.term(part, scope, TextSite(path))
            parts.append(f"\x00{name}\x00")
        marked = "".join(parts)
        try:
            tokens = sql_tokens(marked)
        except SqlRefused as error:
            self.report_refusal(error, marked, text, path)
            return "", {}
        return self._bind_query(marked, text, path, tokens, named, values), values

    def report_refusal(self, error: SqlRefused, query: str, text: str, path: Path) -> None:
        """Remark on a query that is not understood; `text` is the query as the file has it."""
        before = query[: error.start]
        offset = len(before) if text.startswith(before) else 0
        self.state.mark(ERROR, "query_refused", error.message, TextSite(path), offset, hint=error.hint)

    def _bind_query(
        self,
        marked: str,
        text: str,
        path: Path,
        tokens: list[SqlToken],
        named: dict[str, TypedExpression],
        values: dict[str, TypedExpression],
    ) -> str:
        """Return the query with `:p0` for marks, for marks alone in quotes, and for names of `named`."""
        used: dict[str, str] = {}
        parts, position = [], 0
        for token, after in zip_longest(tokens, tokens[1:]):
            written = marked[token.start : token.end]
            follows = "" if after is None else after.value if after.kind == "operator" else after.kind
            name = token.value[1:] if token.kind == "placeholder" else ""
            mark = PLACEHOLDER_MARK.fullmatch(written[1:-1] if token.kind in ("text", "name") else written)
            if mark is not None:
                written = f":{mark[1]}"
            elif "\x00" in written:
                number = int(written.partition("\x00p")[2].partition("\x00")[0])
                places = [match.start() for match in re.finditer(r"(?<!\{)\{(?!\{)", text)]
                self.state.mark(
                    ERROR,
                    "unbound_placeholder",
                    "a placeholder inside a quoted text is not bound",
                    TextSite(path),
                    places[number] if number < len(places) else 0,
                    hint="write the placeholder alone: its value needs no quotes",
                )
            elif name in named:
                if name not in used:
                    used[name] = f"p{len(values)}"
                    values[used[name]] = named[name]
                written = f":{used[name]}"
            elif token.is_operator("?") and follows not in _KEYS_OF_JSON:
                hint = "write {name} where the value of a variable belongs"
                self.state.error("unbound_placeholder", "`?` has no value", path, hint=hint, value=True)
            elif name:
                self.state.error("undefined_name", f"the query has no parameter `{name}`", path, value=True)
            parts += [_without_marks(marked[position : token.start]), written]
            position = token.end
        for name in named:
            if name not in used:
                self.state.warn("no_effect", f"the query does not use the parameter `{name}`", path)
        return "".join([*parts, _without_marks(marked[position:])])

    def where(self, value: object, path: Path, scope: NameScope, table: str) -> TypedExpression:
        """Return the condition of a change: a mapping of columns to values, or an expression over the row."""
        if isinstance(value, dict) and value:
            values: dict[str, TypedExpression] = {}
            parts = []
            for column, item in value.items():
                expression = self.typing.value(item, (*path, column), scope)
                if isinstance(expression, Constant) and expression.value is None:
                    parts.append(f"{_column(table, column)} IS NULL")
                    continue
                name = f"p{len(values)}"
                values[name] = expression
                parts.append(f"{_column(table, column)} = :{name}")
            return _sql(" AND ".join(parts), values)
        if not isinstance(value, str):
            self.state.error("wrong_form", "`where` maps columns to values, or is a condition", path, value=True)
            return _sql("1 = 0", {})
        site = TextSite(path)
        try:
            term = parse_expression(value, sql=True)
        except ParseError as error:
            self.state.syntax(error, site)
            return _sql("1 = 0", {})
        return self.row(term, site, scope, table)

    def row(self, term: Term, site: TextSite, scope: NameScope, table: str) -> TypedExpression:
        """Return an expression over the columns of a row."""
        values: dict[str, TypedExpression] = {}
        self._table = table
        return _sql(self._row(term, site, scope, values), values)

    def _row(self, term: Term, site: TextSite, scope: NameScope, values: dict[str, TypedExpression]) -> str:
        match term:
            case NameTerm():
                return _column(self._table, term.name)
            case MemberTerm(target=NameTerm() as table):
                return f"{_quote_name(table.name)}.{_quote_name(term.name)}"
            case PlaceholderTerm():
                return self._bind(self.typing.term(term.operand, scope, site), values)
            case LiteralTerm(value=str() as text):
                return self._bind(self._literal_template(text, site, term.start, scope), values)
            case LiteralTerm():
                return "NULL" if term.value is None else self._bind(self.typing.term(term, scope, site), values)
            case UnaryTerm():
                sign = "NOT " if term.operator == "NOT" else "-"
                return f"({sign}{self._row(term.operand, site, scope, values)})"
            case NullTestTerm():
                word = "IS NOT NULL" if term.negated else "IS NULL"
                return f"({self._row(term.operand, site, scope, values)} {word})"
            case BinaryTerm(operator="IN", right=ListTerm() as members):
                items = ", ".join(self._row(item, site, scope, values) for item in members.items)
                return f"({self._row(term.left, site, scope, values)} IN ({items}))"
            case BinaryTerm() if term.operator not in ("=>", "IN", "CONTAINS"):
                left = self._row(term.left, site, scope, values)
                right = self._row(term.right, site, scope, values)
                operator = _OPERATORS.get(term.operator, term.operator)
                if right == "NULL" and operator in ("=", "<>"):
                    return f"({left} {'IS' if operator == '=' else 'IS NOT'} NULL)"
                return f"({left} {operator} {right})"
        self.state.mark(ERROR, "not_sql", "this has no form in SQL: write it as a placeholder", site, term.start)
        return "NULL"

    def _literal_template(self, text: str, site: TextSite, offset: int, scope: NameScope) -> TypedExpression:
        """Return a quoted text inside a condition: a placeholder alone in it is the value itself."""
        try:
            template = parse_template(text)
        except ParseError as error:
            self.state.mark(ERROR, "expression_syntax", error.message, site, offset)
            return Constant(type=STRING, value=text)
        if template.text is not None:
            return Constant(type=STRING, value=template.text)
        if template.single is not None:
            return self.typing.term(template.single, scope, TextSite(site.path, site.offset + offset + 1))
        self.state.mark(ERROR, "unbound_placeholder", "a placeholder inside a quoted text is not bound", site, offset)
        return Constant(type=STRING, value=text)

    def _bind(self, expression: TypedExpression, values: dict[str, TypedExpression]) -> str:
        name = f"p{len(values)}"
        values[name] = expression
        return f":{name}"


def judge_rows(program: NodeProgram, state: CheckState) -> None:
    """Remark on fields of rows that their query does not give."""
    columns: dict[str, tuple[str, ...] | None] = {}  # by the variable of the rows, or of one row
    parts = list(parts_of((program.steps, program.rules)))

    def add(name: str, known: tuple[str, ...] | None) -> None:
        if name:
            columns[name] = known if columns.get(name, known) == known else None

    queries = [part for part in parts if isinstance(part, EffectStep) and part.kind == "db.query"]
    for step in queries:
        text = dict(step.request.entries).get("query") if isinstance(step.request, MapOf) else None
        known = query_columns(text.value) if isinstance(text, Constant) else None
        add(step.output, known)
        add(QUERY_RESULT, known)
    for part in parts:
        if isinstance(part, AssignStep):
            add(part.target, None)
        elif isinstance(part, EffectStep) and part.kind != "db.query":
            add(part.output, None)
        elif isinstance(rows := getattr(part, "collection", None), NodeVariable):
            add(part.variable if isinstance(part, ForEachStep) else getattr(part, "name", ""), columns.get(rows.name))
    for part in parts:
        target = part.target if isinstance(part, FieldOf | Projection) else None
        rows = target.target if isinstance(target, ItemOf) else target
        known = columns.get(rows.name) if isinstance(rows, NodeVariable) else None
        if known and part.name.lower() not in known:
            message = f"the query gives no column `{part.name}`, so it is null"
            state.issues.add(WARNING, "unknown_field", message, place=part.place, hint=close_to(part.name, known))


def _sql(text: str, values: dict[str, TypedExpression]) -> TypedExpression:
    return map_of({"sql": Constant(type=STRING, value=text), "values": map_of(values)})


def _column(table: str, name: str) -> str:
    """Return a column with its table: SQLite would read an unknown name in double quotes that stands alone as a
    text."""
    return f"{_quote_name(table)}.{_quote_name(name)}" if table and "." not in name else _quote_name(name)


def _quote_name(name: str) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def _without_marks(text: str) -> str:
    """White space and comments; a placeholder inside a comment is not bound."""
    return PLACEHOLDER_MARK.sub("", text)
