"""Values from a caller as plain ones: exactly the types that nodes work with, no subclasses of them.

A member of an enumeration over str or int, a float of an array library, an OrderedDict or a str subclass becomes the
str, int, float or dict that it stands for, so that all paths are given equal values and outputs hold no object of the
caller. An object of any other type is left as it is, and the paths refuse it. `to_plain_inputs` is called once, where
an execution begins. Inputs that are plain already are handed on without a copy. A mapping or a value that raises when
it is read, or that is nested too deeply for any type, is `UnreadableInputs`; the text tells nothing of its content.
`is_larger` estimates memory: the characters of texts, and a fixed number of bytes for each element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timezone
from decimal import Decimal
from typing import Any, Final

from lyra.vesper.values.limits import ELEMENT_BYTES, TYPE_DEPTH_MAX, VALUE_DEPTH_MAX

_SCALARS: Final = frozenset({str, int, bool, float, Decimal, bytes, type(None)})
_DEPTH_MAX: Final = VALUE_DEPTH_MAX + TYPE_DEPTH_MAX + 2  # deeper values fit no type
_ZONES: Final = frozenset({type(None), timezone})


class UnreadableInputs(ValueError):
    """Inputs of which no path could read a value."""


def to_plain_inputs(inputs: Any) -> Any:
    """Return the inputs of an execution with plain names and values; what is no mapping is left to the paths to
    refuse."""
    if type(inputs) is dict:
        for name, value in inputs.items():  # as `_has_scalars`, without a call
            if type(value) not in _SCALARS or type(name) is not str:
                break
        else:
            return inputs
    elif not isinstance(inputs, Mapping):
        return inputs
    try:
        return _to_plain_map(inputs, 0)
    except UnreadableInputs:
        raise
    except Exception as error:  # noqa: BLE001 - the caller's own code
        raise UnreadableInputs(f"the inputs cannot be read: {type(error).__name__}") from None


def to_plain_value(value: Any) -> Any:
    """Return one value, such as a response, with plain values in it."""
    return value if type(value) in _SCALARS else to_plain_inputs({"value": value})["value"]


def wrap_plain_answers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of the embedding program, its answers plain."""
    return lambda *arguments: to_plain_value(function(*arguments))


def _has_scalars(values: dict[Any, Any]) -> bool:
    """Return whether a dict has plain names and plain values that hold no others."""
    for name, value in values.items():  # noqa: SIM110 - a generator takes twice as long
        if type(value) not in _SCALARS or type(name) is not str:
            return False
    return True


def _to_plain(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind in _SCALARS:
        return value
    if depth > _DEPTH_MAX:
        raise UnreadableInputs("the inputs are nested too deeply")
    if kind is dict:
        return value if _has_scalars(value) else _to_plain_map(value, depth + 1)
    if kind is list:
        return _to_plain_list(value, depth + 1)
    for base, convert in _CONVERSIONS:
        if isinstance(value, base):
            return convert(value, depth + 1)
    return value


def _to_plain_map(value: Mapping[Any, Any], depth: int) -> dict[Any, Any]:
    return {_to_plain(name, depth): _to_plain(item, depth) for name, item in value.items()}


def _to_plain_list(value: list[Any], depth: int) -> list[Any]:
    if type(value) is list and _SCALARS.issuperset(map(type, value)):
        return value
    return [_to_plain(item, depth) for item in value]


def _to_plain_tuple(value: tuple[Any, ...], depth: int) -> tuple[Any, ...]:
    return tuple(_to_plain(item, depth) for item in value)


def _to_plain_set(value: set[Any] | frozenset[Any], depth: int) -> frozenset[Any]:
    return frozenset(_to_plain(item, depth) for item in value)


def _to_plain_time(value: datetime, _: int) -> datetime:
    """Return the time, converted to UTC where its zone is of a class of the caller's."""
    if type(value) is not datetime:
        value = datetime.combine(value.date(), value.timetz())
    return value if type(value.tzinfo) in _ZONES else value.astimezone(UTC)


# By the base type. The methods of the base types are called, since a subclass may have put others in their place.
_CONVERSIONS: Final[tuple[tuple[Any, Callable[[Any, int], Any]], ...]] = (
    (str, lambda value, _: str.__str__(value)),
    (int, lambda value, _: int.__int__(value)),
    (float, lambda value, _: float.__float__(value)),
    (Decimal, lambda value, _: Decimal(value)),
    (bytes, lambda value, _: b"".join((value,))),
    (datetime, _to_plain_time),
    (list, _to_plain_list),
    (dict, _to_plain_map),
    (tuple, _to_plain_tuple),
    ((set, frozenset), _to_plain_set),
)


def is_larger(value: Any, bytes_max: int) -> bool:
    """Return whether a value takes more than so many bytes. Counting ends where that is known."""
    left = bytes_max
    rest = [value]
    while rest:
        item = rest.pop()
        if isinstance(item, (str, bytes)):
            left -= len(item)
        elif isinstance(item, dict):
            left -= ELEMENT_BYTES * len(item) + sum(map(len, item))
            rest.extend(item.values())
        elif isinstance(item, (list, tuple, set, frozenset)):
            left -= ELEMENT_BYTES * len(item)
            rest.extend(item)
        if left < 0:
            return True
    return False
