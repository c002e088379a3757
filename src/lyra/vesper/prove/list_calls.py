"""Functions of lists, for the walk over expressions.

Of a list that is written out, or short, `take`, `slice`, `reverse`, `distinct`, `append`, `concat` and `zip` are exact.
Of one of any length the elements are known one by one: a part of a list has some of its elements, and the number of
them; a list with more has those elements or the new one. Where an order is asked for, the result is any list of such
elements. It stands alone: `walk` has a table of these functions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import z3

from lyra.vesper.prove.texts import text_of
from lyra.vesper.prove.values import (
    NULL,
    TRUE,
    ListComprehension,
    ListItems,
    NullValue,
    NumberValue,
    OpaqueValue,
    RecordValue,
    SymbolicValue,
    Term,
    TextValue,
    TimeValue,
    TruthValue,
    UnsetValue,
    conj,
    disj,
    implies,
    ite,
    negate,
    options,
)

if TYPE_CHECKING:
    from lyra.vesper.prove.flow import NodeWalk

_Parts = tuple[SymbolicValue, ...]
_List = ListItems | ListComprehension


def _call(walk: NodeWalk, parts: _Parts, *, function: str) -> SymbolicValue:
    """Return the value of a function whose first argument is a list."""
    values = walk.to_list(parts[0])
    if z3.is_false(walk.here):
        return NULL
    return _FUNCTIONS[function](walk, values, *parts[1:])


def _take(walk: NodeWalk, values: _List, count: SymbolicValue) -> SymbolicValue:
    if isinstance(count, OpaqueValue) and not count.kind:
        return walk.any_of(count.why)
    if not isinstance(count, NumberValue) or not count.whole:
        walk.fail("type_error")
        return NULL
    zero = walk.numbers.constant(0)
    return _between(walk, values, zero, _larger(walk, count, zero))


def slice_list(walk: NodeWalk, values: _List, bounds: _Parts) -> SymbolicValue:
    """Return the elements of a list from one number up to another."""
    size = walk.count(values)
    first = _place(walk, bounds[0], size)
    last = _place(walk, bounds[1], size) if len(bounds) > 1 and isinstance(bounds[1], NumberValue) else size
    return _between(walk, values, first, last)


def _place(walk: NodeWalk, bound: SymbolicValue, size: NumberValue) -> NumberValue:
    """Return the number that a bound means: below 0 it counts from the end."""
    assert isinstance(bound, NumberValue)
    numbers, zero = walk.numbers, walk.numbers.constant(0)
    back = _larger(walk, numbers.add(bound, size), zero)
    inside = _choose(numbers.less(size, bound), size, bound)
    return _choose(numbers.less(bound, zero), back, inside)


def _larger(walk: NodeWalk, left: NumberValue, right: NumberValue) -> NumberValue:
    return _choose(walk.numbers.less(left, right), right, left)


def _choose(condition: Term, then: NumberValue, otherwise: NumberValue) -> NumberValue:
    return NumberValue(ite(condition, then.term, otherwise.term), True)


def _between(walk: NodeWalk, values: _List, first: NumberValue, last: NumberValue) -> SymbolicValue:
    """Return the elements of a list with a number from `first` up to, but not including, `last`."""
    numbers = walk.numbers
    zero, unit = numbers.constant(0), numbers.constant(1)
    if isinstance(values, ListItems):
        rank, items = zero, []
        for here, item in values.items:
            inside = conj(here, numbers.at_most(first, rank), numbers.less(rank, last))
            items.append((z3.simplify(inside), item))
            rank = NumberValue(z3.simplify(rank.term + ite(here, unit.term, zero.term)), True)
        return ListItems(tuple(items))
    size, part = walk.count(values), walk.some_of(values)
    walk.approximate("which elements a part of a list has")
    end = _choose(numbers.less(size, last), size, last)
    length = _larger(walk, numbers.subtract(end, first), zero)
    numbers.axioms.append(numbers.equal(walk.count(part), length))
    return part


def _reverse(_: NodeWalk, values: _List) -> SymbolicValue:
    if isinstance(values, ListItems):
        return ListItems(values.items[::-1])
    return ListComprehension(values.source, values.stage)  # in any order


def _sort(walk: NodeWalk, values: _List, by: SymbolicValue | None = None) -> SymbolicValue:
    if by is not None and not isinstance(by, NullValue):
        if not isinstance(by, TextValue) or not z3.is_string_value(z3.simplify(by.term)):
            return walk.any_of("the function sort by a field that is no constant")
        keys = walk.map_elements(values, lambda item: walk.per_kind(lambda part: _field(walk, part, by), item))
    else:
        keys = values
    _require_order(walk, keys)
    if isinstance(values, ListComprehension):
        return ListComprehension(values.source, values.stage)  # in any order
    if len(values.items) <= 1:
        return ListItems(values.items)
    walk.approximate("the function sort")
    return OpaqueValue("the function sort", "list")


def _field(walk: NodeWalk, item: SymbolicValue, by: TextValue) -> SymbolicValue:
    if isinstance(item, NullValue):
        return NULL
    if not isinstance(item, RecordValue | OpaqueValue):
        walk.fail("type_error")
        return NULL
    return walk.field(item, text_of(z3.simplify(by.term)))


def _require_order(walk: NodeWalk, keys: _List) -> None:
    """Fail where the elements may be of kinds that have no order with each other."""
    if isinstance(keys, ListItems):
        values = [item for _, item in keys.items]
    else:
        values = [walk.stage_of(keys, walk.canonical(keys.source))[1]]
    kinds = {type(part) for value in values for _, part in options(value)} - {NullValue}
    if len(kinds) > 1 or not kinds <= {NumberValue, TextValue, TimeValue, TruthValue}:
        walk.fail("type_error", walk.open_condition("the function sort of values of several kinds"))


def _distinct(walk: NodeWalk, values: _List) -> SymbolicValue:
    if isinstance(values, ListItems):
        items: list[tuple[Term, SymbolicValue]] = []
        for here, item in values.items:
            before = disj(*(conj(there, walk.equal(item, other)) for there, other in items))
            items.append((conj(here, negate(before)), item))
        return ListItems(tuple(items))
    numbers, part = walk.numbers, walk.some_of(values)
    walk.approximate("which elements a part of a list has")
    had, has, unit = walk.count(values), walk.count(part), numbers.constant(1)
    numbers.axioms += [numbers.at_most(has, had), implies(numbers.at_most(unit, had), numbers.at_most(unit, has))]
    return part


def _concat(walk: NodeWalk, values: _List, *others: SymbolicValue) -> SymbolicValue:
    lists = [values, *(walk.to_list(other) for other in others)]
    if all(isinstance(part, ListItems) for part in lists):
        return ListItems(tuple(pair for part in lists for pair in part.items))  # type: ignore[union-attr]
    numbers = walk.numbers
    length = numbers.constant(0)
    for part in lists:
        length = numbers.add(length, walk.count(part))

    def make() -> SymbolicValue:
        """Return an element of one of the lists; which one is open."""
        left, pairs = TRUE, []
        for part in lists:
            chosen = conj(left, numbers.fresh_bool("from"))
            if isinstance(part, ListItems):
                for here, item in part.items:
                    unit = conj(chosen, here, numbers.fresh_bool("this"))
                    pairs.append((conj(left, unit), item))
                    left = conj(left, negate(unit))
            else:
                element = walk.new_element(part.source)
                present, item = walk.stage_of(part, element)
                unit = conj(chosen, walk.exists_any(part.source), present)
                pairs.append((unit, item))
                left = conj(left, negate(unit))
        numbers.axioms.append(implies(walk.exists_any(source), negate(left)))
        return walk.choose(pairs)

    source = walk.new_source(make)
    numbers.axioms.append(numbers.equal(source.length, length))
    walk.approximate("which element of several lists it is", source.length.term)
    return walk.take_all(source)


def _zip(walk: NodeWalk, first: _List, other: SymbolicValue) -> SymbolicValue:
    second = walk.to_list(other)
    if isinstance(first, ListItems) and isinstance(second, ListItems) and _is_dense(first) and _is_dense(second):
        pairs = zip(first.items, second.items, strict=False)
        return ListItems(tuple((conj(a, b), ListItems(((TRUE, x), (TRUE, y)))) for (a, x), (b, y) in pairs))
    walk.approximate("the function zip")
    return OpaqueValue("the function zip", "list")


def _is_dense(values: ListItems) -> bool:
    """Return whether each element is certainly there."""
    return all(z3.is_true(here) for here, _ in values.items)


def get(walk: NodeWalk, parts: _Parts) -> SymbolicValue:
    """Return an element by its number or its key, or the default."""
    target, key = parts[:2]
    default = parts[2] if len(parts) > 2 else NULL
    for part in (target, key):
        if isinstance(part, OpaqueValue) and part.kind in ("", "map", "list", "set", "string"):
            return walk.any_of(part.why)
    if isinstance(target, NullValue):
        return default
    if isinstance(target, RecordValue) and isinstance(key, TextValue):
        pairs = []
        for field, value in target.fields.items():
            guard = walk.equal(key, walk.constant(field))
            if _may_be_absent(value):
                absent = conj(_is_absent(value), walk.open_condition("fields that a record may leave out"))
                pairs += [(conj(guard, absent), default), (conj(guard, negate(absent)), value)]
            else:
                pairs.append((guard, value))
        return walk.choose([*pairs, (negate(disj(*(guard for guard, _ in pairs))), default)])
    if isinstance(target, ListItems | ListComprehension) and isinstance(key, NumberValue) and key.whole:
        numbers, zero = walk.numbers, walk.numbers.constant(0)
        inside = conj(numbers.at_most(zero, key), numbers.less(key, walk.count(target)))
        return walk.branch(inside, lambda: walk.item(target, key), lambda: default)
    walk.fail("type_error")
    return NULL


def _is_absent(value: SymbolicValue) -> Term:
    return disj(*(guard for guard, part in options(value) if isinstance(part, NullValue | UnsetValue)))


def _may_be_absent(value: SymbolicValue) -> bool:
    return not z3.is_false(_is_absent(value))


def keys_of(walk: NodeWalk, parts: _Parts, *, has_values: bool) -> SymbolicValue:
    """Return the keys of a map, or its values."""
    target = parts[0]
    if isinstance(target, OpaqueValue):
        return walk.any_of(target.why)
    if not isinstance(target, RecordValue):
        walk.fail("type_error")
        return NULL
    if len(parts) > 1 or any(_may_be_absent(value) for value in target.fields.values()):
        return walk.any_of("the keys of a map that are no texts, or that may be absent")
    fields = target.fields
    return ListItems(tuple((TRUE, value if has_values else walk.constant(name)) for name, value in fields.items()))


_FUNCTIONS: Final[dict[str, Callable[..., SymbolicValue]]] = {
    "take": _take,
    "reverse": _reverse,
    "sort": _sort,
    "distinct": _distinct,
    "append": lambda walk, values, item: _concat(walk, values, ListItems(((TRUE, item),))),
    "concat": _concat,
    "zip": _zip,
}
LIST_CALLS: Final[dict[str, Callable[[Any, _Parts], SymbolicValue]]] = {
    **{name: partial(_call, function=name) for name in _FUNCTIONS},
    "get": get,
    "keys": partial(keys_of, has_values=False),
    "values": partial(keys_of, has_values=True),
}
