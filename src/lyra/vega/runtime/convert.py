"""Values across the border: to and from Python, and to and from what a journal holds.

`to_python` and `from_python` are for host functions, tools and models: plain data, Money as Money, a duration as
seconds. `packed` and `unpacked` keep everything, functions and variables they share among themselves included, as
plain data: a table of containers, and values that point into it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from lyra.core.money import Money
from lyra.vega.values import (
    INT_MAX,
    INT_MIN,
    UNSET,
    Builder,
    Cell,
    Closure,
    Duration,
    Err,
    ErrorValue,
    Fault,
    Future,
    Ok,
    Process,
    Response,
    Span,
    Stream,
    Unset,
    kind_of,
    shown,
)

__all__ = ["from_python", "packed", "to_python", "unpacked"]

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


# ---------------------------------------------------------------- the journal's form
# A scalar is itself, or [tag, parts…]; a container is ["@", its number in the table].

_SCALARS: Final[dict[type, tuple[str, Any]]] = {
    Money: ("money", lambda value: [int(value)]),
    Duration: ("duration", lambda value: [value.nanoseconds]),
    Process: ("process", lambda value: [value.pid]),
    Future: ("future", lambda value: [value.id]),
    Stream: ("stream", lambda value: [value.id]),
    Span: ("span", lambda value: [value.id, value.name]),
    Response: ("response", lambda value: [value.status, value.body, value.headers]),
    ErrorValue: ("error", lambda value: [value.name, value.text, value.file, value.line, value.column]),
    Unset: ("unset", lambda _: []),
}
_MADE: Final[dict[str, Any]] = {
    "money": Money,
    "duration": Duration,
    "process": Process,
    "future": Future,
    "stream": Stream,
    "span": Span,
    "response": Response,
    "error": ErrorValue,
    "unset": lambda: UNSET,
}


def packed(value: Any) -> list[Any]:
    """The value as plain data: [itself, the table of its containers]."""
    numbers: dict[int, int] = {}
    todo: list[Any] = []
    table: list[Any] = []

    def part(item: Any) -> Any:
        kind = type(item)
        if kind in _PLAIN or kind is int:
            return item
        if kind in _SCALARS:
            tag, parts = _SCALARS[kind]
            return [tag, *parts(item)]
        if id(item) not in numbers:
            numbers[id(item)] = len(todo)
            todo.append(item)
            table.append(None)
        return ["@", numbers[id(item)]]

    root = part(value)
    done = 0
    while done < len(todo):
        table[done] = _row(todo[done], part)
        done += 1
    return [root, table]


def _row(item: Any, part: Any) -> list[Any]:
    kind = type(item)
    if kind is list:
        return ["list", *(part(each) for each in item)]
    if kind is dict:
        return ["map", *([part(key), part(each)] for key, each in item.items())]
    if kind is Cell:
        return ["cell", part(item.value)]
    if kind is Closure:
        return ["function", item.function, *(part(each) for each in item.captured)]
    if kind is Ok or kind is Err:
        return [kind.__name__, part(item.value)]
    if kind is Builder:
        return ["builder", "".join(item.parts)]
    raise Fault("TypeError", f"a {kind_of(item)} cannot be sent to another process")


def unpacked(data: Any) -> Any:
    """What `packed` was given, new."""
    root, table = data
    made = [_shell(row) for row in table]

    def whole(item: Any) -> Any:
        if type(item) is not list:
            return item
        return made[item[1]] if item[0] == "@" else _MADE[item[0]](*item[1:])

    for shell, row in zip(made, table, strict=True):
        kind = row[0]
        if kind == "list":
            shell.extend(whole(item) for item in row[1:])
        elif kind == "map":
            shell.update((whole(key), whole(item)) for key, item in row[1:])
        elif kind == "cell":
            shell.value = whole(row[1])
        elif kind == "function":
            shell.captured = tuple(whole(item) for item in row[2:])
        elif kind == "Ok" or kind == "Err":
            msgspec.structs.force_setattr(shell, "value", whole(row[1]))
    return whole(root)


def _shell(row: list[Any]) -> Any:
    kind = row[0]
    if kind == "function":
        return Closure(row[1])
    if kind == "builder":
        builder = Builder()
        builder.parts, builder.length = [row[1]], len(row[1])
        return builder
    return _SHELLS[kind]()


_SHELLS: Final[dict[str, Any]] = {
    "list": list,
    "map": dict,
    "cell": Cell,
    "Ok": lambda: Ok(None),
    "Err": lambda: Err(None),
}
