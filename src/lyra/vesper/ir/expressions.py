"""Expressions of the typed IR: what the two paths, the reference evaluator and later lowerings share.

A node of this tree says what is computed and of which type; it has no method that computes. Every path reads it with
code of its own, so that a mistake in one is not a mistake in all. Templates are expressions too (`TemplateText`), and
so are transforms of collections: a step that changes nothing outside is an AssignStep of an expression.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lyra.vesper.values.types import ValueType


class TypedExpression(msgspec.Struct, frozen=True, tag=True, tag_field="is_a", kw_only=True):
    """Any of the expressions below. `place` is the line and column in the file, (0, 0) where there is none."""

    type: ValueType
    place: tuple[int, int] = (0, 0)


class Constant(TypedExpression, frozen=True, tag="constant", kw_only=True):
    value: Any  # None, bool, int, str, Decimal


class NodeVariable(TypedExpression, frozen=True, tag="name", kw_only=True):
    """A variable: an input, the output of a step, a loop's or a transform's element, an ambient object."""

    name: str


class FieldOf(TypedExpression, frozen=True, tag="field", kw_only=True):
    """A field of a record or map; of null, and a missing one of `any`: null."""

    target: TypedExpression
    name: str


class Projection(TypedExpression, frozen=True, tag="project", kw_only=True):
    """The field of each element of an array, as an array; of a null element: null."""

    target: TypedExpression
    name: str


class ItemOf(TypedExpression, frozen=True, tag="item", kw_only=True):
    """An element of an array by its number from 0, or of a map by its key; outside of it, and of null: null."""

    target: TypedExpression
    index: TypedExpression


class Length(TypedExpression, frozen=True, tag="length", kw_only=True):
    """How many characters, bytes, elements or entries; of null: null."""

    target: TypedExpression


class Negate(TypedExpression, frozen=True, tag="negate", kw_only=True):
    operand: TypedExpression


class Not(TypedExpression, frozen=True, tag="not", kw_only=True):
    operand: TypedExpression


class Arithmetic(TypedExpression, frozen=True, tag="arithmetic", kw_only=True):
    """`+ - * / %` of numbers; `+` of two strings."""

    operator: str
    left: TypedExpression
    right: TypedExpression


class Rounded(TypedExpression, frozen=True, tag="rounded", kw_only=True):
    """A number with so many digits after the point. Of a division, the exact quotient is rounded, once."""

    operand: TypedExpression
    scale: int
    rounding: str  # half_even, half_up or down


class Compare(TypedExpression, frozen=True, tag="compare", kw_only=True):
    """`== != < <= > >=`. An order with null is false."""

    operator: str
    left: TypedExpression
    right: TypedExpression


class Membership(TypedExpression, frozen=True, tag="membership", kw_only=True):
    """Whether the item is in the collection: an element, a key of a map, a part of a text."""

    item: TypedExpression
    collection: TypedExpression


class IsNull(TypedExpression, frozen=True, tag="is_null", kw_only=True):
    operand: TypedExpression


class Logic(TypedExpression, frozen=True, tag="logic", kw_only=True):
    """`AND OR =>`, from left to right; the second operand is evaluated only where it decides. Null counts as false."""

    operator: str  # and, or, implies
    left: TypedExpression
    right: TypedExpression


class Quantifier(TypedExpression, frozen=True, tag="quantifier", kw_only=True):
    """FORALL or EXISTS over the elements of an array or set, in order, to the first that decides."""

    kind: str  # forall, exists
    name: str
    collection: TypedExpression
    body: TypedExpression


class Aggregate(TypedExpression, frozen=True, tag="aggregate", kw_only=True):
    """SUM, COUNT, AVG, MIN or MAX of an array. Nulls are passed over, except by COUNT. Of nothing: 0, 0, null, null,
    null. Integers are summed in order, and each partial sum must fit."""

    function: str  # lower case
    collection: TypedExpression


class FunctionCall(TypedExpression, frozen=True, tag="call", kw_only=True):
    """A built-in function: see `FUNCTIONS` in expressions.functions."""

    function: str
    arguments: tuple[TypedExpression, ...]


class Host(TypedExpression, frozen=True, tag="host", kw_only=True):
    """A predicate of the embedding program, by name. Where none is registered the contract is unverifiable."""

    name: str
    arguments: tuple[TypedExpression, ...]


class Old(TypedExpression, frozen=True, tag="old", kw_only=True):
    """The value that an expression had before the first step; in postconditions only. `slot` numbers the node's."""

    slot: int
    operand: TypedExpression


class ListOf(TypedExpression, frozen=True, tag="list", kw_only=True):
    items: tuple[TypedExpression, ...]


class MapOf(TypedExpression, frozen=True, tag="map", kw_only=True):
    """A map written out, its keys in order."""

    entries: tuple[tuple[str, TypedExpression], ...]


class TemplateText(TypedExpression, frozen=True, tag="text", kw_only=True):
    """A template: texts and expressions, joined. Numbers in canonical form, booleans as true and false, null as
    nothing, timestamps in UTC with Z; other values are a type error."""

    parts: tuple[str | TypedExpression, ...]


class MapOver(TypedExpression, frozen=True, tag="map_over", kw_only=True):
    """The body for each element, as an array."""

    collection: TypedExpression
    name: str
    body: TypedExpression


class Filter(TypedExpression, frozen=True, tag="filter", kw_only=True):
    """The elements for which the body is true."""

    collection: TypedExpression
    name: str
    body: TypedExpression


class Reduce(TypedExpression, frozen=True, tag="reduce", kw_only=True):
    """The accumulator after the last element."""

    collection: TypedExpression
    name: str
    accumulator: str
    initial: TypedExpression
    body: TypedExpression


class Aggregation(msgspec.Struct, frozen=True):
    """An output of GroupBy: the function over the expression for each element of the group; COUNT(*) has none."""

    output: str
    function: str
    operand: TypedExpression | None = None


class GroupBy(TypedExpression, frozen=True, tag="group_by", kw_only=True):
    """One map for each group, in the order in which the groups first appear: its keys, then its aggregations. Without
    keys, one map for all elements. Without aggregations, `items` holds the elements."""

    collection: TypedExpression
    name: str
    keys: tuple[tuple[str, TypedExpression], ...]
    aggregations: tuple[Aggregation, ...] = ()


class MatrixProduct(TypedExpression, frozen=True, tag="matrix_product", kw_only=True):
    """The product of two arrays of rows. Unequal sizes, and rows of unequal length, are a type error."""

    left: TypedExpression
    right: TypedExpression
