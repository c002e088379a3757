"""Values across the border to Python: for host functions, tools and models.

Plain data as it is, Money as Money, a duration as seconds. What a journal holds is made by `machine.snapshot`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from lyra.core.budgets.money import Money
from lyra.vega.values.values import (
    INT_MAX,
    INT_MIN,
    Builder,
    Closure,
    Duration,
    Err,
    Fault,
    Ok,
    Process,
    Response,
    shown,
)

_DEPTH_MAX: Final = 200
_PLAIN: Final = frozenset({type(None), bool, float, str})


def to_python(value: Any, depth: int = 0) -> Any:
    """The value as a Python function or a model gets it."""
    if depth > _DEPTH_MAX:
        raise Fault("LimitExceeded", f"a value nested more than {_DEPTH_MAX} deep cannot be handed over")
    kind = type(value)
    if kind in _PLAIN or kind is int or kind is Money:
        return value
    if kind is list:
        return [to_python(item, depth + 1) for item in value]
    if kind is dict:
        return {key if type(key) is int else shown(key): to_python(item, depth + 1) for key, item in value.items()}
    if kind is Duration:
        return value.seconds
    if kind is Ok or kind is Err:
        return {kind.__name__.lower(): to_python(value.value, depth + 1)}
    if kind is Response:
        return {"status": value.status, "body": value.body, "headers": dict(value.headers)}
    if kind is Builder:
        return "".join(value.parts)
    if kind is Process:
        return value.pid
    if kind is Closure:
        raise Fault("TypeError", "a function cannot be handed over")
    return shown(value)


def from_python(value: Any, depth: int = 0) -> Any:
    """A Python value as a program holds it; what has no form in Vega is a TypeError."""
    if depth > _DEPTH_MAX:
        raise Fault("LimitExceeded", f"a value nested more than {_DEPTH_MAX} deep cannot be taken over")
    if value is None or isinstance(value, (bool, Money)):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, int):
        if not INT_MIN <= value <= INT_MAX:
            raise Fault("Overflow", "integer overflow: a number from outside does not fit 64 bits")
        return int(value)
    if isinstance(value, Mapping):
        return {_key(key): from_python(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [from_python(item, depth + 1) for item in value]
    if type(value) in (Duration, Ok, Err, Process, Response):
        return value
    if isinstance(value, msgspec.Struct):
        return from_python(msgspec.to_builtins(value), depth + 1)
    raise Fault("TypeError", f"a {type(value).__name__} from outside has no form in Vega")


def _key(key: Any) -> Any:
    return key if type(key) is int or type(key) is Process else str(key)
