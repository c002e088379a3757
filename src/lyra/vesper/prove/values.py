"""Symbolic values: what a variable may hold at one point of a node, for all inputs at once.

A value is one of the classes below, or a `ValueChoice` of several under conditions that exclude each other. Conditions
are z3 terms. `choose` joins values of one kind into one term, so that the branches of a node meet again instead of
doubling the number of paths. `OpaqueValue` is a value that is not modelled; `kind` is what is known of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import z3

Term = Any  # a z3 term; z3 has no types of its own
TRUE = z3.BoolVal(True)
FALSE = z3.BoolVal(False)


TIMES: Final = (datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(time: datetime) -> int:
    delta = time - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


class UnsupportedNode(Exception):
    """The walk cannot continue in this encoding; the message is the reason of an unknown verdict."""


@dataclass(frozen=True, eq=False)
class SymbolicValue:
    """Any of the values below."""


@dataclass(frozen=True, eq=False)
class NullValue(SymbolicValue):
    pass


@dataclass(frozen=True, eq=False)
class UnsetValue(SymbolicValue):
    """A variable that no step has assigned yet."""


@dataclass(frozen=True, eq=False)
class TruthValue(SymbolicValue):
    term: Term


@dataclass(frozen=True, eq=False)
class NumberValue(SymbolicValue):
    """A number. `scale` bounds the digits after the point, None where nothing bounds them."""

    term: Term
    whole: bool  # an integer, not a decimal
    scale: int | None = 0


@dataclass(frozen=True, eq=False)
class TextValue(SymbolicValue):
    term: Term


@dataclass(frozen=True, eq=False)
class TimeValue(SymbolicValue):
    """A timestamp in microseconds since 1970."""

    number: NumberValue


@dataclass(frozen=True, eq=False)
class OpaqueValue(SymbolicValue):
    """A value that is not modelled, and why. `kind` is string, bytes, list, set or map where that is known."""

    why: str
    kind: str = ""


@dataclass(frozen=True, eq=False)
class RecordValue(SymbolicValue):
    fields: Mapping[str, SymbolicValue]


@dataclass(frozen=True, eq=False)
class ListItems(SymbolicValue):
    """A list of so many possible elements, each with the condition under which it is there."""

    items: tuple[tuple[Term, SymbolicValue], ...]


@dataclass(eq=False)
class SourceElement:
    """An element of a source that the walk has looked at."""

    value: SymbolicValue
    stages: dict[int, tuple[Any, Term, SymbolicValue]] = field(
        default_factory=dict
    )  # by the id of a comprehension, kept here


@dataclass(eq=False)
class ElementSource:
    """A list of any length: what its elements look like, and what is known of all of them."""

    length: NumberValue
    make: Callable[[], SymbolicValue]
    elements: list[SourceElement] = field(default_factory=list)
    facts: list[Callable[[SourceElement], Term]] = field(default_factory=list)
    sums: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ListComprehension(SymbolicValue):
    """The elements of a source, filtered and mapped: `stage` gives whether an element is in, and as what."""

    source: ElementSource
    stage: Callable[[SourceElement], tuple[Term, SymbolicValue]]


@dataclass(frozen=True, eq=False)
class ValueChoice(SymbolicValue):
    options: tuple[tuple[Term, SymbolicValue], ...]


NULL = NullValue()
UNSET = UnsetValue()


def conj(*terms: Term) -> Term:
    parts = []
    for term in terms:
        if z3.is_false(term):
            return FALSE
        if not z3.is_true(term):
            parts.append(term)
    return TRUE if not parts else parts[0] if len(parts) == 1 else z3.And(*parts)


def disj(*terms: Term) -> Term:
    parts = []
    for term in terms:
        if z3.is_true(term):
            return TRUE
        if not z3.is_false(term):
            parts.append(term)
    return FALSE if not parts else parts[0] if len(parts) == 1 else z3.Or(*parts)


def negate(term: Term) -> Term:
    if z3.is_true(term):
        return FALSE
    if z3.is_false(term):
        return TRUE
    return term.arg(0) if z3.is_not(term) else z3.Not(term)


def implies(condition: Term, term: Term) -> Term:
    return disj(negate(condition), term)


def ite(condition: Term, then: Term, other: Term) -> Term:
    if z3.is_true(condition) or then.eq(other):
        return then
    return other if z3.is_false(condition) else z3.If(condition, then, other)


def options(value: SymbolicValue) -> tuple[tuple[Term, SymbolicValue], ...]:
    return value.options if isinstance(value, ValueChoice) else ((TRUE, value),)


def choose(
    pairs: Iterable[tuple[Term, SymbolicValue]],
    align: Callable[[NumberValue, NumberValue], tuple[NumberValue, NumberValue]],
) -> SymbolicValue:
    """Return the value that is each of these under its condition; `align` gives two numbers comparable terms."""
    joined: dict[Any, tuple[Term, SymbolicValue]] = {}
    for outer, value in pairs:
        for inner, option in options(value):
            guard = conj(outer, inner)
            if z3.is_false(guard):
                continue
            key = _join_key(option)
            if key in joined:
                other, known = joined[key]
                joined[key] = disj(other, guard), _join(guard, option, other, known, align)
            else:
                joined[key] = guard, option
    if len(joined) == 1:
        return next(iter(joined.values()))[1]
    return ValueChoice(tuple(joined.values())) if joined else NULL


def _join_key(value: SymbolicValue) -> Any:
    match value:
        case NumberValue():
            return "number", value.whole
        case RecordValue():
            return "record", tuple(value.fields)
        case OpaqueValue():
            return "opaque", value.kind
        case ListComprehension():
            return "comprehension", id(value)
    return type(value)


def _join(guard: Term, value: SymbolicValue, other: Term, known: SymbolicValue, align: Any) -> SymbolicValue:
    if value is known:
        return value
    match value, known:
        case TruthValue(), TruthValue():
            return TruthValue(ite(guard, value.term, known.term))
        case TextValue(), TextValue():
            return TextValue(ite(guard, value.term, known.term))
        case TimeValue(), TimeValue():
            return TimeValue(NumberValue(ite(guard, value.number.term, known.number.term), True))
        case NumberValue(), NumberValue():
            left, right = align(value, known)
            scale = None if left.scale is None or right.scale is None else max(left.scale, right.scale)
            return NumberValue(ite(guard, left.term, right.term), value.whole, scale)
        case RecordValue(), RecordValue():
            fields = {
                name: choose(((guard, value.fields[name]), (negate(guard), known.fields[name])), align)
                for name in value.fields
            }
            return RecordValue(fields)
        case ListItems(), ListItems():
            first = [(conj(other, negate(guard), here), item) for here, item in known.items]
            return ListItems((*first, *((conj(guard, here), item) for here, item in value.items)))
    return known
