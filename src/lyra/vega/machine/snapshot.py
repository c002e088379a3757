"""A fiber as plain data, and back.

Everything a fiber reaches is written once into a flat `heap`; who holds it says `["@", index]`. So a list that two
variables share is one list again afterwards, a variable shared by closures is one variable, a value that holds itself
is no trouble, and no depth of nesting makes the writer recurse. Code is named by the program's hash: a fiber of another
program is refused, unless the program was fitted to that one (`fitting`). The data is of null, bool, int, float, str,
list and dict only, ready for any codec.

    from lyra.vega.machine.snapshot import to_data, from_data
    blob = msgspec.msgpack.encode(to_data(fiber))
    fiber = from_data(linked, msgspec.msgpack.decode(blob))
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from lyra.core.budgets.money import Money
from lyra.errors import BytecodeError, Divergence, LyraError
from lyra.vega.machine.fiber import EarlyCallGroup, Fiber, Frame
from lyra.vega.machine.link import LinkedProgram
from lyra.vega.values.values import (
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
)

VERSION: Final = 1
_PLAIN: Final = frozenset({type(None), bool, int, float, str})

# Values without parts that may be shared: a tag, how it is written, how it is read.
_SCALARS: Final[dict[type, tuple[str, Callable[[Any], list[Any]], Callable[..., Any]]]] = {
    Money: ("$", lambda value: [int(value)], Money),
    Duration: ("t", lambda value: [value.nanoseconds], Duration),
    Process: ("p", lambda value: [value.pid], Process),
    Future: ("F", lambda value: [value.id], Future),
    Stream: ("S", lambda value: [value.id], Stream),
    Span: ("s", lambda value: [value.id, value.name], Span),
    Response: ("R", lambda value: [value.status, value.body, value.headers], Response),
    type(UNSET): ("u", lambda _: [], lambda: UNSET),
    ErrorValue: (
        "E",
        lambda value: [value.name, value.text, value.file, value.line, value.column, list(value.trace)],
        ErrorValue,
    ),
}
_BY_TAG: Final = {tag: read for tag, _, read in _SCALARS.values()}


class _SnapshotWriter:
    def __init__(self) -> None:
        self.heap: list[Any] = []
        self.known: dict[int, int] = {}
        self.todo: list[Any] = []

    def value(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        scalar = _SCALARS.get(kind)
        if scalar is not None:
            return [scalar[0], *scalar[1](value)]
        index = self.known.get(id(value))
        if index is None:
            index = self.known[id(value)] = len(self.heap)
            self.heap.append(None)
            self.todo.append(value)
        return ["@", index]

    def values(self, values: Any) -> list[Any]:
        return [self.value(value) for value in values]

    def finish(self) -> list[Any]:
        """Write what was reached, and what that reaches."""
        while self.todo:
            value = self.todo.pop()
            self.heap[self.known[id(value)]] = self.entry(value)
        return self.heap

    def entry(self, value: Any) -> list[Any]:
        kind = type(value)
        if kind is list:
            return ["list", self.values(value)]
        if kind is dict:
            return ["map", self.values(value), self.values(value.values())]
        if kind is Cell:
            return ["cell", self.value(value.value)]
        if kind is Closure:
            return ["function", value.function, self.values(value.captured)]
        if kind is Ok or kind is Err:
            return [kind.__name__, self.value(value.value)]
        if kind is Builder:
            return ["builder", "".join(value.parts)]
        if kind is EarlyCallGroup:
            return ["group", value.to_data(), self.values(value.parts())]
        raise Fault("TypeError", f"a {kind.__name__} cannot be saved")


class _SnapshotReader:
    """Makes every container empty first, then fills them: a circle closes by itself."""

    def __init__(self, heap: list[Any], functions: int) -> None:
        self.heap_values = [self.shell(entry, functions) for entry in heap]
        for entry, value in zip(heap, self.heap_values, strict=True):
            self.fill(entry, value)

    def shell(self, entry: list[Any], functions: int) -> Any:
        kind = entry[0]
        if kind == "list":
            return []
        if kind == "map":
            return {}
        if kind == "cell":
            return Cell()
        if kind == "function":
            if not 0 <= entry[1] < functions:
                raise ValueError("it names a function that the program does not have")
            return Closure(entry[1])
        if kind in ("Ok", "Err"):
            return (Ok if kind == "Ok" else Err)(None)
        if kind == "group":
            return EarlyCallGroup.from_data(entry[1])
        builder = Builder()
        builder.parts, builder.length = [entry[1]], len(entry[1])
        return builder

    def fill(self, entry: list[Any], value: Any) -> None:
        from msgspec.structs import force_setattr

        kind = entry[0]
        if kind == "list":
            value.extend(self.values(entry[1]))
        elif kind == "map":
            value.update(zip(self.values(entry[1]), self.values(entry[2]), strict=True))
        elif kind == "cell":
            value.value = self.value(entry[1])
        elif kind == "function":
            value.captured = tuple(self.values(entry[2]))
        elif kind in ("Ok", "Err"):
            force_setattr(value, "value", self.value(entry[1]))
        elif kind == "group":
            value.fill(self.values(entry[2]))

    def value(self, data: Any) -> Any:
        if type(data) is not list:
            return data
        tag, *rest = data
        return self.heap_values[rest[0]] if tag == "@" else _BY_TAG[tag](*rest)

    def values(self, data: list[Any]) -> list[Any]:
        return [self.value(item) for item in data]


def value_to_data(value: Any) -> dict[str, Any]:
    """One value with all it reaches: for a message or a journal row."""
    writer = _SnapshotWriter()
    root = writer.value(value)
    return {"value": root, "heap": writer.finish()}


def value_from_data(data: dict[str, Any], linked: LinkedProgram | None = None, *, functions: int = 0) -> Any:
    """Without the program its functions are refused, unless the caller says how many it may have: for a value that is
    only shown."""
    functions = len(linked.functions) if linked is not None else functions
    return _SnapshotReader(data["heap"], functions).value(data["value"])


def to_data(fiber: Fiber) -> dict[str, Any]:
    """Return the fiber between two effects."""
    writer = _SnapshotWriter()
    frames = [_frame(writer, fiber.code, fiber.pc, fiber.registers, fiber.destination)]
    below: Frame | None = fiber.stack
    while below is not None:
        below, code, pc, registers, destination = below
        frames.append(_frame(writer, code, pc, registers, destination))
    fault = fiber.fault
    return {
        "version": VERSION,
        "program": fiber.linked.hash,
        "frames": frames,
        "globals": writer.values(fiber.globals),
        "mailbox": writer.values(fiber.mailbox or ()),
        "budgets": fiber.budgets,
        "receives": fiber.receives,
        "ticks": fiber.ticks,
        "depth": fiber.depth,
        "looking": fiber.looking,
        "fault": None if fault is None else [fault.name, fault.text],
        "heap": writer.finish(),
    }


def _frame(writer: _SnapshotWriter, code: Any, pc: int, registers: list[Any], destination: int) -> list[Any]:
    # The constants behind the function's own registers are the program's.
    return [code.index, pc, writer.values(registers[: code.function.registers]), destination]


def from_data(linked: LinkedProgram, data: dict[str, Any]) -> Fiber:
    """Return the fiber that `to_data` described. Divergence if it belongs to other code, BytecodeError if it is
    damaged."""
    saved_by = data.get("program")
    if data.get("version") != VERSION or (saved_by != linked.hash and saved_by not in linked.older):
        raise Divergence(
            "this process was saved by another program",
            expected=str(saved_by),
            actual=linked.hash,
            hint="run it with the program it was started with",
        )
    try:
        return _restore(linked, data)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, LyraError) as error:
        raise BytecodeError(f"this saved process is damaged: {error}") from None


def _restore(linked: LinkedProgram, data: dict[str, Any]) -> Fiber:
    reader = _SnapshotReader(data["heap"], len(linked.functions))
    stack: Frame | None = None
    top, *below = data["frames"]
    for row in reversed(below):
        code, pc, registers, destination = _frame_from(linked, reader, row)
        stack = (stack, code, pc, registers, destination)
    code, pc, registers, destination = _frame_from(linked, reader, top)
    globals_ = reader.values(data["globals"])
    if data["program"] != linked.hash:  # the program has more of them by now
        globals_ += [UNSET] * (len(linked.program.globals) - len(globals_))
    fiber = Fiber(linked, code, registers, globals_)
    if len(fiber.globals) != len(linked.program.globals):
        raise ValueError("it has other globals than the program")
    fiber.pc, fiber.destination, fiber.stack = pc, destination, stack
    fiber.depth, fiber.looking = int(data.get("depth", len(below))), int(data.get("looking", 0))
    mailbox = reader.values(data["mailbox"])
    fiber.mailbox = deque(mailbox) if mailbox else None
    fiber.budgets, fiber.receives, fiber.ticks = int(data["budgets"]), int(data["receives"]), int(data["ticks"])
    if data["fault"] is not None:
        fiber.fault = Fault(*data["fault"])
    return fiber


def _frame_from(linked: LinkedProgram, reader: _SnapshotReader, row: list[Any]) -> tuple[Any, int, list[Any], int]:
    index, pc, values, destination = row
    code = linked.functions[index]
    own = code.function.registers
    if len(values) != own or not 0 <= pc < len(code.code) or not -1 <= destination < own:
        raise ValueError("a call in it does not fit its function")
    return code, pc, reader.values(values) + code.template[own:], destination
