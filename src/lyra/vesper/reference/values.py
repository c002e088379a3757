"""Values in the reference evaluator: equality, order, coercion, and arithmetic on fractions, as plain functions."""

from __future__ import annotations

import base64
import math
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import msgspec

from lyra.vesper.values.limits import DECIMAL_DIGITS_MAX, DECIMAL_EXPONENT_MAX, QUOTIENT_DIGITS, VALUE_DEPTH_MAX
from lyra.vesper.values.outcome import NodeError
from lyra.vesper.values.types import (
    ANY,
    DECIMAL,
    INTEGER_MAX,
    INTEGER_MIN,
    STRING,
    Array,
    DecimalType,
    EnumType,
    MapType,
    Nullable,
    RecordType,
    Scalar,
    SetType,
    ValueType,
    key_kind,
)
from lyra.vesper.values.zones import TIMESTAMP_TEXT

_KINDS: Final[dict[type, str]] = {
    type(None): "null",
    bool: "boolean",  # before int, of which it is a subclass
    int: "number",
    Decimal: "number",
    str: "string",
    bytes: "bytes",
    datetime: "timestamp",
    list: "list",
    frozenset: "set",
    dict: "map",
}


def kind(value: Any) -> str:
    """null, boolean, number, string, bytes, timestamp, list, set or map."""
    known = _KINDS.get(type(value))
    return known or next(name for type_, name in _KINDS.items() if isinstance(value, type_))


def equal(left: Any, right: Any) -> bool:
    if kind(left) != kind(right):
        return False
    match kind(left):
        case "list":
            return len(left) == len(right) and all(equal(a, b) for a, b in zip(left, right, strict=True))
        case "map":
            return set(left) == set(right) and all(equal(left[key], right[key]) for key in left)
        case "set":
            return len(left) == len(right) and all(any(equal(a, b) for b in right) for a in left)
        case "number":
            return parts(left)[0] == parts(right)[0]
    return bool(left == right)


def less(left: Any, right: Any) -> bool:
    """Return whether the first comes before the second; both of the same kind, which has an order."""
    if kind(left) != kind(right) or kind(left) not in ("number", "string", "timestamp"):
        raise type_error("these have no order")
    if kind(left) == "number":
        return parts(left)[0] < parts(right)[0]
    return bool(left < right)


def sort_set(values: frozenset[Any]) -> list[Any]:
    kinds = ["null", "boolean", "number", "string", "bytes", "timestamp"]
    return sorted(values, key=lambda value: (kinds.index(kind(value)), 0 if value is None else value))


def text(value: Any) -> str:
    """Return a value in a template."""
    match kind(value):
        case "null":
            return ""
        case "boolean":
            return {True: "true", False: "false"}[value]
        case "number":
            return _number_text(value)
        case "string":
            return str(value)
        case "timestamp":
            utc = value.astimezone(UTC)
            fraction = f".{utc.microsecond:06d}" if utc.microsecond else ""
            return f"{utc.year:04d}-{utc:%m-%dT%H:%M:%S}{fraction}Z"
    raise type_error("a template cannot show this")


def _number_text(value: Any) -> str:
    fraction, scale = parts(value)
    number = (fraction * 10**scale).numerator
    digits = _write_digits(number).rjust(scale + 1, "0")
    whole = digits[: len(digits) - scale]
    return ("-" if number < 0 else "") + (f"{whole}.{digits[len(digits) - scale :]}" if scale else whole)


# ---------------------------------------------------------------- values from outside


def _no(message: str) -> NodeError:
    return NodeError("invalid_input", message, phase="input")


def read(declared: ValueType, value: Any, depth: int = VALUE_DEPTH_MAX) -> Any:
    """Return a value from outside as one of the type; `invalid_input` where it is none."""
    match declared:
        case Nullable():
            return None if value is None else read(declared.type, value, depth)
        case Scalar():
            return _read_scalar(declared.kind, value, depth)
        case DecimalType():
            return _read_decimal(value, declared.scale)
        case EnumType():
            if not isinstance(value, str) or value not in declared.values:
                raise _no("not one of the texts")
            return value
        case Array():
            if not isinstance(value, list):
                raise _no("not an array")
            return [read(declared.item, item, depth) for item in value]
        case SetType():
            if not isinstance(value, list | set | frozenset):
                raise _no("not a set")
            return _read_set([read(declared.item, item, depth) for item in value])
        case MapType():
            if not isinstance(value, dict):
                raise _no("not a map")
            keys = [_read_key(declared.key, key) for key in value]
            if len(set(keys)) < len(keys):
                raise _no("a key twice")
            return {key: read(declared.value, item, depth) for key, item in zip(keys, value.values(), strict=True)}
        case RecordType():
            return _read_record(declared, value, depth)
    raise AssertionError(declared)


def _read_key(declared: ValueType, key: Any) -> str:
    """Return the text that stands for a key of a map."""
    of = key_kind(declared)
    if of in ("string", "any"):
        return str(read(declared if of == "string" else STRING, key))
    if of == "boolean" and isinstance(key, str):
        key = {"true": True, "false": False}.get(key, key)
    if of == "integer" and isinstance(key, str) and re.fullmatch(r"-?[0-9]{1,19}", key):
        key = int(key)
    return key_text(read(DECIMAL if of == "decimal" else declared, key), of)


def key_text(key: Any, of: str) -> str:
    """Return the text that stands for a key in a map of keys of that type."""
    own = kind(key)
    is_number_key = own == "number" and (of == "decimal" or (of == "integer" and isinstance(key, int)))
    if not is_number_key and (own != of or own not in ("boolean", "timestamp")):
        raise type_error("a key of another type")
    shown = text(key)
    while own == "number" and "." in shown and shown[-1] in "0.":
        shown = shown[:-1]
    return shown


def _read_set(items: list[Any]) -> frozenset[Any]:
    for item in items:
        if kind(item) in ("list", "set", "map"):
            raise _no("a set holds scalars")
    if len(frozenset(items)) < len(items):
        raise _no("a repeated element")
    return frozenset(items)


def _read_record(record: RecordType, value: Any, depth: int) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _no("not a record")
    if any(record.field(name) is None for name in value):
        raise _no("an unknown field")
    result = {}
    for field in record.fields:
        is_optional = not field.required and field.default in (msgspec.UNSET, None)
        declared = Nullable(field.type) if is_optional else field.type
        if field.name in value:
            result[field.name] = read(declared, value[field.name], depth)
        elif field.default is not msgspec.UNSET:
            result[field.name] = field.default
        elif is_optional or isinstance(field.type, Nullable):
            result[field.name] = None
        else:
            raise _no("a missing field")
    return result


def _read_scalar(name: str, value: Any, depth: int) -> Any:
    match name:
        case "string" if isinstance(value, str):
            return value
        case "boolean" if isinstance(value, bool):
            return value
        case "integer" if isinstance(value, int) and not isinstance(value, bool):
            if INTEGER_MIN <= value <= INTEGER_MAX:
                return value
        case "bytes" if isinstance(value, bytes):
            return value
        case "bytes" if isinstance(value, str):
            return _read_base64(value)
        case "timestamp" if isinstance(value, str | datetime):
            return _read_time(value)
        case "duration":
            return _read_duration(value)
        case "null" if value is None:
            return None
        case "any":
            return _read_any(value, depth)
    raise _no(f"not {name}")


def _read_duration(value: Any) -> Decimal:
    match = (
        re.fullmatch(r"([+-]?[0-9]{1,9}(?:\.[0-9]{1,9})?) ?(ms|s|m|h|d|w)", value) if isinstance(value, str) else None
    )
    if match is None:
        return _read_decimal(value, None)
    units: dict[str, Fraction | int] = {"ms": Fraction(1, 1000), "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
    count, scale = parts(Decimal(match[1]))
    return decimal_of(count * Fraction(units[match[2]]), scale + (3 if match[2] == "ms" else 0))


def _read_base64(value: str) -> bytes:
    if not re.fullmatch(r"[A-Za-z0-9+/]*={0,2}", value) or len(value) % 4:
        raise _no("not base64")
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise _no("not base64") from None


def _read_time(value: str | datetime) -> datetime:
    if isinstance(value, str) and not TIMESTAMP_TEXT.fullmatch(value):
        raise _no("not a time")
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else value
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        raise _no("not a time") from None


def _read_decimal(value: Any, scale: int | None) -> Decimal:
    if isinstance(value, float) and math.isfinite(value):
        value = repr(value)
    if isinstance(value, str):
        pattern = r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,9}))?"
        match = re.fullmatch(pattern, value)
        limit = 2 * (DECIMAL_DIGITS_MAX + DECIMAL_EXPONENT_MAX)
        if match is None or len(value) > limit or not (match[2] or match[3]):
            raise _no("not a number")
        value = Decimal(value)
    if not is_number(value) or not Decimal(value).is_finite():
        raise _no("not a decimal")
    number = Decimal(value)
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    if abs(exponent) > 2 * DECIMAL_EXPONENT_MAX or len(digits) > 2 * DECIMAL_DIGITS_MAX:
        raise _no("too many digits")
    fraction, own_scale = parts(number)
    try:
        result = decimal_of(fraction, own_scale if scale is None else scale)
    except NodeError:
        raise _no("too many digits") from None
    if scale is not None and result.as_tuple().exponent != -scale:
        raise _no("too many digits for its scale")
    return result


def _read_any(value: Any, depth: int) -> Any:
    if depth < 0:
        raise _no("too deep")
    if isinstance(value, list):
        return [_read_any(item, depth - 1) for item in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise _no("a key that is no text")
        return {key: _read_any(item, depth - 1) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return _read_set([_read_any(item, depth - 1) for item in value])
    if isinstance(value, float | Decimal):
        return _read_decimal(value, None)
    if isinstance(value, datetime):
        return _read_time(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return _read_scalar("integer", value, depth)
    if value is None or isinstance(value, bool | str | bytes):
        return value
    raise _no("no value of a node")


# ---------------------------------------------------------------- values of the node


def coerce_computed(declared: ValueType, value: Any) -> Any:
    """Return a value that the node computed as one of the type; a type error where it is none."""
    match declared:
        case Nullable():
            return None if value is None else coerce_computed(declared.type, value)
        case DecimalType() | Scalar(kind="duration") if is_number(value):
            fraction, scale = parts(value)
            own = declared.scale if isinstance(declared, DecimalType) else None
            try:
                return decimal_of(fraction, scale if own is None else own)
            except NodeError:
                raise type_error("not exact at its scale") from None
        case Array() if isinstance(value, list):
            return [coerce_computed(declared.item, item) for item in value]
        case SetType() if isinstance(value, list | frozenset):
            items = [coerce_computed(declared.item, item) for item in value]
            if any(kind(item) in ("list", "set", "map") for item in items) or len(frozenset(items)) < len(items):
                raise type_error("not a set")
            return frozenset(items)
        case MapType() if isinstance(value, dict):
            try:
                keys = [_read_key(declared.key, key) for key in value]
            except NodeError:
                raise type_error("a key of another type") from None
            if len(set(keys)) < len(keys):
                raise type_error("a key twice")
            return {key: coerce_computed(declared.value, item) for key, item in zip(keys, value.values(), strict=True)}
        case RecordType() if isinstance(value, dict):
            return _coerce_record(declared, value)
        case EnumType() if isinstance(value, str) and value in declared.values:
            return value
        case Scalar():
            if declared == ANY:
                return _normalize_decimals(value)
            is_integer = kind(value) == "number" and isinstance(value, int)
            if (kind(value) if kind(value) != "number" else "integer" if is_integer else "decimal") == declared.kind:
                return value
    raise type_error("not of its type")


def _coerce_record(record: RecordType, value: dict[str, Any]) -> dict[str, Any]:
    if any(record.field(name) is None for name in value):
        raise type_error("an unknown field")
    result = {}
    for field in record.fields:
        is_optional = not field.required and field.default in (msgspec.UNSET, None)
        declared = Nullable(field.type) if is_optional else field.type
        if field.name in value:
            result[field.name] = coerce_computed(declared, value[field.name])
        elif field.default is not msgspec.UNSET:
            result[field.name] = field.default
        elif is_optional or isinstance(field.type, Nullable):
            result[field.name] = None
        else:
            raise type_error("a missing field")
    return result


def _normalize_decimals(value: Any) -> Any:
    """Return a value whose decimals, those in lists, sets and maps too, were added to zero."""
    if isinstance(value, Decimal):
        return arithmetic("+", value, 0)
    if isinstance(value, list):
        return [_normalize_decimals(item) for item in value]
    if isinstance(value, frozenset):
        return frozenset(_normalize_decimals(item) for item in value)
    if isinstance(value, dict):
        return {key: _normalize_decimals(item) for key, item in value.items()}
    return value


# ---------------------------------------------------------------- numbers

SCALE_MAX = DECIMAL_DIGITS_MAX + DECIMAL_EXPONENT_MAX - 1
_USUAL = 40  # digits before and after the point: Fraction reads such numbers quicker
_GROUP = 4_000  # digits that are read and written at once: Python takes no more than 4 300


def type_error(message: str) -> NodeError:
    return NodeError("type_error", message)


def is_number(value: Any) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def parts(number: Any) -> tuple[Fraction, int]:
    """Return the value and the scale; an integer has scale 0."""
    if isinstance(number, int):
        return Fraction(number), 0
    exponent = number.as_tuple().exponent
    if exponent > -_USUAL and number.adjusted() < _USUAL:
        return Fraction(int(number) if exponent >= 0 else number), max(0, -exponent)
    coefficient = _read_digits(str(number.copy_abs()).partition("E")[0].replace(".", "")) * (-1) ** number.is_signed()
    return Fraction(coefficient * 10 ** max(0, exponent), 10 ** max(0, -exponent)), max(0, -exponent)


def _read_digits(digits: str) -> int:
    """Return a whole number; its digits are read in groups, which is faster than Decimal with many of them."""
    before = digits[:-_GROUP]
    return (_read_digits(before) * 10**_GROUP if before else 0) + int(digits[-_GROUP:])


def _write_digits(number: int) -> str:
    """Return the digits of the absolute value."""
    before, last = divmod(abs(number), 10**_GROUP)
    return _write_digits(before) + f"{last:0{_GROUP}}" if before else str(last)


def decimal_of(value: Fraction, scale: int) -> Decimal:
    """Return the decimal with exactly this value, and this scale where its digits suffice; else `overflow`."""
    number, rest = divmod(value.numerator * 10**scale, value.denominator)
    if rest:
        raise NodeError("overflow", "not exact")
    digits = _write_digits(number)
    count, zeros = len(digits), len(digits) - len(digits.rstrip("0")) if number else scale
    # Zeros at the end that follow the point go where the digits or the scale are too many.
    dropped = min(scale, zeros, max(count - DECIMAL_DIGITS_MAX, scale - SCALE_MAX, 0))
    count, zeros, scale = max(count - dropped, 1), zeros - dropped, scale - dropped
    # The exponent is that of the first digit. Zeros at the end of a whole number need no digits.
    if number and abs(count - 1 - scale) > DECIMAL_EXPONENT_MAX:
        raise NodeError("overflow", "too large or too small")
    if (count - zeros if number else count) > DECIMAL_DIGITS_MAX or scale > SCALE_MAX:
        raise NodeError("overflow", "too many digits")
    shown = digits[: len(digits) - dropped] or "0"
    return Decimal(f"{'-' if number < 0 else ''}{shown}E{-scale}")


def integer(number: int) -> int:
    if not INTEGER_MIN <= number <= INTEGER_MAX:
        raise NodeError("overflow", "an integer has 64 bits")
    return number


def arithmetic(operator: str, left: Any, right: Any) -> Any:
    if operator == "+" and isinstance(left, str) and isinstance(right, str):
        return left + right
    if operator in "+-" and "timestamp" in (kind(left), kind(right)):
        return _time_arithmetic(operator, left, right)
    if not is_number(left) or not is_number(right):
        raise type_error(f"{operator} needs numbers")
    (first, first_scale), (second, second_scale) = parts(left), parts(right)
    whole = isinstance(left, int) and isinstance(right, int)
    if operator in "/%" and second == 0:
        raise NodeError("division_by_zero", "division by zero")
    match operator:
        case "+":
            result, scale = first + second, max(first_scale, second_scale)
        case "-":
            result, scale = first - second, max(first_scale, second_scale)
        case "*":
            result, scale = first * second, first_scale + second_scale
        case "%":
            result, scale = first - second * int(first / second), max(first_scale, second_scale)
        case "/":
            result = first / second
            if not (whole and result.denominator == 1):
                return _quotient(result, max(0, first_scale - second_scale))
            scale = 0
        case _:
            raise AssertionError(operator)
    return integer(result.numerator) if whole else decimal_of(result, scale)


def _time_arithmetic(operator: str, left: Any, right: Any) -> Any:
    if kind(left) == kind(right) == "timestamp" and operator == "-":
        span = left - right
        micros = (span.days * 86_400 + span.seconds) * 10**6 + span.microseconds
        return micros // 10**6 if micros % 10**6 == 0 else decimal_of(Fraction(micros, 10**6), 6)
    if operator == "+" and is_number(left):
        left, right = right, left
    if kind(left) != "timestamp" or not is_number(right):
        raise type_error(f"{operator} needs a timestamp and a duration")
    micros = round(parts(right)[0] * 10**6)  # half-even
    span = timedelta(days=min(abs(micros) // (86_400 * 10**6), 10**8), microseconds=abs(micros) % (86_400 * 10**6))
    try:
        return left + span if (micros >= 0) is (operator == "+") else left - span
    except OverflowError:
        raise NodeError("overflow", "no such year") from None


def _quotient(value: Fraction, scale: int) -> Decimal:
    """Return the value with this scale if it is exact, else with the fewest digits that are, at most 28; else
    rounded."""
    most = QUOTIENT_DIGITS - 1 - _magnitude(value)  # the scale at which the value has 28 digits
    twos = (value.denominator & -value.denominator).bit_length() - 1
    fives = round(math.log(value.denominator >> twos, 5))
    is_finite = value.denominator >> twos == 5**fives  # then it has that many digits after the point
    scale = max(scale, min(most, max(twos, fives)) if is_finite else most)
    if scale >= most:
        value = round(value * Fraction(10) ** most) * Fraction(10) ** -most  # half-even
        scale = most if _magnitude(value) == QUOTIENT_DIGITS - 1 - most else most - 1  # 9.99… became 10
    return decimal_of(value, max(0, scale))


def _magnitude(value: Fraction) -> int:
    """Return the power of ten of the first digit; 0 for zero."""
    if value == 0:
        return 0
    value = abs(value)
    guess = len(_write_digits(value.numerator)) - len(_write_digits(value.denominator))
    while Fraction(10) ** guess > value:
        guess -= 1
    while Fraction(10) ** (guess + 1) <= value:
        guess += 1
    return guess


def negate(value: Any) -> Any:
    return arithmetic("-", 0, value)


def round_fraction(value: Fraction, scale: int, rounding: str) -> Decimal:
    """Return the value with exactly this scale."""
    if not 0 <= scale <= DECIMAL_DIGITS_MAX:
        raise type_error("no such scale")
    scaled = value * 10**scale
    down = int(scaled)  # towards zero
    rest = abs(scaled - down)
    away = down + (1 if scaled > 0 else -1)
    half = Fraction(1, 2)
    is_away = {
        "half_even": rest > half or (rest == half and down % 2 != 0),
        "half_up": rest >= half,
        "half_down": rest > half,
        "down": False,
        "up": rest > 0,
        "floor": rest > 0 and scaled < 0,
        "ceiling": rest > 0 and scaled > 0,
    }[rounding]
    return decimal_of(Fraction(away if is_away else down, 10**scale), scale)
