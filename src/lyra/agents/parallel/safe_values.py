"""Values that can be looked at without running anybody's code, and what may be done with them.

Plain values are the constants of Python and tuples of those, by their exact types: a subclass may do anything in its
methods. An answer of an agent (`Reply`) is plain text, too. Everything here either gives what Python itself would give,
or raises `Foreign`: then only the program itself finds out, in its turn.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType, NoneType
from typing import Any, Final

from lyra.agents.session.replies import MarkedReply, Reply

__all__ = ["BUILTINS", "METHODS", "OPERATORS", "Foreign", "calm", "checked", "is_plain", "lets_go", "read", "same"]

_SCALARS: Final = frozenset({str, int, float, bool, bytes, NoneType, Reply, MarkedReply})
_LARGE: Final = 1_000_000  # characters, or bits: what a look ahead does not compute
_MANY: Final = 10_000
_CONTAINERS: Final = (tuple, frozenset, list, dict, set)


class Foreign(Exception):
    """Here the look ahead ends, for this reason."""


def is_plain(value: Any) -> bool:
    kind = type(value)
    return kind in _SCALARS or kind is range or (kind in (tuple, frozenset) and all(map(is_plain, value)))


def calm(value: Any) -> bool:
    """Plain, or a list, dict or set with nothing but plain values: it changes only if somebody changes it."""
    kind = type(value)
    if kind is dict:
        return len(value) <= _MANY and all(is_plain(key) and calm(item) for key, item in value.items())
    if kind in (list, set):
        return len(value) <= _MANY and all(map(calm, value))
    return is_plain(value)


def same(one: Any, other: Any) -> bool:
    """Whether nobody could tell two values apart: equal, and of the same types all through."""
    kind = type(one)
    if one is other:
        return True
    if kind is not type(other):
        return False
    if kind is float:
        return bool(one == other and math.copysign(1, one) == math.copysign(1, other))
    if kind in (list, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if kind is dict:
        pairs = zip(one.items(), other.items(), strict=False)
        return len(one) == len(other) and all(same(mine, theirs) for mine, theirs in pairs)
    return is_plain(one) and bool(one == other)


def lets_go(value: Any, depth: int = 3) -> bool:
    """Whether a name may let go of a value without anybody's `__del__` being run."""
    if is_plain(value):
        return True
    if type(value) in _CONTAINERS:
        parts = [*value, *value.values()] if type(value) is dict else value
        return depth > 0 and len(parts) <= _MANY and all(lets_go(part, depth - 1) for part in parts)
    return not any("__del__" in base.__dict__ for base in _bases(type(value)))


def _bases(kind: type) -> tuple[type, ...]:
    found: tuple[type, ...] = type.__dict__["__mro__"].__get__(kind)
    return found


# ---------------------------------------------------------------- attributes


def read(value: Any, name: str) -> Any:
    """An attribute that lies there ready: of a module, in an object's dict or slots, or plain in its class."""
    if type(value) is ModuleType:
        if name in value.__dict__:
            return value.__dict__[name]
        raise Foreign(f"`.{name}` of a module is not there yet")
    holder = next((base for base in _bases(type(value)) if "__getattribute__" in base.__dict__), object)
    if holder is not object or isinstance(value, type):
        raise Foreign(f"`.{name}` of {type(value).__name__} is not simply read")
    found = next((base.__dict__[name] for base in _bases(type(value)) if name in base.__dict__), None)
    if type(found) is MemberDescriptorType:
        try:
            return found.__get__(value, type(value))
        except AttributeError:
            raise Foreign(f"`.{name}` is not set") from None
    reads = found is not None and any("__get__" in base.__dict__ for base in _bases(type(found)))
    if not reads or type(found) is FunctionType:
        own = _own_dict(value)
        if name in own:
            return own[name]
        if found is not None and not reads:
            return found
    raise Foreign(f"`.{name}` of {type(value).__name__} is computed, or not there")


def _own_dict(value: Any) -> dict[str, Any]:
    ways = [base.__dict__["__dict__"] for base in _bases(type(value)) if "__dict__" in base.__dict__]
    if not ways or type(ways[0]) is not GetSetDescriptorType:
        return {}
    found = ways[0].__get__(value, type(value))
    return found if type(found) is dict else {}


# ---------------------------------------------------------------- computing


def checked(work: Callable[..., Any], *operands: Any) -> Any:
    """What plain operands come to; an error is the program's to find, in its turn."""
    try:
        return work(*operands)
    except Foreign:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it is raised again in its place
        raise Foreign(f"{type(error).__name__} is raised there") from None


def _small(*sizes: int) -> None:
    if any(size > _LARGE for size in sizes):
        raise Foreign("it is too large to be computed twice")


def _times(one: Any, other: Any) -> Any:
    for text, count in ((one, other), (other, one)):
        if hasattr(text, "__len__") and isinstance(count, int):
            _small(len(text) * max(count, 0))
    if isinstance(one, int) and isinstance(other, int):
        _small(one.bit_length() + other.bit_length())
    return one * other


def _power(one: Any, other: Any) -> Any:
    if isinstance(one, int) and isinstance(other, int):
        _small(one.bit_length() * abs(other))
    return one**other


def _shift(one: Any, other: Any) -> Any:
    _small(int(other))
    return one << other


def _percent(one: Any, other: Any) -> Any:
    if isinstance(one, (str, bytes)):
        _check_widths(str(one))
        parts = other if isinstance(other, tuple) else (other,)
        if "*" in str(one):
            raise Foreign("it is laid out with a width of its own")
        _small(len(one) + sum(len(repr(part)) for part in parts))
    return one % other


def _check_widths(text: str) -> None:
    run = 0
    for character in text:
        run = run + 1 if character.isdigit() else 0
        if run > 4:
            raise Foreign("it is too wide to be computed twice")


OPERATORS: Final[dict[str, Callable[..., Any]]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mult": _times,
    "Div": operator.truediv,
    "FloorDiv": operator.floordiv,
    "Mod": _percent,
    "Pow": _power,
    "LShift": _shift,
    "RShift": operator.rshift,
    "BitAnd": operator.and_,
    "BitOr": operator.or_,
    "BitXor": operator.xor,
    "Eq": operator.eq,
    "NotEq": operator.ne,
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
    "In": lambda one, other: one in other,
    "NotIn": lambda one, other: one not in other,
    "Not": operator.not_,
    "USub": operator.neg,
    "UAdd": operator.pos,
}

# Functions that run nobody's code on plain values, and lists of those.
BUILTINS: Final[frozenset[BuiltinFunctionType | type]] = frozenset(
    {
        *(len, abs, min, max, sum, round, repr, sorted, any, all, ord, chr, divmod, hex, ascii),  # type: ignore[arg-type]
        *(str, int, float, bool, range, tuple, list),
    }
)
_WIDTH: Final = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs"})
_TEXT: Final = frozenset(
    {
        *("strip", "lstrip", "rstrip", "upper", "lower", "title", "capitalize", "casefold", "swapcase", "replace"),
        *("split", "rsplit", "splitlines", "join", "startswith", "endswith", "removeprefix", "removesuffix", "find"),
        *("rfind", "index", "count", "partition", "rpartition", "isdigit", "isalpha", "isalnum", "isspace", "isupper"),
        *("islower", "isdecimal", "isnumeric", "isidentifier", "format", *_WIDTH),
    }
)


def _text_method(name: str) -> Callable[..., Any]:
    found = getattr(str, name)

    def work(text: Any, *arguments: Any) -> Any:
        if name == "format":
            _check_widths(text)
            if any(mark in text for mark in (".", "[")):
                raise Foreign("`format` reads parts of its values")
        if name in _WIDTH:
            _small(*(value for value in arguments if isinstance(value, int)))
        if name == "replace" and len(arguments) > 1:
            _small((len(text) + 1) * (len(arguments[1]) + 1))
        if name == "join":
            _small(sum(len(part) + len(text) for part in arguments[0]))
        return found(text, *arguments)

    return work


METHODS: Final[dict[str, Callable[..., Any]]] = {name: _text_method(name) for name in sorted(_TEXT)}
