"""`math::…`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from lyra.vega.values.operators import less, negate
from lyra.vega.values.values import Fault, checked, kind_of


def _number(value: Any, function: str) -> Any:
    if type(value) is int or type(value) is float:
        return value
    raise Fault("TypeError", f"{function} needs a number, got {kind_of(value)}")


def _abs(value: Any) -> Any:
    zero = type(value)(0) if type(value) in (int, float) else value
    if type(value) in (int, float):
        return checked(abs(value)) if type(value) is int else abs(value)
    # Money and durations have a sign too; anything else is refused by the comparison.
    opposite = negate(zero)
    return opposite if less(value, opposite) else value


def _float(name: str, operation: Callable[[float], float]) -> Callable[[Any], float]:
    def apply(value: Any) -> float:
        try:
            return operation(float(_number(value, name)))
        except (ValueError, OverflowError):
            raise Fault("ValueError", f"{name} of {value} is not a number") from None

    return apply


def _whole(name: str, operation: Callable[[float], int]) -> Callable[[Any], int]:
    def apply(value: Any) -> int:
        if type(_number(value, name)) is int:
            return int(value)
        try:
            return checked(operation(value))
        except (ValueError, OverflowError):
            raise Fault("ValueError", f"{name} of {value} is not an int") from None

    return apply


def _rounded(value: float) -> int:
    return math.floor(value + 0.5) if value >= 0 else math.ceil(value - 0.5)


def _pow(base: Any, exponent: Any) -> Any:
    _number(base, "math::pow")
    _number(exponent, "math::pow")
    if type(base) is int and type(exponent) is int and exponent >= 0:
        if abs(base) > 1 and exponent > 64:
            raise Fault("Overflow", "integer overflow: the power does not fit 64 bits")
        return checked(base ** (exponent % 2 + 2 if abs(base) <= 1 and exponent > 2 else exponent))
    try:
        result = float(base) ** float(exponent)
    except (OverflowError, ZeroDivisionError):
        raise Fault("ValueError", f"math::pow({base}, {exponent}) is not a number") from None
    if isinstance(result, complex):
        raise Fault("ValueError", f"math::pow({base}, {exponent}) is not a real number")
    return result


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "math::abs": _abs,
    "math::min": lambda left, right: right if less(right, left) else left,
    "math::max": lambda left, right: right if less(left, right) else left,
    "math::sqrt": _float("math::sqrt", math.sqrt),
    "math::pow": _pow,
    "math::floor": _whole("math::floor", math.floor),
    "math::ceil": _whole("math::ceil", math.ceil),
    "math::round": _whole("math::round", _rounded),
    "math::int": _whole("math::int", int),
    "math::float": _float("math::float", lambda value: value),
    "math::log": _float("math::log", math.log),
    "math::exp": _float("math::exp", math.exp),
    "math::sin": _float("math::sin", math.sin),
    "math::cos": _float("math::cos", math.cos),
    "math::pi": lambda: math.pi,
}
