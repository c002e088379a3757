"""Values that can be examined without running a user's code, and the operations on them that are safe.

Plain values are the constants of Python and tuples of those, by their exact types: a subclass may do anything in its
methods. An answer of an agent (`Reply`) is plain text, too. Every function here gives the result that Python itself
would give, or raises `StopLookahead`: then the program computes it in its turn.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType, NoneType
from typing import Any, Final

from lyra.agents.session.replies import MarkedReply, Reply

_SCALARS: Final = frozenset({str, int, float, bool, bytes, NoneType, Reply, MarkedReply})
_LARGE: Final = 1_000_000  # characters or bits; the lookahead computes no larger value
_MANY: Final = 10_000
_CONTAINERS: Final = (tuple, frozenset, list, dict, set)


class StopLookahead(Exception):
    """The lookahead ends here, for this reason."""


def is_plain(value: Any) -> bool:
    kind = type(value)
    return kind in _SCALARS or kind is range or (kind in (tuple, frozenset) and all(map(is_plain, value)))


def is_data(value: Any) -> bool:
    """Return whether a value is plain, or a list, dict or set of such values: reading it runs no user's code."""
    kind = type(value)
    if kind is dict:
        return len(value) <= _MANY and all(is_plain(key) and is_data(item) for key, item in value.items())
    if kind in (list, set):
        return len(value) <= _MANY and all(map(is_data, value))
    return is_plain(value)


def is_same_value(value: Any, other: Any) -> bool:
    """Return whether no program could tell two values apart: equal, and of the same types all through."""
    kind = type(value)
    if value is other:
        return True
    if kind is not type(other):
        return False
    if kind is float:
        return bool(value == other and math.copysign(1, value) == math.copysign(1, other))
    if kind in (list, tuple):
        return len(value) == len(other) and all(map(is_same_value, value, other))
    if kind is dict:
        pairs = zip(value.items(), other.items(), strict=False)
        return len(value) == len(other) and all(is_same_value(mine, theirs) for mine, theirs in pairs)
    return is_plain(value) and bool(value == other)


def can_drop(value: Any, depth: int = 3) -> bool:
    """Return whether a name can be rebound without running a `__del__`."""
    if is_plain(value):
        return True
    if type(value) in _CONTAINERS:
        parts = [*value, *value.values()] if type(value) is dict else value
        return depth > 0 and len(parts) <= _MANY and all(can_drop(part, depth - 1) for part in parts)
    return not any("__del__" in base.__dict__ for base in _bases(type(value)))


def _bases(kind: type) -> tuple[type, ...]:
    bases: tuple[type, ...] = type.__dict__["__mro__"].__get__(kind)
    return bases


# ---------------------------------------------------------------- attributes


def read(value: Any, name: str) -> Any:
    """Return an attribute that can be read without running code: of a module, an object's dict or slots, or its
    class."""
    if type(value) is ModuleType:
        if name in value.__dict__:
            return value.__dict__[name]
        raise StopLookahead(f"`.{name}` of a module is not there yet")
    holder = next((base for base in _bases(type(value)) if "__getattribute__" in base.__dict__), object)
    if holder is not object or isinstance(value, type):
        raise StopLookahead(f"`.{name}` of {type(value).__name__} is not simply read")
    member = next((base.__dict__[name] for base in _bases(type(value)) if name in base.__dict__), None)
    if type(member) is MemberDescriptorType:
        try:
            return member.__get__(value, type(value))
        except AttributeError:
            raise StopLookahead(f"`.{name}` is not set") from None
    reads = member is not None and any("__get__" in base.__dict__ for base in _bases(type(member)))
    if not reads or type(member) is FunctionType:
        own = _read_dict(value)
        if name in own:
            return own[name]
        if member is not None and not reads:
            return member
    raise StopLookahead(f"`.{name}` of {type(value).__name__} is computed, or not there")


def _read_dict(value: Any) -> dict[str, Any]:
    ways = [base.__dict__["__dict__"] for base in _bases(type(value)) if "__dict__" in base.__dict__]
    if not ways or type(ways[0]) is not GetSetDescriptorType:
        return {}
    own = ways[0].__get__(value, type(value))
    return own if type(own) is dict else {}


# ---------------------------------------------------------------- computing


def compute(work: Callable[..., Any], *operands: Any) -> Any:
    """Return the result for plain operands; where there is an error, the program raises it in its turn."""
    try:
        return work(*operands)
    except StopLookahead:
        raise
    except Exception as error:  # noqa: BLE001 - the program raises it again in its turn
        raise StopLookahead(f"{type(error).__name__} is raised there") from None


def _small(*sizes: int) -> None:
    if any(size > _LARGE for size in sizes):
        raise StopLookahead("it is too large to be computed twice")


def _times(left: Any, right: Any) -> Any:
    for text, count in ((left, right), (right, left)):
        if hasattr(text, "__len__") and isinstance(count, int):
            _small(len(text) * max(count, 0))
    if isinstance(left, int) and isinstance(right, int):
        _small(left.bit_length() + right.bit_length())
    return left * right


def _power(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        _small(left.bit_length() * abs(right))
    return left**right


def _shift(left: Any, right: Any) -> Any:
    _small(int(right))
    return left << right


def _percent(left: Any, right: Any) -> Any:
    if isinstance(left, (str, bytes)):
        _check_widths(str(left))
        parts = right if isinstance(right, tuple) else (right,)
        if "*" in str(left):
            raise StopLookahead("it is laid out with a width of its own")
        _small(len(left) + sum(len(repr(part)) for part in parts))
    return left % right


def _check_widths(text: str) -> None:
    run = 0
    for character in text:
        run = run + 1 if character.isdigit() else 0
        if run > 4:
            raise StopLookahead("it is too wide to be computed twice")


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
    "In": lambda item, container: item in container,
    "NotIn": lambda item, container: item not in container,
    "Not": operator.not_,
    "USub": operator.neg,
    "UAdd": operator.pos,
}

# Functions that run no user's code on plain values and lists of those.
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
    method = getattr(str, name)

    def work(text: Any, *arguments: Any) -> Any:
        if name == "format":
            _check_widths(text)
            if any(mark in text for mark in (".", "[")):
                raise StopLookahead("`format` reads parts of its values")
        if name in _WIDTH:
            _small(*(value for value in arguments if isinstance(value, int)))
        if name == "replace" and len(arguments) > 1:
            _small((len(text) + 1) * (len(arguments[1]) + 1))
        if name == "join":
            _small(sum(len(part) + len(text) for part in arguments[0]))
        return method(text, *arguments)

    return work


METHODS: Final[dict[str, Callable[..., Any]]] = {name: _text_method(name) for name in sorted(_TEXT)}
