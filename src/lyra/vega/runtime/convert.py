"""Values across the border to Python: for host functions, tools and models.

Plain data as it is, Money as Money, a duration as seconds. What a journal holds is made by `machine.snapshot`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from lyra.core.budgets.money import Money
from lyra.core.policies.policy import Backoff
from lyra.errors import ConfigError
from lyra.vega.syntax.ast import Type
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
    kind_of,
    render,
)

_DEPTH_MAX: Final = 200
_PLAIN: Final = frozenset({type(None), bool, float, str})


def to_python(value: Any, depth: int = 0) -> Any:
    """Return the value as a Python function or a model gets it."""
    if depth > _DEPTH_MAX:
        raise Fault("LimitExceeded", f"a value nested more than {_DEPTH_MAX} deep cannot be handed over")
    kind = type(value)
    if kind in _PLAIN or kind is int or kind is Money:
        return value
    if kind is list:
        return [to_python(item, depth + 1) for item in value]
    if kind is dict:
        return {key if type(key) is int else render(key): to_python(item, depth + 1) for key, item in value.items()}
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
    return render(value)


def from_python(value: Any, depth: int = 0) -> Any:
    """Return a Python value as a program holds it; what has no form in Vega is a TypeError."""
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


def seconds(value: Any, what: str) -> float:
    """Return a duration in seconds; a bare integer is milliseconds."""
    if type(value) is Duration:
        return float(value.seconds)
    if type(value) is int:
        return value / 1000
    raise Fault("TypeError", f"`{what}` is a duration, not {kind_of(value)}")


def backoff(value: Any) -> Backoff:
    """`exponential(base, factor, max)`, `linear(step, max)`, `constant(pause)`, or such a word alone."""
    kind, *given = value if isinstance(value, list) else [value]
    if kind == "exponential":
        initial = seconds(given[0], "backoff") if given else 0.1
        factor = float(given[1]) if len(given) > 1 else 2.0
        most = seconds(given[2], "backoff") if len(given) > 2 else max(30.0, initial)
        return Backoff(initial_s=initial, factor=factor, max_s=most)
    initial = seconds(given[0], "backoff") if given else 0.1
    most = seconds(given[1], "backoff") if len(given) > 1 else initial if kind == "constant" else max(30.0, initial)
    return Backoff(kind=kind, initial_s=initial, max_s=most)


_SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "null": {"type": "null"},
    "map": {"type": "object"},
    "list": {"type": "array"},
    "money": {"type": "string", "description": "an amount such as $0.50"},
    "duration": {"type": "number", "description": "seconds"},
    "any": {},
    "": {},
}


def schema_of_type(text: str) -> Any:
    """Return what lyra's Agent takes as `output`: the schema of a type as it is written; plain text for `str`."""
    schema = type_schema(read_type_text(text))
    return str if schema == {"type": "string"} else schema


def type_schema(written: Type) -> dict[str, Any]:
    fields = getattr(written, "fields", None)
    if fields:
        return {
            "type": "object",
            "properties": {name: type_schema(field) for name, field in fields.items()},
            "required": list(fields),
            "additionalProperties": False,
        }
    schema = _SCHEMAS.get(written.name)
    if schema is None:
        raise ConfigError(f"`{written.name}` is no type that an answer or an argument can have")
    if written.name == "list" and written.parameters:
        return {"type": "array", "items": type_schema(written.parameters[0])}
    if written.name == "map" and written.parameters:
        return {"type": "object", "additionalProperties": type_schema(written.parameters[-1])}
    return dict(schema)


def convert_to_type(value: Any, written: Type) -> Any:
    """Return a value that fits the schema of a type as a value of that type: JSON has no money and no durations."""
    if written.name == "money":
        return Money.parse(str(value))
    if written.name == "duration":
        return Duration(round(value * 1_000_000_000))
    if written.name == "float":
        return float(value)
    fields = getattr(written, "fields", None)
    if fields:
        return {name: convert_to_type(value[name], field) for name, field in fields.items()}
    if written.name == "list" and written.parameters:
        return [convert_to_type(item, written.parameters[0]) for item in value]
    if written.name == "map" and written.parameters:
        return {key: convert_to_type(item, written.parameters[-1]) for key, item in value.items()}
    return from_python(value)


def read_type_text(text: str) -> Type:
    """Return a type from its text, with the language's own parser."""
    from lyra.vega.syntax.parser import parse

    written = text.strip()
    module = parse(f"agent a {{ output {written} }}", "<type>")
    value: Any = module.statements[0].fields["output"]  # type: ignore[attr-defined]
    parsed: Type = value.type
    return parsed
