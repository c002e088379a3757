"""The syntax tree of an expression, before anything is known about types.

Each term has the offsets of its text. `format_term` writes a term so that it parses to the same tree; `is_same`
compares two trees without their offsets. The built-in functions that calls may name are in `expressions.functions`.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import msgspec


class Term(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Any of the terms below; `start` and `end` are offsets in the text."""

    start: int = 0
    end: int = 0


class LiteralTerm(Term, frozen=True, tag="literal", kw_only=True):
    value: Any  # None, bool, int, Decimal or str


class NameTerm(Term, frozen=True, tag="name", kw_only=True):
    name: str


class MemberTerm(Term, frozen=True, tag="member", kw_only=True):
    target: Term
    name: str


class IndexTerm(Term, frozen=True, tag="index", kw_only=True):
    target: Term
    index: Term


class CallTerm(Term, frozen=True, tag="call", kw_only=True):
    function: str
    arguments: tuple[Term, ...]


class StarTerm(Term, frozen=True, tag="star", kw_only=True):
    """The argument of COUNT(*)."""


class ListTerm(Term, frozen=True, tag="list", kw_only=True):
    items: tuple[Term, ...]


class MapTerm(Term, frozen=True, tag="map", kw_only=True):
    """`{name: value, 'text': value, 1: value, (expression): value}`; a bare name is a text."""

    keys: tuple[Term, ...]
    values: tuple[Term, ...]


class UnaryTerm(Term, frozen=True, tag="unary", kw_only=True):
    operator: str  # - or NOT
    operand: Term


class BinaryTerm(Term, frozen=True, tag="binary", kw_only=True):
    """`=> OR AND == != <= >= < > IN CONTAINS + - * / %`."""

    operator: str
    left: Term
    right: Term
    sign: int = 0  # offset of the operator


class NullTestTerm(Term, frozen=True, tag="null_test", kw_only=True):
    operand: Term
    negated: bool


class QuantifierTerm(Term, frozen=True, tag="quantifier", kw_only=True):
    kind: str  # FORALL or EXISTS
    name: str
    collection: Term | None
    body: Term


class PlaceholderTerm(Term, frozen=True, tag="placeholder", kw_only=True):
    """`{expression}` inside an expression: the value itself, bound, never text."""

    operand: Term


_LEVELS: Final = {
    "=>": 1,
    "OR": 2,
    "AND": 3,
    **dict.fromkeys(("==", "!=", "<=", ">=", "<", ">", "IN", "CONTAINS"), 6),
    **dict.fromkeys(("+", "-"), 7),
    **dict.fromkeys(("*", "/", "%"), 8),
}


def format_term(term: Term) -> str:
    """Return the term as text, with parentheses only where they are needed."""
    return _format_term(term, 0)


def _format_term(term: Term, level: int) -> str:
    match term:
        case LiteralTerm():
            return _literal(term.value)
        case NameTerm():
            return term.name
        case StarTerm():
            return "*"
        case MemberTerm():
            return f"{_format_term(term.target, 10)}.{term.name}"
        case IndexTerm():
            return f"{_format_term(term.target, 10)}[{_format_term(term.index, 0)}]"
        case CallTerm():
            return f"{term.function}({', '.join(_format_term(argument, 0) for argument in term.arguments)})"
        case ListTerm():
            return f"[{', '.join(_format_term(item, 0) for item in term.items)}]"
        case MapTerm():
            keys = [
                _format_term(key, 0) if isinstance(key, LiteralTerm) else f"({_format_term(key, 0)})"
                for key in term.keys
            ]
            entries = [f"{key}: {_format_term(value, 0)}" for key, value in zip(keys, term.values, strict=True)]
            return "{" + ", ".join(entries) + "}"
        case PlaceholderTerm():
            return "{" + _format_term(term.operand, 0) + "}"
    text, own = _operator_text(term)
    return f"({text})" if own < level else text


def _operator_text(term: Term) -> tuple[str, int]:
    match term:
        case UnaryTerm(operator="NOT"):
            return f"NOT {_format_term(term.operand, 4)}", 4
        case UnaryTerm():
            return f"-{_format_term(term.operand, 9)}", 9
        case NullTestTerm():
            return f"{_format_term(term.operand, 7)} IS {'NOT ' if term.negated else ''}NULL", 6
        case QuantifierTerm():
            where = f" IN {_format_term(term.collection, 10)}" if term.collection is not None else ""
            return f"{term.kind} {term.name}{where}: {_format_term(term.body, 1)}", 0
        case BinaryTerm():
            level = _LEVELS[term.operator]
            left, right = (level + 1, level) if level == 1 else (7, 7) if level == 6 else (level, level + 1)
            return f"{_format_term(term.left, left)} {term.operator} {_format_term(term.right, right)}", level
    raise AssertionError(term)


def _literal(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        text = format(value, "f")
        return text if "." in text else f"{text}.0"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\t", "\\t")
        return f"'{escaped}'"
    return str(value)


def children(term: Term) -> Iterator[Term]:
    """Yield the terms directly inside a term, from left to right."""
    for name in term.__struct_fields__:
        value = getattr(term, name)
        if isinstance(value, Term):
            yield value
        elif isinstance(value, tuple):
            yield from (item for item in value if isinstance(item, Term))


def names_in(term: Term) -> set[str]:
    """Return the names that a term mentions, those that quantifiers bind included."""
    names = {term.name} if isinstance(term, NameTerm) else set()
    return names.union(*(names_in(child) for child in children(term)))


def is_same(left: Any, right: Any) -> bool:
    """Return whether two trees are equal but for their offsets."""
    if isinstance(left, Term) and isinstance(right, Term):
        return type(left) is type(right) and all(
            is_same(getattr(left, name), getattr(right, name))
            for name in left.__struct_fields__
            if name not in ("start", "end", "sign")
        )
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(is_same, left, right))
    return type(left) is type(right) and bool(left == right) and str(left) == str(right)
