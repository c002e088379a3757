"""The built-in functions on the direct path: len, round, abs, texts, patterns and the time of the execution.

`matches` searches with `core.linear_regex`, whose time grows with the text; a pattern is compiled once. The current
time is the execution's, so a node sees one time from its first step to its last.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from lyra.core.linear_regex import BadPattern, RegexProgram, TooManySteps
from lyra.vesper import ir
from lyra.vesper.direct.expressions import Compiler, compile_expression, length_of
from lyra.vesper.direct.frames import EXECUTION, Evaluate, Frame, Scope
from lyra.vesper.direct.numbers import absolute, kind_of, round_number
from lyra.vesper.values.limits import PATTERN_INSTRUCTIONS_MAX, PATTERN_STEPS_MAX
from lyra.vesper.values.outcome import NodeError


def _texts(function: str, *values: Any) -> None:
    for value in values:
        if type(value) is not str:
            raise NodeError("type_error", f"{function} cannot take {kind_of(value)}")


def _round(value: Any, scale: Any) -> Any:
    if type(scale) is not int:
        raise NodeError("type_error", f"round cannot take {kind_of(scale)} digits")
    return round_number(value, scale, "half_even")


def _of_text(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, for texts only."""

    def call(*values: Any) -> Any:
        _texts(name, *values)
        return function(*values)

    return call


@lru_cache(maxsize=256)
def _program(pattern: str) -> RegexProgram:
    try:
        return RegexProgram(pattern, size_max=PATTERN_INSTRUCTIONS_MAX)
    except BadPattern as error:
        raise NodeError("type_error", f"bad pattern: {error}") from None


def _matches(text: str, pattern: str) -> bool:
    try:
        groups, _ = _program(pattern).search(text, 0, PATTERN_STEPS_MAX)
    except TooManySteps:
        raise NodeError("resource_limit", "the pattern needs too many steps") from None
    return groups is not None


FUNCTIONS_OF_VALUES: Final[dict[str, Callable[..., Any]]] = {
    "len": length_of,
    "round": _round,
    "abs": absolute,
    "lower": _of_text("lower", str.lower),
    "upper": _of_text("upper", str.upper),
    "trim": _of_text("trim", str.strip),
    "starts_with": _of_text("starts_with", str.startswith),
    "ends_with": _of_text("ends_with", str.endswith),
    "matches": _of_text("matches", _matches),
}


def _call(expression: ir.FunctionCall, scope: Scope) -> Evaluate:
    if expression.function == "current_timestamp":
        return lambda frame: frame[EXECUTION].now
    if expression.function == "current_year":
        return lambda frame: frame[EXECUTION].now.year
    function = FUNCTIONS_OF_VALUES[expression.function]
    arguments = [compile_expression(argument, scope) for argument in expression.arguments]
    if len(arguments) == 1:
        argument = arguments[0]
        return lambda frame: function(argument(frame))

    def call(frame: Frame) -> Any:
        return function(*[argument(frame) for argument in arguments])

    return call


FUNCTIONS: Final[dict[type[ir.TypedExpression], Compiler]] = {ir.FunctionCall: _call}
