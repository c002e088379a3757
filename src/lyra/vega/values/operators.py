"""Operators whose operands are not two ints: the slow half of the VM's arithmetic.

The VM's loop does ints itself and comes here for everything else. Which kinds may meet is a table; a pair that is not
in it is a TypeError that names both kinds. Money and durations are exact and never meet anything but their own kind
and, in `*`, an int.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from lyra.core.budgets.money import Money
from lyra.core.limits import VEGA_LIST_ITEMS_MAX, VEGA_STRING_CHARS_MAX
from lyra.errors import LyraError
from lyra.vega.values.values import (
    BULK,
    CHARS,
    WORK,
    Builder,
    Duration,
    ErrorValue,
    Fault,
    Process,
    Response,
    Span,
    Stream,
    check_int,
    kind_of,
    render,
)

Operation = Callable[[Any, Any], Any]


def _money(micro_usd: int) -> Money:
    try:
        return Money(micro_usd)
    except LyraError:
        raise Fault("Overflow", "money overflow: the amount does not fit 63 bits of micro-dollars") from None


def _duration(nanoseconds: int) -> Duration:
    return Duration(check_int(nanoseconds))


def _join(left: str, right: str) -> str:
    if len(left) + len(right) > VEGA_STRING_CHARS_MAX:
        raise Fault("LimitExceeded", f"a string may have at most {VEGA_STRING_CHARS_MAX} characters")
    WORK.units += (len(left) + len(right)) >> CHARS
    return left + right


def _join_lists(left: list[Any], right: list[Any]) -> list[Any]:
    if len(left) + len(right) > VEGA_LIST_ITEMS_MAX:
        raise Fault("LimitExceeded", f"a list may have at most {VEGA_LIST_ITEMS_MAX} items")
    WORK.units += (len(left) + len(right)) >> BULK
    return left + right


def _float(operation: Operation) -> Operation:
    """Return the operation on floats; an int beside a float becomes one."""

    def apply(left: Any, right: Any) -> Any:
        try:
            return operation(float(left), float(right))
        except OverflowError:
            raise Fault("Overflow", "float overflow") from None

    return apply


def _divide(left: int, right: int) -> int:
    if right == 0:
        raise Fault("ZeroDivision", "division by zero")
    quotient = abs(left) // abs(right)
    return check_int(quotient if (left < 0) == (right < 0) else -quotient)


def _find_remainder(left: int, right: int) -> int:
    if right == 0:
        raise Fault("ZeroDivision", "remainder of a division by zero")
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def _float_division(left: float, right: float) -> float:
    if right == 0:
        raise Fault("ZeroDivision", "division by zero")
    return left / right


def _float_remainder(left: float, right: float) -> float:
    if right == 0:
        raise Fault("ZeroDivision", "remainder of a division by zero")
    if not math.isfinite(left) or math.isnan(right):
        return math.nan
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


_FLOATS: Final = ((int, float), (float, int), (float, float))


def _numbers(operation: Operation) -> dict[tuple[type, type], Operation]:
    return {pair: _float(operation) for pair in _FLOATS}


_ADD: Final[dict[tuple[type, type], Operation]] = {
    (int, int): lambda left, right: check_int(left + right),
    **_numbers(lambda left, right: left + right),
    (str, str): _join,
    (list, list): _join_lists,
    (Money, Money): lambda left, right: _money(int(left) + int(right)),
    (Duration, Duration): lambda left, right: _duration(left.nanoseconds + right.nanoseconds),
}
_SUBTRACT: Final[dict[tuple[type, type], Operation]] = {
    (int, int): lambda left, right: check_int(left - right),
    **_numbers(lambda left, right: left - right),
    (Money, Money): lambda left, right: _money(int(left) - int(right)),
    (Duration, Duration): lambda left, right: _duration(left.nanoseconds - right.nanoseconds),
}
_MULTIPLY: Final[dict[tuple[type, type], Operation]] = {
    (int, int): lambda left, right: check_int(left * right),
    **_numbers(lambda left, right: left * right),
    (Money, int): lambda left, right: _money(int(left) * right),
    (int, Money): lambda left, right: _money(left * int(right)),
    (Duration, int): lambda left, right: _duration(left.nanoseconds * right),
    (int, Duration): lambda left, right: _duration(left * right.nanoseconds),
}
_DIVIDE: Final[dict[tuple[type, type], Operation]] = {(int, int): _divide, **_numbers(_float_division)}
_REMAINDER: Final[dict[tuple[type, type], Operation]] = {(int, int): _find_remainder, **_numbers(_float_remainder)}
_ORDERED: Final = frozenset({(kind, kind) for kind in (int, float, str, Money, Duration)} | set(_FLOATS))


def _make_operation(table: dict[tuple[type, type], Operation], sign: str) -> Operation:
    def apply(left: Any, right: Any) -> Any:
        operation = table.get((type(left), type(right)))
        if operation is None:
            raise Fault("TypeError", f"cannot do {kind_of(left)} {sign} {kind_of(right)}{_hint(left, right)}")
        return operation(left, right)

    return apply


def _hint(left: Any, right: Any) -> str:
    for kind, word in ((Money, "money"), (Duration, "a duration")):
        if type(left) is kind or type(right) is kind:
            return f": {word} is exact and mixes with nothing but its own kind and, in *, an int"
    return ""


_add: Final = _make_operation(_ADD, "+")
subtract: Final = _make_operation(_SUBTRACT, "-")
multiply: Final = _make_operation(_MULTIPLY, "*")
divide: Final = _make_operation(_DIVIDE, "/")
remainder: Final = _make_operation(_REMAINDER, "%")


def add(left: Any, right: Any) -> Any:
    """`+`; beside a string anything becomes its text."""
    if type(left) is str:
        return _join(left, right if type(right) is str else render(right))
    if type(right) is str:
        return _join(render(left), right)
    return _add(left, right)


def negate(value: Any) -> Any:
    kind = type(value)
    if kind is int:
        return check_int(-value)
    if kind is float:
        return -value
    if kind is Money:
        return _money(-int(value))
    if kind is Duration:
        return _duration(-value.nanoseconds)
    raise Fault("TypeError", f"cannot negate {kind_of(value)}")


def negate_bool(value: Any) -> bool:
    if value is True:
        return False
    if value is False:
        return True
    raise not_bool(value)


def not_bool(value: Any) -> Fault:
    return Fault("TypeError", f"a condition must be bool, got {kind_of(value)}")


def less(left: Any, right: Any) -> bool:
    if (type(left), type(right)) in _ORDERED:
        return bool(left < right)
    raise Fault("TypeError", f"cannot compare {kind_of(left)} with {kind_of(right)}")


def less_or_equal(left: Any, right: Any) -> bool:
    if (type(left), type(right)) in _ORDERED:
        return bool(left <= right)
    raise Fault("TypeError", f"cannot compare {kind_of(left)} with {kind_of(right)}")


# ---------------------------------------------------------------- parts of values


def key(value: Any) -> Any:
    """Return a map's key: str, int or process."""
    kind = type(value)
    if kind is str or kind is int or kind is Process:
        return value
    raise Fault("TypeError", f"a map's key is a str, an int or a process, not {kind_of(value)}")


def _position(value: Any, size: int, what: str) -> int:
    if type(value) is not int:
        raise Fault("TypeError", f"the index of a {what} is an int, not {kind_of(value)}")
    if not 0 <= value < size:
        raise Fault("IndexError", f"index {value} is outside a {what} of length {size}")
    return value


def index(whole: Any, position: Any) -> Any:
    kind = type(whole)
    if kind is list:
        return whole[_position(position, len(whole), "list")]
    if kind is dict:
        value = whole.get(key(position), whole)
        if value is whole and position not in whole:
            raise Fault("KeyError", f"the map has no key {render(position)}")
        return value
    if kind is str:
        return whole[_position(position, len(whole), "string")]
    raise Fault("TypeError", f"{kind_of(whole)} has no items")


def store(whole: Any, position: Any, value: Any) -> None:
    kind = type(whole)
    if kind is list:
        whole[_position(position, len(whole), "list")] = value
    elif kind is dict:
        whole[key(position)] = value
    else:
        raise Fault("TypeError", f"cannot store into {kind_of(whole)}")


_FIELDS: Final[dict[type, tuple[str, ...]]] = {
    Response: ("status", "body", "headers"),
    Span: ("name", "id"),
    Process: ("pid",),
    ErrorValue: ("name", "text"),
    Duration: ("seconds",),
}


def field(whole: Any, name: str) -> Any:
    if type(whole) is dict:
        if name not in whole:
            raise Fault("KeyError", f"the map has no key {name}")
        return whole[name]
    if name in _FIELDS.get(type(whole), ()):
        return getattr(whole, name)
    raise Fault("TypeError", f"{kind_of(whole)} has no field `{name}`")


def set_field(whole: Any, name: str, value: Any) -> None:
    if type(whole) is not dict:
        raise Fault("TypeError", f"cannot set a field of {kind_of(whole)}")
    whole[name] = value


def length(value: Any) -> int:
    kind = type(value)
    if kind is list or kind is str or kind is dict:
        return len(value)
    if kind is Builder:
        return int(value.length)
    raise Fault("TypeError", f"{kind_of(value)} has no length")


def iterable(value: Any) -> Any:
    """Return the value that a loop walks over: a list itself, a map's keys as they are now, a string, a stream."""
    kind = type(value)
    if kind is list or kind is str or kind is Stream:
        return value
    if kind is dict:
        WORK.units += len(value) >> BULK
        return list(value)
    raise Fault("TypeError", f"cannot loop over {kind_of(value)}")


def not_callable(value: Any) -> Fault:
    return Fault("TypeError", f"{kind_of(value)} is not a function and cannot be called")
