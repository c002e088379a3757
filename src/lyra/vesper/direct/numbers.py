"""Numbers, equality and order of values on the direct path.

Integers have 64 bits and are checked after each operation. Decimals are added, subtracted and multiplied in a context
that traps every loss; quotients have 28 digits unless a scale says where the exact quotient is rounded. A decimal
between operations never has a positive exponent. The thread's decimal context is never read: each operation names its
own.

Values are equal when their kinds are alike and their contents are: integers and decimals are one kind, booleans are
never numbers, and lists and maps compare their elements by the same rule. `group_key` gives equal values the same
hashable key. Numbers, texts and timestamps have an order; a comparison with null is false, and any other pair of kinds
is a type error.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from decimal import (
    ROUND_HALF_EVEN,
    Context,
    Decimal,
    DecimalException,
    DivisionByZero,
    Inexact,
    InvalidOperation,
    Overflow,
    Subnormal,
)
from typing import Any, Final

from lyra.vesper.values.limits import DECIMAL_DIGITS_MAX, DECIMAL_EXPONENT_MAX, QUOTIENT_DIGITS
from lyra.vesper.values.outcome import NodeError
from lyra.vesper.values.types import INTEGER_MAX, INTEGER_MIN

_TRAPS: Final = [Inexact, Overflow, Subnormal, InvalidOperation, DivisionByZero]
EXACT: Final = Context(
    prec=DECIMAL_DIGITS_MAX,
    Emin=-DECIMAL_EXPONENT_MAX,
    Emax=DECIMAL_EXPONENT_MAX,
    traps=_TRAPS,
    rounding=ROUND_HALF_EVEN,
)
_QUOTIENT: Final = Context(
    prec=QUOTIENT_DIGITS,
    Emin=-DECIMAL_EXPONENT_MAX,
    Emax=DECIMAL_EXPONENT_MAX,
    traps=_TRAPS[1:],
    rounding=ROUND_HALF_EVEN,
)
_ZERO: Final = Decimal(0)


def overflow() -> NodeError:
    return NodeError("overflow", "the result is out of range")


def wrong_operands(operator: str, left: Any, right: Any) -> NodeError:
    return NodeError("type_error", f"{operator} cannot take {kind_of(left)} and {kind_of(right)}")


def kind_of(value: Any) -> str:
    """Return the word for the kind of a value in messages."""
    return _KINDS.get(type(value), type(value).__name__)


_KINDS: Final = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    Decimal: "decimal",
    str: "string",
    bytes: "bytes",
    list: "array",
    dict: "map",
    frozenset: "set",
}


_NUMBERS: Final = frozenset({int, Decimal})


def is_number(value: Any) -> bool:
    return type(value) in _NUMBERS


def _decimals(operator: str, left: Any, right: Any) -> tuple[Decimal, Decimal]:
    """Return both numbers as decimals; a type error where either is no number."""
    if not (is_number(left) and is_number(right)):
        raise wrong_operands(operator, left, right)
    return Decimal(left), Decimal(right)


def normalize_decimal(value: Decimal) -> Decimal:
    """Return the decimal, without a negative zero or a positive exponent; `overflow` where it has too many digits."""
    try:
        return EXACT.add(value, _ZERO)
    except DecimalException:
        raise overflow() from None


def add(left: Any, right: Any) -> Any:
    if type(left) is int and type(right) is int:
        total = left + right
        if INTEGER_MIN <= total <= INTEGER_MAX:
            return total
        raise overflow()
    if type(left) in _NUMBERS and type(right) in _NUMBERS:
        try:
            return EXACT.add(left, right)
        except DecimalException:
            raise overflow() from None
    if isinstance(left, datetime) and type(right) in _NUMBERS:
        return shift(left, right, 1)
    if type(left) in _NUMBERS and isinstance(right, datetime):
        return shift(right, left, 1)
    raise wrong_operands("+", left, right)


def subtract(left: Any, right: Any) -> Any:
    if type(left) is int and type(right) is int:
        difference = left - right
        if INTEGER_MIN <= difference <= INTEGER_MAX:
            return difference
        raise overflow()
    if type(left) in _NUMBERS and type(right) in _NUMBERS:
        try:
            return EXACT.subtract(left, right)
        except DecimalException:
            raise overflow() from None
    if isinstance(left, datetime):
        if isinstance(right, datetime):
            # The seconds between two times: an integer where they are whole, else six digits after the point.
            span = left - right
            seconds = span.days * 86_400 + span.seconds
            return _build_decimal(seconds * 10**6 + span.microseconds, -6) if span.microseconds else seconds
        if type(right) in _NUMBERS:
            return shift(left, right, -1)
    raise wrong_operands("-", left, right)


def shift(time: datetime, seconds: Any, sign: int) -> datetime:
    """Return the time so many seconds later or earlier, to the nearest microsecond."""
    numerator, denominator = seconds.as_integer_ratio()
    micros = _round_ratio(numerator * 10**6, denominator, "half_even")
    try:
        return time + sign * timedelta(microseconds=micros)
    except OverflowError:
        raise overflow() from None


def multiply(left: Any, right: Any) -> Any:
    if type(left) is int and type(right) is int:
        product = left * right
        if INTEGER_MIN <= product <= INTEGER_MAX:
            return product
        raise overflow()
    if type(left) in _NUMBERS and type(right) in _NUMBERS:
        try:
            return EXACT.multiply(left, right)
        except DecimalException:
            raise overflow() from None
    raise wrong_operands("*", left, right)


def divide(left: Any, right: Any) -> Any:
    """Return an integer where two integers divide without a rest, else a decimal of at most 28 digits."""
    dividend, divisor = _decimals("/", left, right)
    if not right:
        raise NodeError("division_by_zero", "a number was divided by zero")
    if type(left) is int and type(right) is int and left % right == 0:
        quotient = left // right
        if INTEGER_MIN <= quotient <= INTEGER_MAX:
            return quotient
        raise overflow()
    try:
        return normalize_decimal(_QUOTIENT.divide(dividend, divisor))
    except DecimalException:
        raise overflow() from None


def remainder(left: Any, right: Any) -> Any:
    """Return the remainder of a division that rounds towards zero; it has the sign of the dividend."""
    dividend, divisor = _decimals("%", left, right)
    if not right:
        raise NodeError("division_by_zero", "a number was divided by zero")
    if type(left) is int and type(right) is int:
        rest = abs(left) % abs(right)
        return -rest if left < 0 else rest
    (scaled_dividend, scaled_divisor), exponent = _align_exponents(dividend, divisor)
    rest = abs(scaled_dividend) % abs(scaled_divisor)
    return _build_decimal(-rest if scaled_dividend < 0 else rest, exponent)


def negate(operand: Any) -> Any:
    if type(operand) is int:
        if operand == INTEGER_MIN:
            raise overflow()
        return -operand
    if type(operand) is Decimal:
        return EXACT.minus(operand)
    raise NodeError("type_error", f"- cannot take {kind_of(operand)}")


def absolute(operand: Any) -> Any:
    if not is_number(operand):
        raise NodeError("type_error", f"abs cannot take {kind_of(operand)}")
    return negate(operand) if operand < 0 else operand


def _parts(value: Decimal) -> tuple[int, int]:
    """Return the coefficient with its sign, and the exponent."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    coefficient = int(Decimal((0, digits, 0)))
    return (-coefficient if sign else coefficient), exponent


def _align_exponents(left: Decimal, right: Decimal) -> tuple[tuple[int, int], int]:
    (left_number, left_exponent), (right_number, right_exponent) = _parts(left), _parts(right)
    exponent = min(left_exponent, right_exponent)
    numbers = left_number * 10 ** (left_exponent - exponent), right_number * 10 ** (right_exponent - exponent)
    return numbers, exponent


def _build_decimal(coefficient: int, exponent: int) -> Decimal:
    """Return coefficient × 10^exponent, with that exponent where its digits suffice."""
    number = Decimal(coefficient)
    try:
        if number.adjusted() >= DECIMAL_DIGITS_MAX:  # zeros at the end of a fraction are dropped, as sums drop them
            sign, digits, _ = number.as_tuple()
            return EXACT.plus(Decimal((sign, digits, exponent)))
        result = EXACT.scaleb(number, exponent)
    except DecimalException:
        raise overflow() from None
    return result if exponent <= 0 else normalize_decimal(result)


def _round_ratio(numerator: int, denominator: int, rounding: str) -> int:
    """Return the integer next to a fraction, by the rounding's name."""
    if denominator < 0:
        numerator, denominator = -numerator, -denominator
    whole, rest = divmod(abs(numerator), denominator)
    twice = 2 * rest
    match rounding:
        case "half_even":
            is_up = twice > denominator or (twice == denominator and whole % 2 == 1)
        case "half_up":
            is_up = twice >= denominator
        case "half_down":
            is_up = twice > denominator
        case "down":
            is_up = False
        case _:
            is_away = rounding == "up" or (rounding == "floor") is (numerator < 0)
            is_up = rest > 0 and is_away
    whole += is_up
    return -whole if numerator < 0 else whole


def round_number(operand: Any, scale: int, rounding: str) -> Decimal:
    """Return the number with so many digits after the point."""
    if not is_number(operand):
        raise NodeError("type_error", f"rounding cannot take {kind_of(operand)}")
    return round_quotient(operand, 1, scale, rounding)


def round_quotient(left: Any, right: Any, scale: int, rounding: str) -> Decimal:
    """Return the exact quotient, rounded once."""
    if type(left) not in _NUMBERS or type(right) not in _NUMBERS:
        raise wrong_operands("/", left, right)
    if not right:
        raise NodeError("division_by_zero", "a number was divided by zero")
    if not 0 <= scale <= DECIMAL_DIGITS_MAX:
        raise NodeError("type_error", f"a number cannot have {scale} digits after the point")
    (numerator, parts), (divisor, divisor_parts) = left.as_integer_ratio(), right.as_integer_ratio()
    return _build_decimal(_round_ratio(numerator * divisor_parts * 10**scale, parts * divisor, rounding), -scale)


def number_text(value: Any) -> str:
    """Return the digits of a number with its scale: without an exponent, and without a sign of zero."""
    if type(value) is int:
        return str(value)
    return format(normalize_decimal(value), "f")


def key_text(value: Any, kind: str) -> str:
    """Return the text that stands for a key in a map of keys of the kind."""
    match kind, value:
        case "boolean", bool():
            return str(value).lower()
        case "integer", int() if type(value) is int:
            return str(value)
        case "decimal", int() | Decimal() if is_number(value):
            number = number_text(value)
            return re.sub(r"\.?0*\Z", "", number) if "." in number else number
        case "timestamp", datetime():
            return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
    raise NodeError("type_error", f"a map of keys of type {kind} cannot take {kind_of(value)}")


OPERATIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": add,
    "-": subtract,
    "*": multiply,
    "/": divide,
    "%": remainder,
}


# ---------------------------------------------------------------- equality

_ATOMS: Final = frozenset({int, Decimal, str, bool, bytes, type(None)})
ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def equal(left: Any, right: Any) -> bool:
    left_type, right_type = type(left), type(right)
    if left_type is right_type and left_type in _ATOMS:
        return bool(left == right)
    if left_type is not right_type:
        if left_type in _NUMBERS and right_type in _NUMBERS:
            return bool(left == right)
        return isinstance(left, datetime) and isinstance(right, datetime) and left == right
    if left_type is list:
        return len(left) == len(right) and all(map(equal, left, right))
    if left_type is dict:
        return left.keys() == right.keys() and all(equal(value, right[key]) for key, value in left.items())
    if left_type is frozenset:
        return set(map(group_key, left)) == set(map(group_key, right))
    return bool(left == right)


def group_key(value: Any) -> Any:
    """Return a hashable key that equal values share and unequal values do not."""
    match value:
        case bool() | None | str() | bytes():
            return type(value), value
        case int() | Decimal():
            return "number", value
        case list():
            return "list", tuple(map(group_key, value))
        case dict():
            return "map", frozenset((key, group_key(item)) for key, item in value.items())
        case frozenset():
            return "set", frozenset(map(group_key, value))
    return "timestamp", value


def are_comparable(left: Any, right: Any) -> bool:
    """Return whether the two have an order; false with a null, a type error where they never have one."""
    left_type, right_type = type(left), type(right)
    if left_type in _NUMBERS and right_type in _NUMBERS:
        return True
    if left is None or right is None:
        return False
    if left_type is str and right_type is str:
        return True
    if isinstance(left, datetime) and isinstance(right, datetime):
        return True
    raise NodeError("type_error", f"{kind_of(left)} and {kind_of(right)} have no order")


def contains(collection: Any, item: Any) -> bool:
    """Return whether the item is an element of the list or set, a key of the map, a part of the text."""
    if collection is None:
        return False
    if isinstance(collection, list | frozenset):
        return any(equal(element, item) for element in collection)
    if isinstance(collection, dict):
        return isinstance(item, str) and item in collection
    if isinstance(collection, str) and isinstance(item, str):
        return item in collection
    raise NodeError("type_error", f"{kind_of(item)} cannot be looked for in {kind_of(collection)}")


def least(values: Iterable[Any], order: Callable[[Any, Any], bool]) -> Any:
    """Return the first value that comes before all others in the order; null of none. Nulls are passed over."""
    best: Any = None
    for value in values:
        if value is not None and (best is None or are_comparable(value, best)):
            if best is None:
                are_comparable(value, value)
                best = value
            elif order(value, best):
                best = value
    return best


def _rank(value: Any) -> tuple[int, Any]:
    match value:
        case None:
            return 0, 0
        case bool():
            return 1, value
        case int() | Decimal():
            return 2, value
        case str():
            return 3, value
        case bytes():
            return 4, value
    return 5, value


def in_order(values: frozenset[Any]) -> list[Any]:
    """Return the elements of a set: null, booleans, numbers, texts, bytes, timestamps, each by value."""
    return sorted(values, key=_rank)
