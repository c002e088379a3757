"""Functions of numbers, for the walk over expressions: exact, wherever the encoding of numbers is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import z3

from lyra.vesper.expressions.functions import ROUNDINGS
from lyra.vesper.prove.text_calls import constant_text
from lyra.vesper.prove.values import NULL, NumberValue, OpaqueValue, SymbolicValue

if TYPE_CHECKING:
    from lyra.vesper.prove.walk import ExpressionWalk

_Parts = tuple[SymbolicValue, ...]
_WHOLE_ROUNDINGS: Final = {"floor": "floor", "ceil": "ceiling", "div": "down", "round": "half_even"}


def _call(walk: ExpressionWalk, parts: _Parts, *, function: str) -> SymbolicValue:
    """Return the value of a function, or any value where its arguments are not modelled."""
    if any(isinstance(part, OpaqueValue) for part in parts):
        return walk.any_of(f"the function {function} of values that are not modelled")
    return _FUNCTIONS[function](walk, function, *parts)


def _choose_best(walk: ExpressionWalk, function: str, best: SymbolicValue, *others: SymbolicValue) -> SymbolicValue:
    for part in others:  # an integer or a decimal may be the best so far
        best = walk.per_kind(lambda known, other: walk.better_of(function, known, other), best, part)
    return best


def _clamp(
    walk: ExpressionWalk, _: str, value: SymbolicValue, low: SymbolicValue, high: SymbolicValue
) -> SymbolicValue:
    is_below, is_above = walk.less(value, low), walk.less(high, value)
    walk.fail("type_error", walk.less(high, low))
    return walk.branch(is_below, lambda: low, lambda: walk.branch(is_above, lambda: high, lambda: value))


def _round(walk: ExpressionWalk, function: str, value: SymbolicValue, *more: SymbolicValue) -> SymbolicValue:
    if not more:
        return _make_whole(walk, function, value)
    mode = constant_text(more[1]) if len(more) > 1 else "half_even"
    if mode not in ROUNDINGS:
        return walk.any_of("a mode of rounding that is not constant")
    return walk.round(value, more[0], mode)


def _make_whole(walk: ExpressionWalk, function: str, *parts: SymbolicValue) -> SymbolicValue:
    """Return a number, or the quotient of two, as an integer."""
    numbers = [part for part in parts if isinstance(part, NumberValue)]
    if len(numbers) < len(parts):
        walk.fail("type_error")
        return NULL
    divisor = numbers[1] if len(numbers) > 1 else None
    if divisor is not None:
        walk.fail("division_by_zero", walk.numbers.is_zero(divisor))
        if z3.is_false(walk.here):
            return NULL
    quotient = walk.numbers.round_quotient(numbers[0], divisor, 0, _WHOLE_ROUNDINGS[function])
    return walk.check_overflow(NumberValue(quotient.term, True))


def _absolute(walk: ExpressionWalk, _: str, value: SymbolicValue) -> SymbolicValue:
    if not isinstance(value, NumberValue):
        walk.fail("type_error")
        return NULL
    below = walk.numbers.less(value, walk.numbers.constant(0))
    return walk.branch(below, lambda: walk.negate_value(value), lambda: value)


_FUNCTIONS: Final[dict[str, Callable[..., SymbolicValue]]] = {
    "abs": _absolute,
    "clamp": _clamp,
    "round": _round,
    **dict.fromkeys(("min", "max"), _choose_best),
    **dict.fromkeys(("floor", "ceil", "div"), _make_whole),
}
NUMBER_CALLS: Final[dict[str, Callable[[Any, _Parts], SymbolicValue]]] = {
    name: partial(_call, function=name) for name in _FUNCTIONS
}
