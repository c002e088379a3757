"""Symbolic values: what a variable may hold at one point of a node, for all inputs at once.

A value is one of the classes below, or a `Choice` of several under conditions that exclude each other. Conditions are
z3 terms. `choose` joins values of one kind into one term, so that the branches of a node meet again instead of doubling
the number of paths. `Opaque` is a value that is not modelled; `kind` is what is known of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import z3

Term = Any  # a z3 term; z3 has no types of its own
TRUE = z3.BoolVal(True)
FALSE = z3.BoolVal(False)


class Unsupported(Exception):
    """The walk cannot go on in this encoding; the message is the reason of an unknown verdict."""


@dataclass(frozen=True, eq=False)
class Value:
    """Any of the values below."""


@dataclass(frozen=True, eq=False)
class Null(Value):
    pass


@dataclass(frozen=True, eq=False)
class Unset(Value):
    """A variable that no step has assigned yet."""


@dataclass(frozen=True, eq=False)
class Bool(Value):
    term: Term


@dataclass(frozen=True, eq=False)
class Num(Value):
    """A number. `scale` bounds the digits after the point, None where nothing bounds them."""

    term: Term
    whole: bool  # an integer, not a decimal
    scale: int | None = 0


@dataclass(frozen=True, eq=False)
class Text(Value):
    term: Term


@dataclass(frozen=True, eq=False)
class Time(Value):
    """A timestamp in microseconds since 1970."""

    number: Num


@dataclass(frozen=True, eq=False)
class Opaque(Value):
    """A value that is not modelled, and why. `kind` is string, bytes, list, set or map where that is known."""

    why: str
    kind: str = ""


@dataclass(frozen=True, eq=False)
class Record(Value):
    fields: Mapping[str, Value]


@dataclass(frozen=True, eq=False)
class Items(Value):
    """A list of so many possible elements, each with the condition under which it is there."""

    items: tuple[tuple[Term, Value], ...]


@dataclass(eq=False)
class Element:
    """An element of a source that the walk has looked at."""

    value: Value
    stages: dict[int, tuple[Any, Term, Value]] = field(default_factory=dict)  # by the id of a comprehension, kept here


@dataclass(eq=False)
class Source:
    """A list of any length: what its elements look like, and what is known of all of them."""

    length: Num
    make: Callable[[], Value]
    elements: list[Element] = field(default_factory=list)
    facts: list[Callable[[Element], Term]] = field(default_factory=list)
    sums: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Comprehension(Value):
    """The elements of a source, filtered and mapped: `stage` gives whether an element is in, and as what."""

    source: Source
    stage: Callable[[Element], tuple[Term, Value]]


@dataclass(frozen=True, eq=False)
class Choice(Value):
    options: tuple[tuple[Term, Value], ...]


NULL = Null()
UNSET = Unset()


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


def options(value: Value) -> tuple[tuple[Term, Value], ...]:
    return value.options if isinstance(value, Choice) else ((TRUE, value),)


def choose(pairs: Iterable[tuple[Term, Value]], align: Callable[[Num, Num], tuple[Num, Num]]) -> Value:
    """Return the value that is each of these under its condition; `align` gives two numbers comparable terms."""
    joined: dict[Any, tuple[Term, Value]] = {}
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
    return Choice(tuple(joined.values())) if joined else NULL


def _join_key(value: Value) -> Any:
    match value:
        case Num():
            return "number", value.whole
        case Record():
            return "record", tuple(value.fields)
        case Opaque():
            return "opaque", value.kind
        case Comprehension():
            return "comprehension", id(value)
    return type(value)


def _join(guard: Term, value: Value, other: Term, known: Value, align: Any) -> Value:
    if value is known:
        return value
    match value, known:
        case Bool(), Bool():
            return Bool(ite(guard, value.term, known.term))
        case Text(), Text():
            return Text(ite(guard, value.term, known.term))
        case Time(), Time():
            return Time(Num(ite(guard, value.number.term, known.number.term), True))
        case Num(), Num():
            left, right = align(value, known)
            scale = None if left.scale is None or right.scale is None else max(left.scale, right.scale)
            return Num(ite(guard, left.term, right.term), value.whole, scale)
        case Record(), Record():
            fields = {
                name: choose(((guard, value.fields[name]), (negate(guard), known.fields[name])), align)
                for name in value.fields
            }
            return Record(fields)
        case Items(), Items():
            first = [(conj(other, negate(guard), here), item) for here, item in known.items]
            return Items((*first, *((conj(guard, here), item) for here, item in value.items)))
    return known
