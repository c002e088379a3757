"""The values of a Vega program, and the rules that all of them share: how they are shown, compared and copied.

Python's own null, bool, int, float, str, list and dict represent Vega's; the rest is here. An int has 64 bits and is
checked: leaving them is an Overflow, never a wrap. A Duration is whole nanoseconds and a Money whole micro-dollars, so
both are exact. `render` is what `print` writes, `equal` is `==`, `copy_value` is what a message carries. All three walk
with their own stack, so neither depth nor a list that holds itself can break them. Next: `operators`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lyra.core.budgets.money import Money
from lyra.core.limits import VEGA_SHOWN_PIECES_MAX
from lyra.core.naming import give_name
from lyra.errors import CODES, LyraError, VegaError

INT_MIN: Final = -(1 << 63)
INT_MAX: Final = (1 << 63) - 1

# A duration's units in nanoseconds, largest first: a value is shown in the first, from hours on, that divides it.
UNITS: Final = {
    "d": 86_400_000_000_000,
    "h": 3_600_000_000_000,
    "m": 60_000_000_000,
    "s": 1_000_000_000,
    "ms": 1_000_000,
    "us": 1_000,
    "ns": 1,
}


@give_name("lyra:vega.Fault")
class Fault(Exception):
    """An error on its way to a Vega `catch`: its name there and its text."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name
        self.text = text


class Duration(msgspec.Struct, frozen=True, order=True):
    """A span of time in whole nanoseconds. `Duration.parse("1.5", "s")` is what the source `1.5s` means."""

    nanoseconds: int

    @classmethod
    def parse(cls, number: str, unit: str) -> Duration:
        """Return the duration that a literal writes; Overflow if it does not fit, ValueError if finer than a
        nanosecond."""
        whole, _, fraction = number.partition(".")
        digits = int(whole + fraction) * UNITS[unit]
        nanoseconds, rest = divmod(digits, 10 ** len(fraction))
        if rest:
            raise Fault("ValueError", f"{number}{unit} is finer than a nanosecond")
        return cls(check_int(nanoseconds))

    @property
    def seconds(self) -> float:
        return self.nanoseconds / 1_000_000_000

    def __str__(self) -> str:
        if not self.nanoseconds:
            return "0s"
        for unit, size in UNITS.items():
            if unit != "d" and self.nanoseconds % size == 0:
                return f"{self.nanoseconds // size}{unit}"
        raise AssertionError("every count of nanoseconds divides by one")


class Ok(msgspec.Struct, frozen=True):
    """`Ok(x)`: a Result that went well."""

    value: Any


class Err(msgspec.Struct, frozen=True):
    """`Err(e)`: a Result that did not."""

    value: Any


class Process(msgspec.Struct, frozen=True):
    """A handle on a process; two handles are equal when their pids are.

    Programs do not see the pid: it depends on how a run is saved, and on which calls were made ahead of their turn."""

    pid: str


class Future(msgspec.Struct, frozen=True):
    """The value of `spawn async`; `await` waits for its result."""

    id: str


STREAM_IS_OVER: Final = "this stream is over: it was read to its end, or its loop was left"


class Stream(msgspec.Struct, frozen=True):
    """The value of `<~`: iterable, awaitable, closed when its loop ends."""

    id: str


class Span(msgspec.Struct, frozen=True):
    """A span of the trace."""

    id: str
    name: str


class Response(msgspec.Struct, frozen=True):
    """The value of `http::get` and `http::post`."""

    status: int
    body: str
    headers: dict[str, str]


class Builder:
    """Text that grows in place: `str::builder()`."""

    __slots__ = ("length", "parts")

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.length = 0


class Cell:
    """A variable that closures share."""

    __slots__ = ("value",)

    def __init__(self, value: Any = None) -> None:
        self.value = value


class Closure:
    """A function as a value: which one (its index in the Program) and the variables it captured."""

    __slots__ = ("captured", "function")

    def __init__(self, function: int, captured: tuple[Any, ...] = ()) -> None:
        self.function = function
        self.captured = captured


class Unset:
    """The one value that no program sees: an argument left out, a variable not yet set."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset()


class ErrorValue(msgspec.Struct):
    """An error in flight, or caught: what it is called, what it says, where it was thrown, and who called whom."""

    name: str
    text: str
    file: str = ""
    line: int = 0
    column: int = 0
    trace: list[str] = []

    def __str__(self) -> str:
        return f"error[{self.name}]: {self.text}"


KINDS: Final[dict[type, str]] = {
    type(None): "null",
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    Duration: "duration",
    Money: "money",
    list: "list",
    dict: "map",
    Ok: "result",
    Err: "result",
    Process: "process",
    Future: "future",
    Stream: "stream",
    Response: "response",
    Span: "span",
    Builder: "builder",
    Closure: "function",
    ErrorValue: "error",
    Unset: "unset",
}


def kind_of(value: Any) -> str:
    """Return the word for a value's type, as programs and error texts write it."""
    return KINDS.get(type(value), "host value")


def check_int(number: int) -> int:
    """Return an int that fits 64 bits, or an Overflow."""
    if INT_MIN <= number <= INT_MAX:
        return number
    raise Fault("Overflow", "integer overflow: the result does not fit 64 bits")


def _float_shown(value: float) -> str:
    text = repr(value)
    if text.endswith(".0"):
        return text[:-2]
    digits, e, exponent = text.partition("e")
    return f"{digits}e{int(exponent)}" if e else text  # `1e-7`, where Python has `1e-07`


_SCALARS_SHOWN: Final[dict[type, Any]] = {
    str: lambda value: value,
    int: str,
    bool: lambda value: "true" if value else "false",
    type(None): lambda _: "null",
    float: _float_shown,
    Money: str,
    Duration: str,
    Process: lambda _: "<process>",
    Future: lambda _: "<future>",
    Stream: lambda _: "<stream>",
    Span: lambda value: f"<span {value.name}>",
    Response: lambda value: f"<response {value.status}>",
    Closure: lambda _: "<function>",
    ErrorValue: str,
    Builder: lambda value: "".join(value.parts),
}


def render(value: Any) -> str:
    """Return the text that `print` writes for a value and that `+` with a string joins."""
    scalar = _SCALARS_SHOWN.get(type(value))
    if scalar is not None:
        return str(scalar(value))
    parts: list[str] = []
    open_ids: set[int] = set()
    # What is still to be written, last first: texts, values, and the ids of containers that end there.
    todo: list[tuple[str, Any]] = [("value", value)]
    while todo:
        what, item = todo.pop()
        if what == "text":
            parts.append(item)
        elif what == "close":
            open_ids.discard(item)
        elif (scalar := _SCALARS_SHOWN.get(type(item))) is not None:
            parts.append(str(scalar(item)))
        elif id(item) in open_ids:
            parts.append("[…]" if type(item) is list else "{…}")
        else:
            open_ids.add(id(item))
            todo.append(("close", id(item)))
            todo.extend(reversed(_pieces(item)))
            if len(todo) + len(parts) > VEGA_SHOWN_PIECES_MAX:
                raise Fault("LimitExceeded", "the value is too large to be shown")
    WORK.units += len(parts) >> 1
    return "".join(parts)


def render_with_id(value: Any) -> str:
    """Render a value for a reader of a run's records, who tells processes, futures and streams apart by their ids."""
    if type(value) is Process:
        return f"<process {value.pid}>"
    if type(value) is Future or type(value) is Stream:
        return f"<{kind_of(value)} {value.id}>"
    return render(value)


def _pieces(item: Any) -> list[tuple[str, Any]]:
    pieces: list[tuple[str, Any]] = []
    if type(item) is list:
        pieces.append(("text", "["))
        for index, part in enumerate(item):
            pieces.append(("text", ", " if index else ""))
            pieces.append(("value", part))
        pieces.append(("text", "]"))
    elif type(item) is dict:
        pieces.append(("text", "{"))
        for index, (key, part) in enumerate(item.items()):
            pieces.append(("text", f"{', ' if index else ''}{render(key)}: "))
            pieces.append(("value", part))
        pieces.append(("text", "}"))
    elif type(item) is Ok or type(item) is Err:
        pieces = [("text", f"{type(item).__name__}("), ("value", item.value), ("text", ")")]
    else:
        pieces.append(("text", f"<{kind_of(item)}>"))
    return pieces


_NUMBERS: Final = frozenset({int, float})


def equal(left: Any, right: Any) -> bool:
    """`==`: deep for lists and maps, `1 == 1.0`, never across other kinds (`true == 1` is false)."""
    seen: set[tuple[int, int]] = set()
    todo = [(left, right)]
    while todo:
        first, second = todo.pop()
        kind = type(first)
        if kind is not type(second):
            if kind in _NUMBERS and type(second) in _NUMBERS and first == second:
                continue
            return False
        if kind is list or kind is dict:
            if first is second or (id(first), id(second)) in seen:
                continue
            if len(first) != len(second):
                return False
            WORK.units += len(first) >> 1
            seen.add((id(first), id(second)))
            if kind is list:
                todo.extend(zip(first, second, strict=True))
                continue
            for key, value in first.items():
                if key not in second:
                    return False
                todo.append((value, second[key]))
        elif kind is Ok or kind is Err:
            todo.append((first.value, second.value))
        elif kind is Closure:
            if first is not second and (first.function != second.function or first.captured or second.captured):
                return False
        elif first != second:
            return False
    return True


_NESTED: Final = frozenset({list, dict, Ok, Err})


def compute_mark(value: Any, known: dict[int, int]) -> int:
    """Return a number that equal values share, so that only those of one number have to be compared. `known` keeps the
    marks of lists and maps by their ids, for as long as nothing changes them. What holds itself has its kind for a
    mark: there the same value can be written in many ways."""
    fresh: dict[int, int] = {}
    open_ids: set[int] = set()
    todo = [value]
    while todo:
        item = todo[-1]
        if id(item) in fresh or id(item) in known:
            todo.pop()
            continue
        if type(item) is list:
            parts = item
        elif type(item) is dict:
            parts = list(item.values())
        else:
            parts = [item.value] if type(item) in _NESTED else [item]
        if id(item) not in open_ids:
            open_ids.add(id(item))
            inner = [part for part in parts if type(part) in _NESTED]
            if any(id(part) in open_ids for part in inner):
                return hash(kind_of(value))
            todo += inner
            if inner:
                continue
        WORK.units += len(parts)
        marks = [fresh.get(id(part)) or known.get(id(part)) or _mark(part) for part in parts]
        kind = type(item)
        fresh[id(item)] = hash((kind_of(item), frozenset(zip(item, marks, strict=True)) if kind is dict else (*marks,)))
        open_ids.discard(id(item))
        todo.pop()
    known.update(fresh)
    return known[id(value)]


def _mark(value: Any) -> int:
    """Return the mark of what holds nothing."""
    if type(value) is Closure:
        return value.function
    try:
        return hash(value)
    except TypeError:
        return hash(kind_of(value))


SHARED: Final = frozenset(
    {type(None), bool, int, float, str, Duration, Money, Process, Future, Stream, Response, Span, ErrorValue, Unset}
)


def copy_value(value: Any) -> Any:
    """Return the value as another process may hold it: nothing that can change is shared, and identity inside is
    kept."""
    if type(value) in SHARED:
        return value
    memo: dict[int, Any] = {}
    root = _shell(value, memo)
    # Containers whose insides still point at the old ones.
    todo = [(value, root)]
    while todo:
        old, new = todo.pop()
        if type(old) is list or type(old) is dict:
            WORK.units += len(old) >> 2
        if type(old) is list:
            for item in old:
                new.append(_copy_part(item, memo, todo))
        elif type(old) is dict:
            for key, item in old.items():
                new[key] = _copy_part(item, memo, todo)
        elif type(old) is Cell:
            new.value = _copy_part(old.value, memo, todo)
        elif type(old) is Closure:
            new.captured = tuple(_copy_part(item, memo, todo) for item in old.captured)
        elif type(old) is Ok or type(old) is Err:
            msgspec.structs.force_setattr(new, "value", _copy_part(old.value, memo, todo))
    return root


def _copy_part(item: Any, memo: dict[int, Any], todo: list[tuple[Any, Any]]) -> Any:
    if type(item) in SHARED:
        return item
    known = memo.get(id(item))
    if known is None:
        known = _shell(item, memo)
        todo.append((item, known))
    return known


def _shell(value: Any, memo: dict[int, Any]) -> Any:
    """Return an empty container of the value's kind, remembered before it is filled, so that a circle closes."""
    kind = type(value)
    new: Any
    if kind is list:
        new = []
    elif kind is dict:
        new = {}
    elif kind is Cell:
        new = Cell()
    elif kind is Closure:
        new = Closure(value.function)
    elif kind is Ok or kind is Err:
        new = kind(None)
    elif kind is Builder:
        new = Builder()
        new.parts, new.length = list(value.parts), value.length
    else:
        raise Fault("TypeError", f"a {kind_of(value)} cannot be sent to another process")
    memo[id(value)] = new
    return new


# What Lyra raises becomes a Fault with the catch name of its code; what a program does not catch becomes a VegaError.


def fault_of(error: BaseException) -> Fault:
    """Return the error as a Vega `catch` sees it."""
    if isinstance(error, Fault):
        return error
    if isinstance(error, LyraError):
        fields = error.fields
        if "name" in fields and "text" in fields:  # a VegaError, or one that came back from a journal
            return Fault(str(fields["name"]), str(fields["text"]))
        partial = fields.get("partial")  # of an answer that its budget cut: a Vega error has no fields, only a text
        return Fault(CODES[error.code].catch, f"{error.message}: {partial}" if partial else error.message)
    return Fault(type(error).__name__, str(error))


def uncaught(error: BaseException, file: str = "", line: int = 0, column: int = 0) -> VegaError:
    """Return the error of a program that Lyra ended: an error of Lyra's keeps its name, and with it its exit code."""
    if isinstance(error, VegaError):
        return error
    fault = fault_of(error) if isinstance(error, LyraError) else Fault("ProcessExit", str(error))
    return VegaError.of(ErrorValue(fault.name, fault.text, file, line, column))


# One instruction may walk a list of a million items. Functions that do such things add to `WORK.units` what that comes
# to in calls and loop turns, and the machine takes it off the fuel of the process: a count and no clock, so that a run
# in virtual time is the same every time. An item that Python looks at is about one unit; copied items and characters
# are many to a unit.

BULK: Final = 5  # a shift: so many items that are copied together are one loop turn, as a power of two
CHARS: Final = 9  # a shift: so many characters that are copied together are one loop turn, as a power of two


class Work:
    __slots__ = ("units",)

    def __init__(self) -> None:
        self.units = 0


WORK: Final = Work()
