"""Expressions of the typed IR: what the two paths, the reference evaluator and later lowerings share.

A node of this tree says what is computed and of which type; it has no method that computes. Every path reads it with
code of its own, so that a mistake in one is not a mistake in all. Templates are expressions too (`Text`), and so are
transforms of collections: a step that changes nothing outside is an `Assign` of an expression.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lyra.vesper.values.types import Type

__all__ = [
    "Aggregate",
    "Aggregation",
    "Arithmetic",
    "Call",
    "Compare",
    "Constant",
    "Expression",
    "FieldOf",
    "Filter",
    "GroupBy",
    "Host",
    "IsNull",
    "ItemOf",
    "Length",
    "ListOf",
    "Logic",
    "MapOf",
    "MapOver",
    "MatrixProduct",
    "Membership",
    "Name",
    "Negate",
    "Not",
    "Old",
    "Project",
    "Quantifier",
    "Reduce",
    "Rounded",
    "Text",
]


class Expression(msgspec.Struct, frozen=True, tag=True, tag_field="is_a", kw_only=True):
    """Any of the expressions below. `place` is the line and column in the file, (0, 0) where there is none."""

    type: Type
    place: tuple[int, int] = (0, 0)


class Constant(Expression, frozen=True, tag="constant", kw_only=True):
    value: Any  # None, bool, int, str, Decimal


class Name(Expression, frozen=True, tag="name", kw_only=True):
    """A variable: an input, the output of a step, a loop's or a transform's element, an ambient object."""

    name: str


class FieldOf(Expression, frozen=True, tag="field", kw_only=True):
    """A field of a record or map; of null, and a missing one of `any`: null."""

    target: Expression
    name: str


class Project(Expression, frozen=True, tag="project", kw_only=True):
    """The field of each element of an array, as an array; of a null element: null."""

    target: Expression
    name: str


class ItemOf(Expression, frozen=True, tag="item", kw_only=True):
    """An element of an array by its number from 0, or of a map by its key; outside of it, and of null: null."""

    target: Expression
    index: Expression


class Length(Expression, frozen=True, tag="length", kw_only=True):
    """How many characters, bytes, elements or entries; of null: null."""

    target: Expression


class Negate(Expression, frozen=True, tag="negate", kw_only=True):
    operand: Expression


class Not(Expression, frozen=True, tag="not", kw_only=True):
    operand: Expression


class Arithmetic(Expression, frozen=True, tag="arithmetic", kw_only=True):
    """`+ - * / %` of numbers; `+` of two strings."""

    operator: str
    left: Expression
    right: Expression


class Rounded(Expression, frozen=True, tag="rounded", kw_only=True):
    """A number with so many digits after the point. Of a division, the exact quotient is rounded, once."""

    operand: Expression
    scale: int
    rounding: str  # half_even, half_up or down


class Compare(Expression, frozen=True, tag="compare", kw_only=True):
    """`== != < <= > >=`. An order with null is false."""

    operator: str
    left: Expression
    right: Expression


class Membership(Expression, frozen=True, tag="membership", kw_only=True):
    """Whether the item is in the collection: an element, a key of a map, a part of a text."""

    item: Expression
    collection: Expression


class IsNull(Expression, frozen=True, tag="is_null", kw_only=True):
    operand: Expression


class Logic(Expression, frozen=True, tag="logic", kw_only=True):
    """`AND OR =>`, from left to right; the second operand is evaluated only where it decides. Null counts as false."""

    operator: str  # and, or, implies
    left: Expression
    right: Expression


class Quantifier(Expression, frozen=True, tag="quantifier", kw_only=True):
    """FORALL or EXISTS over the elements of an array or set, in order, to the first that decides."""

    kind: str  # forall, exists
    name: str
    collection: Expression
    body: Expression


class Aggregate(Expression, frozen=True, tag="aggregate", kw_only=True):
    """SUM, COUNT, AVG, MIN or MAX of an array. Nulls are passed over, except by COUNT. Of nothing: 0, 0, null, null,
    null. Integers are summed in order, and each partial sum must fit."""

    function: str  # lower case
    collection: Expression


class Call(Expression, frozen=True, tag="call", kw_only=True):
    """A built-in function: see `FUNCTIONS` in expressions.functions."""

    function: str
    arguments: tuple[Expression, ...]


class Host(Expression, frozen=True, tag="host", kw_only=True):
    """A predicate of the embedding program, by name. Where none is registered the contract is unverifiable."""

    name: str
    arguments: tuple[Expression, ...]


class Old(Expression, frozen=True, tag="old", kw_only=True):
    """The value that an expression had before the first step; in postconditions only. `slot` numbers the node's."""

    slot: int
    operand: Expression


class ListOf(Expression, frozen=True, tag="list", kw_only=True):
    items: tuple[Expression, ...]


class MapOf(Expression, frozen=True, tag="map", kw_only=True):
    """A map written out, its keys in order."""

    entries: tuple[tuple[str, Expression], ...]


class Text(Expression, frozen=True, tag="text", kw_only=True):
    """A template: texts and expressions, joined. Numbers in canonical form, booleans as true and false, null as
    nothing, timestamps in UTC with Z; other values are a type error."""

    parts: tuple[str | Expression, ...]


class MapOver(Expression, frozen=True, tag="map_over", kw_only=True):
    """The body for each element, as an array."""

    collection: Expression
    name: str
    body: Expression


class Filter(Expression, frozen=True, tag="filter", kw_only=True):
    """The elements for which the body is true."""

    collection: Expression
    name: str
    body: Expression


class Reduce(Expression, frozen=True, tag="reduce", kw_only=True):
    """The accumulator after the last element."""

    collection: Expression
    name: str
    accumulator: str
    initial: Expression
    body: Expression


class Aggregation(msgspec.Struct, frozen=True):
    """An output of GroupBy: the function over the expression for each element of the group; COUNT(*) has none."""

    output: str
    function: str
    operand: Expression | None = None


class GroupBy(Expression, frozen=True, tag="group_by", kw_only=True):
    """One map for each group, in the order in which the groups first appear: its keys, then its aggregations. Without
    keys, one map for all elements. Without aggregations, `items` holds the elements."""

    collection: Expression
    name: str
    keys: tuple[tuple[str, Expression], ...]
    aggregations: tuple[Aggregation, ...] = ()


class MatrixProduct(Expression, frozen=True, tag="matrix_product", kw_only=True):
    """The product of two arrays of rows. Unequal sizes, and rows of unequal length, are a type error."""

    left: Expression
    right: Expression
