"""Numbers of generated code: 64-bit integers and exact decimals.

Sums, differences and products of decimals are exact in `EXACT`, which refuses what would need rounding; quotients that
are not exact have 28 digits, half-even. The thread's decimal context is never used. The dynamic operators here are for
values whose kind only a run knows; generated code with known kinds uses Python's operators or the methods of `EXACT`.
"""

from __future__ import annotations

import decimal
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NoReturn

from lyra.vesper.values.limits import DECIMAL_DIGITS_MAX, DECIMAL_EXPONENT_MAX, QUOTIENT_DIGITS, TEXT_MAX
from lyra.vesper.values.outcome import NodeError
from lyra.vesper.values.types import INTEGER_MAX, INTEGER_MIN

_TRAPS: Final = [
    decimal.Inexact,
    decimal.Overflow,
    decimal.Subnormal,  # nearer to zero than the lowest exponent allows
    decimal.InvalidOperation,
    decimal.DivisionByZero,
]
EXACT: Final = decimal.Context(
    prec=DECIMAL_DIGITS_MAX, Emin=-DECIMAL_EXPONENT_MAX, Emax=DECIMAL_EXPONENT_MAX, traps=_TRAPS, capitals=1, clamp=0
)
_QUOTIENT: Final = decimal.Context(
    prec=QUOTIENT_DIGITS,
    Emin=-DECIMAL_EXPONENT_MAX,
    Emax=DECIMAL_EXPONENT_MAX,
    rounding=decimal.ROUND_HALF_EVEN,
    traps=_TRAPS[1:],
)
# Wide enough to round any exact decimal to any scale; the result is checked against EXACT.
_WIDE_DIGITS: Final = 4 * DECIMAL_DIGITS_MAX
_ROUNDING: Final = {
    "half_even": decimal.ROUND_HALF_EVEN,
    "half_up": decimal.ROUND_HALF_UP,
    "half_down": decimal.ROUND_HALF_DOWN,
    "up": decimal.ROUND_UP,
    "down": decimal.ROUND_DOWN,
    "ceiling": decimal.ROUND_CEILING,
    "floor": decimal.ROUND_FLOOR,
}
# A quotient rounded by 05UP keeps a trace of the digits it lost, so that rounding it again equals rounding once.
_STICKY: Final = decimal.Context(prec=64, rounding=decimal.ROUND_05UP, traps=_TRAPS[1:])
_UNITS: Final = [Decimal(1).scaleb(-scale) for scale in range(64)]


def overflow() -> NodeError:
    """Return the error of a number that does not fit its type."""
    return NodeError("overflow", "the result does not fit in a number of its type")


def arithmetic_error(error: ArithmeticError) -> NodeError:
    """Return the node's error for an error of decimal arithmetic."""
    if isinstance(error, ZeroDivisionError):
        return NodeError("division_by_zero", "division by zero")
    return overflow()


def check_integer(value: int) -> int:
    """Return the integer, if it fits in 64 bits."""
    if not INTEGER_MIN <= value <= INTEGER_MAX:
        raise overflow()
    return value


def is_number(value: object) -> bool:
    return type(value) is int or type(value) is Decimal


def _mismatch(operator: str, left: object, right: object) -> NoReturn:
    raise NodeError("type_error", f"{operator} cannot join {kind_of(left)} and {kind_of(right)}")


def kind_of(value: object) -> str:
    """Return the name of a value's kind, for messages."""
    return _KINDS.get(type(value), type(value).__name__)


_KINDS: Final[dict[type, str]] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    Decimal: "decimal",
    str: "string",
    bytes: "bytes",
    datetime: "timestamp",
    list: "array",
    dict: "map",
    frozenset: "set",
}


def add_texts(left: str, right: str, chars_max: int = TEXT_MAX) -> str:
    """Return two texts in a row."""
    if len(left) + len(right) > chars_max:
        raise NodeError("resource_limit", "the text is too long")
    return left + right


def add(left: Any, right: Any, chars_max: int = TEXT_MAX) -> Any:
    if type(left) is int and type(right) is int:
        return check_integer(left + right)
    if is_number(left) and is_number(right):
        return _exactly(EXACT.add, left, right)
    if isinstance(left, str) and isinstance(right, str):
        return add_texts(left, right, chars_max)
    if isinstance(left, datetime) and is_number(right):
        return shift_time(left, right, 1)
    if is_number(left) and isinstance(right, datetime):
        return shift_time(right, left, 1)
    _mismatch("+", left, right)


def subtract(left: Any, right: Any) -> Any:
    if type(left) is int and type(right) is int:
        return check_integer(left - right)
    if is_number(left) and is_number(right):
        return _exactly(EXACT.subtract, left, right)
    if isinstance(left, datetime) and is_number(right):
        return shift_time(left, right, -1)
    if isinstance(left, datetime) and isinstance(right, datetime):
        # The exact number of seconds: an integer, or a decimal with six digits.
        micros = (left - right) // timedelta(microseconds=1)
        return EXACT.scaleb(Decimal(micros), -6) if micros % 10**6 else micros // 10**6
    _mismatch("-", left, right)


_MICROSECOND: Final = Decimal("0.000001")
_SECONDS_MAX: Final = 400_000_000_000  # more than from the year 1 to 9999


def shift_time(time: datetime, seconds: int | Decimal, sign: int) -> datetime:
    """Return the time so many seconds later or earlier, to the nearest microsecond."""
    if not -_SECONDS_MAX <= seconds <= _SECONDS_MAX:
        raise overflow()
    if isinstance(seconds, Decimal):
        rounded = seconds.quantize(_MICROSECOND, decimal.ROUND_HALF_EVEN, wide(64))
        micros = int(EXACT.scaleb(rounded, 6))
    else:
        micros = seconds * 10**6
    try:
        return time + timedelta(microseconds=sign * micros)
    except OverflowError:
        raise overflow() from None


def multiply(left: Any, right: Any) -> Any:
    if type(left) is int and type(right) is int:
        return check_integer(left * right)
    if is_number(left) and is_number(right):
        return _exactly(EXACT.multiply, left, right)
    _mismatch("*", left, right)


def _exactly(operation: Any, *operands: Any) -> Decimal:
    try:
        result: Decimal = operation(*operands)
    except ArithmeticError as error:
        raise arithmetic_error(error) from None
    return result


def divide(left: Any, right: Any) -> Any:
    """Return the quotient: an integer where two integers divide exactly, else a decimal."""
    if not (is_number(left) and is_number(right)):
        _mismatch("/", left, right)
    if not right:
        raise NodeError("division_by_zero", "division by zero")
    if type(left) is int and type(right) is int and not left % right:
        return check_integer(left // right)
    return _exactly(EXACT.add, _exactly(_QUOTIENT.divide, left, right), 0)


def remainder(left: Any, right: Any) -> Any:
    """Return the remainder of a division that rounds towards zero; it has the sign of the dividend."""
    if not (is_number(left) and is_number(right)):
        _mismatch("%", left, right)
    if not right:
        raise NodeError("division_by_zero", "division by zero")
    if type(left) is int and type(right) is int:
        rest = abs(left) % abs(right)
        return -rest if left < 0 else rest
    # The integer part of the quotient must fit in the context's digits.
    digits = max(Decimal(left).adjusted() - Decimal(right).adjusted(), 0) + 2
    if digits <= DECIMAL_DIGITS_MAX:
        return _exactly(EXACT.remainder, left, right)
    return _exactly(EXACT.plus, _exactly(wide(digits + _WIDE_DIGITS).remainder, left, right))


def wide(digits: int, rounding: str = decimal.ROUND_HALF_EVEN) -> decimal.Context:
    """Return a context for so many digits, in which a result may be rounded."""
    return decimal.Context(
        prec=digits, Emin=-4 * DECIMAL_EXPONENT_MAX, Emax=4 * DECIMAL_EXPONENT_MAX, rounding=rounding, traps=_TRAPS[1:]
    )


def negate(value: Any) -> Any:
    if type(value) is int:
        return check_integer(-value)
    if type(value) is Decimal:
        return _exactly(EXACT.minus, value)
    raise NodeError("type_error", f"- cannot be put before {kind_of(value)}")


def absolute(value: Any) -> Any:
    if type(value) is int:
        return check_integer(abs(value))
    if type(value) is Decimal:
        return _exactly(EXACT.abs, value)
    raise NodeError("type_error", f"abs takes a number, not {kind_of(value)}")


def round_number(value: Any, scale: Any, rounding: Any = "half_even") -> Decimal:
    """Return the number with exactly `scale` digits after the point."""
    if not is_number(value) or type(scale) is not int:
        raise NodeError("type_error", "round takes a number and how many digits to keep after the point")
    if type(rounding) is not str or rounding not in _ROUNDING:
        raise NodeError("type_error", f"the mode of round is one of {', '.join(_ROUNDING)}")
    if not 0 <= scale <= DECIMAL_DIGITS_MAX:
        raise NodeError("type_error", f"a number cannot have {scale} digits after the point")
    return _quantize(Decimal(value), scale, rounding)


def _quantize(value: Decimal, scale: int, rounding: str) -> Decimal:
    unit = _UNITS[scale] if 0 <= scale < len(_UNITS) else Decimal((0, (1,), -scale))
    try:
        return value.quantize(unit, _ROUNDING[rounding], _STICKY)
    except ArithmeticError:
        pass  # more digits than that context has
    try:
        digits = max(value.adjusted() + scale, 0) + 2
        context = wide(min(digits, _WIDE_DIGITS))
        return EXACT.plus(value.quantize(unit, rounding=_ROUNDING[rounding], context=context))
    except ArithmeticError:
        raise overflow() from None


def round_quotient(left: Any, right: Any, scale: int, rounding: str) -> Decimal:
    """Return the exact quotient, rounded once."""
    if not (is_number(left) and is_number(right)):
        _mismatch("/", left, right)
    if not right:
        raise NodeError("division_by_zero", "division by zero")
    left, right = Decimal(left), Decimal(right)
    digits = max(left.adjusted() - right.adjusted() + 1 + scale, 1) + 2
    context = _STICKY if digits <= _STICKY.prec else wide(digits, decimal.ROUND_05UP)
    return _quantize(_exactly(context.divide, left, right), scale, rounding)
