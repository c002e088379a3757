"""Statements without a block, as an arm of `match` may hold them too: assignments, expressions and jumps."""

from __future__ import annotations

from lyra.vega.syntax.ast import (
    Assign,
    Break,
    Call,
    Continue,
    Expression,
    ExpressionStatement,
    Field,
    Index,
    Name,
    Return,
    Statement,
    Throw,
)
from lyra.vega.syntax.cursor import Cursor
from lyra.vega.syntax.expressions import parse_expression


def parse_simple(cursor: Cursor) -> Statement:
    offset = cursor.starts[cursor.i]
    value = parse_expression(cursor)
    if cursor.kinds[cursor.i] != "=":
        return ExpressionStatement(value, at=offset, end=cursor.ends[cursor.i - 1])
    if not isinstance(value, (Name, Index, Field)):
        cursor.fail(value.at, value.end, "this cannot be assigned to", "a name, `list[i]`, `map[key]` or `value.field`")
    cursor.i += 1
    new = parse_expression(cursor)
    return Assign(value, new, at=offset, end=cursor.ends[cursor.i - 1])


def parse_jump(cursor: Cursor) -> Statement:
    offset, kind = cursor.starts[cursor.i], cursor.kinds[cursor.i]
    cursor.i += 1
    if kind == "break":
        return Break(at=offset, end=cursor.ends[cursor.i - 1])
    if kind == "continue":
        return Continue(at=offset, end=cursor.ends[cursor.i - 1])
    if kind == "return":
        bare = cursor.kinds[cursor.i] in (";", "}", ",", "end")
        value = None if bare else parse_expression(cursor)
        return Return(value, at=offset, end=cursor.ends[cursor.i - 1])
    thrown = parse_expression(cursor)
    error, text = _thrown(thrown)
    if error and isinstance(thrown, Call) and (len(thrown.arguments) > 1 or any(a.name for a in thrown.arguments)):
        cursor.note(thrown.at, thrown.end, "an error carries one text", f'write `throw {error}("text")`')
    return Throw(text, error or "Error", at=offset, end=cursor.ends[cursor.i - 1])


def _thrown(value: Expression) -> tuple[str, Expression | None]:
    """The error's name and its text: `Name("text")`, `Name`; ("", value) for a plain text."""
    if isinstance(value, Call) and isinstance(value.callee, Name) and value.callee.name[:1].isupper():
        return value.callee.name, value.arguments[0].value if value.arguments else None
    if isinstance(value, Name) and value.name[:1].isupper() and not value.name.isupper():
        return value.name, None
    return "", value
