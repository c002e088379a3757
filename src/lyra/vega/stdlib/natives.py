"""The pure functions of the library by their full name: what the LIBRARY instruction calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lyra.vega.stdlib import json as json_module
from lyra.vega.stdlib import lists, maths, regex, strings
from lyra.vega.stdlib.arguments import need
from lyra.vega.stdlib.table import GLOBALS, LIBRARY
from lyra.vega.values.values import INT_MAX, Duration, Err, Fault, Ok, checked, kind_of, shown

_SECONDS_MAX: Final = INT_MAX // 1_000_000_000  # that a duration can hold


def _result_unwrap(result: Any) -> Any:
    need(result, "result", "unwrap")
    if isinstance(result, Ok):
        return result.value
    raise Fault("ValueError", f"unwrap of {kind_of(result)} Err({result.value})")


def _duration(seconds: Any) -> Duration:
    if type(seconds) not in (int, float) or seconds - seconds != 0:
        raise Fault("TypeError", f"time::duration needs a number of seconds, got {kind_of(seconds)}")
    if abs(seconds) > _SECONDS_MAX:
        raise Fault("Overflow", f"duration overflow: the longest is {_SECONDS_MAX} seconds")
    return Duration(checked(round(seconds * 1_000_000_000)))


def _assert(condition: Any, message: Any = None) -> None:
    if type(condition) is not bool:
        raise Fault("TypeError", f"assert needs a bool, got {kind_of(condition)}")
    if not condition:
        raise Fault("AssertionFailed", "this does not hold" if message is None else shown(message))


_OTHERS: Final[dict[str, Callable[..., Any]]] = {
    "time::seconds": lambda duration: need(duration, "duration", "time::seconds").seconds,
    "time::millis": lambda duration: need(duration, "duration", "time::millis").nanoseconds // 1_000_000,
    "time::duration": _duration,
    "type": kind_of,
    "assert": _assert,
    "result::is_ok": lambda result: isinstance(result, Ok),
    "result::is_err": lambda result: isinstance(result, Err),
    "result::unwrap": _result_unwrap,
}

NATIVES: Final[dict[str, Callable[..., Any]]] = {
    **strings.FUNCTIONS,
    **lists.FUNCTIONS,
    **maths.FUNCTIONS,
    **json_module.FUNCTIONS,
    **regex.FUNCTIONS,
    **_OTHERS,
}

_MISSING = [
    f"{module}::{name}"
    for module, rows in LIBRARY.items()
    for name, row in rows.items()
    if row.how == "pure" and f"{module}::{name}" not in NATIVES
]
assert not _MISSING, f"functions of the table without an implementation: {_MISSING}"
assert GLOBALS["type"].how == "pure"


def native(name: str) -> Callable[..., Any] | None:
    return NATIVES.get(name)
